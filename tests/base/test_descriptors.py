"""Maps and files without descriptors, descriptors kept back, and how many connections there may be."""

import errno
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from roquette.base.descriptors import KEEPS_DESCRIPTOR, Spares, connection_limit, shortage_words
from roquette.base.files import OsFiles
from roquette.base.os_file import map_file

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@LINUX
@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize("size", [2, 4096, 5000, 6_000_000])
def test_a_map_needs_no_descriptor(tmp_path: Path, writable: bool, size: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(size))
    before = open_descriptors()
    fd = os.open(path, os.O_RDWR)
    memory = map_file(fd, writable=writable)
    os.close(fd)
    assert open_descriptors() == before + KEEPS_DESCRIPTOR
    assert len(memory) == size
    with open(path, "r+b") as stream:
        stream.write(b"x")
    assert memory[0:1] == b"x"
    if writable:
        memory[size - 1 : size] = b"y"
        assert path.read_bytes()[-1:] == b"y"
    else:
        with pytest.raises(TypeError):
            memory[0:1] = b"y"
    view = memoryview(memory)
    path.unlink()
    assert view[:1] == b"x"
    del view, memory
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_an_empty_file_is_not_mapped(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    with pytest.raises(ValueError, match="empty"):
        map_file(fd, writable=True)
    os.close(fd)


@LINUX
def test_a_file_that_rests_has_no_descriptor_and_works(tmp_path: Path) -> None:
    file = OsFiles().open_file(str(tmp_path / "f"), 4096, create=True)
    memory = file.map(True)
    before = open_descriptors()
    file.rest()
    assert open_descriptors() == before - 1
    assert file.descriptor is None
    memory[:3] = b"abc"
    file.pwrite(b"def", 3)
    assert (file.pread(6, 0), file.size) == (b"abcdef", 4096)
    file.sync()
    assert open_descriptors() == before - 1
    file.wake()
    assert open_descriptors() == before
    file.rest()
    os.remove(file.path)
    assert file.pread(6, 0) == b"abcdef", "a map keeps what was deleted readable"
    file.sync()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pread(1, 0)


def test_no_descriptor_is_closed_under_a_call_of_another_thread(tmp_path: Path) -> None:
    files = OsFiles()
    ends = threading.Event()
    file = files.open_file(str(tmp_path / "f"), 4096, create=True)
    file.pwrite(b"mine", 0)
    wrong: list[bytes] = []

    def read() -> None:
        while not ends.is_set():
            found = file.pread(4, 0)
            file.sync()
            if found != b"mine":
                wrong.append(found)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(2000):
        file.rest()
        other = files.open_file(str(tmp_path / "other"), create=True)  # takes the number
        file.wake() if number % 2 else file.pwrite(b"mine", 0)
        other.close()
    ends.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert files.sync_error is None


SHORT = """
import errno, os, resource, sys
from roquette.base.files import OsFiles
files = OsFiles()
root = sys.argv[1]
file = files.open_file(root + "/f", 4096, create=True)
file.rest()
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    assert error.errno == errno.EMFILE
for _ in range(20):
    files.sync_dir(root)
    file.sync()
    files.write_atomic(root + "/g", b"x")
    assert files.read_bytes(root + "/g") == b"x"
    assert files.list_dir(root) == ["f", "g", "g.bak"] or _ == 0
held = [files.open_file(f"{root}/{n}", create=True) for n in range(8)]
try:
    files.sync_dir(root)
    sys.exit("a descriptor from nowhere")
except OSError as error:
    assert error.errno == errno.EMFILE
assert files.sync_error is None, "a file that was not opened is no failed sync"
for one in held:
    one.close()
files.sync_dir(root)
"""


def test_descriptors_are_kept_back_for_files(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHORT, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_spares_are_for_shortages_of_descriptors_only() -> None:
    spares = Spares(2)
    calls: list[int] = []

    def fails(number: int) -> None:
        calls.append(number)
        raise OSError(number, os.strerror(number))

    for number, tries in ((errno.ENOENT, 1), (errno.ENOMEM, 1), (errno.EMFILE, 3)):
        calls.clear()
        with pytest.raises(OSError, match=os.strerror(number)):
            spares.run(fails, number)
        assert len(calls) == tries
    spares.refill()


@pytest.mark.parametrize("limit", [64, 256, 1024, 20_000])
def test_connections_leave_descriptors_for_the_store(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert 0 < connection_limit() <= limit - 48
    assert connection_limit() > limit * 2 // 3 or limit < 300
    words = shortage_words(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    assert str(limit) in words
    assert "disk" not in words
