"""The check of one commit log file against queues and index. HOT.

Reads the file once. For every record: its CRC, the unit its queue has at its queue offset, its entries in the index.
What needs more than one file is left to `fsck.combine`.
"""

from typing import Final

from mypy_extensions import i64

from roquette.base.files import ReadAt, ReadFiles
from roquette.base.javatypes import java_text
from roquette.message.names import SCHEDULE_TOPIC
from roquette.message.properties import KEYS_MARK, TAGS_MARK, UNIQ_KEY_MARK, find_property
from roquette.message.record_layout import names_directory
from roquette.message.record_view import FAULT_NAMES, FAULT_WORDS, SOUND
from roquette.message.sysflag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from roquette.store.audit.findings import NOTE, Findings, finding
from roquette.store.audit.index_entries import EntryCheck, IndexView
from roquette.store.format.log_reader import END, FAULT, FILLED, LogReader
from roquette.store.format.unit import TopicKeys, may_lack_entries
from roquette.store.offline.store_dir import (
    LogFile,
    LogPart,
    Pending,
    QueueSpan,
    StoreDir,
    load_queue,
)
from roquette.store.offline.unit_check import MULTI_DISPATCH, LogLookup, QueueUnits, check_units

_EXT_ADDRESS: Final = -0x80000001  # tags codes up to here are addresses in consumequeue_ext
_SCHEDULE: Final = SCHEDULE_TOPIC.encode()
_MAX_PENDING: Final = 200  # runs of one queue
_MAX_LAGS: Final = 1024  # of one queue
_MAX_WINDOWS: Final = 4096  # queues whose units are held at once
_MULTI_OFFSET: Final = b"INNER_MULTI_QUEUE_OFFSET\x01"


class SeenQueue:
    """Part of one queue that has been seen in this file."""

    __slots__ = (
        "expected",
        "first_offset",
        "lag_ms",
        "life_offset",
        "life_physical",
        "pending",
        "queue_id",
        "records",
        "run_end",
        "run_reason",
        "topic",
        "units",
    )  # fmt: skip

    def __init__(self, topic: str, queue_id: int, units: QueueUnits) -> None:
        self.topic: str = topic
        self.queue_id: int = queue_id
        self.units: QueueUnits = units
        self.expected: i64 = -1
        self.first_offset: i64 = -1
        self.life_offset: i64 = -1
        self.life_physical: i64 = -1
        self.records: i64 = 0
        self.lag_ms: dict[
            int, int
        ] = {}  # of delayed messages: due time less store time -> how often
        self.pending: list[Pending] = []
        self.run_end: i64 = -1  # the queue offset that would go on the last of `pending`
        self.run_reason: str = ""


class TopicState:
    """Values kept ready per topic."""

    __slots__ = ("keys", "name", "optional", "queues", "skip")

    def __init__(self, name: str, skip: bool) -> None:
        self.name: str = name
        self.skip: bool = skip  # its units are of a kind that is not checked
        self.keys: TopicKeys = TopicKeys(name)
        self.optional: bool = may_lack_entries(name)
        self.queues: dict[int, SeenQueue] = {}


class LogCheck:
    """One file of the log beside the queues and the index."""

    __slots__ = (
        "_crc", "_entries", "_extended", "_files", "_findings", "_lookup", "_part", "_states", "_store", "_topics", "_windows",
    )  # fmt: skip

    def __init__(
        self, files: ReadFiles, store: StoreDir, views: list[IndexView], check_crc: bool
    ) -> None:
        """
        Args:
            views: the index files whose layout is known, oldest first; empty: the index is not looked at.
        """
        self._files: ReadFiles = files
        self._store: StoreDir = store
        self._crc: bool = check_crc
        self._extended: bool = files.is_dir(f"{store.root}/consumequeue_ext")
        self._topics: dict[bytes, TopicState] = {}
        self._states: list[SeenQueue] = []
        self._windows: i64 = 0
        self._findings: Findings = Findings()
        self._entries: EntryCheck = EntryCheck(files, views, store.min_offset, self._findings)
        self._lookup: LogLookup = LogLookup(files, store)
        self._part: LogPart = LogPart(0, "")

    def run(self, file: LogFile) -> LogPart:
        """Check one file. Raises OSError."""
        part = self._part = LogPart(file.base, file.path, self._findings)
        self._entries.seek(file.base)
        source = self._files.open_file(file.path)
        try:
            self._scan(source, file)
        finally:
            source.close()
            self._lookup.close()
            self._entries.close()
        for state in self._states:
            part.spans.append(
                QueueSpan(
                    state.topic,
                    state.queue_id,
                    state.first_offset,
                    state.expected,
                    state.life_offset,
                    state.life_physical,
                    state.records,
                    state.pending,
                )
            )
            self._report_lags(state)
        return part

    def _scan(self, source: ReadAt, file: LogFile) -> None:
        part = self._part
        nominal: int = self._store.segment_size
        reader = LogReader(source, file.base, self._crc, nominal=nominal)
        records: i64 = 0
        damaged: i64 = 0
        newest: i64 = 0
        last_ms: i64 = 0
        while True:
            kind = reader.advance()
            if kind == END:
                break
            if kind == FAULT:
                damaged += reader.following - reader.position
                self._report(file, reader)
                continue
            records += 1
            stored = reader.store_ms
            if records == 1:
                part.first_ms = stored
            if stored < last_ms:
                self._time_back(file, reader.position, last_ms - stored)
            last_ms = stored
            newest = max(newest, stored)
            if self._crc:
                reader.fault = reader.check_whole()
            if reader.fault == SOUND:
                self._record(reader)
            else:
                self._report(file, reader)
        part.records = records
        part.damaged = damaged
        part.last_ms = last_ms
        part.max_ms = newest
        part.filled = reader.ending == FILLED
        part.end = file.base + (reader.limit if part.filled else reader.position)
        part.bytes = reader.position
        self._entries.pass_over(part.end)

    def _report(self, file: LogFile, reader: LogReader) -> None:
        fault = reader.fault
        size = reader.following - reader.position
        words = f"{FAULT_WORDS[fault]}; {size} bytes up to {reader.following}"
        if reader.known:
            topic = self._text(reader, reader.topic_at, reader.topic_size)
            words = f"{FAULT_WORDS[fault]}: {topic}/{reader.queue_id} offset {reader.queue_offset}, {size} bytes"
        self._findings.add(finding(FAULT_NAMES[fault], file.path, reader.position, words))
        if reader.known:
            self._record(reader)  # its unit and its entries are right all the same

    def _text(self, reader: LogReader, at: i64, size: i64) -> str:
        return java_text(reader.data[at : at + size])

    def _time_back(self, file: LogFile, position: i64, by_ms: i64) -> None:
        words = f"stored {by_ms} ms before the record in front of it"
        self._findings.add_run("time_back", file.path, position, words, -1, NOTE)

    # One record

    def _record(self, reader: LogReader) -> None:
        data = reader.data
        name = data[reader.topic_at : reader.topic_at + reader.topic_size]
        topic = self._topics.get(name)
        if topic is None:
            topic = self._new_topic(name)
        start = reader.properties_at
        end: i64 = start + reader.properties_size
        tags_at, tags_end = find_property(data, start, end, TAGS_MARK)
        code: i64 = 0
        tags_hash: i64 = -1
        if tags_end > tags_at:
            known = topic.keys.tag_hashes(data[tags_at:tags_end])
            code = known.code
            tags_hash = known.key
        kind: i64 = reader.sys_flag & TRANSACTION_MASK
        if kind != TRANSACTION_PREPARED and kind != TRANSACTION_ROLLBACK and not topic.skip:
            queue_id: int = reader.queue_id
            state = topic.queues.get(queue_id)
            if state is None:
                state = self._new_queue(topic, queue_id)
            delayed = name == _SCHEDULE
            self._unit(state, reader, reader.queue_offset, code, delayed)
            if data.find(_MULTI_OFFSET, start, end) >= 0:
                self._dispatched(reader, code)
        entries = self._entries
        if entries.indexed and kind != TRANSACTION_ROLLBACK and reader.physical > entries.begin:
            self._keys(topic, reader, tags_hash)

    def _new_topic(self, name: bytes) -> TopicState:
        text = java_text(name)
        skip = self._store.rocksdb_queues or not self._store.whole
        if not names_directory(name):
            skip = True
        if not skip:
            skip = self._files.is_dir(f"{self._store.root}/batchconsumequeue/{text}")
        topic = self._topics[name] = TopicState(text, skip)
        return topic

    def _new_queue(self, topic: TopicState, queue_id: int) -> SeenQueue:
        directory = self._store.consume_queues
        found = load_queue(self._files, directory, topic.name, queue_id)
        units = QueueUnits(self._files, found, self._store.segment_size)
        state = topic.queues[queue_id] = SeenQueue(topic.name, queue_id, units)
        self._states.append(state)
        self._windows += 1
        if self._windows > _MAX_WINDOWS:
            self._windows = 0
            for other in self._states:
                other.units.forget()
        return state

    def _dispatched(self, reader: LogReader, code: i64) -> None:
        """Units in light queues (INNERMULTI_DISPATCH) that point at this record too."""
        start = reader.properties_at
        end: i64 = start + reader.properties_size
        names_at, names_end = find_property(reader.data, start, end, MULTI_DISPATCH)
        offsets_at, offsets_end = find_property(reader.data, start, end, _MULTI_OFFSET)
        names = reader.data[names_at:names_end].split(b",")
        offsets = reader.data[offsets_at:offsets_end].split(b",")
        if len(names) != len(offsets):
            return
        for place in range(len(names)):
            topic = self._topics.get(names[place]) or self._new_topic(names[place])
            state = topic.queues.get(0) or self._new_queue(topic, 0)
            if state.units.exists and offsets[place].isdigit() and len(offsets[place]) < 19:
                self._unit(state, reader, int(offsets[place]), code, False)

    def _unit(
        self, state: SeenQueue, reader: LogReader, offset: i64, code: i64, delayed: bool
    ) -> None:
        """Compare a record with the unit at its queue offset."""
        units = state.units
        expected = state.expected
        if expected < 0:
            state.first_offset = offset
        elif offset > expected and units.exists:
            check_units(
                units, expected, offset, self._store.min_offset, self._lookup, self._findings
            )
        state.expected = offset + 1
        state.records += 1
        physical = reader.physical
        if not units.load(offset) or units.empty:
            self._pend(state, "unit_missing", offset, physical)
            return
        if units.physical != physical:
            self._wrong_unit(state, offset, physical)
            return
        if state.life_physical < 0:
            state.life_offset = offset
            state.life_physical = physical
        if units.size != reader.size:
            words = f"the unit says the record at offset {physical} has {units.size} bytes, it has {reader.size}"
            self._fault_of(units, "unit_size", offset, 8, words)
        if units.code == code and not delayed:
            return
        if delayed:
            lag: int = units.code - reader.store_ms
            seen = state.lag_ms.get(lag, 0)
            if seen or len(state.lag_ms) < _MAX_LAGS:
                state.lag_ms[lag] = seen + 1
        elif units.code > _EXT_ADDRESS or not self._extended:
            words = (
                f"the unit has tags code {units.code}, the record at offset {physical} gives {code}"
            )
            self._fault_of(units, "unit_tag", offset, 12, words)

    def _wrong_unit(self, state: SeenQueue, offset: i64, physical: i64) -> None:
        """The unit points elsewhere: at a later record of a topic made again, or at nothing."""
        units = state.units
        if not units.filler and self._lookup.claims(
            state.topic, state.queue_id, offset, units.physical, units.size
        ):
            self._pend(state, "unit_wrong", offset, physical)
            return
        words = f"the unit points at offset {units.physical}, its record stands at {physical}"
        self._fault_of(units, "unit_orphan", offset, 0, words)

    def _fault_of(self, units: QueueUnits, kind: str, offset: i64, byte: i64, words: str) -> None:
        path, position = units.place(offset)
        where = f"{units.topic}/{units.queue_id} offset {offset}: {words}"
        self._findings.add_run(kind, path, position + byte, where, offset)

    def _report_lags(self, state: SeenQueue) -> None:
        """Delayed messages of one queue wait equally long: what stands alone among many is wrong."""
        total = sum(state.lag_ms.values())
        if total < 10:
            return
        for lag, count in state.lag_ms.items():
            if count * 10 >= total or count > 1:
                continue
            words = f"one unit of {state.topic}/{state.queue_id} is due {lag} ms after its record was stored, unlike the others"
            path, _ = state.units.place(state.units.first)
            self._findings.add(finding("unit_tag", path, -1, words))

    def _pend(self, state: SeenQueue, reason: str, offset: i64, physical: i64) -> None:
        """The record has no unit of its own; whether that is damage is known when all files are read."""
        if not state.units.exists:
            reason = "queue_missing"
        if state.run_end == offset and state.run_reason == reason and state.pending:
            last = state.pending[-1]
            last.next_offset = offset + 1
            last.last_physical = physical
            state.run_end = offset + 1
            return
        if len(state.pending) >= _MAX_PENDING:
            return
        path, position = state.units.place(offset)
        where = f"{state.topic}/{state.queue_id} offset {offset}"
        words = f"the record at offset {physical} ({where}) has no unit in its queue"
        if reason == "unit_wrong":
            words = f"the unit of {where} points at offset {state.units.physical}, its record stands at {physical}"
        elif reason == "queue_missing":
            path = f"{self._store.consume_queues}/{state.topic}/{state.queue_id}"
            words = f"the record at offset {physical} ({where}) has no queue"
        state.pending.append(
            Pending(offset, offset + 1, physical, physical, reason, path, position, words)
        )
        state.run_end = offset + 1
        state.run_reason = reason

    # The index

    def _keys(self, topic: TopicState, reader: LogReader, tags_hash: i64) -> None:
        data = reader.data
        start = reader.properties_at
        end: i64 = start + reader.properties_size
        wanted: list[i64] = []
        at, stop = find_property(data, start, end, UNIQ_KEY_MARK)
        if stop > at:
            wanted.append(topic.keys.hash_of(data, at, stop))
        at, stop = find_property(data, start, end, KEYS_MARK)
        while at < stop:
            space: i64 = data.find(b" ", at, stop)
            if space < 0:
                space = stop
            if space > at:
                wanted.append(topic.keys.hash_of(data, at, space))
            at = space + 1
        self._entries.record(wanted, tags_hash, reader.physical, reader.store_ms, topic.optional)
