"""Every kind of damage is found where it is, and none is invented."""

import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.records import append_message
from tests.store.offline.stores import (
    HOST,
    READER,
    SEGMENT,
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

from roquette.base.files import OsFiles
from roquette.base.generations import save
from roquette.base.javatypes import java_hash
from roquette.message.record_layout import StoredRecord
from roquette.store.message_store import MessageStore
from roquette.store.offline.fsck import FsckOptions, check_store
from roquette.store.offline.store_dir import find_store
from roquette_testing.faulty_files import FaultyFiles

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "store" / "files"


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound store, not to be changed."""
    root = tmp_path_factory.mktemp("pattern") / "store"
    make_store(root)
    write_config(root)
    return root


@pytest.fixture
def root(pattern: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(pattern, tmp_path / "store"))


def test_a_sound_store_of_ours_has_no_findings(root: Path) -> None:
    report = fsck(root)

    assert report.findings == []
    assert (report.records, report.queues, report.damaged) == (150, 6, 0)
    assert fsck(root, quick=True).findings == []


@pytest.mark.promise("Damage", "fsck names each kind of damage, and finds nothing in sound stores")
def test_a_sound_store_of_apaches_has_no_findings() -> None:
    report = fsck(GOLDEN)

    assert report.findings == []
    assert report.records == 30


def test_an_empty_store_and_one_with_files_made_ahead_are_sound(tmp_path: Path) -> None:
    make_store(tmp_path / "a", 0)
    assert fsck(tmp_path / "a").findings == []

    make_store(tmp_path / "b", 20)
    (tmp_path / "b" / "commitlog" / f"{SEGMENT:020d}").write_bytes(bytes(SEGMENT))
    (tmp_path / "b" / "commitlog" / f"{2 * SEGMENT:020d}").write_bytes(bytes(SEGMENT))
    assert fsck(tmp_path / "b").findings == []


def test_a_killed_broker_leaves_a_note_and_no_damage(tmp_path: Path) -> None:
    make_store(tmp_path, close=False)

    report = fsck(tmp_path)

    assert report.sound
    assert [
        (item.kind, item.severity) for item in report.findings if item.kind != "index_header"
    ] == [("abort", "note")]


@pytest.mark.parametrize("quick", [False, True])
def test_units_of_a_turn_that_a_kill_cut_off_are_no_damage(tmp_path: Path, quick: bool) -> None:
    store = make_store(tmp_path, close=False)
    end = store.wrote
    for number in range(150, 160):
        append(store, number)
    for topic in store.topics():  # who reads a queue has its units written before the log
        for queue in store.queues_of(topic):
            store.queue_units(topic, queue, store.max_offset(topic, queue) - 1, 1)

    report = fsck(tmp_path, quick=quick)

    assert report.end == end
    assert report.sound
    ahead = [item for item in report.findings if item.kind == "unit_ahead"]
    assert sum(item.count for item in ahead) == 10
    assert {item.severity for item in ahead} == {"note"}
    newest = max((tmp_path / "commitlog").iterdir())
    data = newest.read_bytes()
    last = len(data.rstrip(b"\0")) - 400
    newest.write_bytes(data[:last].ljust(len(data), b"\0"))  # what was written is not there: damage
    assert not fsck(tmp_path, quick=quick).sound
    newest.write_bytes(data)
    (tmp_path / "abort").unlink()  # and so it is in a store that was closed
    assert not fsck(tmp_path, quick=quick).sound


def test_a_topic_deleted_and_made_again_is_sound(tmp_path: Path) -> None:
    store = make_store(tmp_path, 90, close=False)
    store.delete_topic("Orders")
    for number in range(90, 120):
        append(store, number)
    store.write_pending()
    store.close(0)
    write_config(tmp_path)
    (tmp_path / "config" / "consumerOffset.json").unlink()

    report = fsck(tmp_path)

    assert report.findings == []
    assert report.records == 120


def test_a_deleted_topic_is_sound(tmp_path: Path) -> None:
    store = make_store(tmp_path, 90, close=False)
    store.delete_topic("Orders")
    store.close(0)
    write_config(tmp_path)
    text = (tmp_path / "config" / "topics.json").read_text().replace('"Orders"', '"Others"')
    (tmp_path / "config" / "topics.json").write_text(text)

    assert fsck(tmp_path).findings == []


def test_a_log_whose_head_was_deleted_is_sound(root: Path) -> None:
    (root / "commitlog" / f"{0:020d}").unlink()
    assert fsck(root).findings == []


def victim(root: Path, number: int = 57) -> tuple[StoredRecord, Path, str, int]:
    record = records(root)[number]
    path = log_file(root, record.physical_offset)
    return record, path, f"commitlog/{path.name}", record.physical_offset % SEGMENT


@pytest.mark.promise("Damage", "fsck names each kind of damage, and finds nothing in sound stores")
@pytest.mark.parametrize(
    "at, data, kind",
    [(0, b"\x7f", "size"), (4, b"\0", "magic"), (95, b"\xff", "crc"), (28, b"\1", "offset"), (84, b"\0\0\xff", "structure")],
)  # fmt: skip
def test_a_damaged_record_is_named_with_file_and_byte(
    root: Path, at: int, data: bytes, kind: str
) -> None:
    record, path, name, byte = victim(root)
    poke(path, byte + at, data)

    found = fsck(root)

    assert (kind, name, byte) in faults(found)
    assert found.damaged == record.size
    assert not found.sound


def test_queue_id_and_queue_offset_are_held_against_the_queues(root: Path) -> None:
    record, path, _, byte = victim(root)
    unit = record.queue_offset * 20
    queue = f"consumequeue/{record.topic}/{record.queue_id}/{unit - unit % 320:020d}"

    poke(path, byte + 12, (7).to_bytes(4, "big"))
    found = faults(fsck(root))
    assert ("queue_missing", f"consumequeue/{record.topic}/7", -1) in found
    assert ("unit_orphan", queue, unit % 320) in found

    poke(path, byte + 12, record.queue_id.to_bytes(4, "big"))
    assert faults(fsck(root)) == []
    poke(path, byte + 20, (record.queue_offset + 2).to_bytes(8, "big"))
    assert ("unit_orphan", queue, unit % 320) in faults(fsck(root))


@pytest.mark.parametrize(
    "at, kind, byte", [(7, "unit_orphan", 0), (11, "unit_size", 8), (19, "unit_tag", 12)]
)
@pytest.mark.parametrize("number", [0, 57, 149])
def test_a_damaged_unit_is_named_with_file_and_byte(
    root: Path, at: int, kind: str, byte: int, number: int
) -> None:
    record = records(root)[number]
    unit = record.queue_offset * 20
    name = f"consumequeue/{record.topic}/{record.queue_id}/{unit - unit % 320:020d}"
    old = (root / name).read_bytes()[unit % 320 + at]
    poke(root / name, unit % 320 + at, bytes([old ^ 0x10]))

    assert (kind, name, unit % 320 + byte) in faults(fsck(root))


def test_a_unit_that_is_gone_is_missed(root: Path) -> None:
    for number in (0, 57, 149):
        record = records(root)[number]
        unit = record.queue_offset * 20
        name = f"consumequeue/{record.topic}/{record.queue_id}/{unit - unit % 320:020d}"
        old = (root / name).read_bytes()[unit % 320 : unit % 320 + 20]
        poke(root / name, unit % 320, bytes(20))

        assert ("unit_missing", name, unit % 320) in faults(fsck(root)), number
        poke(root / name, unit % 320, old)


@pytest.mark.parametrize(("physical", "size"), [(1 << 20, 200), (0x50 << 56, 0)])
def test_units_behind_the_end_are_damage(root: Path, physical: int, size: int) -> None:
    path = root / "consumequeue" / "Orders" / "0" / f"{320:020d}"
    poke(path, 300, struct.pack(">qiq", physical, size, 0))

    assert ("unit_orphan", f"consumequeue/Orders/0/{320:020d}", 300) in faults(fsck(root))


def test_a_queue_or_one_of_its_files_is_missed(root: Path) -> None:
    (root / "consumequeue" / "Orders" / "0" / f"{0:020d}").unlink()
    report = fsck(root)
    assert [(item.kind, item.count) for item in report.findings] == [("unit_missing", 16)]

    shutil.rmtree(root / "consumequeue" / "Orders" / "1")
    shutil.rmtree(root / "consumequeue" / "Orders" / "0")
    found = faults(fsck(root))
    assert ("queue_missing", "consumequeue/Orders/0", -1) in found
    assert ("queue_missing", "consumequeue/Orders/1", -1) in found

    shutil.rmtree(root / "consumequeue")
    assert len([one for one in faults(fsck(root)) if one[0] == "queue_missing"]) == 6


def test_missing_and_cut_log_files_are_named(root: Path) -> None:
    names = sorted(path.name for path in (root / "commitlog").iterdir())
    assert len(names) > 4
    whole = (root / "commitlog" / names[2]).read_bytes()

    (root / "commitlog" / names[2]).write_bytes(whole[:5000])
    found = faults(fsck(root))
    assert ("segment_size", f"commitlog/{names[2]}", 5000) in found
    assert "cut" in {kind for kind, _, _ in found}

    (root / "commitlog" / names[2]).unlink()
    found = faults(fsck(root))
    assert ("segment_missing", f"commitlog/{names[1]}", SEGMENT) in found
    assert "unit_orphan" in {kind for kind, _, _ in found}

    (root / "commitlog" / names[2]).write_bytes(bytes(SEGMENT))
    assert ("log_gap", f"commitlog/{names[2]}", 0) in faults(fsck(root))


def test_a_lost_tail_is_known_by_what_speaks_of_it(root: Path) -> None:
    names = sorted(path.name for path in (root / "commitlog").iterdir())
    (root / "commitlog" / names[-1]).unlink()
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"Orders@g":{0:99,1:3}}}')

    found = faults(fsck(root))

    assert {("checkpoint", "checkpoint", 0), ("checkpoint", "checkpoint", 8)} <= set(found)
    assert ("offset_beyond", "config/consumerOffset.json", -1) in found
    assert {"unit_orphan", "index_orphan"} <= {kind for kind, _, _ in found}


@pytest.mark.parametrize("field", ["hash", "offset", "seconds", "previous"])
@pytest.mark.parametrize("number", [1, 20, 119])
def test_a_damaged_index_entry_is_named(root: Path, field: str, number: int) -> None:
    path = sorted((root / "index").iterdir())[0]
    at = {"hash": 3, "offset": 11, "seconds": 15, "previous": 19}[field]
    place = 40 + 17 * 4 + number * 20
    old = path.read_bytes()[place + at]
    poke(path, place + at, bytes([old ^ 0x40]))

    found = [one for one in faults(fsck(root)) if one[1] == f"index/{path.name}"]

    assert found, (field, number)
    assert min(abs(position - place) for _, _, position in found) < 40 or field != "previous"


def test_index_slots_header_and_rest_are_held_against_the_entries(root: Path) -> None:
    paths = sorted((root / "index").iterdir())
    first, last = paths[0], paths[-1]
    for path, at, kind in (
        (first, 40 + 3 * 4 + 3, "index_chain"),
        (first, 7, "index_header"),
        (first, 15, "index_header"),
        (first, 23, "index_header"),
        (first, 31, "index_header"),
        (first, 35, "index_header"),
        (last, 39, "index_tail"),
        (last, last.stat().st_size - 1, "index_tail"),
    ):
        data = path.read_bytes()
        poke(path, at, bytes([data[at] ^ 1]))
        assert kind in {found for found, _, _ in faults(fsck(root))}, at
        path.write_bytes(data)


def test_an_index_that_lost_its_newest_file_is_behind(root: Path) -> None:
    sorted((root / "index").iterdir())[-1].unlink()

    assert "index_behind" in {kind for kind, _, _ in faults(fsck(root))}


def test_json_that_is_none_is_named_and_the_backup_too(root: Path) -> None:
    path = root / "config" / "topics.json"
    shutil.copy(path, f"{path}.bak")
    path.write_text(path.read_text()[:30])

    report = fsck(root)

    assert [item.kind for item in report.findings] == ["json"]
    assert "topics.json.bak is there" in report.findings[0].message


def test_json_of_ours_that_changed_without_a_write_is_damage(root: Path) -> None:
    path = root / "config" / "topics.json"
    save(OsFiles(), str(path), path.read_bytes())
    assert fsck(root).findings == []
    written = path.stat()

    path.write_text(path.read_text().replace("Orders", "Orderz"))
    assert fsck(root).sound  # somebody's edit: written to since
    os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))

    assert faults(fsck(root)) == [("json", "config/topics.json", -1)]


def test_every_finding_says_what_to_do_and_is_json(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "Orders")
    report = fsck(root)

    assert report.findings
    for item in report.findings:
        assert item.advice and item.message and item.file


def test_a_store_in_memory_is_checked_as_well() -> None:
    files = FaultyFiles()
    store = MessageStore(config(Path("/s")), files, HOST)
    store.open(0)
    for number in range(40):
        append(store, number)
    store.write_pending()
    store.close(0)

    report = check_store(files, find_store(files, "/s"), FsckOptions())

    assert (report.records, report.findings) == (40, [])


def test_findings_are_bounded(root: Path) -> None:
    for path in (root / "consumequeue").rglob("0*"):
        if path.is_file():
            path.write_bytes(random.Random(1).randbytes(320))

    report = fsck(root)

    assert not report.sound
    assert len(report.findings) <= 10_000


# What has no second copy anywhere: the application's flag, times and hosts of the sender, the number of retries,
# and the properties beside tags, keys and unique id.
def unprotected(root: Path) -> set[tuple[str, int]]:
    """(file, byte) that no check can hold against anything."""
    found: set[tuple[str, int]] = set()
    for record in records(root):
        name = f"commitlog/{log_file(root, record.physical_offset).name}"
        at = record.physical_offset % SEGMENT
        v6 = 12 if len(record.born_host) == 20 else 0
        spans = [(16, 20), (36, 40), (40, 56 + v6), (56 + v6, 64 + v6), (64 + v6, 84 + v6)]
        text = record.properties.encode()
        step = text.rindex(b"step")
        start = record.size - len(text)
        spans.append((start + step - 1, record.size))
        spans.append((start, start + len(b"KEYS\x01")))  # another name: fewer keys than entries
        for first, end in spans:
            found |= {(name, at + byte) for byte in range(first, end)}
    for path in sorted((root / "commitlog").iterdir()):  # what the blank covers
        blank = path.read_bytes().rfind(b"\xcb\xd4\x31\x94")
        if blank >= 0:
            found |= {(f"commitlog/{path.name}", byte) for byte in range(blank + 4, SEGMENT)}
    return found


def flip(root: Path, name: str, byte: int, mask: int) -> bytes:
    data = (root / name).read_bytes()
    poke(root / name, byte, bytes([data[byte] ^ mask]))
    return data


def check_flips(root: Path, rounds: int, seed: int) -> None:
    rng = random.Random(seed)
    harmless = unprotected(root)
    names = [
        str(path.relative_to(root))
        for folder in ("commitlog", "consumequeue", "index")
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    ]
    done = 0
    while done < rounds:
        name = rng.choice(names)
        byte = rng.randrange((root / name).stat().st_size)
        if (name, byte) in harmless:
            continue
        done += 1
        mask = rng.randrange(1, 256)
        old = flip(root, name, byte, mask)
        report = fsck(root)
        (root / name).write_bytes(old)
        assert not report.sound, f"{name} byte {byte} xor {mask:#x} was not found"
        assert any(item.file.endswith(name) for item in report.findings) or name.startswith(
            ("commitlog", "index")
        ), (name, byte, report.findings)


@pytest.mark.parametrize("seed", range(4))
def test_any_damaged_byte_is_found(root: Path, seed: int) -> None:
    check_flips(root, 15, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
def test_any_damaged_byte_is_found_long(root: Path, seed: int) -> None:
    check_flips(root, 400, seed)


def test_whatever_stands_in_the_files_nothing_is_raised(root: Path) -> None:
    rng = random.Random(7)
    files = [path for path in root.rglob("*") if path.is_file()]
    scribbles: list[Callable[[bytes], bytes]] = [
        lambda data: rng.randbytes(len(data)),
        lambda data: data[: len(data) // 3],
        lambda data: b"",
        lambda data: data[: len(data) // 2] + rng.randbytes(len(data) // 2),
    ]
    for _ in range(12):
        for path in rng.sample(files, 3):
            path.write_bytes(rng.choice(scribbles)(path.read_bytes()))
        fsck(root)
        fsck(root, quick=True)


def test_the_report_is_plain_json(root: Path) -> None:
    import msgspec

    assert json.loads(json.dumps(msgspec.to_builtins(fsck(root))))["records"] == 150


def test_other_kinds_of_store_are_named(tmp_path: Path) -> None:
    (tmp_path / "config" / "topics").mkdir(parents=True)
    (tmp_path / "config" / "topics" / "CURRENT").write_text("MANIFEST-000001")
    (tmp_path / "config" / "topics" / "MANIFEST-000001").write_text("")
    (tmp_path / "dledger-n0").mkdir()
    (tmp_path / "consumequeue").mkdir()
    (tmp_path / "consumequeue" / "CURRENT").write_text("MANIFEST-000001")
    (tmp_path / "consumequeue" / "MANIFEST-000001").write_text("")

    found = find_store(READER, str(tmp_path))

    assert found.dledger and found.rocksdb_queues and found.rocksdb_config
    assert len(found.strange) == 3
    assert {item.kind for item in fsck(tmp_path).findings} == {"strange"}


def test_a_bare_commit_log_is_checked_alone(root: Path) -> None:
    report = fsck(root / "commitlog")

    assert (report.records, report.findings) == (150, [])
    assert not opened(root / "commitlog").whole


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    from roquette.errors import StoreError

    for path, words in ((tmp_path, "is no store"), (tmp_path / "x", "is not there")):
        with pytest.raises(StoreError, match=words):
            find_store(READER, str(path))


def test_files_are_left_alone(root: Path) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    names = sorted(root.rglob("*"))

    fsck(root)

    assert sorted(root.rglob("*")) == names
    assert all(path.read_bytes() == data for path, data in before.items())


def test_opening_a_store_again_keeps_it_sound(root: Path) -> None:
    store = MessageStore(config(root), OsFiles(), HOST)
    store.open(0)
    append(store, 200)
    store.write_pending()
    store.close(0)

    assert fsck(root).findings == []


@pytest.mark.parametrize("unique_key", [None, "ck-1"])
def test_check_points_of_pop_are_no_damage_whether_their_ids_are_indexed_or_not(
    tmp_path: Path, unique_key: str | None
) -> None:
    """Our first versions indexed them by their tag alone; Apache's broker by both."""
    root = tmp_path / "store"
    make_store(root, 20)
    store = MessageStore(config(root), OsFiles(), HOST)
    store.open(0)
    for number in range(20, 40):
        text = f"TAGS\x01ck\x02UNIQ_KEY\x01{unique_key or 'ck-1'}\x02"
        now_ms = 1_700_000_000_000 + number * 100
        append_message(store, "rmq_sys_REVIVE_LOG_c", 0, 0, 0, now_ms, HOST, 0, text, java_hash("ck"), b"{}", now_ms,
            uniq_key=unique_key,
        )  # fmt: skip
        append(store, number)
    store.close(0)

    assert fsck(root).findings == []


def test_an_index_file_that_is_missing_is_named_and_made_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root, 150)
    names = sorted(os.listdir(root / "index"))
    assert len(names) > 2
    for name in (names[0], names[1], names[-1]):
        copy = Path(shutil.copytree(root, tmp_path / name))
        (copy / "index" / name).unlink()
        assert any(name in finding.file for finding in fsck(copy).findings)
        store = MessageStore(config(copy), OsFiles(), HOST)
        store.open(0)
        for number in range(150):
            topic = ("Orders", "Payments")[number % 2]
            assert len(store.query(topic, f"key{number}", 8, 0, 1 << 62)) == 1
        store.close(0)
        assert fsck(copy).findings == []
