"""Index files of a store whose settings are not known: which layout they have, and the audit of each."""

from dataclasses import dataclass

from roquette.base.files import ReadAt, ReadFiles, read_all
from roquette.store.audit.findings import NOTE, Findings, finding
from roquette.store.audit.index_audit import SUMS, audit_whole, lost_files, parse_sums
from roquette.store.audit.index_entries import IndexView, find_end, find_slots
from roquette.store.format.unit import key_hashes
from roquette.store.index.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, index_file_size
from roquette.store.offline.store_dir import LogFile, StoreDir, list_index, read_record

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
            view = IndexView(file.path, file.size, head, number)
            specs.append(_spec(files, store, source, view, file, crashed))
        finally:
            source.close()
    return specs


def _check_presence(files: ReadFiles, store: StoreDir, found: Findings) -> None:
    """The files of which `index.sums` knows are there, whole."""
    path = f"{store.root}/{SUMS}"
    if files.file_size(path) < 0:
        return
    known = parse_sums(read_all(files, path, 1 << 24))
    lost = lost_files(
        known, lambda name: files.file_size(f"{store.index}/{name}"), store.min_offset
    )
    for name, size, words in lost:
        found.add(finding("index_size", f"{store.index}/{name}", size, words))


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
    if crashed:
        view.end = find_end(source, view)
        if view.end > 1:
            view.begin_physical = view.physical_of(source, 1)
            view.end_physical = view.physical_of(source, view.end - 1)
            record = read_record(files, store.log, view.begin_physical)
            view.begin_ms = record.store_timestamp_ms if record is not None else view.begin_ms
    return IndexSpec(
        file, view.slots, view.end, view.begin_physical, view.end_physical, view.begin_ms
    )


def open_views(files: ReadFiles, specs: list[IndexSpec]) -> list[IndexView]:
    """Index files as checks read them. Raises OSError."""
    views: list[IndexView] = []
    for spec in specs:
        source = files.open_file(spec.file.path)
        try:
            head = source.pread(HEADER_SIZE, 0)
            view = IndexView(spec.file.path, spec.file.size, head, spec.slots)
            view.end = spec.end
            view.begin_physical, view.end_physical = spec.begin_physical, spec.end_physical
            view.begin_ms = spec.begin_ms
            views.append(view)
        finally:
            source.close()
    return views


@dataclass(frozen=True, slots=True)
class IndexTask:
    """The audit of one index file; may run in another process."""

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
            audit_whole(view, source, self.log_end, self.crashed, self._store_ms, found)
        finally:
            source.close()
        return found

    def _store_ms(self, physical: int) -> int:
        record = read_record(self.files, self.store.log, physical, check_crc=False)
        return record.store_timestamp_ms if record is not None else -1
