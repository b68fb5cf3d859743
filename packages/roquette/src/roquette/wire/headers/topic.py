"""Topics: 17, 21, 202, 215, 216, 217, 224, 300, 351."""

import msgspec

from roquette.wire.numbers import Int32


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
