"""Our files against those that Apache RocketMQ 5.5.0 wrote (tests/golden)."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.records import append_message, read_queue

from roquette.base.files import OsFiles
from roquette.message.properties import property_value
from roquette.message.record import decode_record
from roquette.store.format.checkpoint import decode_checkpoint
from roquette.store.format.config import StoreConfig
from roquette.store.format.unit import positive_hash
from roquette.store.index.index_file import IndexFile, index_file_size
from roquette.store.message_store import MessageStore
from roquette.store.recovery import RecoveryReport
from roquette_testing.faulty_files import FaultyFiles

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def load(folder: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((GOLDEN / folder / "cases.json").read_text())
    return data


def golden_config(root: str) -> StoreConfig:
    case = load("store")
    return StoreConfig(
        root_dir=root,
        segment_size=case["commitLogFileSize"],
        queue_file_size=case["consumeQueueFileSize"],
        max_hash_slots=case["hashSlots"],
        max_index_entries=case["indexEntries"],
    )


def golden_files() -> dict[str, bytes]:
    root = GOLDEN / "store" / "files"
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def copy_golden(files: FaultyFiles, root: str) -> None:
    for name, data in golden_files().items():
        files.write_atomic(f"{root}/{name}", data)


def first_record() -> Any:
    return decode_record(golden_files()["commitlog/00000000000000000000"], 0, True)


def replay(store: MessageStore) -> None:
    """Append what the capture program put."""
    sample = first_record()
    for put in load("store")["puts"]:
        appended = append_message(
            store,
            put["topic"],
            put["queueId"],
            sample.flag,
            put["sysFlag"],
            put["bornTimestamp"],
            sample.born_host,
            sample.reconsume_times,
            put["properties"],
            put["tagsCode"],
            put["body"].encode(),
            put["storeTimestamp"],
            property_value(put["properties"], "KEYS"),
            property_value(put["properties"], "UNIQ_KEY"),
            sample.prepared_offset,
        )
        assert appended.physical_offset == put["physicalOffset"]
        assert appended.size == put["size"]
        assert appended.queue_offset == put["queueOffset"]


def opened(files: FaultyFiles, root: str = "/s") -> tuple[MessageStore, RecoveryReport]:
    store = MessageStore(golden_config(root), files, first_record().store_host)
    return store, store.open(1_700_000_000_000)


@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index"])
def test_the_same_puts_make_the_same_files(part: str) -> None:
    files = FaultyFiles()
    store, _ = opened(files)
    replay(store)
    store.close(0)

    wanted = {name: data for name, data in golden_files().items() if name.startswith(part)}
    for name, data in wanted.items():
        ours = f"/s/{name}"
        if part == "index":  # named by the time of creation
            (only,) = files.list_dir("/s/index")
            ours = f"/s/index/{only}"
        assert files.read_bytes(ours) == data, name


def test_a_store_of_apache_opens_and_reads(tmp_path: Path) -> None:
    for name, data in golden_files().items():
        OsFiles().write_atomic(str(tmp_path / name), data)
    store = MessageStore(golden_config(str(tmp_path)), OsFiles(), first_record().store_host)

    report = store.open(1_700_000_000_000)

    puts = load("store")["puts"]
    assert not report.abnormal
    assert report.dispatched == 0
    assert report.max_physical_offset == puts[-1]["physicalOffset"] + puts[-1]["size"]
    for put in puts:
        record = store.record_at(put["physicalOffset"])
        assert record is not None
        assert decode_record(record, 0, True).body == put["body"].encode()
        if put["sysFlag"] not in (4, 12):
            found = read_queue(store, put["topic"], put["queueId"], put["queueOffset"], 1, 1, None)
            assert found.runs == [record]
        keys = property_value(put["properties"], "KEYS") or ""
        hits = store.query(put["topic"], keys.split()[0], 10, 0, 1 << 60)
        assert (record in hits) == (put["sysFlag"] != 12)
    store.close(0)


def test_derived_files_of_apache_are_made_again_the_same_from_its_log() -> None:
    files = FaultyFiles()
    copy_golden(files, "/s")
    for name in golden_files():
        if name.startswith("consumequeue"):
            files.remove(f"/s/{name}")
    files.open_file("/s/abort", create=True)
    files.remove("/s/checkpoint")

    store, report = opened(files)
    store.close(0)

    assert report.abnormal
    for name, data in golden_files().items():
        if name != "checkpoint":
            assert files.read_bytes(f"/s/{name}") == data, name


def test_an_index_file_is_apaches_byte_for_byte() -> None:
    case = load("index_file")
    files = FaultyFiles()
    files.make_dirs("/i")
    size = index_file_size(case["slots"], case["entries"])
    index_file = IndexFile(
        files.open_file("/i/x", size, create=True), "/i/x", case["slots"], case["entries"]
    )
    for put in case["puts"]:
        index_file.put(positive_hash(put["hash"]), put["physicalOffset"], put["storeTimestamp"])
    index_file.write_header()

    assert files.read_bytes("/i/x") == (GOLDEN / "index_file" / "index.bin").read_bytes()
    hashes = {put["key"]: put["hash"] for put in case["puts"]}
    for lookup in case["lookups"]:
        if lookup["key"] in hashes:
            found = index_file.find(hashes[lookup["key"]], 64, lookup["begin"], lookup["end"])
            assert found == lookup["offsets"]


def test_a_checkpoint_is_apaches_byte_for_byte() -> None:
    case = load("checkpoint")

    checkpoint = decode_checkpoint(bytes.fromhex(case["head"]))

    assert checkpoint.physical_ms == case["physicMsgTimestamp"]
    assert checkpoint.logical_ms == case["logicsMsgTimestamp"]
    assert checkpoint.index_ms == case["indexMsgTimestamp"]
    assert checkpoint.master_flushed_offset == case["masterFlushedOffset"]
    assert checkpoint.confirmed_offset == case["confirmPhyOffset"]
    assert checkpoint.logical_offset == case["logicsPhysicalOffset"]
    assert checkpoint.encode() == bytes.fromhex(case["head"]).ljust(case["size"], b"\0")
