"""Far more written queues than descriptors: written, killed, opened, checked, shortened, deleted, within the limit."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

SHM = Path("/dev/shm")

LIFE = """
import os, resource, sys, time
root, queues, limit, life = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
from roquette.base.files import OsFiles
from roquette.message.record_layout import Draft
from roquette.store.format.config import StoreConfig
from roquette.store.message_store import MessageStore
from roquette.store.queue_read import ReadRequest
from roquette.store.upkeep.retention import DiskUsage

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
config = StoreConfig(root_dir=root, segment_size=1 << 20, queue_file_size=4000, max_hash_slots=10_000,
                     max_index_entries=4 * queues)
store = MessageStore(config, OsFiles(), HOST)
now_ms = 1_700_000_000_000
began = time.perf_counter()
report = store.open(now_ms)
print("opened in s", round(time.perf_counter() - began, 1), report.warnings[:2])

def write(body):
    began = time.perf_counter()
    for number in range(queues):
        topic, queue_id = f"topic{number // 16}", number % 16
        store.append(Draft(topic, queue_id, b"", body, 1, HOST), now_ms)
        if number % 500 == 0:
            store.write_pending()
            store.take_arrivals()
    store.write_pending()
    print("written in s", round(time.perf_counter() - began, 1))

def look(count):
    for number in range(queues):
        topic, queue_id = f"topic{number // 16}", number % 16
        assert store.max_offset(topic, queue_id) == count, (topic, queue_id)
        if number % 11 == 0:
            assert store.read_queue(ReadRequest(topic, queue_id, count - 1, 32, 1 << 20)).count == 1

if life == "first":
    write(b"a" * 40)
    store.flush_all()
    write(b"b" * 40)
    look(2)
    assert len(os.listdir("/proc/self/fd")) < 64
    os._exit(0)  # killed
if life == "third":
    assert not report.abnormal
    assert all(store.max_offset(f"topic{n // 16}", n % 16) == 3 for n in range(queues))
    store.delete_topic("topic0")
    store.close(now_ms)
    os._exit(0)
look(2)
write(b"c" * 40)
store.flush_all()
look(3)
assert len(os.listdir("/proc/self/fd")) < 64
plan = store.plan_retention(now_ms + 100 * 3_600_000, DiskUsage(1000, 500), manual=True)
assert plan is not None and plan.paths
plan.run()
store.close(now_ms)
"""


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def lives(root: str, queues: int, limit: int) -> None:
    for life in ("first", "second"):
        run("-c", LIFE, root, str(queues), str(limit), life)
    fsck = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}));"
        "from roquette.apps.main import main; main()"
    )
    run("-c", fsck, "store", "fsck", root)
    run("-c", LIFE, root, str(queues), str(limit), "third")


@pytest.mark.promise("Bounds", "queues keep no descriptors; connections leave room for the store")
def test_3000_queues_with_400_descriptors() -> None:
    with tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None) as root:
        lives(root, 3000, 400)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_60000_queues_with_20000_descriptors(tmp_path: Path) -> None:
    lives(str(tmp_path), 60_000, 20_000)
