"""Results that the store hands out: plain values of the hot path. HOT."""

import enum

from mypy_extensions import i64, mypyc_attr


class GetStatus(enum.Enum):
    """Outcome of a read of a queue, by the names of Apache's GetMessageStatus."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"

    __hash__ = object.__hash__  # Enum's own is Python's, at each look into a table


@mypyc_attr(acyclic=True, free_list_len=1)
class Appended:
    """Place of an appended record. `end_offset` is the byte after it: what durability waits for."""

    __slots__ = ("end_offset", "physical_offset", "queue_offset", "size")

    def __init__(self, physical_offset: i64, queue_offset: i64, size: i64, end_offset: i64) -> None:
        self.physical_offset: i64 = physical_offset
        self.queue_offset: i64 = queue_offset
        self.size: i64 = size
        self.end_offset: i64 = end_offset


@mypyc_attr(acyclic=True)
class Arrival:
    """A new record of a queue: what wakes held pulls."""

    __slots__ = (
        "physical_offset",
        "queue_id",
        "queue_offset",
        "size",
        "tags_code",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        queue_offset: i64,
        tags_code: i64,
        physical_offset: i64,
        size: i64,
    ) -> None:
        self.topic: str = topic
        self.queue_id: int = queue_id
        self.queue_offset: i64 = queue_offset
        self.tags_code: i64 = tags_code
        self.physical_offset: i64 = physical_offset
        self.size: i64 = size


class BatchAppended:
    """Places of the messages of a batch; their queue offsets follow each other. `end_offset` is the byte after the last record."""

    __slots__ = ("end_offset", "messages", "queue_offset", "size")

    def __init__(self, queue_offset: i64) -> None:
        self.queue_offset: i64 = queue_offset
        self.size: i64 = 0
        self.end_offset: i64 = 0
        self.messages: list[Arrival] = []


class Found:
    """The answer to one read of a queue.

    Attributes:
        runs: whole records as stored; neighbours in the log are joined.
        count, size: of the records.
        cold: the records lie so far back that the disk may have had to be asked.
    """

    __slots__ = (
        "cold",
        "count",
        "max_offset",
        "min_offset",
        "next_begin_offset",
        "runs",
        "size",
        "status",
    )

    def __init__(
        self, status: GetStatus, next_begin_offset: i64, min_offset: i64, max_offset: i64
    ) -> None:
        self.status: GetStatus = status
        self.next_begin_offset: i64 = next_begin_offset
        self.min_offset: i64 = min_offset
        self.max_offset: i64 = max_offset
        self.runs: list[bytes] = []
        self.count: i64 = 0
        self.size: i64 = 0
        self.cold: bool = False
