"""Requests of operators who change brokers and topics as values (see `calls`)."""

from collections.abc import Mapping

import msgspec

from roquette.base.property_files import format_properties, parse_properties
from roquette.client.calls import Call, body_of, nothing
from roquette.message.names import TBW102
from roquette.wire.bodies.group_config import SubscriptionGroupConfig, SubscriptionGroupWrapper
from roquette.wire.bodies.progress import DelayOffsetSerializeWrapper, TimerMetricsSerializeWrapper
from roquette.wire.bodies.registration import FORGET
from roquette.wire.bodies.route import BrokerLeft, KVTable
from roquette.wire.bodies.topic_config import TopicConfig
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.header_codec import decode_ext
from roquette.wire.headers import (
    CleanControllerBrokerDataRequestHeader,
    CreateTopicRequestHeader,
    DeleteKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from roquette.wire.json_body import decode_body, encode_body


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
