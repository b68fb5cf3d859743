"""Damage of each kind to each place of a commit log: the start is refused in words, or all that is sound is served."""

import gc
import random
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import pytest
from tests.crash_states import DiskState
from tests.records import append_message, read_queue
from tests.store.crash_check import LATER_MS, Check
from tests.store.crash_model import BORN, HOST, START_MS, small_config
from tests.store.crash_workload import Owed, Workload
from tests.store.explorer import Explorer

from roquette.base.javatypes import java_hash
from roquette.errors import StoreError
from roquette.message.record import decode_record
from roquette.store.audit.findings import DAMAGE
from roquette.store.format.config import FlushDiskType
from roquette.store.format.results import GetStatus
from roquette.store.message_store import MessageStore
from roquette.store.offline.fsck import FsckOptions, check_store
from roquette.store.offline.store_dir import find_store
from roquette.store.upkeep.retention import DiskUsage
from roquette_testing.faulty_files import FaultyFiles

LOG = "/s/commitlog"
SIZE = 4096
MESSAGES = 64
ENDS = ("stopped", "killed", "young", "restarted", "shortened")
KINDS = ("zeros", "bit", "scribble", "emptied", "deleted", "cut")
PLACES = ("header", "body", "boundary", "tail")
QUEUES = [("A", 0), ("A", 1), ("B", 0)]


@dataclass(slots=True)
class Sent:
    topic: str
    queue_id: int
    offset: int
    physical: int
    data: bytes = b""


@dataclass(slots=True)
class Stopped:
    """A store that nobody has open. `acked`: the log was synced up to here, for all that is known of it."""

    images: dict[str, bytes]
    directories: list[str]
    boot_id: bytes
    sent: list[Sent]
    acked: int = 0
    names: list[str] = field(default_factory=list)

    def files(self, images: dict[str, bytes] | None = None) -> FaultyFiles:
        held = FaultyFiles.holding(self.images if images is None else images, self.directories)
        held._boot_id = self.boot_id
        return held


def config() -> object:
    return small_config(segment_size=SIZE, flush_disk_type=FlushDiskType.ASYNC_FLUSH)


def opened(files: FaultyFiles) -> MessageStore:
    store = MessageStore(config(), files, HOST)  # type: ignore[arg-type]
    store.open(START_MS + MESSAGES * 1000)
    return store


def append(store: MessageStore, number: int, queue: tuple[str, int]) -> Sent:
    topic, queue_id = queue
    body = random.Random(number).randbytes(40 + number * 7 % 200)
    properties = f"UNIQ_KEY\x01u{number}\x02TAGS\x01T\x02"
    done = append_message(store, topic, queue_id, 0, 0, START_MS, BORN, 0, properties, java_hash("T"), body,
        START_MS + number * 1000, None, f"u{number}",
    )  # fmt: skip
    return Sent(topic, queue_id, done.queue_offset, done.physical_offset)


def sync(store: MessageStore) -> None:
    plan = store.plan_sync()
    assert plan is not None
    plan.run()
    store.synced(plan)


def read_all(store: MessageStore, sent: list[Sent]) -> None:
    for one in sent:
        head = store.record_at(one.physical)
        assert head is not None
        one.data = head


@cache
def pristine(end: str) -> Stopped:
    """A log of five files; a quarter is under the checkpoint, a half under the mark's synced offset."""
    files = FaultyFiles(7)
    store = MessageStore(config(), files, HOST)  # type: ignore[arg-type]
    store.open(START_MS)
    sent = []
    acked = 0
    for number in range(MESSAGES):
        sent.append(append(store, number, QUEUES[number % len(QUEUES)]))
        if number == MESSAGES // 4 and end != "young":
            store.write_pending()
            store.flush_all()
        if number == MESSAGES // 2 and end != "young":
            sync(store)
            acked = store.synced_offset
        if number == MESSAGES // 2 + 4 and end == "shortened":
            store.flush_all()
            plan = store.plan_retention(START_MS, DiskUsage(100, 11))
            assert plan is not None
            plan.run()
    store.write_pending()
    read_all(store, [one for one in sent if one.physical >= store.min_physical_offset])
    if end != "restarted":
        acked = store.max_physical_offset
    if end == "stopped":
        store.close(START_MS)
    files.kill()
    paths, directories = {}, []
    for directory in [*files._directories]:
        if directory.startswith("/s"):
            directories.append(directory)
            for name in files.list_dir(directory):
                if (path := f"{directory}/{name}") in files._seen:
                    paths[path] = files.read_bytes(path)
    boot = b"another" if end == "restarted" else files.boot_id
    names = sorted(path for path in paths if path.startswith(LOG + "/"))
    return Stopped(paths, directories, boot, sent, acked, names)


def damaged(
    good: Stopped, kind: str, which: int, place: str, rng: random.Random
) -> tuple[dict[str, bytes], int]:
    """The store's files with one log file damaged, and the physical offset where the damage begins."""
    path = good.names[which]
    base, image = int(path[-20:]), good.images[path]
    mine = [one for one in good.sent if base <= one.physical < base + SIZE and one.data]
    found = dict(good.images)
    one = {"header": mine[0], "tail": mine[-1]}.get(place) or rng.choice(mine)
    at = one.physical - base
    if place == "header":
        at += rng.randrange(40)
    elif place == "body":
        at += 90 + rng.randrange(20)
    elif place == "boundary":
        at += len(one.data) - 8
    else:
        at += rng.randrange(len(one.data))
    data = bytearray(image)
    if kind == "deleted":
        del found[path]
        return found, base
    if kind == "emptied":
        data, at = bytearray(), 0
    elif kind == "cut":
        del data[at:]
    elif kind == "bit":
        data[at] ^= 1 << rng.randrange(8)
    else:
        size = min(rng.choice((4, 16, 700)), SIZE - at)
        data[at : at + size] = bytes(size) if kind == "zeros" else rng.randbytes(size)
    found[path] = bytes(data)
    return found, base + at


def sound(good: Stopped, images: dict[str, bytes]) -> list[Sent]:
    """The messages whose bytes are still there: what a reader owes, by nobody's word but the bytes'."""
    kept = []
    for one in good.sent:
        image = images.get(f"{LOG}/{one.physical - one.physical % SIZE:020d}", b"")
        at = one.physical % SIZE
        if one.data and image[at : at + len(one.data)] == one.data:
            kept.append(one)
    return kept


def check_served(store: MessageStore, owed: list[Sent], known: list[Sent]) -> None:
    for one in owed:
        found = read_queue(store, one.topic, one.queue_id, one.offset, 1, 1, None)
        assert found.status is GetStatus.FOUND, (one.topic, one.queue_id, one.offset, found.status)
        assert found.runs == [one.data]
    bodies = {
        (one.topic, one.queue_id, one.offset): decode_record(one.data, 0, True).body
        for one in known
        if one.data
    }
    for topic, queue_id in QUEUES:
        offset, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        while offset < end:
            found = read_queue(store, topic, queue_id, offset, 1, 1, None)
            for run in found.runs:
                record = decode_record(run, 0, True)
                assert bodies[record.topic, record.queue_id, record.queue_offset] == record.body
            assert found.next_begin_offset > offset
            offset = found.next_begin_offset


def check_new(store: MessageStore, good: Stopped, number: int) -> list[Sent]:
    """New messages get offsets that nobody had."""
    fresh = []
    for queue in QUEUES:
        given = [
            s.offset
            for s in good.sent
            if (s.topic, s.queue_id) == queue and s.physical < good.acked
        ]
        fresh.append(append(store, number, queue))
        assert fresh[-1].offset > max(given), queue
        assert fresh[-1].physical >= good.acked
    store.write_pending()
    read_all(store, fresh)
    return fresh


def examine(good: Stopped, images: dict[str, bytes], at: int) -> str:
    files = good.files(images)
    owed = sound(good, images)
    if at >= good.acked:  # a crash of the system tears here by right, and takes what was behind
        owed = [one for one in owed if one.physical + len(one.data) <= at]
    try:
        store = opened(files)
    except StoreError as error:
        words = str(error)
        assert f"{LOG}/" in words and "repair" in words
        left = {p: files.read_bytes(p) for p in images}
        assert left == images, "refused, and the files have changed"
        assert set(files._seen) <= set(images) | {"/s/lock"}, "refused, and files were made"
        return "refused"
    check_served(store, owed, good.sent)
    fresh = check_new(store, good, 1000)
    files.kill()
    store = opened(files)
    check_served(store, owed + fresh, good.sent + fresh)
    for one in check_new(store, good, 1001):
        assert one.offset == 1 + max(
            f.offset for f in fresh if (f.topic, f.queue_id) == (one.topic, one.queue_id)
        )
    return "served"


def sweep(end: str, rounds: int, seed: int) -> Counter[str]:
    good = pristine(end)
    rng = random.Random(f"{end} {seed}")
    tally: Counter[str] = Counter()
    files = {"first": 0, "middle": len(good.names) // 2, "last": len(good.names) - 1}
    for turn in range(rounds):
        for kind in KINDS:
            for name, which in files.items():
                for place in PLACES:
                    if kind in ("emptied", "deleted") and (turn or place != "header"):
                        continue
                    images, at = damaged(good, kind, which, place, rng)
                    try:
                        tally[examine(good, images, at)] += 1
                    except Exception as error:
                        raise AssertionError(
                            f"{end}, {kind}, {name}, {place} at {at}, turn {turn}: {error!r}"
                        ) from error
    return tally


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Iterator[None]:
    yield
    pristine.cache_clear()


@pytest.mark.promise(
    "Damage",
    "of a damaged log every sound record is served at its offset, or the start is refused in words",
)
@pytest.mark.parametrize("end", ENDS)
def test_what_is_sound_is_served_or_the_start_is_refused(end: str) -> None:
    tally = sweep(end, 3, 1)

    assert tally.total() == 150
    assert tally["refused"] >= 6
    assert tally["served"] > 70


@pytest.mark.long
@pytest.mark.parametrize("end", ENDS)
def test_damages_by_the_thousand(end: str) -> None:
    assert sweep(end, 25, 2).total() > 1200


def remade(good: Stopped, **changes: bytes | None) -> FaultyFiles:
    """The store with some of its files changed; None: removed. Names are those below the root."""
    images = dict(good.images)
    for name, data in changes.items():
        if data is None:
            images.pop(f"/s/{name}")
        else:
            images[f"/s/{name}"] = data
    return good.files(images)


@pytest.mark.parametrize("end", ["young", "killed", "restarted", "stopped"])
def test_an_empty_log_directory_is_no_new_store(end: str) -> None:
    """A disk that is not mounted."""
    good = pristine(end)
    images = {path: data for path, data in good.images.items() if path not in good.names}

    with pytest.raises(StoreError, match="is missing or empty, but the store had messages"):
        opened(good.files(images))


@pytest.mark.parametrize("restarted", [False, True])
def test_the_first_acknowledged_sync_says_that_there_is_a_log(restarted: bool) -> None:
    """Also when the power goes right after it and nothing else was ever synced."""
    files = FaultyFiles(3)
    store = opened(files)
    append(store, 1, ("A", 0))
    sync(store)
    files = files.crash(random.Random(0)) if restarted else files
    files.kill()
    for name in files.list_dir(LOG):
        files.remove(f"{LOG}/{name}")

    with pytest.raises(StoreError, match="is missing or empty"):
        opened(files)


def test_the_oldest_file_is_missed_unless_retention_removed_it() -> None:
    good = pristine("shortened")
    assert int(good.names[0][-20:]) > 0

    assert opened(good.files()).min_physical_offset == int(good.names[0][-20:])
    with pytest.raises(StoreError, match=f"{good.names[0]} is missing"):
        opened(remade(good, **{good.names[0][3:]: None}))


def test_what_was_filled_is_kept_beside_the_store() -> None:
    good = pristine("killed")
    one = good.sent[3]
    image = bytearray(good.images[good.names[0]])
    image[one.physical + 100] ^= 1
    files = remade(good, **{good.names[0][3:]: bytes(image)})

    store = opened(files)

    kept = files.read_bytes(f"/s/repair.lost/{one.physical:020d}")
    assert kept == bytes(image[one.physical : one.physical + len(kept)])
    assert len(kept) == len(one.data)
    assert store.max_offset(one.topic, one.queue_id) > one.offset


@pytest.mark.parametrize("end", ["killed", "stopped", "young"])
@pytest.mark.parametrize("which", [0, 2, -1])
def test_fsck_finds_nothing_in_a_filled_store(end: str, which: int) -> None:
    good = pristine(end)
    name = good.names[which]
    lost = [s for s in good.sent if s.physical // SIZE == int(name[-20:]) // SIZE][-1]
    image = bytearray(good.images[name])
    image[lost.physical % SIZE : lost.physical % SIZE + len(lost.data)] = bytes(len(lost.data))
    files = remade(good, **{name[3:]: bytes(image)})
    store = opened(files)
    check_new(store, good, 1000)
    store.close(START_MS)

    found = check_store(files, find_store(files, "/s"), FsckOptions()).findings

    filled = end != "stopped" or which == -1  # after a clean stop older files are not read
    assert [f for f in found if f.severity == DAMAGE] == [] or not filled


@pytest.mark.parametrize("store_ms", [-1, 1 << 62, -(1 << 62)])
def test_a_record_with_a_damaged_time_stops_no_start(store_ms: int) -> None:
    """An index file is called after it."""
    good = pristine("killed")
    one = good.sent[20]
    name = f"commitlog/{one.physical - one.physical % SIZE:020d}"
    image = bytearray(good.images[f"/s/{name}"])
    image[one.physical % SIZE + 56 : one.physical % SIZE + 64] = struct.pack(">q", store_ms)
    files = remade(good, **{name: bytes(image)})
    for path in files.list_dir("/s/index"):
        files.remove(f"/s/index/{path}")

    check_served(opened(files), good.sent[:20] + good.sent[21:], good.sent)


@pytest.mark.parametrize("queues", ["whole", "gone"])
@pytest.mark.parametrize("bit", range(63))
def test_a_queue_offset_of_a_damaged_header_fills_no_disk(bit: int, queues: str) -> None:
    """No CRC covers it: a queue made again was filled up to it, file by file."""
    good = pristine("killed")
    one = good.sent[20]
    name = f"commitlog/{one.physical - one.physical % SIZE:020d}"
    image = bytearray(good.images[f"/s/{name}"])
    image[one.physical % SIZE + 27 - bit // 8] ^= 1 << bit % 8
    files = remade(good, **{name: bytes(image)})
    if queues == "gone":
        files.remove_tree("/s/consumequeue")

    store = opened(files)

    for topic, queue_id in QUEUES:
        names = files.list_dir(f"/s/consumequeue/{topic}/{queue_id}")
        assert len(names) < 800
    if bit >= 15 or queues == "whole":
        check_served(store, good.sent[:20] + good.sent[21:], good.sent)


def test_a_hole_in_the_last_synced_file_after_a_power_cut_is_not_filled() -> None:
    """Behind what is known to have been synced a crash tears by right: the log ends there, and nothing is refused."""
    good = pristine("restarted")
    torn = next(one for one in good.sent if one.physical >= good.acked)
    path = f"{LOG}/{torn.physical - torn.physical % SIZE:020d}"
    image = bytearray(good.images[path])
    image[torn.physical % SIZE : torn.physical % SIZE + 8] = bytes(8)

    store = opened(remade(good, **{path[3:]: bytes(image)}))

    assert store.max_physical_offset == torn.physical


@pytest.mark.parametrize("bit", range(20 * 8))
def test_a_bit_of_a_queues_last_unit_costs_nothing_after_a_kill(bit: int) -> None:
    """The last message was gone, and its offset went to the next one."""
    good = pristine("killed")
    one = next(s for s in reversed(good.sent) if (s.topic, s.queue_id) == QUEUES[1])
    paths = sorted(path for path in good.images if path.startswith("/s/consumequeue/A/1/"))
    path = next(p for p in paths if int(p[-20:]) // 20 <= one.offset < int(p[-20:]) // 20 + 16)
    image = bytearray(good.images[path])
    image[one.offset % 16 * 20 + bit // 8] ^= 1 << bit % 8

    store = opened(remade(good, **{path[3:]: bytes(image)}))

    found = read_queue(store, *QUEUES[1], one.offset, 1, 1, None)
    assert found.runs == [one.data]
    assert store.max_offset(*QUEUES[1]) == one.offset + 1


def test_after_apaches_broker_the_mark_counts_for_nothing() -> None:
    """It may have removed files, and knows nothing of our mark. It writes into the file `lock`."""
    good = pristine("shortened")
    files = remade(good, **{"lock": b"lock", good.names[0][3:]: None})
    checkpoint = bytearray(good.images["/s/checkpoint"])
    checkpoint[0:8] = bytes(8)  # its own times
    files.open_file("/s/checkpoint").pwrite(bytes(checkpoint), 0)

    store = opened(files)

    assert store.min_physical_offset == int(good.names[1][-20:])
    assert files.read_bytes("/s/lock") == b""
    store.close(START_MS)
    files.remove(good.names[1])
    with pytest.raises(StoreError, match=f"{good.names[1]} is missing"):
        opened(files)


def unmarked(good: Stopped) -> FaultyFiles:
    """As 1b94d96 left it."""
    return remade(good, checkpoint=good.images["/s/checkpoint"][:104].ljust(4096, b"\0"))


def test_without_a_mark_sound_records_behind_a_hole_are_kept() -> None:
    good = pristine("killed")
    files = unmarked(good)
    one = good.sent[-9]
    path = f"{LOG}/{one.physical - one.physical % SIZE:020d}"
    files.open_file(path).pwrite(bytes(700), one.physical % SIZE)
    images = {p: files.read_bytes(p) for p in good.names}

    store = opened(files)

    check_served(store, sound(good, images), good.sent)
    check_new(store, good, 1000)


def test_without_a_mark_no_file_with_sound_records_is_removed() -> None:
    good = pristine("killed")
    files = unmarked(good)
    files.remove(good.names[-2])

    with pytest.raises(StoreError, match=f"{good.names[-2]} is missing"):
        opened(files)
    assert files.read_bytes(good.names[-1]) == good.images[good.names[-1]]


@pytest.mark.parametrize("end", ["killed", "young"])
def test_the_index_header_counts_what_is_written(end: str) -> None:
    """Apache's broker appends behind it: after our kill it took used places, 77 faults in fsck."""
    good = pristine(end)
    path = max(p for p in good.images if p.startswith("/s/index/"))
    image = good.images[path]
    used = [at for at in range(1, 60) if any(image[40 + 17 * 4 + at * 20 :][:20])]

    assert int.from_bytes(image[36:40], "big") == len(used) + 1 > 1


@pytest.mark.parametrize("last", [False, True])
def test_a_damaged_queue_offset_that_says_0_begins_no_queue_anew(last: bool) -> None:
    """Found with thousands of power cuts and damage at once: no CRC covers the offset, and the power cut had taken the
    queue's files. Nothing tells it from the first message of a topic that was made again, if it is the topic's last one."""
    good = pristine("killed")
    of_queue = [one for one in good.sent if (one.topic, one.queue_id) == QUEUES[0]]
    damaged = of_queue[-1 if last else -5]
    gone = {path[3:]: None for path in good.images if path.startswith("/s/consumequeue/A/0/")}
    files = remade(good, **gone)
    path = f"{LOG}/{damaged.physical - damaged.physical % SIZE:020d}"
    files.open_file(path).pwrite(bytes(8), damaged.physical % SIZE + 20)

    store = opened(files)

    served = [
        one
        for one in of_queue
        if read_queue(store, "A", 0, one.offset, 1, 1, None).runs == [one.data]
    ]
    assert served == ([] if last else [one for one in of_queue if one is not damaged])
    assert store.max_offset("A", 0) == (1 if last else of_queue[-1].offset + 1)


def test_a_record_whose_header_says_the_beginning_of_another_queue_begins_it_not_anew() -> None:
    good = pristine("killed")
    damaged = [one for one in good.sent if (one.topic, one.queue_id) == QUEUES[1]][-3]
    queues = ("/s/consumequeue/A/1/", "/s/consumequeue/A/0/")
    gone = {path[3:]: None for path in good.images if path.startswith(queues)}
    files = remade(good, **gone)
    path = f"{LOG}/{damaged.physical - damaged.physical % SIZE:020d}"
    files.open_file(path).pwrite(bytes(16), damaged.physical % SIZE + 12)  # queue 0, offset 0

    store = opened(files)

    for one in good.sent:
        found = read_queue(store, one.topic, one.queue_id, one.offset, 1, 1, None).runs
        assert found == ([] if one is damaged else [one.data])


class DamagedStates(Explorer):
    """What a power cut leaves, with one file of its log damaged besides."""

    def __init__(self, workload: Workload, seed: int, states: int) -> None:
        super().__init__(workload, seed, states)
        self.results: Counter[str] = Counter()
        self.seen = 0

    def check(self, state: DiskState, owed: Owed, *, thorough: bool) -> Check:
        paths = [p for p, data in state.files.items() if p.startswith(LOG + "/") and any(data)]
        self.seen += 1
        if self.seen % 100 == 0:
            gc.collect()  # stores that are not closed have maps, of which a process may have 65,530
        if paths:
            self.damage(state.files, state.directories, owed, self.random.choice(paths))
        return super().check(state, owed, thorough=thorough)

    def damage(
        self, images: dict[str, bytes], directories: list[str], owed: Owed, path: str
    ) -> None:
        rng, data = self.random, bytearray(images[path])
        at = rng.randrange(len(data.rstrip(b"\0")))
        size = min(rng.choice((1, 20, 700, len(data))), len(data) - at)
        kind = rng.choice(("zeros", "scribble", "deleted"))
        data[at : at + size] = bytes(size) if kind == "zeros" else rng.randbytes(size)
        broken = {**images, path: bytes(data)}
        if kind == "deleted":
            del broken[path]
            at = 0
        files = FaultyFiles.holding(broken, directories)
        at += int(path[-20:])
        pair = images.get("/s/checkpoint", b"")[152:168].ljust(16, b"\0")
        synced = int.from_bytes(pair[:8], sys.byteorder)
        # what is damaged behind the mark is a torn end, even when the damage begins before it
        behind = max(at, synced) if at + size > synced or kind == "deleted" else owed.acked
        limit = min(behind, owed.acked)
        store = MessageStore(self.workload.config, files, HOST)
        try:
            store.open(LATER_MS)
        except StoreError as error:
            self.results["refused"] += 1
            words = str(error)
            assert f"{LOG}/" in words and "repair" in words
            assert {p: files.read_bytes(p) for p in broken} == broken
            return
        self.results["served"] += 1
        life = self.workload.lives[owed.life]
        last = {(m.topic, m.queue_id): m for m in life.messages if m.end <= owed.acked}.values()
        # Whose header says 0 now: it is like the first message of a topic that was made again, and none of its queue denies it.
        doubtful = {m.topic for m in last if at < m.physical + 28 and m.physical + 20 < at + size}
        for m in life.messages:
            if m.topic in doubtful:
                continue
            image = broken.get(f"{LOG}/{m.physical - m.physical % 16384:020d}", b"")
            intact = image[m.physical % 16384 :][: m.size] == m.data
            if m.end > limit or not intact or m.physical < owed.floor or m.queue_offset < 0:
                continue
            if m.topic not in life.gone:
                found = read_queue(store, m.topic, m.queue_id, m.queue_offset, 1, 1, None)
                assert found.runs == [m.data], (kind, path, at, size, m.key)
                assert store.max_offset(m.topic, m.queue_id) > m.queue_offset

    def cut_recovery(self, state: DiskState, owed: Owed) -> None:
        """That is asked elsewhere."""


def explore(seed: int, operations: int, states: int) -> Counter[str]:
    done = Workload(seed)
    done.run(operations)
    explorer = DamagedStates(done, seed, states)
    explorer.run()
    print(explorer.results)
    return explorer.results


@pytest.mark.promise(
    "Damage",
    "of a damaged log every sound record is served at its offset, or the start is refused in words",
)
def test_power_cuts_and_damage_at_once() -> None:
    results = explore(3, 400, 200)

    assert results["served"] > 50
    assert results["refused"] > 5


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_thousands_of_power_cuts_and_damage_at_once() -> None:
    assert explore(4, 2000, 10_000).total() > 5000
