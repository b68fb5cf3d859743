"""The property string, NAME 0x01 value 0x02 repeated, and the names with a meaning.

Apache: MessageConst, MessageDecoder.string2messageProperties and messageProperties2String.
"""

from typing import Final

NAME_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
KEY_SEPARATOR: Final = " "

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
BUYER_ID: Final = "BUYER_ID"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
MQ2_FLAG: Final = "MQ2_FLAG"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
UNIQ_KEY: Final = "UNIQ_KEY"
TRANS_OFFSET: Final = "TRANS_OFFSET"
EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
DUP_INFO: Final = "DUP_INFO"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
CLUSTER: Final = "CLUSTER"
MSG_TYPE: Final = "MSG_TYPE"
POP_CK: Final = "POP_CK"
POP_CK_OFFSET: Final = "POP_CK_OFFSET"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
SHARDING_KEY: Final = "__SHARDINGKEY"
LITE_TOPIC: Final = "__LITE_TOPIC"
FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
REDIRECT: Final = "REDIRECT"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_ROLL_LABEL: Final = "TIMER_ROLL_LABEL"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
CRC32: Final = "__CRC32#"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."  # such properties are never stored

RESERVED: Final = frozenset(
    {
        *(TRACE_ON, MSG_REGION, KEYS, TAGS, WAIT, DELAY, RETRY_TOPIC, ORIGIN_GROUP, REAL_TOPIC),
        *(REAL_QID, TRAN_MSG, PGROUP, MIN_OFFSET, MAX_OFFSET, BUYER_ID, ORIGIN_MESSAGE_ID),
        *(TRANSFER_FLAG, CORRECTION_FLAG, MQ2_FLAG, RECONSUME_TIME, UNIQ_KEY),
        *(MAX_RECONSUME_TIMES, CONSUME_START_TIME, POP_CK, POP_CK_OFFSET, FIRST_POP_TIME),
        *(TRAN_PREPARED_QUEUE_OFFSET, DUP_INFO, EXTEND_UNIQ_INFO, INSTANCE_ID, CORRELATION_ID),
        *(REPLY_TO_CLIENT, TTL, ARRIVE_TIME, PUSH_REPLY_TIME, CLUSTER, MSG_TYPE),
        *(INNER_MULTI_QUEUE_OFFSET, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS),
        *(TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES, TIMER_OUT_MS, TIMER_DEL_UNIQKEY),
        *(TIMER_DELAY_LEVEL, BORN_HOST, BORN_TIMESTAMP, DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID),
        *(CRC32, PRIORITY, LITE_TOPIC),
    }
)
"""Names an application may not use for its own properties (MessageConst.STRING_HASH_SET)."""

SYSTEM: Final = RESERVED | {SHARDING_KEY}
"""RocketMQ's own names: the reserved ones, and the message group's, which Java's selectors set as any property."""


def decode_properties(text: str) -> dict[str, str]:
    """The properties by name. Entries with an empty name or value are dropped, as Java does."""
    found: dict[str, str] = {}
    for entry in text.split(PROPERTY_SEPARATOR):
        at = entry.find(NAME_SEPARATOR)
        if 0 < at < len(entry) - 1:
            found[entry[:at]] = entry[at + 1 :]
    return found


def encode_properties(properties: dict[str, str]) -> str:
    """The property string, in the dict's order; every property is closed by its separator.

    A value cannot hold that separator: it is left out, of `properties` too, so that no name a peer chose adds
    properties and who indexes a value indexes what is stored.
    """
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    if text.count(PROPERTY_SEPARATOR) != len(properties):
        for name, value in list(properties.items()):
            properties[name] = value.replace(PROPERTY_SEPARATOR, "")
        text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    return text
