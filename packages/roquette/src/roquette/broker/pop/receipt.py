"""The texts clients build receipts from and send back. Pure (Apache: ExtraInfoUtil, KeyBuilder).

A receipt ("extra info") is `start popTime invisibleTime reviveQid t brokerName queueId queueOffset`, in which t says
whose message it is: 0 the topic's, 1 and 2 the group's pop retry topic of version 1 and 2. Clients make it of
`startOffsetInfo`, `t queueId startOffset` joined by `;`, and check with `msgOffsetInfo`, `t queueId offset,offset`.
"""

from collections.abc import Iterable
from typing import Final, final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from roquette.errors import Refused
from roquette.message.names import RETRY_PREFIX, pop_retry_topic
from roquette.message.record_layout import QUEUE_OFFSET_AT
from roquette.wire.codes import ResponseCode

NORMAL: Final = "0"
RETRY_V1: Final = "1"
RETRY_V2: Final = "2"
_READERS: Final = (
    "getCkQueueOffset",
    "getPopTime",
    "getInvisibleTime",
    "getReviveQid",
    "getRetry",
    "getBrokerName",
)


def kind_of(topic: str) -> str:
    """Return which of the three kinds a topic is (ExtraInfoUtil.getRetry)."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def real_topic(topic: str, group: str, kind: str) -> str:
    """The topic a message was popped from, by the kind in its receipt (ExtraInfoUtil.getRealTopic).

    Raises:
        Refused: the kind is unknown.
    """
    if kind == NORMAL:
        return topic
    if kind not in (RETRY_V1, RETRY_V2):
        raise _illegal("getRetry fail, format is wrong")
    return pop_retry_topic(topic, group, v2=kind == RETRY_V2)


def start_offset_info(topic: str, queue_id: int, start: int) -> str:
    """One entry of startOffsetInfo."""
    return f"{kind_of(topic)} {queue_id} {start}"


def queue_offsets(runs: list[bytes]) -> list[int]:
    """Queue offsets of the records in `runs`, of which each has one record or more, whole ones."""
    found: list[int] = []
    for run in runs:
        position: i64 = 0
        while position < len(run):
            found.append(read_i64_be(run, position + QUEUE_OFFSET_AT))
            size: int = read_i32_be(run, position)
            position += size
    return found


def message_offset_info(topic: str, queue_id: int, offsets: Iterable[int]) -> str:
    """One entry of msgOffsetInfo."""
    return f"{kind_of(topic)} {queue_id} {','.join(map(str, offsets))}"


def queue_count_info(topic: str, queue_id: int, count: int) -> str:
    """An entry of orderCountInfo for a whole queue, which old clients read."""
    return f"{kind_of(topic)} {queue_id} {count}"


def offset_count_info(topic: str, queue_id: int, offset: int, count: int) -> str:
    """An entry of orderCountInfo for one message."""
    return f"{kind_of(topic)} qo{queue_id}%{offset} {count}"


def build_extra_info(
    start: int,
    pop_time: int,
    invisible_time: int,
    revive_qid: int,
    topic: str,
    broker_name: str,
    queue_id: int,
    offset: int,
) -> str:
    """A receipt (ExtraInfoUtil.buildExtraInfo)."""
    return (
        f"{start} {pop_time} {invisible_time} {revive_qid} {kind_of(topic)} {broker_name} "
        f"{queue_id} {offset}"
    )


@final
class PopReceipt:
    """Parts of a receipt that the broker reads. Times in ms."""

    __slots__ = ("broker_name", "invisible_time", "pop_time", "revive_qid", "start_offset")

    def __init__(
        self,
        start_offset: int,
        pop_time: int,
        invisible_time: int,
        revive_qid: int,
        broker_name: str,
    ) -> None:
        self.start_offset: int = start_offset
        self.pop_time: int = pop_time
        self.invisible_time: int = invisible_time
        self.revive_qid: int = revive_qid
        self.broker_name: str = broker_name


def parse_extra_info(text: str) -> PopReceipt:
    """Read a receipt.

    Raises:
        Refused: it is invalid, with the text of Apache's IllegalArgumentException.
    """
    plain = plain_receipt(text)
    return parse_parts(text) if plain is None else plain


def plain_receipt(text: str) -> PopReceipt | None:
    """A receipt as brokers make it: ASCII, digits without sign, of 18 at most; None is for `parse_parts`, which reads all."""
    if not text.isascii():
        return None
    data = text.encode()
    end: i64 = len(data)
    at: i64 = 0
    field: i64 = 0
    number: i64 = 0
    digits: i64 = 0
    start_offset: i64 = 0
    pop_time: i64 = 0
    invisible_time: i64 = 0
    while field < 4:
        if at == end:
            return None
        one: i64 = data[at]
        at += 1
        if 48 <= one <= 57 and digits < 18:
            number = number * 10 + one - 48
            digits += 1
            continue
        if one != 32 or digits == 0:
            return None
        field += 1
        if field == 4:
            break
        if field == 1:
            start_offset = number
        elif field == 2:
            pop_time = number
        else:
            invisible_time = number
        number = digits = 0
    while at < end and data[at] != 32:  # whose message it is
        at += 1
    at += 1
    begin: i64 = at
    while at < end and data[at] != 32:
        at += 1
    if at <= begin:
        return None
    return PopReceipt(start_offset, pop_time, invisible_time, number, text[begin:at])


def parse_parts(text: str) -> PopReceipt:
    """See `parse_extra_info`."""
    parts = text.split(" ")
    while parts and not parts[-1]:
        parts.pop()  # as String.split does
    if len(parts) < len(_READERS):
        raise _illegal(f"{_READERS[len(parts)]} fail, extraInfoStrs length {len(parts)}")
    numbers = [_number(part) for part in parts[:4]]
    return PopReceipt(numbers[0], numbers[1], numbers[2], numbers[3], parts[5])


def _number(text: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits.isascii() and digits.isdigit() and len(digits) < 20:
        number = int(text)
        if -(1 << 63) <= number < 1 << 63:
            return number
    raise Refused(
        ResponseCode.SYSTEM_ERROR, f'NumberFormatException: For input string: "{text[:40]}"'
    )


def _illegal(words: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, f"IllegalArgumentException: {words}")
