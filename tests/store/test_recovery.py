"""Opening what others left behind: garbage, holes, prefixes, missing files."""

import pytest
from tests.records import append_message, read_queue
from tests.store.crash_model import BORN, HOST, START_MS, small_config

from roquette.errors import StoreError
from roquette.store.message_store import MessageStore
from roquette_testing.faulty_files import FaultyFiles

COUNT = 60


def filled(*, synced: bool = True) -> tuple[FaultyFiles, list[int]]:
    """A store of some files that was killed, or had its power cut when all was written but not synced."""
    files = FaultyFiles()
    store = MessageStore(small_config(), files, HOST)
    store.open(START_MS)
    places = [
        append_message(
            store, "T", n % 2, 0, 0, 0, BORN, 0, "", 0, b"x" * 60, START_MS + n
        ).physical_offset
        for n in range(COUNT)
    ]
    if synced:
        store.flush_all()
        files.kill()
    else:
        store.write_pending()
        files.restart()
    return files, places


def reopened(files: FaultyFiles) -> MessageStore:
    store = MessageStore(small_config(), files, HOST)
    store.open(START_MS)
    return store


def readable(store: MessageStore) -> int:
    return sum(
        read_queue(store, "T", queue_id, offset, 1, 1, None).count
        for queue_id in store.queues_of("T")
        for offset in range(store.max_offset("T", queue_id))
    )


@pytest.mark.parametrize("garbage", [b"\xff" * 40, b"\0\0\0\x50garbage", b"\xda\xa3\x20\xa7" * 9])
def test_garbage_behind_the_log_is_dropped_and_wiped(garbage: bytes) -> None:
    files, _ = filled()
    end = reopened(files).max_physical_offset
    files.kill()
    name = files.list_dir("/s/commitlog")[-1]
    files.open_file(f"/s/commitlog/{name}").pwrite(garbage, end % 4096)

    store = reopened(files)

    assert store.max_physical_offset == end
    assert readable(store) == COUNT
    assert files.read_bytes(f"/s/commitlog/{name}")[end % 4096 :].strip(b"\0") == b""


def test_an_empty_log_that_begins_late_keeps_its_file() -> None:
    """A power cut took the first file, and all records of the second: nothing had been synced."""
    late = f"/s/commitlog/{4096:020d}"
    files = FaultyFiles.holding({late: bytes(4096), "/s/abort": b""}, ["/s", "/s/commitlog"])

    store = reopened(files)
    assert store.max_physical_offset == 4096
    store.flush_all()  # from now on the checkpoint speaks of 4096
    files = files.crash()  # and whatever was not synced is gone

    store = reopened(files)  # not refused: nothing is missing
    assert store.min_physical_offset == store.max_physical_offset == 4096


def test_a_truncated_tail_does_not_come_back(  # Apache's issue 10666
) -> None:
    files, places = filled(synced=False)
    last = places[-2]
    segment = files.open_file(f"/s/commitlog/{last - last % 4096:020d}")
    segment.pwrite(b"\xff\xff", last % 4096 + 4)  # the last record but one is damaged
    store = reopened(files)
    assert store.max_physical_offset == last
    files.kill()

    append_message(
        store, "T", 0, 0, 0, 0, BORN, 0, "", 0, b"y" * 60, START_MS
    )  # as long as the damaged
    store.write_pending()
    files.kill()
    store = reopened(files)

    assert store.max_physical_offset == places[-1]


@pytest.mark.parametrize("size", [0, 1, 20, 50, 319])
def test_a_consume_queue_file_of_any_prefix_is_mended(size: int) -> None:  # Apache's issue 9728
    files, _ = filled()
    for name in files.list_dir("/s/consumequeue/T/0"):
        path = f"/s/consumequeue/T/0/{name}"
        data = files.read_bytes(path)
        files.write_atomic(path, data[:size], keep_backup=False)

    assert readable(reopened(files)) == COUNT


@pytest.mark.parametrize("path", ["/s/consumequeue/T/0", "/s/consumequeue", "/s/index"])
def test_derived_directories_can_be_removed(path: str) -> None:
    files, _ = filled()
    files.remove_tree(path)
    files.remove("/s/checkpoint")

    assert readable(reopened(files)) == COUNT


@pytest.mark.parametrize("missing", range(4))
def test_any_consume_queue_file_can_be_missing(missing: int) -> None:
    files, _ = filled()
    files.remove("/s/checkpoint")
    names = files.list_dir("/s/consumequeue/T/1")
    if missing < len(names):
        files.remove(f"/s/consumequeue/T/1/{names[missing]}")

    assert readable(reopened(files)) == COUNT


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("settings", [{}, {"max_index_entries": 77}])
def test_an_index_that_is_gone_or_of_other_settings_is_made_anew(
    clean: bool, settings: dict[str, int]
) -> None:  # Apache's issue 8007
    files = FaultyFiles()
    store = MessageStore(small_config(), files, HOST)
    store.open(START_MS)
    for n in range(COUNT):
        topic = "gone" if n == 3 else "T"
        named = f"KEYS\x01k{n}\x02UNIQ_KEY\x01u{n}\x02"
        keys = {"keys": f"k{n}", "uniq_key": f"u{n}"}
        append_message(store, topic, 0, 0, 0, 0, BORN, 0, named, 0, b"x" * 60, START_MS + n, **keys)
    store.delete_topic("gone")
    store.flush_all()
    if clean:
        store.close(START_MS)
    files.kill()
    if not settings:
        files.remove_tree("/s/index")

    store = MessageStore(small_config(**settings), files, HOST)
    store.open(START_MS)

    for n in range(COUNT):
        topic = "gone" if n == 3 else "T"
        for key in (f"k{n}", f"u{n}"):
            assert len(store.query(topic, key, 32, 0, 1 << 62)) == 1, key
    assert not clean or store.queues_of("gone") == []


def test_an_index_half_made_anew_is_made_anew_again() -> None:
    files, _ = filled()
    store = reopened(files)
    for n in range(COUNT):
        named = f"UNIQ_KEY\x01u{n}\x02"
        append_message(store, "K", 0, 0, 0, 0, BORN, 0, named, 0, b"x", START_MS, uniq_key=f"u{n}")
    store.close(START_MS)
    _, *others = files.list_dir("/s/index")
    assert others
    for name in others:
        files.remove(f"/s/index/{name}")
    files.write_atomic("/s/index.building", b"", keep_backup=False)

    store = reopened(files)

    assert all(len(store.query("K", f"u{n}", 32, 0, 1 << 62)) == 1 for n in range(COUNT))
    assert not files.exists("/s/index.building")


def test_records_across_a_file_edge_are_dispatched_again() -> None:  # Apache's issue 467
    files, _ = filled()
    files.remove("/s/checkpoint")
    files.remove_tree("/s/consumequeue")

    store = reopened(files)

    assert len(files.list_dir("/s/commitlog")) > 2
    assert readable(store) == COUNT


def test_another_file_size_is_refused_in_words() -> None:
    files, _ = filled()

    with pytest.raises(StoreError, match="mappedFileSizeCommitLog is 8192"):
        MessageStore(small_config(segment_size=8192), files, HOST).open(START_MS)


def test_a_clean_stop_needs_no_walk() -> None:
    files, _ = filled()
    reopened(files).close(START_MS)
    store = MessageStore(small_config(), files, HOST)

    report = store.open(START_MS)

    assert not report.abnormal
    assert report.walked_records == 1
    assert not report.dispatched


def sent(store: MessageStore, body: bytes, now_ms: int = START_MS) -> int:
    done = append_message(store, "T", 0, 0, 0, 0, BORN, 0, "", 0, body, now_ms)
    return done.physical_offset


def test_an_offset_given_twice_takes_nothing_from_the_queue() -> None:
    """Apache's broker passes over a record when it opens a store, and gives its offset once more later."""
    files = FaultyFiles()
    store = MessageStore(small_config(), files, HOST)
    store.open(START_MS)
    places = [sent(store, b"%d" % n) for n in range(10)]
    store.close(START_MS)
    # The unit of record 6 is lost, those of 7 to 9 stand one place before their offset: so Apache leaves it.
    path = "/s/consumequeue/T/0/" + files.list_dir("/s/consumequeue/T/0")[0]
    units = files.read_bytes(path)
    moved = units[: 6 * 20] + units[7 * 20 : 10 * 20] + bytes(20) + units[10 * 20 :]
    files.open_file(path).pwrite(moved, 0)
    files.open_file("/s/checkpoint").pwrite(b"\0" * 8, 0)  # it has written that, too

    store = reopened(files)
    assert store.max_offset("T", 0) == 9
    again = sent(store, b"9 again")
    store.close(START_MS)
    store = reopened(files)
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, 10)
    shown = [store.queue_units("T", 0, n, 1) for n in range(10)]
    assert [unit[0][0] for unit in shown if unit] == [*places[:6], *places[7:], again]

    files.kill()
    files.remove_tree("/s/consumequeue")  # all is made anew from the log, the lost record too
    store = reopened(files)
    shown = [store.queue_units("T", 0, n, 1) for n in range(store.max_offset("T", 0))]
    assert [unit[0][0] for unit in shown if unit] == [*places, again]
    assert store.min_offset("T", 0) == 0


@pytest.mark.parametrize("size", [20 * 8, 20 * 24, 20 * 160])
def test_another_queue_file_size_is_refused_in_words(size: int) -> None:
    files, _ = filled()
    paths = [
        f"/s/consumequeue/T/{queue_id}/{name}"
        for queue_id in (0, 1)
        for name in files.list_dir(f"/s/consumequeue/T/{queue_id}")
    ]
    before = [files.read_bytes(path) for path in paths]

    with pytest.raises(StoreError, match=f"has 320 bytes, mappedFileSizeConsumeQueue is {size}"):
        MessageStore(small_config(queue_file_size=size), files, HOST).open(START_MS)

    assert [files.read_bytes(path) for path in paths] == before
