"""Stores that are not ours to open: one line says what it is and what to do, and nothing changes."""

from pathlib import Path

import pytest
from tests.records import append_message
from tests.store.crash_model import HOST, START_MS, small_config

from roquette.base.files import OsFiles
from roquette.errors import StoreError
from roquette.store.message_store import MessageStore

MANIFEST = b"MANIFEST-000004\n"
KINDS = {
    "consumequeue/CURRENT": (MANIFEST, "storeType=defaultRocksDB"),
    "config/topics/CURRENT": (MANIFEST, "rocksDBConfigToJson"),
    "config/subscriptionGroups/CURRENT": (MANIFEST, "rocksDBConfigToJson"),
    "config/consumerOffsets/CURRENT": (MANIFEST, "rocksDBConfigToJson"),
    "config/rdb/CURRENT": (MANIFEST, "rocksDBConfigToJson"),
    "consumequeue_rocksdb/CURRENT": (MANIFEST, "storeType=defaultRocksDB"),
    "dledger-n0/data/00000000000000000000": (b"x", "DLedger"),
    "dledger-n1/index/00000000000000000000": (b"x", "DLedger"),
    "batchconsumequeue/T/0/00000000000000000000": (b"x", "queue.type=BatchCQ"),
    "consumequeue_ext/T/0/00000000000000000000": (b"x", "enableConsumeQueueExt"),
    "compaction/compactionLog/T/0/00000000000000000000": (b"x", "COMPACTION"),
}


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def opened(folder: Path, **changes: object) -> MessageStore:
    store = MessageStore(small_config(root_dir=str(folder), **changes), OsFiles(), HOST)
    store.open(START_MS)
    return store


@pytest.mark.parametrize("name", KINDS)
def test_a_store_of_another_kind_is_refused_and_not_touched(tmp_path: Path, name: str) -> None:
    data, words = KINDS[name]
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_bytes(data)
    before = contents(tmp_path)

    with pytest.raises(StoreError) as refused:
        opened(tmp_path)

    text = str(refused.value)
    assert "\n" not in text and words in text
    assert str(tmp_path / name.split("/", maxsplit=1)[0]) in text
    assert contents(tmp_path) == before


def test_empty_directories_of_other_kinds_are_no_matter(tmp_path: Path) -> None:
    """Apache's broker makes some of them whatever its settings."""
    for name in ("compaction/compactionLog", "batchconsumequeue", "consumequeue_ext", "dledger-n0"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "config" / "topics").mkdir(parents=True)
    for name in ("kvStore", "rocksdbstore"):  # 5.5 always makes a database beside the store
        (tmp_path / name).mkdir()
        (tmp_path / name / "CURRENT").write_bytes(MANIFEST)
    (tmp_path / "consumequeue" / "CURRENT" / "0").mkdir(parents=True)  # a topic of that name

    opened(tmp_path).close(START_MS)


def test_several_commit_log_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="several directories"):
        opened(tmp_path, commit_log_dir=f"{tmp_path}/a,{tmp_path}/b")
    assert contents(tmp_path) == {}


def test_a_clean_stop_leaves_no_file_made_ahead(tmp_path: Path) -> None:
    """Apache's broker would not remove it, and it has the size of a commit log file."""
    store = opened(tmp_path)
    for n in range(20):
        append_message(store, "T", 0, 0, 0, 0, HOST, 0, "", 0, b"x" * 60, START_MS + n)
    plan = store.plan_allocation()
    assert plan is not None
    plan.run()
    store.allocated(plan)
    assert list((tmp_path / "commitlog.ahead").iterdir()) != []

    store.close(START_MS)

    assert list((tmp_path / "commitlog.ahead").iterdir()) == []
