"""Clients come and go: heartbeat, unregistration, the list of a group's members.

Apache: ClientManageProcessor, ConsumerManageProcessor.getConsumerListByGroup.
"""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from roquette.broker.bounds import NAME
from roquette.broker.config import BrokerConfig
from roquette.broker.consumers import ConsumerGroup, ConsumerTable
from roquette.broker.groups import GroupTable
from roquette.broker.producers import ProducerTable
from roquette.errors import Refused, RemoteProtocolError
from roquette.message.names import retry_topic
from roquette.message.sysflag import TOPIC_UNIT_SUB
from roquette.remoting.dispatcher import Peer, RequestContext
from roquette.remoting.outcomes import Reply
from roquette.remoting.transport import hang_up
from roquette.wire.bodies import (
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    SubscriptionData,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import encode_dict
from roquette.wire.headers import GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader
from roquette.wire.json_body import decode_request_body, encode_body

T = TypeVar("T")

_SUB_CHANGED = encode_dict({"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"})
_SUB_KNOWN = encode_dict({"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"})


class TopicCreator(Protocol):
    """Creates a topic of the system's own (retry, dead letter) unless it exists."""

    def __call__(
        self,
        name: str,
        queues: int,
        perm: int,
        now_ms: int,
        *,
        sys_flag: int = 0,
        subscribed: Iterable[SubscriptionData] = (),
    ) -> None: ...


class HeartbeatProcessor:
    """Requests 34, 35 and 38, and what a lost connection means.

    Args:
        settings: the current ones.
    """

    def __init__(
        self,
        consumers: ConsumerTable,
        producers: ProducerTable,
        groups: GroupTable,
        create_topic: TopicCreator,
        *,
        on_group_changed: Callable[[str], None] | None = None,
        settings: Callable[[], BrokerConfig] = BrokerConfig,
    ) -> None:
        self._consumers = consumers
        self._producers = producers
        self._groups = groups
        self._create_topic = create_topic
        self._on_group_changed = on_group_changed
        self._settings = settings

    def heart_beat(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """HEART_BEAT: register every producer and consumer group of one client."""
        data = decode_request(HeartbeatData, body)
        if not data.client_id:
            raise Refused(ResponseCode.SYSTEM_ERROR, "the heartbeat has no clientID")
        language = str(ctx.command.language or "OTHER")
        refused: list[str] = []
        for producer in data.producer_data_set:
            if not self._producers.register(
                producer.group_name,
                ctx.peer,
                client_id=data.client_id,
                language=language,
                version=ctx.command.version,
                now_ms=ctx.steady_ms,
            ):
                refused.append(
                    f"producer group {producer.group_name[:NAME]}: {self._producers.bound.words()}"
                )
        fingerprint = data.heartbeat_fingerprint
        without_sub = data.without_sub and fingerprint != 0
        changed = fingerprint == 0
        reject_pull = self._settings().reject_pull_consumer_enable
        for consumer in data.consumer_data_set:
            if reject_pull and consumer.consume_type == "CONSUME_ACTIVELY":
                continue
            if self._must_send_subscriptions(
                ctx.peer, consumer.group_name, fingerprint, without_sub
            ):
                changed = True
            try:
                self._register_consumer(ctx, data.client_id, language, consumer, without_sub)
            except Refused as refusal:
                refused.append(f"consumer group {consumer.group_name[:NAME]}: {refusal.remark}")
            online = self._consumers.find(consumer.group_name)
            if online is not None:
                online.fingerprint = fingerprint
        # Not a refusal of the whole: a Java client would take this broker for one that does not know it.
        remark = f"{len(refused)} groups are not registered; {refused[0]}" if refused else None
        return Reply(_SUB_CHANGED if changed else _SUB_KNOWN, remark=remark)

    def _must_send_subscriptions(
        self, peer: Peer, name: str, fingerprint: int, without_sub: bool
    ) -> bool:
        """Whether a client that has a fingerprint (heartbeat version 2) shall send all it subscribes to next.

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
        self._create_topic(
            retry_topic(data.group_name),
            group.retry_queue_nums,
            6,
            ctx.now_ms,
            sys_flag=TOPIC_UNIT_SUB if data.unit_mode else 0,
            subscribed=data.subscription_data_set,
        )
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
            self._notify(data.group_name, ctx.now_ms)

    def _notify(self, name: str, now_ms: int) -> None:
        """Tell all members to rebalance, unless broadcasting or switched off for the group."""
        online = self._consumers.find(name)
        config = self._groups.find(name, now_ms)
        if (
            online is None
            or config is None
            or online.broadcasting
            or not config.notify_consumer_ids_changed_enable
            or not self._settings().notify_consumer_ids_changed_enable
        ):
            return
        notify_members(online)
        if self._on_group_changed is not None:
            self._on_group_changed(name)

    def unregister_client(
        self, ctx: RequestContext, header: UnregisterClientRequestHeader, body: bytes
    ) -> Reply:
        """UNREGISTER_CLIENT: a client leaves its groups at once."""
        if header.producer_group:
            self._producers.unregister(header.producer_group, ctx.peer)
        if header.consumer_group and self._consumers.unregister(header.consumer_group, ctx.peer):
            self._notify(header.consumer_group, ctx.now_ms)
        return Reply()

    def connection_lost(self, peer: Peer, now_ms: int) -> None:
        """A connection ended: its groups rebalance at once."""
        self._producers.remove_peer(peer)
        for name in self._consumers.remove_peer(peer):
            self._notify(name, now_ms)

    def expire(self, now_ms: int, steady_ms: int) -> None:
        """Every 10 s: producers without a heartbeat for 120 s are gone, consumers after channelExpiredTimeout
        (ClientHousekeepingService)."""
        for peer in self._producers.expire(steady_ms):
            hang_up(peer)
        for name, peer in self._consumers.expire(
            steady_ms, self._settings().channel_expired_timeout
        ):
            hang_up(peer)
            self._notify(name, now_ms)

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


def notify_members(group: ConsumerGroup) -> None:
    """NOTIFY_CONSUMER_IDS_CHANGED to every member, one way (Broker2Client.notifyConsumerIdsChanged)."""
    ext = encode_dict({"consumerGroup": group.name})
    for peer in group.peers():
        peer.notify(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext)


def decode_request(kind: type[T], body: bytes) -> T:
    """Read a request's JSON body; a body that is not one is refused, not fatal."""
    try:
        return decode_request_body(kind, body)
    except RemoteProtocolError as error:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"the body is not a {kind.__name__}: {error}"
        ) from None
