"""Subscription groups, as brokers keep them."""

from typing import Final

import msgspec

from roquette.wire.bodies.data_version import DataVersion
from roquette.wire.numbers import Int32, Int64

RETRY_WAITS_MS: Final = (
    *(1_000, 5_000, 10_000, 30_000),
    *(60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000, 480_000, 540_000, 600_000),
    *(1_200_000, 1_800_000, 3_600_000, 7_200_000),
)
"""CustomizedRetryPolicy's own: the delay levels."""


class ExponentialRetryPolicy(msgspec.Struct, rename="camel"):
    """Waits that grow by a factor; milliseconds."""

    initial: Int64 = 5_000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


class CustomizedRetryPolicy(msgspec.Struct, rename="camel"):
    """Waits by attempt; milliseconds."""

    next: list[int] = msgspec.field(default_factory=lambda: list(RETRY_WAITS_MS))


class GroupRetryPolicy(msgspec.Struct, rename="camel"):
    """Policy of how long a failed message waits before it comes again."""

    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscriptionData(msgspec.Struct, rename="camel"):
    """One subscription a group declares."""

    topic: str = ""
    expression_type: str = "TAG"
    expression: str = "*"
    version: Int64 = 0


class SubscriptionGroupConfig(msgspec.Struct, rename="camel", kw_only=True):
    """One consumer group on one broker (Apache's class, with its defaults)."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: GroupRetryPolicy = msgspec.field(default_factory=GroupRetryPolicy)
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = {}


class SubscriptionGroupList(msgspec.Struct, rename="camel"):
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST."""

    group_config_list: list[SubscriptionGroupConfig] = msgspec.field(default_factory=list)


class GroupForbidden(msgspec.Struct, rename="camel"):
    """Answer of UPDATE_AND_GET_GROUP_FORBIDDEN."""

    group: str | None = None
    topic: str | None = None
    readable: bool | None = None


class SubscriptionGroupWrapper(msgspec.Struct, rename="camel"):
    """subscriptionGroup.json, and the answer of GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    forbidden_table: dict[str, dict[str, int]] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
