"""Groups by request: create (200), list (201), one (352), delete (207), connections (203, 204),
progress (208), and questions passed on to a client (307, 309). Apache: AdminBrokerProcessor.
"""

import asyncio
import logging

from roquette.broker.consumers import ConsumerTable
from roquette.broker.groups import GroupTable
from roquette.broker.offsets import OffsetTable
from roquette.broker.processors.heartbeat import decode_request
from roquette.broker.producers import ProducerTable
from roquette.broker.stats import BrokerStats
from roquette.broker.topics import Topic, TopicTable
from roquette.errors import ClientError, Refused
from roquette.message.message import MessageQueue
from roquette.message.names import group_error
from roquette.remoting.dispatcher import Peer, RequestContext
from roquette.remoting.outcomes import Reply, Task
from roquette.store.message_store import MessageStore
from roquette.wire.bodies import (
    Connection,
    ConsumerConnection,
    ConsumeStats,
    OffsetWrapper,
    ProducerConnection,
    SubscriptionGroupConfig,
    TopicList,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import encode_dict
from roquette.wire.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from roquette.wire.json_body import encode_body

log = logging.getLogger("roquette.broker")

CLIENT_CALL_MS = 10_000
MAX_QUEUES = 65_536  # as many as a topic may have
RUNNING_INFO_SINCE = 62  # V3_1_8_SNAPSHOT: older clients do not know code 307


class GroupProcessor:
    """Everything operators do with consumer and producer groups on one broker."""

    def __init__(
        self,
        groups: GroupTable,
        topics: TopicTable,
        offsets: OffsetTable,
        consumers: ConsumerTable,
        producers: ProducerTable,
        store: MessageStore,
        stats: BrokerStats,
        broker_name: str,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._producers = producers
        self._store = store
        self._stats = stats
        self._broker_name = broker_name

    def create_group(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
        config = decode_request(SubscriptionGroupConfig, body)
        error = group_error(config.group_name)
        if error is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, error)
        if not 0 <= config.retry_queue_nums <= MAX_QUEUES:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"retryQueueNums {config.retry_queue_nums} of group[{config.group_name}] is outside "
                f"0..{MAX_QUEUES}",
            )
        self._groups.put(config, ctx.now_ms)
        return Reply()

    def all_groups(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: everything in one answer."""
        wrapper = self._groups.to_wrapper()
        count = len(wrapper.subscription_group_table)
        return Reply(encode_dict({"totalGroupNum": str(count)}), encode_body(wrapper))

    def one_group(
        self, ctx: RequestContext, header: GetSubscriptionGroupConfigRequestHeader, body: bytes
    ) -> Reply:
        """GET_SUBSCRIPTIONGROUP_CONFIG."""
        config = self._groups.known(header.group)
        if config is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"No group in this broker. group: {header.group}",
            )
        return Reply(b"", encode_body(config))

    def delete_group(
        self, ctx: RequestContext, header: DeleteSubscriptionGroupRequestHeader, body: bytes
    ) -> Reply:
        """DELETE_SUBSCRIPTIONGROUP; with cleanOffset, its offsets go too."""
        self._groups.delete(header.group_name, ctx.now_ms)
        if header.clean_offset:
            self._offsets.delete_group(header.group_name)
        return Reply()

    def consumer_connections(
        self, ctx: RequestContext, header: GetConsumerConnectionListRequestHeader, body: bytes
    ) -> Reply:
        """GET_CONSUMER_CONNECTION_LIST."""
        group = self._consumers.find(header.consumer_group)
        if group is None:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"the consumer group[{header.consumer_group}] not online",
            )
        connections = [
            Connection(
                client_id=c.client_id,
                client_addr=c.peer.remote,
                language=c.language,
                version=c.version,
            )
            for c in group.channels.values()
        ]
        answer = ConsumerConnection(
            connection_set=connections,
            subscription_table=group.subscriptions,
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return Reply(b"", encode_body(answer))

    def producer_connections(
        self, ctx: RequestContext, header: GetProducerConnectionListRequestHeader, body: bytes
    ) -> Reply:
        """GET_PRODUCER_CONNECTION_LIST."""
        channels = self._producers.channels(header.producer_group)
        if not channels:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"the producer group[{header.producer_group}] not exist"
            )
        connections = [
            Connection(
                client_id=c.client_id,
                client_addr=c.peer.remote,
                language=c.language,
                version=c.version,
            )
            for c in channels
        ]
        return Reply(b"", encode_body(ProducerConnection(connection_set=connections)))

    def consume_stats(
        self, ctx: RequestContext, header: GetConsumeStatsRequestHeader, body: bytes
    ) -> Reply:
        """GET_CONSUME_STATS: per queue, how far the group is and how far it could be."""
        group = header.consumer_group
        wanted = (
            [header.topic]
            if header.topic
            else [t for t in (header.topic_list or "").split(";") if t]
        )
        names = wanted or self._offsets.topics_of(group)
        table: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0
        for name in names:
            topic = self._topics.find(name)
            if topic is None:
                log.warning("consume stats: topic does not exist topic=%s", name)
                continue
            self._add_progress(table, group, name, topic)
            tps += self._stats.group_gets.rate((name, group))
        return Reply(b"", encode_body(ConsumeStats(offset_table=table, consume_tps=tps)))

    def _add_progress(
        self, table: dict[MessageQueue, OffsetWrapper], group: str, name: str, topic: Topic
    ) -> None:
        for queue_id in range(topic.read_queues):
            high = max(0, self._store.max_offset(name, queue_id))
            committed = max(0, self._offsets.query(group, name, queue_id))
            pulled = self._offsets.query_pull(group, name, queue_id)
            last = self._store.store_time(name, queue_id, committed - 1) if committed > 0 else 0
            queue = MessageQueue(topic=name, broker_name=self._broker_name, queue_id=queue_id)
            table[queue] = OffsetWrapper(
                broker_offset=high,
                consumer_offset=committed,
                pull_offset=max(pulled, committed),
                last_timestamp=max(0, last),
            )

    def topics_of_consumer(
        self, ctx: RequestContext, header: QueryTopicsByConsumerRequestHeader, body: bytes
    ) -> Reply:
        """QUERY_TOPICS_BY_CONSUMER: topics the group has offsets on."""
        return Reply(
            b"", encode_body(TopicList(topic_list=sorted(self._offsets.topics_of(header.group))))
        )

    def running_info(
        self, ctx: RequestContext, header: GetConsumerRunningInfoRequestHeader, body: bytes
    ) -> Task:
        """GET_CONSUMER_RUNNING_INFO: passed on to the client, whose answer is passed back."""
        group = self._consumers.find(header.consumer_group)
        channel = group.channel_of(header.client_id) if group is not None else None
        if channel is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{header.consumer_group}> <{header.client_id}> not online",
            )
        if channel.version < RUNNING_INFO_SINCE:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{header.client_id}> Version <{channel.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT",
            )
        ext = bytes(ctx.command.ext) if ctx.command.ext is not None else b"{}"
        return Task(_ask_client(channel.peer, header.consumer_group, header.client_id, ext, body))


async def _ask_client(peer: Peer, group: str, client_id: str, ext: bytes, body: bytes) -> Reply:
    try:
        async with asyncio.timeout(CLIENT_CALL_MS / 1000):
            answer = await peer.invoke(
                RequestCode.GET_CONSUMER_RUNNING_INFO, ext, body, CLIENT_CALL_MS
            )
    except (ClientError, TimeoutError):
        raise Refused(
            ResponseCode.CONSUME_MSG_TIMEOUT,
            f"consumer <{group}> <{client_id}> Timeout: no answer within {CLIENT_CALL_MS} ms",
        ) from None
    return Reply(
        b"" if answer.ext is None else bytes(answer.ext), answer.body, answer.code, answer.remark
    )
