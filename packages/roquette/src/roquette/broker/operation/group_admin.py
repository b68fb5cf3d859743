"""Groups by request: create (200, 225), list (201), one (352), delete (207), what they may read (353),
connections (203, 204, 328), topics (343). Apache: AdminBrokerProcessor.
"""

import logging

from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Lane, check_count, decode_request, encode_rows
from roquette.broker.floor.tables.groups import GROUP_ATTRIBUTES, altered
from roquette.errors import Refused
from roquette.message.names import group_error, topic_error
from roquette.remoting.promises import Promise
from roquette.remoting.request import Outcome, Reply, RequestContext, Row, Task, row
from roquette.wire.bodies import (
    Connection,
    ConsumerConnection,
    GroupForbidden,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicList,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import encode_dict
from roquette.wire.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from roquette.wire.json_body import encode_body

log = logging.getLogger("roquette.broker")

MAX_QUEUES = 65_536  # as many as a topic may have


class GroupProcessor(Feature):
    """Everything operators do with consumer and producer groups on one broker."""

    def __init__(self, core: BrokerCore) -> None:
        tables = core.tables
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._consumers = tables.consumers
        self._producers = tables.producers
        self._deletions = core.deletions
        self._saved = core.saved

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        code, lane, nothing = RequestCode, Lane.ADMIN, Promise.NOTHING
        file = Promise.FILE
        return [
            row(code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, self.create_group, None, lane, file),
            row(
                code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, self.create_groups, None, lane, file
            ),
            row(code.GET_ALL_PRODUCER_INFO, self.all_producers, None, lane, nothing),
            row(
                code.UPDATE_AND_GET_GROUP_FORBIDDEN,
                self.forbidden,
                UpdateGroupForbiddenRequestHeader,
                lane,
                file,
            ),
            row(code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self.all_groups, None, lane, nothing),
            row(
                code.GET_SUBSCRIPTIONGROUP_CONFIG,
                self.one_group,
                GetSubscriptionGroupConfigRequestHeader,
                lane,
                nothing,
            ),
            row(
                code.DELETE_SUBSCRIPTIONGROUP,
                self.delete_group,
                DeleteSubscriptionGroupRequestHeader,
                lane,
                file,
            ),
            row(
                code.GET_CONSUMER_CONNECTION_LIST,
                self.consumer_connections,
                GetConsumerConnectionListRequestHeader,
                lane,
                nothing,
            ),
            row(
                code.GET_PRODUCER_CONNECTION_LIST,
                self.producer_connections,
                GetProducerConnectionListRequestHeader,
                lane,
                nothing,
            ),
            row(
                code.QUERY_TOPICS_BY_CONSUMER,
                self.topics_of_consumer,
                QueryTopicsByConsumerRequestHeader,
                lane,
                nothing,
            ),
        ]

    def create_group(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
        config = self._checked(decode_request(SubscriptionGroupConfig, body))
        self._groups.make_room([config.group_name])
        self._groups.put(config, ctx.now_ms)
        return self._saved.group_set(Reply())

    def create_groups(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: all or none."""
        wanted = decode_request(SubscriptionGroupList, body).group_config_list
        check_count(len(wanted), "groups")
        checked = [self._checked(config) for config in wanted]
        self._groups.make_room(config.group_name for config in checked)
        for config in checked:
            self._groups.put(config, ctx.now_ms)
        return self._saved.group_set(Reply())

    def _checked(self, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """The configuration with its attributes applied to what the group has; raises Refused."""
        name = config.group_name
        error = group_error(name)
        if error is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, error)
        if not 0 <= config.retry_queue_nums <= MAX_QUEUES:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"retryQueueNums {config.retry_queue_nums} of group[{name}] is outside "
                f"0..{MAX_QUEUES}",
            )
        known = self._groups.known(name)
        current = None if known is None else known.attributes or {}
        config.attributes = altered(GROUP_ATTRIBUTES, current, config.attributes or {})
        return config

    def all_groups(self, ctx: RequestContext, header: None, body: bytes) -> Task:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: everything in one answer."""
        return Task(self._all_groups(), large=True)

    async def _all_groups(self) -> Reply:
        wrapper = self._groups.to_wrapper()
        count = len(wrapper.subscription_group_table)
        ext = encode_dict({"totalGroupNum": str(count)})
        return Reply(ext, await encode_rows(wrapper, count))

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
    ) -> Outcome:
        """DELETE_SUBSCRIPTIONGROUP; with cleanOffset, its offsets go too."""
        self._deletions.delete_group(
            header.group_name, clean_offset=header.clean_offset, now_ms=ctx.now_ms
        )
        return self._saved.group_deleted(Reply())

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

    def topics_of_consumer(
        self, ctx: RequestContext, header: QueryTopicsByConsumerRequestHeader, body: bytes
    ) -> Reply:
        """QUERY_TOPICS_BY_CONSUMER: topics the group has offsets on."""
        return Reply(
            b"", encode_body(TopicList(topic_list=sorted(self._offsets.topics_of(header.group))))
        )

    def all_producers(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_ALL_PRODUCER_INFO: every producer online, by group."""
        data = {
            group: [
                ProducerInfo(
                    client_id=channel.client_id,
                    remote_ip=f"/{channel.peer.remote}",  # as Java prints a socket address
                    language=channel.language,
                    version=channel.version,
                    last_update_timestamp=ctx.now_ms - (ctx.steady_ms - channel.last_update_ms),
                )
                for channel in self._producers.channels(group)
            ]
            for group in self._producers.groups()
        }
        return Reply(b"", encode_body(ProducerTableInfo(data=data)))

    def forbidden(
        self, ctx: RequestContext, header: UpdateGroupForbiddenRequestHeader, body: bytes
    ) -> Outcome:
        """UPDATE_AND_GET_GROUP_FORBIDDEN: may the group read the topic? `readable` changes it first."""
        group, topic = header.group, header.topic
        if header.readable is not None:
            error = group_error(group) or topic_error(topic)
            if error is not None:
                raise Refused(ResponseCode.INVALID_PARAMETER, error)
            self._groups.set_readable(group, topic, header.readable, ctx.now_ms)
            log.info("group %s topic %s readable=%s", group, topic, header.readable)
        answer = GroupForbidden(
            group=group, topic=topic, readable=self._groups.readable(group, topic)
        )
        reply = Reply(b"", encode_body(answer), 0, "")
        return reply if header.readable is None else self._saved.group_set(reply)
