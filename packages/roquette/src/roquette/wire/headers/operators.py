"""What operators ask: topics, groups, users, brokers' settings and statistics."""

import msgspec

from roquette.wire.json_body import Int32, Int64

# Topics: 17, 21, 202, 215, 216, 217, 224, 300, 351.


class CreateTopicRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str
    default_topic: str | None = None
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str | None = None
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


class DeleteTopicRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str


class DeleteTopicFromNamesrvRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str
    cluster_name: str | None = None


class RegisterTopicRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str


class GetAllTopicConfigResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    total_topic_num: Int32 | None = None


class GetTopicStatsInfoRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str


class GetTopicConfigRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str
    lo: bool | None = None


class GetTopicsByClusterRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    cluster: str


class QueryTopicConsumeByWhoRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    topic: str


# Subscription groups: 207, 208, 343, 345, 352.


class DeleteSubscriptionGroupRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    group_name: str
    clean_offset: bool = False


class GetConsumeStatsRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetSubscriptionGroupConfigRequestHeader(
    msgspec.Struct, gc=False, kw_only=True, rename="camel"
):
    group: str


class QueryTopicsByConsumerRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    group: str


class QuerySubscriptionByConsumerRequestHeader(
    msgspec.Struct, gc=False, kw_only=True, rename="camel"
):
    group: str
    topic: str | None = None


# Requests of operators to brokers: 21, 26, 201, 303, 308, 314, 315, 317, 353 to 355, 902, 903, 906, 908, 2004.


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


# Users and what they may do: 3001 to 3010; tickets for replication connections: 13007.


class UserRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Of CREATE_USER, UPDATE_USER, DELETE_USER and GET_USER."""

    username: str = ""


class ListUsersRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """filter: part of the names that are asked for."""

    filter: str = ""


class AclRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Of CREATE_ACL, UPDATE_ACL and GET_ACL. subject: `User:name`."""

    subject: str = ""


class DeleteAclRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Without a resource all that the subject has goes. policy_type: Custom unless it is given."""

    subject: str = ""
    policy_type: str = ""
    resource: str = ""


class ListAclsRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """Parts of the subjects and of the resources that are asked for."""

    subject_filter: str = ""
    resource_filter: str = ""


class HaTicketRequestHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """proves: the asker does not need to be told a ticket, he makes it of a challenge and his secret."""

    proves: bool = False


class HaTicketResponseHeader(msgspec.Struct, gc=False, kw_only=True, rename="camel"):
    """ticket: to be said first on a replication connection; challenge: the ticket is made of it. Both empty: the master
    asks for none."""

    ticket: str = ""
    challenge: str = ""
