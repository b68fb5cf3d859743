"""What is asked of one queue: bounds and pulls, as headers, and what the answers mean. Pure."""

from typing import Final, NamedTuple

from roquette.message.message import MessageQueue
from roquette.message.sysflag import PULL_SUBSCRIPTION
from roquette.wire.codes import ResponseCode
from roquette.wire.command import Command
from roquette.wire.header_codec import decode_ext
from roquette.wire.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)


class PullFilter(NamedTuple):
    """What the broker leaves out: `kind` is "TAG" or "SQL92"."""

    expression: str = "*"
    kind: str = "TAG"

    @property
    def takes_all(self) -> bool:
        """Whether every message passes."""
        return self.kind == "TAG" and self.expression in {"", "*"}


EVERYTHING: Final = PullFilter()


class Pulled(NamedTuple):
    """The answer to one pull: whole records (none is possible) and where to pull next."""

    records: bytes
    next_offset: int
    min_offset: int
    max_offset: int


def pull_header(
    group: str, queue: MessageQueue, offset: int, count: int, wanted: PullFilter
) -> PullMessageRequestHeader:
    """A pull that does not wait for messages to come."""
    return PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=wanted.expression or "*",
        sub_version=0,
        expression_type=wanted.kind,
    )


def min_header(queue: MessageQueue) -> GetMinOffsetRequestHeader:
    """Of the oldest offset."""
    return GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)


def max_header(queue: MessageQueue) -> GetMaxOffsetRequestHeader:
    """Of the offset the next message will get."""
    return GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)


def read_min(answer: Command) -> int:
    """The oldest offset."""
    return max(0, decode_ext(GetMinOffsetResponseHeader, answer.ext).offset)  # old brokers say -1


def read_max(answer: Command) -> int:
    """The offset the next message will get."""
    return max(0, decode_ext(GetMaxOffsetResponseHeader, answer.ext).offset)


def pulled_of(answer: Command) -> Pulled:
    """The answer to a pull, be it empty."""
    header = decode_ext(PullMessageResponseHeader, answer.ext)
    records = answer.body if answer.code == ResponseCode.SUCCESS else b""
    return Pulled(records, header.next_begin_offset, header.min_offset, header.max_offset)
