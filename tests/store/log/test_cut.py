"""A closed store's log is cut, or dropped: nothing of what went stays in it, all of it is kept beside, and no power cut
in between loses any."""

import errno
import random
from pathlib import Path

import pytest
from tests.crash_states import CrashStates
from tests.records import append_message
from tests.store.crash_check import LATER_MS, Check
from tests.store.crash_workload import BORN, HOST, START_MS, Owed, Workload, crash_config
from tests.store.explorer import CHOICES

from roquette.base.files import OsFiles, OsReadFiles
from roquette.errors import OffsetOutOfRange, StoreError
from roquette.message.names import SCHEDULE_TOPIC, TIMER_TOPIC
from roquette.message.record_layout import StoredRecord
from roquette.store.audit.findings import DAMAGE
from roquette.store.cut import _look, cut_log, drop_log
from roquette.store.format.layout import StoreLayout, parse_offset_name
from roquette.store.message_store import MessageStore
from roquette.store.offline.dump import dump_file, kind_of
from roquette.store.offline.fsck import FsckOptions, check_store
from roquette.store.offline.search import Query, search
from roquette.store.offline.store_dir import find_store
from roquette.store.timer_store import TimerStore
from roquette_testing.faulty_files import FaultyFiles
from roquette_testing.recorded_files import Link, Mark, RecordedFiles

ROOT = "/s"
LAYOUT = StoreLayout(ROOT)


def log_bounds(files, config):
    """Where the log of a closed store begins and ends, after a recovery that cuts it at damage."""
    found = _look(files, config, 0)
    return found.begin, found.end


def workload(seed: int, operations: int = 700) -> Workload:
    """A store with everything in it, closed; no topic was deleted, so all is promised."""
    work = Workload(seed)
    while work.operations < operations:
        work.operations += 1
        dice = work.random.random()
        if dice < 0.9:
            work.append()
        elif dice < 0.95:
            work.batch()
        elif dice < 0.97:
            work.flush_queues()
        else:
            work.sync()
    work.store.flush_all()
    work.store.close(work.now_ms)
    work.store = MessageStore(work.config, work.files, HOST)
    work.store.open(work.now_ms)
    work.settle()
    work.store.close(work.now_ms)
    return work


def check(work: Workload, files: FaultyFiles, acked: int, *, thorough: bool = True) -> Check:
    found = Check(files, work.config, work.life, Owed(acked=acked), random.Random(acked))
    found.log()
    found.queues()
    found.samples()
    if thorough:
        found.goes_on()
    return found


def held(work: Workload) -> FaultyFiles:
    return FaultyFiles.holding(*work.files.snapshot())


def fsck(files: FaultyFiles) -> list[str]:
    report = check_store(files, find_store(files, ROOT), FsckOptions())
    return [finding.message for finding in report.findings if finding.severity == DAMAGE]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.95])
def test_after_a_cut_log_queues_and_index_end_there(share: float) -> None:
    work = workload(1)
    messages = work.life.messages
    at = messages[int(len(messages) * share)].physical
    files = held(work)

    report = cut_log(files, work.config, at)

    assert (report.offset, report.end) == (at, messages[-1].end)
    assert log_bounds(files, work.config) == (0, at)
    found = check(work, files, at, thorough=False)
    assert found.end == at
    assert not found.report.damaged_bytes
    if share:
        assert found.report.walked_records < len(messages) * share  # not all of the log
    gone = next(m for m in messages if m.physical >= at and m.indexed)
    store = MessageStore(work.config, files, HOST)
    files.kill()  # what the check has open
    store.open(LATER_MS)
    assert gone.data not in store.query(gone.topic, gone.key, 64, 0, 1 << 62)
    store.close(LATER_MS)
    assert fsck(files) == []


def test_a_cut_at_the_start_of_a_file_and_at_a_blank() -> None:
    work = workload(2)
    messages, size = work.life.messages, work.config.segment_size
    rolled = next(n for n, m in enumerate(messages) if m.physical == 2 * size)
    for at in (2 * size, messages[rolled - 1].end):
        files = held(work)
        cut_log(files, work.config, at)
        assert check(work, files, messages[rolled - 1].end).end in (at, 2 * size)
        assert f"{LAYOUT.commit_log}/{3 * size:020d}" not in files.snapshot()[0]


def test_where_no_record_begins_nothing_is_cut() -> None:
    work = workload(3, 200)
    files = held(work)
    end = work.life.messages[-1].end
    before = files.snapshot()[0]
    with pytest.raises(OffsetOutOfRange, match="no record that begins at"):
        cut_log(files, work.config, work.life.messages[5].physical + 1)
    assert cut_log(files, work.config, end).kept == ""
    assert cut_log(files, work.config, end + 1000).offset == end
    logs = [path for path in before if "/commitlog/" in path]
    after = files.snapshot()[0]
    assert all(after[path] == before[path] for path in logs)
    assert not files.exists(LAYOUT.replaced)


def test_an_open_store_is_not_cut() -> None:
    work = workload(3, 50)
    work.store = MessageStore(work.config, work.files, HOST)
    work.store.open(START_MS)
    for act in (
        lambda: cut_log(work.files, work.config, 0),
        lambda: drop_log(work.files, work.config),
    ):
        with pytest.raises(StoreError, match=r"lock|use"):
            act()


@pytest.mark.promise(
    "Replication", "what a replica cuts is kept, and a cut may be stopped anywhere"
)
def test_what_was_cut_is_kept_and_read_by_the_toolkit() -> None:
    work = workload(4)
    messages = work.life.messages
    first = len(messages) // 2
    at, end = messages[first].physical, messages[-1].end
    files = held(work)

    kept = cut_log(files, work.config, at).kept

    assert kept == f"{LAYOUT.replaced}/{at:020d}-{end:020d}"
    store = find_store(files, kept)
    assert len(store.log) > 2
    rows = list(search(files, store, Query()))
    assert all(isinstance(row, StoredRecord) for row in rows)
    assert [row.physical_offset for row in rows] == [m.physical for m in messages[first:]]
    assert [row.body for row in rows] == [m.body for m in messages[first:]]
    path = store.log[0].path
    assert kind_of(files, path) == "log"
    dumped = [row for row in dump_file(files, path, "log") if "topic" in row]
    assert dumped[0]["topic"] == messages[first].topic


def test_the_same_place_cut_twice_keeps_both() -> None:
    work = workload(5, 100)
    at = work.life.messages[50].physical
    files = held(work)
    kept = []
    for body in (b"one", b"two"):
        cut_log(files, work.config, at)
        store = MessageStore(work.config, files, HOST)
        store.open(LATER_MS)
        append_message(store, "A", 0, 0, 0, 0, BORN, 0, "", 0, body, LATER_MS)
        store.close(LATER_MS)
        kept.append(cut_log(files, work.config, at).kept)
    assert kept[1] == f"{kept[0]}.2"
    assert len(files.list_dir(LAYOUT.replaced)) == 3


def test_a_full_disk_leaves_the_log_and_no_half_a_copy() -> None:
    work = workload(6, 300)
    files = held(work)
    files.set_capacity(files.used + 3000)
    with pytest.raises(OSError, match="space"):
        cut_log(files, work.config, work.life.messages[10].physical)
    assert files.list_dir(LAYOUT.replaced) == []
    files.set_capacity(1 << 40)
    assert log_bounds(files, work.config)[1] == work.life.messages[-1].end


def test_real_files_are_cut_and_dropped(tmp_path: Path) -> None:
    config, files = crash_config(root_dir=str(tmp_path)), OsFiles()
    store = MessageStore(config, files, HOST)
    store.open(START_MS)
    ends = [
        append_message(store, "A", 0, 0, 0, 0, BORN, 0, "", 0, bytes(700), START_MS).end_offset
        for _ in range(60)
    ]
    store.close(START_MS)

    kept = cut_log(files, config, ends[29]).kept
    assert log_bounds(files, config) == (0, ends[29])
    reads = OsReadFiles()
    assert len(list(search(reads, find_store(reads, kept), Query()))) == 30
    store = MessageStore(config, files, HOST)
    store.open(START_MS)
    assert store.max_offset("A", 0) == 30
    store.close(START_MS)
    kept = drop_log(files, config).kept
    assert log_bounds(files, config) == (0, 0)
    assert len(list(search(reads, find_store(reads, kept), Query()))) == 30


# What has messages is set aside


def bodies(files: FaultyFiles, *places: str) -> set[bytes]:
    """The bodies of the messages in these directories of log files."""
    found: set[bytes] = set()
    for place in places:
        if any(parse_offset_name(name) is not None for name in files.list_dir(place)):
            rows = search(files, find_store(files, place), Query())
            found |= {row.body for row in rows if isinstance(row, StoredRecord)}
    return found


def kept_in(files: FaultyFiles) -> list[str]:
    return [f"{LAYOUT.replaced}/{name}" for name in files.list_dir(LAYOUT.replaced)]


def test_a_log_with_messages_is_set_aside_whole_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work = workload(12)
    messages, files = work.life.messages, held(work)
    logs = {
        path.rpartition("/")[2]: image
        for path, image in files.snapshot()[0].items()
        if path.startswith(f"{LAYOUT.commit_log}/")
    }

    kept = drop_log(files, work.config).kept

    assert kept == f"{LAYOUT.replaced}/{0:020d}-{messages[-1].end:020d}"
    images = files.snapshot()[0]
    assert {name: images[f"{kept}/{name}"] for name in files.list_dir(kept)} == logs
    assert log_bounds(files, work.config) == (0, 0)
    assert bodies(files, kept) == {message.body for message in messages}
    size = len(logs) * work.config.segment_size
    assert f"commit log set aside root={ROOT} to={kept} bytes={size}" in caplog.text
    report = check_store(files, find_store(files, kept), FsckOptions())
    assert [one for one in report.findings if one.severity == DAMAGE] == []


def test_an_empty_log_is_dropped_and_nothing_is_set_aside() -> None:
    files, config = FaultyFiles(), crash_config()
    store = MessageStore(config, files, HOST)
    store.open(START_MS)
    store.begin_log(3 * config.segment_size)
    store.close(START_MS)
    assert files.list_dir(LAYOUT.commit_log)

    assert drop_log(files, config).kept == ""

    assert files.list_dir(LAYOUT.commit_log) == []
    assert not files.exists(LAYOUT.replaced)


def test_logs_of_the_same_bounds_are_both_kept() -> None:
    kept = []
    files, config = FaultyFiles(), crash_config()
    for body in (b"one", b"two"):
        store = MessageStore(config, files, HOST)
        store.open(START_MS)
        append_message(store, "A", 0, 0, 0, 0, BORN, 0, "", 0, body, START_MS)
        store.close(START_MS)
        kept.append(drop_log(files, config).kept)
        assert bodies(files, kept[-1]) == {body}
    assert kept[1] == f"{kept[0]}.2"
    assert bodies(files, *kept) == {b"one", b"two"}


def test_a_log_on_another_disk_is_set_aside_there() -> None:
    files, config = FaultyFiles(), crash_config(commit_log_dir="/log")
    store = MessageStore(config, files, HOST)
    store.open(START_MS)
    append_message(store, "A", 0, 0, 0, 0, BORN, 0, "", 0, b"x", START_MS)
    store.close(START_MS)
    assert drop_log(files, config).kept.startswith("/log.replaced/")


def test_a_log_whose_directory_is_a_mount_is_copied() -> None:
    work = workload(13, 150)
    files = held(work)
    files.fail("rename", error=errno.EXDEV)

    kept = drop_log(files, work.config).kept

    assert bodies(files, kept) == {message.body for message in work.life.messages}
    assert log_bounds(files, work.config) == (0, 0)


# Power cuts between any two calls


class JournalingFiles(RecordedFiles):
    """A name that moves between two directories moves at once, as on ext4, XFS and Btrfs: a transaction each."""

    def rename(self, source: str, target: str) -> None:
        FaultyFiles.rename(self, source, target)
        self.journal.append(Link(target, self._seen[target].number, source))


def states(work: Workload, act: str, at: int, count: int, seed: int) -> list[FaultyFiles]:
    """What a power cut may leave at every moment of a cut, or of dropping all."""
    rng = random.Random(seed)
    files = JournalingFiles(*work.files.snapshot())
    if act == "cut":
        cut_log(files, work.config, at)
    else:
        drop_log(files, work.config)
    changes = sum(1 for entry in files.journal if not isinstance(entry, Mark))
    device, found = CrashStates(files, ROOT), []
    for number in range(changes):
        device.step()
        for _ in range(count // changes + 1):
            state = device.state(CHOICES[(number + len(found)) % len(CHOICES)], rng)
            found.append(FaultyFiles.holding(state.files, state.directories))
    return found


@pytest.mark.promise(
    "Replication", "what a replica cuts is kept, and a cut may be stopped anywhere"
)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_cut_that_is_cut_off_leaves_a_log_that_cutting_again_finishes(seed: int) -> None:
    work = workload(seed, 250)
    messages = work.life.messages
    at = messages[len(messages) // 3].physical
    ends = set()
    for number, files in enumerate(states(work, "cut", at, 150, seed)):
        if number % 2:
            ends.add(check(work, files, at, thorough=number % 8 == 1).end)
            continue
        cut_log(files, work.config, at)
        again = check(work, files, at, thorough=number % 8 == 0)
        assert again.end == at
        names = files.list_dir(LAYOUT.replaced)
        assert f"{at:020d}-{messages[-1].end:020d}" in names
    assert {at, messages[-1].end} <= ends


@pytest.mark.parametrize("seed", [7, 8])
def test_a_log_whose_dropping_is_cut_off_is_dropped_again_and_loses_nothing(seed: int) -> None:
    work = workload(seed, 150)
    all_of_it = {message.body for message in work.life.messages}
    whole = f"{LAYOUT.replaced}/{0:020d}-{work.life.messages[-1].end:020d}"
    moved = set()
    for number, files in enumerate(states(work, "drop", 0, 150, seed)):
        before = files.list_dir(whole)
        assert bodies(files, LAYOUT.commit_log, *kept_in(files)) == all_of_it
        if number % 2 == 0:
            drop_log(files, work.config)
            assert log_bounds(files, work.config) == (0, 0)
            assert bodies(files, *kept_in(files)) == all_of_it
            assert not before or kept_in(files) == [whole]  # what was begun is ended in its place
            moved.add(len(before))
            continue
        store = MessageStore(work.config, files, HOST)
        begin = store.open(LATER_MS).min_physical_offset  # whatever is left is a log
        store.close(LATER_MS)
        assert begin == 0
        assert bodies(files, LAYOUT.commit_log, *kept_in(files)) == all_of_it
        assert fsck(files) == []
    assert len(moved) > 3


# What is derived


def test_a_dropped_log_begins_anew_elsewhere() -> None:
    work = workload(8)
    files = held(work)
    size = work.config.segment_size
    assert drop_log(files, work.config).end == work.life.messages[-1].end

    store = MessageStore(work.config, files, HOST)
    store.open(LATER_MS)
    assert store.topics() == []
    store.begin_log(5 * size)
    append_message(store, "A", 0, 0, 0, 0, BORN, 0, "UNIQ_KEY\x01u\x02", 0, b"x", LATER_MS)
    assert store.max_offset("A", 0) == 1
    store.close(LATER_MS)
    assert log_bounds(files, work.config)[0] == 5 * size
    assert fsck(files) == []


def timed(store: MessageStore, timer: TimerStore, due_ms: int) -> int:
    """A message of the timer queue, put into the wheel; returns where it begins."""
    done = append_message(
        store, TIMER_TOPIC, 0, 0, 0, 0, BORN, 0, f"K\x01{due_ms}\x02", 0, b"t", START_MS
    )
    assert timer.add(due_ms, done.physical_offset, done.size, 0, recall=False, now_ms=START_MS)
    timer.queue_offset = done.queue_offset + 1
    return int(done.physical_offset)


@pytest.mark.parametrize("cut", [True, False])
def test_the_timer_knows_nothing_of_messages_that_were_cut(cut: bool) -> None:
    """Other messages of the same size at the same places, due at other times: the timer's files cannot tell (10668)."""
    files, config = FaultyFiles(), crash_config(timer_log_file_size=52 * 50 + 20)
    store = MessageStore(config, files, HOST)
    store.open(START_MS)
    timer = TimerStore(files, store, config)
    timer.recover(START_MS)
    places = [timed(store, timer, START_MS + 10_000 + n * 1000) for n in range(6)]
    plan = timer.plan_flush(START_MS, final=True)
    assert plan is not None
    store.flush_all()
    plan.run()
    timer.close()
    store.close(START_MS)

    end = store.max_physical_offset
    report = cut_log(files, config, places[3] if cut else end)
    assert report.timer_dropped is cut

    store = MessageStore(config, files, HOST)
    store.open(START_MS)
    for n in range(3 if cut else 0):
        append_message(
            store,
            TIMER_TOPIC,
            0,
            0,
            0,
            0,
            BORN,
            0,
            f"K\x01{START_MS + 90_000 + n}\x02",
            0,
            b"t",
            START_MS,
        )
    timer = TimerStore(files, store, config)
    timer.recover(START_MS)
    assert timer.queue_offset == (0 if cut else 6)
    assert timer.number(START_MS + 13_000) == (0 if cut else 1)


def test_a_delay_queue_ends_at_the_cut() -> None:
    """So progress beyond it is corrected when the broker that opens the store next loads it (7480)."""
    work = workload(9)
    files = held(work)
    at = work.life.messages[len(work.life.messages) // 2].physical
    cut_log(files, work.config, at)
    store = MessageStore(work.config, files, HOST)
    store.open(LATER_MS)
    for queue_id in store.queues_of(SCHEDULE_TOPIC):
        messages = work.life.queues[(SCHEDULE_TOPIC, queue_id)]
        end = store.max_offset(SCHEDULE_TOPIC, queue_id)
        assert end == sum(1 for m in messages if m.end <= at) < len(messages)


# Damage in the log of a replica


def with_a_full_last_file() -> Workload:
    """A workload whose last file has some messages, the last two of more than a sector or so."""
    for seed in range(10, 100):
        work = workload(seed, 150)
        messages, size = work.life.messages, work.config.segment_size
        base = messages[-1].physical // size * size
        if messages[-6].physical > base and min(messages[-1].size, messages[-2].size) > 150:
            return work
    raise AssertionError


@pytest.mark.parametrize(
    ("how", "size"),
    [("last", 1), ("last", 20_000), ("killed", 1), ("killed", 40), ("all of the file", 20_000)],
)
def test_a_replica_ends_at_damage_and_its_master_gives_the_rest(how: str, size: int) -> None:
    work = with_a_full_last_file()
    messages, segment = work.life.messages, work.config.segment_size
    files = held(work)
    base = messages[-1].physical // segment * segment
    if how != "last":
        MessageStore(work.config, files, HOST).open(START_MS)
        files.kill()
    hit = messages[-1] if how == "last" else messages[-5]
    if how == "all of the file":
        hit = next(m for m in messages if m.physical >= base)
    at = hit.physical - base + (0 if size > 100 else hit.size // 2)
    file = files.open_file(f"{LAYOUT.commit_log}/{base:020d}")
    image = file.pread(size, at)
    file.pwrite(bytes(byte ^ 0x55 for byte in image), at)

    replica = MessageStore(work.config, files, HOST)
    report = replica.open(LATER_MS, fill_damage=False)

    assert report.damaged_bytes == 0
    assert report.max_physical_offset == hit.physical
    assert report.replaced.startswith(f"{LAYOUT.replaced}/{hit.physical:020d}-")
    assert any("the log is cut there" in words for words in report.warnings)
    replica.append_raw(hit.physical, work.life.image[hit.physical :])
    replica.close(LATER_MS)
    assert check(work, files, messages[-1].end).end == messages[-1].end


def test_without_damage_a_replica_opens_as_all_do() -> None:
    work = workload(11, 100)
    files = held(work)
    report = MessageStore(work.config, files, HOST).open(LATER_MS, fill_damage=False)
    assert (report.replaced, report.warnings, report.abnormal) == ("", [], False)
    assert report.max_physical_offset == work.life.messages[-1].end


def test_a_replica_that_ends_at_damage_survives_power_cuts_meanwhile() -> None:
    work = with_a_full_last_file()
    messages, segment = work.life.messages, work.config.segment_size
    hit = messages[-1]
    images, directories = work.files.snapshot()
    path = f"{LAYOUT.commit_log}/{hit.physical // segment * segment:020d}"
    image = bytearray(images[path])
    image[hit.physical % segment + hit.size // 2] ^= 1
    images[path] = bytes(image)
    files = RecordedFiles(images, directories)
    MessageStore(work.config, files, HOST).open(LATER_MS, fill_damage=False)
    device, rng = CrashStates(files, ROOT), random.Random(12)
    number = 0
    while (entry := device.step()) is not None:
        if isinstance(entry, Mark):
            continue
        for _ in range(2):
            number += 1
            state = device.state(CHOICES[number % len(CHOICES)], rng)
            again = FaultyFiles.holding(state.files, state.directories)
            store = MessageStore(work.config, again, HOST)
            assert store.open(LATER_MS, fill_damage=False).max_physical_offset == hit.physical
            store.close(LATER_MS)
            assert check(work, again, hit.physical).end == hit.physical
            assert len(again.list_dir(LAYOUT.replaced)) >= 1
    assert number > 40
