"""A damaged store becomes a sound one; nothing sound is lost; a broker opens it."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.records import append_message, encode_record, read_queue
from tests.store.offline.stores import (
    HOST,
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

from roquette.base.files import OsFiles
from roquette.errors import StoreError
from roquette.message.record_layout import StoredRecord
from roquette.store.message_store import MessageStore
from roquette.store.offline.repair import repair
from roquette.store.offline.repair_plan import plan_repair
from roquette.store.offline.store_dir import find_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_store(tmp_path / "store")
    write_config(tmp_path / "store")
    return tmp_path / "store"


def repaired(root: Path, in_place: bool, **sizes: int) -> Path:
    """The mended store: the same directory, or a copy."""
    store = opened(root)
    target = root.with_name(root.name + "-copy")
    plan = plan_repair(READER, store, **sizes)
    repair(READER, OsFiles(), store, plan, None if in_place else str(target))
    return root if in_place else target


def tear(root: Path) -> None:
    last = records(root)[-1]
    poke(log_file(root, last.physical_offset), last.physical_offset % SEGMENT + 40, b"\xff" * 60)


def spoil(number: int, at: int, data: bytes) -> Callable[[Path], None]:
    def work(root: Path) -> None:
        record = records(root)[number]
        poke(log_file(root, record.physical_offset), record.physical_offset % SEGMENT + at, data)

    return work


def lose_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def lose_a_log_file(root: Path) -> None:
    (root / "commitlog" / f"{SEGMENT:020d}").unlink()


def cut_a_log_file(root: Path) -> None:
    path = root / "commitlog" / f"{SEGMENT:020d}"
    path.write_bytes(path.read_bytes()[:3000])


def scribble(root: Path) -> None:
    for number in (3, 4, 40, 90):
        spoil(number, 2, b"\xff" * 70)(root)
    for path in (root / "consumequeue" / "Orders" / "0").iterdir():
        path.write_bytes(b"\x55" * 320)
    for path in (root / "index").iterdir():
        poke(path, 400, b"\x55" * 100)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "nothing": lambda root: None,
    "torn tail": tear,
    "body": spoil(57, 95, b"\xff"),
    "header": spoil(57, 0, b"\xff" * 60),
    "first record": spoil(0, 0, b"\xff" * 60),
    "last of a file": spoil(34, 0, b"\xff" * 60),
    "no queues": lose_queues,
    "no index": lambda root: shutil.rmtree(root / "index"),
    "a log file less": lose_a_log_file,
    "a log file cut": cut_a_log_file,
    "scribbles": scribble,
    "first of the log": lambda root: poke(log_file(root, 0), 0, b"\xff" * 3000),
}


@pytest.mark.promise(
    "Damage",
    "repair makes a sound store of holes, cut and missing files, and may be stopped anywhere",
)
@pytest.mark.parametrize("in_place", [False, True], ids=["copy", "in place"])
@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_mended_and_what_is_sound_stays(root: Path, name: str, in_place: bool) -> None:
    ends = {(record.topic, record.queue_id): record.queue_offset + 1 for record in records(root)}
    DAMAGE[name](root)
    sound = [record.flag for record in records(root)]

    mended = repaired(root, in_place, queue_file_size=320)

    assert fsck(mended).findings == []
    assert [record.flag for record in records(mended) if record.topic != "LOST_TO_DAMAGE"] == sound
    store = MessageStore(config(mended), OsFiles(), HOST)
    report = store.open(0)
    assert not report.abnormal and report.dropped_bytes == 0
    served = 0
    for (topic, queue_id), end in ends.items():
        if name not in {"no queues", "torn tail"}:
            assert store.max_offset(topic, queue_id) == end, (topic, queue_id)
        for offset in range(store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)):
            served += read_queue(store, topic, queue_id, offset, 1, 1 << 20, None).count
    assert served == len(sound)
    append(store, 500)
    store.write_pending()
    store.close(0)
    assert fsck(mended).findings == []


def units_of(root: Path, topic: str, queue_id: int) -> dict[int, tuple[int, int]]:
    """Queue offset -> physical offset and size, as far as something is written."""
    found: dict[int, tuple[int, int]] = {}
    for path in sorted((root / "consumequeue" / topic / str(queue_id)).iterdir()):
        units = struct.iter_unpack(">qiq", path.read_bytes())
        for place, (physical, size, _) in enumerate(units, int(path.name) // 20):
            if size:
                found[place] = (physical, size)
    return found


def pulled_by_apache(root: Path, topic: str, queue_id: int, end: int) -> set[int]:
    """Physical offsets that Apache's broker gives who pulls from the start (DefaultMessageStore.getMessage).

    Where there is no record it passes over what lies in the same log file; its sums have 32 bits, and a sum that
    is below 0 ends the pull with an error, each time.
    """
    found: set[int] = set()
    skip_below = -1
    for physical, size in units_of(root, topic, queue_id).values():
        assert 0 <= physical < end
        if physical < skip_below:
            continue
        position = physical % SEGMENT
        assert position + size < 1 << 31, "the broker would answer with an error"
        readable = min(SEGMENT, end - (physical - position))
        if position + size > readable:
            skip_below = physical - position + SEGMENT
            continue
        found.add(physical)
        skip_below = -1
    return found


@pytest.mark.parametrize("name", DAMAGE)
def test_apaches_broker_passes_over_what_is_lost_and_nothing_else(root: Path, name: str) -> None:
    DAMAGE[name](root)
    mended = repaired(root, False, queue_file_size=320)

    sound = [record for record in records(mended) if record.topic != "LOST_TO_DAMAGE"]
    log_end = fsck(mended).end
    for topic in ("Orders", "Payments"):
        for queue_id in range(3):
            own = {
                record.physical_offset
                for record in sound
                if (record.topic, record.queue_id) == (topic, queue_id)
            }
            assert pulled_by_apache(mended, topic, queue_id, log_end) == own
            physical, size = list(units_of(mended, topic, queue_id).values())[-1]
            # ConsumeQueue.putMessagePositionInfo leaves out records before this sum.
            assert physical + size <= log_end


@pytest.mark.parametrize("name", ["a log file less", "a log file cut", "scribbles"])
def test_times_are_found_across_what_is_lost(root: Path, name: str) -> None:
    DAMAGE[name](root)
    mended = repaired(root, False, queue_file_size=320)

    store = MessageStore(config(mended), OsFiles(), HOST)
    store.open(0)
    sound = [record for record in records(mended) if record.topic != "LOST_TO_DAMAGE"]
    for record in sound:
        place = store.offset_by_time(record.topic, record.queue_id, record.store_timestamp_ms)
        first = read_queue(store, record.topic, record.queue_id, place, 1, 1 << 20, None)
        while not first.count:
            place = first.next_begin_offset
            first = read_queue(store, record.topic, record.queue_id, place, 1, 1 << 20, None)
        assert place == record.queue_offset
    store.close(0)


def test_a_queue_of_which_nothing_is_left_is_told_of(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = make_store(root, 20, close=False)
    append(store, 600, "Alone")
    store.write_pending()
    store.close(0)
    tear(root)
    said: list[str] = []

    store_dir = opened(root)
    plan = plan_repair(READER, store_dir)
    repair(READER, OsFiles(), store_dir, plan, str(tmp_path / "copy"), said.append)

    assert plan.warnings == [
        "all messages of Alone/0 are lost: its offsets begin at 0 again, they ended at 1"
    ]
    assert "Alone" not in [path.name for path in (tmp_path / "copy" / "consumequeue").iterdir()]


def test_a_queue_goes_on_where_it_was_when_the_log_has_lost_its_start(root: Path) -> None:
    """Its units point before the log, which both brokers know to pass over."""
    ends = {(record.topic, record.queue_id): record.queue_offset + 1 for record in records(root)}
    files = sorted((root / "commitlog").iterdir())
    for path in files[:-1]:
        path.unlink()
    poke(files[-1], 0, b"\xff" * SEGMENT)
    poke(
        files[-1],
        4000,
        encode_record(
            b"Else", 0, 0, 0, int(files[-1].name) + 4000, 0, 1, HOST, 1, HOST, 0, 0, b"x", b""
        ),
    )

    mended = repaired(root, False, queue_file_size=320)

    assert fsck(mended).sound
    store = MessageStore(config(mended), OsFiles(), HOST)
    store.open(0)
    for key, end in ends.items():
        assert (store.min_offset(*key), store.max_offset(*key)) == (end, end)
        physical, size = list(units_of(mended, *key).values())[-1]
        assert physical + size <= int(files[-1].name)
    store.close(0)


def test_a_second_repair_changes_nothing(root: Path) -> None:
    scribble(root)
    repaired(root, True)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    plan = plan_repair(READER, opened(root))
    repaired(root, True)

    assert plan.log.patches == []
    after = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert {p.relative_to(root) for p in after} == {p.relative_to(root) for p in before}
    changed = [path.name for path in after if after[path] != before[path]]
    assert changed == []


def test_the_damaged_bytes_are_kept_and_the_source_is_not_touched(root: Path) -> None:
    spoil(57, 0, b"\xff" * 60)(root)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    repaired(root, False)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before

    repaired(root, True)
    kept = list((root / "repair.lost").iterdir())
    assert [path.read_bytes()[:60] for path in kept] == [b"\xff" * 60]


def test_queue_offsets_of_lost_messages_are_not_given_again(root: Path) -> None:
    last = records(root)[-6:]
    ends = {(record.topic, record.queue_id): record.queue_offset + 1 for record in last}
    path = log_file(root, last[0].physical_offset)
    data = path.read_bytes()
    path.write_bytes(data[: last[0].physical_offset % SEGMENT].ljust(SEGMENT, b"\0"))

    mended = repaired(root, False)

    assert fsck(mended).sound
    store = MessageStore(config(mended), OsFiles(), HOST)
    store.open(0)
    assert {key: store.max_offset(*key) for key in ends} == ends
    store.close(0)


def test_a_bare_commit_log_becomes_a_store(root: Path) -> None:
    mended = repaired(root / "commitlog", False, slots=17, entries=120)

    assert fsck(mended).findings == []
    assert sorted(path.name for path in (mended / "consumequeue").iterdir()) == [
        "Orders",
        "Payments",
    ]
    with pytest.raises(StoreError, match="--to"):
        repaired(root / "commitlog", True)


def test_deleted_topics_do_not_come_back(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = make_store(root, 60, close=False)
    store.delete_topic("Orders")
    store.close(0)
    write_config(root)
    text = (root / "config" / "topics.json").read_text().replace('"Orders"', '"Others"')
    (root / "config" / "topics.json").write_text(text)

    mended = repaired(root, False)

    assert [path.name for path in (mended / "consumequeue").iterdir()] == ["Payments"]


def test_a_torn_json_file_comes_from_its_backup(root: Path) -> None:
    path = root / "config" / "topics.json"
    shutil.copy(path, f"{path}.bak")
    whole = path.read_text()
    path.write_text(whole[:20])

    mended = repaired(root, False)

    assert (mended / "config" / "topics.json").read_text() == whole
    assert faults(fsck(mended)) == []


def test_a_copy_goes_into_an_empty_directory_only(root: Path) -> None:
    root.with_name("store-copy").mkdir()
    (root.with_name("store-copy") / "x").write_text("")

    with pytest.raises(StoreError, match="is not empty"):
        repaired(root, False)


def test_a_store_of_another_kind_is_refused(root: Path) -> None:
    (root / "consumequeue" / "CURRENT").write_text("")
    (root / "consumequeue" / "MANIFEST-000001").write_text("")

    with pytest.raises(StoreError, match="RocksDB"):
        plan_repair(READER, find_store(READER, str(root)))


def test_a_filler_has_exactly_the_size_of_the_damage(root: Path) -> None:
    spoil(57, 0, b"\xff" * 60)(root)
    victim = records(root)[57]  # the one behind it now
    mended = repaired(root, False)

    found = records(mended)
    filler = found[57]
    assert isinstance(filler, StoredRecord)
    assert filler.topic == "LOST_TO_DAMAGE"
    assert filler.physical_offset + filler.size == victim.physical_offset


@pytest.mark.parametrize("given", [None, "7s 9s"])
def test_times_of_delayed_messages_are_those_of_the_broker(
    tmp_path: Path, given: str | None
) -> None:
    """The broker's levels were 3 s and 40 s: its queues show it, unless somebody knows better."""
    root = tmp_path / "store"
    store = make_store(root, 5, close=False)
    for number in range(6):
        level = number % 2 + 1
        at = START_MS + number
        properties = f"DELAY\x01{level}\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02"
        due = at + (3_000, 40_000)[level - 1]
        append_message(
            store, "SCHEDULE_TOPIC_XXXX", level - 1, 0, 0, at, HOST, 0, properties, due, b"x", at
        )
    store.write_pending()
    store.close(0)
    before = [codes_of(root, level) for level in (0, 1)]
    poke(root / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "0" / f"{0:020d}", 12, b"\xff" * 8)
    store_dir = opened(root)
    plan = plan_repair(READER, store_dir, delay_levels=given)
    repair(READER, OsFiles(), store_dir, plan, str(tmp_path / "copy"))

    if given:
        waits = [7_000, 9_000]
        wanted = [[START_MS + n + waits[n % 2] for n in range(6) if n % 2 == q] for q in (0, 1)]
    else:
        wanted = before
        assert "level 1 waits 3 s, level 2 waits 40 s" in "\n".join(plan.lines())
    assert [codes_of(tmp_path / "copy", level) for level in (0, 1)] == wanted
    assert plan.warnings == []


def test_levels_that_no_queue_shows_are_told_of(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = make_store(root, 5, close=False)
    properties = "DELAY\x013\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02"
    append_message(store, "SCHEDULE_TOPIC_XXXX", 2, 0, 0, 1, HOST, 0, properties, 5, b"x", START_MS)
    store.write_pending()
    store.close(0)
    shutil.rmtree(root / "consumequeue" / "SCHEDULE_TOPIC_XXXX")
    store_dir = opened(root)
    plan = plan_repair(READER, store_dir)
    repair(READER, OsFiles(), store_dir, plan, str(tmp_path / "copy"))

    assert "delay levels 3 wait" in plan.warnings[-1]
    assert "--delay-levels" in plan.warnings[-1]
    assert codes_of(tmp_path / "copy", 2) == [START_MS + 10_000]


def codes_of(root: Path, queue_id: int) -> list[int]:
    """The tags codes of a queue of delayed messages: the times they are due."""
    path = root / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / str(queue_id) / f"{0:020d}"
    return [code for _, size, code in struct.iter_unpack(">qiq", path.read_bytes()) if size]
