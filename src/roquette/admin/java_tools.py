"""Sub-commands of Apache's mqadmin that say what Apache's say, line by line: for scripts that read them.

Apache: UpdateTopicSubCommand, UpdateSubGroupSubCommand, BrokerStatusSubCommand, WipeWritePermSubCommand and
AddWritePermSubCommand of 5.5.0.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from roquette.admin.cluster import cluster_info, masters_of
from roquette.admin.topics import put_order_config
from roquette.client import calls, change_calls
from roquette.client.operations import Operation, ask, ask_all
from roquette.errors import ClientError, ConfigError
from roquette.message.names import perm_text
from roquette.wire.bodies import TopicConfig
from roquette.wire.bodies.group_config import GroupRetryPolicy, SubscriptionGroupConfig

T = TypeVar("T")
Say = Callable[[str], None]


def update_topic(
    name_servers: Sequence[str],
    fields: Mapping[str, object],
    say: Say,
    *,
    broker: str | None = None,
    cluster: str | None = None,
) -> Operation[None]:
    """Create a topic, or change it to exactly this, at one broker's address or at each master of a cluster.

    Args:
        fields: of TopicConfig, under Apache's names; attributes' names begin with + or -.

    Raises:
        ConfigError: a field has no such value, there is no such cluster, or no broker has that address.
        ClientError: a broker did not do it.
    """
    config = _filled(TopicConfig, fields)
    masters = yield from _masters(broker, cluster)
    for _, address in masters:
        yield from ask(
            address, change_calls.put_topic(config, attributes=_unsigned(config.attributes))
        )
        if broker is None:
            say(f"create topic to {address} success.")
    if config.order:
        counts = dict.fromkeys((name for name, _ in masters), config.write_queue_nums)
        keep = broker is not None
        yield from put_order_config(name_servers, config.topic_name, counts, keep=keep)
        shown = ";".join(f"{name}:{count}" for name, count in sorted(counts.items()))
        where = "broker" if keep else "cluster"
        say(f"set {where} orderConf. isOrder=true, orderConf=[{shown}]")
    if broker is not None:
        say(f"create topic to {broker} success.")
    say(topic_text(config))


def update_group(
    fields: Mapping[str, object],
    say: Say,
    *,
    broker: str | None = None,
    cluster: str | None = None,
) -> Operation[None]:
    """Create a consumer group, or change it to exactly this; `fields` of SubscriptionGroupConfig. As `update_topic`."""
    config = _filled(SubscriptionGroupConfig, fields)
    for _, address in (yield from _masters(broker, cluster)):
        yield from ask(
            address, change_calls.put_group(config, attributes=_unsigned(config.attributes))
        )
        say(f"create subscription group to {address} success.")
    say(group_text(config))


def broker_status(
    say: Say, *, broker: str | None = None, cluster: str | None = None
) -> Operation[None]:
    """The run-time table of one broker's address, or of each broker of a cluster, replicas too; raises as `update_topic`."""
    if broker is not None:
        table = yield from ask(broker, calls.runtime_info())
        for key, value in sorted(table.items()):
            say(f"{key:<32}: {value}")
        return
    info = yield from cluster_info()
    names = sorted(info.cluster_addr_table.get(cluster or "", []))
    known = [info.broker_addr_table[name] for name in names if name in info.broker_addr_table]
    if not known:
        raise ConfigError(f"the name server knows no broker of cluster {cluster}")
    for data in known:
        for _, address in sorted(data.broker_addrs.items()):
            table = yield from ask(address, calls.runtime_info())
            for key, value in sorted(table.items()):
                say(f"{address:<24} {key:<32}: {value}")


def set_write_permission(
    name_servers: Sequence[str], broker: str, say: Say, *, writable: bool
) -> Operation[None]:
    """Have each name server tell clients that a broker's topics may be written, or may not.

    Raises:
        ClientError: a name server did not do it; the others did.
    """
    if writable:
        word, call = "add", change_calls.add_write_permission(broker)
    else:
        word, call = "wipe", change_calls.wipe_write_permission(broker)
    failed = []
    for answer in (yield from ask_all((address, call) for address in name_servers)):
        done = f"{word} write perm of broker[{broker}] in name server[{answer.address}]"
        if answer.error is None:
            say(f"{done} OK, {answer.value}")
        else:
            say(f"{done} Failed")
            failed.append(f"{answer.address}: {answer.reason}")
    if failed:
        raise ClientError(f"not done by {'; '.join(failed)}")


def _unsigned(changes: Mapping[str, str]) -> dict[str, str]:
    return {name[1:]: value for name, value in changes.items()}


def _filled(kind: type[T], fields: Mapping[str, object]) -> T:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"mqadmin: {error}") from None


def _masters(broker: str | None, cluster: str | None) -> Operation[list[tuple[str, str]]]:
    if broker is None:
        return (yield from masters_of(cluster))
    info = yield from cluster_info()
    for name, data in info.broker_addr_table.items():
        if broker in data.broker_addrs.values():
            return [(name, broker)]
    raise ConfigError(f"the name server knows no broker at {broker}")


# As Java's toString says it


def topic_text(config: TopicConfig) -> str:
    """A topic as TopicConfig.toString says it."""
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm_text(config.perm)}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={_flag(config.order)}, attributes={_map(config.attributes)}]"
    )


def group_text(config: SubscriptionGroupConfig) -> str:
    """A group as SubscriptionGroupConfig.toString says it."""
    return (
        f"SubscriptionGroupConfig{{groupName={config.group_name}, consumeEnable={_flag(config.consume_enable)}, "
        f"consumeFromMinEnable={_flag(config.consume_from_min_enable)}, "
        f"consumeBroadcastEnable={_flag(config.consume_broadcast_enable)}, "
        f"consumeMessageOrderly={_flag(config.consume_message_orderly)}, retryQueueNums={config.retry_queue_nums}, "
        f"retryMaxTimes={config.retry_max_times}, groupRetryPolicy={_policy(config.group_retry_policy)}, "
        f"brokerId={config.broker_id}, whichBrokerWhenConsumeSlowly={config.which_broker_when_consume_slowly}, "
        f"notifyConsumerIdsChangedEnable={_flag(config.notify_consumer_ids_changed_enable)}, "
        f"groupSysFlag={config.group_sys_flag}, consumeTimeoutMinute={config.consume_timeout_minute}, "
        f"subscriptionDataSet=null, attributes={_map(config.attributes)}}}"
    )


def _policy(policy: GroupRetryPolicy) -> str:
    growing, listed = policy.exponential_retry_policy, policy.customized_retry_policy
    exponential = custom = "null"
    if growing is not None:
        exponential = (
            f"ExponentialRetryPolicy{{initial={growing.initial}, max={growing.max}, "
            f"multiplier={growing.multiplier}}}"
        )
    if listed is not None:
        custom = f"CustomizedRetryPolicy{{next={listed.next}}}"
    return (
        f"GroupRetryPolicy{{type={policy.type}, exponentialRetryPolicy={exponential}, "
        f"customizedRetryPolicy={custom}}}"
    )


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _map(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key}={value}" for key, value in values.items()) + "}"
