"""Index files of a store: which layout they have, and whether each is sound in itself."""

from dataclasses import dataclass

from roquette.base.files import ReadAt, ReadFiles, read_all
from roquette.message.record_layout import StoredRecord
from roquette.message.record_view import SOUND
from roquette.message.sysflag import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from roquette.store.index.index_audit import SUMS, parse_sums
from roquette.store.index.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, index_file_size
from roquette.store.index.keys import TopicKeys
from roquette.store.log.log_reader import LogReader
from roquette.store.offline.findings import NOTE, Findings, finding
from roquette.store.offline.index_entries import ChainCheck, IndexView, find_end, find_slots
from roquette.store.offline.store_dir import LogFile, StoreDir, list_index
from roquette.store.offline.walk import read_record

DEFAULT_SLOTS = 5_000_000


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """One index file whose layout is known.

    Attributes:
        end: number of the first entry that is not there.
        begin_physical, end_physical, begin_ms: as the header says; of a killed broker's store, as the entries do.
    """

    file: LogFile
    slots: int
    end: int
    begin_physical: int
    end_physical: int
    begin_ms: int


def key_hashes(record: StoredRecord) -> list[int]:
    """What a record is indexed by, in order; nothing for a rolled back one."""
    if record.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        return []
    return TopicKeys(record.topic).hashes_of(record.properties)


def find_specs(
    files: ReadFiles, store: StoreDir, slots: int | None, crashed: bool, found: Findings
) -> list[IndexSpec]:
    """The index files that hold anything, with their layouts; what has none is noted.

    Args:
        slots: maxHashSlotNum, if it was given; else it is found out.
        crashed: the store was not closed: the header may know fewer entries than there are.
    """
    specs: list[IndexSpec] = []
    _check_presence(files, store, found)
    known = slots or DEFAULT_SLOTS
    for file in list_index(files, store):
        source = files.open_file(file.path)
        try:
            head = source.pread(HEADER_SIZE, 0)
            if len(head) < HEADER_SIZE:
                words = f"an index file of {file.size} bytes"
                found.add(finding("index_size", file.path, 0, words))
                continue
            number = _find_layout(files, store, source, known)
            if not number and (slots or any(spec.file.size == file.size for spec in specs)):
                number = known
            if not number:
                if head[:36] != bytes(36):
                    words = (
                        "the number of hash slots cannot be found out: this file was not checked"
                    )
                    found.add(finding("unread", file.path, -1, words, NOTE))
                continue
            known = number
            specs.append(_spec(files, store, source, IndexView(file, head, number), file, crashed))
        finally:
            source.close()
    return specs


def _check_presence(files: ReadFiles, store: StoreDir, found: Findings) -> None:
    """The files of which `index.sums` knows are there, whole."""
    path = f"{store.root}/{SUMS}"
    if files.file_size(path) < 0:
        return
    for known in parse_sums(read_all(files, path, 1 << 24)):
        name = f"{store.index}/{known.name}"
        size = files.file_size(name)
        if size < 0 and known.end_physical >= store.min_offset:
            words = f"the index file is missing; its last record is at offset {known.end_physical}"
            found.add(finding("index_size", name, -1, words))
        elif 0 <= size != known.size:
            words = f"{size} bytes, {known.size} were written"
            found.add(finding("index_size", name, size, words))


def _find_layout(files: ReadFiles, store: StoreDir, source: ReadAt, known: int) -> int:
    """Hash slots of a file, by its first entry or by its last; 0 when they cannot be found out."""
    head = source.pread(HEADER_SIZE, 0)
    begin = int.from_bytes(head[16:24], "big", signed=True)
    end = int.from_bytes(head[24:32], "big", signed=True)
    count = int.from_bytes(head[36:40], "big", signed=True)
    if head[:36] == bytes(36):  # a killed broker may never have written it
        begin = store.min_offset
    record = read_record(files, store.log, begin)
    hashes = key_hashes(record) if record is not None else []
    first_hash = hashes[0] if hashes else -1
    for number, physical, key_hash in (
        (1, begin, first_hash),
        (count - 1, end, -1),
        (1, begin, -1),
    ):
        slots = find_slots(source, number, physical, key_hash, known) if number > 0 else 0
        if slots:
            return slots
    fits = (source.size - HEADER_SIZE - SLOT_SIZE * known) % ENTRY_SIZE == 0
    return known if source.size == index_file_size(DEFAULT_SLOTS, 20_000_000) and fits else 0


def _spec(
    files: ReadFiles, store: StoreDir, source: ReadAt, view: IndexView, file: LogFile, crashed: bool
) -> IndexSpec:
    end, begin_physical, end_physical = (
        int(view.end),
        int(view.begin_physical),
        int(view.end_physical),
    )
    begin_ms = int(view.begin_ms)
    if crashed:
        end = find_end(source, view)
        if end > 1:
            begin_physical = _physical(source, view, 1)
            end_physical = _physical(source, view, end - 1)
            record = read_record(files, store.log, begin_physical)
            begin_ms = record.store_timestamp_ms if record is not None else begin_ms
    return IndexSpec(file, int(view.slots), end, begin_physical, end_physical, begin_ms)


def _physical(source: ReadAt, view: IndexView, number: int) -> int:
    return int.from_bytes(source.pread(8, view.entry_at(number) + 4), "big", signed=True)


def open_views(files: ReadFiles, specs: list[IndexSpec]) -> list[IndexView]:
    """Index files as checks read them. Raises OSError."""
    views: list[IndexView] = []
    for spec in specs:
        source = files.open_file(spec.file.path)
        try:
            view = IndexView(spec.file, source.pread(HEADER_SIZE, 0), spec.slots)
            view.end = spec.end
            view.begin_physical, view.end_physical = spec.begin_physical, spec.end_physical
            view.begin_ms = spec.begin_ms
            views.append(view)
        finally:
            source.close()
    return views


@dataclass(frozen=True, slots=True)
class IndexTask:
    """The check of one index file in itself; may run in another process."""

    files: ReadFiles
    store: StoreDir
    log_end: int
    crashed: bool

    def __call__(self, spec: IndexSpec) -> Findings:
        """Look at all of the file. Raises OSError."""
        found = Findings()
        view = open_views(self.files, [spec])[0]
        source = self.files.open_file(spec.file.path)
        try:
            ChainCheck(view, self.log_end, found).run(source, self.crashed)
        finally:
            source.close()
        self._check_header(view, found)
        return found

    def _check_header(self, view: IndexView, found: Findings) -> None:
        """The header names the first and the last record."""
        if view.end <= 1 or (self.crashed and view.count != view.end):
            return
        source = self.files.open_file(view.path)
        try:
            first = source.pread(12, view.entry_at(1))[4:]
            last = source.pread(12, view.entry_at(view.end - 1))[4:]
        finally:
            source.close()
        for at, entry, told, what in (
            (16, first, view.begin_physical, "first"),
            (24, last, view.end_physical, "last"),
        ):
            physical = int.from_bytes(entry, "big", signed=True)
            if physical != told:
                words = f"the header says the {what} record is at offset {told}, the entries say {physical}"
                found.add(finding("index_header", view.path, at, words))
                continue
            stored = self._store_ms(physical)
            said = view.begin_ms if what == "first" else view.end_ms
            if stored >= 0 and stored != said:
                words = f"the header says the {what} record was stored at {said}, the record says {stored}"
                found.add(finding("index_header", view.path, at - 16, words))

    def _store_ms(self, physical: int) -> int:
        file = self.store.file_of(physical)
        if file is None:
            return -1
        source = self.files.open_file(file.path)
        try:
            at = physical - file.base
            reader = LogReader(source, file.base, False, at)
            return int(reader.store_ms) if reader.look() == SOUND else -1
        finally:
            source.close()
