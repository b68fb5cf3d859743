"""Pop messages (200050): hand out what a group has not got yet, for a while.

Apache: PopMessageProcessor; refusals carry its texts.
"""

from collections.abc import Generator
from typing import Final

from librt.strings import read_i32_be

from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.base.javatypes import whole_number
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.set_aside import sound_record
from roquette.broker.floor.tables.filters import SubscriptionFilters
from roquette.broker.floor.tables.groups import MESSAGE_TYPE, PRIORITY_FACTOR
from roquette.broker.floor.tables.topics import Topic
from roquette.broker.floor.timer_rules import RETRY_PERM
from roquette.broker.pop.checkpoint import ORDER_REVIVE_QID, Ack, CheckPoint
from roquette.broker.pop.checks import PopChecks
from roquette.broker.pop.order import OrderTable
from roquette.broker.pop.receipt import (
    build_extra_info,
    message_offset_info,
    queue_offsets,
    start_offset_info,
)
from roquette.broker.pop.state import PollHold, PopState, QueueOfGroup
from roquette.errors import ExpressionError, Refused
from roquette.message import properties
from roquette.message.names import RETRY_PREFIX, pop_retry_topic
from roquette.message.properties import decode_properties, encode_properties
from roquette.message.record import encode_record
from roquette.message.record_layout import MAX_PROPERTIES, draft_of, place_of
from roquette.remoting.request import Held, Later, Outcome, Reply, RequestContext, Task
from roquette.store.format.results import Found, GetStatus
from roquette.store.queue_read import MATCH_ALL, QueueRead, ReadRequest, RecordFilter
from roquette.wire.bodies import SubscriptionGroupConfig
from roquette.wire.codes import ResponseCode
from roquette.wire.header_codec import encode_ext
from roquette.wire.headers import PopMessageRequestHeader, PopMessageResponseHeader

# The place where a group pops next, and the records of a pop as they leave. Pure but for the store.


INIT_MIN = 0


MOST_QUEUES: Final = 16_384  # of a topic, looked at by one request


def drawn_queues(count: int, draw: int, entropy: Entropy) -> list[int]:
    """Queue ids in the order in which a pop looks at them: all from one drawn by lot on; of very many, that many."""
    if count <= MOST_QUEUES:
        return [(draw + step) % count for step in range(count)]
    first = entropy.below(count)
    return [(first + step) % count for step in range(MOST_QUEUES)]


def highest_first(topic: Topic, group: SubscriptionGroupConfig | None, draw: int) -> list[int]:
    """Queue ids of a topic for priorities from the highest down, retries after them; none: it is another topic, or this pop,
    by the lot drawn of 100, is not among those that the group's `priority.factor` lets look at priorities."""
    if topic.attributes.get(MESSAGE_TYPE) != "PRIORITY" or topic.read_queues > MOST_QUEUES:
        return []
    attribute = ((group and group.attributes) or {}).get(PRIORITY_FACTOR)
    factor = whole_number(attribute, 100)
    return [] if 0 <= factor <= draw else list(range(topic.read_queues - 1, -1, -1))


class PopOffsets:
    """The next offset of each topic, group and queue."""

    def __init__(self, core: BrokerCore, orders: OrderTable) -> None:
        self._live = core.live
        self._store = core.store
        self._offsets = core.tables.offsets
        self._orders = orders

    def start(self, topic: str, group: str, queue_id: int, init_mode: int, now_ms: int) -> int:
        """Return where a pop begins; a new group's place is committed at once (getPopOffset, getInitOffset).

        A pending reset is over with this, and with it what an orderly pop holds (resetPopOffset).

        Raises:
            Refused: there is no room for the place of a new group.
        """
        if self._offsets.pending_resets:
            reset = self._offsets.take_reset(group, topic, queue_id)
            if reset is not None:
                self._orders.clear(topic, group, queue_id)
                return reset
        offset = self._offsets.query(group, topic, queue_id)
        if offset >= 0:
            return offset
        low = self._store.min_offset(topic, queue_id)
        if init_mode == INIT_MIN or topic.startswith(RETRY_PREFIX):
            offset = low
        elif low <= 0 and self._in_memory(topic, queue_id):
            offset = 0
        else:  # the last message, so that a group that starts now sees that it works
            offset = max(0, self._store.max_offset(topic, queue_id) - 1)
        self._offsets.make_room(group, topic, [queue_id])
        self._offsets.commit(group, topic, queue_id, offset, now_ms)
        return offset

    def correct(self, topic: str, group: str, queue_id: int, offset: int, now_ms: int) -> None:
        """The queue does not reach the committed offset: go on from `offset`, backward too."""
        self._offsets.reset(group, topic, queue_id, offset, now_ms)
        self._offsets.take_reset(group, topic, queue_id)

    def peek(self, topic: str, group: str, queue_id: int) -> int:
        """Return where it would begin; nothing is committed (PeekMessageProcessor.getPopOffset)."""
        offset = self._offsets.query(group, topic, queue_id)
        return offset if offset >= 0 else self._store.min_offset(topic, queue_id)

    def _in_memory(self, topic: str, queue_id: int) -> bool:
        if not self._live.current.init_pop_offset_by_check_msg_in_mem:
            return False
        found = self._store.begin_read(ReadRequest(topic, queue_id, 0, 1, 1))
        return isinstance(found, Found) and found.count > 0


def as_of_topic(
    runs: list[bytes],
    topic: str,
    *,
    start: int,
    pop_time: int,
    invisible_time: int,
    revive_qid: int,
    broker_name: str,
) -> list[bytes]:
    """Records of a retry topic as records of the topic the client asked for, each with its receipt.

    A record whose properties have no room for the receipt leaves as it is; clients can make the receipt themselves.
    """
    name = topic.encode()
    found: list[bytes] = []
    for run in runs:
        position = 0
        while position < len(run):
            record = sound_record(run, position)
            if record is None:
                position += max(1, read_i32_be(run, position))
                continue
            named = decode_properties(record.properties)
            receipt = build_extra_info(
                start,
                pop_time,
                invisible_time,
                revive_qid,
                record.topic,
                broker_name,
                record.queue_id,
                record.queue_offset,
            )
            named.setdefault(properties.POP_CK, receipt)
            text = encode_properties(named).encode()
            if len(text) > MAX_PROPERTIES:
                found.append(run[position : position + record.size])
            else:
                draft = draft_of(record)
                draft.properties = text
                place = place_of(record)
                place.topic = name
                found.append(encode_record(draft, place))
            position += record.size
    return found


# Messages that were handed out to somebody who does not read the answer: they come again soon, as not tried.


AGAIN_MS: Final = 1_000  # Apache's proxy: NACK_INVISIBLE_TIME


class GiveBack:
    """Messages that one pop has handed out; `drop` makes them visible again (ReceiveMessageResponseStreamWriter).

    Attributes:
        runs: of which queue, where the pop began to read, and the queue offsets it hands out.
    """

    __slots__ = (
        "_clock", "_done", "_order", "_pop", "_pop_time", "broker_name", "revive_qid", "runs",
    )  # fmt: skip

    def __init__(self, pop: PopState, clock: Clock, pop_time: int, order: bool) -> None:
        self._pop = pop
        self._clock = clock
        self._pop_time = pop_time
        self._order = order
        self._done = False
        self.revive_qid = 0
        self.broker_name = ""
        self.runs: list[tuple[QueueOfGroup, int, list[int]]] = []

    def drop(self) -> None:
        """Nobody reads the answer. When the store takes nothing now, they come when their time is over."""
        if self._done:
            return
        self._done = True
        now_ms = self._clock.now_ms()
        try:
            for queue, start, offsets in self.runs:
                if self._order:
                    self._free_order(queue, offsets, now_ms)
                else:
                    self._free(queue, start, offsets, now_ms)
        except Refused:
            return

    def _free_order(self, queue: QueueOfGroup, offsets: list[int], now_ms: int) -> None:
        steady_ms = self._clock.steady_ms()
        visible = self._pop.orders.wall_ms(*queue, steady_ms) + AGAIN_MS
        for offset in offsets:
            self._pop.orders.set_next_visible(
                *queue, offset, pop_time=self._pop_time, next_visible=visible, now_ms=steady_ms
            )
        self._pop.log_order(*queue, now_ms)

    def _free(self, queue: QueueOfGroup, start: int, offsets: list[int], now_ms: int) -> None:
        """A check-point of their own that ends soon, and an acknowledgement of the first (see `change_invisible_time`)."""
        topic, group, queue_id = queue
        point = CheckPoint(
            start_offset=offsets[0],
            pop_time=max(now_ms, self._pop_time + 1),
            invisible_time=AGAIN_MS,
            num=len(offsets),
            queue_id=queue_id,
            topic=topic,
            group=group,
            diffs=[offset - offsets[0] for offset in offsets],
            broker_name=self.broker_name,
            suspend=True,
        )
        self._pop.log.append_check_point(point, self.revive_qid, now_ms)
        ack = Ack(
            start_offset=start,
            group=group,
            topic=topic,
            queue_id=queue_id,
            pop_time=self._pop_time,
            broker_name=self.broker_name,
            offsets=list(offsets),
        )
        self._pop.log.append(ack, self.revive_qid, deliver_ms=now_ms, now_ms=now_ms)


MAX_MESSAGES = 32
TOO_LATE_MS = 500
NEARLY_MS = 50  # a request this close to its end waits no more (PopRequest.isTimeout)
MAX_BYTES = 1 << 30
_NOTHING = encode_ext(PopMessageResponseHeader())
_MOVED = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL)
_PASSED = (
    GetStatus.NO_MATCHED_MESSAGE,
    GetStatus.OFFSET_FOUND_NULL,
    GetStatus.MESSAGE_WAS_REMOVING,
    GetStatus.NO_MATCHED_LOGIC_QUEUE,
)
Work = Generator[QueueRead, Found, Outcome]
Part = Generator[QueueRead, Found, None]


class _Batch:
    """Messages and counts that one pop has gathered so far."""

    __slots__ = (
        "advanced", "chosen", "cold", "count", "counts", "end_offset", "given", "messages",
        "overruled", "pop_time", "rest", "revive_qid", "runs", "starts",
    )  # fmt: skip

    def __init__(self, chosen: RecordFilter, pop_time: int, revive_qid: int) -> None:
        self.chosen = chosen
        self.pop_time = pop_time
        self.revive_qid = revive_qid
        self.runs: list[bytes] = []
        self.count = 0
        self.rest = 0  # messages left in the queues looked at
        self.starts: list[str] = []
        self.messages: list[str] = []
        self.counts: list[str] = []
        self.end_offset = 0  # of the log, after the last check-point
        self.advanced = False  # messages nobody here wants were passed over
        self.cold = False  # records were read beside the loop
        self.overruled = False  # somebody has reset or deleted offsets meanwhile: it ends here
        self.given: GiveBack | None = None  # what goes back when nobody reads the answer


class PopProcessor:
    """Serves the pops."""

    def __init__(
        self, core: BrokerCore, pop: PopState, checks: PopChecks, places: PopOffsets
    ) -> None:
        self._live = core.live
        self._store = core.store
        self._topics = core.tables.topics
        self._offsets = core.tables.offsets
        self._groups = core.tables.groups
        self._filters = core.tables.filters
        self._stats = core.stats
        self._entropy = core.entropy
        self._pop = pop
        self._clock = core.clock
        self._checks = checks
        self._places = places
        self._read_cold = core.read_cold
        self._log_sync = core.log_sync
        self._answers_wait = core.log_sync.answers_wait

    def pop_message(
        self, ctx: RequestContext, header: PopMessageRequestHeader, body: bytes
    ) -> Outcome:
        """POP_MESSAGE."""
        broker = self._checks.broker_address
        if ctx.steady_ms - ctx.arrived_ms - header.poll_time > TOO_LATE_MS:
            raise Refused(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{broker}] pop message is timeout too much",
                _NOTHING,
            )
        self._checks.broker("pop message", _NOTHING)
        if header.max_msg_nums > MAX_MESSAGES:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{broker}] pop message's num is greater than {MAX_MESSAGES}",
                _NOTHING,
            )
        topic = self._checks.topic_and_group(
            ctx, header.topic, header.queue_id, header.consumer_group, _NOTHING
        )
        chosen = build_filter(self._filters, header.exp, header.exp_type, _NOTHING)
        work = self._work(ctx, header, topic, chosen)
        try:
            cold = next(work)
        except StopIteration as done:
            outcome: Outcome = done.value
            return outcome
        return Task(self._finish_with_cold_reads(ctx, work, cold))

    async def _finish_with_cold_reads(
        self, ctx: RequestContext, work: Work, cold: QueueRead
    ) -> Reply:
        """A pop that needs records the disk may have to be asked for. Messages that nobody reads go back."""
        try:
            while True:
                cold = work.send(await self._read_cold(cold))
        except StopIteration as done:
            outcome = done.value
        finally:
            work.close()
        reply = outcome
        if isinstance(outcome, Later):
            code = await self._log_sync.safe(outcome.end_offset)
            reply = outcome.reply
            if code != ResponseCode.SUCCESS:
                reply.code = code
        if ctx.peer.closed and ctx.hold is not None:
            ctx.hold.drop()
        assert isinstance(reply, Reply), outcome
        return reply

    def _work(
        self,
        ctx: RequestContext,
        header: PopMessageRequestHeader,
        topic: Topic,
        chosen: RecordFilter,
    ) -> Work:
        config = self._live.current
        draw = self._entropy.below(100)
        revive_qid = ORDER_REVIVE_QID if header.order else self._pop.log.next_queue()
        batch = _Batch(chosen, ctx.now_ms, revive_qid)
        group = self._groups.find(header.consumer_group, ctx.now_ms)
        highest = [] if header.order else highest_first(topic, group, draw)
        retry_first = not highest and draw < config.pop_from_retry_probability
        older = config.enable_retry_topic_v2 and config.retrieve_message_from_pop_retry_topic_v1
        v2 = config.enable_retry_topic_v2 and not (older and draw % 2 == 0)
        retry = pop_retry_topic(header.topic, header.consumer_group, v2=v2)
        if retry_first and not header.order:
            yield from self._retries(ctx, header, batch, retry, draw)
        if header.queue_id < 0:
            for queue_id in highest or drawn_queues(topic.read_queues, draw, self._entropy):
                yield from self._queue(ctx, header, batch, topic.name, queue_id)
        else:
            yield from self._queue(ctx, header, batch, topic.name, header.queue_id)
        if not retry_first and not header.order and batch.count < header.max_msg_nums:
            yield from self._retries(ctx, header, batch, retry, draw)
        return self._answer(ctx, header, batch)

    def _retries(
        self,
        ctx: RequestContext,
        header: PopMessageRequestHeader,
        batch: _Batch,
        name: str,
        draw: int,
    ) -> Part:
        topic = self._topics.find(name)
        if topic is None:
            if not self._store.max_offset(name, 0):
                return
            # Its messages outlived the file that knew of it: a crash just after its creation.
            topic = self._topics.ensure(
                name, queues=1, perm=RETRY_PERM, needed=True, now_ms=ctx.now_ms
            )
        for queue_id in drawn_queues(topic.read_queues, draw, self._entropy):
            yield from self._queue(ctx, header, batch, name, queue_id, retry=True)

    def _queue(
        self,
        ctx: RequestContext,
        header: PopMessageRequestHeader,
        batch: _Batch,
        name: str,
        queue_id: int,
        *,
        retry: bool = False,
    ) -> Part:
        """Take from one queue (popMsgFromQueue). No other pop changes its offset meanwhile; when an operator does,
        his word counts, and what was read is left for the next pop."""
        group = header.consumer_group
        queue = QueueOfGroup(name, group, queue_id)
        if batch.overruled:
            return
        # The same messages would go out twice: another pop of this queue waits for the disk.
        if queue in self._pop.locked:
            start = self._places.peek(name, group, queue_id)
            batch.rest += 0 if header.order else self._store.max_offset(name, queue_id) - start
            return
        # Before the look at what blocks: a reset that this takes ends what an orderly pop holds.
        offset = self._places.start(name, group, queue_id, header.init_mode, ctx.now_ms)
        behind = self._store.max_offset(name, queue_id) - offset
        if header.order and self._pop.orders.blocked(
            header.attempt_id,
            name,
            group,
            queue_id,
            invisible_time=header.invisible_time,
            now_ms=ctx.steady_ms,
        ):
            return
        if batch.count >= header.max_msg_nums:
            batch.rest += behind
            return
        if header.order:
            # Refused before anything is read: an orderly pop that cannot be remembered must not go out.
            self._pop.orders.make_room(name, group, queue_id)
        # Messages come to a retry topic after they were handed out: the group's filter has let them through.
        chosen = MATCH_ALL if retry else batch.chosen
        found = self._read(queue, offset, header.max_msg_nums - batch.count, chosen)
        if isinstance(found, Found) and found.status in _MOVED:
            offset = found.next_begin_offset
            self._places.correct(name, group, queue_id, offset, ctx.now_ms)
            found = self._read(queue, offset, header.max_msg_nums - batch.count, chosen)
        if isinstance(found, QueueRead):
            batch.cold = True
            overruled = self._offsets.overruled
            # Others run only while the disk is read: the rest of a pop is done without a break.
            self._pop.locked.add(queue)
            try:
                found = yield found
            finally:
                self._pop.locked.discard(queue)
            if self._offsets.overruled != overruled or ctx.cancelled or ctx.peer.closed:
                batch.overruled = (
                    True  # or nobody reads the answer: what was found is left for the next pop
                )
                return
        if found.count:
            if not self._hand_out(ctx, header, batch, queue, offset, found, retry=retry):
                batch.rest += found.count
                return
        elif found.status in _PASSED and found.next_begin_offset > offset:
            self._offsets.commit(group, name, queue_id, found.next_begin_offset, ctx.now_ms)
            batch.advanced = True
        batch.rest += max(0, found.max_offset - found.next_begin_offset)

    def _read(
        self, queue: QueueOfGroup, offset: int, count: int, chosen: RecordFilter
    ) -> Found | QueueRead:
        wanted = ReadRequest(queue.topic, queue.queue_id, offset, count, MAX_BYTES, chosen)
        return self._store.begin_read(wanted)

    def _hand_out(
        self,
        ctx: RequestContext,
        header: PopMessageRequestHeader,
        batch: _Batch,
        queue: QueueOfGroup,
        start: int,
        found: Found,
        *,
        retry: bool,
    ) -> bool:
        """Messages go out: their check-point into the log first; False when that cannot be written."""
        name, group, queue_id = queue
        # The check-point first: a crash before the commit hands messages out twice, the other way round it loses them.
        offsets = queue_offsets(found.runs)
        try:
            if header.order:
                self._log_order(ctx, header, batch, queue, offsets)
            else:
                self._log_check_point(ctx, header, batch, queue, start, offsets)
        except Refused:
            return False
        # In order, the offset moves on with the acknowledgements only (`OrderTable.commit_and_next`).
        committed = start if header.order else found.next_begin_offset
        self._offsets.commit(group, name, queue_id, committed, ctx.now_ms)
        if batch.given is None:
            batch.given = GiveBack(self._pop, self._clock, batch.pop_time, header.order)
            batch.given.revive_qid, batch.given.broker_name = (
                batch.revive_qid,
                self._live.current.broker_name,
            )
        batch.given.runs.append((queue, start, offsets))
        batch.starts.append(start_offset_info(name, queue_id, start))
        batch.messages.append(message_offset_info(name, queue_id, offsets))
        runs = found.runs
        if retry and not self._live.current.pop_response_return_actual_retry_topic:
            runs = as_of_topic(
                runs,
                header.topic,
                start=start,
                pop_time=batch.pop_time,
                invisible_time=header.invisible_time,
                revive_qid=batch.revive_qid,
                broker_name=self._live.current.broker_name,
            )
        batch.runs += runs
        batch.count += len(offsets)
        self._stats.get(len(offsets))
        self._stats.group_get(name, group, len(offsets), found.size)
        return True

    def _log_order(
        self,
        ctx: RequestContext,
        header: PopMessageRequestHeader,
        batch: _Batch,
        queue: QueueOfGroup,
        offsets: list[int],
    ) -> None:
        """Write what an orderly pop holds of a queue into the log. Raises Refused: it holds what it held before."""
        name, group, queue_id = queue
        before = self._pop.orders.find(name, group, queue_id)
        counts = self._pop.orders.update(
            name,
            group,
            queue_id,
            attempt_id=header.attempt_id,
            pop_time=batch.pop_time,
            invisible_time=header.invisible_time,
            offsets=offsets,
            now_ms=ctx.steady_ms,
        )
        try:
            batch.end_offset = self._pop.log_order(name, group, queue_id, ctx.now_ms)
        except Refused:
            self._pop.orders.restore(name, group, queue_id, before, ctx.steady_ms)
            raise
        batch.counts += counts

    def _log_check_point(
        self,
        ctx: RequestContext,
        header: PopMessageRequestHeader,
        batch: _Batch,
        queue: QueueOfGroup,
        start: int,
        offsets: list[int],
    ) -> None:
        """The check-point of messages that go out, into the log. Raises Refused."""
        name, group, queue_id = queue
        point = CheckPoint(
            start_offset=start,
            pop_time=batch.pop_time,
            invisible_time=header.invisible_time,
            num=len(offsets),
            queue_id=queue_id,
            topic=name,
            group=group,
            diffs=[offset - start for offset in offsets],
            broker_name=self._live.current.broker_name,
        )
        batch.end_offset = self._pop.log.append_check_point(point, batch.revive_qid, ctx.now_ms)
        self._stats.checked(name, group)

    def _answer(
        self, ctx: RequestContext, header: PopMessageRequestHeader, batch: _Batch
    ) -> Outcome:
        code = ResponseCode.SUCCESS
        if not batch.count:
            waiting = self._hold(ctx, header, batch)
            if isinstance(waiting, Held):
                if batch.rest > 0 and batch.advanced:
                    self._wake_another(header)
                return waiting
            code = waiting
        elif batch.rest > 0:
            self._wake_another(header)
        ext = PopMessageResponseHeader(
            pop_time=batch.pop_time,
            invisible_time=header.invisible_time,
            revive_qid=batch.revive_qid,
            rest_num=batch.rest,
            start_offset_info=";".join(batch.starts),
            msg_offset_info=";".join(batch.messages),
            order_count_info=";".join(batch.counts) if header.order else None,
        )
        status = GetStatus.FOUND if batch.count else GetStatus.NO_MESSAGE_IN_QUEUE
        reply = Reply(encode_ext(ext), batch.runs or None, code, status.value)
        waits = self._answers_wait and batch.end_offset > 0
        # Its client may go before this answer leaves: the messages then go back at once, not after their invisible time.
        if batch.given is not None and (waits or batch.cold):
            if ctx.cancelled or ctx.peer.closed:
                batch.given.drop()
            else:
                ctx.hold = batch.given
        return Later(batch.end_offset, reply) if waits else reply

    def _wake_another(self, header: PopMessageRequestHeader) -> None:
        """There is more: one request that waits for the same may go on."""
        hold = self._pop.polls.wake(header.topic, header.consumer_group, header.queue_id)
        if hold is not None:
            self._pop.wake(hold)

    def _hold(
        self, ctx: RequestContext, header: PopMessageRequestHeader, batch: _Batch
    ) -> Held | ResponseCode:
        """Wait for messages, or say why not (PopLongPollingService.polling)."""
        end_ms = ctx.arrived_ms + header.poll_time - NEARLY_MS
        if header.poll_time <= 0 or not ctx.may_hold or batch.cold:
            return ResponseCode.POLLING_TIMEOUT
        if self._pop.polls.size >= self._live.current.max_pop_polling_size:
            return ResponseCode.POLLING_FULL
        if ctx.steady_ms > end_ms:
            return ResponseCode.POLLING_TIMEOUT
        hold = PollHold(header.topic, header.consumer_group, header.queue_id, batch.chosen, end_ms)
        if self._pop.polls.hold(hold, retry_topics(header.topic, header.consumer_group)):
            return Held(hold)
        return ResponseCode.POLLING_FULL


def build_filter(
    filters: SubscriptionFilters, expression: str | None, kind: str | None, ext: bytes
) -> RecordFilter:
    """The filter a request brings; none lets every message through.

    Raises:
        Refused: it is invalid.
    """
    if not expression:
        return MATCH_ALL
    try:
        return filters.build(expression, kind)
    except ExpressionError as error:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"parse the consumer's subscription failed: {error}",
            ext,
        ) from None


def retry_topics(topic: str, group: str) -> tuple[str, str]:
    """The group's pop retry topics, of both versions."""
    return pop_retry_topic(topic, group, v2=False), pop_retry_topic(topic, group, v2=True)
