"""Backups of small stores: what is linked, what is refused, and a store that comes back record by record."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.store.offline.stores import (
    READER,
    SEGMENT,
    START_MS,
    append,
    config,
    faults,
    fsck,
    log_file,
    make_store,
    opened,
    poke,
    records,
    write_config,
)

from roquette.base.files import OsFiles, OsReadFiles, copy_bytes
from roquette.errors import StoreError
from roquette.store.format.layout import StoreLayout
from roquette.store.format.log_mark import MARK_AT, written_until
from roquette.store.message_store import MessageStore
from roquette.store.offline.backup import (
    MANIFEST,
    Manifest,
    back_up,
    last_entry,
    last_unit_stays,
    restore,
)

FILES = OsFiles()


def made(root: Path, to: Path, *, link: bool = True) -> Manifest:
    return back_up(READER, FILES, opened(root), str(to), START_MS, link=link)


def stored(root: Path) -> list[tuple[str, int, int, bytes]]:
    return [(each.topic, each.queue_id, each.queue_offset, each.body) for each in records(root)]


@pytest.mark.parametrize("close", [True, False], ids=["stopped", "running"])
def test_a_store_comes_back_record_by_record(tmp_path: Path, close: bool) -> None:
    root, backup, back = tmp_path / "store", tmp_path / "backup", tmp_path / "back"
    store = make_store(root, close=close)
    write_config(root)
    before = stored(root)
    manifest = made(root, backup)
    restore(READER, FILES, str(backup), str(back))
    if not close:
        store.close(START_MS)
    assert manifest.log_end == max(file.base + file.size for file in opened(root).log)
    assert stored(backup) == stored(back) == before
    assert fsck(back).sound
    for name in ("topics.json", "consumerOffset.json"):
        assert (back / "config" / name).read_bytes() == (root / "config" / name).read_bytes()
    again = MessageStore(config(back), FILES, bytes(8))
    report = again.open(START_MS)
    assert report.abnormal and not report.dropped_bytes and not report.lost_messages
    again.close(START_MS)
    assert stored(back) == before


def test_full_files_are_linked_and_growing_ones_are_copied(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root)
    linked = {file.path for file in made(root, tmp_path / "linked").files if file.linked}
    logs = sorted(path.name for path in (root / "commitlog").iterdir())
    assert {f"commitlog/{name}" for name in logs[:-1]} <= linked
    assert f"commitlog/{logs[-1]}" not in linked
    assert os.path.samefile(root / "commitlog" / logs[0], tmp_path / "linked/commitlog" / logs[0])
    assert not any(file.linked for file in made(root, tmp_path / "copied", link=False).files)
    first = root / "commitlog" / logs[0]
    assert not os.path.samefile(first, tmp_path / "copied/commitlog" / logs[0])


def test_what_is_no_place_for_a_backup_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    root, taken, file = tmp_path / "store", tmp_path / "taken", tmp_path / "file"
    make_store(root)
    taken.mkdir()
    (taken / "mine").write_text("precious")
    file.write_text("precious")
    for target, said in (
        (taken, "is not empty"),
        (file, "is a file"),
        (root / "backup", "lies in"),
        (root, "lies in"),
    ):
        with pytest.raises(StoreError, match=said):
            made(root, target)
    assert (taken / "mine").read_text() == file.read_text() == "precious"
    assert not (root / "backup").exists()
    with pytest.raises(StoreError, match="commit log alone"):
        made(root / "commitlog", tmp_path / "other")


def test_what_is_no_whole_backup_is_not_restored(tmp_path: Path) -> None:
    root, backup, back = tmp_path / "store", tmp_path / "backup", tmp_path / "back"
    make_store(root)
    made(root, backup)
    manifest = (backup / MANIFEST).read_bytes()

    def refused(said: str) -> None:
        with pytest.raises(StoreError, match=said):
            restore(READER, FILES, str(backup), str(back))
        assert not back.exists()

    (backup / MANIFEST).unlink()
    refused("no backup, or one that was not ended")
    (backup / MANIFEST).write_bytes(manifest[: len(manifest) // 2])
    refused("cannot be read")
    found = msgspec.json.decode(manifest)
    (backup / MANIFEST).write_bytes(msgspec.json.encode({**found, "version": 2}))
    refused("version 2; known is 1")
    for path in ("../outside", "/etc/passwd", "config/../../outside"):
        foreign = {"path": path, "size": 1, "linked": False}
        (backup / MANIFEST).write_bytes(msgspec.json.encode({**found, "files": [foreign]}))
        refused("not below the backup")
    (backup / MANIFEST).write_bytes(manifest)
    cut = backup / next(
        file["path"] for file in found["files"] if file["path"].startswith("consume")
    )
    with cut.open("r+b") as opened:
        opened.truncate(cut.stat().st_size - 1)
    refused("1 of [0-9]+ files are not as they were")
    cut.unlink()
    refused("is gone")


# While the broker writes

NUMBERS = 150  # messages of `make_store`
BATCH = 60  # more, in several files of the log and of each queue


class Meanwhile(OsReadFiles):
    """A look at the files, while which the broker does something: once, before the queues are listed."""

    def __init__(self, store: Path, act: Callable[[], object]) -> None:
        self._at, self._act = str(store / "consumequeue"), act

    def list_dir(self, path: str) -> list[str]:
        if path == self._at and self._act is not nothing:
            act, self._act = self._act, nothing
            act()
        return super().list_dir(path)


def nothing() -> None:
    """Do it."""


def made_while(
    root: Path,
    to: Path,
    *,
    link: bool,
    queues: Callable[[], object] = nothing,
    log: Callable[[], object] = nothing,
) -> Manifest:
    """A backup while a broker acts: when the queues' turn has begun, and before the log is copied."""

    def said(part: str) -> None:
        if part == "the log":
            log()

    reader = Meanwhile(root, queues)
    return back_up(reader, FILES, opened(root), str(to), START_MS, link=link, say=said)


def check_backup(root: Path, store: MessageStore, backup: Path, back: Path, count: int) -> None:
    """It is sound, has the first `count` messages and a broker opens it without a loss; nor was the store harmed."""
    report = fsck(backup)
    assert faults(report) == faults(fsck(backup, quick=True)) == []
    assert "unit_missing" not in {item.kind for item in report.findings}
    restore(READER, FILES, str(backup), str(back))
    again = MessageStore(config(back), FILES, bytes(8))
    opening = again.open(START_MS)
    assert not opening.dropped_bytes and not opening.lost_messages
    assert not [words for words in opening.warnings if "the log has lost" in words]
    again.close(START_MS)
    assert fsck(back).findings == []
    store.write_pending()
    store.close(START_MS)
    assert fsck(root).findings == []
    assert stored(back) == stored(root)[: len(stored(back))] and len(stored(back)) >= count


def append_some(store: MessageStore, first: int = NUMBERS, count: int = BATCH) -> None:
    for number in range(first, first + count):
        append(store, number)


both = pytest.mark.parametrize("link", [True, False], ids=["linked", "copied"])


@both
@pytest.mark.parametrize("pending", [1, 7, BATCH])
def test_units_whose_records_are_not_written_yet_are_left_out(
    tmp_path: Path, link: bool, pending: int
) -> None:
    """They are in the queues' files at once, a turn's records in the log's at its end; here the backup comes between."""
    root, backup = tmp_path / "store", tmp_path / "backup"
    store = make_store(root, close=False)
    append_some(store, count=pending)
    written = len(records(root))
    made(root, backup, link=link)
    assert NUMBERS <= len(records(backup)) <= written
    check_backup(root, store, backup, tmp_path / "back", NUMBERS)


@both
@pytest.mark.parametrize("moment", ["queues", "log"])
@pytest.mark.parametrize("write", [True, False], ids=["written", "pending"])
def test_what_is_appended_while_a_backup_is_made_leaves_it_sound(
    tmp_path: Path, link: bool, moment: str, write: bool
) -> None:
    root, backup = tmp_path / "store", tmp_path / "backup"
    store = make_store(root, close=False)

    def act() -> None:
        append_some(store)
        if write:
            store.write_pending()

    if moment == "queues":
        made_while(root, backup, link=link, queues=act)
    else:
        made_while(root, backup, link=link, log=act)
    check_backup(root, store, backup, tmp_path / "back", NUMBERS)


@both
def test_a_turn_that_ends_between_queues_and_log_leaves_it_sound(
    tmp_path: Path, link: bool
) -> None:
    root, backup = tmp_path / "store", tmp_path / "backup"
    store = make_store(root, close=False)
    append_some(store)
    made_while(root, backup, link=link, log=store.write_pending)
    check_backup(root, store, backup, tmp_path / "back", NUMBERS)


@pytest.mark.parametrize("there", [1, 6, 8, 11, 12, 19])
def test_a_unit_that_is_half_written_is_left_out(tmp_path: Path, there: int) -> None:
    """Its record is written before the log is copied: without it the unit would be damage."""
    root, backup = tmp_path / "store", tmp_path / "backup"
    store = make_store(root, close=False)
    place, path = unit_of_next(store, root)
    unit = b""

    def half() -> None:
        nonlocal unit
        append(store, NUMBERS)
        unit = path.read_bytes()[place : place + 20]
        poke(path, place, unit[:there] + bytes(20 - there))

    def rest() -> None:
        poke(path, place, unit)
        store.write_pending()

    made_while(root, backup, link=True, queues=half, log=rest)
    assert unit
    assert (backup / path.relative_to(root)).read_bytes()[place : place + 20] == bytes(20)
    check_backup(root, store, backup, tmp_path / "back", NUMBERS)


def unit_of_next(store: MessageStore, root: Path) -> tuple[int, Path]:
    """Where in which file the unit of message `NUMBERS` will stand."""
    offset = store.max_offset("Orders", NUMBERS % 3)
    name = f"{(offset - offset % 16) * 20:020d}"
    return offset % 16 * 20, root / "consumequeue/Orders" / str(NUMBERS % 3) / name


@both
@pytest.mark.parametrize("there", [3, 8, 60, 100, 170, -1])
def test_half_a_record_at_the_logs_end_is_left_out(tmp_path: Path, link: bool, there: int) -> None:
    """The system shows a reader part of what is being written, and no checksum is of a record's properties."""
    root, twin, backup = tmp_path / "store", tmp_path / "twin", tmp_path / "backup"
    store = make_store(root, close=False)
    make_store(twin, NUMBERS + 1)
    record = records(twin)[-1]
    path, at = log_file(root, record.physical_offset), record.physical_offset % SEGMENT
    whole = log_file(twin, record.physical_offset).read_bytes()[at : at + record.size]
    made_while(root, backup, link=link, log=lambda: poke(path, at, whole[:there]))
    append(store, NUMBERS)
    assert not (backup / "commitlog" / path.name).read_bytes()[at:].rstrip(b"\0")
    check_backup(root, store, backup, tmp_path / "back", NUMBERS)


@both
def test_a_file_that_gets_its_last_bytes_once_the_next_is_there_leaves_no_gap(
    tmp_path: Path, link: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next file of the log is made, then the one before filled, then written on: a backup may come between."""
    root, backup = tmp_path / "store", tmp_path / "backup"
    store = make_store(root, close=False)
    last = sorted((root / "commitlog").iterdir())[-1]
    before = last.read_bytes()
    append_some(store)
    filled, following = last.read_bytes(), sorted((root / "commitlog").iterdir())[-1]
    assert filled != before and following != last
    at = StoreLayout(str(root)).checkpoint
    mark = Path(at).read_bytes()[MARK_AT + 40 : MARK_AT + 56]
    poke(last, 0, before)
    poke(Path(at), MARK_AT + 40, struct.pack("=qq", end_of_records(root), ~end_of_records(root)))

    def copy(source: str, target: str) -> int:
        done = copy_bytes(source, target)
        if "/commitlog/" in source:
            poke(last, 0, filled)
            poke(Path(at), MARK_AT + 40, mark)
            store.write_pending()
        return done

    monkeypatch.setattr("roquette.store.offline.backup.copy_bytes", copy)
    made(root, backup, link=link)
    assert len(records(root)) > NUMBERS
    check_backup(root, store, backup, tmp_path / "back", NUMBERS)


@both
@pytest.mark.parametrize("size", [0, 40])
def test_files_in_the_making_are_left_out(tmp_path: Path, link: bool, size: int) -> None:
    """A file has a name before it has its size."""
    root, backup = tmp_path / "store", tmp_path / "backup"
    store = make_store(root, close=False)
    files: list[Path] = []
    for directory, whole in (("commitlog", SEGMENT), ("consumequeue/Orders/0", 320)):
        last = sorted((root / directory).iterdir())[-1]
        files.append(root / directory / f"{int(last.name) + whole:020d}")
        files[-1].write_bytes(bytes(size))
    made(root, backup, link=link)
    for file in files:
        file.unlink()
    check_backup(root, store, backup, tmp_path / "back", NUMBERS)


def end_of_records(root: Path) -> int:
    last = records(root)[-1]
    return last.physical_offset + last.size


def test_what_was_written_when_a_file_was_filled_is_in_the_backup(tmp_path: Path) -> None:
    """A replica may get a file's end, and then for a while nothing whole: its end was told to the master."""
    master, root, backup = tmp_path / "master", tmp_path / "store", tmp_path / "backup"
    make_store(master)
    store = MessageStore(config(root), FILES, bytes(8))
    store.open(START_MS)
    files = sorted((master / "commitlog").iterdir())
    store.append_raw(0, files[0].read_bytes())
    store.append_raw(SEGMENT, files[1].read_bytes()[:30])
    store.write_pending()
    made(root, backup)
    whole = sum(each.physical_offset < SEGMENT for each in records(master))
    assert len(records(backup)) == whole > 0
    assert faults(fsck(backup)) == []
    store.abandon()


def test_what_was_read_before_the_turn_ended_is_in_the_backup(tmp_path: Path) -> None:
    """The timer reads messages of the same turn, and its files may say so at once."""
    root = tmp_path / "store"
    store = make_store(root, close=False)
    append(store, NUMBERS)
    end = store.max_physical_offset
    before = written_until(FILES, StoreLayout(str(root)))
    assert before < end
    assert len(store.read_log(before, end)) == end - before
    assert written_until(FILES, StoreLayout(str(root))) == end
    made(root, tmp_path / "backup")
    assert len(records(tmp_path / "backup")) == NUMBERS + 1
    store.abandon()


def test_an_index_file_that_grows_on_is_not_linked(tmp_path: Path) -> None:
    """The last stop has left its checksum in `index.sums`, as of the full ones."""
    root, backup = tmp_path / "store", tmp_path / "backup"
    make_store(root)
    growing = sorted((root / "index").iterdir())[-1].name
    stopped = {file.path: file for file in made(root, tmp_path / "stopped").files}
    assert not stopped[f"index/{growing}"].linked  # nor will it be written once the store is opened
    assert sum(file.linked for path, file in stopped.items() if path.startswith("index/")) > 2
    store = MessageStore(config(root), FILES, bytes(8))
    store.open(START_MS)
    append(store, NUMBERS)
    store.write_pending()
    manifest = made(root, backup)
    assert f"index/{growing}" not in {file.path for file in manifest.files}
    append_some(store, NUMBERS + 1)
    check_backup(root, store, backup, tmp_path / "back", NUMBERS + 1)
    assert faults(fsck(tmp_path / "stopped")) == []


def test_an_index_file_is_left_out_when_a_broker_starts_while_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    make_store(root)
    growing = sorted((root / "index").iterdir())[-1].name

    def copy(source: str, target: str) -> int:
        if source.endswith(growing):
            (root / "abort").touch()
        return copy_bytes(source, target)

    monkeypatch.setattr("roquette.store.offline.backup.copy_bytes", copy)
    manifest = made(root, tmp_path / "backup")
    assert f"index/{growing}" not in {file.path for file in manifest.files}
    assert not (tmp_path / "backup/index" / growing).exists()


def test_a_store_that_nobody_uses_is_copied_as_it_is(tmp_path: Path) -> None:
    """Whatever its mark says: that of a copy may be older than what was copied after it."""
    root = tmp_path / "store"
    store = make_store(root, close=False)
    store.abandon()
    set_mark(root, records(root)[NUMBERS // 2].physical_offset)
    made(root, tmp_path / "backup")
    assert stored(tmp_path / "backup") == stored(root)
    assert len(stored(root)) == NUMBERS
    same_files(root, tmp_path / "backup", "consumequeue")


def same_files(root: Path, backup: Path, part: str) -> None:
    for path in (root / part).rglob("*"):
        if path.is_file():
            assert (backup / path.relative_to(root)).read_bytes() == path.read_bytes()


def set_mark(root: Path, value: int, complement: int | None = None) -> None:
    other = ~value if complement is None else complement
    poke(root / "checkpoint", MARK_AT + 40, struct.pack("=qq", value, other))


def test_a_store_in_use_ends_in_its_backup_where_its_mark_says(tmp_path: Path) -> None:
    """Also between the files of the log, where there is nothing yet, and while the mark is being written."""
    root = tmp_path / "store"
    store = make_store(root, close=False)
    ends = [each.physical_offset for each in records(root)]
    first = next(number for number, end in enumerate(ends) if end >= SEGMENT)
    for name, mark, count, files in (
        ("nothing", (0, ~0), 0, 1),
        ("some", (ends[40], ~ends[40]), 40, 2),
        ("file", (SEGMENT, ~SEGMENT), first, 1),
        ("begun", (ends[60], ~ends[50]), 50, 2),
        ("torn", (ends[50], ~ends[60]), 50, 2),
    ):
        set_mark(root, *mark)
        manifest = made(root, tmp_path / name)
        report = fsck(tmp_path / name)
        assert len(records(tmp_path / name)) == count, name
        assert {kind for kind, _, _ in faults(report)} <= {"checkpoint"}, name
        assert "unit_missing" not in {item.kind for item in report.findings}, name
        logs = [file for file in manifest.files if file.path.startswith("commitlog/")]
        assert (len(logs), manifest.log_end) == (files, files * SEGMENT), name
        assert [file.linked for file in logs] == [name != "nothing", False][:files], name
    (root / "commitlog" / f"{0:020d}").unlink()
    set_mark(root, 0)
    made(root, tmp_path / "headless")
    assert not any((tmp_path / "headless/commitlog" / f"{SEGMENT:020d}").read_bytes())
    store.abandon()


def test_index_files_of_records_behind_the_mark_are_left_out(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = make_store(root, close=False)
    first = min((root / "index").iterdir())
    last = last_entry(READER, str(first))
    assert last
    for name, mark, there in (("before", last, False), ("behind", last + 1, True)):
        set_mark(root, mark)
        taken = {file.path for file in made(root, tmp_path / name).files}
        assert [path for path in taken if path.startswith("index/")] == [
            "index/" + first.name
        ] * there
    store.abandon()


def test_what_stands_at_the_end_of_a_file_may_be_gone_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert last_unit_stays(READER, str(path), 0)  # nothing is left to copy
    assert last_entry(READER, str(path)) is None
    for physical, size, stays in (
        (100, 50, True),
        (101, 50, False),
        (100, 0, False),
        (0, 0, False),
    ):
        path.write_bytes(struct.pack(">qiq", physical, size, 0))
        assert last_unit_stays(READER, str(path), 150) is stays
    assert last_entry(READER, str(path)) is None
    path.write_bytes(struct.pack(">iqii", 7, 0, 0, 0))
    assert last_entry(READER, str(path)) == 0


def test_a_mark_that_is_not_of_this_log_counts_for_nothing(tmp_path: Path) -> None:
    """Another system's, one from before Apache's broker had the store; none."""
    root = tmp_path / "store"
    make_store(root)
    layout, checkpoint = StoreLayout(str(root)), root / "checkpoint"
    marked, lock = checkpoint.read_bytes(), root / "lock"
    assert written_until(FILES, layout) == end_of_records(root)
    poke(checkpoint, MARK_AT + 8, b"another boot")
    assert written_until(FILES, layout) == -1
    checkpoint.write_bytes(marked)
    poke(
        checkpoint, 0, b"\0\0\0\0\0\0\0\1"
    )  # Apache's broker does not know that we keep its times twice
    assert written_until(FILES, layout) == -1
    checkpoint.write_bytes(marked)
    lock.write_bytes(b"lock")
    assert written_until(FILES, layout) == -1
    lock.write_bytes(b"")
    checkpoint.write_bytes(marked[:MARK_AT])
    assert written_until(FILES, layout) == -1
    checkpoint.unlink()
    assert written_until(FILES, layout) == -1


def test_a_store_of_apaches_broker_in_use_is_copied_as_it_is(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = make_store(root, close=False)
    append_some(store, count=3)
    (root / "lock").write_bytes(b"lock")
    made(root, tmp_path / "backup")
    for part in ("commitlog", "consumequeue"):
        same_files(root, tmp_path / "backup", part)
    store.abandon()


@both
def test_files_that_retention_removes_while_a_backup_is_made_are_not_missed(
    tmp_path: Path, link: bool
) -> None:
    """The checkpoint was copied before; a broker that knows of a file that is not there does not start."""
    root, backup, back = tmp_path / "store", tmp_path / "backup", tmp_path / "back"
    store = make_store(root, close=False)
    records_before = records(root)

    def expire() -> None:
        assert store._log.mark is not None
        store._log.mark.note_begin(SEGMENT)
        log_file(root, 0).unlink()

    made_while(root, backup, link=link, log=expire)
    assert faults(fsck(backup)) == []
    restore(READER, FILES, str(backup), str(back))
    again = MessageStore(config(back), FILES, bytes(8))
    assert not again.open(START_MS).lost_messages
    assert len(records(back)) == NUMBERS - sum(
        each.physical_offset < SEGMENT for each in records_before
    )
    again.close(START_MS)
    store.abandon()
