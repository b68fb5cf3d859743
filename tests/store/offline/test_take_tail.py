"""What only a replica has is taken into its master's store, whatever cuts it off; what is not its own is refused."""

import random
from pathlib import Path

import pytest
from tests.crash_states import CrashStates
from tests.store.explorer import CHOICES
from tests.store.offline.stores import HOST, SEGMENT, START_MS, TOPICS, append, config

from roquette.errors import StoreError
from roquette.store.audit.findings import DAMAGE
from roquette.store.message_store import MessageStore
from roquette.store.offline.fsck import FsckOptions, check_store
from roquette.store.offline.store_dir import find_store
from roquette.store.offline.take_tail import take_tail
from roquette_testing.faulty_files import FaultyFiles
from roquette_testing.recorded_files import Mark, RecordedFiles

MASTER, REPLICA = "/s", "/replica"
LATER_MS = START_MS + 1_000_000


def opened(files: FaultyFiles, root: str) -> MessageStore:
    store = MessageStore(config(Path(root)), files, HOST)
    store.open(LATER_MS)
    return store


def fill(files: FaultyFiles, root: str, numbers: range) -> int:
    """Append these messages: equal numbers are equal bytes. Returns where the log ends."""
    store = opened(files, root)
    for number in numbers:
        append(store, number)
    end = store.max_physical_offset
    store.close(LATER_MS)
    return end


def pair(common: int, more: int, other: int = 0) -> FaultyFiles:
    """A replica with `more` messages than its master; the master has `other` ones of its own since."""
    files = FaultyFiles()
    fill(files, REPLICA, range(common + more))
    fill(files, MASTER, range(common))
    fill(files, MASTER, range(1000, 1000 + other))
    return files


def take(files: FaultyFiles) -> tuple[int, int, int]:
    return take_tail(files, files, find_store(files, MASTER), find_store(files, REPLICA))


def check(files: FaultyFiles) -> None:
    """The master's store, once opened, has what the replica's has."""
    ours, theirs = opened(files, MASTER), opened(files, REPLICA)
    end = theirs.max_physical_offset
    assert ours.max_physical_offset == end
    for at in range(0, end, SEGMENT):
        assert ours.read_raw(at, SEGMENT) == theirs.read_raw(at, SEGMENT)
    assert ours.topics() == theirs.topics()
    for topic in theirs.topics():
        for queue in theirs.queues_of(topic):
            assert ours.max_offset(topic, queue) == theirs.max_offset(topic, queue)
    for number in range(0, 200, 7):
        topic, key = TOPICS[number % 2], f"key{number}"
        found, known = (set(one.query(topic, key, 64, 0, 1 << 62)) for one in (ours, theirs))
        assert found == known
    append(ours, 5000)
    for store in (ours, theirs):
        store.close(LATER_MS)
    report = check_store(files, find_store(files, MASTER), FsckOptions())
    assert [one for one in report.findings if one.severity == DAMAGE] == []


@pytest.mark.promise("Replication", "messages that a lone master lost are taken from its replica")
@pytest.mark.parametrize(("common", "more"), [(40, 5), (40, 150), (149, 1), (1, 80)])
def test_what_the_replica_has_more_is_appended_and_found(common: int, more: int) -> None:
    files = pair(common, more)
    begin = opened_end(files, MASTER)
    end = opened_end(files, REPLICA)

    assert take(files) == (begin, end, more)

    check(files)


def opened_end(files: FaultyFiles, root: str) -> int:
    store = opened(files, root)
    end = store.max_physical_offset
    store.close(LATER_MS)
    return end


def test_a_store_that_was_not_stopped_and_has_a_torn_end_takes_it() -> None:
    files = pair(40, 60)
    end = opened_end(files, MASTER)
    opened(files, MASTER)
    files.kill()
    file = files.open_file(f"{MASTER}/commitlog/{end // SEGMENT * SEGMENT:020d}")
    file.pwrite(b"\0\0\1\0torn", end % SEGMENT)

    assert take(files)[2] == 60
    check(files)


def test_at_the_start_of_a_file_and_where_nothing_is_behind() -> None:
    files = pair(40, 60)
    images, directories = files.snapshot()
    last = max(path for path in images if path.startswith(f"{MASTER}/commitlog/"))
    images[last] = bytes(SEGMENT)  # the newest file has nothing yet
    files = FaultyFiles.holding(images, directories)

    take(files)

    check(files)


def test_logs_that_are_not_one_are_left_as_they_are() -> None:
    parted, behind, other = pair(40, 5, other=1), pair(40, 0, other=3), FaultyFiles()
    fill(other, MASTER, range(500, 540))
    fill(other, REPLICA, range(60))
    for files, words in (
        (parted, "one log cannot hold both"),
        (behind, "nothing to take"),
        (other, "differ before offset"),
        (pair(40, 0), "nothing to take"),
        (pair(0, 5), "differ before offset"),
    ):
        before = files.snapshot()
        with pytest.raises(StoreError, match=words):
            take(files)
        assert files.snapshot() == before


def test_a_damaged_tail_is_not_taken_and_a_group_is_refused() -> None:
    files = pair(40, 60)
    end = opened_end(files, MASTER)
    before = files.snapshot()
    file = files.open_file(f"{REPLICA}/commitlog/{end // SEGMENT * SEGMENT:020d}")
    file.pwrite(b"\xff", end % SEGMENT + 95)
    with pytest.raises(StoreError, match="is damaged at byte"):
        take(files)
    file.close()

    files = FaultyFiles.holding(*before)
    files.open_file(f"{MASTER}/roquetteMember.json", create=True).close()
    with pytest.raises(StoreError, match="is a group's"):
        take(files)


def test_taking_that_a_power_cut_ends_leaves_a_log_and_is_finished_by_taking_again() -> None:
    rng = random.Random(1)
    files = RecordedFiles(*pair(40, 90).snapshot())
    begin, end, _ = take(files)
    device, ends = CrashStates(files, MASTER), set()
    number = 0
    while (entry := device.step()) is not None:
        if isinstance(entry, Mark):
            continue
        for _ in range(8):
            number += 1
            state = device.state(CHOICES[number % len(CHOICES)], rng)
            found = FaultyFiles.holding(state.files, state.directories)
            if number % 2:
                ends.add(opened_end(found, MASTER))  # a start in between disturbs nothing
            if opened_end(FaultyFiles.holding(*found.snapshot()), MASTER) < end:
                take(found)
            if number % 3 == 0:
                check(found)
    assert number > 100
    assert min(ends) == begin
    assert max(ends) == end
    assert len(ends) > 3
