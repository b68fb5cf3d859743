"""Stored records as messages of the v5 protocol."""

import pytest

from roquette.message.message_id import host_bytes
from roquette.message.properties import encode_properties
from roquette.message.record import decode_record, encode_record
from roquette.message.record_layout import Draft, Place, StoredRecord
from roquette.proxy.delivered import to_message
from roquette.wire.proto.definition_pb2 import DigestType, Encoding, MessageType, Resource


def stored(body: bytes = b"body", **named: str) -> StoredRecord:
    record = StoredRecord("topic", encode_properties(named), body)
    record.born_host, record.store_host = host_bytes("10.0.0.1", 5), host_bytes("10.0.0.2", 10911)
    record.born_timestamp_ms, record.store_timestamp_ms = 1_500, 2_750
    record.queue_id, record.queue_offset, record.physical_offset = 3, 17, 4096
    record.reconsume_times = 2
    return record


def test_every_system_property_of_an_ordinary_message() -> None:
    record = stored(TAGS="t", KEYS="k1 k2", UNIQ_KEY="ID", TRACE_CONTEXT="trace", number="0")
    message = to_message(record, Resource(name="asked"), "handle")
    system = message.system_properties
    assert message.topic.name == "asked"
    assert message.body == b"body"
    assert (system.tag, list(system.keys), system.message_id) == ("t", ["k1", "k2"], "ID")
    assert system.body_digest.type == DigestType.MD5
    assert system.body_digest.checksum == "841A2D689AD86BD1611447453C22C6FC"  # Apache's, golden
    assert system.body_encoding == Encoding.IDENTITY
    assert system.message_type == MessageType.NORMAL
    assert system.born_timestamp.ToMilliseconds() == 1_500
    assert system.store_timestamp.ToMilliseconds() == 2_750
    assert (system.born_host, system.store_host) == ("10.0.0.1", "10.0.0.2:10911")
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (3, 17, 3)
    assert system.receipt_handle == "handle"
    assert system.trace_context == "trace"
    assert not system.HasField("delivery_timestamp")
    assert dict(message.user_properties) == {"number": "0", "TRACE_CONTEXT": "trace"}  # as Apache


@pytest.mark.parametrize(
    ("named", "kind"),
    [
        ({}, MessageType.NORMAL),
        ({"__SHARDINGKEY": "g"}, MessageType.FIFO),
        ({"__SHARDINGKEY": "g", "DELAY": "3"}, MessageType.DELAY),
        ({"TIMER_DELIVER_MS": "5000"}, MessageType.DELAY),
        ({"TRAN_MSG": "true", "DELAY": "3"}, MessageType.TRANSACTION),
        ({"_SYS_MSG_PRIORITY_": "7"}, MessageType.PRIORITY),
        ({"__LITE_TOPIC": "l"}, MessageType.LITE),
    ],
)
def test_its_type(named: dict[str, str], kind: MessageType) -> None:
    assert to_message(stored(**named)).system_properties.message_type == kind


def test_rare_properties() -> None:
    named = {"TIMER_DELIVER_MS": "5000", "__SHARDINGKEY": "g", "__BORNHOST": "9.9.9.9"}
    named |= {"DLQ_ORIGIN_TOPIC": "t", "DLQ_ORIGIN_MESSAGE_ID": "m", "WAIT": "true"}
    message = to_message(stored(**named))
    system = message.system_properties
    assert system.delivery_timestamp.ToMilliseconds() == 5_000
    assert (system.message_group, system.born_host) == ("g", "9.9.9.9")
    assert (system.dead_letter_queue.topic, system.dead_letter_queue.message_id) == ("t", "m")
    assert dict(message.user_properties) == {"__SHARDINGKEY": "g"}
    assert system.message_id.endswith("0000000000001000")  # its place: it has no id of its own


@pytest.mark.parametrize("text", ["-1", "x", "1e9", "9" * 40, "٣"])
def test_numbers_that_are_none_are_left_out(text: str) -> None:
    named = {"TIMER_DELIVER_MS": text, "_SYS_MSG_PRIORITY_": text, "TIMER_DELAY_SEC": text}
    system = to_message(stored(**named)).system_properties
    assert not system.HasField("delivery_timestamp")
    assert system.message_type == MessageType.DELAY


def test_a_compressed_body_and_a_name_like_one_in_a_namespace() -> None:
    record = stored()
    record.sys_flag |= 1
    record.topic = "space%topic"
    message = to_message(record)
    assert message.system_properties.body_encoding == Encoding.GZIP
    assert (message.topic.resource_namespace, message.topic.name) == ("", "space%topic")


def test_texts_of_any_bytes_are_texts() -> None:
    draft = Draft("topic", 0, b"a\x01\xff\xfe\x02", b"b", 1, host_bytes("::1", 7))
    place = Place(b"topic", host_bytes("127.0.0.1", 8))
    record = decode_record(encode_record(draft, place), 0, check_crc=True)
    message = to_message(record)
    assert message.SerializeToString()
    assert message.system_properties.born_host == "[::1]"
