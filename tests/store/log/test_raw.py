"""A replica takes its master's log as it is: the same bytes, queues, keys and due times, in pieces that end anywhere."""

import errno
import random

import pytest
from tests.records import append_message, read_queue
from tests.store.crash_workload import BORN, HOST, START_MS, Workload, crash_config
from tests.store.explorer import Explorer
from tests.store.replica_workload import ReplicaWorkload

from roquette.base.javatypes import java_hash
from roquette.errors import CorruptRecord, OffsetOutOfRange, StoreFull
from roquette.store.format.config import FlushDiskType, StoreConfig
from roquette.store.format.results import GetStatus
from roquette.store.message_store import MessageStore
from roquette.store.upkeep.retention import DiskUsage
from roquette_testing.faulty_files import FaultyFiles

ASYNC = FlushDiskType.ASYNC_FLUSH
TAG = java_hash("T")


def open_store(files: FaultyFiles | None = None, **changes: object) -> MessageStore:
    store = MessageStore(crash_config(**changes), files or FaultyFiles(), HOST)
    store.open(START_MS)
    return store


def put(store: MessageStore, queue_id: int = 0, body: bytes = b"body", topic: str = "A") -> int:
    text = f"UNIQ_KEY\x01u{store.max_physical_offset}\x02TAGS\x01T\x02"
    done = append_message(store, topic, queue_id, 0, 0, 0, BORN, 0, text, TAG, body, START_MS)
    return int(done.end_offset)


def feed(master: MessageStore, replica: MessageStore, size: int = 1 << 20) -> None:
    """All that the replica lacks."""
    while data := master.read_raw(replica.raw_end, size):
        replica.append_raw(replica.raw_end, data)


def same(master: MessageStore, replica: MessageStore) -> None:
    """Both have the same log, queues and index."""
    assert replica.max_physical_offset == master.max_physical_offset
    start, size = replica.min_physical_offset, master.config.segment_size
    for at in range(start, master.max_physical_offset, size):
        assert replica.read_raw(at, size) == master.read_raw(at, size)
    assert replica.topics() == master.topics()
    for topic in master.topics():
        for queue_id in master.queues_of(topic):
            end = master.max_offset(topic, queue_id)
            low = replica.min_offset(topic, queue_id)
            assert replica.max_offset(topic, queue_id) == end
            for offset in range(low, end):
                unit = master.queue_units(topic, queue_id, offset, 1)
                assert replica.queue_units(topic, queue_id, offset, 1) == unit


def master_of(seed: int, operations: int = 500) -> Workload:
    """A store with everything in it."""
    work = Workload(seed, flush_disk_type=ASYNC)
    while work.operations < operations:
        work.operations += 1
        (work.append if work.random.random() < 0.9 else work.batch)()
    return work


@pytest.mark.promise(
    "Replication", "a replica has whole records, however the pieces come, and survives power cuts"
)
@pytest.mark.parametrize("size", [1, 8, 1000, 1 << 20])
def test_a_replica_is_equal_however_the_pieces_are_cut(size: int) -> None:
    work = master_of(3, 60 if size == 1 else 500)
    replica = open_store()

    feed(work.store, replica, size)

    same(work.store, replica)
    for message in work.life.messages:
        if message.indexed:
            data = work.store.read_log(message.physical, message.end)
            assert data in replica.query(message.topic, message.key, 64, 0, 1 << 62)


def test_pieces_cut_anywhere_and_read_from_the_files() -> None:
    work, rng = master_of(4), random.Random(4)
    replica = open_store()
    work.store.write_pending()

    while data := work.store.plan_raw(replica.raw_end, rng.randrange(1, 4000))():
        replica.append_raw(replica.raw_end, data)
        assert len(replica.take_arrivals()) <= 100

    same(work.store, replica)
    assert work.store.plan_raw(1 << 40, 10)() == b""
    assert work.store.read_raw(1 << 40, 10) == b""


def test_arrivals_say_what_a_masters_say() -> None:
    work = master_of(5, 200)
    replica = open_store(flush_disk_type=ASYNC)
    feed(work.store, replica, 777)
    words = [
        [(a.topic, a.queue_id, a.queue_offset, a.tags_code, a.physical_offset, a.size) for a in one]
        for one in (replica.take_arrivals(), work.store.take_arrivals())
    ]
    assert words[0] == words[1]


def test_a_log_that_begins_later_begins_its_queues_there() -> None:
    work = master_of(6)
    size = work.config.segment_size
    files = FaultyFiles()
    replica = open_store(files)

    replica.begin_log(2 * size)
    feed(work.store, replica)
    assert replica.min_physical_offset == 2 * size
    same(work.store, replica)
    ends = {t: [replica.min_offset(t, q) for q in replica.queues_of(t)] for t in replica.topics()}
    assert any(any(firsts) for firsts in ends.values())

    replica.flush_all()
    files.kill()
    again = open_store(files)
    same(work.store, again)


def test_a_log_that_has_begun_later_and_is_empty_still() -> None:
    files = FaultyFiles()
    replica = open_store(files)
    size = replica.config.segment_size
    replica.begin_log(3 * size)
    files.kill()

    again = open_store(files)
    again.begin_log(3 * size)
    assert (again.min_physical_offset, again.raw_end) == (3 * size, 3 * size)
    with pytest.raises(OffsetOutOfRange, match="cannot begin at 0"):
        again.begin_log(0)


def test_a_slave_of_apaches_protocol_begins_with_one_byte() -> None:
    work = master_of(7, 50)
    replica = open_store()
    replica.begin_log(1)
    assert (replica.raw_end, replica.max_physical_offset) == (1, 0)

    feed(work.store, replica, 100)

    same(work.store, replica)
    with pytest.raises(OffsetOutOfRange):
        replica.begin_log(1)


def test_bytes_that_do_not_fit_are_refused_and_change_nothing() -> None:
    master, replica = open_store(), open_store()
    end = put(master)
    data = master.read_raw(0, end)
    with pytest.raises(OffsetOutOfRange, match="ends at 0"):
        replica.append_raw(5, data)
    replica.append_raw(0, data[:50])
    with pytest.raises(OffsetOutOfRange, match="ends at 0"):
        replica.append_raw(51, data[51:])
    with pytest.raises(OffsetOutOfRange, match="mappedFileSizeCommitLog"):
        replica.append_raw(50, bytes(16_384))

    replica.append_raw(50, data[50:])
    same(master, replica)


def test_a_replica_that_asks_again_begins_at_the_logs_end() -> None:
    master, replica = open_store(), open_store()
    first, second = put(master), put(master)
    replica.append_raw(0, master.read_raw(0, second - 3))
    assert (replica.max_physical_offset, replica.raw_end) == (first, second - 3)

    replica.append_raw(first, master.read_raw(first, 10))
    assert replica.raw_end == first + 10
    feed(master, replica)
    same(master, replica)


@pytest.mark.parametrize(("at", "value"), [(4, 0), (0, 0x7F), (30, 9), (60, 0x7F)])
def test_what_is_no_record_is_refused_and_all_before_it_stays(at: int, value: int) -> None:
    master, replica = open_store(), open_store()
    first, second = put(master), put(master)
    data = bytearray(master.read_raw(0, second))
    data[first + at] ^= value or 0xFF
    if at == 60:
        data[first + 84 : first + 88] = b"\x7f\0\0\0"  # the body's length

    for _ in range(2):
        with pytest.raises(CorruptRecord, match=f"offset {first}:"):
            replica.append_raw(replica.raw_end, bytes(data[replica.raw_end :]))
        assert (replica.max_physical_offset, replica.raw_end) == (first, first)

    feed(master, replica)
    same(master, replica)


def test_the_end_of_a_file_that_is_neither_record_nor_blank() -> None:
    master, replica = open_store(), open_store()
    end = put(master)
    replica.append_raw(0, master.read_raw(0, end))
    blank = (16_384 - 4 - end).to_bytes(4, "big") + b"\xcb\xd4\x31\x94"
    with pytest.raises(CorruptRecord):
        replica.append_raw(end, blank)


def test_a_gap_in_a_queue_and_a_topic_made_again_are_taken_as_recovery_does() -> None:
    master, files = open_store(), FaultyFiles()
    replica = open_store(files)
    for _ in range(3):
        put(master)
    master.delete_topic("A")
    put(master)
    put(master)
    queue = master._queues.find("A", 0)
    assert queue is not None
    queue.skip_to(7, -1, 16_384)  # messages lost to damage
    put(master)
    feed(master, replica)

    assert replica.max_offset("A", 0) == master.max_offset("A", 0) == 8
    replica.flush_all()
    for offset, status in ((0, GetStatus.FOUND), (7, GetStatus.FOUND)):
        assert read_queue(replica, "A", 0, offset, 1, 1000).status is status
    files.kill()
    assert open_store(files).max_offset("A", 0) == 8


@pytest.mark.parametrize("call", ["allocate", "map", "open"])
def test_no_room_keeps_what_is_whole(call: str) -> None:
    work, files = master_of(8), FaultyFiles()
    replica = open_store(files, flush_disk_type=ASYNC)
    refused = 0
    for number in range(400):
        if number % 4 == 0:
            files.fail(call, 1 + number % 3, errno.ENOSPC)
        data = work.store.read_raw(replica.raw_end, 3000)
        try:
            replica.append_raw(replica.raw_end, data)
        except StoreFull:
            refused += 1
            assert replica.raw_end == replica.max_physical_offset
        files.work_again()
        replica.check_disk(DiskUsage(100, 50))
    assert refused
    feed(work.store, replica)
    same(work.store, replica)


def test_a_promoted_replica_goes_on_where_its_master_ended() -> None:
    master, files = open_store(), FaultyFiles()
    replica = open_store(files)
    put(master)
    end = put(master)
    put(master, body=b"half of it comes")
    replica.append_raw(0, master.read_raw(0, end + 40))
    replica.close(START_MS)

    promoted = open_store(files)
    done = append_message(promoted, "A", 0, 0, 0, 0, BORN, 0, "", 0, b"x", START_MS)
    assert (done.physical_offset, done.queue_offset) == (end, 2)


# What readers see


def test_readers_see_what_is_confirmed() -> None:
    store = open_store(flush_disk_type=ASYNC)
    assert store.confirmed == 1 << 62
    ends = [put(store) for _ in range(3)]
    store.set_confirmed(0)
    assert read_queue(store, "A", 0, 0, 9, 9999).status is GetStatus.OFFSET_OVERFLOW_ONE
    assert store.take_arrivals() == []
    assert store.query("A", "u0", 9, 0, 1 << 62) == []

    store.set_confirmed(ends[1])
    found = read_queue(store, "A", 0, 0, 9, 9999)
    assert (found.count, found.next_begin_offset, found.max_offset) == (2, 2, 3)
    assert [a.queue_offset for a in store.take_arrivals()] == [0, 1]
    assert store.max_offset("A", 0) == 3
    assert len(store.query("A", "u0", 9, 0, 1 << 62)) == 1

    store.set_confirmed(ends[0])  # it only grows
    assert store.confirmed == ends[1]
    store.set_confirmed(ends[2])
    assert [a.queue_offset for a in store.take_arrivals()] == [2]
    assert store.take_arrivals() == []


def test_under_sync_flush_the_least_of_both_counts() -> None:
    store = open_store()
    ends = [put(store) for _ in range(3)]
    store.set_confirmed(ends[2])
    assert read_queue(store, "A", 0, 0, 9, 9999).count == 0
    store.flush_all()
    store.set_confirmed(ends[2])
    assert read_queue(store, "A", 0, 0, 9, 9999).count == 3
    put(store)
    store.flush_all()
    assert read_queue(store, "A", 0, 0, 9, 9999).count == 3
    assert len(store.take_arrivals()) == 3


def test_arrivals_that_nobody_may_see_are_bounded() -> None:
    config = StoreConfig(root_dir="/s", segment_size=32 << 20, index_enable=False)
    master = MessageStore(config, FaultyFiles(), HOST)
    master.open(START_MS)
    replica = MessageStore(config, FaultyFiles(), HOST)
    replica.open(START_MS)
    replica.set_confirmed(0)
    for _ in range(110_000):
        append_message(master, "A", 0, 0, 0, 0, BORN, 0, "", 0, b"", START_MS)
    feed(master, replica)
    master.set_confirmed(0)
    for store in (replica, master):
        assert store.take_arrivals() == []
        store.set_confirmed(store.max_physical_offset)
        arrivals = store.take_arrivals()
        assert 50_000 <= len(arrivals) <= 100_000
        assert arrivals[-1].queue_offset == 109_999


# Power cuts


@pytest.mark.promise(
    "Replication", "a replica has whole records, however the pieces come, and survives power cuts"
)
def test_a_replica_survives_power_cuts_at_any_moment() -> None:
    for seed in (1, 2):
        work = ReplicaWorkload(seed)
        work.run(1000)
        assert work.store.max_physical_offset > 4 * work.config.segment_size
        assert Explorer(work, seed, 250).run().states > 240


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(10, 40))  # so that a run that was cut off goes on
def test_a_replica_survives_many_more_power_cuts(seed: int) -> None:
    work = ReplicaWorkload(seed)
    work.run(2000)
    Explorer(work, seed, 3000).run()


@pytest.mark.parametrize("crash", [False, True])
def test_a_queue_goes_on_where_its_masters_is_though_no_record_of_it_is_left(crash: bool) -> None:
    """Over a stop and over a loss of power: it ends where it ended, has nothing to read, and takes what comes next."""
    files, master = FaultyFiles(), open_store()
    replica = open_store(files)
    put(master)
    feed(master, replica)
    end = master.max_physical_offset
    per_file = replica.config.queue_file_units
    replica.go_on_from("idle", 1, per_file + 7, end)
    replica.go_on_from("A", 0, 9, 0)  # its own record says it better

    for store in (replica, None):
        if store is None:
            replica.flush_all()
            if not crash:
                replica.close(START_MS)
            store = replica = open_store(files.crash() if crash else files)
        assert store.min_offset("idle", 1) == store.max_offset("idle", 1) == per_file + 7
        assert read_queue(store, "idle", 1, 0, 10, 1000).status is GetStatus.OFFSET_TOO_SMALL
        assert store.max_offset("A", 0) == 1

    master._queues.create("idle", 1).start_at(per_file + 7)
    put(master, 1, topic="idle")
    feed(master, replica)
    replica.flush_all()
    assert read_queue(replica, "idle", 1, per_file + 7, 10, 1000).count == 1


def test_queues_of_an_older_topic_go_and_those_of_the_later_one_stay() -> None:
    store = open_store()
    first = put(store, 0)
    deleted = put(store, 1)
    store.drop_queues_before("A", first)
    assert store.queues_of("A") == [0, 1] and store.max_offset("A", 0) == 0
    put(store, 0)
    store.drop_queues_before("A", deleted)
    assert (store.max_offset("A", 0), store.max_offset("A", 1)) == (1, 0)
    store.drop_queues_before("A", store.max_physical_offset)
    store.drop_queues_before("B", 1)
    assert store.topics() == []


def test_a_body_that_rotted_is_taken_only_unchecked() -> None:
    master, checked, other = open_store(), open_store(), open_store()
    first = put(master)
    put(master, body=b"rotten")
    data = master.read_raw(0, 1 << 20)
    bad = data.replace(b"rotten", b"Rotten")
    with pytest.raises(CorruptRecord, match=f"offset {first}: the body does not match its CRC"):
        checked.append_raw(0, bad, True)
    assert checked.max_physical_offset == checked.raw_end == first
    checked.append_raw(first, data[first:], True)
    other.append_raw(0, bad)
    assert other.max_physical_offset == checked.max_physical_offset == master.max_physical_offset
