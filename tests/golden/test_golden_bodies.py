"""JSON bodies of Apache's are read, and what we write of them parses to the same."""

import json
from pathlib import Path
from typing import Any

import pytest

json_body = pytest.importorskip("roquette.wire.json_body")
bodies = pytest.importorskip("roquette.wire.bodies")

HERE = Path(__file__).parent / "json_body"
STANDARD = (
    "HeartbeatData",
    "LockBatchRequestBody",
    "SubscriptionGroupWrapper",
    "TopicConfigSerializeWrapper",
)
NAMES = sorted(
    {path.name.partition(".")[0] for path in HERE.glob("*.body")} - {"RegisterBrokerBody"}
)


@pytest.mark.parametrize("suffix", [".body", ".pretty", ".standard.body"])
@pytest.mark.parametrize("name", NAMES)
def test_bodies_are_read_and_written(name: str, suffix: str) -> None:
    path = HERE / (name + suffix)
    if not path.exists():
        pytest.skip("Apache writes this body in one way only")
    if not hasattr(bodies, name):
        pytest.skip("no such body of ours yet")
    kind = getattr(bodies, name)

    found = json_body.decode_body(kind, path.read_bytes())

    assert json_body.decode_body(kind, json_body.encode_body(found)) == found
    assert found == json_body.decode_body(kind, (HERE / f"{name}.body").read_bytes())


@pytest.mark.parametrize("name", STANDARD)
def test_standard_bodies_parse_to_the_same(name: str) -> None:
    data = (HERE / f"{name}.body").read_bytes()
    expected: dict[str, Any] = json.loads(data)

    ours = json.loads(json_body.encode_body(json_body.decode_body(getattr(bodies, name), data)))

    assert without_nulls(ours) == expected


def without_nulls(value: Any) -> Any:
    """To Java a null is an absent field; fastjson writes none."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("compressed", [False, True])
def test_register_broker_bodies_are_read(compressed: bool) -> None:
    data = (
        HERE / ("RegisterBrokerBody.compressed.body" if compressed else "RegisterBrokerBody.body")
    ).read_bytes()

    found = bodies.decode_register_broker_body(data, compressed=compressed, version=513)

    topics = found.topic_config_serialize_wrapper.topic_config_table
    assert sorted(topics) == ["DelayTopic", "TopicTest"]
    assert (topics["TopicTest"].read_queue_nums, topics["TopicTest"].write_queue_nums) == (8, 4)
    assert topics["DelayTopic"].attributes == {"message.type": "DELAY"}
    assert found.topic_config_serialize_wrapper.data_version.counter == 5
    assert found.filter_server_list == ["10.0.0.9:1000"]
    again = bodies.encode_register_broker_body(found, compressed=compressed)
    assert bodies.decode_register_broker_body(again, compressed=compressed, version=513) == found
