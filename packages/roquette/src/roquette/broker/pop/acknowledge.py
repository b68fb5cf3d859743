"""Receipts come back: ack (200051), batch ack (200151), change of the invisible time (200053).

Apache: AckMessageProcessor, ChangeInvisibleTimeProcessor; refusals carry their texts.
"""

from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import decode_request
from roquette.broker.pop.checkpoint import ORDER_REVIVE_QID, Ack, CheckPoint
from roquette.broker.pop.checks import PopChecks
from roquette.broker.pop.order import ILLEGAL
from roquette.broker.pop.receipt import PopReceipt, parse_extra_info, real_topic
from roquette.broker.pop.state import PopState
from roquette.errors import Refused
from roquette.remoting.request import Later, Reply, RequestContext
from roquette.wire.bodies import BatchAck, BatchAckMessageRequestBody
from roquette.wire.codes import ResponseCode
from roquette.wire.header_codec import encode_ext
from roquette.wire.headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)

MAX_BATCH_ACKS = 4_096  # entries of one batch; each may become a message
MAX_BITS = 4_096  # of one check-point, which has 32 messages and perhaps others between them
_UNCHANGED = encode_ext(ChangeInvisibleTimeResponseHeader())


class AckProcessor:
    """Notes what consumers are done with."""

    def __init__(self, core: BrokerCore, pop: PopState, checks: PopChecks) -> None:
        self._store = core.store
        self._offsets = core.tables.offsets
        self._pop = pop
        self._checks = checks
        self._stats = core.stats
        self._answers_wait = core.log_sync.answers_wait

    def ack_message(
        self, ctx: RequestContext, header: AckMessageRequestHeader, body: bytes
    ) -> Reply | Later:
        """ACK_MESSAGE."""
        self._checks.acknowledged_queue(ctx, header.topic, header.queue_id)
        low = self._store.min_offset(header.topic, header.queue_id)
        high = self._store.max_offset(header.topic, header.queue_id)
        if not low <= header.offset <= high:
            raise Refused(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{header.topic}@{header.queue_id}, "
                f"commit:{header.offset}, store:{low}~{high}",
            )
        receipt = parse_extra_info(header.extra_info)
        if receipt.revive_qid == ORDER_REVIVE_QID:
            end = self._ack_orderly(
                ctx,
                header.topic,
                header.consumer_group,
                header.queue_id,
                header.offset,
                pop_time=receipt.pop_time,
                invisible_time=receipt.invisible_time,
            )
            return self._later(end, Reply())
        return self._later(self._append_one(header, receipt, ctx.now_ms), Reply())

    def batch_ack(self, ctx: RequestContext, header: None, body: bytes) -> Reply | Later:
        """BATCH_ACK_MESSAGE. What is not ours is passed over, as Apache does."""
        request = decode_request(BatchAckMessageRequestBody, body)
        if not request.acks:
            raise Refused(ResponseCode.NO_MESSAGE, "")
        if len(request.acks) > MAX_BATCH_ACKS:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"more than {MAX_BATCH_ACKS} acks")
        end = 0
        for entry in request.acks:
            end = max(end, self._ack_entry(ctx, entry, request.broker_name))
        return self._later(end, Reply())

    def _ack_entry(self, ctx: RequestContext, entry: BatchAck, broker_name: str | None) -> int:
        """One check-point's part of a batch; returns the log's end after it, or 0."""
        topic = real_topic(entry.topic, entry.consumer_group, entry.retry)
        low = self._store.min_offset(topic, entry.queue_id)
        high = self._store.max_offset(topic, entry.queue_id)
        wanted = [entry.start_offset + bit for bit in _bits(entry.bits)]
        offsets = [offset for offset in wanted if low <= offset <= high]
        if entry.revive_queue_id == ORDER_REVIVE_QID:
            end = 0
            for offset in offsets:
                end = self._ack_orderly(
                    ctx,
                    topic,
                    entry.consumer_group,
                    entry.queue_id,
                    offset,
                    pop_time=entry.pop_time,
                    invisible_time=entry.invisible_time,
                )
            return end
        if not offsets:
            return 0
        ack = Ack(
            start_offset=entry.start_offset,
            group=entry.consumer_group,
            topic=topic,
            queue_id=entry.queue_id,
            pop_time=entry.pop_time,
            broker_name=broker_name,
            offsets=offsets,
        )
        due = entry.pop_time + entry.invisible_time
        return self._append(ack, entry.revive_queue_id, due, ctx.now_ms)

    def change_invisible_time(
        self, ctx: RequestContext, header: ChangeInvisibleTimeRequestHeader, body: bytes
    ) -> Reply | Later:
        """CHANGE_MESSAGE_INVISIBLETIME: write a check-point of its own for the message, then acknowledge the old one."""
        self._checks.acknowledged_queue(ctx, header.topic, header.queue_id, _UNCHANGED)
        low = self._store.min_offset(header.topic, header.queue_id)
        high = self._store.max_offset(header.topic, header.queue_id)
        if not low <= header.offset < high:
            raise Refused(ResponseCode.NO_MESSAGE, "", _UNCHANGED)
        receipt = parse_extra_info(header.extra_info)
        if receipt.revive_qid == ORDER_REVIVE_QID:
            return self._change_orderly(ctx, header, receipt.pop_time)
        # Two check-points of one message must not have one key, or the first would take the other's place.
        now_ms = ctx.now_ms + 1 if ctx.now_ms == receipt.pop_time else ctx.now_ms
        point = CheckPoint(
            start_offset=header.offset,
            pop_time=now_ms,
            invisible_time=header.invisible_time,
            num=1,
            queue_id=header.queue_id,
            topic=header.topic,
            group=header.consumer_group,
            diffs=[0],
            broker_name=receipt.broker_name,
            suspend=header.suspend,
        )
        self._own_queue(receipt.revive_qid)
        self._pop.log.append_check_point(point, receipt.revive_qid, ctx.now_ms)
        self._stats.checked(header.topic, header.consumer_group)
        end = self._append_one(header, receipt, ctx.now_ms)
        ext = ChangeInvisibleTimeResponseHeader(
            pop_time=now_ms, invisible_time=header.invisible_time, revive_qid=receipt.revive_qid
        )
        return self._later(end, Reply(encode_ext(ext)))

    def _change_orderly(
        self, ctx: RequestContext, header: ChangeInvisibleTimeRequestHeader, pop_time: int
    ) -> Reply | Later:
        """processChangeInvisibleTimeForOrder."""
        committed = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if header.offset < committed:
            return Reply(_UNCHANGED)
        place = (header.topic, header.consumer_group, header.queue_id)
        visible = self._pop.orders.wall_ms(*place, ctx.steady_ms) + header.invisible_time
        self._pop.orders.set_next_visible(
            header.topic,
            header.consumer_group,
            header.queue_id,
            header.offset,
            pop_time=pop_time,
            next_visible=visible,
            now_ms=ctx.steady_ms,
        )
        ext = ChangeInvisibleTimeResponseHeader(
            pop_time=pop_time, invisible_time=visible - pop_time, revive_qid=ORDER_REVIVE_QID
        )
        end = self._pop.log_order(*place, ctx.now_ms)
        return self._later(end, Reply(encode_ext(ext)))

    def _ack_orderly(
        self,
        ctx: RequestContext,
        topic: str,
        group: str,
        queue_id: int,
        offset: int,
        *,
        pop_time: int,
        invisible_time: int,
    ) -> int:
        """AckMessageProcessor.ackOrderly; returns the log's end after what it put on record, or 0."""
        committed = self._offsets.query(group, topic, queue_id)
        if offset < committed:
            return 0
        orders = self._pop.orders
        following = orders.commit_and_next(topic, group, queue_id, offset, pop_time, ctx.steady_ms)
        if following == ILLEGAL:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{committed}, "
                f"commit:{offset}, next:{following}, {ctx.peer.remote}",
            )
        self._stats.acked(topic, group, 1)
        if following < 0:
            return 0
        end = self._pop.log_order(topic, group, queue_id, ctx.now_ms)
        self._offsets.commit(group, topic, queue_id, following, ctx.now_ms)
        if not orders.blocked(
            None, topic, group, queue_id, invisible_time=invisible_time, now_ms=ctx.steady_ms
        ):
            for hold in self._pop.free(topic, group, queue_id):
                self._pop.wake(hold)
        return end

    def _append_one(
        self,
        header: AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader,
        receipt: PopReceipt,
        now_ms: int,
    ) -> int:
        """Acknowledge the message of a receipt; returns the log's end."""
        self._own_queue(receipt.revive_qid)
        topic, group = header.topic, header.consumer_group
        end = self._pop.log.append_ack(
            group, topic, header.queue_id, header.offset, receipt, now_ms
        )
        self._stats.acked(topic, group, 1)
        return end

    def _append(self, ack: Ack, revive_qid: int, deliver_ms: int, now_ms: int) -> int:
        self._own_queue(revive_qid)
        end = self._pop.log.append(ack, revive_qid, deliver_ms=deliver_ms, now_ms=now_ms)
        self._stats.acked(ack.topic or "", ack.group or "", len(ack.acknowledged))
        return end

    def _own_queue(self, revive_qid: int) -> None:
        """Refuse a receipt whose revive queue does not exist; Apache writes there, and that queue only grows."""
        if not 0 <= revive_qid < self._pop.log.queues:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"reviveQid[{revive_qid}] is illegal, reviveQueueNum:[{self._pop.log.queues}]",
            )

    def _later(self, end_offset: int, reply: Reply) -> Reply | Later:
        return Later(end_offset, reply) if self._answers_wait and end_offset else reply


def _bits(data: bytes) -> list[int]:
    """The numbers in a Java BitSet, lowest first; at most MAX_BITS are looked at."""
    value = int.from_bytes(data[: MAX_BITS // 8], "little")
    return [bit for bit in range(value.bit_length()) if value >> bit & 1]
