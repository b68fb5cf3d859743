"""Clients come and go: heartbeat, unregistration, the list of a group's members.

Apache: ClientManageProcessor, ConsumerManageProcessor.getConsumerListByGroup. HOT.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

import msgspec
from mypy_extensions import mypyc_attr

from roquette.base.executor import run_blocking
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Beat, Feature, Lane, decode_request
from roquette.broker.floor.tables.bounds import NAME
from roquette.broker.floor.tables.consumers import ConsumerGroup
from roquette.broker.floor.tables.filters import is_tag_type
from roquette.errors import ExpressionError, Refused
from roquette.filter.tags import MAX_LENGTH
from roquette.message.names import PERM_READ, PERM_WRITE, retry_topic
from roquette.message.sysflag import TOPIC_UNIT_SUB
from roquette.remoting.promises import Promise
from roquette.remoting.request import Outcome, Peer, Reply, RequestContext, Row, Task, row
from roquette.remoting.transport import hang_up
from roquette.wire.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ProducerData,
    QuerySubscriptionResponseBody,
    SubscriptionData,
    UnlockBatchRequestBody,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import NOT_FAST, encode_dict
from roquette.wire.headers import (
    GetConsumerListByGroupRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    UnregisterClientRequestHeader,
)
from roquette.wire.json_body import encode_body

DIRECT = 64 << 10  # bytes of a heartbeat that is read on the loop,
MAX_HEARTBEAT = 2 << 20  # and of any; Apache's broker has no bound but the frame's
MAX_SUBSCRIPTIONS = 4_096  # of one group,
MAX_SUBSCRIBED = (
    256 << 10
)  # and the characters of their expressions and the codes of their tags, together
PRODUCERS_A_STEP = 500
CONSUMERS_A_STEP = 16
MEMBERS_A_TURN = 250
EXPIRY_BEAT_S = 10.0

_SUB_CHANGED = encode_dict({"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"})
_SUB_KNOWN = encode_dict({"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"})
_decode: Final = msgspec.json.Decoder(HeartbeatData, strict=False).decode


@mypyc_attr(native_class=False)
class HeartbeatProcessor(Feature):
    """Requests 34, 35 and 38, and what a lost connection means."""

    def __init__(self, core: BrokerCore) -> None:
        self._live = core.live
        self._clock = core.clock
        self._topics = core.tables.topics
        self._consumers = core.tables.consumers
        self._producers = core.tables.producers
        self._duplicates = core.tables.duplicates
        self._access = core.access
        self._groups = core.tables.groups
        self._beating: dict[
            int, list[_Beat | _Left]
        ] = {}  # heartbeats that are not finished, by peer

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        return [
            row(RequestCode.HEART_BEAT, self.heart_beat, None, Lane.HEARTBEAT, Promise.MEMORY),
            row(
                RequestCode.UNREGISTER_CLIENT,
                self.unregister_client,
                UnregisterClientRequestHeader,
                Lane.CLIENT_MANAGER,
                Promise.MEMORY,
            ),
            row(
                RequestCode.GET_CONSUMER_LIST_BY_GROUP,
                self.consumer_list,
                GetConsumerListByGroupRequestHeader,
                Lane.CONSUMER_MANAGER,
                Promise.NOTHING,
            ),
        ]

    def heart_beat(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """HEART_BEAT: register every producer and consumer group of one client, many of them step by step.

        What the client leaves meanwhile, from this turn on, it does not join again.
        """
        if len(body) > DIRECT:
            left = _Left()
            self._begin(ctx.peer, left)
            return Task(self._beat_large(ctx, body, left))
        beat = _Beat(ctx, _read(body))
        for _ in self._steps(beat):
            self._begin(ctx.peer, beat)
            return Task(self._finish(beat))
        return beat.reply()

    async def _beat_large(self, ctx: RequestContext, body: bytes, left: "_Left") -> Reply:
        try:
            beat = _Beat(
                ctx, await run_blocking(decode_request, HeartbeatData, body, MAX_HEARTBEAT)
            )
        finally:
            self._end(ctx.peer, left)
        for groups in left.groups:
            beat.leave(*groups)
        self._begin(ctx.peer, beat)
        return await self._finish(beat)

    async def _finish(self, beat: "_Beat") -> Reply:
        """The other steps, each in a turn of its own."""
        peer = beat.ctx.peer
        try:
            for _ in () if peer.closed else self._steps(beat):
                await asyncio.sleep(0)
                if peer.closed:
                    break
        finally:
            self._end(peer, beat)
        return beat.reply()

    def _begin(self, peer: Peer, beat: "_Beat | _Left") -> None:
        self._beating.setdefault(peer.id, []).append(beat)

    def _end(self, peer: Peer, beat: "_Beat | _Left") -> None:
        beats = self._beating[peer.id]
        beats.remove(beat)
        if not beats:
            del self._beating[peer.id]

    def _steps(self, beat: "_Beat") -> Iterator[None]:
        """Register what is left of a heartbeat; yields when it has taken long enough for one turn."""
        ctx, data, work = beat.ctx, beat.data, 0
        while beat.producers:
            self._register_producer(beat, beat.producers.pop())
            work += 1
            if work % PRODUCERS_A_STEP == 0:
                yield
        fingerprint = data.heartbeat_fingerprint
        reject_pull = self._live.current.reject_pull_consumer_enable
        while beat.consumers:
            consumer = beat.consumers[-1]
            fits = _fits(consumer.subscription_data_set)
            for subscription in consumer.subscription_data_set if fits else ():
                if self._consumers.prepare(subscription):
                    yield  # an expression was compiled
            if not beat.consumers or beat.consumers[-1] is not consumer:
                continue  # the client left it meanwhile
            beat.consumers.pop()
            if reject_pull and consumer.consume_type == "CONSUME_ACTIVELY":
                continue
            if self._must_send_subscriptions(
                ctx.peer, consumer.group_name, fingerprint, beat.without_sub
            ):
                beat.changed = True
            try:
                if not fits:
                    raise Refused(ResponseCode.SYSTEM_ERROR, _too_much(consumer))
                self._register_consumer(
                    ctx, data.client_id, beat.language, consumer, beat.without_sub
                )
            except Refused as refusal:
                beat.refuse("consumer", consumer.group_name, refusal.remark)
            online = self._consumers.find(consumer.group_name)
            if online is not None:
                online.fingerprint = fingerprint
            work += 1 + len(consumer.subscription_data_set) // 100
            if work >= CONSUMERS_A_STEP and beat.consumers:
                work = 0
                yield

    def _register_producer(self, beat: "_Beat", producer: ProducerData) -> None:
        if not self._producers.register(
            producer.group_name,
            beat.ctx.peer,
            client_id=beat.data.client_id,
            language=beat.language,
            version=beat.ctx.command.version,
            now_ms=beat.ctx.steady_ms,
            account=self._access.account_of(beat.ctx),
        ):
            beat.refuse("producer", producer.group_name, self._producers.bound.words())

    def _must_send_subscriptions(
        self, peer: Peer, name: str, fingerprint: int, without_sub: bool
    ) -> bool:
        """Return True when a client that has a fingerprint (heartbeat version 2) shall send all it subscribes to next.

        As in Apache when the group's last heartbeat had another fingerprint; here also when the broker
        does not know the subscriptions the client left out, for instance after a restart.
        """
        online = self._consumers.find(name)
        if online is None or online.fingerprint is None:
            return without_sub
        channel = online.channels.get(peer.id)
        if channel is not None and channel.outdated:
            channel.outdated = False
            if without_sub:
                return True
        return online.fingerprint != fingerprint or (without_sub and not online.subscriptions)

    def _register_consumer(
        self,
        ctx: RequestContext,
        client_id: str,
        language: str,
        data: ConsumerData,
        without_sub: bool,
    ) -> None:
        group = self._groups.find(data.group_name, ctx.now_ms)
        if group is None:
            return  # autoCreateSubscriptionGroup is off: the consumer part is skipped in silence
        if not self._consumers.admits(data.group_name, ctx.peer, client_id):
            raise Refused(ResponseCode.SYSTEM_BUSY, self._consumers.bound.words())
        if group.retry_queue_nums > 0:
            self._ensure_retry_topic(data, group.retry_queue_nums, ctx.now_ms)
        changed = self._consumers.register(
            data.group_name,
            ctx.peer,
            client_id=client_id,
            language=language,
            version=ctx.command.version,
            consume_type=data.consume_type,
            message_model=data.message_model,
            consume_from_where=data.consume_from_where,
            subscriptions=None if without_sub else data.subscription_data_set,
            now_ms=ctx.steady_ms,
        )
        if changed:
            self._notify(data.group_name)

    def _ensure_retry_topic(self, data: ConsumerData, queues: int, now_ms: int) -> None:
        """It is ordered when a topic is that the group subscribes to."""
        topics, name, order = self._topics, retry_topic(data.group_name), False
        for one in data.subscription_data_set:
            topic = topics.find(one.topic)
            order |= topic is not None and topic.order
        if topics.find(name) is None:
            unit = TOPIC_UNIT_SUB if data.unit_mode else 0
            perm = PERM_READ | PERM_WRITE
            topics.ensure(name, queues=queues, perm=perm, sys_flag=unit, order=order, now_ms=now_ms)
        elif order:
            topics.set_order(name, now_ms)

    def _notify(self, name: str) -> None:
        """Tell all members to rebalance, unless broadcasting or switched off for the group."""
        online = self._consumers.find(name)
        config = self._groups.known(name)  # None: it was deleted, its members are there
        if (
            online is None
            or online.broadcasting
            or (config is not None and not config.notify_consumer_ids_changed_enable)
            or not self._live.current.notify_consumer_ids_changed_enable
        ):
            return
        notify_members(online)

    def unregister_client(
        self, ctx: RequestContext, header: UnregisterClientRequestHeader, body: bytes
    ) -> Reply:
        """UNREGISTER_CLIENT: a client leaves its groups at once."""
        for beat in self._beating.get(ctx.peer.id, ()):
            beat.leave(header.producer_group, header.consumer_group)
        if header.producer_group:
            self._producers.unregister(header.producer_group, ctx.peer)
        if header.consumer_group and self._consumers.unregister(header.consumer_group, ctx.peer):
            self._notify(header.consumer_group)
        return Reply()

    def connection_lost(self, peer: Peer) -> None:
        """A connection ended: its groups rebalance at once."""
        self._producers.remove_peer(peer)
        for name in self._consumers.remove_peer(peer):
            self._notify(name)

    def beats(self) -> list[Beat]:
        """Clients that are silent."""
        return [Beat("client-expiry", EXPIRY_BEAT_S, self._expire)]

    def health(self) -> dict[str, str]:
        """Clients that get in each other's way."""
        return {
            "duplicateClientIds": str(self._duplicates.duplicates),
            "subscriptionConflicts": str(self._duplicates.conflicts),
        }

    def _expire(self) -> None:
        """Every 10 s: producers without a heartbeat for 120 s are gone, consumers after channelExpiredTimeout
        (ClientHousekeepingService)."""
        steady_ms = self._clock.steady_ms()
        for peer in self._producers.expire(steady_ms):
            hang_up(peer)
        for name, peer in self._consumers.expire(
            steady_ms, self._live.current.channel_expired_timeout
        ):
            hang_up(peer)
            self._notify(name)

    def consumer_list(
        self, ctx: RequestContext, header: GetConsumerListByGroupRequestHeader, body: bytes
    ) -> Reply:
        """GET_CONSUMER_LIST_BY_GROUP: the client ids among which queues are shared."""
        group = self._consumers.find(header.consumer_group)
        if group is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}"
            )
        return Reply(
            b"",
            encode_body(GetConsumerListByGroupResponseBody(consumer_id_list=group.client_ids())),
        )


class _Left:
    """Groups, of producers and consumers, that a client leaves while its heartbeat is decoded."""

    def __init__(self) -> None:
        self.groups: list[tuple[str | None, str | None]] = []

    def leave(self, producer: str | None, consumer: str | None) -> None:
        """The client left these groups."""
        self.groups.append((producer, consumer))


class _Beat:
    """One heartbeat on its way: what is left of it, and what was refused."""

    def __init__(self, ctx: RequestContext, data: HeartbeatData) -> None:
        if not data.client_id:
            raise Refused(ResponseCode.SYSTEM_ERROR, "the heartbeat has no clientID")
        self.ctx = ctx
        self.data = data
        self.language = str(ctx.command.language or "OTHER")
        self.without_sub = data.without_sub and data.heartbeat_fingerprint != 0
        self.changed = data.heartbeat_fingerprint == 0
        self.producers = data.producer_data_set[::-1]
        self.consumers = data.consumer_data_set[::-1]
        self._refused = 0
        self._first = ""

    def refuse(self, kind: str, group: str, why: str) -> None:
        """A group is not registered."""
        if not self._refused:
            self._first = f"{kind} group {group[:NAME]}: {why}"
        self._refused += 1

    def leave(self, producer: str | None, consumer: str | None) -> None:
        """The client left these groups meanwhile."""
        self.producers = [one for one in self.producers if one.group_name != producer]
        self.consumers = [one for one in self.consumers if one.group_name != consumer]

    def reply(self) -> Reply:
        """Not a refusal of the whole: a Java client would take this broker for one that does not know it."""
        remark = f"{self._refused} groups are not registered; {self._first}"
        return Reply(
            _SUB_CHANGED if self.changed else _SUB_KNOWN, remark=remark if self._refused else None
        )


def _read(body: bytes) -> HeartbeatData:
    """Read what clients write; what is not plain goes the general way. Raises Refused."""
    try:
        if b"$" not in body:  # it begins a reference, "$ref"
            data: HeartbeatData = _decode(body)
            return data
    except NOT_FAST:
        pass
    return decode_request(HeartbeatData, body)


def _fits(subscriptions: list[SubscriptionData]) -> bool:
    """Return True when a group's subscriptions are few and short enough to be taken in."""
    if len(subscriptions) > MAX_SUBSCRIPTIONS:
        return False
    size = 0  # characters and numbers
    for data in subscriptions:
        expression = len(data.sub_string or "")
        if expression > MAX_LENGTH:
            return False
        size += expression + len(data.code_set or ())
        if data.tags_set:
            size += sum(map(len, data.tags_set))
    return size <= MAX_SUBSCRIBED


def _too_much(group: ConsumerData) -> str:
    return (
        f"it has {len(group.subscription_data_set)} subscriptions, {MAX_SUBSCRIPTIONS} are allowed, "
        f"of {MAX_LENGTH} characters, with {MAX_SUBSCRIBED} characters and tags in all"
    )


def notify_members(group: ConsumerGroup) -> None:
    """NOTIFY_CONSUMER_IDS_CHANGED to every member, one way (Broker2Client.notifyConsumerIdsChanged).

    Changes that come before all have been told, and in the same turn, are told together: where 2,000 members join at once, one
    note for each member of each change would be 2,000,000.
    """
    group.changed = True
    if not group.being_told:
        _notify_again(group)


def _notify_again(group: ConsumerGroup) -> None:
    peers = group.peers() if group.changed else []
    group.being_told, group.changed = bool(peers), False
    if peers:
        _notify_some(group, peers, 0)


def _notify_some(group: ConsumerGroup, peers: list[Peer], first: int) -> None:
    """Those of one turn; the others have theirs."""
    ext = encode_dict({"consumerGroup": group.name})
    for peer in peers[first : first + MEMBERS_A_TURN]:
        peer.notify(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext)
    first += MEMBERS_A_TURN
    if first < len(peers):
        peers[first].soon(_notify_some, group, peers, first)
    else:
        peers[0].soon(_notify_again, group)


# Queue locks of orderly consumers: 41 and 42 (Apache: AdminBrokerProcessor.lockBatchMQ).


@mypyc_attr(native_class=False)
class LockProcessor(Feature):
    """Serves lock and unlock of many queues at once."""

    def __init__(self, core: BrokerCore) -> None:
        self._clock = core.clock
        self._locks = core.tables.locks

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        return [
            row(
                RequestCode.LOCK_BATCH_MQ,
                self.lock_batch,
                None,
                Lane.CLIENT_MANAGER,
                Promise.MEMORY,
            ),
            row(
                RequestCode.UNLOCK_BATCH_MQ,
                self.unlock_batch,
                None,
                Lane.CLIENT_MANAGER,
                Promise.MEMORY,
            ),
        ]

    def lock_batch(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """LOCK_BATCH_MQ: answers the queues that are now the client's."""
        request = decode_request(LockBatchRequestBody, body)
        refused = self._locks.bound.refused
        locked = self._locks.lock(
            request.consumer_group, request.client_id, request.mq_set, ctx.steady_ms
        )
        remark = None
        if self._locks.bound.refused != refused:
            remark = f"queues are not locked: {self._locks.bound.words()}"
            if not locked:
                raise Refused(ResponseCode.SYSTEM_BUSY, remark)
        return Reply(b"", encode_body(LockBatchResponseBody(lock_ok_mq_set=locked)), remark=remark)

    def unlock_batch(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """UNLOCK_BATCH_MQ."""
        request = decode_request(UnlockBatchRequestBody, body)
        self._locks.unlock(request.consumer_group, request.client_id, request.mq_set)
        return Reply()

    def beats(self) -> list[Beat]:
        """Expires locks that are not renewed."""
        return [Beat("lock-expiry", EXPIRY_BEAT_S, self._expire)]

    def _expire(self) -> None:
        self._locks.expire(self._clock.steady_ms())


# May a group subscribe like this (46), and what does one subscribe to (345).
# Apache: ClientManageProcessor.checkClientConfig, AdminBrokerProcessor.querySubscriptionByConsumer.


@mypyc_attr(native_class=False)
class SubscriptionProcessor(Feature):
    """Subscriptions, looked at."""

    def __init__(self, core: BrokerCore) -> None:
        self._live = core.live
        self._filters = core.tables.filters
        self._consumers = core.tables.consumers

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        return [
            row(
                RequestCode.CHECK_CLIENT_CONFIG,
                self.check_client_config,
                None,
                Lane.CLIENT_MANAGER,
                Promise.NOTHING,
            ),
            row(
                RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
                self.query_subscription,
                QuerySubscriptionByConsumerRequestHeader,
                Lane.ADMIN,
                Promise.NOTHING,
            ),
        ]

    def check_client_config(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """CHECK_CLIENT_CONFIG: a consumer asks before it starts, so that a wrong selector ends there."""
        data = decode_request(CheckClientRequestBody, body).subscription_data if body else None
        if data is None or is_tag_type(data.expression_type):
            return Reply()
        if not self._live.current.enable_property_filter:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {data.expression_type}",
            )
        try:
            self._filters.build(data.sub_string, data.expression_type)
        except ExpressionError as error:
            raise Refused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"Invalid MessageSelector. {error}"
            ) from None
        return Reply()

    def query_subscription(
        self, ctx: RequestContext, header: QuerySubscriptionByConsumerRequestHeader, body: bytes
    ) -> Reply:
        """QUERY_SUBSCRIPTION_BY_CONSUMER: what the group's members registered for a topic, null if nothing."""
        online = self._consumers.find(header.group)
        data = online.subscriptions.get(header.topic or "") if online is not None else None
        answer = QuerySubscriptionResponseBody(
            subscription_data=data, group=header.group, topic=header.topic
        )
        return Reply(b"", encode_body(answer))
