"""The property string, NAME 0x01 value 0x02 repeated, and the names with a meaning. HOT.

Of a property that is there twice the last one that has a value counts; one without a value is none. Apache: MessageConst, MessageDecoder.string2messageProperties and messageProperties2String.
"""

from typing import Final

from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i16, i64

from roquette.base.plain_text import separator_at

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
MAX_PRIORITY: Final = 2**31 - 1
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


TAGS_MARK: Final = b"TAGS\x01"  # how an entry begins, for `find_property`
KEYS_MARK: Final = b"KEYS\x01"
UNIQ_KEY_MARK: Final = b"UNIQ_KEY\x01"
_TAGS_WORD: Final = 0x54414753  # the names as numbers: compared without a copy
DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""How long levels 1, 2, 3 and so on of the property DELAY are, where a broker is told nothing else."""
_KEYS_WORD: Final = 0x4B455953
_UNIQ_WORD: Final = 0x554E4951
_KEY_WORD: Final = 0x5F4B4559  # eight bytes would be an object
_WAIT_WORD: Final = 0x57414954


def find_property(data: bytes, start: i64, end: i64, mark: bytes) -> tuple[i64, i64]:
    """Find the value of a property in the property string from `start` to `end`; equal places when it has none.

    Args:
        mark: the property's name and 0x01.
    """
    stop: i64 = end
    while True:
        at: i64 = data.rfind(mark, start, stop)
        if at < 0:
            return 0, 0
        if at == start or data[at - 1] == 2:
            value: i64 = at + len(mark)
            close: i64 = data.find(b"\x02", value, end)
            if close < 0:
                close = end
            if close > value:
                return value, close
        stop = at + len(mark) - 1


def property_bytes(data: bytes, mark: bytes) -> bytes | None:
    """The value of one property out of an encoded property string; None when it has none. `mark`: NAME 0x01."""
    start, end = find_property(data, 0, len(data), mark)
    return data[start:end] if end > start else None


def property_value(text: str, name: str) -> str | None:
    """The value of one property; None when it has none."""
    mark = f"\x02{name}\x01"
    end: i64 = len(text)
    while True:
        at: i64 = text.rfind(mark, 0, end)
        if at >= 0:
            start = at + len(mark)
        elif text.startswith(mark[1:]):
            start = len(mark) - 1
        else:
            return None
        stop = text.find("\x02", start)
        value = text[start:] if stop < 0 else text[start:stop]
        if value or at < 0:
            return value or None
        end = at + 1


class KeySpans:
    """What one pass over an encoded property string finds: where TAGS, KEYS, UNIQ_KEY and WAIT have their values (start and
    end, equal when absent), and whether a name occurs that may have a meaning for the broker.

    Attributes:
        marked: there may be a property that needs more than being stored, by its first letters; who wants to know
            reads them all.
    """

    __slots__ = (
        "keys_end",
        "keys_start",
        "marked",
        "tags_end",
        "tags_start",
        "uniq_end",
        "uniq_start",
        "wait_end",
        "wait_start",
    )

    def __init__(self) -> None:
        self.tags_start: i64 = 0
        self.tags_end: i64 = 0
        self.keys_start: i64 = 0
        self.keys_end: i64 = 0
        self.uniq_start: i64 = 0
        self.uniq_end: i64 = 0
        self.wait_start: i64 = 0
        self.wait_end: i64 = 0
        self.marked: bool = False

    def scan(self, data: bytes) -> None:
        """Find them in a property string, in one pass."""
        self.tags_start = self.tags_end = 0
        self.keys_start = self.keys_end = 0
        self.uniq_start = self.uniq_end = 0
        self.wait_start = self.wait_end = 0
        self.marked = False
        position: i64 = 0
        end: i64 = len(data)
        while position < end:
            name = position
            position = separator_at(data, name, 1)
            if position < end and data[position] == 1:
                value = position + 1
                position = separator_at(data, value, 2)
                self._note(data, name, value, position)
            position += 1

    def _note(self, data: bytes, name: i64, value: i64, end: i64) -> None:
        if value == end:
            return
        length: i64 = value - 1 - name
        if length == 4:
            word = read_i32_be(data, name)
            if word == _TAGS_WORD:
                self.tags_start, self.tags_end = value, end
            elif word == _KEYS_WORD:
                self.keys_start, self.keys_end = value, end
            elif word == _WAIT_WORD:
                self.wait_start, self.wait_end = value, end
        elif (
            length == 8
            and read_i32_be(data, name) == _UNIQ_WORD
            and read_i32_be(data, name + 4) == _KEY_WORD
        ):
            self.uniq_start, self.uniq_end = value, end
        elif length > 4 and _may_mean(read_i16_be(data, name), read_i16_be(data, name + 2)):
            self.marked = True


def _may_mean(letters: i16, following: i16) -> bool:
    """Do these four begin the name of a property that needs more than being stored?"""
    return (
        letters == 0x5452  # TRAN_MSG, TRACE_ON
        or letters == 0x4445  # DELAY
        or letters == 0x5449  # TIMER_...
        or letters == 0x504F  # POP_CK
        or letters == 0x494E  # INNER_NUM
        or letters == 0x434C  # CLUSTER
        or letters == 0x4D53  # MSG_REGION
        or letters == 0x5F53  # _SYS_MSG_PRIORITY_
        or (letters == 0x5F5F and following == 0x524D)  # __RMQ.TRANSIENT.
    )


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
