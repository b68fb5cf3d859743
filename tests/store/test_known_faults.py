"""Faults that Apache's store has had, by the number of the issue: none of them may come to us.

Elsewhere: 5663, 6662, 7017 and 1155 are of replication, 11043 and 9411 of the name server's tests, 10911 of
remoting's.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.records import append_message, read_queue
from tests.store.crash_model import BORN, HOST, START_MS, small_config

from roquette.broker.floor.config_files import ConfigFiles
from roquette.broker.floor.timer_rules import TimerRules
from roquette.errors import Refused, StoreError
from roquette.message.record import decode_record
from roquette.store.format.config import FlushDiskType
from roquette.store.message_store import MessageStore
from roquette.wire.bodies import ConsumerOffsetSerializeWrapper
from roquette_testing.faulty_files import FaultyFiles

PREPARED = 0x4


def opened(files: FaultyFiles, **changes: object) -> MessageStore:
    store = MessageStore(small_config(**changes), files, HOST)
    store.open(START_MS)
    return store


def put(store: MessageStore, number: int, topic: str = "T", queue_id: int = 0) -> int:
    """Append message `number`; its queue offset."""
    return append_message(store, topic, queue_id, 0, 0, 0, BORN, 0, f"UNIQ_KEY\x01u{number}\x02", 0, b"%06d" % number,
        START_MS + number, uniq_key=f"u{number}",
    ).queue_offset  # fmt: skip


def bodies(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[int]:
    """What a reader gets from the queue's first offset on."""
    found = []
    for offset in range(store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)):
        runs = read_queue(store, topic, queue_id, offset, 1, 1, None).runs
        found.append(int(decode_record(runs[0], 0, True).body))
    return found


@pytest.mark.parametrize("power_cut", [False, True])
def test_7689_a_restart_uses_no_queue_offset_again(power_cut: bool) -> None:
    files = FaultyFiles(7)
    given_out: dict[int, int] = {}
    number = 0
    for _ in range(6):
        store = opened(files, flush_disk_type=FlushDiskType.SYNC_FLUSH)
        for _ in range(9):
            given_out[number] = put(store, number)
            number += 1
        store.write_pending()
        sync = store.plan_sync()
        assert sync is not None
        sync.run()
        store.synced(sync)  # acknowledged
        put(store, 10**5 + number)  # never acknowledged
        files.kill()
        if power_cut:
            files = files.crash()
    found = bodies(opened(files, flush_disk_type=FlushDiskType.SYNC_FLUSH))

    assert len(set(given_out.values())) == len(given_out)
    assert all(found[offset] == sent for sent, offset in given_out.items())


def test_7709_a_half_message_outlives_a_crash() -> None:
    files = FaultyFiles(3)
    store = opened(files)
    put(store, 1, "RMQ_SYS_TRANS_HALF_TOPIC")
    prepared = append_message(store, "T", 0, 0, PREPARED, 0, BORN, 0, "", 0, b"half", START_MS)
    store.flush_all()

    store = opened(files.crash())

    assert bodies(store, "RMQ_SYS_TRANS_HALF_TOPIC") == [1]
    assert store.record_at(prepared.physical_offset) is not None
    assert store.max_offset("T", 0) == 0


def test_10666_what_was_cut_off_does_not_come_back() -> None:
    files = FaultyFiles(1)
    store = opened(files)
    for number in range(4):
        put(store, number)
    store.write_pending()
    end = store.max_physical_offset
    size = end // 4
    name = f"/s/commitlog/{0:020d}"
    files.restart()  # what was not synced may be torn
    files.open_file(name).pwrite(b"\0" * 8, end - 2 * size)  # 2 is torn, 3 stands behind it
    store = opened(files)
    assert bodies(store) == [0, 1]
    put(store, 7)  # as long as the torn one
    store.write_pending()
    files.kill()

    assert bodies(opened(files)) == [0, 1, 7]


def test_10668_7480_the_checkpoint_does_not_outlive_a_truncation() -> None:
    files = FaultyFiles(1)
    store = opened(files)
    for number in range(100):
        put(store, number)
    store.write_pending()
    files.restart()
    last = max(files.list_dir("/s/commitlog"))
    data = files.read_bytes(f"/s/commitlog/{last}")
    files.open_file(f"/s/commitlog/{last}").pwrite(bytes(len(data)), 0)

    store = opened(files)
    end, kept = store.max_physical_offset, bodies(store)
    store.flush_all()
    files.kill()
    again = opened(files)

    assert end == int(last)
    assert 0 < len(kept) < 100
    assert again.max_physical_offset == end  # it vouches for no more than there is
    assert bodies(again) == kept
    assert put(again, 5) == len(kept)


@pytest.mark.parametrize("written", range(0, 60, 7))
def test_467_1434_records_at_a_file_edge_are_dispatched_again(written: int) -> None:
    files = FaultyFiles(written)
    store = opened(files)
    for number in range(60):
        put(store, number)
        if number == written:
            store.flush_all()  # from here on the queues are behind
    store.write_pending()
    files.kill()
    for name in files.list_dir("/s/consumequeue/T/0")[1:]:
        files.remove(f"/s/consumequeue/T/0/{name}")

    assert bodies(opened(files)) == list(range(60))


@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 300, b"[]"])
def test_9328_7729_10518_a_torn_json_file_falls_back_or_stops_the_start(content: bytes) -> None:
    files = FaultyFiles()
    config = ConfigFiles(files, "/s/config")
    for offset in (1, 2):
        config.save("x.json", ConsumerOffsetSerializeWrapper(offset_table={"T@g": {0: offset}}))
    file = files.open_file("/s/config/x.json")
    file.truncate(0)
    file.pwrite(content, 0)

    found = config.load("x.json", ConsumerOffsetSerializeWrapper)
    assert found is not None
    assert found.offset_table["T@g"][0] in (1, 2)
    for name in files.list_dir("/s/config"):
        if "x.json" in name:
            file = files.open_file(f"/s/config/{name}")
            file.truncate(0)
            file.pwrite(b"{", 0)
    with pytest.raises(StoreError):  # empty tables would be worse
        config.load("x.json", ConsumerOffsetSerializeWrapper)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("size", [0, 20, 170, 320])
def test_9728_10108_an_empty_last_queue_file_stops_no_start(clean: bool, size: int) -> None:
    files = FaultyFiles()
    store = opened(files)
    for number in range(32):  # two files of 16
        put(store, number)
    store.flush_all()
    if clean:
        store.close(START_MS)
    files.kill()
    files.open_file(f"/s/consumequeue/T/0/{640:020d}", size or None, create=True)

    store = opened(files)

    assert bodies(store) == list(range(32))
    assert put(store, 32) == 32


def test_8007_a_damaged_index_is_made_anew_not_deleted() -> None:
    files = FaultyFiles()
    store = opened(files)
    for number in range(150):
        put(store, number)
    store.flush_all()
    files.kill()
    for name in files.list_dir("/s/index")[-1:]:  # older ones are whole, says the checkpoint
        file = files.open_file(f"/s/index/{name}")
        file.pwrite(b"\xff" * 400, 40)

    store = opened(files)

    for number in range(150):
        assert len(store.query("T", f"u{number}", 8, 0, 1 << 62)) == 1, number


@pytest.mark.parametrize("lost", ["commitlog", "newest", "middle"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_is_gone_is_not_begun_anew(lost: str, clean: bool) -> None:
    """Issues 3503, 1825 and 2705 begin with a store that was empty, or shorter, after a restart."""
    files = FaultyFiles()
    store = opened(files)
    for number in range(150):
        put(store, number)
    store.flush_all()
    if clean:
        store.close(START_MS)
    files.kill()
    names = files.list_dir("/s/commitlog")
    kept = {"commitlog": [], "newest": names[:-1], "middle": [n for n in names if n != names[1]]}
    images = {name: files.read_bytes(f"/s/commitlog/{name}") for name in names}
    for name in names:
        if name not in kept[lost]:
            files.remove(f"/s/commitlog/{name}")
    missing = min(name for name in names if name not in kept[lost])

    with pytest.raises(StoreError, match=f"{missing} is missing or empty"):
        opened(files)
    assert files.list_dir("/s/commitlog") == kept[lost]
    files.kill()
    for name, image in images.items():
        files.write_atomic(f"/s/commitlog/{name}", image, keep_backup=False)
    assert bodies(opened(files)) == list(range(150))


def test_damage_below_what_was_synced_is_not_cut_off() -> None:
    files = FaultyFiles()
    store = opened(files)
    for number in range(20):
        put(store, number)
    store.flush_all()
    files.kill()
    place = store.max_physical_offset - 200
    path = f"/s/commitlog/{place - place % 4096:020d}"
    files.open_file(path).pwrite(b"\xff" * 8, place % 4096)

    store = opened(files)

    assert store.max_offset("T", 0) == 20
    found = [read_queue(store, "T", 0, n, 1, 1, None) for n in range(20)]
    assert [one.count for one in found] == [1] * 18 + [0, 1]
    assert put(store, 20) == 20


def test_a_clock_that_was_set_back_hides_no_unsynced_queue() -> None:
    """What the checkpoint says in times a clock can make wrong; the offset beside them it cannot."""
    files = FaultyFiles(5)
    store = opened(files, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    for number in range(10):
        put(store, 100_000 + number, "A")
    store.flush_all()
    put(store, 1, "B")  # the clock is set back by 100 s
    for number in range(60):
        put(store, 2 + number, "A")
    store.write_pending()
    sync = store.plan_sync()
    assert sync is not None
    sync.run()
    store.synced(sync)  # the log is on the disk, the queue of B is not
    files.kill()
    files.remove_tree("/s/consumequeue/B")

    store = opened(files, flush_disk_type=FlushDiskType.SYNC_FLUSH)

    assert bodies(store, "B") == [1]
    assert put(store, 3, "B") == 1


@given(
    st.integers(-(2**63), 2**63 - 1) | st.integers(2**63 - 10**7, 2**63 - 1),
    st.sampled_from(["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"]),
)
def test_10872_a_delay_that_overflows_is_not_due_at_once(value: int, name: str) -> None:
    rules = TimerRules(lambda: 1000, lambda: 3 * 86_400, lambda: 10**6, lambda ms: 0, lambda n: 0)
    unit = {"TIMER_DELAY_SEC": 1000, "TIMER_DELAY_MS": 1, "TIMER_DELIVER_MS": 1}[name]
    due = value * unit + (0 if name == "TIMER_DELIVER_MS" else START_MS)

    try:
        slot = rules.slot_of({name: str(value)}, START_MS)
    except Refused:
        assert due - START_MS > 3 * 86_400_000
        return
    assert (slot is None) == (due <= START_MS)
    assert slot is None or due - 1000 <= slot < due
