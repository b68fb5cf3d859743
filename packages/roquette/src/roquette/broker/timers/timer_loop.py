"""Drives the timer: turns its work on the loop, reads and syncs in the executor.

A piece of work is applied in one call on the loop; between two pieces others run.
"""

import asyncio
import logging
from typing import Final

from librt.strings import read_i64_be

from roquette.base import metric_families as m
from roquette.base.executor import run_blocking, submit
from roquette.base.exposition import MetricTable, labels, one
from roquette.base.lifecycle import Health, Tasks
from roquette.broker.floor.config_files import TIMER_METRICS
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.stats import Counter
from roquette.broker.timers.delivery import Timers, TimerWork
from roquette.broker.timers.timer_metrics import TimerMetrics
from roquette.errors import Refused, StoreError
from roquette.store.timer.timer_flush import TimerFlushPlan
from roquette.store.timer_store import TimerStore
from roquette.wire.bodies import TimerMetricsSerializeWrapper
from roquette.wire.json_body import encode_body

log = logging.getLogger("roquette.broker.timer")

BEAT_S: Final = 0.1
ERROR_S: Final = 0.5
SHORTEST_S: Final = 0.005  # messages that are due within it go together
METRICS_S: Final = 10.0
DELETION_S: Final = 30.0
READERS: Final = 4  # threads that read one batch of old records


class TimerLoop:
    """The tasks of one timer."""

    def __init__(self, core: BrokerCore, timers: Timers) -> None:
        self.timers = timers
        self._live = core.live
        self._log_sync = core.log_sync
        self._clock = core.clock
        self._config_files = core.files
        self._store = core.store
        self._shell = core.shell
        self._writing: asyncio.Future[None] | None = None
        self._enqueued, self._dequeued = Counter(), Counter()
        self.metrics.bound = core.live.bounds.timer_topics

    @property
    def _storage(self) -> TimerStore:
        return self.timers.storage

    @property
    def metrics(self) -> TimerMetrics:
        """Waiting messages by topic."""
        return self.timers.metrics

    def recover(self) -> None:
        """Load what the disk has. Blocks; raises StoreError when a file exists and cannot be read."""
        self._storage.recover(self._clock.now_ms())
        found = self._config_files.load(TIMER_METRICS, TimerMetricsSerializeWrapper)
        if found is not None:
            self.metrics.load(found)

    def start(self, tasks: Tasks) -> None:
        """Start the timer's tasks: turns, flushes, metrics, deletion, rates."""
        flush_s = self._live.store.timer_flush_interval_ms / 1000
        tasks.keep("timer", self._run)
        tasks.every("timer-flush", flush_s, self._flush)
        tasks.every("timer-metrics", METRICS_S, self._save_metrics)
        tasks.every("timer-deletion", DELETION_S, self._delete)
        tasks.every("timer-rates", 1.0, self._sample)

    async def _run(self, health: Health) -> None:
        while True:
            try:
                wait_s = 0.0 if await self._turn() else self._pause_s()
            except (Refused, StoreError, OSError) as error:
                log.warning("timer messages wait reason=%s", error)
                wait_s = ERROR_S
            self._shell.end_turn()
            health.worked()
            await asyncio.sleep(wait_s)

    def _pause_s(self) -> float:
        """Until the next beat, the next slot or the next message, whichever comes first."""
        precision, now_ms = self._storage.precision_ms, self._clock.now_ms()
        pause = min(BEAT_S, (precision - now_ms % precision) / 1000)
        next_ms = self._storage.next_ms()
        return min(pause, max(SHORTEST_S, (next_ms - now_ms) / 1000)) if next_ms else pause

    async def _turn(self) -> bool:
        """One piece of work of each kind; False when there was none."""
        store = self._live.store
        worked = False
        if not store.timer_stop_enqueue:
            work = self.timers.enqueue_work()
            if work is not None:
                before = self._storage.queue_offset
                await self._do(work)
                worked = self._storage.queue_offset != before
        if not store.timer_stop_dequeue:
            due = self.timers.delivery_work(self._clock.now_ms())
            if due is not None:
                await self._do(due)
                worked = True
        return worked

    async def _do(self, work: TimerWork) -> None:
        if work.cold:
            size = -(-len(work.places) // READERS)
            plans = [
                self.timers.plan_read(work.places[start : start + size])
                for start in range(0, len(work.places), size)
            ]
            pieces = await asyncio.gather(*[run_blocking(plan.run) for plan in plans])
            records = [record for piece in pieces for record in piece]
        else:
            records = self.timers.read(work)
        self.timers.apply(work, records, self._clock.now_ms())

    # To the disk

    async def _flush(self) -> None:
        """Progress may reach the disk only after the messages it speaks of."""
        plan = self._storage.plan_flush(self._clock.now_ms())
        if plan is None:
            return
        ran = False
        try:
            if await self._log_sync.on_disk(plan.commit_end):
                self._writing = submit(plan.run)
                await asyncio.shield(self._writing)
                ran = True
        finally:
            if self._writing is None or self._writing.done():
                self._storage.flushed(plan, done=ran)
                self._writing = None

    async def _save_metrics(self) -> None:
        if self.metrics.dirty:
            data = encode_body(self.metrics.to_wrapper(self._clock.now_ms()))
            self.metrics.dirty = False
            try:
                await run_blocking(self._config_files.write, TIMER_METRICS, data)
            except OSError as error:
                self.metrics.dirty = True
                log.error("%s not written, it is tried again error=%s", TIMER_METRICS, error)

    async def _delete(self) -> None:
        plan = self._storage.plan_deletion()
        if plan is not None:
            await run_blocking(plan)

    async def finish(self) -> None:
        """After the tasks have ended: wait for a write that is still under way."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing = None

    def save_now(self, now_ms: int) -> None:
        """The last flush, blocking; the log is on the disk already."""
        plan: TimerFlushPlan | None = self._storage.plan_flush(now_ms, final=True)
        if plan is not None:
            plan.run()
            self._storage.flushed(plan)
        if self.metrics.dirty:
            try:
                metrics = self._config_files.complete(
                    TIMER_METRICS, self.metrics.to_wrapper(now_ms)
                )
                self._config_files.write(TIMER_METRICS, encode_body(metrics))
            except OSError as error:
                log.error("%s not written error=%s", TIMER_METRICS, error)
        self._storage.close()

    # What others ask

    def _sample(self) -> None:
        steady_ms = self._clock.steady_ms()
        for counter, total in (
            (self._enqueued, self.timers.enqueued),
            (self._dequeued, self.timers.dequeued),
        ):
            counter.total = total
            counter.sample(steady_ms)

    def runtime_info(self, now_ms: int) -> dict[str, str]:
        """The timer's lines of GET_BROKER_RUNTIME_INFO."""
        return {
            "timerReadBehind": str(max(0, now_ms - self._storage.read_ms) // 1000),
            "timerOffsetBehind": str(self.timers.behind()),
            "timerCongestNum": str(self._storage.wheel.pending),
            "timerEnqueueTps": repr(round(self._enqueued.rate(10), 1)),
            "timerDequeueTps": repr(round(self._dequeued.rate(10), 1)),
        }

    def measures(self, now_ms: int) -> list[MetricTable]:
        """The timer's metrics."""
        waiting = self.metrics.waiting()
        topics = ((labels({"topic": topic}), count) for topic, count in waiting)
        return [
            one(m.TIMER_QUEUE_LAG, self.timers.behind()),
            one(m.TIMER_LATE, max(0, now_ms - self._storage.read_ms)),
            one(m.TIMER_IN, self.timers.enqueued),
            one(m.TIMER_OUT, self.timers.dequeued),
            MetricTable(m.TIMING, len(waiting), topics),
        ]

    def checkpoint_body(self) -> bytes:
        """The answer to GET_TIMER_CHECK_POINT."""
        return self._storage.saved.encode()[:56]

    def beginning(self) -> dict[str, str]:
        """From where on a broker without our wheel would take the timer's messages again: offset in the timer queue, and
        in the log, and the time of the next slot; `logEnd`: when the log has that length. Fields of ours."""
        storage, store = self._storage, self._store
        offset, place = storage.queue_offset, store.max_physical_offset
        firsts = [first for _, first, _, _ in storage.wheel.slots()]
        if firsts:  # units stand in the order of the queue
            unit = storage.log.read(min(firsts))
            data = None if unit is None else store.record_at(unit.offset, unit.size)
            if unit is None or data is None:
                return {}
            offset, place = read_i64_be(data, 20), unit.offset
        numbers = {"queueOffset": offset, "commitOffset": place, "readMs": storage.read_ms}
        numbers["logEnd"] = store.max_physical_offset
        return {name: str(number) for name, number in numbers.items()}

    def metrics_body(self) -> bytes:
        """The answer to GET_TIMER_METRICS."""
        return encode_body(self.metrics.to_wrapper(self._clock.now_ms()))
