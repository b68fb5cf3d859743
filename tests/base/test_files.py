"""OsFiles and FaultyFiles keep the same promises."""

import errno
import os
from pathlib import Path
from types import ModuleType

import pytest

from roquette.base import os_file
from roquette.base.files import Files, OsFiles, OsReadFiles, ReadFiles, read_all, zero_fill
from roquette.errors import StoreError
from roquette_testing.faulty_files import FaultyFiles


@pytest.fixture(params=["os", "faulty"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    files: Files = OsFiles() if request.param == "os" else FaultyFiles()
    root = str(tmp_path) if request.param == "os" else "/r"
    files.make_dirs(root)
    return files, root


def test_what_is_written_is_read_and_mapped(place: tuple[Files, str]) -> None:
    files, root = place
    file = files.open_file(f"{root}/a", 100, create=True)
    memory = file.map(True)
    file.pwrite(b"hello", 10)
    memory[50:55] = b"there"

    assert memory[10:15] == b"hello"
    assert file.pread(5, 50) == b"there"
    assert file.pread(50, 98) == b"\0\0"
    assert len(memory) == file.size == 100


def test_an_atomic_write_keeps_the_content_before_as_backup(place: tuple[Files, str]) -> None:
    files, root = place
    files.write_atomic(f"{root}/config/x.json", b"1")
    files.write_atomic(f"{root}/config/x.json", b"2")

    assert files.read_bytes(f"{root}/config/x.json") == b"2"
    assert files.read_bytes(f"{root}/config/x.json.bak") == b"1"
    assert files.list_dir(f"{root}/config") == ["x.json", "x.json.bak"]


def test_absent_things_can_be_listed_and_removed(place: tuple[Files, str]) -> None:
    files, root = place
    files.remove(f"{root}/no")
    files.remove_tree(f"{root}/no")

    assert files.list_dir(f"{root}/no") == []
    assert not files.exists(f"{root}/no")
    with pytest.raises(FileNotFoundError):
        files.open_file(f"{root}/no")


def test_who_only_reads_takes_all_kinds_of_files(place: tuple[Files, str]) -> None:
    files, root = place
    files.write_atomic(f"{root}/d/a", b"hello", keep_backup=False)
    kinds: list[ReadFiles] = [files, OsReadFiles()] if isinstance(files, OsFiles) else [files]

    for reads in kinds:
        assert [reads.is_dir(f"{root}/{one}") for one in ("d", "d/a", "no")] == [True, False, False]
        assert [reads.file_size(f"{root}/{one}") for one in ("d", "d/a", "no")] == [-1, 5, -1]
        assert (reads.list_dir(f"{root}/d"), reads.list_dir(f"{root}/d/a")) == (["a"], [])
        assert reads.modified_ms(f"{root}/d/a") == files.modified_ms(f"{root}/d/a")
        assert read_all(reads, f"{root}/d/a", 4) == b"hell"
        with pytest.raises(FileNotFoundError):
            reads.open_file(f"{root}/no")


def test_files_that_are_only_read_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"hello")
    file = OsReadFiles().open_file(str(tmp_path / "a"))
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite(b"x", 0)  # type: ignore[attr-defined]


def test_a_read_that_the_system_cuts_short_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call has a limit, and ends before a bad sector: the next one says so."""
    path, whole = tmp_path / "a", os_file.pread
    path.write_bytes(b"hello, world")
    monkeypatch.setattr(os_file, "pread", lambda fd, size, at: whole(fd, min(size, 3), at))
    kinds: list[ReadFiles] = [OsFiles(), OsReadFiles()]
    for files in kinds:
        file = files.open_file(str(path))
        assert (file.pread(7, 1), file.pread(9, 8)) == (b"ello, w", b"orld")


def test_a_lock_has_one_owner(place: tuple[Files, str]) -> None:
    files, root = place
    lock = files.lock_file(f"{root}/lock")
    with pytest.raises(StoreError, match="another process"):
        files.lock_file(f"{root}/lock")

    lock.release()
    files.lock_file(f"{root}/lock").release()


def test_zero_fill_covers_the_file(place: tuple[Files, str]) -> None:
    files, root = place
    file = files.open_file(f"{root}/z", 3 << 20, create=True)
    zero_fill(file, 3 << 20, sync_every=1 << 20)

    assert file.size == 3 << 20


def test_a_crash_keeps_what_was_synced_and_tears_the_rest_by_sectors() -> None:
    kept = set()
    for seed in range(40):
        files = FaultyFiles(seed)
        files.make_dirs("/r")
        file = files.open_file("/r/a", 4096, create=True)
        file.pwrite(b"s" * 512, 0)
        file.sync()
        files.sync_dir("/r")
        file.pwrite(b"u" * 1024, 512)

        after = files.crash().read_bytes("/r/a")

        assert after[:512] == b"s" * 512
        assert {after[512:1024], after[1024:1536]} <= {b"u" * 512, b"\0" * 512}
        kept.add((after[512], after[1024]))
    assert len(kept) == 4


def test_a_crash_may_forget_names_that_were_not_synced() -> None:
    seen = set()
    for seed in range(40):
        files = FaultyFiles(seed)
        files.make_dirs("/r")
        files.open_file("/r/a", 10, create=True)
        seen.add(files.crash().exists("/r/a"))

    assert seen == {True, False}


def test_calls_fail_when_told_and_a_full_disk_is_full() -> None:
    files = FaultyFiles(capacity=1000)
    files.make_dirs("/r")
    file = files.open_file("/r/a", create=True)
    files.fail("pwrite", nth=2, error=errno.EIO)
    file.pwrite(b"1", 0)

    with pytest.raises(OSError, match="Input/output"):
        file.pwrite(b"2", 0)
    with pytest.raises(OSError, match="No space"):
        file.allocate(1001)


def test_a_write_that_the_system_shortens_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    monkeypatch.setattr(os_file, "pwrite", lambda fd, data, at: real(fd, data[:3], at))
    file = OsFiles().open_file(f"{tmp_path}/a", create=True)

    file.pwrite(b"0123456789", 5)

    assert file.pread(20, 0) == bytes(5) + b"0123456789"


def test_a_write_that_takes_nothing_is_an_error_and_no_endless_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os_file, "pwrite", lambda fd, data, at: 0)
    file = OsFiles().open_file(f"{tmp_path}/a", create=True)

    with pytest.raises(OSError, match="no more bytes"):
        file.pwrite(b"x", 0)


@pytest.mark.parametrize(("where", "call"), [(os_file, "sync_data"), (os, "fsync")])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_sync_that_failed_is_never_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: ModuleType, call: str, error: int
) -> None:
    calls: list[int] = []

    def failing(fd: int) -> None:
        calls.append(fd)
        raise OSError(error, os.strerror(error))

    files = OsFiles()
    file = files.open_file(f"{tmp_path}/a", create=True)
    monkeypatch.setattr(where, call, failing)
    for _ in range(2):
        with pytest.raises(OSError):
            file.sync() if call == "sync_data" else files.sync_dir(str(tmp_path))

    lost = error == errno.EIO  # a full disk loses nothing that was promised
    assert len(calls) == (1 if lost else 2)
    assert (files.sync_error is not None) is lost


def test_a_run_of_the_system_is_told_from_another() -> None:
    assert len(OsFiles().boot_id) in (0, 16)
    assert OsFiles().boot_id == OsFiles().boot_id
    files = FaultyFiles()
    before = files.boot_id
    files.kill()
    assert files.boot_id == before
    files.restart()
    assert files.boot_id != before != files.crash().boot_id


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="only Linux shows it")
def test_the_system_is_told_whether_to_read_ahead(tmp_path: Path) -> None:
    """`rr` in VmFlags: the map is read at random (proc(5))."""
    path = str(tmp_path / "a")
    file = OsFiles().open_file(path, 8192, create=True)

    def told() -> bool:
        part = Path("/proc/self/smaps").read_text().partition(path)[2]
        return "rr" in part.partition("VmFlags:")[2].partition("\n")[0].split()

    file.read_ahead(False)  # before it is mapped, and after
    memory = file.map(False)
    assert told()
    file.read_ahead(True)
    assert not told()
    file.rest()  # its descriptor is closed: the next one is told when it is opened
    file.read_ahead(False)
    assert told()
    assert file.pread(5, 0) == memory[:5] == b"\0\0\0\0\0"
