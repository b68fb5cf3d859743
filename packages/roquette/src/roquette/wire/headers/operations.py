"""Requests of operators to brokers: 21, 26, 201, 303, 308, 314, 315, 317, 353 to 355, 902, 903, 906, 908, 2004."""

import msgspec

from roquette.wire.numbers import Int32, Int64


class GetAllTopicConfigRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


class GetBrokerConfigResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    version: str


class GetAllSubscriptionGroupRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


class GetAllSubscriptionGroupResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    total_group_num: Int32


class QueryConsumeTimeSpanRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str
    group: str


class QueryCorrectionOffsetHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    filter_groups: str | None = None
    compare_group: str
    topic: str


class CloneGroupOffsetRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class ViewBrokerStatsDataRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    stats_name: str
    stats_key: str


class GetConsumeStatsInBrokerHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    is_order: bool


class UpdateGroupForbiddenRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    group: str
    topic: str
    readable: bool | None = None


class CheckRocksdbCqWriteProgressRequestHeader(
    msgspec.Struct, gc=False, kw_only=True, rename="camel"
):
    topic: str
    check_store_time: Int64 = 0


class ExportRocksDBConfigToJsonRequestHeader(
    msgspec.Struct, gc=False, kw_only=True, rename="camel"
):
    config_type: str


class AddBrokerRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    config_path: str | None = None


class RemoveBrokerRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    broker_name: str
    broker_cluster_name: str
    broker_id: Int64


class ExchangeHAInfoRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


class ExchangeHAInfoResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


class ResetMasterFlushOffsetHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    master_flush_offset: Int64


class SetCommitLogReadModeRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    read_ahead_mode: str | None = msgspec.field(default=None, name="READ_AHEAD_MODE")
