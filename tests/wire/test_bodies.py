"""Names and defaults of bodies are Apache's; registrations in both forms."""

import contextlib
import importlib
import json
import pkgutil
import struct
import types
import typing
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette.errors import RemoteProtocolError
from roquette.wire import bodies
from roquette.wire.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicQueueMappingInfo,
    crc_of,
    decode_register_broker_body,
    encode_register_broker_body,
    tables,
)
from roquette.wire.json_body import Int32, Int64, decode_body, encode_body

GOLDEN = Path(__file__).parent.parent / "golden" / "json_body"
DEFAULTS = {
    name: json.loads(text)
    for name, text in json.loads((GOLDEN / "defaults.json").read_text("utf-8")).items()
    if hasattr(bodies, name)
}
SET_AT_ONCE = ("dataVersion", "subString", "consumeType", "messageModel", "consumeFromWhere")
SHOWN_ONLY = (
    "minTimeStampStr",
    "maxTimeStampStr",
    "consumeTimeStampStr",
)  # texts of the numbers beside them


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_apaches(name: str) -> None:
    expected = without_clock(DEFAULTS[name])
    ours = without_clock(json.loads(encode_body(getattr(bodies, name)())))

    assert {key: ours.get(key) for key in expected} == expected
    # Where Java's field is null until it is set, ours is an empty text or list.
    extra = {key: value for key, value in ours.items() if key not in expected}
    assert not [key for key, value in extra.items() if value and key not in SET_AT_ONCE]


def without_clock(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: 0 if key in ("timestamp", "subVersion") else without_clock(each)
            for key, each in value.items()
            if key not in SHOWN_ONLY
        }
    return value


WIRE_NAMES = {
    "BrokerData": "brokerAddrs brokerName cluster enableActingMaster outsideAddrs zoneName",  # outside: ours
    "BrokerMemberGroup": "brokerAddrs brokerName cluster",
    "CheckClientRequestBody": "clientId group namespace subscriptionData",
    "Connection": "clientAddr clientId language version",
    "ConsumeMessageDirectlyResult": "autoCommit consumeResult order remark spentTimeMills",
    "ConsumeStatsList": "brokerAddr consumeStatsList totalDiff totalInflightDiff",
    "ConsumerConnection": "connectionSet consumeFromWhere consumeType messageModel subscriptionTable",
    "ConsumerRunningInfo": "jstack mqPopTable mqTable properties statusTable subscriptionSet userConsumerInfo",
    "CreateTopicListRequestBody": "topicConfigList",
    "DelayOffsetSerializeWrapper": "dataVersion offsetTable",
    "GetBrokerMemberGroupResponseBody": "brokerMemberGroup",
    "GroupForbidden": "group readable topic",
    "HeartbeatData": "clientID consumerDataSet heartbeatFingerprint producerDataSet withoutSub",
    "LockBatchResponseBody": "lockOKMQSet",
    "ProducerInfo": "clientId language lastUpdateTimestamp remoteIP version",
    "ProducerTableInfo": "data",
    "QueryConsumeQueueResponseBody": "filterData maxQueueIndex minQueueIndex queueData subscriptionData",
    "ResetOffsetBodyForC": "offsetTable",
    "SimpleSubscriptionData": "expression expressionType topic version",
    "SubscriptionGroupList": "groupConfigList",
    "TopicList": "brokerAddr topicList",
    "TopicQueueMappingInfo": "bname currIdMap dirty epoch scope topic totalQueues",
    "TopicRouteData": "brokerDatas filterServerTable orderTopicConf queueDatas topicQueueMappingByBroker",
}


@pytest.mark.parametrize("name", WIRE_NAMES)
def test_wire_names_are_apaches(name: str) -> None:
    fields = msgspec.structs.fields(getattr(bodies, name))

    assert " ".join(sorted(field.encode_name for field in fields)) == WIRE_NAMES[name]


BODY = RegisterBrokerBody(
    TopicConfigAndMappingSerializeWrapper(
        topic_config_table={
            "T": TopicConfig("T", 8, 4, 6),
            "%RETRY%g": TopicConfig("%RETRY%g", 1, 1, 6, attributes={"+a b": "c d"}),
        },
        data_version=DataVersion(5, 3, 1_700_000_000_000),
        topic_queue_mapping_info_map={
            "S": TopicQueueMappingInfo(topic="S", total_queues=2, bname="b", curr_id_map={0: 1})
        },
    ),
    ["10.0.0.9:1000"],
)


@pytest.mark.parametrize("compressed", [False, True])
def test_registrations_survive_both_forms(compressed: bool) -> None:
    data = encode_register_broker_body(BODY, compressed=compressed)

    assert decode_register_broker_body(data, compressed=compressed, version=513) == BODY


def test_brokers_before_5_send_no_mappings() -> None:
    data = encode_register_broker_body(BODY, compressed=True)

    found = decode_register_broker_body(data, compressed=True, version=401)

    assert found.topic_config_serialize_wrapper.topic_queue_mapping_info_map == {}


def test_the_crc_has_31_bits() -> None:
    assert crc_of(b"hello") == 907060870


def sized(*parts: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(part)) + part for part in parts)


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        sized(b"{}"),
        sized(b"{}") + struct.pack(">i", 2**31 - 1),
        sized(b"[]") + struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        sized(b"{}") + struct.pack(">i", 1) + sized(b"T 8 4"),
        sized(b"{}") + struct.pack(">i", 1) + sized(b"T eight 4 6 SINGLE_TAG {}"),
        sized(b"{}") + struct.pack(">i", 1) + sized(b"T 8 4 6 SINGLE_TAG [1]"),
        sized(b"{}") + struct.pack(">i", 1) + sized(b"T 8 4 6 SINGLE_TAG " + b"[" * 5000),
        sized(b"{}") + struct.pack(">i", 1) + sized(b"\xff 8 4 6 SINGLE_TAG {}"),
    ],
)
def test_malformed_registrations_are_refused(plain: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_register_broker_body(zlib.compress(plain), compressed=True, version=513)


def test_streams_that_are_cut_off_or_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_register_broker_body(BODY, compressed=True)
    with pytest.raises(RemoteProtocolError, match="cut off"):
        decode_register_broker_body(data[:-20], compressed=True, version=513)

    monkeypatch.setattr(tables, "MAX_DECOMPRESSED", 100)
    with pytest.raises(RemoteProtocolError, match="more than 100"):
        decode_register_broker_body(data, compressed=True, version=513)


@given(data=st.binary(), compressed=st.booleans(), packed=st.booleans())
def test_any_registration_is_read_or_refused(data: bytes, compressed: bool, packed: bool) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decode_register_broker_body(
            zlib.compress(data) if packed else data, compressed=compressed, version=513
        )


def int_fields() -> list[Any]:
    """Class and field of every number in a body."""
    kinds: dict[str, Any] = {}
    for module in pkgutil.iter_modules(bodies.__path__):
        for name, kind in vars(importlib.import_module(f"{bodies.__name__}.{module.name}")).items():
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                kinds[name] = kind
    rows = [(kind, field) for kind in kinds.values() for field in msgspec.structs.fields(kind)]
    return [(kind, field) for kind, field in rows if is_number(field.type)]


def is_number(kind: Any) -> bool:
    inner = (
        typing.get_args(kind)
        if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
        else (kind,)
    )
    return any(one is int or one in (Int32, Int64) for one in inner)


@pytest.mark.parametrize(
    ("kind", "field"), int_fields(), ids=lambda each: getattr(each, "name", None) or each.__name__
)
def test_a_number_of_a_body_is_in_javas_range(kind: Any, field: Any) -> None:
    assert "Meta(" in str(field.type), "declare it as Int32 or Int64"
    bits = 31 if "2147483647" in str(field.type) else 63
    needed = {
        f.encode_name: "x" for f in msgspec.structs.fields(kind) if f.required and f.type is str
    }
    for number, taken in (
        (2**bits - 1, True),
        (2**bits, False),
        (-(2**bits), True),
        (-(2**bits) - 1, False),
        (2**70, False),
    ):
        body = json.dumps(needed | {field.encode_name: number}).encode()
        if taken:
            assert getattr(decode_body(kind, body), field.name) == number
        else:
            with pytest.raises(RemoteProtocolError):
                decode_body(kind, body)
