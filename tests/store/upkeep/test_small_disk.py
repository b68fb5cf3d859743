"""Real files on a real full disk: a store into a hole would be SIGBUS; here it is a refusal."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.small_disk import on_small_disk

PRELUDE = """
import os, sys
from roquette.base.files import OsFiles
from roquette.errors import StoreError, StoreFull
from roquette.message.record_layout import Draft
from roquette.store.format.config import StoreConfig
from roquette.store.message_store import MessageStore
from roquette.store.queue_read import ReadRequest
from roquette.store.upkeep.retention import DiskUsage

root = sys.argv[1]
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])

def opened():
    store = MessageStore(StoreConfig(root_dir=root, segment_size=1 << 20, queue_file_size=200_000,
        max_hash_slots=20_000, max_index_entries=40_000, disk_reserve=0), OsFiles(), HOST)
    store.open(1_700_000_000_000)
    return store

def put(store, body=b"x" * 100):
    return store.append(Draft("T", 0, b"KEYS\\x01k\\x02", body, 0, HOST), 1_700_000_000_000)

def count_at(store, offset):
    return store.read_queue(ReadRequest("T", 0, offset, 1, 1)).count

def fill():
    with open(root + "/ballast", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"b" * 4096)
        except OSError:
            pass

def punch(folder):
    "Leave holes where there are zeros, as Apache's broker does."
    for directory, _, names in os.walk(root + folder):
        for name in names:
            path = os.path.join(directory, name)
            data = open(path, "rb").read()
            with open(path, "wb") as file:
                for at in range(0, len(data), 4096):
                    if data[at : at + 4096].strip(b"\\0"):
                        file.seek(at)
                        file.write(data[at : at + 4096])
                file.truncate(len(data))
"""


def run(tmp_path: Path, program: str) -> str:
    """Run a program on a disk of 8 MiB; a signal that kills it fails the test."""
    store = tmp_path / "store"
    done = subprocess.run(
        [*on_small_disk("8m", store), sys.executable, "-c", PRELUDE + program, str(store)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{done.returncode} (negative: killed by a signal) {done.stderr}"
    return done.stdout


@pytest.mark.promise(
    "Bounds", "a full disk loses nothing, and sends are taken again when there is space"
)
def test_a_disk_that_fills_up_refuses_and_keeps_everything(tmp_path: Path) -> None:
    program = """
store, done = opened(), 0
try:
    while True:
        put(store, b"x" * 5000)
        store.write_pending()
        done += 1
except StoreFull as error:
    print(error)
assert done > 1000, done
store.flush_all()
read = sum(count_at(store, n) for n in range(done))
assert read == done, (read, done)
store.close(0)
assert opened().max_offset("T", 0) == done
"""
    assert "No space left on device" in run(tmp_path, program)


def test_queue_files_with_holes_are_filled_before_anything_is_stored_into_them(
    tmp_path: Path,
) -> None:
    """As Apache's broker leaves them. On a disk without a free byte they can be read, and messages are refused."""
    program = """
store = opened()
put(store)
store.close(0)
punch("/consumequeue")
fill()
store = opened()
assert count_at(store, 0) == 1
try:
    put(store)
    raise SystemExit("nothing was refused")
except StoreFull as error:
    print(error)
assert count_at(store, 0) == 1
os.remove(root + "/ballast")
store.check_disk(DiskUsage(100 << 20, 90 << 20))
store.check_send()
for _ in range(2000):
    put(store)
store.close(0)
"""
    assert "No space left on device" in run(tmp_path, program)


@pytest.mark.parametrize("folder", ["/commitlog", "/index"])
def test_a_newest_file_with_holes_that_cannot_be_filled_stops_the_start(
    tmp_path: Path, folder: str
) -> None:
    program = f"""
store = opened()
put(store)
store.close(0)
punch({folder!r})
fill()
try:
    opened()
    raise SystemExit("it started")
except StoreError as error:
    print(error)
os.remove(root + "/ballast")
store = opened()
for _ in range(2000):
    put(store)
"""
    assert "no space to open the store" in run(tmp_path, program)


def test_recovery_stores_into_no_hole_either(tmp_path: Path) -> None:
    program = """
store = opened()
for _ in range(50):
    put(store)
store.write_pending()
store.close(0)
open(root + "/abort", "w").close()  # as if it had been killed
punch("/consumequeue")
fill()
store = opened()
assert store.max_offset("T", 0) == 50
try:
    put(store)
    raise SystemExit("nothing was refused")
except StoreFull as error:
    print(error)
os.remove(root + "/ballast")
store.check_disk(DiskUsage(100 << 20, 90 << 20))
put(store)
assert store.max_offset("T", 0) == 51
"""
    run(tmp_path, program)
