"""Repair of holes of every size and place, of files emptied, missing and cut; and repairs that stop in the middle."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.records import append_message, encode_record, read_queue
from tests.store.offline.stores import (
    READER,
    SEGMENT,
    START_MS,
    config,
    fsck,
    log_file,
    make_store,
    opened,
    poke,
    records,
    write_config,
)

from roquette.base.checksum import crc32
from roquette.base.files import OsFiles
from roquette.errors import StoreError
from roquette.message.properties import decode_properties
from roquette.message.record import encode_blank
from roquette.message.record_layout import StoredRecord
from roquette.store.audit.findings import DAMAGE
from roquette.store.message_store import MessageStore
from roquette.store.offline.repair import finish_pending, repair
from roquette.store.offline.repair_plan import plan_repair
from roquette.store.offline.store_dir import find_store, walk_files

HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])


@dataclass
class Log:
    """A log written byte by byte: records of one queue, holes between."""

    root: Path
    data: bytes = b""
    count: int = 0

    def record(
        self, body: bytes = b"x", properties: bytes = b"KEYS\x01k\x02", size: int = 0
    ) -> None:
        if size:
            body = bytes(size - len(self._encode(b"", properties)))
        self.data += self._encode(body, properties)
        self.count += 1

    def _encode(self, body: bytes, properties: bytes) -> bytes:
        return encode_record(
            b"T", 0, self.count, self.count, len(self.data), 0, START_MS, HOST, START_MS + self.count, HOST, 0, 0, body, properties
        )  # fmt: skip

    def hole(self, size: int, fill: bytes) -> None:
        self.data += (fill * size)[:size]

    def room(self) -> int:
        return SEGMENT - len(self.data) % SEGMENT

    def end_file(self) -> None:
        self.data += encode_blank(self.room()).ljust(self.room(), b"\0")

    def write(self) -> Path:
        folder = self.root / "commitlog"
        folder.mkdir(parents=True)
        for start in range(0, len(self.data), SEGMENT):
            piece = self.data[start : start + SEGMENT].ljust(SEGMENT, b"\0")
            (folder / f"{start:020d}").write_bytes(piece)
        return self.root


def mend(root: Path, in_place: bool = False, files: Any = None) -> Path:
    store = opened(root)
    target = root.with_name(root.name + "-copy")
    plan = plan_repair(READER, store, 17, 120, 320)
    repair(READER, files or OsFiles(), store, plan, None if in_place else str(target))
    return root if in_place else target


def messages(root: Path) -> list[StoredRecord]:
    return [record for record in records(root) if record.sys_flag != 12 or any(record.born_host)]


def facts(record: StoredRecord, *, place: bool = True) -> tuple[Any, ...]:
    """What must stay of a message; `place`: its physical offset too."""
    return (
        record.topic, record.queue_id, record.queue_offset, record.flag, record.sys_flag, record.body,
        record.born_timestamp_ms, record.born_host, record.store_timestamp_ms, record.store_host,
        record.reconsume_times, record.prepared_offset, decode_properties(record.properties),
        record.physical_offset if place else 0,
    )  # fmt: skip


def judge(root: Path, mended: Path, *, place: bool = True) -> None:
    """Sound by fsck; a broker's store opens and serves every sound record at its queue offset; done once is enough."""
    wanted = [facts(record, place=place) for record in messages(root)]
    assert fsck(mended).findings == []
    found = messages(mended)
    assert [facts(record, place=place) for record in found] == wanted
    store = MessageStore(config(mended), OsFiles(), HOST)
    report = store.open(0)
    assert not report.abnormal and report.dropped_bytes == 0
    for record in found:
        read = read_queue(
            store, record.topic, record.queue_id, record.queue_offset, 1, 1 << 20, None
        )
        assert b"".join(read.runs) == store.record_at(record.physical_offset)
        assert read.count == 1
    done = append_message(store, "T", 0, 0, 0, 1, HOST, 0, "", 0, b"new", START_MS + 10**8)
    assert done.queue_offset > max((r.queue_offset for r in found if r.topic == "T"), default=-1)
    store.write_pending()
    store.close(0)
    assert fsck(mended).findings == []
    assert plan_repair(READER, opened(mended)).log.patches == []


FILLS = (b"\0", b"\xff", b"\x00\x00\x00\x60\xda\xa3\x20\xa7" + bytes(64))


@pytest.mark.promise(
    "Damage",
    "repair makes a sound store of holes, cut and missing files, and may be stopped anywhere",
)
@pytest.mark.parametrize("fill", FILLS, ids=["zeros", "ones", "torn record"])
@pytest.mark.parametrize(
    "sizes", [range(start, start + 20) for start in range(1, 201, 20)], ids=str
)
def test_a_hole_of_any_size_between_records(tmp_path: Path, sizes: range, fill: bytes) -> None:
    """At the start of the log, of a later file, in the middle, twice in a row, and before the blank."""
    for size in sizes:
        log = Log(tmp_path / f"s{size}")
        log.hole(size, fill)
        log.record()
        log.hole(size, fill)
        for _ in range(3):
            log.record()
        log.hole(size, fill)
        log.record(b"y" * 300)
        log.hole(size, fill)
        log.end_file()
        log.hole(size, fill)
        log.record(b"z" * 30)
        log.record()
        root = log.write()
        # What stands at a file's start grows towards it: its physical offset moves.
        judge(root, mend(root), place=size >= 92)


@pytest.mark.parametrize("left", range(201))
def test_a_record_that_ends_near_the_end_of_its_file(tmp_path: Path, left: int) -> None:
    """Torn bytes, or none, behind it; a later file follows."""
    log = Log(tmp_path / "s")
    log.record()
    log.record(size=log.room() - left)
    log.hole(left, b"\xff" if left % 2 else b"\0")
    log.record()
    root = log.write()
    judge(root, mend(root))


def test_a_neighbour_without_room_leaves_it_to_the_other(tmp_path: Path) -> None:
    log = Log(tmp_path / "s")
    big = b"KEYS\x01" + b"k" * (32_767 - 6) + b"\x02"
    small = SEGMENT
    assert len(big) == 32_767
    log.record()
    log.hole(40, b"\xff")
    log.record(properties=b"KEYS\x01" + b"k" * (small - 2000) + b"\x02")
    root = log.write()
    judge(root, mend(root))


def test_a_record_with_a_crc_of_all_of_it_takes_a_hole_in(tmp_path: Path) -> None:
    log = Log(tmp_path / "s")
    log.record(properties=b"A\x01b\x02__CRC32#\x011234567890\x02")
    digits = b"%010d" % (crc32(log.data[:-20]) & 0x7FFFFFFF)
    log.data = log.data[:-11] + digits[::-1] + b"\x02"
    assert "whole_crc" not in kinds(Log(tmp_path / "whole", log.data).write())
    log.hole(9, b"\xff")
    log.record()
    root = log.write()
    mended = mend(root)
    assert fsck(mended).findings == []


def test_a_crc_that_an_application_sent_costs_no_message(tmp_path: Path) -> None:
    """Repair made a filler of it, and recovery looked for the next record behind it."""
    log = Log(tmp_path / "s")
    for _ in range(3):
        log.record(properties=b"A\x01b\x02__CRC32#\x010123456789\x02")
    root = log.write()
    assert "whole_crc" in kinds(root)
    mended = mend(root)
    assert kinds(mended) == {"whole_crc"}, fsck(mended)
    assert [facts(one) for one in messages(mended)] == [facts(one) for one in messages(root)]
    assert len(messages(root)) == 3


def kinds(root: Path) -> set[str]:
    return {found.kind for found in fsck(root).findings if found.severity == DAMAGE}


def empty(path: Path) -> None:
    path.write_bytes(b"")


def zero(path: Path) -> None:
    path.write_bytes(bytes(SEGMENT))


def cut(size: int) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_bytes()[:size])


FILE_DAMAGE: dict[str, Callable[[Path], None]] = {
    "emptied": empty,
    "zeroed": zero,
    "missing": Path.unlink,
    **{f"cut to {size}": cut(size) for size in (1, 7, 8, 91, 4000, SEGMENT - 8, SEGMENT - 1)},
}


@pytest.mark.parametrize("in_place", [False, True], ids=["copy", "in place"])
@pytest.mark.parametrize("number", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("name", FILE_DAMAGE)
def test_a_file_of_the_log_emptied_missing_or_cut(
    tmp_path: Path, name: str, number: int, in_place: bool
) -> None:
    root = tmp_path / "store"
    make_store(root)
    write_config(root)
    FILE_DAMAGE[name](root / "commitlog" / f"{number * SEGMENT:020d}")
    source = tmp_path / "before"
    shutil.copytree(root, source)
    judge(source, mend(root, in_place))


def test_files_cut_at_the_end_of_a_record_and_two_missing_in_a_row(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root)
    ends = [r.physical_offset + r.size for r in records(root) if r.physical_offset < SEGMENT]
    cut(ends[-1])(root / "commitlog" / f"{0:020d}")
    for number in (1, 2):
        (root / "commitlog" / f"{number * SEGMENT:020d}").unlink()
    judge(root, mend(root))


def test_a_file_far_behind_the_others_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root)
    last = sorted((root / "commitlog").iterdir())[-1]
    shutil.copy(last, last.with_name(f"{SEGMENT * 1000:020d}"))
    with pytest.raises(StoreError, match="move it away"):
        plan_repair(READER, opened(root))


def test_a_copy_into_the_store_itself_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root)
    link = tmp_path / "link"
    link.symlink_to(root)
    store = opened(root)
    plan = plan_repair(READER, store)
    before = tree(root)
    for target in (root, root / "copy", root / "config" / "x", link / "copy", root / "commitlog"):
        with pytest.raises(StoreError, match="lies in"):
            repair(READER, OsFiles(), store, plan, str(target))
    assert tree(root) == before


def tree(root: Path, *left_out: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not set(path.relative_to(root).parts) & set(left_out)
    }


class Stopped(OSError):
    """The process ends here."""


class StoppingFiles(OsFiles):
    """The Nth call that changes something does not happen, nor any after it."""

    def __init__(self, nth: int) -> None:
        super().__init__()
        self.left = nth

    def _count(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise Stopped(5, "stopped")

    def open_file(
        self, path: str, size: int | None = None, create: bool = False, private: bool = False
    ) -> Any:
        if create:
            self._count()
        return super().open_file(path, size, create)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._count()
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self._count()
        super().remove_tree(path)

    def make_dirs(self, path: str) -> None:
        self._count()
        super().make_dirs(path)

    def sync_dir(self, path: str) -> None:
        self._count()
        super().sync_dir(path)


def damaged(root: Path) -> Path:
    """A body, a header, a file of the log, a queue file and the JSON damaged."""
    make_store(root)
    write_config(root)
    found = records(root)
    for number, at in ((57, 95), (20, 0), (100, 2)):
        offset = found[number].physical_offset
        poke(log_file(root, offset), offset % SEGMENT + at, b"\xff" * 20)
    (root / "commitlog" / f"{SEGMENT * 2:020d}").unlink()
    shutil.copy(root / "config" / "topics.json", root / "config" / "topics.json.bak")
    (root / "config" / "topics.json").write_text("{")
    return root


def stops(root: Path) -> Iterator[tuple[int, Path]]:
    """A copy of a store for each call at which a repair in place stops."""
    for nth in range(1, 2000):
        copy = root.with_name(f"stop{nth}")
        shutil.copytree(root, copy)
        try:
            mend(copy, True, StoppingFiles(nth))
        except Stopped:
            yield nth, copy
            shutil.rmtree(copy)
        else:
            assert nth > 60
            return


@pytest.mark.promise(
    "Damage",
    "repair makes a sound store of holes, cut and missing files, and may be stopped anywhere",
)
def test_a_repair_in_place_that_stops_anywhere_leaves_the_old_store_or_ends_as_the_new(
    tmp_path: Path,
) -> None:
    root = damaged(tmp_path / "store")
    before = tree(root)
    shutil.copytree(root, tmp_path / "whole")
    after = tree(mend(tmp_path / "whole", True))
    old = new = 0
    for nth, copy in stops(root):
        if not (copy / "repair.swap").exists():
            found = tree(copy, "repair.new", "repair.lost", "repair.swap.tmp")
            if found == before:
                old += 1
                mend(copy, True)
            else:
                new += 1  # the last call only made the end durable
            assert tree(copy, "repair.new") == after, nth
            continue
        new += 1
        with pytest.raises(StoreError, match="was interrupted"):
            MessageStore(config(copy), OsFiles(), HOST).open(0)
        with pytest.raises(StoreError, match="was interrupted"):
            mend(copy, True)
        if nth % 3 == 0:  # and stops again
            with pytest.raises(Stopped):
                finish_pending(StoppingFiles(1 + nth % 7), str(copy))
        assert finish_pending(OsFiles(), str(copy)) or nth % 3 == 0
        assert not finish_pending(OsFiles(), str(copy))
        assert tree(copy, "repair.new") == after, nth
    assert old > 40 and new > 10


def test_a_copy_that_stops_anywhere_leaves_the_source_alone(tmp_path: Path) -> None:
    root = damaged(tmp_path / "store")
    before = tree(root)
    for nth in range(1, 200, 7):
        try:
            mend(root, False, StoppingFiles(nth))
        except Stopped:
            assert (tmp_path / "store-copy" / "abort").exists() or nth < 5
        shutil.rmtree(tmp_path / "store-copy", ignore_errors=True)
        assert tree(root) == before


def test_a_log_on_a_disk_of_its_own_is_repaired_there(tmp_path: Path) -> None:
    root = damaged(tmp_path / "store")
    sound = [facts(record) for record in messages(root)]
    apart = tmp_path / "disk" / "log"
    apart.parent.mkdir()
    (root / "commitlog").rename(apart)
    store = find_store(READER, str(root), str(apart))
    plan = plan_repair(READER, store, 17, 120, 320)
    before = tree(tmp_path)
    with pytest.raises(StoreError, match="lies in"):
        repair(READER, OsFiles(), store, plan, str(apart / "copy"))
    for nth in (5, 20, 40):
        with pytest.raises(Stopped):
            repair(READER, StoppingFiles(nth), store, plan, None)
        assert tree(tmp_path, "repair.new", "repair.lost") == before

    repair(READER, OsFiles(), store, plan, None)

    assert not (apart / "repair.new").exists()
    assert not (root / "commitlog").exists()
    settings = replace(config(root), commit_log_dir=str(apart))
    opened_store = MessageStore(settings, OsFiles(), HOST)
    assert not opened_store.open(0).abnormal
    opened_store.close(0)
    mended = find_store(READER, str(root), str(apart))
    found = walk_files(READER, mended.log, mended.segment_size)
    kept = [one for one in found if isinstance(one, StoredRecord) and one.sys_flag != 12]
    assert [facts(record) for record in kept] == sound


def test_what_a_stopped_repair_leaves_in_the_log_s_directory_disturbs_nobody(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    make_store(root)
    (root / "commitlog" / "repair.new").mkdir()
    (root / "commitlog" / "repair.new" / f"{0:020d}").write_bytes(bytes(SEGMENT))
    assert fsck(root).sound
    store = MessageStore(config(root), OsFiles(), HOST)
    assert not store.open(0).abnormal
    assert store.max_offset("Orders", 0) == 25
    store.close(0)
