"""Going over the log's records in order, each checked, until one is not sound: there the log ends. HOT.

Recovery reads what the checkpoint does not vouch for, up to a file and more. Nearly all of it is sound and dispatched
already: no object is made of such a record.
"""

import enum
import logging
from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64

from roquette.base.javatypes import java_text
from roquette.message.record_layout import StoredRecord
from roquette.message.record_view import BLANK, SOUND, RecordView
from roquette.message.sysflag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from roquette.store.format.layout import SECTOR
from roquette.store.format.log_reader import LogReader
from roquette.store.log.commit_log import CommitLog
from roquette.store.log.log_files import Beyond
from roquette.store.queues.consume_queues import ConsumeQueues, TopicQueues

log = logging.getLogger("roquette.store")

_PROGRESS: Final = 256 << 20  # bytes of log between two lines that report a long walk


class Dispatched:
    """Records that their queue and the index know."""

    __slots__ = ("_index_from", "_name", "_queues", "_topic")

    def __init__(self, queues: ConsumeQueues, index_from: i64) -> None:
        """`index_from`: records from this physical offset on are not in the index."""
        self._queues: ConsumeQueues = queues
        self._index_from: i64 = index_from
        self._name: bytes = b""
        self._topic: TopicQueues | None = None  # of that name

    def knows(self, view: RecordView) -> bool:
        """Has a record its unit and its entries?"""
        kind = view.sys_flag & TRANSACTION_MASK
        if view.physical >= self._index_from and kind != TRANSACTION_ROLLBACK:
            return False
        if kind == TRANSACTION_PREPARED or kind == TRANSACTION_ROLLBACK:
            return True
        name = view.data[view.topic_at : view.topic_at + view.topic_size]
        if self._topic is None or name != self._name:
            self._name = name
            self._topic = self._queues.topics.get(java_text(name))
        topic = self._topic
        if topic is None:
            return False
        queue_id: int = view.queue_id
        queue = topic.queues.get(queue_id)
        if queue is None:
            return False
        offset = view.queue_offset
        return queue.points_to(offset, view.physical, view.size) and not queue.may_be_torn(offset)


class LogWalk:
    """A walk from a record boundary on. After `advance` has said True, `reader` holds a record.

    Attributes:
        offset: where the walk goes on; after `advance` has said False, where the log ends.
        records, last_offset, last_ms: how many sound records it met; place and store time of the last one.
    """

    __slots__ = (
        "_beyond", "_check_crc", "_dispatched", "_log", "_reader", "_shown", "_start", "_synced", "last_ms", "last_offset",
        "offset", "records",
    )  # fmt: skip

    def __init__(
        self,
        log_: CommitLog,
        start: i64,
        check_crc: bool,
        synced: i64 = 0,
        beyond: Beyond | None = None,
        dispatched: Dispatched | None = None,
    ) -> None:
        """
        Args:
            synced: what lies before was on the disk, so no crash has torn it.
            beyond: says where the log goes on behind an unsound place.
            dispatched: records it knows have been sound before, and are passed over.
        """
        self._log: CommitLog = log_
        self._check_crc: bool = check_crc
        self._synced: i64 = synced
        self._beyond: Beyond | None = beyond
        self._dispatched: Dispatched | None = dispatched
        self._reader: LogReader | None = None
        self._start: i64 = start
        self._shown: i64 = start
        self.offset: i64 = start
        self.records: i64 = 0
        self.last_offset: i64 = -1
        self.last_ms: i64 = 0

    def advance(self) -> bool:
        """Go to the next sound record, over blanks and from file to file; False at the log's end.

        Raises:
            StoreError: there is damage that cannot be passed (`Beyond.past`).
        """
        while True:
            if self.offset - self._shown >= _PROGRESS:
                self._show_progress()
            reader = self._reader
            if reader is None or reader.following >= reader.limit:
                reader = self._reader = _reader_at(self._log, self.offset)
            if reader is not None:
                fault = reader.look()
                if fault == BLANK:
                    self.offset = reader.base + reader.following
                    continue
                if fault == SOUND:
                    known = self._dispatched is not None and self._dispatched.knows(reader)
                    if known or self._is_whole(reader):
                        self.offset = reader.base + reader.following
                        self.records += 1
                        self.last_offset = reader.physical
                        self.last_ms = reader.store_ms
                        if known:
                            continue
                        return True
            following: i64 = self.offset
            if self._beyond is not None:
                following = self._beyond.past(self.offset, self.last_ms)
            if following == self.offset:
                return False
            self.offset = following
            self._reader = None

    def to_end(self) -> i64:
        """Go over all records; returns where the log ends."""
        while self.advance():
            pass
        return self.offset

    def collect(self) -> Iterator[StoredRecord]:
        """The records from here on, one by one."""
        while self.advance():
            reader = self._reader
            assert reader is not None
            yield reader.record()

    def _show_progress(self) -> None:
        self._shown = self.offset
        log.info(
            "recovery: read the log from %d to %d, it ends before %d",
            self._start,
            self.offset,
            self._log.end_offset,
        )

    def _is_whole(self, reader: LogReader) -> bool:
        """Does the body match its CRC, and did all sectors reach the disk?"""
        if self._check_crc and reader.check_body() != SOUND:
            return False
        end: i64 = reader.at + reader.size
        if reader.data.find(b"\0", reader.properties_at, end) < 0 or reader.physical < self._synced:
            return True
        torn = find_torn(reader.properties(), reader.physical + reader.size)
        if torn is Torn.PERHAPS:
            behind = _reader_at(self._log, reader.physical + reader.size)
            return behind is not None and self._is_sound(behind)
        return torn is None

    def _is_sound(self, reader: LogReader) -> bool:
        fault = reader.look()
        if fault == SOUND and self._check_crc:
            fault = reader.check_body()
        return fault == SOUND or fault == BLANK


def _reader_at(log_: CommitLog, offset: i64) -> LogReader | None:
    """Return a reader from an offset to the end of its file; it checks no CRC. None: the log does not have it."""
    segment = log_.find_segment(offset)
    if segment is None or offset - segment.base_offset >= segment.appended:
        return None
    return LogReader(segment, segment.base_offset, False, offset - segment.base_offset)


class Torn(enum.Enum):
    """Is a sector of a record missing?"""

    SURELY = "a whole sector of the properties is zeros"
    PERHAPS = "the properties' end in the last sector is zeros"


def find_torn(properties: bytes, end: int) -> Torn | None:
    """Did a sector of the properties, which end at an offset of the log, never reach the disk?

    The CRC covers the body only: such a record passes it, with zeros for properties. Where a sector holds other
    parts of the record, too, these would not fit. Nobody sends a sector full of zeros as properties; zeros at the
    end may be meant, and count only when nothing sound follows (`MessageStore` lets no properties end so).
    """
    first = start = end - len(properties)
    while start < end:
        stop = min(end, start - start % SECTOR + SECTOR)
        # One byte in: of the length before it, the half in this sector may rightly be 0.
        begins = start % SECTOR == 0 or (start == first and start % SECTOR == 1)
        if begins and not any(properties[start - first : stop - first]):
            return Torn.SURELY if stop % SECTOR == 0 else Torn.PERHAPS
        start = stop
    return None


def log_readers(log_: CommitLog, start: i64, end: i64) -> Iterator[LogReader]:
    """A reader of each file of the log between two offsets; they check no CRC, and go on behind damage."""
    while start < end:
        segment = log_.find_segment(start)
        if segment is None:
            return
        base = segment.base_offset
        yield LogReader(segment, base, False, start - base, end - base)
        start = base + segment.size
