"""Files replaced as a whole: cut off or failing at any call, damaged in any way, and what is read then."""

import errno
import json
import logging
import os
import random
from pathlib import Path

import pytest

from roquette.base import generations
from roquette.base.files import OsFiles
from roquette.errors import StoreError
from roquette_testing.faulty_files import FaultyFiles

PATH = "/c/config/topics.json"
CALLS = ("open", "pwrite", "sync", "rename", "sync_dir", "remove")


class PowerCutError(Exception):
    """The machine stops here."""


class CutFiles(FaultyFiles):
    """Stops at the Nth call of any kind."""

    cut_at = 0
    counted = 0

    def count(self, call: str) -> None:
        self.counted += 1
        if self.counted == self.cut_at:
            raise PowerCutError
        super().count(call)


def content(number: int) -> bytes:
    return json.dumps({"number": number, "padding": "x" * 700 * (number % 3)}).encode()


def number_in(data: bytes) -> int:
    return int(json.loads(data)["number"])


def load(files, path=PATH):
    found = generations.load(files, path, number_in)
    return None if found is None else found.value


def saved(files: FaultyFiles, numbers: range) -> FaultyFiles:
    for number in numbers:
        files.now_ms += 5000
        generations.save(files, PATH, content(number))
    return files


def calls_of_a_save(before: int) -> int:
    files = saved(CutFiles(), range(before))
    start = files.counted
    saved(files, range(before, before + 1))
    return files.counted - start


def test_what_was_never_written_is_nothing() -> None:
    assert load(FaultyFiles()) is None


def test_earlier_contents_stay_beside_it_newest_first() -> None:
    files = saved(FaultyFiles(), range(9))
    kept = [number_in(files.read_bytes(PATH + suffix)) for suffix in ("", ".bak", ".bak2", ".bak3")]
    assert kept == [8, 7, 6, 5]
    assert files.list_dir("/c/config") == [
        "topics.json",
        "topics.json.bak",
        "topics.json.bak2",
        "topics.json.bak3",
        "topics.json.sum",
    ]


@pytest.mark.promise(
    "Bounds", "a JSON file is the old or the new content after a kill or a loss of power"
)
@pytest.mark.parametrize("before", [0, 1, 2, 5])
def test_a_power_cut_at_any_call_leaves_the_old_or_the_new_content(before: int) -> None:
    calls = calls_of_a_save(before)
    assert calls > 10
    outcomes = set()
    for at in range(1, calls + 1):
        for seed in range(12):
            files = CutFiles(seed)
            files.write_back_share = 0.5
            saved(files, range(before))
            files.counted, files.cut_at = 0, at
            with pytest.raises(PowerCutError):
                saved(files, range(before, before + 1))
            after = files.crash(random.Random(seed))
            found = load(after)
            assert found in ({before - 1, before} if before else {None, before}), (at, seed)
            outcomes.add(found)
            saved(after, range(90, 91))  # and it goes on from there, whatever is left over
            assert load(after.crash(random.Random(seed))) == 90
    assert before in outcomes, "some cuts come after the new content is there"
    assert len(outcomes) == 2


@pytest.mark.promise(
    "Bounds", "a JSON file is the old or the new content after a kill or a loss of power"
)
@pytest.mark.parametrize("before", [1, 5])
def test_a_kill_at_any_call_leaves_the_old_or_the_new_content(before: int) -> None:
    for at in range(1, calls_of_a_save(before) + 1):
        files = saved(CutFiles(), range(before))
        files.counted, files.cut_at = 0, at
        with pytest.raises(PowerCutError):
            saved(files, range(before, before + 1))
        files.kill()
        assert load(files) in {before - 1, before}, at


def test_a_finished_save_survives_any_power_cut() -> None:
    for seed in range(60):
        files = FaultyFiles(seed)
        for count in range(1, 6):
            saved(files, range(count - 1, count))
            assert load(files.crash(random.Random(seed))) == count - 1


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_save_that_fails_for_ever_pushes_nothing_out(call: str, error: int) -> None:
    for nth in range(1, 15):
        files = saved(FaultyFiles(), range(5))
        failures = 0
        for again in range(8):
            files.work_again()
            files.fail(call, nth, error)
            files.now_ms += 5000
            try:
                generations.save(files, PATH, content(50 + again))
            except OSError:
                failures += 1
                found = load(files)
                assert found is not None
                assert found == 4 or found >= 50, "the last content, or one that came after it"
        if failures == 0:
            assert nth > 1
            break
        if failures == 8 and load(files) == 4:
            kept = {
                number_in(files.read_bytes(path))
                for suffix in ("", *generations.BACKUPS)
                if files.exists(path := PATH + suffix)
            }
            assert {4, 3} <= kept, "what the newest failing saves found is still there"
    files = saved(FaultyFiles(), range(2))
    files.fail("sync", 1, errno.ENOSPC)  # after another error of a sync the process ends
    with pytest.raises(OSError, match="No space"):
        generations.save(files, PATH, content(9))
    generations.save(files, PATH, content(9))
    assert load(files.crash(random.Random(1))) == 9


def test_a_full_disk_leaves_the_old_content() -> None:
    files = saved(FaultyFiles(), range(3))
    files.set_capacity(files.used)
    with pytest.raises(OSError, match="No space"):
        generations.save(files, PATH, content(7))
    assert load(files) == 2


@pytest.mark.parametrize("torn", [b"", b"\0" * 64, b'{"number": 8, "padd', b"[[["])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_torn_files_give_way_to_the_newest_sound_one(torn: bytes, depth: int, caplog) -> None:
    files = saved(FaultyFiles(), range(9))
    for suffix in ("", *generations.BACKUPS)[:depth]:
        files.remove(PATH + suffix)
        files.open_file(PATH + suffix, create=True).pwrite(torn, 0)
    logging.getLogger("roquette").propagate = True
    with caplog.at_level("ERROR", "roquette.files"):
        assert load(files) == 8 - depth
    assert "restored from its backup" in caplog.text
    assert PATH in caplog.text


def test_nothing_readable_is_an_error_and_never_an_empty_start() -> None:
    files = saved(FaultyFiles(), range(9))
    for suffix in ("", *generations.BACKUPS):
        files.open_file(PATH + suffix).truncate(1)
    with pytest.raises(StoreError, match=r"no readable copy of .*topics\.json.*remove"):
        load(files)
    for suffix in ("", *generations.BACKUPS):
        files.remove(PATH + suffix)
    with pytest.raises(StoreError, match="is missing"):  # the sums say that there was something
        load(files)
    files.remove(PATH + ".sum")
    assert load(files) is None


@pytest.mark.parametrize("error", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_file_that_may_not_be_read_is_not_taken_from_its_backup(error: int) -> None:
    """Its rights are to be mended: an older content would lose what was saved last, and so would its removal."""
    files = saved(FaultyFiles(), range(3))
    files.fail("read", 2, error)  # the first one is of the sums

    with pytest.raises(StoreError, match=rf"chown -R \d+ {PATH} && chmod -R u\+rwX {PATH}") as told:
        load(files)
    assert "remove" not in str(told.value)
    files.work_again()
    assert load(files) == 2


def test_a_missing_file_comes_from_its_backup() -> None:
    files = saved(FaultyFiles(), range(3))
    files.remove(PATH)
    assert load(files) == 1


# Real files: who changed it?


@pytest.fixture
def real(tmp_path: Path) -> str:
    path = str(tmp_path / "topics.json")
    for number in range(4):
        generations.save(OsFiles(), path, content(number))
    return path


def test_bytes_that_change_without_a_write_are_damage(real: str) -> None:
    times = os.stat(real)
    data = Path(real).read_bytes().replace(b"3", b"7")
    Path(real).write_bytes(data)
    os.utime(real, ns=(times.st_atime_ns, times.st_mtime_ns))
    found = generations.load(OsFiles(), real, number_in)
    assert found is not None
    assert (found.value, found.path) == (2, real + ".bak")
    assert "checksum" in found.problems[0]


def test_an_edit_counts(real: str) -> None:
    later = os.stat(real).st_mtime + 60
    Path(real).write_bytes(b'{"number": 77}')
    os.utime(real, (later, later))
    found = generations.load(OsFiles(), real, number_in)
    assert found is not None
    assert (found.value, found.foreign, found.problems) == (77, True, [])
    generations.save(OsFiles(), real, content(5))
    assert load(OsFiles(), real + ".bak") == 77


def test_what_apaches_broker_wrote_counts(real: str) -> None:
    """ConfigManager.persist: the file becomes .bak, a new one is written."""
    os.replace(real, real + ".bak")
    Path(real).write_bytes(b'{"number": 78}')
    later = os.stat(real + ".bak").st_mtime + 60
    os.utime(real, (later, later))
    assert load(OsFiles(), real) == 78
    Path(real).write_bytes(b'{"num')  # and dies
    assert load(OsFiles(), real) == 3


def test_files_without_sums_are_read_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes(content(6))
    found = generations.load(OsFiles(), str(path), number_in)
    assert found is not None
    assert (found.value, found.foreign) == (6, False)


def test_sums_that_are_garbage_do_not_matter(real: str) -> None:
    Path(real + ".sum").write_bytes(b"\xff\xfe nonsense\nzz 1 2\n\n1 2\n")
    assert load(OsFiles(), real) == 3
    generations.save(OsFiles(), real, content(8))
    assert load(OsFiles(), real) == 8
