"""Damage of the timer's files while the broker is down: every field, every kind; what is owed comes once, not early."""

import random
import struct
from collections.abc import Iterator
from functools import cache

import pytest
from tests.broker.timer_model import TIMER_TOPIC, TimerModel
from tests.store.damage import KINDS, WHOLE, Field, damage, damage_whole

from roquette.store.offline.fsck import FsckOptions, check_store
from roquette.store.offline.store_dir import find_store
from roquette.store.timer.timer_wheel import slots_in
from roquette_testing.faulty_files import FaultyFiles

WHEEL, LOG, CHECKPOINT = "/s/timerwheel", "/s/timerlog/00000000000000000000", "/s/config/timercheck"
QUEUE = f"/s/consumequeue/{TIMER_TOPIC}/0/00000000000000000000"


SLOT = [("time", 0, 8), ("first", 8, 8), ("last", 16, 8), ("number", 24, 4)]
UNIT = [
    ("size", 0, 4), ("prev", 4, 8), ("magic", 12, 4), ("write time", 16, 8), ("delay", 24, 4),
    ("offset", 28, 8), ("message size", 36, 4), ("exact time", 44, 8),
]  # fmt: skip
CHECK = [
    ("read time", 0, 8), ("log position", 8, 8), ("queue offset", 16, 8), ("mark", 56, 8),
    ("commit offset", 64, 8), ("precision", 72, 8), ("repeated", 80, 24), ("repeated version", 104, 16),
    ("crc", 120, 8),
]  # fmt: skip
QUEUE_UNIT = [("offset", 0, 8), ("size", 8, 4), ("tags code", 12, 8), ("whole", 0, 20)]
FIELDS = [
    *[Field(f"slot {n}", WHEEL, at, size, 32) for n, at, size in [*SLOT, ("whole", 0, 32)]],
    *[Field(f"unit {n}", LOG, at, size, 52) for n, at, size in [*UNIT, ("whole", 0, 52)]],
    *[Field(f"checkpoint {n}", CHECKPOINT, at, size) for n, at, size in CHECK],
    *[Field(f"queue {n}", QUEUE, at, size, 20) for n, at, size in QUEUE_UNIT],
]


@cache
def image(ending: str) -> tuple[dict[str, bytes], list[str], TimerModel]:
    """A store with timers of which some are delivered and 14 wait, some in one slot, one recalled."""
    model = TimerModel(5)
    for delay in (1500, 2500, 2600, 9000):
        model.send(delay)
    model.drain()
    for _ in range(9):
        model.now_ms += 500
        model.drain()
    for delay in (3000, 3100, 3200, 20_000, 20_300, 20_500, 31_000, 45_000, 90_000, 200_000, 7000):
        model.send(delay)
    model.drain()
    model.random.seed(3)
    model.recall()
    model.drain()
    model.sync()
    model.flush()
    model.flush()
    model.send(4000)
    model.drain()
    model.sync()
    if ending == "stopped":
        plan = model.storage.plan_flush(model.now_ms, final=True)
        assert plan is not None
        plan.run()
        model.storage.flushed(plan)
        model.store.close(model.now_ms)
    else:
        model.store.write_pending()
        model.storage.log.write_pending()
    model.files.kill()
    files, directories = model.files.snapshot()
    return files, directories, model


def reopened(ending: str, files: dict[str, bytes]) -> TimerModel:
    """A model of the same books over damaged files."""
    _, directories, good = image(ending)
    model = TimerModel.__new__(TimerModel)
    model.__dict__.update(good.__dict__)
    model.wanted, model.recalled = dict(good.wanted), set(good.recalled)
    model.files = FaultyFiles.holding(files, directories)
    model.open()
    return model


def fsck_messages(files: dict[str, bytes], path: str) -> list[str]:
    """What fsck says of a file of the stopped broker's store."""
    held = FaultyFiles.holding(files, image("stopped")[1])
    report = check_store(held, find_store(held, "/s"), FsckOptions())
    return [item.message for item in report.findings if item.file == path]


def check(ending: str, files: dict[str, bytes], what: str) -> None:
    try:
        reopened(ending, files).settle()
    except Exception as error:
        raise AssertionError(f"{ending}, {what}: {error!r}") from error


def combinations(seeds: int) -> Iterator[tuple[str, Field, str, int]]:
    for seed in range(seeds):
        for ending in ("stopped", "killed"):
            for field in FIELDS:
                for kind in KINDS:
                    yield ending, field, kind, seed


def run(seeds: range, every: int = 1) -> int:
    done = 0
    for number, (ending, field, kind, seed) in enumerate(combinations(seeds.stop)):
        if seed not in seeds or number % every:
            continue
        rng = random.Random(f"{field.name} {kind} {seed}")
        files = damage(image(ending)[0], field, kind, rng)
        if files is not None:
            check(ending, files, f"{field.name}, {kind}, seed {seed}")
            done += 1
    return done


@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_the_model_without_damage(ending: str) -> None:
    check(ending, image(ending)[0], "no damage")


@pytest.mark.promise("Damage", "damaged timer files lose no message, and none comes twice or early")
@pytest.mark.parametrize("ending", ["stopped", "killed"])
@pytest.mark.parametrize("path", [WHEEL, LOG, CHECKPOINT])
@pytest.mark.parametrize("kind", WHOLE)
def test_whole_files(ending: str, path: str, kind: str) -> None:
    check(ending, damage_whole(image(ending)[0], path, kind), f"{path} {kind}")


@pytest.mark.promise("Damage", "damaged timer files lose no message, and none comes twice or early")
def test_fields() -> None:
    assert run(range(1)) > 200


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_fields() -> None:
    assert run(range(1, 5)) > 800


@pytest.mark.parametrize(
    ("slot_time", "last", "told"),
    [
        # A slot has its time divided by the precision: this one is larger than 64 bits.
        ((1 << 63) - 1, 52, "should be at 52 of the timer log, it is at -1"),
        (1 << 40, -1, "it names no unit, and the timer log has none of it"),
    ],
)
def test_fsck_names_a_slot_of_which_there_is_nothing(slot_time: int, last: int, told: str) -> None:
    files = image("stopped")[0]
    slot = struct.pack(">qqqii", slot_time, last, last, 1, 0)
    found = fsck_messages({**files, WHEEL: slot + files[WHEEL][32:]}, WHEEL)
    assert any(told in words for words in found), found


# Bytes of a file, counted for units from its first one, for slots from the wheel's first that waits: what fsck says.
WHOLE_HALF = [
    (LOG, 52 * 5, bytes(4), "neither a unit of the timer log nor its end"),
    (LOG, 52 * 5 + 4, (1 << 20).to_bytes(8, "big"), "the unit names 1048576 as the one before it"),
    (LOG, 52 * 5 + 28, (1 << 40).to_bytes(8, "big"), "where no such record is"),
    (LOG, 52 * 5 + 36, (77).to_bytes(4, "big"), "size 77, where no such record is"),
    (WHEEL, 0, (1 << 40).to_bytes(8, "big"), "has the time of another one"),
    (WHEEL, 16, (1 << 40).to_bytes(8, "big"), "should be at 1099511627776, the timer log ends at"),
    (WHEEL, 16, (1).to_bytes(8, "big"), "should be at 1 of the timer log, where none is"),
    (WHEEL, 16, bytes(8), "at 0 of the timer log is of another time"),
]


@pytest.mark.parametrize(("path", "place", "value", "told"), WHOLE_HALF)
def test_fsck_looks_at_every_unit_and_slot_of_apaches_files(
    path: str, place: int, value: bytes, told: str
) -> None:
    files = dict(image("stopped")[0])
    # As Apache's: it vouches for nothing.
    files[CHECKPOINT] = files[CHECKPOINT][:56].ljust(4096, b"\0")
    assert not fsck_messages(files, path)
    data = bytearray(files[path])
    slots = [slot for slot in slots_in(bytes(data), 0) if slot.last > 0] if path == WHEEL else []
    at = place + (slots[-1].ordinal * 32 if slots else 0)
    data[at : at + len(value)] = value
    assert any(told in words for words in fsck_messages({**files, path: bytes(data)}, path))


@pytest.mark.promise("Damage", "the broker copies no body that does not match its CRC")
def test_a_damaged_body_is_not_delivered_with_a_fresh_crc() -> None:
    files, _, good = image("stopped")
    waiting = next(r for r in good.stored(TIMER_TOPIC) if r.body == b"m8")
    path = f"/s/commitlog/{waiting.physical_offset // 8192 * 8192:020d}"
    data = bytearray(files[path])
    at = waiting.physical_offset % 8192
    data[data.index(b"m8", at)] ^= 1
    model = reopened("stopped", {**files, path: bytes(data)})
    del model.wanted[b"m8"]
    model.settle()
    assert model.timers.dropped == 1
