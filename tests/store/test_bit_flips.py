"""Flipped bits and cut files: damage is found or does no harm, and nothing wrong is served."""

import logging
import os
import random
from collections import Counter
from dataclasses import dataclass
from functools import cache

import pytest
from tests.records import read_queue
from tests.store.crash_workload import HOST, Message, Workload

from roquette.errors import StoreError
from roquette.message.record import decode_record, decode_records
from roquette.store.message_store import MessageStore
from roquette_testing.faulty_files import FaultyFiles

QUICK = 500
LATER_MS = 1_800_000_000_000
# Bytes of a record that the format guards by nothing, by their distance from its start (IPv4 hosts): flag, sys flag,
# times, hosts, reconsume times, prepared offset.
FREE = [*range(16, 20), *range(36, 84)]


@dataclass(slots=True)
class Pristine:
    """A store as it should be, and what is in it."""

    files: dict[str, bytes]
    directories: list[str]
    workload: Workload

    @property
    def messages(self) -> dict[tuple[str, int, int], Message]:
        return {
            (m.topic, m.queue_id, m.queue_offset): m
            for m in self.workload.life.messages
            if m.queue_offset >= 0 and m.topic not in self.workload.life.gone
        }


@cache
def pristine(ending: str) -> Pristine:
    """A store that was closed, or killed after everything had reached the disk."""
    run = Workload(21)
    run.finish(400)
    if ending == "closed":
        run.store.close(run.now_ms)
    files, directories = run.files.snapshot()
    return Pristine({p: d for p, d in files.items() if "/config/" not in p}, directories, run)


def damaged(rng: random.Random, files: dict[str, bytes]) -> tuple[dict[str, bytes], str]:
    """One bit is another, or a file ends early; mostly where something stands."""
    path = rng.choice([p for p in sorted(files) if files[p]])
    data = bytearray(files[path])
    if rng.random() < 0.1:
        size = rng.randrange(len(data))
        return {**files, path: bytes(data[:size])}, f"{path} cut to {size} bytes"
    used = len(data.rstrip(b"\0")) or len(data)
    place = rng.randrange(used if rng.random() < 0.9 else len(data))
    bit = 1 << rng.randrange(8)
    data[place] ^= bit
    return {**files, path: bytes(data)}, f"{path} byte {place} bit {bit:#x}"


def classify(
    rng: random.Random, good: Pristine, caplog: pytest.LogCaptureFixture
) -> tuple[str, str]:
    """Damage a store, open it and read all of it; what became of the damage, and where it is."""
    images, what = damaged(rng, good.files)
    caplog.clear()
    store = MessageStore(good.workload.config, FaultyFiles.holding(images, good.directories), HOST)
    try:
        store.open(LATER_MS)
    except StoreError as error:
        words = str(error)
        assert "/s/" in words
        return "refused", what
    wanted, seen = good.messages, set()
    result = "harmless"
    for topic, queue_id in sorted({key[:2] for key in wanted}):
        offset, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        while offset < end:
            found = read_queue(store, topic, queue_id, offset, 32, 1 << 20, None)
            for record in decode_records(b"".join(found.runs), True):
                key = (record.topic, record.queue_id, record.queue_offset)
                assert key[:2] == (topic, queue_id), what
                assert key not in seen, f"{what}: {key} is served twice"
                message = wanted[key]
                seen.add(key)
                assert record.body == message.body, f"{what}: a wrong body is served"
                data = store.record_at(record.physical_offset)
                if data != message.data:
                    result = "fields without a check"
            assert found.next_begin_offset > offset, what
            offset = found.next_begin_offset
    low = store.min_physical_offset
    missing = [k for k, m in wanted.items() if k not in seen and m.physical >= low]
    if missing:
        told = [r for r in caplog.records if r.levelno >= logging.WARNING]
        topic, queue_id, offset = missing[0]
        if not told and len(missing) == 1 and offset == store.min_offset(topic, queue_id) - 1:
            return "looks expired", what  # the first unit of a queue, now with an older place
        assert told, f"{what}: {missing[:3]} are missing, and nothing is said"
        return "told", what
    return ("told" if caplog.records and result == "harmless" else result), what


def sweep(count: int, seed: int, caplog: pytest.LogCaptureFixture) -> Counter[str]:
    """So many damages of both kinds of store."""
    rng = random.Random(seed)
    tally: Counter[str] = Counter()
    caplog.set_level(logging.WARNING, "roquette")
    for number in range(count):
        good = pristine(("closed", "killed")[number % 2])
        try:
            result, _ = classify(rng, good, caplog)
        except Exception as error:
            raise AssertionError(f"damage {number} of seed {seed}: {error!r}") from error
        tally[result] += 1
    return tally


@pytest.mark.promise(
    "Damage", "a flipped bit anywhere in a store is found, or does the harm that is stated"
)
def test_damage_is_found_or_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    tally = sweep(QUICK, 1, caplog)

    print(dict(tally))
    assert sum(tally.values()) == QUICK
    assert tally["refused"] >= 2
    assert tally["told"] > 30


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_ten_thousand_damages(caplog: pytest.LogCaptureFixture) -> None:
    tally = sweep(int(os.environ.get("ROQUETTE_FLIPS", "10000")), 2, caplog)
    print(dict(tally))


@pytest.mark.promise(
    "Damage", "a flipped bit anywhere in a store is found, or does the harm that is stated"
)
def test_every_bit_of_a_message_is_guarded_or_known_not_to_be(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = pristine("closed")
    config = good.workload.config
    kept = good.workload.store.min_physical_offset
    message = next(
        m
        for m in good.workload.life.messages
        if m.physical >= kept and m.topic == "A" and m.queue_offset >= 0 and len(m.body) == 60
        and len(decode_record(m.data, 0, True).born_host) == 8
    )  # fmt: skip
    base = message.physical - message.physical % config.segment_size
    path = f"/s/commitlog/{base:020d}"
    properties = len(message.data) - len(decode_record(message.data, 0, True).properties.encode())
    free = {*FREE, *range(properties, message.size)}
    for place in range(message.size):
        data = bytearray(good.files[path])
        data[message.physical - base + place] ^= 0x10
        files = FaultyFiles.holding({**good.files, path: bytes(data)}, good.directories)
        store = MessageStore(config, files, HOST)
        try:
            store.open(LATER_MS)
        except StoreError:
            continue
        found = read_queue(store, "A", message.queue_id, message.queue_offset, 1, 1, None)
        served = found.runs == [bytes(data[message.physical - base :][: message.size])]
        assert served <= (place in free), f"byte {place} is not guarded"
