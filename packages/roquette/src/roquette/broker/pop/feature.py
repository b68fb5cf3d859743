"""POP: messages are handed out for a while, and come again unless they are acknowledged."""

import asyncio

from roquette.base import metric_families as m
from roquette.base.lifecycle import Health, Tasks
from roquette.base.metric_families import MetricTable, one
from roquette.broker.floor.config_files import ORDERS, Saver, SaveSteps
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Beat, Feature, Lane, Start, run_steps
from roquette.broker.floor.tables.topics import Topic
from roquette.broker.pop.acknowledge import AckProcessor
from roquette.broker.pop.checks import PopChecks
from roquette.broker.pop.hand_out import (
    MAX_BYTES,
    MAX_MESSAGES,
    NEARLY_MS,
    PopOffsets,
    PopProcessor,
    build_filter,
    drawn_queues,
    retry_topics,
)
from roquette.broker.pop.state import PollHold, PopState
from roquette.message.names import pop_retry_topic
from roquette.remoting.promises import Promise
from roquette.remoting.request import Held, Outcome, Reply, RequestContext, Row, row
from roquette.store.format.results import Arrival, GetStatus
from roquette.store.queue_read import MATCH_ALL, QueueRead, ReadRequest, RecordFilter
from roquette.wire import headers as h
from roquette.wire.bodies import ConsumerOrderInfoSerializeWrapper
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import encode_ext
from roquette.wire.headers import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageResponseHeader,
)

# Other requests of clients of POP: peek (200052), notification (200054), polling info (200055).
# Apache: PeekMessageProcessor, NotificationProcessor, PollingInfoProcessor; refusals carry their texts.


WHAT = "peeking message"
_NO_MESSAGE = encode_ext(NotificationResponseHeader())
_NO_POLLING = encode_ext(PollingInfoResponseHeader())
_NO_POP = encode_ext(PopMessageResponseHeader())


class PopInfoProcessor:
    """Looks at queues and at who waits for them; hands out nothing."""

    def __init__(
        self, core: BrokerCore, pop: PopState, checks: PopChecks, places: PopOffsets
    ) -> None:
        self._live = core.live
        self._store = core.store
        self._topics = core.tables.topics
        self._filters = core.tables.filters
        self._stats = core.stats
        self._entropy = core.entropy
        self._pop = pop
        self._checks = checks
        self._places = places

    def roll_back(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """POP_ROLLBACK: bring what waits for acknowledgement from a data base back to the log. It is there already: as
        in Apache's broker without popConsumerKVServiceInit, nothing has to be moved."""
        return Reply()

    def peek_message(
        self, ctx: RequestContext, header: PeekMessageRequestHeader, body: bytes
    ) -> Outcome:
        """PEEK_MESSAGE: what a pop would give, left where it is. At most 32 messages, unlike Apache's."""
        self._checks.broker(WHAT, _NO_POP)
        topic = self._checks.topic_and_group(
            ctx, header.topic, header.queue_id, header.consumer_group, _NO_POP
        )
        draw = self._entropy.below(100)
        retry = self._retry_topic(header.topic, header.consumer_group)
        order: list[tuple[str, int]] = self._rotated(retry, draw)
        own = self._rotated(topic, draw) if header.queue_id < 0 else [(topic.name, header.queue_id)]
        order = [*order, *own] if draw % 5 == 0 else [*own, *order]
        runs: list[bytes] = []
        count = rest = 0
        wanted = min(header.max_msg_nums, MAX_MESSAGES)
        for name, queue_id in order:
            offset = self._places.peek(name, header.consumer_group, queue_id)
            rest += self._store.max_offset(name, queue_id) - offset
            if count >= wanted:
                continue
            request = ReadRequest(name, queue_id, offset, wanted - count, MAX_BYTES)
            found = self._store.read_queue(request)
            if found.status in (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY):
                request.offset = found.next_begin_offset
                found = self._store.read_queue(request)
            runs += found.runs
            count += found.count
        self._stats.get(count)
        status = GetStatus.FOUND if runs else GetStatus.NO_MESSAGE_IN_QUEUE
        code = ResponseCode.SUCCESS if runs else ResponseCode.PULL_NOT_FOUND
        ext = encode_ext(PopMessageResponseHeader(rest_num=rest))
        return Reply(ext, runs or None, code, status.value)

    def notification(
        self, ctx: RequestContext, header: NotificationRequestHeader, body: bytes
    ) -> Outcome:
        """NOTIFICATION: answer as soon as there is something to pop."""
        self._checks.broker(WHAT, _NO_MESSAGE)
        topic = self._checks.topic_and_group(
            ctx, header.topic, header.queue_id, header.consumer_group, _NO_MESSAGE
        )
        chosen = MATCH_ALL
        if self._live.current.use_message_filter_for_notification:
            chosen = build_filter(self._filters, header.exp, header.exp_type, _NO_MESSAGE)
        draw = self._entropy.below(100)
        group = header.consumer_group
        own = self._rotated(topic, draw) if header.queue_id < 0 else [(topic.name, header.queue_id)]
        queues = [*own, *self._rotated(self._retry_topic(header.topic, group), draw)]
        config = self._live.current
        if config.enable_retry_topic_v2 and config.retrieve_message_from_pop_retry_topic_v1:
            older = self._topics.find(pop_retry_topic(header.topic, group, v2=False))
            queues += self._rotated(older, draw)
        if any(self._has_message(ctx, header, chosen, *queue) for queue in queues):
            return Reply(encode_ext(NotificationResponseHeader(has_msg=True)))
        end_ms = ctx.arrived_ms + header.poll_time - NEARLY_MS
        full = False
        if header.poll_time > 0 and ctx.may_hold:
            if self._pop.notices.size >= config.max_pop_polling_size:
                full = True
            elif ctx.steady_ms <= end_ms:
                hold = PollHold(header.topic, group, header.queue_id, chosen, end_ms, notice=True)
                if self._pop.notices.hold(hold, retry_topics(header.topic, group)):
                    return Held(hold)
                full = True
        return Reply(encode_ext(NotificationResponseHeader(polling_full=full)))

    def _has_message(
        self,
        ctx: RequestContext,
        header: NotificationRequestHeader,
        chosen: RecordFilter,
        name: str,
        queue_id: int,
    ) -> bool:
        """Return True when a pop would find something, or would have to look further than one read goes."""
        if header.order and self._pop.orders.blocked(
            header.attempt_id,
            header.topic,
            header.consumer_group,
            queue_id,
            invisible_time=0,
            now_ms=ctx.steady_ms,
        ):
            return False
        offset = self._places.peek(name, header.consumer_group, queue_id)
        end = self._store.max_offset(name, queue_id)
        if end <= offset or chosen is MATCH_ALL or name != header.topic:
            return end > offset
        found = self._store.begin_read(ReadRequest(name, queue_id, offset, 1, 1, chosen))
        return isinstance(found, QueueRead) or found.count > 0 or found.next_begin_offset < end

    def polling_info(
        self, ctx: RequestContext, header: PollingInfoRequestHeader, body: bytes
    ) -> Reply:
        """POLLING_INFO: how many pops of a queue wait."""
        self._checks.broker(WHAT, _NO_POLLING)
        self._checks.topic_and_group(
            ctx, header.topic, header.queue_id, header.consumer_group, _NO_POLLING
        )
        number = self._pop.polls.count(header.topic, header.consumer_group, header.queue_id)
        return Reply(encode_ext(PollingInfoResponseHeader(polling_num=number)))

    def _retry_topic(self, topic: str, group: str) -> Topic | None:
        v2 = self._live.current.enable_retry_topic_v2
        return self._topics.find(pop_retry_topic(topic, group, v2=v2))

    def _rotated(self, topic: Topic | None, draw: int) -> list[tuple[str, int]]:
        """The queues of a topic, from one drawn by lot on."""
        if topic is None:
            return []
        return [(topic.name, q) for q in drawn_queues(topic.read_queues, draw, self._entropy)]


EXPIRY_BEAT_S = 0.1
CLEAN_BEAT_S = 10.0


class PopFeature(Feature):
    """Serves POP's requests, follows the revive log, and runs waiting requests again.

    Life of a message: `hand_out` writes a check-point into the revive log and hands it out; `acknowledge` writes its
    acknowledgement behind; `revive` reads both, joins them, and puts again what nobody acknowledged in time.

    Attributes:
        pop: what POP keeps.
    """

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._saved = core.saved
        self.pop = pop = PopState(core, self._wake)
        steps = SaveSteps(picture=pop.reviver.picture_orders, written=pop.reviver.orders_written)
        self._order_file = Saver(core.files, ORDERS, pop.orders.to_wrapper, steps=steps)
        checks, places = PopChecks(core), PopOffsets(core, pop.orders)
        self._pop = PopProcessor(core, pop, checks, places)
        self._ack = AckProcessor(core, pop, checks)
        self._info = PopInfoProcessor(core, pop, checks, places)

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        code, promise, pull = RequestCode, Promise, Lane.PULL
        pop, ack, info = self._pop, self._ack, self._info
        return [
            row(code.POP_MESSAGE, pop.pop_message, h.PopMessageRequestHeader, pull, promise.LOG),
            row(
                code.PEEK_MESSAGE,
                info.peek_message,
                h.PeekMessageRequestHeader,
                pull,
                promise.NOTHING,
            ),
            row(
                code.NOTIFICATION,
                info.notification,
                h.NotificationRequestHeader,
                pull,
                promise.NOTHING,
            ),
            row(
                code.POLLING_INFO,
                info.polling_info,
                h.PollingInfoRequestHeader,
                pull,
                promise.NOTHING,
            ),
            row(
                code.ACK_MESSAGE, ack.ack_message, h.AckMessageRequestHeader, Lane.ACK, promise.LOG
            ),
            row(code.POP_ROLLBACK, info.roll_back, None, Lane.ADMIN, promise.NOTHING),
            row(code.BATCH_ACK_MESSAGE, ack.batch_ack, None, Lane.ACK, promise.LOG),
            row(
                code.CHANGE_MESSAGE_INVISIBLETIME,
                ack.change_invisible_time,
                h.ChangeInvisibleTimeRequestHeader,
                Lane.ACK,
                promise.LOG,
            ),
        ]

    def beats(self) -> list[Beat]:
        """Deadlines, the file of orderly pops, and what is gone of them."""
        live = self._core.live
        return [
            Beat("pop-expiry", EXPIRY_BEAT_S, self._expire),
            Beat("order-info", live.offset_interval_s, self._save_orders),
            Beat("order-clean", CLEAN_BEAT_S, self._clean),
        ]

    def load(self, start: Start) -> None:
        """Read the file, then the revive log."""
        pop, files = self.pop, self._core.files
        self._saved.before_offsets(self._settle)
        pop.orders.start(start.now_ms, start.steady_ms)
        orders = files.load(ORDERS, ConsumerOrderInfoSerializeWrapper)
        if orders is not None:
            pop.orders.load(orders.table, start.steady_ms)
        pop.reviver.recover(start.now_ms, start.steady_ms, start.last_record_offset)

    def _settle(self) -> None:
        settled = not (self.pop.orders.dirty or self._order_file.dirty)
        self.pop.reviver.snapshot(self._core.clock.now_ms(), settled=settled)

    async def start(self, tasks: Tasks) -> None:
        """Follow the revive log."""
        tasks.keep("revive", self._revive)

    async def _revive(self, health: Health) -> None:
        core = self._core
        await run_steps(
            self.pop.reviver.step,
            core.clock,
            core.shell.end_turn,
            "unacknowledged messages wait",
            health,
        )

    def measures(self, now_ms: int) -> list[MetricTable]:
        """Pops that are out, and what came of them."""
        reviver = self.pop.reviver
        return [
            one(m.POP_OUT, reviver.out()),
            one(m.REVIVE_LAG, reviver.behind()),
            one(m.REVIVED, reviver.revived),
        ]

    def arrived(self, arrivals: list[Arrival]) -> None:
        """Run again the pops that wait for these messages."""
        pop = self.pop
        if pop.polls.size or pop.notices.size:  # the test on the way of every message
            self._run(self.pop.on_arrivals(arrivals), may_hold=True)

    def _expire(self) -> None:
        now_ms = self._core.clock.steady_ms()
        self._run(self.pop.expire(now_ms), may_hold=False)
        self._run(self.pop.freed(now_ms), may_hold=True)

    def _clean(self) -> None:
        self.pop.clean(self._core.clock.steady_ms())

    def drain(self) -> None:
        """Answer all requests that wait."""
        self._run(self.pop.drain(), may_hold=False)

    def _run(self, due: list[PollHold], *, may_hold: bool) -> None:
        for hold in due:
            job = hold.job
            if job is not None:
                self._core.shell.rerun(job, may_hold)  # or let it go
            if may_hold and (job is None or job.peer.closed or job.cancelled):
                # Its client is gone: the message is another's.
                due.extend(self.pop.another(hold))

    def _wake(self, hold: PollHold) -> None:
        asyncio.get_running_loop().call_soon(lambda: self._run([hold], may_hold=True))

    def forget_topic(self, topic: str) -> None:
        """Its orderly pops go."""
        self.pop.forget_topic(topic)

    def forget_group(self, group: str, clean_offset: bool) -> None:
        """Its orderly pops go."""
        self.pop.forget_group(group)

    async def _save_orders(self) -> None:
        if self.pop.orders.dirty:
            self.pop.orders.dirty = False
            self._order_file.mark()
        await self._order_file.try_save()

    def save_now(self) -> None:
        """Write the orderly pops."""
        self._order_file.mark()
        self._order_file.try_save_now()
