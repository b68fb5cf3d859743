"""A full disk: refusals in words, the reserve, every call that finds no space, and nothing lost by it."""

import errno
import logging

import pytest
from tests.records import append_message, read_queue
from tests.store.crash_model import BORN, HOST, START_MS, small_config

from roquette.base.files import OsFiles
from roquette.errors import StoreClosed, StoreError, StoreFull
from roquette.message.record import decode_record
from roquette.store.format.config import StoreConfig
from roquette.store.message_store import MessageStore
from roquette.store.upkeep.retention import DiskReserve, DiskUsage
from roquette_testing.faulty_files import FaultyFiles

ROOMY = DiskUsage(1000 << 30, 900 << 30)


def opened(files: FaultyFiles, **changes: object) -> MessageStore:
    store = MessageStore(small_config(**changes), files, HOST)
    store.open(START_MS)
    return store


def put(store: MessageStore, body: bytes = b"x", queue_id: int = 0, key: str = "") -> int:
    named = f"KEYS\x01{key}\x02" if key else ""
    return append_message(
        store, "T", queue_id, 0, 0, START_MS, BORN, 0, named, 0, body, START_MS, key or None
    ).queue_offset


def bodies(store: MessageStore, queue_id: int) -> list[bytes]:
    """Every message of a queue, CRC checked."""
    found: list[bytes] = []
    for offset in range(store.min_offset("T", queue_id), store.max_offset("T", queue_id)):
        read = read_queue(store, "T", queue_id, offset, 1, 1, None)
        found.append(decode_record(read.runs[0], 0, True).body)
    return found


# Refusals.


def test_above_the_limits_senders_are_refused_and_the_broker_itself_goes_on() -> None:
    store = opened(FaultyFiles())
    store.check_disk(DiskUsage(1000 << 20, 50 << 20))

    with pytest.raises(StoreFull, match=r"/s/commitlog is 95\.0 % full .*diskSpaceWarningLevel"):
        store.check_send()
    put(store)  # an acknowledgement, say

    store.check_disk(DiskUsage(1000 << 20, 500 << 20))
    store.check_send()


@pytest.mark.parametrize(
    ("size_mib", "changes", "told"),
    [
        (200, {}, "199 MiB free.* 1024 MiB for a file of the log .mappedFileSizeCommitLog."),
        (300, {"segment_size": 64 << 20}, "64 MiB for .* 5 MiB of a queue .* 400 MiB of the index"),
        (200, {"segment_size": 64 << 20, "index_enable": False}, ""),
        (600, {"segment_size": 64 << 20}, ""),
    ],
)
def test_a_disk_too_small_for_the_first_message_is_told_at_the_start(
    size_mib: int, changes: dict[str, int], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With default settings otherwise; only then is it known which setting is to be smaller."""
    files = FaultyFiles(capacity=size_mib << 20)
    config = StoreConfig(**{"root_dir": "/s", "disk_reserve": 1 << 20, **changes})
    store = MessageStore(config, files, HOST)
    store.open(START_MS)

    if told:
        with pytest.raises(StoreFull, match=told):
            store.check_send()
        assert "too few for the first message" in caplog.text
        files.set_capacity(4 << 30)
        store.check_disk(store.disk.measure()[0])
    store.check_send()


def test_with_nothing_left_but_the_reserve_nothing_is_appended_and_reads_go_on() -> None:
    store = opened(FaultyFiles())
    put(store, b"before")
    store.check_disk(DiskUsage(1000 << 20, 100))  # the reserve of these small files is 128

    with pytest.raises(StoreFull, match="100"):
        put(store)
    assert bodies(store, 0) == [b"before"]

    store.check_disk(DiskUsage(1000 << 20, 500 << 20))
    assert put(store) == 1


def test_the_log_on_a_disk_of_its_own_is_named_when_that_one_is_full() -> None:
    store = opened(FaultyFiles(), commit_log_dir="/log/here")
    store.check_disk(ROOMY, DiskUsage(1000 << 20, 50 << 20))
    with pytest.raises(StoreFull, match="the disk of /log/here is 95"):
        store.check_send()
    store.check_disk(DiskUsage(1000 << 20, 50 << 20), ROOMY)
    with pytest.raises(StoreFull, match="the disk of /s is 95"):
        store.check_send()
    assert store.disk.ratios == pytest.approx((0.1, 0.95))
    store.check_disk(ROOMY, ROOMY)
    store.check_send()


def test_a_file_that_cannot_be_made_refuses_senders_until_the_next_look(caplog) -> None:
    files = FaultyFiles()
    store = opened(files)
    put(store)
    used = files.used
    files.set_capacity(used)
    logging.getLogger("roquette").propagate = True
    with caplog.at_level("ERROR", "roquette.store"), pytest.raises(StoreFull, match="/s/commitlog"):
        for _ in range(100):
            put(store, b"x" * 200)
    calls = dict(files.calls)
    for _ in range(50):
        with pytest.raises(StoreFull, match="No space left"):
            store.check_send()
    assert files.calls == calls, "a refusal costs no call"
    assert caplog.text.count("messages refused") == 1

    files.set_capacity(1 << 30)
    store.check_disk(ROOMY)
    store.check_send()
    put(store, b"x" * 200)


def test_no_file_is_made_ahead_again_and_again_on_a_full_disk() -> None:
    files = FaultyFiles()
    store = opened(files)
    while (plan := store.plan_allocation()) is None:
        put(store, b"x" * 200)
    files.set_capacity(files.used)
    plan.run()
    store.allocated(plan)
    assert store.plan_allocation() is None
    store.check_disk(DiskUsage(1000, 10))
    assert store.plan_allocation() is None
    files.set_capacity(1 << 30)
    store.check_disk(ROOMY)
    assert store.plan_allocation() is not None


# The reserve.


def test_the_reserve_is_real_blocks_and_is_taken_back_when_there_is_room_twice(tmp_path) -> None:
    path = tmp_path / "reserve"
    reserve = DiskReserve(OsFiles(), str(path), 1 << 20)
    assert not reserve.held
    assert not reserve.take((2 << 20) - 1)
    assert not path.exists()
    assert reserve.take(2 << 20)
    assert path.stat().st_blocks * 512 >= 1 << 20
    assert reserve.release()
    assert not path.exists()
    assert not reserve.held
    assert not reserve.release(), "there is nothing left to give"
    assert reserve.take(1 << 40)


def test_a_reserve_that_is_there_counts_at_once_and_follows_its_setting(tmp_path) -> None:
    path = tmp_path / "reserve"
    assert DiskReserve(OsFiles(), str(path), 8192).take(1 << 40)
    assert DiskReserve(OsFiles(), str(path), 8192).take(0)
    assert DiskReserve(OsFiles(), str(path), 4096).take(1 << 40)
    assert path.stat().st_size == 4096
    assert DiskReserve(OsFiles(), str(path), 0).take(0), "none is wanted"


def test_a_disk_that_takes_no_reserve_at_all_does_not_stop_messages() -> None:
    files = FaultyFiles()
    files.make_dirs("/s")
    reserve = DiskReserve(files, "/s/reserve", 4096)
    files.fail("allocate", 1, errno.EFBIG)
    assert reserve.take(1 << 40)
    assert not reserve.release()


def test_messages_wait_until_the_reserve_is_back() -> None:
    files = FaultyFiles()
    store = opened(files, disk_reserve=1 << 20)
    assert files.exists("/s/reserve")
    assert store.disk.reserve.release()
    files.set_capacity(files.used + (1 << 20))
    store.check_disk(DiskUsage(8 << 20, 1 << 20))
    with pytest.raises(StoreFull, match=r"/s was full .*diskReserveBytes"):
        store.check_send()
    put(store)  # what only the broker writes goes on
    files.set_capacity(files.used + (2 << 20))
    store.check_disk(DiskUsage(8 << 20, 2 << 20))
    store.check_send()
    assert files.exists("/s/reserve")


def test_recovery_gets_the_reserve_when_nothing_else_is_left() -> None:
    files = FaultyFiles()
    store = opened(files, disk_reserve=64 << 10)
    put(store, b"kept")
    store.flush_all()
    files.set_capacity(files.used)
    files.kill()
    store = opened(files, disk_reserve=64 << 10)
    assert bodies(store, 0) == [b"kept"]
    with pytest.raises(StoreFull):
        store.check_send()
    files.set_capacity(1 << 30)
    store.check_disk(ROOMY)
    store.check_send()


# Every call that may find no space, and every size of disk.


def promised(store: MessageStore, sent: list[list[bytes]]) -> None:
    for queue_id, expected in enumerate(sent):
        assert bodies(store, queue_id)[: len(expected)] == expected


def work(store: MessageStore, sent: list[list[bytes]], steps: int, start: int = 0) -> int:
    """Send, write, sync, flush, make files ahead; returns how often there was no space. What was written is in
    `sent`; raises StoreClosed when the store is at its end."""
    refused = 0
    for number in range(start, start + steps):
        queue_id = number % 3
        body = b"%d-" % number + b"b" * (number % 7 * 40)
        try:
            offset = put(store, body, queue_id, f"k{number}")
            store.write_pending()
            assert offset == len(sent[queue_id])
            sent[queue_id].append(body)
        except StoreFull:
            refused += 1
        if number % 5 == 0:
            sync = store.plan_sync()
            if sync is not None:
                sync.run()
                store.synced(sync)
        if number % 11 == 0:
            flush = store.plan_queue_flush()
            if flush is not None:
                flush.run()
                store.queues_flushed(flush)
        ahead = store.plan_allocation() if number % 4 == 0 else None
        if ahead is not None:
            ahead.run()
            store.allocated(ahead)
    return refused


@pytest.mark.promise(
    "Bounds", "a full disk loses nothing, and sends are taken again when there is space"
)
def test_a_disk_of_any_size_fills_up_and_loses_nothing() -> None:
    whole = FaultyFiles()
    store = opened(whole, disk_reserve=0)
    start = whole.used
    work(store, [[], [], []], 120)
    total = whole.used - start
    refusals = 0
    for capacity in range(start, start + total + 1000, total // 60):
        files = FaultyFiles()
        store = opened(files, disk_reserve=0)
        files.set_capacity(capacity)
        sent: list[list[bytes]] = [[], [], []]
        refusals += work(store, sent, 120)
        promised(store, sent)
        if capacity % 3 == 0:
            files.kill()  # a crash on the full disk: recovery finds no more space than there is
        else:
            store.flush_all()
            store.close(START_MS)
        store = opened(files, disk_reserve=0)
        promised(store, sent)
        files.set_capacity(1 << 30)
        store.check_disk(ROOMY)
        lengths = [store.max_offset("T", queue_id) for queue_id in range(3)]
        assert lengths == [len(expected) for expected in sent]
        assert work(store, sent, 60, start=1000) == 0
        promised(store, sent)
    assert refusals > 500


@pytest.mark.promise(
    "Bounds", "a full disk loses nothing, and sends are taken again when there is space"
)
@pytest.mark.parametrize(
    "call", ["allocate", "open", "pwrite", "sync", "rename", "sync_dir", "remove"]
)
def test_the_nth_call_that_finds_no_space_loses_nothing(call: str) -> None:
    ended = refused = 0
    for nth in range(1, 400):
        files = FaultyFiles(nth)
        store = opened(files, disk_reserve=0)
        made = files.calls.get(call, 0)
        files.fail(call, nth, errno.ENOSPC)
        sent: list[list[bytes]] = [[], [], []]
        try:
            refused += work(store, sent, 70)
        except StoreClosed:  # a failed write or sync ends the store's life
            ended += 1
        if files.calls.get(call, 0) - made < nth:
            break
        files.work_again()
        files.kill()
        store = opened(files, disk_reserve=0)
        promised(store, sent)
        assert work(store, [bodies(store, q) for q in range(3)], 30, start=1000) == 0
    assert nth < 399
    if call in ("pwrite", "sync"):
        assert ended > 5
    if call == "allocate":
        assert refused > 5
        assert ended == 0


def test_a_store_that_found_no_space_to_open_leaves_its_checkpoint_alone() -> None:
    files = FaultyFiles()
    store = opened(files)
    put(store)
    store.close(START_MS)
    files.fail("sync", 1, errno.ENOSPC)
    store = MessageStore(small_config(), files, HOST)
    with pytest.raises(StoreError, match="no space to open the store"):
        store.open(START_MS)

    assert store.plan_queue_flush() is None  # the beat of a broker that does not know yet
    assert store.plan_sync() is None
    files.work_again()
    assert bodies(opened(files), 0) == [b"x"]


def test_deletion_and_truncation_need_no_space() -> None:
    files = FaultyFiles()
    store = opened(files, disk_reserve=0, file_reserved_bytes=4096)
    sent: list[list[bytes]] = [[], [], []]
    work(store, sent, 200)
    store.flush_all()
    files.set_capacity(files.used)
    before = files.used
    plan = store.plan_retention(START_MS, DiskUsage(1000 << 20, 0))
    assert plan is not None
    plan.run()
    assert files.used < before
    store.write_pending()
    put(store, b"torn")
    store.write_pending()
    files.set_capacity(files.used)
    after = files.crash()
    store = MessageStore(small_config(disk_reserve=0), after, HOST)
    store.open(START_MS)  # truncates what the cut has torn
    for queue_id in range(3):
        kept = [body for body in bodies(store, queue_id) if body != b"torn"]  # it may be whole
        assert (
            kept[: len(sent[queue_id])] == sent[queue_id][-len(kept) :][: len(kept)] or kept == []
        )


def test_a_topic_can_be_deleted_on_a_full_disk() -> None:
    files = FaultyFiles()
    store = opened(files, disk_reserve=0)
    work(store, [[], [], []], 50)
    files.set_capacity(files.used)
    before = files.used
    store.delete_topic("T")
    assert files.used < before
    assert store.topics() == []
