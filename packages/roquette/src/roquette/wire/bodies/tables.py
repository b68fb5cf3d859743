"""Topics, groups and users, as brokers keep them, announce them and show them to operators."""

import struct
import zlib
from typing import Final

import msgspec

from roquette.errors import RemoteProtocolError
from roquette.wire.json_body import Int32, Int64, decode_body, encode_body

# DataVersion: how brokers and name servers see that a table changed.


class DataVersion(msgspec.Struct, rename="camel"):
    """Equal only when all three are. `timestamp` is ms since the epoch."""

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0

    def next(self, now_ms: int) -> "DataVersion":
        """The version after one more change (DataVersion.nextVersion)."""
        return DataVersion(
            counter=self.counter + 1, state_version=self.state_version, timestamp=now_ms
        )


# Topic configurations, as brokers keep and announce them.


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


# Subscription groups, as brokers keep them.


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


# The body of REGISTER_BROKER: JSON, or the compressed form that some brokers send.
# Compressed (Apache: RegisterBrokerBody.decode), inside one zlib stream:
# length, DataVersion JSON | topic count | per topic: length, "name readQ writeQ perm filterType attributesJson" | length, filter-server JSON | mapping count | per mapping: length, TopicQueueMappingInfo JSON


MAX_DECOMPRESSED: Final = 64 << 20  # a million topics; the frame holds at most 16 MiB
V5_0_0: Final = 413
PART: Final = "splitRegistration"
"""Header field of ours: the body holds some of the broker's topics; those that are absent are not gone."""
FORGET: Final = b"forget"
"""A body of UNREGISTER_BROKER of ours: the broker has left, and is not expected any more. Apache's requests have none."""


class RegisterBrokerBody(msgspec.Struct, rename="camel"):
    """All topics of a broker."""

    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = msgspec.field(
        default_factory=TopicConfigAndMappingSerializeWrapper
    )
    filter_server_list: list[str] = msgspec.field(default_factory=list)


def crc_of(body: bytes) -> int:
    """The header's bodyCrc32: over the bytes sent, 31 bits."""
    return zlib.crc32(body) & 0x7FFFFFFF


def decode_register_broker_body(
    body: bytes, *, compressed: bool, version: int
) -> RegisterBrokerBody:
    """Read the body in either form; raises RemoteProtocolError."""
    if not compressed:
        return decode_body(RegisterBrokerBody, body, len(body))
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, MAX_DECOMPRESSED)
    except zlib.error as error:
        raise RemoteProtocolError(f"the registration is not a zlib stream: {error}") from None
    if not inflater.eof and not inflater.unconsumed_tail and len(data) < MAX_DECOMPRESSED:
        raise RemoteProtocolError("the registration's zlib stream is cut off")
    if not inflater.eof:
        raise RemoteProtocolError(
            f"the registration inflates to more than {MAX_DECOMPRESSED} bytes"
        )
    try:
        return _Parts(data).read(with_mappings=version >= V5_0_0)
    except (struct.error, ValueError, IndexError) as error:
        raise RemoteProtocolError(f"the compressed registration is malformed: {error}") from None


class _Parts:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0

    def _int(self) -> int:
        value: int = struct.unpack_from(">i", self._data, self._pos)[0]
        self._pos += 4
        return value

    def _bytes(self) -> bytes:
        size = self._int()
        if size < 0 or self._pos + size > len(self._data):
            raise ValueError(f"a part of {size} bytes does not fit")
        part = self._data[self._pos : self._pos + size]
        self._pos += size
        return part

    def read(self, *, with_mappings: bool) -> RegisterBrokerBody:
        wrapper = TopicConfigAndMappingSerializeWrapper(
            data_version=decode_body(DataVersion, self._bytes())
        )
        for _ in range(self._int()):
            topic = _decode_topic(self._bytes().decode())
            wrapper.topic_config_table[topic.topic_name] = topic
        filters = _decode_filters(self._bytes())
        if with_mappings and self._pos + 4 <= len(self._data):
            for _ in range(self._int()):
                mapping = decode_body(TopicQueueMappingInfo, self._bytes())
                wrapper.topic_queue_mapping_info_map[mapping.topic] = mapping
        return RegisterBrokerBody(
            topic_config_serialize_wrapper=wrapper, filter_server_list=filters
        )


def _decode_filters(part: bytes) -> list[str]:
    return [] if part in (b"", b"null") else decode_body(list[str], part)


def _decode_topic(text: str) -> TopicConfig:
    parts = text.split(" ", 5)
    topic = TopicConfig(
        topic_name=parts[0],
        read_queue_nums=int(parts[1]),
        write_queue_nums=int(parts[2]),
        perm=int(parts[3]),
        topic_filter_type=parts[4],
    )
    if len(parts) > 5 and parts[5].strip():
        topic.attributes = decode_body(dict[str, str], parts[5].encode())
    return topic


def encode_register_broker_body(body: RegisterBrokerBody, *, compressed: bool = False) -> bytes:
    """Write the body in either form."""
    if not compressed:
        return encode_body(body)
    wrapper = body.topic_config_serialize_wrapper
    out = [
        _sized(encode_body(wrapper.data_version)),
        struct.pack(">i", len(wrapper.topic_config_table)),
    ]
    for topic in wrapper.topic_config_table.values():
        text = (
            f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} "
            f"{topic.topic_filter_type} {encode_body(topic.attributes).decode()}"
        )
        out.append(_sized(text.encode()))
    out.append(_sized(encode_body(body.filter_server_list)))
    out.append(struct.pack(">i", len(wrapper.topic_queue_mapping_info_map)))
    out += [_sized(encode_body(m)) for m in wrapper.topic_queue_mapping_info_map.values()]
    return zlib.compress(b"".join(out), 9)


def _sized(part: bytes) -> bytes:
    return struct.pack(">i", len(part)) + part


# Users and access control lists, as operators write and read them.


class UserInfo(msgspec.Struct, kw_only=True, rename="camel"):
    """A user. `password` is its secret key: in requests only, and in no text made of this value.

    Attributes:
        user_type: Super or Normal. user_status: enable or disable. None leaves either as it is.
    """

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r}, {self.user_type}, {self.user_status})"


class PolicyEntryInfo(msgspec.Struct, kw_only=True, rename="camel"):
    """One rule. resource: as `Topic:orders*`. source_ips: addresses or CIDRs. decision: Allow or Deny."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(msgspec.Struct, kw_only=True, rename="camel"):
    """Rules of one type: Custom, or Default, which counts where no Custom rule fits."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(msgspec.Struct, kw_only=True, rename="camel"):
    """Policies of one subject. subject: `User:name`."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None
