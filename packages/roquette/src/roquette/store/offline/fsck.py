"""The check of a whole store: log, queues, index, checkpoint, JSON and timer files. Changes nothing.

Files of the log are checked one by one, in any order and in any process (`LogTask`); `check_store` puts together
what they say. A queue agrees with the log when each record has its unit and each unit its record.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from roquette.base.files import ReadFiles, read_all
from roquette.store.audit.findings import (
    DAMAGE,
    MAX_FINDINGS,
    NOTE,
    Findings,
    StoreFinding,
    finding,
)
from roquette.store.format.log_mark import wrote_of
from roquette.store.format.unit import UNIT_SIZE
from roquette.store.offline.index_check import IndexSpec, IndexTask, find_specs, open_views
from roquette.store.offline.log_check import LogCheck
from roquette.store.offline.overview import written_end
from roquette.store.offline.small_files import LogFacts, check_small_files, topics_of
from roquette.store.offline.store_dir import (
    LogFile,
    LogPart,
    Pending,
    QueueDir,
    QueueSpan,
    StoreDir,
    list_queues,
)
from roquette.store.offline.timer_check import check_timer
from roquette.store.offline.unit_check import (
    NO_CRASH,
    LogLookup,
    QueueUnits,
    check_tail,
    check_units,
)

_LAST_UNITS = 16  # of each queue, looked at by a quick check
_ADDED = "; a broker adds it at its next start"


@dataclass(frozen=True, slots=True)
class FsckOptions:
    """Options of a check.

    Attributes:
        check_crc: compare bodies with their CRCs.
        quick: the newest file of the log only, and of queues and index their ends.
        hash_slots: maxHashSlotNum, where it cannot be found out.
    """

    check_crc: bool = True
    quick: bool = False
    hash_slots: int | None = None


class CheckReport(msgspec.Struct, kw_only=True):
    """Findings of a check.

    Attributes:
        damaged: bytes of the log that hold no sound record. `left_out`: findings not listed.
        end: physical offset behind the last record.
    """

    store: str
    records: int = 0
    bytes: int = 0
    damaged: int = 0
    queues: int = 0
    end: int = 0
    quick: bool = False
    findings: list[StoreFinding] = []
    left_out: int = 0

    @property
    def sound(self) -> bool:
        """Nothing is damaged; notes do not count."""
        return not self.left_out and all(item.severity != DAMAGE for item in self.findings)


# Calls a function with each item, in processes of its own if it likes; results in order.
Runner = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


@dataclass(frozen=True, slots=True)
class LogTask:
    """The check of one file of the log; may run in another process."""

    files: ReadFiles
    store: StoreDir
    specs: list[IndexSpec]
    check_crc: bool

    def __call__(self, file: LogFile) -> LogPart:
        """Look at all of the file. Raises OSError."""
        views = open_views(self.files, self.specs)
        return LogCheck(self.files, self.store, views, self.check_crc).run(file)


def check_store(
    files: ReadFiles, store: StoreDir, options: FsckOptions, run: Runner = map
) -> CheckReport:
    """Look at a store. Raises OSError when a file cannot be read."""
    return _Fsck(files, store, options, run).check()


def _after_crash(item: StoreFinding) -> StoreFinding:
    """An index that is behind its log is what a crash leaves, as queues are."""
    if item.kind != "index_behind":
        return item
    return msgspec.structs.replace(item, severity=NOTE, message=item.message + _ADDED)


class _Life(NamedTuple):
    """Place of the first record that has its unit, and its queue offset."""

    physical: int
    queue_offset: int


@dataclass(slots=True)
class _Queue:
    """Facts known of one queue: its files, and what each file of the log says."""

    directory: QueueDir
    spans: list[QueueSpan] = field(default_factory=list)
    end: int = 0  # the queue offset the next message gets


class _Fsck:
    def __init__(
        self, files: ReadFiles, store: StoreDir, options: FsckOptions, run: Runner
    ) -> None:
        self._files = files
        self._store = store
        self._options = options
        self._run = run
        self._found = Findings(MAX_FINDINGS)
        self._crashed = files.file_size(store.abort) >= 0
        self._end = store.min_offset
        self._cut_from = NO_CRASH
        self._queues: dict[tuple[str, int], _Queue] = {}

    def check(self) -> CheckReport:
        found, store, options = self._found, self._store, self._options
        report = CheckReport(store=store.root, quick=options.quick)
        for words in store.strange:
            found.add(
                finding("strange", words.partition(": ")[0], -1, words.partition(": ")[2], NOTE)
            )
        self._check_log_names()
        specs: list[IndexSpec] = []
        if store.whole:
            specs = find_specs(self._files, store, options.hash_slots, self._crashed, found)
            for queue in list_queues(self._files, store):
                self._queues[queue.topic, queue.queue_id] = _Queue(queue)
        chosen = self._newest() if options.quick else store.log
        task = LogTask(self._files, store, [] if options.quick else specs, options.check_crc)
        parts: list[LogPart] = []
        for part in self._run(task, chosen):
            parts.append(part)
            self._take(part, report)
        self._check_log_chain(parts)
        if store.whole:
            self._cut_from = self._end_of_units()
            self._check_queues()
            chains = IndexTask(self._files, store, self._end, self._crashed)
            for part_found in self._run(chains, [] if options.quick else specs):
                found.extend(part_found)
            facts = LogFacts(
                self._end,
                max((part.max_ms for part in parts), default=0),
                {key: queue.end for key, queue in self._queues.items() if queue.directory.files},
                sure=not options.quick and not store.dledger,
            )
            check_small_files(self._files, store, facts, found)
            check_timer(self._files, store, facts, self._crashed, found)
        report.queues = len(self._queues)
        report.end = self._end
        report.findings = found.items
        report.left_out = found.left_out
        return report

    # The log

    def _check_log_names(self) -> None:
        store = self._store
        for path in store.strays:
            self._found.add(finding("stray", path, -1, "not named by an offset", NOTE))
        size = store.segment_size
        for before, after in pairwise(store.log):
            if after.base > before.base + size:
                words = f"after this file {after.base - before.base - size} bytes of log are missing, up to {after.path}"
                self._found.add(finding("segment_missing", before.path, before.size, words))
            elif after.base < before.base + size:
                words = f"overlaps the file before it, {before.path}"
                self._found.add(finding("segment_size", after.path, 0, words))
        for file in store.log:
            if file.size != size:
                words = f"{file.size} bytes, files of this log have {size}"
                self._found.add(finding("segment_size", file.path, file.size, words))

    def _newest(self) -> list[LogFile]:
        """The newest file that holds anything, and the empty ones behind it."""
        for place in range(len(self._store.log) - 1, -1, -1):
            file = self._store.log[place]
            source = self._files.open_file(file.path)
            try:
                if source.pread(8, 0).strip(b"\0"):
                    return self._store.log[place:]
            finally:
                source.close()
        return self._store.log[-1:]

    def _take(self, part: LogPart, report: CheckReport) -> None:
        report.records += part.records
        report.bytes += part.bytes
        report.damaged += part.damaged
        if self._crashed:
            part.findings.items = [_after_crash(item) for item in part.findings.items]
        self._found.extend(part.findings)
        if part.records or part.filled:
            self._end = part.end
        for span in part.spans:
            key = span.topic, span.queue_id
            if key not in self._queues:
                path = f"{self._store.consume_queues}/{span.topic}/{span.queue_id}"
                self._queues[key] = _Queue(QueueDir(span.topic, span.queue_id, path, []))
            self._queues[key].spans.append(span)

    def _check_log_chain(self, parts: list[LogPart]) -> None:
        """The log ends once: no records stand in files behind its end."""
        ended: LogPart | None = None
        for part in parts:
            if ended is not None and part.records:
                words = f"the log ends here, but {part.path} has {part.records} records"
                self._found.add(finding("log_gap", ended.path, ended.end - ended.base, words))
                ended = None
            if not part.filled and ended is None:
                ended = part

    # Queues

    def _check_queues(self) -> None:
        topics = topics_of(self._files, self._store)
        lives: dict[str, _Life] = {}
        for (topic, _), queue in self._queues.items():
            for span in queue.spans:
                if span.life_physical >= 0:
                    life = _Life(span.life_physical, span.life_offset)
                    lives[topic] = min(lives.get(topic, life), life)
        present = {topic for (topic, _), queue in self._queues.items() if queue.directory.files}
        sizes = [file.size for queue in self._queues.values() for file in queue.directory.files]
        usual = max(set(sizes), key=sizes.count) if sizes else 0
        lookup = LogLookup(self._files, self._store)
        try:
            for key in sorted(self._queues):
                queue = self._queues[key]
                self._check_files(queue, usual)
                self._judge(queue, lives.get(key[0]), key[0] in present, topics, bool(present))
                self._check_gaps(queue, lookup)
        finally:
            lookup.close()

    def _check_files(self, queue: _Queue, usual: int) -> None:
        files = queue.directory.files
        for file in files:
            if file.size != usual or file.size % UNIT_SIZE:
                words = f"{file.size} bytes, queue files of this store have {usual}"
                self._found.add(finding("queue_file", file.path, file.size, words))
        for before, after in pairwise(files):
            if after.base != before.base + usual:
                words = f"units {(before.base + usual) // UNIT_SIZE} to {after.base // UNIT_SIZE - 1} have no file"
                self._found.add(finding("queue_file", before.path, before.size, words))

    def _judge(
        self,
        queue: _Queue,
        life: _Life | None,
        present: bool,
        topics: dict[str, Any] | None,
        any_queue: bool,
    ) -> None:
        """Records without units: damage, unless they are older than the queue is.

        A deleted topic leaves its records in the log; made again, its queues begin at 0.

        Args:
            life: of the topic.
        """
        own = [span for span in queue.spans if span.life_physical >= 0]
        if own:
            life = min(_Life(span.life_physical, span.life_offset) for span in own)
        topic = queue.directory.topic
        newest = queue.spans[-1].next_offset if queue.spans else 0
        for run in _joined(queue.spans):
            severity, more = DAMAGE, ""
            if life is not None and life.queue_offset == 0 and run.last_physical < life.physical:
                continue
            if life is None and not present and any_queue and topics is not None:
                if topic not in topics:
                    continue
                severity = NOTE
                more = "; the topic was deleted and made again, or its queue is lost"
            elif self._crashed and run.reason != "unit_wrong" and run.next_offset == newest:
                severity, more = NOTE, _ADDED
            count = run.next_offset - run.first_offset
            words = run.message + (f", and {count - 1} more after it" if count > 1 else "") + more
            self._found.add(finding(run.reason, run.file, run.position, words, severity, count))

    def _check_gaps(self, queue: _Queue, lookup: LogLookup) -> None:
        """Units that no file of the log has a record for."""
        units = QueueUnits(self._files, queue.directory, self._store.segment_size)
        first, low = int(units.first), self._store.min_offset
        expected = first
        if queue.spans and not self._options.quick:
            check_units(units, first, queue.spans[0].first_offset, low, lookup, self._found)
            for before, after in pairwise(queue.spans):
                if after.first_offset > before.next_offset:
                    check_units(
                        units, before.next_offset, after.first_offset, low, lookup, self._found
                    )
        if queue.spans:
            expected = queue.spans[-1].next_offset
        queue.end = expected
        if not units.exists:
            return
        if self._options.quick:
            self._check_last(queue, units, lookup)
            return
        end = written_end(units)
        if not queue.spans or (end > expected and _keeps_places(units, expected, end)):
            queue.end = end
        check_tail(units, expected, low, lookup, self._found, self._cut_from)

    def _check_last(self, queue: _Queue, units: QueueUnits, lookup: LogLookup) -> None:
        queue.end = written_end(units)
        start = max(queue.end - _LAST_UNITS, int(units.first))
        low = self._store.min_offset
        check_units(units, start, queue.end, low, lookup, self._found, self._cut_from)

    def _end_of_units(self) -> int:
        """Behind the log's end, when that is where it was written to, or later: else what is missing was there."""
        mark = self._store.checkpoint
        if not self._crashed or self._files.file_size(mark) < 0:
            return NO_CRASH
        wrote = wrote_of(read_all(self._files, mark, 4096))
        return max(self._end, wrote) if wrote >= 0 else NO_CRASH


def _keeps_places(units: QueueUnits, start: int, end: int) -> bool:
    """Do the units behind that of the newest record stand for messages that were lost?"""
    if not units.load(end - 1):
        return False
    if units.filler:
        return True
    physical = units.physical
    return units.load(start - 1) and units.physical == physical


def _joined(spans: list[QueueSpan]) -> Iterator[Pending]:
    """The runs of all files of the log; one that goes on in the next file is one."""
    last: Pending | None = None
    for span in spans:
        for run in span.pending:
            if (
                last is not None
                and last.reason == run.reason
                and last.next_offset == run.first_offset
            ):
                last = replace(last, next_offset=run.next_offset, last_physical=run.last_physical)
                continue
            if last is not None:
                yield last
            last = run
    if last is not None:
        yield last
