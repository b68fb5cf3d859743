"""Damage of a store that is not running: every structure, every field, every kind, after a stop and after a kill.

What was acknowledged and is intact in the log is served: each message at its offset, with its body, to a reader of its
tag, and by its key; or the start is refused in words. Of the log itself only that nothing wrong is served and what is
lost is told. The timer's files have their own product: tests/broker/test_timer_damage.py.
"""

import logging
import random
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest
from tests.records import read_queue
from tests.store.crash_workload import HOST, ROOT, Message
from tests.store.damage import KINDS, WHOLE, Field, damage, damage_whole
from tests.store.test_bit_flips import LATER_MS, Pristine, pristine

from roquette.errors import StoreError
from roquette.message.record import decode_records
from roquette.store.index.index_file import index_file_size
from roquette.store.message_store import MessageStore
from roquette.store.offline.fsck import FsckOptions, check_store
from roquette.store.offline.repair import repair
from roquette.store.offline.repair_plan import plan_repair
from roquette.store.offline.store_dir import find_store
from roquette_testing.faulty_files import FaultyFiles

ENDINGS = ("closed", "killed")
SLOTS, CAPACITY = 97, 500
UNIT = [("offset", 0, 8), ("size", 8, 4), ("tags code", 12, 8), ("whole", 0, 20)]
ENTRY = [
    ("hash", 0, 4),
    ("offset", 4, 8),
    ("seconds", 12, 4),
    ("previous", 16, 4),
    ("whole", 0, 20),
]
HEADER = [
    ("begin time", 0, 8), ("end time", 8, 8), ("begin offset", 16, 8), ("end offset", 24, 8),
    ("slots used", 32, 4), ("count", 36, 4),
]  # fmt: skip
CHECKPOINT = [
    ("log time", 0, 8), ("queue time", 8, 8), ("index time", 16, 8), ("flushed", 24, 8), ("confirmed", 32, 8),
    ("trusted offset", 40, 8), ("mark", 48, 8), ("log synced", 56, 8), ("queues synced", 64, 8), ("queue ends", 72, 8),
]  # fmt: skip
INDEX = f"{ROOT}/index/"
ENTRIES_AT = 40 + 4 * SLOTS
FIELDS = [
    *[Field(f"queue unit {n}", f"{ROOT}/consumequeue/", at, size, 20) for n, at, size in UNIT],
    *[Field(f"index header {n}", INDEX, at, size) for n, at, size in HEADER],
    Field("index slot", INDEX, 0, 4, 4, 40),
    *[Field(f"index entry {n}", INDEX, at, size, 20, ENTRIES_AT) for n, at, size in ENTRY],
    *[Field(f"checkpoint {n}", f"{ROOT}/checkpoint", at, size) for n, at, size in CHECKPOINT],
]
# Times may be any in the past; Apache's controllers keep the two others. What is ours beside them is under the mark.
UNNAMED = {f"checkpoint {name}" for name, _, _ in CHECKPOINT} | {"index header begin time"}
FILES = ("/consumequeue/", "/index/", "/checkpoint", "/abort", "/index.sums")


class NotIndexed(Exception):
    """A message is served, and not found by its key."""


def reads(store: MessageStore, good: Pristine) -> dict[tuple[str, int, int], bytes]:
    """Everything that is served, by place; nothing twice, nothing at a wrong place."""
    seen: dict[tuple[str, int, int], bytes] = {}
    for topic, queue_id in sorted({key[:2] for key in good.messages}):
        offset, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        while offset < end:
            found = read_queue(store, topic, queue_id, offset, 32, 1 << 20, None)
            for record in decode_records(b"".join(found.runs), True):
                key = (record.topic, record.queue_id, record.queue_offset)
                assert key[:2] == (topic, queue_id)
                assert key not in seen, f"{key} is served twice"
                seen[key] = record.body
            assert found.next_begin_offset > offset
            offset = found.next_begin_offset
    return seen


def by_tag(store: MessageStore, wanted: list[Message]) -> set[tuple[str, int, int]]:
    """The messages of some tags that a reader of these gets."""
    found: set[tuple[str, int, int]] = set()
    for topic, queue_id in {(m.topic, m.queue_id) for m in wanted}:
        codes = {m.tags_code for m in wanted if (m.topic, m.queue_id) == (topic, queue_id)}
        for code in codes:
            offset = store.min_offset(topic, queue_id)
            while offset < store.max_offset(topic, queue_id):
                read = read_queue(store, topic, queue_id, offset, 32, 1 << 20, {code})
                for record in decode_records(b"".join(read.runs), True):
                    found.add((topic, queue_id, record.queue_offset))
                offset = read.next_begin_offset
    return found


def check(ending: str, files: dict[str, bytes], *, tags: bool = True) -> str:
    """Open a damaged store and look at all of it: what became of the damage."""
    good = pristine(ending)
    store = MessageStore(good.workload.config, FaultyFiles.holding(files, good.directories), HOST)
    try:
        store.open(LATER_MS)
    except StoreError as refusal:
        if ROOT not in str(refusal):
            raise
        return "refused"
    seen, wanted = reads(store, good), good.messages
    low = good.workload.store.min_physical_offset
    kept = {key: m for key, m in wanted.items() if m.physical >= low}
    for key, body in seen.items():
        assert wanted[key].body == body, f"{key}: a wrong body"
    missing = [key for key in kept if key not in seen]
    assert not missing, f"{len(missing)} of {len(kept)} messages are not served: {missing[:3]}"
    tagged = [m for m in kept.values() if 0 < m.tags_code < 1 << 31 and m.topic == "A"]
    if tags and tagged:
        got = by_tag(store, tagged)
        lost = [m for m in tagged if (m.topic, m.queue_id, m.queue_offset) not in got]
        assert not lost, f"{len(lost)} of {len(tagged)} are not served by tag"
    for message in kept.values():
        if message.indexed and message.key:
            found = store.query(message.topic, message.key, 64, 0, 1 << 62)
            if message.data not in found:
                raise NotIndexed(f"{message.key} is not found by its key")
    return "served"


@cache
def fsck(ending: str) -> set[str]:
    return named(ending, pristine(ending).files)


def named(ending: str, files: dict[str, bytes]) -> set[str]:
    """What fsck says."""
    holding = FaultyFiles.holding(files, pristine(ending).directories)
    report = check_store(holding, find_store(holding, ROOT), FsckOptions(hash_slots=SLOTS))
    return {f"{item.kind} {item.file} {item.position} {item.message}" for item in report.findings}


def told(ending: str, files: dict[str, bytes]) -> set[str]:
    """What fsck says of a damaged store that it does not say of the sound one."""
    return named(ending, files) - fsck(ending)


def combinations(seeds: range) -> Iterator[tuple[str, Field, str, int]]:
    for seed in seeds:
        for ending in ENDINGS:
            for field in FIELDS:
                for kind in KINDS:
                    yield ending, field, kind, seed


def damaged(ending: str, field: Field, kind: str, seed: int) -> dict[str, bytes] | None:
    """A store's files after one damage, of what is of use: retention has removed the log's first files."""
    good = pristine(ending)
    low = good.workload.store.min_physical_offset
    at = 4 if field.path == INDEX else 0

    def alive(unit: bytes) -> bool:
        return field.step < 20 or low <= int.from_bytes(unit[at : at + 8], "big") < 1 << 40

    return damage(good.files, field, kind, random.Random(f"{field.name} {kind} {seed}"), alive)


def repaired(ending: str, files: dict[str, bytes]) -> dict[str, bytes]:
    """The files of a damaged store as `roquette store repair --to` copies them."""
    holding = FaultyFiles.holding(files, pristine(ending).directories)
    store = find_store(holding, ROOT)
    plan = plan_repair(holding, store, SLOTS, CAPACITY, 20 * 64)
    repair(holding, holding, store, plan, "/copy")
    images = holding.snapshot()[0]
    return {ROOT + p.removeprefix("/copy"): data for p, data in images.items() if "/copy/" in p}


def is_unnamed(field: Field, files: dict[str, bytes]) -> bool:
    """May fsck be silent? Also of due times in a delay level's queue: it does not know the broker's levels."""
    changed = [path for path, data in files.items() if data != pristine("closed").files[path]]
    return field.name in UNNAMED or "/SCHEDULE_TOPIC_XXXX/" in changed[0]


def run(seeds: range) -> Counter[str]:
    tally: Counter[str] = Counter()
    faults: list[str] = []
    for ending, field, kind, seed in combinations(seeds):
        files = damaged(ending, field, kind, seed)
        if files is None:
            continue
        if ending == "closed" and not is_unnamed(field, files) and not told(ending, files):
            faults.append(f"{ending}, {field.name}, {kind}, seed {seed}: fsck does not name it")
        try:
            tally[check(ending, files)] += 1
        except NotIndexed as error:
            # Of the file that was written to when the broker was killed nothing tells an entry's offset: fsck does.
            if (
                ending != "killed"
                or not field.name.startswith("index entry")
                or not told(ending, files)
            ):
                faults.append(f"{ending}, {field.name}, {kind}, seed {seed}: {error!r}")
            tally["named by fsck"] += 1
        except Exception as error:  # noqa: BLE001 - all are told at once
            faults.append(f"{ending}, {field.name}, {kind}, seed {seed}: {error!r}")
    assert not faults, f"{len(faults)} of {sum(tally.values()) + len(faults)}:\n" + "\n".join(
        faults
    )
    return tally


def whole_files(ending: str) -> Iterator[tuple[str, str]]:
    for path in sorted(pristine(ending).files):
        if path.startswith(tuple(ROOT + name for name in FILES)):
            for kind in WHOLE:
                yield path, kind


def test_layout_is_what_the_table_says() -> None:
    files = pristine("closed").files
    assert all(
        len(data) == index_file_size(SLOTS, CAPACITY)
        for p, data in files.items()
        if p.startswith(INDEX)
    )
    for ending in ENDINGS:
        assert check(ending, files if ending == "closed" else pristine(ending).files) == "served"


@pytest.mark.promise("Damage", "a damaged queue, index or checkpoint loses no message")
@pytest.mark.parametrize("ending", ENDINGS)
def test_whole_files(ending: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "roquette")
    faults = []
    for path, kind in whole_files(ending):
        try:
            check(ending, damage_whole(pristine(ending).files, path, kind))
        except Exception as error:  # noqa: BLE001 - all are told at once
            faults.append(f"{path} {kind}: {error!r}")
    assert not faults, "\n".join(faults)


@pytest.mark.promise("Damage", "a damaged queue, index or checkpoint loses no message")
def test_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "roquette")
    tally = run(range(1))
    print(dict(tally))
    assert sum(tally.values()) > 200


def sweep_repairs(seeds: range, every: int) -> int:
    done, faults = 0, []
    for number, (ending, field, kind, seed) in enumerate(combinations(seeds)):
        files = damaged(ending, field, kind, seed) if number % every == 0 else None
        if files is None:
            continue
        done += 1
        try:
            mended = repaired(ending, files)
            assert check(ending, mended) == "served"
        except Exception as error:  # noqa: BLE001 - all are told at once
            faults.append(f"{ending}, {field.name}, {kind}, seed {seed}: {error!r}")
    assert not faults, f"{len(faults)} of {done}:\n" + "\n".join(faults)
    return done


def test_repaired_stores(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "roquette")
    assert sweep_repairs(range(1), 7) > 30


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_many_repaired_stores(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "roquette")
    assert sweep_repairs(range(1, 3), 1) > 400


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_many_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "roquette")
    tally = run(range(1, 9))
    print(dict(tally))
    assert sum(tally.values()) > 1600
