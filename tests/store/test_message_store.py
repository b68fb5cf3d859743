"""The facade: appends, reads by Apache's table, searches, limits, retention, faults."""

import errno
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.records import append_batch, append_message, read_queue
from tests.store.crash_model import BORN, HOST, START_MS, small_config

from roquette.base.files import OsFiles
from roquette.base.javatypes import java_hash
from roquette.errors import MessageIllegal, StoreClosed, StoreError, StoreFull
from roquette.message.properties import KEYS, TAGS, UNIQ_KEY, property_value
from roquette.message.record import decode_record, decode_records, encode_batch
from roquette.store.format.config import FlushDiskType
from roquette.store.format.results import Appended, GetStatus
from roquette.store.log.commit_log import PENDING_LIMIT
from roquette.store.message_store import MessageStore
from roquette.store.queue_read import QueueRead, ReadRequest
from roquette_testing.faulty_files import FaultyFiles

HOUR_MS = 3_600_000


def opened(files: FaultyFiles, **changes: object) -> MessageStore:
    store = MessageStore(small_config(**changes), files, HOST)
    store.open(START_MS)
    return store


def put(
    store: MessageStore, body: bytes = b"hello", at: int = START_MS, tags: int = 0, topic: str = "T"
) -> Appended:
    return append_message(store, topic, 0, 0, 0, at, BORN, 0, "", tags, body, at)


def status(store: MessageStore, offset: int) -> tuple[GetStatus, int]:
    found = read_queue(store, "T", 0, offset, 32, 1 << 20, None)
    return found.status, found.next_begin_offset


def test_reads_answer_by_apaches_table() -> None:
    store = opened(FaultyFiles())
    assert status(store, 0) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)

    for _ in range(3):
        put(store)

    assert status(store, 0) == (GetStatus.FOUND, 3)
    assert status(store, 3) == (GetStatus.OFFSET_OVERFLOW_ONE, 3)
    assert status(store, 9) == (GetStatus.OFFSET_OVERFLOW_BADLY, 3)
    assert status(store, -1) == (GetStatus.OFFSET_TOO_SMALL, 0)


def test_neighbours_in_the_log_are_one_run() -> None:
    store = opened(FaultyFiles())
    for number in range(5):
        put(store, b"%d" % number)

    found = read_queue(store, "T", 0, 0, 32, 1 << 20, None)

    assert len(found.runs) == 1
    assert found.count == 5
    assert found.size == len(found.runs[0])


def test_the_first_message_always_fits_the_byte_limit() -> None:
    store = opened(FaultyFiles())
    put(store, b"x" * 500)
    put(store)

    found = read_queue(store, "T", 0, 0, 32, 1, None)

    assert found.count == 1


def test_a_filter_compares_tags_codes_as_signed_int32() -> None:
    store = opened(FaultyFiles())
    put(store, b"a", tags=-5)
    put(store, b"b", tags=7)

    found = read_queue(store, "T", 0, 0, 32, 1 << 20, frozenset({-5}))
    none = read_queue(store, "T", 0, 0, 32, 1 << 20, {1})

    assert [decode_record(run, 0, True).body for run in found.runs] == [b"a"]
    assert found.next_begin_offset == 2
    assert (none.status, none.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 2)


def test_a_filtered_read_looks_at_a_bounded_number_of_units() -> None:
    store = opened(FaultyFiles(), queue_file_size=20 * 2000, segment_size=1 << 20)
    for _ in range(1000):
        put(store, b"", tags=1)

    found = read_queue(store, "T", 0, 0, 32, 1 << 20, {2})

    assert found.next_begin_offset == 801


def test_a_cold_read_can_be_left_to_the_executor() -> None:
    store = opened(FaultyFiles(memory=1000))
    for number in range(40):
        put(store, b"%d" % number)

    later = store.begin_read(ReadRequest("T", 0, 0, 32, 1 << 20))
    direct = read_queue(store, "T", 0, 0, 32, 1 << 20, None)

    assert isinstance(later, QueueRead)
    found = later.run()
    assert found.cold
    assert found.count == 8  # maxTransferCountOnMessageInDisk
    assert found.runs == direct.runs


def test_searches_by_time_follow_both_boundaries() -> None:
    store = opened(FaultyFiles())
    for at in (10, 20, 20, 30):
        put(store, at=START_MS + at)

    lower = [store.offset_by_time("T", 0, START_MS + at) for at in (0, 10, 20, 25, 30, 31)]
    upper = [store.offset_by_time("T", 0, START_MS + at, True) for at in (0, 10, 20, 25, 30, 31)]

    assert lower == [0, 0, 1, 3, 3, 4]
    assert upper == [0, 0, 2, 2, 3, 3]


def test_prepared_and_rolled_back_messages_stay_out_of_the_queue() -> None:
    store = opened(FaultyFiles())
    for sys_flag in (4, 12):
        done = append_message(store, "T", 0, 0, sys_flag, 0, BORN, 0, "", 0, b"", START_MS)
        assert done.queue_offset == 0

    assert store.max_offset("T", 0) == 0
    assert store.take_arrivals() == []


def test_a_batch_is_refused_whole_when_one_message_is_too_big() -> None:
    store = opened(FaultyFiles(), max_message_size=10)
    batch = encode_batch([(0, body, b"") for body in (b"ok", b"x" * 11)])

    with pytest.raises(MessageIllegal, match="maxMessageSize"):
        append_batch(store, "T", 0, 0, 0, BORN, 0, batch, START_MS)

    assert store.max_physical_offset == 0


WORDS = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=5)
PROPERTIES = st.lists(
    st.tuples(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "TAGSX", "A", ""]), WORDS),
    max_size=5,
).map(lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs))


@settings(max_examples=60, deadline=None)
@example([(b"x", "TAGS\x01\0\x02")], 0)  # the hash is that of no tag
@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=700), PROPERTIES), min_size=1, max_size=40),
    st.integers(0, 40),
)
def test_a_batch_leaves_the_same_files_as_its_messages_one_by_one(
    messages: list[tuple[bytes, str]], before: int
) -> None:
    """`before`: so many are in a batch before it."""
    alone, together = FaultyFiles(), FaultyFiles()
    together._boot_id = alone.boot_id
    store = opened(alone)
    done = []
    for body, text in messages:
        tags = property_value(text, TAGS)
        code = java_hash(tags) if tags else 0
        keys, unique = property_value(text, KEYS), property_value(text, UNIQ_KEY)
        done.append(
            append_message(
                store, "T", 1, 7, 0, 5, BORN, 2, text, code, body, START_MS, keys, unique
            )
        )
    arrived = [(a.queue_offset, a.tags_code, a.physical_offset) for a in store.take_arrivals()]
    store.close(START_MS)
    batched = opened(together)
    entries = [(7, body, text.encode()) for body, text in messages]
    if before := min(before, len(entries) - 1):
        first = encode_batch(entries[:before])
        append_batch(batched, "T", 1, 0, 5, BORN, 2, first, START_MS)
    batch = encode_batch(entries[before:])
    one = append_batch(batched, "T", 1, 0, 5, BORN, 2, batch, START_MS)
    assert arrived == [
        (a.queue_offset, a.tags_code, a.physical_offset) for a in batched.take_arrivals()
    ]
    batched.close(START_MS)

    assert (one.queue_offset, one.end_offset) == (before, done[-1].end_offset)
    assert one.size == sum(single.size for single in done[before:])
    assert [(a.queue_offset, a.physical_offset) for a in one.messages] == [
        (single.queue_offset, single.physical_offset) for single in done[before:]
    ]
    assert all_files(together) == all_files(alone)


def all_files(files: FaultyFiles, folder: str = "/s") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in files.list_dir(folder):
        path = f"{folder}/{name}"
        if files.list_dir(path):
            found |= all_files(files, path)
        elif path != "/s/config":  # the broker's, still empty
            found[path] = files.read_bytes(path)
    return found


@pytest.mark.promise("The log", "an append that fails leaves every file as it was")
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("bad", [2**64, "x", None])
@pytest.mark.parametrize("field", ["sys_flag", "born_ms", "reconsume_times", "now_ms"])
def test_an_append_that_fails_leaves_nothing_behind(field: str, bad: Any, batch: bool) -> None:
    files = FaultyFiles()
    store = opened(files)
    put(store, b"before")
    store.take_arrivals()
    store.write_pending()
    before = all_files(files)
    end = store.max_physical_offset
    given: dict[str, Any] = {
        "topic": "T", "queue_id": 0, "sys_flag": 0, "born_ms": 5, "born_host": BORN, "reconsume_times": 0,
        "now_ms": START_MS,
    }  # fmt: skip
    if batch:
        given["batch"] = encode_batch([(7, b"x", b"KEYS\x01k\x02TAGS\x01t\x02") for _ in range(9)])
        append: Any = append_batch
    else:
        given |= {"flag": 0, "properties": "KEYS\x01k\x02", "tags_code": 0, "body": b"x"}
        append = append_message

    with pytest.raises((OverflowError, ValueError, TypeError, struct.error)):
        append(store, **given | {field: bad})

    store.write_pending()
    assert all_files(files) == before
    assert (store.max_physical_offset, store.max_offset("T", 0)) == (end, 1)
    assert store.take_arrivals() == []
    if batch:
        append(store, **given)
        found = read_queue(store, "T", 0, 1, 32, 1 << 20)
        assert [record.body for record in decode_records(found.runs[0], True)] == [b"x"] * 9
    put(store, b"after")
    store = opened(files.crash())
    assert store.max_offset("T", 0) in (0, 1, 2, 10, 11)


def test_small_batches_and_large_ones_follow_each_other() -> None:
    """The memory of a small batch's records is that of the one before it."""
    store = opened(FaultyFiles(), segment_size=8 << 20)
    sent = [b"small", b"x" * (PENDING_LIMIT - 100), b"y" * (PENDING_LIMIT + 1), b"again"]
    for body in sent:
        append_batch(store, "T", 0, 0, 0, BORN, 0, encode_batch([(0, body, b"")]), START_MS)

    log = store.read_log(0, store.max_physical_offset)
    assert [record.body for record in decode_records(log, True)] == sent


@pytest.mark.parametrize("torn", [b"", b"\0" * 21])
def test_what_is_no_batch_stores_nothing(torn: bytes) -> None:
    store = opened(FaultyFiles())

    with pytest.raises(MessageIllegal):
        append_batch(store, "T", 0, 0, 0, BORN, 0, torn, START_MS)

    assert store.max_physical_offset == 0


@pytest.mark.parametrize("topic", ["../x", "a/b", "", ".."])
def test_a_topic_never_leads_out_of_the_store(topic: str) -> None:
    store = opened(FaultyFiles())

    with pytest.raises(MessageIllegal):
        put(store, topic=topic)


def test_a_deleted_topic_starts_again_at_zero_even_after_a_crash() -> None:
    files = FaultyFiles()
    store = opened(files)
    for _ in range(5):
        put(store, b"old")
    store.delete_topic("T")
    put(store, b"new")
    store.flush_all()

    store = opened(files.crash())

    found = read_queue(store, "T", 0, 0, 1, 1, None)
    assert store.max_offset("T", 0) == 1
    assert decode_record(found.runs[0], 0, True).body == b"new"


def test_queues_go_on_where_they_were_when_the_log_head_is_deleted() -> None:
    files = FaultyFiles()
    store = opened(files, delete_when="00;01;02;03;04;05;06;07;08;09;10;11;12;13;14;15;16;17;18;"
                                      "19;20;21;22;23")  # fmt: skip
    for _ in range(200):
        put(store, b"x" * 50)
    store.flush_all()

    assert store.plan_retention(START_MS + 71 * HOUR_MS) is None
    plan = store.plan_retention(START_MS + 73 * HOUR_MS)
    assert plan is not None
    plan.run()

    first = store.min_offset("T", 0)
    assert first > 0
    assert status(store, 0) == (GetStatus.OFFSET_TOO_SMALL, first)
    assert store.max_offset("T", 0) == 200
    assert f"{store.min_physical_offset:020d}" == files.list_dir("/s/commitlog")[0]


def test_no_space_for_a_new_file_refuses_without_harm() -> None:
    files = FaultyFiles()
    store = opened(files)
    put(store)
    files.set_capacity(files.used)

    with pytest.raises(StoreFull):
        for _ in range(100):
            put(store, b"x" * 200)
    before = store.max_offset("T", 0)
    files.set_capacity(1 << 30)
    done = put(store)

    assert done.queue_offset == before


def test_a_failed_sync_ends_writing_for_good() -> None:
    files = FaultyFiles()
    store = opened(files)
    put(store)
    plan = store.plan_sync()
    assert plan is not None
    files.fail("sync")
    plan.run()

    with pytest.raises(StoreClosed, match="syncing"):
        store.synced(plan)
    with pytest.raises(StoreClosed):
        put(store)
    assert store.synced_offset == 0
    assert store.plan_sync() is None


def test_a_failed_write_promises_nothing_and_leaves_the_abort_file() -> None:
    files = FaultyFiles()
    store = opened(files)
    put(store)
    files.fail("pwrite", error=errno.EIO)

    with pytest.raises(StoreClosed, match="writing"):
        store.write_pending()
    store.close(START_MS)

    assert files.exists("/s/abort")


def test_pending_bytes_are_bounded() -> None:
    store = opened(FaultyFiles(), segment_size=8 << 20)
    for _ in range(3):
        put(store, b"x" * 500_000)

    assert store.wrote > 0


def test_two_processes_cannot_share_a_store(tmp_path: Path) -> None:
    config = small_config(root_dir=str(tmp_path))
    store = MessageStore(config, OsFiles(), HOST)
    store.open(START_MS)

    with pytest.raises(StoreError, match="another process"):
        MessageStore(config, OsFiles(), HOST).open(START_MS)
    store.close(START_MS)


def test_a_segment_made_ahead_is_used() -> None:
    files = FaultyFiles()
    store = opened(files)
    plan = None
    while plan is None:
        put(store, b"x" * 200)
        plan = store.plan_allocation()
    plan.run()
    store.allocated(plan)
    for _ in range(20):
        put(store, b"x" * 200)
    store.write_pending()

    assert files.list_dir("/s/commitlog")[1] == f"{4096:020d}"
    assert files.list_dir("/s/commitlog.ahead") == []


def test_under_sync_flush_readers_see_only_what_is_on_the_disk() -> None:
    store = opened(FaultyFiles(), flush_disk_type=FlushDiskType.SYNC_FLUSH)
    put(store, b"one")
    store.write_pending()

    assert status(store, 0) == (GetStatus.OFFSET_OVERFLOW_ONE, 0)
    assert store.take_arrivals() == []
    plan = store.plan_sync()
    assert plan is not None
    plan.run()
    put(store, b"two")
    store.synced(plan)

    assert status(store, 0) == (GetStatus.FOUND, 1)
    assert [arrival.queue_offset for arrival in store.take_arrivals()] == [0]
    assert status(store, 1) == (GetStatus.OFFSET_OVERFLOW_ONE, 1)


def test_under_async_flush_readers_see_everything() -> None:
    store = opened(FaultyFiles())
    put(store)

    assert status(store, 0) == (GetStatus.FOUND, 1)


def test_a_message_that_is_not_synced_yet_is_waited_for_behind_old_ones_too() -> None:
    """A read that begins at what was there at start ends before it, and does not go past it as damaged."""
    files = FaultyFiles()
    store = opened(files, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    for _ in range(3):
        put(store)
    store.close(START_MS)
    store = opened(files, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    put(store, b"new")
    assert status(store, 0) == (GetStatus.FOUND, 3)
    assert status(store, 2) == (GetStatus.FOUND, 3)
    assert status(store, 3) == (GetStatus.OFFSET_OVERFLOW_ONE, 3)
    codes = read_queue(store, "T", 0, 0, 32, 1 << 20, {0})
    assert (codes.count, codes.next_begin_offset) == (3, 3)
    plan = store.plan_sync()
    assert plan is not None
    plan.run()
    store.synced(plan)
    assert status(store, 0) == (GetStatus.FOUND, 4)


def test_nothing_is_read_ahead_in_a_file_that_grows() -> None:
    """Behind its end are holes: where the system reads 8 MiB ahead, a first message would cost as many zeros."""
    files = FaultyFiles()
    store = opened(files)

    def told(kind: str) -> tuple[int, int]:
        return tuple(files.calls.get(f"read_ahead {on} {kind}", 0) for on in ("false", "true"))

    for number in range(130):
        append_message(store, "T", 0, 0, 0, START_MS, BORN, 0, "KEYS\x01k\x02", 0, b"x", START_MS)
        store.write_pending()
        store.take_arrivals()
        assert told("0") == (number // 16 + 1, number // 16)
        assert told("index") == (number // 59 + 1, number // 59)
    store.close(START_MS)


def test_read_ahead_is_set_for_the_files_there_are_and_those_to_come() -> None:
    files = FaultyFiles()
    store = opened(files)

    def files_told(on: str) -> int:
        return files.calls.get(f"read_ahead {on} commitlog", 0)

    while len(store._log.segments) < 3:
        put(store, bytes(500))
    assert files_told("false") == files_told("true") == 0
    store.reconfigure(small_config(data_read_ahead_enable=False))
    assert files_told("false") == 3
    while len(store._log.segments) < 4:
        put(store, bytes(500))
    assert files_told("false") == 4
    store.reconfigure(small_config(data_read_ahead_enable=False))
    assert files_told("false") == 4, "a change of other settings tells nobody"
    store.reconfigure(small_config())
    assert files_told("true") == 4
    store.close(START_MS)
    opened(files, data_read_ahead_enable=False).close(START_MS)
    assert files_told("false") >= 8, "those that are opened are told, too"
