"""Messages with an arbitrary time of delivery: the timer, what recalls them, and what replicas ask of it."""

import asyncio
import logging
from typing import Final

from librt.strings import read_i64_be

from roquette.base import metric_families as m
from roquette.base.executor import run_blocking, submit
from roquette.base.lifecycle import Health, Tasks
from roquette.base.metric_families import MetricTable, labels, one
from roquette.broker.floor.config_files import (
    DELAYS,
    TIMER_METRICS,
    DelayProgress,
    Saver,
    SaveSteps,
)
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Beat, Feature, Lane, Start, run_steps
from roquette.broker.floor.stats import Counter
from roquette.broker.floor.timer_rules import delete_key
from roquette.broker.timers.delay_levels import DelayLevels
from roquette.broker.timers.delivery import Timers, TimerWork
from roquette.broker.timers.timer_metrics import TimerMetrics
from roquette.errors import Refused, StoreError
from roquette.message import properties
from roquette.message.message_id import RecallHandle, decode_handle
from roquette.message.names import PERM_WRITE
from roquette.message.record_layout import Draft
from roquette.remoting.promises import Promise
from roquette.remoting.request import Later, Reply, RequestContext, Row, row
from roquette.store.cut import scan_delivery_marks
from roquette.store.message_store import MessageStore
from roquette.store.timer.timer_wheel import TimerFlushPlan
from roquette.store.timer_store import TimerStore
from roquette.wire.bodies import TimerMetricsSerializeWrapper
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import encode_dict
from roquette.wire.headers import RecallMessageRequestHeader
from roquette.wire.json_body import encode_body

# Drives the timer: turns its work on the loop, reads and syncs in the executor.
# A piece of work is applied in one call on the loop; between two pieces others run.


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


# After a start: which delayed messages the log already has a delivered copy of.


def note_delivered(store: MessageStore, delays: DelayLevels, timer: TimerLoop | None) -> None:
    """Timer and delay levels take note of what they delivered after their files were written. Blocks."""
    if timer is not None:
        timer.recover()
    timers = timer.timers.storage if timer is not None else None
    starts = [delays.scan_from] if delays.scan_from >= 0 else []
    if timers is not None:
        starts.append(timers.commit_from)
    for copy in scan_delivery_marks(store, min(starts, default=store.max_physical_offset)):
        delays.note_copy(copy)
        if timers is not None:
            timers.note_copy(copy)


# Take a waiting timer message back (370), and what replicas ask of the timer (60, 61).
# Apache: RecallMessageProcessor, AdminBrokerProcessor.getTimerCheckPoint and getTimerMetrics.


_TAG: Final = "_RECALL_TAG_"
_BODY: Final = b"0"


class RecallProcessor:
    """Serves recalls and the timer's state."""

    def __init__(self, core: BrokerCore, timer: TimerLoop | None) -> None:
        self._live = core.live
        self._writer = core.writer
        self._topics = core.tables.topics
        self._answers_wait = core.log_sync.answers_wait
        self._timer = timer

    def recall(
        self, ctx: RequestContext, header: RecallMessageRequestHeader, body: bytes
    ) -> Reply | Later:
        """RECALL_MESSAGE: a message that takes another one away follows it into its slot."""
        config = self._live.current
        region = {"MSG_REGION": config.region_id}
        if not config.recall_message_enable:
            raise self._refuse(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if ctx.now_ms < config.start_accept_send_request_time_stamp or not (
            config.broker_permission & PERM_WRITE or config.allow_recall_when_broker_not_writeable
        ):
            raise self._refuse(
                ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available"
            )
        if self._topics.find(header.topic) is None:
            raise self._refuse(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist"
            )
        handle = self._checked(header, ctx.now_ms)
        named = {
            properties.TAGS: _TAG,
            properties.TIMER_DEL_UNIQKEY: delete_key(handle.topic, handle.uniq_key),
            properties.UNIQ_KEY: handle.uniq_key,
            properties.TIMER_DELIVER_MS: handle.timestamp,
            properties.BORN_TIMESTAMP: str(ctx.now_ms),
        }
        if header.producer_group:
            named[properties.PGROUP] = header.producer_group
        draft = Draft(handle.topic, 0, b"", _BODY, ctx.now_ms, ctx.peer.host)
        try:
            done = self._writer.put(draft, named, ctx.now_ms)
        except Refused:
            raise self._refuse(ResponseCode.SYSTEM_ERROR, "recall failed, execute error") from None
        reply = Reply(encode_dict({"msgId": handle.uniq_key} | region))
        return Later(done.end_offset, reply) if self._answers_wait else reply

    def _checked(self, header: RecallMessageRequestHeader, now_ms: int) -> RecallHandle:
        handle = decode_handle(header.recall_handle)
        if handle is None:
            raise self._illegal("recall handle is invalid")
        if handle.topic != header.topic:
            raise self._illegal("recall failed, topic not match")
        if handle.broker_name != self._live.current.broker_name:
            raise self._illegal("recall failed, broker service not available")
        text = handle.timestamp
        timestamp = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1
        if not 0 < timestamp - now_ms < self._live.store.timer_max_delay_sec * 1000:
            raise self._illegal("recall failed, timestamp invalid")
        return handle

    def _illegal(self, remark: str) -> Refused:
        return self._refuse(ResponseCode.ILLEGAL_OPERATION, remark)

    def _refuse(self, code: int, remark: str) -> Refused:
        return Refused(int(code), remark, encode_dict({"MSG_REGION": self._live.current.region_id}))

    def timer_checkpoint(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_TIMER_CHECK_POINT: seven int64, how far the timer is; for replicas of ours where they would begin."""
        if self._timer is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return Reply(encode_dict(self._timer.beginning()), self._timer.checkpoint_body())

    def timer_metrics(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_TIMER_METRICS: waiting messages by topic."""
        if self._timer is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        return Reply(b"", self._timer.metrics_body())


NO_TIMER = {
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
}


class TimerFeature(Feature):
    """Drives the timer, if the broker has one.

    Args:
        delays: the delay levels, whose delivered copies are found in the same walk through the log.

    Attributes:
        timer: None: timerWheelEnable=false.
    """

    def __init__(self, core: BrokerCore, delays: DelayLevels) -> None:
        self._core = core
        self._delays = delays
        self.timer: TimerLoop | None = None
        if core.timer_store is not None:
            now_ms = core.clock.now_ms()
            timers = Timers(core.store, core.timer_store, core.writer, now_ms, core.delivered)
            self.timer = TimerLoop(core, timers)
        self._recall = RecallProcessor(core, self.timer)

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        recall, lane, nothing = self._recall, Lane.ADMIN, Promise.NOTHING
        return [
            row(
                RequestCode.RECALL_MESSAGE,
                recall.recall,
                RecallMessageRequestHeader,
                Lane.SEND,
                Promise.LOG,
            ),
            row(RequestCode.GET_TIMER_CHECK_POINT, recall.timer_checkpoint, None, lane, nothing),
            row(RequestCode.GET_TIMER_METRICS, recall.timer_metrics, None, lane, nothing),
        ]

    async def prepare(self) -> None:
        """Read the timer's files, and find out what was delivered after they were written."""
        await run_blocking(note_delivered, self._core.store, self._delays, self.timer)

    async def start(self, tasks: Tasks) -> None:
        """Begin to deliver."""
        if self.timer is not None:
            self.timer.start(tasks)

    def forget_topic(self, topic: str) -> None:
        """Its messages are not counted any more."""
        if self.timer is not None:
            self.timer.metrics.forget(topic)

    def runtime_info(self, now_ms: int) -> dict[str, str]:
        """Return how far the timer is behind, and its rates."""
        return NO_TIMER if self.timer is None else self.timer.runtime_info(now_ms)

    def measures(self, now_ms: int) -> list[MetricTable]:
        """Return how much waits, and how late it is."""
        return [] if self.timer is None else self.timer.measures(now_ms)

    async def stop(self) -> None:
        """Wait for a write that is under way."""
        if self.timer is not None:
            await self.timer.finish()

    def save_now(self) -> None:
        """The last flush."""
        if self.timer is not None:
            self.timer.save_now(self._core.clock.now_ms())


# Delay levels: their progress in delayOffset.json, and the task that delivers.


FIRST_S = 1.0


class DelayFeature(Feature):
    """Delivers what waits in the delay levels.

    Attributes:
        levels: the levels and how far each is.
    """

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self.levels = DelayLevels(
            core.store,
            core.writer,
            core.writer.delay_ms,
            core.clock.times,
            core.clock.now_ms(),
            core.delivered,
        )
        steps = SaveSteps(ready=core.log_sync.all_on_disk)  # progress speaks of copies in the log
        self._file = Saver(core.files, DELAYS, self.levels.to_wrapper, steps=steps)

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        return [
            row(
                RequestCode.GET_ALL_DELAY_OFFSET,
                self.all_delay_offsets,
                None,
                Lane.ADMIN,
                Promise.NOTHING,
            )
        ]

    def all_delay_offsets(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_ALL_DELAY_OFFSET: delayOffset.json of now, for a replica."""
        picture = self.levels.picture(self._core.store.max_physical_offset)
        return Reply(b"", encode_body(picture, java_keys=True))

    def beats(self) -> list[Beat]:
        """The file."""
        live = self._core.live
        return [
            Beat(
                "delay-offsets",
                lambda: live.current.flush_delay_offset_interval / 1000,
                self._save,
            )
        ]

    def load(self, start: Start) -> None:
        """Read the file."""
        progress = self._core.files.load(DELAYS, DelayProgress)
        if progress is None:
            self.levels.load_nothing()
        else:
            self.levels.load(progress.offset_table, progress.data_version, progress.log_offset)

    async def start(self, tasks: Tasks) -> None:
        """Deliver."""
        tasks.keep("delay-levels", self._deliver)

    async def _deliver(self, health: Health) -> None:
        await asyncio.sleep(FIRST_S)
        core = self._core
        await run_steps(
            self.levels.step, core.clock, core.shell.end_turn, "delayed messages wait", health
        )

    def runtime_info(self, now_ms: int) -> dict[str, str]:
        """Delivered offset and end of each level's queue."""
        return {
            f"scheduleMessageOffset_{level}": f"{delivered},{end}"
            for level, (delivered, end) in sorted(self.levels.progress().items())
        }

    async def _save(self) -> None:
        if self.levels.dirty:
            self.levels.capture(self._core.store.max_physical_offset)
            self._file.mark()
        await self._file.try_save()

    def save_now(self) -> None:
        """Write the file."""
        self.levels.capture(self._core.store.max_physical_offset)
        self._file.mark()
        self._file.try_save_now()
