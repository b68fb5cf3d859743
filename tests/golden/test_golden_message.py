"""What the message room writes and reads equals what Apache's code writes and reads."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.records import encode_record

from roquette.base.javatypes import java_hash
from roquette.message import names
from roquette.message.compression import Compression, compress, decompress
from roquette.message.message import received
from roquette.message.message_id import (
    UniqueIds,
    decode_offset_message_id,
    host_bytes,
    offset_message_id,
)
from roquette.message.properties import RESERVED, decode_properties, encode_properties
from roquette.message.record import BatchCursor, decode_record, decode_records, encode_batch

HERE = Path(__file__).parent


def cases(name: str) -> Any:
    return json.loads((HERE / name / "cases.json").read_text("utf-8"))


RECORDS = cases("stored_record")
BY_NAME = [case["name"] for case in RECORDS]


@pytest.mark.parametrize("case", RECORDS, ids=BY_NAME)
def test_records_are_encoded_as_the_broker_does(case: dict[str, Any]) -> None:
    found = encode_record(
        case["topic"].encode(),
        case["queueId"],
        case["flag"],
        case["queueOffset"],
        case["physicalOffset"],
        case["sysFlag"] & ~0x30,
        case["bornTimestamp"],
        host_bytes(case["bornHost"], case["bornPort"]),
        case["storeTimestamp"],
        host_bytes(case["storeHost"], case["storePort"]),
        case["reconsumeTimes"],
        case["preparedTransactionOffset"],
        bytes.fromhex(case["body"]),
        case["properties"].encode(),
    )

    assert found.hex() == case["record"]


@pytest.mark.parametrize("case", RECORDS, ids=BY_NAME)
def test_records_are_read_as_apaches_client_does(case: dict[str, Any]) -> None:
    record = decode_record(bytes.fromhex(case["record"]), 0, True)
    found = received(record, "broker-a")

    assert (record.topic, record.queue_id, record.flag) == (
        case["topic"],
        case["queueId"],
        case["flag"],
    )
    assert (record.queue_offset, record.physical_offset) == (
        case["queueOffset"],
        case["physicalOffset"],
    )
    assert (record.born_timestamp_ms, record.store_timestamp_ms) == (
        case["bornTimestamp"],
        case["storeTimestamp"],
    )
    assert record.prepared_offset == case["preparedTransactionOffset"]
    assert record.reconsume_times == case["reconsumeTimes"]
    assert found.body.hex() == case["readBody"]
    assert found.body_crc == case["readBodyCRC"]
    assert found.store_size == case["readStoreSize"]
    assert found.properties == case["readProperties"]
    assert found.message_id == case["readProperties"].get("UNIQ_KEY", case["readMsgId"])
    assert (
        found.sys_flag == case["readSysFlag"] & ~1
    )  # Java leaves the bit, though the body is plain


@pytest.mark.parametrize("case", cases("batch_body"), ids=lambda case: str(case["name"]))
def test_batches(case: dict[str, Any]) -> None:
    messages = [
        (m["flag"], bytes.fromhex(m["body"]), m["properties"].encode()) for m in case["messages"]
    ]
    cursor = BatchCursor(bytes.fromhex(case["batch"]))
    found = []
    while cursor.advance():
        found.append((cursor.flag, cursor.body, cursor.properties))

    assert encode_batch(messages).hex() == case["batch"]
    assert found == messages


def test_property_strings() -> None:
    golden = cases("property_string")

    for case in golden["read"]:
        assert decode_properties(case["text"]) == case["properties"], case
    for case in golden["written"]:
        assert encode_properties(case["properties"]) == case["text"]
    assert set(golden["reserved"]) == RESERVED


def test_message_ids() -> None:
    golden = cases("message_id")

    for case in golden["offsetIds"]:
        host = host_bytes(case["host"], case["port"])
        assert offset_message_id(host, case["offset"]) == case["id"]
        assert decode_offset_message_id(case["id"]) == (host, case["readOffset"])
    ip = bytes(int(part) for part in golden["uniqueIdIp"].split("."))
    drawn = UniqueIds(ip, golden["uniqueIdPid"], 0x18B4AAC2).next_id(0x1234)
    assert drawn[:-4] == golden["uniqueId"][:-4]


@pytest.mark.parametrize("case", cases("string_hash"), ids=lambda case: ascii(case["text"]))
def test_string_hashes(case: dict[str, Any]) -> None:
    assert java_hash(case["text"]) == case["hash"]


@pytest.mark.parametrize("case", cases("names")["names"], ids=lambda case: ascii(case["name"])[:20])
def test_names_are_refused_in_apaches_words(case: dict[str, Any]) -> None:
    name = case["name"]

    assert (names.topic_error(name) or "") == (case["topic"] or "")
    assert (names.group_error(name) or "") == (case["group"] or "")
    assert names.client_topic_error(name) == case["clientTopic"]
    assert names.client_group_error(name) == case["clientGroup"]
    assert names.is_system_topic(name) == case["system"]
    assert (name in names.NOT_ALLOWED_SEND) == case["notAllowedSend"]


def test_system_names_and_permissions() -> None:
    golden = cases("names")

    assert set(golden["systemTopics"]) == names.SYSTEM_TOPICS
    assert set(golden["notAllowedSend"]) == names.NOT_ALLOWED_SEND
    for case in golden["perms"]:
        assert names.is_valid_perm(case["perm"]) == case["valid"], case
        assert names.perm_text(case["perm"]) == case["text"], case


@pytest.mark.parametrize(
    "case", cases("compression"), ids=lambda case: f"{case['type']}-{len(case['text'])}"
)
def test_bodies_compressed_by_java_are_read(case: dict[str, Any]) -> None:
    kind = Compression[case["type"]]
    body = case["text"].encode()

    assert kind.sys_flag == case["flag"] | 1
    assert decompress(bytes.fromhex(case["packed"]), kind.sys_flag, len(body)) == body
    if kind is Compression.ZLIB:
        assert compress(body, kind).hex() == case["packed"]


def test_the_commit_log_of_a_store_of_apaches_is_read() -> None:
    golden = cases("store")
    logs = sorted((HERE / "store" / "files" / "commitlog").iterdir())
    data = b"".join(log.read_bytes() for log in logs)
    for put in golden["puts"]:
        record = decode_record(data, put["physicalOffset"], True)
        assert (record.physical_offset, record.size) == (put["physicalOffset"], put["size"])
        assert (record.topic, record.queue_id, record.properties) == (
            put["topic"],
            put["queueId"],
            put["properties"],
        )
        assert record.body.decode() == put["body"]
        assert [
            r.body
            for r in decode_records(
                data[put["physicalOffset"] : put["physicalOffset"] + put["size"]]
            )
        ] == [record.body]
