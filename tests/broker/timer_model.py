"""A timer under random load, cut off at random moments, compared with what it owes.

The real store, timer and writer, over files that forget; the driver's part is played by the model, so that a
crash can come between any two steps.
"""

import random
from contextlib import suppress

from tests.records import read_queue

from roquette.broker.floor.timer_rules import TimerRules, delete_key
from roquette.broker.floor.writer import MessageWriter
from roquette.broker.timers.delivery import Timers
from roquette.errors import Refused
from roquette.message.record import decode_records
from roquette.message.record_layout import Draft, StoredRecord
from roquette.store.cut import scan_delivery_marks
from roquette.store.format.config import StoreConfig
from roquette.store.message_store import MessageStore
from roquette.store.timer.timer_wheel import TimerFlushPlan
from roquette.store.timer_store import TimerStore
from roquette_testing.faulty_files import FaultyFiles

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
START_MS = 1_700_000_000_000
SLOTS = 400  # of one turn of the wheel
TIMER_TOPIC = "rmq_sys_wheel_timer"


def small_config(**changes: object) -> StoreConfig:
    values: dict[str, object] = {
        "root_dir": "/s",
        "segment_size": 8192,
        "queue_file_size": 20 * 64,
        "index_enable": False,
        "delete_when": "",
        "timer_log_file_size": 52 * 20 + 30,
        "timer_roll_window_slots": 60,
        "timer_max_delay_sec": 300,
    }
    return StoreConfig(**(values | changes))  # type: ignore[arg-type]


class TimerModel:
    """Several lives of one timer."""

    def __init__(self, seed: int, slots: int = SLOTS, **changes: object) -> None:
        self.random = random.Random(seed)
        self.config = small_config(**changes)
        self.slots = slots
        self.files = FaultyFiles(seed)
        self.now_ms = START_MS
        self.wanted: dict[bytes, int] = {}  # body -> time of delivery
        self.durable: set[bytes] = set()  # acknowledged on the disk
        self.recalled: set[bytes] = set()
        self.pending_flush: tuple[TimerFlushPlan, bool] | None = None
        self.counter = 0
        self.open()

    def open(self) -> None:
        self.store = MessageStore(self.config, self.files, HOST)
        self.store.open(self.now_ms)
        self.storage = TimerStore(self.files, self.store, self.config, self.slots)
        rules = TimerRules(
            lambda: self.storage.precision_ms,
            lambda: self.config.timer_max_delay_sec,
            lambda: self.config.timer_congest_num_each_slot,
            self.storage.number,
            self.random.randrange,
        )
        self.writer = MessageWriter(self.store, [1000], str, rules)
        self.timers = Timers(
            self.store, self.storage, self.writer, self.now_ms, lambda topic, size: None
        )
        self.storage.recover(self.now_ms)
        for copy in scan_delivery_marks(self.store, self.storage.commit_from):
            self.storage.note_copy(copy)
        self.pending_flush = None

    # Steps

    def put(self, named: dict[str, str], body: bytes) -> None:
        self.writer.put(Draft("T", 0, b"", body, self.now_ms, HOST), named, self.now_ms)

    def send(self, delay_ms: int | None = None) -> bytes:
        self.counter += 1
        body = b"m%d" % self.counter
        if delay_ms is None:
            near = self.random.random() < 0.6
            delay_ms = self.random.randrange(1, 8_000 if near else 280_000)
        self.wanted[body] = self.now_ms + delay_ms
        named = {"UNIQ_KEY": body.decode(), "TIMER_DELIVER_MS": str(self.now_ms + delay_ms)}
        self.put(named, body)
        return body

    def recall(self) -> None:
        waiting = [b for b, at in self.wanted.items() if at > self.now_ms + 2000]
        if not waiting:
            return
        body = self.random.choice(waiting)
        at = self.wanted[body]
        inside = (at - 1) // 1000 * 1000 + 1  # as a handle says it
        key = delete_key("T", body.decode())
        named = {
            "TIMER_DEL_UNIQKEY": key,
            "TIMER_DELIVER_MS": str(inside),
            "UNIQ_KEY": body.decode(),
        }
        self.put(named, b"0")
        self.recalled.add(body)

    def refuse(self, *steps_ms: int) -> None:
        """The store takes nothing while the clock goes by these steps."""
        self.store._refusal = "its disk fails"
        for step_ms in steps_ms:
            self.now_ms += step_ms
            with suppress(Refused):
                self.work()
        self.store._refusal = None

    def work(self) -> bool:
        """One turn of the driver; it may be refused, as by a full disk."""
        worked = False
        for work in (self.timers.enqueue_work(), self.timers.delivery_work(self.now_ms)):
            if work is not None:
                cold = self.random.random() < 0.3
                self.store.write_pending()  # as at the end of every turn
                records = (
                    self.timers.plan_read(work.places).run() if cold else self.timers.read(work)
                )
                self.timers.apply(work, records, self.now_ms)
                worked = True
        return worked

    def drain(self) -> None:
        for _ in range(10_000):
            if not self.work():
                return
        raise AssertionError("the timer does not come to rest")

    def sync(self) -> None:
        """A sync of the commit log: what was sent is acknowledged."""
        self.store.flush_all()
        self.durable = set(self.wanted)

    def flush(self) -> None:
        """A flush of the timer, or one half of it: plan and run are apart."""
        if self.pending_flush is None:
            plan = self.storage.plan_flush(self.now_ms)
            if plan is not None:
                self.pending_flush = (plan, False)
            return
        plan, _ = self.pending_flush
        self.sync()
        plan.run()
        self.storage.flushed(plan)
        self.pending_flush = None

    def kill(self) -> None:
        """SIGKILL: what was handed to the system stays."""
        before = set(self.wanted)
        self.files.kill()
        self.open()
        self._forget(before)

    def power_cut(self) -> None:
        if self.pending_flush is not None and self.random.random() < 0.5:
            plan, _ = self.pending_flush
            self.sync()
            for call in range(1, 40):  # die somewhere within the flush
                if self.random.random() < 0.15:
                    self.files.fail(self.random.choice(("sync", "pwrite")), call)
                    break
            plan.run()
        before = set(self.wanted)
        self.files = self.files.crash()
        self.open()
        self._forget(before)

    def _forget(self, before: set[bytes]) -> None:
        """Messages and recalls that the log has lost are owed no more; acknowledged ones must be there."""
        held = {r.body for r in self.stored(TIMER_TOPIC)} | {r.body for r in self.stored("T")}
        lost = before - held
        assert not lost & self.durable, lost & self.durable
        for body in lost:
            del self.wanted[body]
        keys = {
            r.properties.split("TIMER_DEL_UNIQKEY\x01T+")[1].split("\x02")[0].encode()
            for r in self.stored(TIMER_TOPIC)
            if "TIMER_DEL_UNIQKEY" in r.properties
        }
        self.recalled &= keys

    def stop(self) -> None:
        """A clean end and a new start."""
        self.store.flush_all()
        plan = self.storage.plan_flush(self.now_ms, final=True)
        if plan is not None:
            plan.run()
            self.storage.flushed(plan)
        self.storage.close()
        self.store.close(self.now_ms)
        self.files.kill()
        self.open()

    # Looking

    def stored(self, topic: str) -> list[StoredRecord]:
        found: list[StoredRecord] = []
        offset = self.store.min_offset(topic, 0)
        while offset < self.store.max_offset(topic, 0):
            read = read_queue(self.store, topic, 0, offset, 32, 1 << 20, None)
            found += decode_records(b"".join(read.runs))
            offset = read.next_begin_offset
        return found

    def check(self) -> None:
        """What was delivered came once and not early."""
        seen: set[bytes] = set()
        for record in self.stored("T"):
            assert record.body not in seen, f"{record.body!r} came twice"
            seen.add(record.body)
            wanted = self.wanted.get(record.body)
            assert wanted is not None, f"{record.body!r} is from nowhere"
            assert record.store_timestamp_ms >= wanted, f"{record.body!r} is early"

    def settle(self) -> None:
        """Let all time pass: everything that was owed is there, or was recalled."""
        self.drain()
        while self.now_ms <= max(self.wanted.values(), default=0) + 2000:
            self.now_ms += 500
            self.drain()
        self.check()
        came = {record.body for record in self.stored("T")}
        missing = set(self.wanted) - came
        assert missing <= self.recalled, missing - self.recalled
        assert not self.storage.wheel.slots()
        assert self.storage.wheel.pending == 0


def run_model(
    seed: int, steps: int, *, jumps: tuple[int, ...] = (), refusals: float = 0.0, **changes: object
) -> TimerModel:
    """Random steps, crashes among them, then the reckoning.

    `jumps`: what the clock leaps by, now and then, ms. `refusals`: of so many deliveries the store takes none.
    """
    model = TimerModel(seed, **changes)  # type: ignore[arg-type]
    rng = model.random
    for _ in range(steps):
        dice = rng.random()
        if jumps and rng.random() < 0.03:
            model.now_ms += rng.choice(jumps)
        try:
            if dice < 0.45:
                model.send()
            elif dice < 0.50:
                model.recall()
            elif dice < 0.70:
                if refusals and rng.random() < refusals:
                    model.refuse(rng.randrange(1500), rng.randrange(3000))
                    model.now_ms += rng.choice(jumps)
                    model.drain()
                else:
                    model.work()
            elif dice < 0.82:
                model.now_ms += rng.choice((1, 30, 400, 1000, 2500, 9000))
            elif dice < 0.93:
                model.flush()
            elif dice < 0.96:
                model.kill()
            elif dice < 0.99:
                model.power_cut()
            else:
                model.stop()
        except Refused:
            continue
    model.settle()
    return model
