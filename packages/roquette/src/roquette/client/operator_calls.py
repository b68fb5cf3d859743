"""Requests of operators alone, as values (see `calls`): they change, examine and find what brokers and name servers have. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from roquette.base.property_files import format_properties, parse_properties
from roquette.client.calls import Call, body_of, nothing
from roquette.message.message import MessageQueue, ReceivedMessage, received
from roquette.message.names import TBW102
from roquette.message.record import decode_records
from roquette.wire.bodies import (
    ConsumerRunningInfo,
    GroupList,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicConfigAndMappingSerializeWrapper,
)
from roquette.wire.bodies.clients import ProducerTableInfo
from roquette.wire.bodies.progress import (
    BrokerStatsData,
    DelayOffsetSerializeWrapper,
    TimerMetricsSerializeWrapper,
)
from roquette.wire.bodies.route import BrokerLeft, KVTable, TopicList
from roquette.wire.bodies.tables import (
    FORGET,
    AclInfo,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    UserInfo,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.header_codec import decode_ext
from roquette.wire.headers import (
    AclRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    CreateTopicRequestHeader,
    DeleteAclRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetKVListByNamespaceRequestHeader,
    GetRegisterRequestHeader,
    GetTopicConfigRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    PutRegisterIfRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryMessageRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    RegisterResponseHeader,
    ResetOffsetRequestHeader,
    UnRegisterBrokerRequestHeader,
    UserRequestHeader,
    ViewBrokerStatsDataRequestHeader,
    ViewMessageRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from roquette.wire.json_body import decode_body, encode_body

# Requests of operators who change brokers and topics as values (see `calls`).


def wipe_write_permission(broker_name: str) -> Call[int]:
    """Have a name server tell clients that nobody sends to a broker's topics; how many topics it has there."""
    return Call(
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        lambda answer: decode_ext(WipeWritePermOfBrokerResponseHeader, answer.ext).wipe_topic_count,
        WipeWritePermOfBrokerRequestHeader(broker_name=broker_name),
    )


def forget_broker(gone: BrokerLeft) -> Call[None]:
    """Have a name server of ours forget that a broker has left."""
    header = UnRegisterBrokerRequestHeader(
        broker_name=gone.broker_name,
        broker_addr=gone.broker_addr,
        cluster_name=gone.cluster,
        broker_id=gone.broker_id,
    )
    return Call(RequestCode.UNREGISTER_BROKER, nothing, header, FORGET)


def clean_member(name: str, member: int) -> Call[None]:
    """Have a controller take a member that will not come back from its group's record."""
    header = CleanControllerBrokerDataRequestHeader(
        broker_name=name, broker_controller_ids_to_clean=str(member)
    )
    return Call(RequestCode.CLEAN_BROKER_DATA, nothing, header)


def name_server_settings() -> Call[dict[str, str]]:
    """A name server's settings under their keys."""
    return Call(
        RequestCode.GET_NAMESRV_CONFIG,
        lambda answer: parse_properties(answer.body.decode("utf-8", "replace")),
    )


def change_name_server_settings(changes: Mapping[str, str]) -> Call[None]:
    """Change settings of a running name server."""
    body = format_properties(changes).encode()
    return Call(RequestCode.UPDATE_NAMESRV_CONFIG, nothing, body=body)


def config_list(namespace: str) -> Call[dict[str, str]]:
    """All values of a namespace of a name server's key-value configuration, by key."""
    header = GetKVListByNamespaceRequestHeader(namespace=namespace)
    missing = frozenset((int(ResponseCode.QUERY_NOT_FOUND),))

    def read(answer: Command) -> dict[str, str]:
        return decode_body(KVTable, answer.body).table if answer.body else {}

    return Call(RequestCode.GET_KVLIST_BY_NAMESPACE, read, header, also=missing)


def delete_config(namespace: str, key: str) -> Call[None]:
    """Remove a value of a name server's key-value configuration."""
    header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
    return Call(RequestCode.DELETE_KV_CONFIG, nothing, header)


def put_topic(config: TopicConfig, *, attributes: Mapping[str, str] | None = None) -> Call[None]:
    """Create a topic on a broker, or change it to exactly this; attributes that it has stay as they are.

    `attributes`: changes of them by name; "" takes one away.
    """
    signed = _signed(attributes or {})
    changes = [f"{name}={value}" if value else name for name, value in signed.items()]
    header = CreateTopicRequestHeader(
        topic=config.topic_name,
        default_topic=TBW102,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        attributes=",".join(changes) or None,
    )
    return Call(RequestCode.UPDATE_AND_CREATE_TOPIC, nothing, header)


def delay_progress() -> Call[DelayOffsetSerializeWrapper]:
    """Ask how far a broker has delivered the queue of each delay level; queue number is the level less one."""
    return Call(RequestCode.GET_ALL_DELAY_OFFSET, body_of(DelayOffsetSerializeWrapper))


def timer_metrics() -> Call[dict[str, int]]:
    """By topic: messages a broker delivers at a time of their own, and has not yet."""
    return Call(
        RequestCode.GET_TIMER_METRICS,
        lambda answer: {
            topic: metric.count
            for topic, metric in decode_body(
                TimerMetricsSerializeWrapper, answer.body
            ).timing_count.items()
        },
    )


def group_configs() -> Call[dict[str, SubscriptionGroupConfig]]:
    """The configuration of every group at a broker, by name."""
    return Call(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        lambda answer: decode_body(SubscriptionGroupWrapper, answer.body).subscription_group_table,
    )


def put_group(
    config: SubscriptionGroupConfig, *, attributes: Mapping[str, str] | None = None
) -> Call[None]:
    """Create a group on a broker, or change it to exactly this; its attributes as those of `put_topic`."""
    told = msgspec.structs.replace(config, attributes=_signed(attributes or {}))
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    return Call(code, nothing, body=encode_body(told))


def _signed(changes: Mapping[str, str]) -> dict[str, str]:
    return {f"+{name}" if value else f"-{name}": value for name, value in changes.items()}


# Requests of who examines servers and consumers. Pure; the others stand in `client/calls.py`.


def broker_settings() -> Call[dict[str, str]]:
    """Every setting of a broker under Apache's key."""

    def read(answer: Command) -> dict[str, str]:
        return parse_properties(answer.body.decode("utf-8", "replace"))

    return Call(RequestCode.GET_BROKER_CONFIG, read)


def change_broker_settings(changes: Mapping[str, str]) -> Call[None]:
    """Change settings of a broker while it runs."""
    body = format_properties(changes).encode()
    return Call(RequestCode.UPDATE_BROKER_CONFIG, nothing, body=body)


def topic_configs() -> Call[dict[str, TopicConfig]]:
    """The topics a broker has, by name."""

    def read(answer: Command) -> dict[str, TopicConfig]:
        return decode_body(TopicConfigAndMappingSerializeWrapper, answer.body).topic_config_table

    return Call(RequestCode.GET_ALL_TOPIC_CONFIG, read, GetAllTopicConfigRequestHeader())


def topic_config(topic: str) -> Call[TopicConfig | None]:
    """A topic as a broker has it; None: it has none. Apache's brokers serve it since 5.0."""

    def read(answer: Command) -> TopicConfig | None:
        return None if answer.code else decode_body(TopicConfig, answer.body)

    header = GetTopicConfigRequestHeader(topic=topic)
    missing = frozenset((ResponseCode.TOPIC_NOT_EXIST,))
    return Call(RequestCode.GET_TOPIC_CONFIG, read, header, also=missing)


def readers_of(topic: str) -> Call[list[str]]:
    """The groups that have offsets of a topic at a broker, or members there that subscribe to it."""
    header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
    code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    return Call(code, lambda answer: decode_body(GroupList, answer.body).group_list, header)


def topics_of_group(group: str) -> Call[list[str]]:
    """The topics that a group has offsets of at a broker."""
    header = QueryTopicsByConsumerRequestHeader(group=group)
    code = RequestCode.QUERY_TOPICS_BY_CONSUMER
    return Call(code, lambda answer: decode_body(TopicList, answer.body).topic_list, header)


def counter(name: str, key: str) -> Call[BrokerStatsData]:
    """A broker's counter over the last minute, hour and day; it refuses when it has none, as of what never happened."""
    header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
    return Call(RequestCode.VIEW_BROKER_STATS_DATA, body_of(BrokerStatsData), header)


def time_spans(group: str, topic: str) -> Call[list[QueueTimeSpan]]:
    """Of each queue of a topic at a broker: when its messages were stored, and since when the next one of a group is there."""
    header = QueryConsumeTimeSpanRequestHeader(topic=topic, group=group)
    code = RequestCode.QUERY_CONSUME_TIME_SPAN
    return Call(
        code,
        lambda answer: decode_body(QueryConsumeTimeSpanBody, answer.body).consume_time_span_set,
        header,
    )


def running_info(group: str, client_id: str, *, stacks: bool = False) -> Call[ConsumerRunningInfo]:
    """Ask what a member of a group is doing, through a broker it is connected to."""
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group=group, client_id=client_id, jstack_enable=stacks
    )
    return Call(RequestCode.GET_CONSUMER_RUNNING_INFO, body_of(ConsumerRunningInfo), header)


# The requests about users and what they may do, 3001 to 3010, as values: as `client.calls`.


def create_user(user: UserInfo) -> Call[None]:
    """Add a user; refused when there is one of its name."""
    header = UserRequestHeader(username=user.username or "")
    return Call(RequestCode.AUTH_CREATE_USER, nothing, header, encode_body(user))


def update_user(user: UserInfo) -> Call[None]:
    """Change a user: what is None stays as it is."""
    header = UserRequestHeader(username=user.username or "")
    return Call(RequestCode.AUTH_UPDATE_USER, nothing, header, encode_body(user))


def delete_user(username: str) -> Call[None]:
    """Remove a user and its rules; one that is not there is fine."""
    return Call(RequestCode.AUTH_DELETE_USER, nothing, UserRequestHeader(username=username))


def get_user(username: str) -> Call[UserInfo | None]:
    """One user, None when there is none. Servers of ours leave its password out."""

    def read(answer: Command) -> UserInfo | None:
        return body_of(UserInfo)(answer) if answer.body else None

    return Call(RequestCode.AUTH_GET_USER, read, UserRequestHeader(username=username))


def list_users(part: str = "") -> Call[list[UserInfo]]:
    """The users whose names have `part` in them."""

    def read(answer: Command) -> list[UserInfo]:
        return decode_body(list[UserInfo], answer.body) if answer.body else []

    return Call(RequestCode.AUTH_LIST_USER, read, ListUsersRequestHeader(filter=part))


def create_acl(acl: AclInfo) -> Call[None]:
    """Add rules to a subject; a rule for the same resource is replaced."""
    header = AclRequestHeader(subject=acl.subject or "")
    return Call(RequestCode.AUTH_CREATE_ACL, nothing, header, encode_body(acl))


def update_acl(acl: AclInfo) -> Call[None]:
    """The same: servers make no difference."""
    header = AclRequestHeader(subject=acl.subject or "")
    return Call(RequestCode.AUTH_UPDATE_ACL, nothing, header, encode_body(acl))


def delete_acl(subject: str, resource: str = "", policy_type: str = "") -> Call[None]:
    """Remove the rule for a resource, all of the subject's without one."""
    header = DeleteAclRequestHeader(subject=subject, resource=resource, policy_type=policy_type)
    return Call(RequestCode.AUTH_DELETE_ACL, nothing, header)


def get_acl(subject: str) -> Call[AclInfo | None]:
    """Ask what a subject may do; None when nothing is said of it."""

    def read(answer: Command) -> AclInfo | None:
        return body_of(AclInfo)(answer) if answer.body else None

    return Call(RequestCode.AUTH_GET_ACL, read, AclRequestHeader(subject=subject))


def list_acls(subject: str = "", resource: str = "") -> Call[list[AclInfo]]:
    """Rules, of subjects and for resources that have these parts in them."""

    def read(answer: Command) -> list[AclInfo]:
        return decode_body(list[AclInfo], answer.body) if answer.body else []

    header = ListAclsRequestHeader(subject_filter=subject, resource_filter=resource)
    return Call(RequestCode.AUTH_LIST_ACL, read, header)


# Requests of operators about groups and clients as values (see `calls`).


def reset_offset(group: str, queue: MessageQueue, offset: int) -> Call[None]:
    """Let a group go on elsewhere in one queue, whoever has it now (brokers of 5.x)."""
    header = ResetOffsetRequestHeader(
        topic=queue.topic,
        group=group,
        queue_id=queue.queue_id,
        offset=offset,
        timestamp=-1,
        is_force=True,
    )
    return Call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, nothing, header)


def reset_by_time(group: str, topic: str, timestamp_ms: int) -> Call[None]:
    """Let the members of a group go on at a time, in all queues of a topic on a broker; -1: at the end."""
    header = ResetOffsetRequestHeader(
        topic=topic, group=group, timestamp=timestamp_ms, is_force=True
    )
    return Call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, nothing, header)


def delete_group(group: str, *, with_offsets: bool) -> Call[None]:
    """Remove a group's settings from a broker, and its offsets if so wanted."""
    header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=with_offsets)
    return Call(RequestCode.DELETE_SUBSCRIPTIONGROUP, nothing, header)


def all_producers() -> Call[ProducerTableInfo]:
    """Every producer that is connected to a broker."""
    return Call(RequestCode.GET_ALL_PRODUCER_INFO, body_of(ProducerTableInfo))


# Requests that find stored messages: by key or id through the index (12), by place (33). Pure, as `client.calls`.
# Apache: MQAdminImpl.queryMessage, viewMessage. The index finds by hashes, so the text decides here.


_INDEX_MS: Final = 1_000  # the index knows whole seconds
FOREVER_MS: Final = 2**63 - 1


def query(
    broker_name: str, topic: str, key: str, most: int, begin_ms: int = 0, end_ms: int = FOREVER_MS
) -> Call[list[ReceivedMessage]]:
    """A broker's messages of a topic with a key, or with this id, stored between two times."""

    def read(answer: Command) -> list[ReceivedMessage]:
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        found = [received(record, broker_name) for record in decode_records(answer.body or b"")]
        return [
            message
            for message in found
            if message.topic == topic
            and (key in message.keys or key == message.message_id)
            and begin_ms <= message.store_timestamp_ms <= end_ms
        ]

    header = QueryMessageRequestHeader(
        topic=topic,
        key=key,
        max_num=most,
        begin_timestamp=max(0, begin_ms - _INDEX_MS),
        end_timestamp=min(FOREVER_MS, end_ms + _INDEX_MS),
    )
    also = frozenset((int(ResponseCode.QUERY_NOT_FOUND),))
    return Call(RequestCode.QUERY_MESSAGE, read, header, also=also)


def view(broker_name: str, topic: str, offset: int) -> Call[ReceivedMessage]:
    """The message at a place of a broker's log; the broker refuses when there is none."""

    def read(answer: Command) -> ReceivedMessage:
        (record,) = decode_records(answer.body or b"")
        return received(record, broker_name)

    header = ViewMessageRequestHeader(topic=topic or None, offset=offset)
    return Call(RequestCode.VIEW_MESSAGE_BY_ID, read, header)


# Requests for the records of broker groups, at name servers that are controllers. Pure, as `client.calls`.


class Register(NamedTuple):
    """Value and revision that stand under a key; revision 0: nothing does."""

    revision: int
    value: bytes


def register(key: str) -> Call[Register]:
    """Ask for what stands under a key; a name server that is no controller refuses."""

    def read(answer: Command) -> Register:
        return Register(_revision(answer), bytes(answer.body or b""))

    return Call(RequestCode.GET_REGISTER, read, GetRegisterRequestHeader(key=key))


def put_register_if(key: str, revision: int, value: bytes) -> Call[bool]:
    """Replace the content whose revision is this; whether it was. A call that fails may have been carried out."""
    header = PutRegisterIfRequestHeader(key=key, revision=revision)
    return Call(
        RequestCode.PUT_REGISTER_IF, lambda answer: _revision(answer) > 0, header, body=value
    )


def _revision(answer: Command) -> int:
    return decode_ext(RegisterResponseHeader, answer.ext).revision
