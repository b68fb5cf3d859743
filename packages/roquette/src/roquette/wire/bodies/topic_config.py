"""Topic configurations, as brokers keep and announce them."""

import msgspec

from roquette.wire.bodies.data_version import DataVersion
from roquette.wire.numbers import Int32, Int64


class TopicConfig(msgspec.Struct, rename="camel"):
    """One topic on one broker (Apache's TopicConfig, with its defaults)."""

    topic_name: str = ""
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] = {}


class TopicQueueMappingInfo(msgspec.Struct, rename="camel"):
    """Static topics: carried, not interpreted."""

    topic: str = ""
    scope: str = "__global__"
    total_queues: Int32 = 0
    bname: str = ""
    epoch: Int64 = 0
    dirty: bool = False
    curr_id_map: dict[int, int] = {}


class CreateTopicListRequestBody(msgspec.Struct, rename="camel"):
    """Body of UPDATE_AND_CREATE_TOPIC_LIST."""

    topic_config_list: list[TopicConfig] = msgspec.field(default_factory=list)


class TopicConfigSerializeWrapper(msgspec.Struct, rename="camel"):
    """topics.json, and answers to GET_ALL_TOPIC_CONFIG of old brokers."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class TopicConfigAndMappingSerializeWrapper(msgspec.Struct, rename="camel"):
    """The same with static-topic mappings, as 5.x sends it."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = {}
    topic_queue_mapping_detail_map: dict[str, object] = {}
    mapping_data_version: DataVersion = msgspec.field(default_factory=DataVersion)
