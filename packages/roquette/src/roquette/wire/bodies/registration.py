"""The body of REGISTER_BROKER: JSON, or the compressed form that some brokers send.

Compressed (Apache: RegisterBrokerBody.decode), inside one zlib stream:

    length, DataVersion JSON | topic count | per topic: length, "name readQ writeQ perm filterType attributesJson"
    | length, filter-server JSON | mapping count | per mapping: length, TopicQueueMappingInfo JSON
"""

import struct
import zlib
from typing import Final

import msgspec

from roquette.errors import RemoteProtocolError
from roquette.wire.bodies.data_version import DataVersion
from roquette.wire.bodies.topic_config import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicQueueMappingInfo,
)
from roquette.wire.json_body import decode_body, encode_body

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
