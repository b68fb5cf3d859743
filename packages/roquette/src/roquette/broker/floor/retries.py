"""What becomes of a message a consumer could not process: retry later, or the dead-letter topic. Pure.

Apache: AbstractSendMessageProcessor.consumerSendMsgBack, SendMessageProcessor.handleRetryAndDLQ.
"""

from dataclasses import dataclass

from roquette.broker.floor.timer_rules import wait_no_more
from roquette.message import names, properties
from roquette.message.message_id import offset_message_id
from roquette.message.properties import decode_properties
from roquette.message.record_layout import StoredRecord

FIRST_RETRY_LEVEL = 3  # retry n waits level n + 2: 10 s, 30 s, 1 min ...
HEADER_LIMIT_SINCE = 121  # V3_4_9: clients that may set maxReconsumeTimes in the header
DLQ_QUEUES = 1
RETRY_PERM = names.PERM_READ | names.PERM_WRITE


@dataclass(slots=True, frozen=True, kw_only=True)
class SendBackPlan:
    """Where a message returned by a consumer goes, and with which properties."""

    topic: str
    dead: bool
    named: dict[str, str]
    reconsume_times: int


def retry_limit(group_limit: int, header_limit: int | None, client_version: int) -> int:
    """How many retries there are: the group's number, or what a newer client says."""
    if header_limit is not None and client_version >= HEADER_LIMIT_SINCE:
        return header_limit
    return group_limit


def plain_properties(record: StoredRecord) -> dict[str, str]:
    """The properties of a message that has no room for those of a retry: it waits for nothing."""
    named = decode_properties(record.properties)
    named.pop(properties.DELAY, None)
    wait_no_more(named)
    return named


def plan_send_back(
    record: StoredRecord, group: str, *, wanted_level: int, limit: int
) -> SendBackPlan:
    """Decide for one message: level 0 lets the broker choose, a negative one means the dead-letter topic."""
    named = decode_properties(record.properties)
    named.setdefault(properties.RETRY_TOPIC, record.topic)
    named[properties.WAIT] = "false"
    if not named.get(properties.ORIGIN_MESSAGE_ID):
        named[properties.ORIGIN_MESSAGE_ID] = offset_message_id(
            record.store_host, record.physical_offset
        )
    wait_no_more(named)
    dead = record.reconsume_times >= limit or wanted_level < 0
    if dead:
        named[properties.DELAY] = "0"
    else:
        named[properties.DELAY] = str(wanted_level or FIRST_RETRY_LEVEL + record.reconsume_times)
    return SendBackPlan(
        topic=names.dlq_topic(group) if dead else names.retry_topic(group),
        dead=dead,
        named=named,
        reconsume_times=record.reconsume_times + 1,
    )
