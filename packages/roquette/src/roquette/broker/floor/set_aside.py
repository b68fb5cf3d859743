"""Entries of the broker's own queues that it cannot work off: noted for an operator, so that those behind go on.

An entry is a delayed message, a timer message, a check-point, a half message. What fails for the entry's own sake
is tried a second time and then set aside: its place and the reason go to `config/setAside.json`, the message stays
in the log. What fails because the store takes nothing at present is no fault of the entry: it waits.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from roquette.errors import CorruptRecord, is_transient
from roquette.message.record import decode_record, decode_records
from roquette.message.record_layout import PHYSICAL_AT, PLACE_END, StoredRecord
from roquette.store.format.results import Found
from roquette.store.format.unit import FILLER_FROM
from roquette.store.message_store import MessageStore

log = logging.getLogger("roquette.broker")
T = TypeVar("T")

FILE: Final = "setAside.json"
LIMIT: Final = 1_000  # entries kept, the newest
_REASON_LENGTH: Final = 200


class SetAsideEntry(msgspec.Struct, rename="camel", kw_only=True):
    """One entry: where its message is, and why it was not processed.

    time: epoch ms. task: the task's name in the run-time table.
    """

    task: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    reason: str
    time: int


class SetAsideFile(msgspec.Struct, rename="camel"):
    """setAside.json: how many by task since the store was made, and the newest entries, oldest first."""

    counts: dict[str, int] = {}
    entries: list[SetAsideEntry] = []


class SetAside:
    """The entries of one broker. Pure; `changed` is called after each new one."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.entries: deque[SetAsideEntry] = deque(maxlen=LIMIT)
        self.changed: list[Callable[[], None]] = []

    def load(self, found: SetAsideFile | None) -> None:
        """Take over what the file held, if there is one."""
        if found is None:
            return
        self.counts = dict(found.counts)
        self.entries.extend(found.entries)

    def to_file(self) -> SetAsideFile:
        """The content of setAside.json."""
        return SetAsideFile(dict(self.counts), list(self.entries))

    def again(
        self, task: str, record: StoredRecord, error: Exception, work: Callable[[], T], now_ms: int
    ) -> T | None:
        """Try an entry that failed with `error` once more; None when it is set aside.

        Raises:
            Exception: `error`, or the second one, when it is not for the entry's sake.
        """
        if is_transient(error):
            raise error
        try:
            return work()
        except Exception as second:
            if is_transient(second):
                raise
            self.put(task, record, repr(second), now_ms)
            return None

    def put(self, task: str, record: StoredRecord, reason: str, now_ms: int) -> None:
        """Set an entry aside: the caller goes on behind it."""
        self.put_place(
            task, record.topic, record.queue_id, record.queue_offset, record.physical_offset,
            reason, now_ms,
        )  # fmt: skip

    def put_place(
        self,
        task: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        reason: str,
        now_ms: int,
    ) -> None:
        """`put` for an entry whose record cannot be read. One that is known from before a crash counts once."""
        entry = SetAsideEntry(
            task=task,
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            reason=reason[:_REASON_LENGTH],
            time=now_ms,
        )
        place = _place(entry)
        if any(_place(known) == place for known in self.entries):
            return
        self.counts[task] = self.counts.get(task, 0) + 1
        self.entries.append(entry)
        log.error(
            "entry set aside task=%s topic=%s queue=%d offset=%d physical=%d reason=%s",
            task, topic, queue_id, queue_offset, physical_offset, entry.reason,
        )  # fmt: skip
        for follow in self.changed:
            follow()

    def shown(self) -> dict[str, str]:
        """The lines of GET_BROKER_RUNTIME_INFO."""
        lines = {"setAside": str(sum(self.counts.values()))}
        if self.entries:
            last = self.entries[-1]
            lines["setAsideLast"] = (
                f"{last.topic}/{last.queue_id}@{last.queue_offset} {last.task}: {last.reason}"
            )
        return lines


def _place(entry: SetAsideEntry) -> tuple[str, str, int, int, int]:
    return (entry.task, entry.topic, entry.queue_id, entry.queue_offset, entry.physical_offset)


def _nothing() -> None:
    return None


# Stored records of which the broker makes new ones: a copy gets a CRC of its own, so the old one is checked before.


def sound_record(data: bytes, position: int = 0) -> StoredRecord | None:
    """One stored record; None, with a line in the log, when its bytes or its body are not what was stored."""
    try:
        return decode_record(data, position, True)
    except CorruptRecord as error:
        offset = int.from_bytes(
            data[position + PHYSICAL_AT : position + PLACE_END], "big", signed=True
        )
        log.error(
            "damaged message not delivered commit log offset=%d: %s; see `roquette store fsck`",
            offset,
            error,
        )
        return None


def sound_record_at(store: MessageStore, physical_offset: int) -> StoredRecord | None:
    """The record that begins at a place of the log; None when no sound one does."""
    data = store.record_at(physical_offset)
    return None if data is None else sound_record(data)


def sound_records(
    store: MessageStore, topic: str, queue_id: int, offset: int, found: Found
) -> list[StoredRecord]:
    """The sound records of what was read from an offset of a queue on.

    A damaged one may say a wrong size: then the queue says where each of the others is.
    """
    try:
        return decode_records(b"".join(found.runs), True)
    except CorruptRecord:
        units = store.queue_units(topic, queue_id, offset, found.next_begin_offset - offset) or ()
        places = [(place, place + size) for place, size, _ in units if size < FILLER_FROM]
        each = (sound_record(store.read_log(start, end)) for start, end in places)
        return [record for record in each if record is not None]


def topic_of(record: bytes) -> str:
    """The topic of one stored record; "", which nobody has a right to, of a damaged one."""
    found = sound_record(record)
    return "" if found is None else found.topic
