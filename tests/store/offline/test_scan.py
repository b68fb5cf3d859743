"""Walking through log files: sound, damaged, torn, cut off."""

from pathlib import Path

import pytest
from tests.store.offline.stores import READER, SEGMENT, log_file, make_store, opened, poke, records

from roquette.message.record_layout import StoredRecord
from roquette.store.offline.store_dir import (
    DamagedStretch,
    FileEnd,
    read_record,
    walk_bytes,
    walk_files,
)


class Memory:
    """Bytes as a source."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.reads: list[int] = []

    @property
    def size(self) -> int:
        return len(self._data)

    def pread(self, size: int, position: int) -> bytes:
        self.reads.append(size)
        return self._data[position : position + size]

    def close(self) -> None: ...


def walked(root: Path) -> tuple[list[StoredRecord], list[DamagedStretch], list[FileEnd]]:
    store = opened(root)
    found = list(walk_files(READER, store.log, store.segment_size))
    return (
        [one for one in found if isinstance(one, StoredRecord)],
        [one for one in found if isinstance(one, DamagedStretch)],
        [one for one in found if isinstance(one, FileEnd)],
    )


def test_every_record_of_a_sound_log_comes_once_and_in_order(tmp_path: Path) -> None:
    make_store(tmp_path)

    found, faults, ends = walked(tmp_path)

    assert [record.flag for record in found] == list(range(150))
    assert faults == []
    assert [end.filled for end in ends] == [True] * (len(ends) - 1) + [False]
    assert len(ends) > 3


@pytest.mark.parametrize(
    "at, data, kind",
    [
        (0, b"\x7f", "size"),
        (4, b"\0", "magic"),
        (90, b"\xff", "crc"),
        (8, b"\xff", "crc"),
        (28, b"\1", "offset"),
        (84, b"\0\0\xff", "structure"),
        (0, bytes(60), "hole"),
    ],
)
def test_reading_goes_on_behind_damage(tmp_path: Path, at: int, data: bytes, kind: str) -> None:
    make_store(tmp_path)
    sound = records(tmp_path)
    victim = sound[57]
    path = log_file(tmp_path, victim.physical_offset)
    if kind == "hole":
        data = bytes(victim.size)
    poke(path, victim.physical_offset % SEGMENT + at, data)

    found, faults, _ = walked(tmp_path)

    assert [record.flag for record in found] == [n for n in range(150) if n != 57]
    position = victim.physical_offset % SEGMENT
    assert faults[0].kind == kind
    assert faults == [
        DamagedStretch(str(path), position, position + victim.size, kind, faults[0].words)
    ]


def test_a_torn_tail_is_one_fault_at_its_first_byte(tmp_path: Path) -> None:
    make_store(tmp_path)
    last = records(tmp_path)[-1]
    path = log_file(tmp_path, last.physical_offset)
    at = last.physical_offset % SEGMENT
    poke(path, at + 40, bytes(last.size - 40))

    found, faults, ends = walked(tmp_path)

    assert len(found) == 149
    assert [(fault.position, fault.kind) for fault in faults] == [(at, "tail")]
    assert not ends[-1].filled


def test_a_file_cut_off_within_a_record_says_so(tmp_path: Path) -> None:
    make_store(tmp_path)
    victim = records(tmp_path)[10]
    path = log_file(tmp_path, victim.physical_offset)
    data = path.read_bytes()[: victim.physical_offset + 50]

    found = list(walk_bytes(Memory(data), "copy", 0, nominal=SEGMENT))

    assert [one.flag for one in found if isinstance(one, StoredRecord)] == list(range(10))
    assert [one.kind for one in found if isinstance(one, DamagedStretch)] == ["cut"]


def test_a_walk_may_begin_anywhere_and_pieces_fit_together(tmp_path: Path) -> None:
    make_store(tmp_path)
    path = tmp_path / "commitlog" / f"{SEGMENT:020d}"
    source = Memory(path.read_bytes())
    whole = [one.flag for one in walk_bytes(source, "", SEGMENT) if isinstance(one, StoredRecord)]

    for cut in range(0, SEGMENT, 511):
        first = walk_bytes(source, "", SEGMENT, stop=cut)
        second = walk_bytes(source, "", SEGMENT, start=cut, sync=True)
        found = [*first, *second]
        assert [one.flag for one in found if isinstance(one, StoredRecord)] == whole
        assert not [one for one in found if isinstance(one, DamagedStretch)]


def test_a_renamed_file_tells_its_offset_itself(tmp_path: Path) -> None:
    make_store(tmp_path)
    data = (tmp_path / "commitlog" / f"{SEGMENT:020d}").read_bytes()

    found = list(walk_bytes(Memory(data), "renamed", -1))

    assert isinstance(found[0], StoredRecord)
    assert found[0].physical_offset == SEGMENT
    assert not [one for one in found if isinstance(one, DamagedStretch)]


def test_a_log_larger_than_the_window_is_read_in_windows(tmp_path: Path) -> None:
    make_store(tmp_path)
    one = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    source = Memory(one + bytes(3 << 20))

    list(walk_bytes(source, "", 0))

    assert max(source.reads) <= (1 << 20) + 7


def test_one_record_is_found_by_its_offset(tmp_path: Path) -> None:
    make_store(tmp_path)
    store = opened(tmp_path)
    wanted = records(tmp_path)[99]

    found = read_record(READER, store.log, wanted.physical_offset)

    assert found is not None and found.flag == 99
    assert read_record(READER, store.log, wanted.physical_offset + 1) is None
    assert read_record(READER, store.log, 1 << 40) is None
