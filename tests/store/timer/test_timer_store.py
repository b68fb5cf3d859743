"""The timer's files byte by byte, and the wheel against a heap."""

import errno
import heapq
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquette.store.audit.timer_audit import unit_faults
from roquette.store.cut import DeliveredBitmap
from roquette.store.format.checkpoint import TimerCheckpoint, decode_timer_checkpoint
from roquette.store.format.config import StoreConfig
from roquette.store.format.layout import StoreLayout
from roquette.store.timer.timer_log import BLOCK, MAGIC_DELETE, UNIT, DueSlot, TimerLog
from roquette.store.timer.timer_wheel import TimerWheel
from roquette.store.timer_store import TimerStore, timer_precision
from roquette_testing.faulty_files import FaultyFiles

NOW = 1_700_000_000_000


class NoLog:
    """As much of a message store as the timer's own files need."""

    layout = StoreLayout("/s")
    max_physical_offset = 1 << 40
    min_physical_offset = 0

    def min_offset(self, topic: str, queue_id: int) -> int:
        return 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        return 0

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        return None

    def queue_units(
        self, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        return [(queue_offset + n, 100, 0) for n in range(count)]


def timer_store(files: FaultyFiles, slots: int = 300, **changes: Any) -> TimerStore:
    values = {"root_dir": "/s", "timer_log_file_size": 52 * 50 + 20, "timer_roll_window_slots": 200}
    config = StoreConfig(**(values | changes))
    return TimerStore(files, NoLog(), config, slots)


def test_units_end_with_the_last_whole_one_of_a_file_that_was_cut() -> None:
    unit = UNIT.pack(52, -1, 1, 1000, 500, 0, 9, 0, 0)
    cut = [(0, unit * 2), (104, unit[:7])]
    assert list(unit_faults(iter(cut), 111, lambda offset, size: True)) == [(104, "", True)]


def test_a_unit_is_apaches() -> None:
    files = FaultyFiles()
    log = TimerLog(files, "/s/timerlog", 52 * 3 + 16)
    positions = [log.append(-1, 5, NOW, NOW + 7000, 4096 + n, 300, -5) for n in range(5)]
    assert positions == [0, 52, 104, 172, 224]
    log.write_pending()
    first = files.read_bytes("/s/timerlog/00000000000000000000")
    wanted = struct.pack(">iqiqiqiiq", 52, -1, 5, NOW, 7000, 4096, 300, -5, 0)
    assert first[:52] == wanted
    assert first[156:172] == struct.pack(">iqI", 16, 0, 0xCBD43194)
    assert files.list_dir("/s/timerlog") == ["00000000000000000000", "00000000000000000172"]


def test_a_slot_is_apaches() -> None:
    wheel = TimerWheel(1000)
    assert wheel.size == 7 * 86_400 * 2 * 32
    wheel.put(NOW, 52, 104, 2)
    ((position, data),) = wheel.take_dirty()
    at = NOW // 1000 % (7 * 86_400 * 2) * 32 - position
    assert data[at : at + 32] == struct.pack(">qqqii", NOW // 1000, 52, 104, 2, 0)
    assert wheel.take_dirty() == []


def test_a_checkpoint_begins_as_apaches() -> None:
    one = TimerCheckpoint(
        read_ms=1, log_position=2, queue_offset=3, version_timestamp=4, version_counter=5,
        commit_offset=6, precision_ms=1000,
    )  # fmt: skip
    data = one.encode()
    assert len(data) == 4096
    assert struct.unpack(">7q", data[:56]) == (1, 2, 3, 3, 0, 4, 5)
    assert decode_timer_checkpoint(data) == one
    apaches = struct.pack(">7q", 9, 2, 3, 3, 0, 8, 6) + data[56:]  # Apache's broker has moved on
    assert not decode_timer_checkpoint(apaches).ours
    assert not decode_timer_checkpoint(apaches).damaged
    assert decode_timer_checkpoint(apaches).read_ms == 9
    before = data[:104] + bytes(24) + data[128:]  # without the CRC, as 1b94d96 writes it
    assert decode_timer_checkpoint(before) == one
    for at in range(128):  # a flipped bit is damage, unless Apache may have written it
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        found = decode_timer_checkpoint(flipped)
        assert found.damaged or replace(found, version_timestamp=4, version_counter=5) == one


@pytest.mark.parametrize(
    "wanted, found", [(1000, 1000), (5000, 1000), (999, 500), (300, 200), (100, 100), (1, 100)]
)
def test_precisions_are_apaches(wanted: int, found: int) -> None:
    assert timer_precision(wanted) == found


def deliver(store: TimerStore, now_ms: int) -> list[tuple[int, int]]:
    """Everything due by now: (slot, offset), as it comes."""
    found: list[tuple[int, int]] = []
    while store.turn(now_ms):
        slot = store.slot
        if slot is None:
            if store.current is not None:
                current = store.current.slot_ms
                units = store.take(now_ms, 7)
                if units:
                    found += [(current, unit.offset) for unit in units[:5] if not unit.rolls]
                    store.settle(5 if len(units) > 5 else len(units))
            continue
        units = store.due(7)
        if units is None:
            continue
        found += [(slot.slot_ms, unit.offset) for unit in units if not unit.rolls]
        store.advance(len(units))
    return found


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 190_000)),
        st.tuples(st.just("pass"), st.integers(1, 40_000)),
        st.tuples(st.just("restart"), st.booleans()),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_the_wheel_gives_what_a_heap_gives(steps: list[tuple[str, int]]) -> None:
    files = FaultyFiles()
    store = timer_store(files)
    store.recover(NOW)
    heap: list[tuple[int, int]] = []
    now_ms, number = NOW, 0
    for kind, value in steps:
        if kind == "add":
            due_ms = now_ms + value
            if store.is_late(due_ms, now_ms):
                continue
            number += 1
            assert store.add(due_ms, number, 100, 0, recall=False, now_ms=now_ms)
            heapq.heappush(heap, (due_ms // 1000 * 1000, number))
        elif kind == "pass":
            now_ms += value
            wanted = []
            while heap and heap[0][0] < now_ms // 1000 * 1000:
                wanted.append(heapq.heappop(heap))
            assert deliver(store, now_ms) == wanted
        else:
            plan = store.plan_flush(now_ms, final=True)
            if plan is not None:
                plan.run()
                store.flushed(plan)
            store.close()
            if value:
                files = files.crash()
            else:
                files.kill()
            store = timer_store(files)
            store.recover(now_ms)
        assert store.wheel.pending == len(heap)
    assert deliver(store, now_ms + 200_000) == sorted(heap)


def test_a_slot_of_many_blocks_comes_in_order_without_being_held() -> None:
    files = FaultyFiles()
    log = TimerLog(files, "/s/timerlog", 1 << 20)
    prev, count = -1, 3 * BLOCK + 17
    for number in range(count):
        magic = 1 if number % 1000 else 1 | MAGIC_DELETE
        prev = log.append(prev, magic, NOW, NOW, number, 10, 0)
    slot = DueSlot(log, NOW, 0, prev)
    while not slot.walk(1000):
        pass
    assert sorted(unit.offset for unit in slot.recalls) == list(range(0, count, 1000))
    found: list[int] = []
    while block := slot.next_block():
        assert len(block) <= BLOCK
        found += [unit.offset for unit in block]
    assert found == [number for number in range(count) if number % 1000]
    later = DueSlot(log, NOW, 52 * 5000, prev)  # the first 5,000 are delivered already
    while not later.walk(1000):
        pass
    assert len(later.recalls) == len(slot.recalls)
    assert next(unit.offset for unit in later.next_block()) == 5001


def test_a_wheel_that_is_mostly_empty_takes_little_memory() -> None:
    files = FaultyFiles()
    wheel = TimerWheel(1000)
    wheel.put(NOW, 0, 0, 1)
    (piece,) = wheel.take_dirty()
    assert len(piece[1]) == 4096
    wheel.keep_dirty([piece])
    assert wheel.take_dirty() == [piece]
    file = files.open_file("/w", wheel.size, create=True)
    file.pwrite(piece[1], piece[0])
    other = TimerWheel(1000)
    other.load(file)
    assert other.slots() == [(NOW, 0, 0, 1)]
    assert other.pending == 1
    other.clear(NOW)
    assert other.slots() == [] and other.pending == 0
    assert other.find(NOW) is None and other.free(NOW)


def test_bits_of_what_is_delivered() -> None:
    known = DeliveredBitmap(100, 120)
    for offset in (99, 100, 119, 127, 128):
        known.add(offset, offset)
    assert [offset for offset in range(90, 140) if offset in known][:2] == [100, 119]
    assert 99 not in known and 128 not in known


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_files_that_cannot_be_written_are_due_again(error: int) -> None:
    files = FaultyFiles()
    store = timer_store(files)
    store.recover(NOW)
    assert store.add(NOW + 5000, 1, 100, 0, recall=False, now_ms=NOW)
    plan = store.plan_flush(NOW)
    assert plan is not None
    assert store.plan_flush(NOW) is None  # one at a time
    files.fail("sync", error=error)
    plan.run()
    store.flushed(plan)
    again = store.plan_flush(NOW + 1)
    assert again is not None and again.pieces == plan.pieces
    again.run()
    store.flushed(again)
    if error == errno.EIO:  # a sync that has failed is not tried again: the broker ends
        assert files.sync_error is not None and again.error is not None
        assert store.saved.log_position == 0
        return
    assert store.saved.log_position == 52
    assert store.plan_flush(NOW + 2) is None
