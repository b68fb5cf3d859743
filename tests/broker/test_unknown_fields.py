"""Fields of the JSON files that we do not know stay, wherever they stand: a newer broker's, another tool's."""

import json
from pathlib import Path
from typing import Any

import pytest

from roquette.base.files import OsFiles
from roquette.broker.floor.config_files import ConfigFiles
from roquette.message.fastjson import read_json
from roquette.wire import bodies
from roquette.wire.bodies import (
    ConsumerOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)

VERSION = '"dataVersion":{"counter":7,"stateVersion":0,"timestamp":1700000000000}'
FILES: dict[str, tuple[type, str]] = {
    "topics.json": (
        TopicConfigSerializeWrapper,
        '{"topicConfigTable":{"A":{"topicName":"A","readQueueNums":3,"writeQueueNums":3,"perm":6,'
        '"attributes":{"k":"v"}},"B":{"topicName":"B"}},' + VERSION + "}",
    ),
    "subscriptionGroup.json": (
        SubscriptionGroupWrapper,
        '{"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":3,"groupRetryPolicy":'
        '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000]}}},"h":{"groupName":"h"}},'
        '"forbiddenTable":{"g":{"A":1}},' + VERSION + "}",
    ),
    "consumerOffset.json": (
        ConsumerOffsetSerializeWrapper,
        '{"offsetTable":{"A@g":{0:5,1:6},"B@g":{0:1}},' + VERSION + "}",
    ),
    "delayOffset.json": (
        bodies.DelayOffsetSerializeWrapper,
        '{"offsetTable":{1:5,2:6},' + VERSION + "}",
    ),
    "messageRequestMode.json": (
        bodies.MessageRequestModeSerializeWrapper,
        '{"messageRequestModeMap":{"A":{"g":{"topic":"A","consumerGroup":"g","mode":"POP","popShareQueueNum":2}}}}',
    ),
    "timermetrics": (
        bodies.TimerMetricsSerializeWrapper,
        '{"timingCount":{"A":{"count":4,"timeStamp":5}},' + VERSION + "}",
    ),
}
UNKNOWN = {"aNew": {"deep": [1, {"x": 0}], "n": 3}, "zNew": "text", "9": True}


def places(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of all objects of a file that have named fields, the top first."""
    found = []
    if isinstance(value, dict):
        found.append(path)
        for key, part in value.items():
            found += places(part, (*path, key))
    return found


def at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def maps(name: str) -> set[tuple[str, ...]]:
    """Objects whose keys are names of entries, so that nothing in them is unknown."""
    whole = read_json(FILES[name][1].encode())
    free = {"offsetTable", "attributes", "forbiddenTable", "timingCount", "messageRequestModeMap"}
    free |= {"topicConfigTable", "subscriptionGroupTable"}
    found = set()
    for path in places(whole):
        if path and path[-1] in free:
            found.add(path)
        if len(path) == 2 and path[0] in ("offsetTable", "forbiddenTable", "messageRequestModeMap"):
            found.add(path)
    return found


CASES = [
    (name, path)
    for name, (_, text) in FILES.items()
    for path in places(read_json(text.encode()))
    if path not in maps(name)
]


def test_every_file_has_places_at_the_top_in_entries_and_within() -> None:
    assert len(CASES) >= 17
    assert {name for name, _ in CASES} == set(FILES)
    assert max(len(path) for _, path in CASES) >= 4


@pytest.mark.promise("Answers", "fields that we do not know stay in the files")
@pytest.mark.parametrize("name, path", CASES)
def test_unknown_fields_stay_where_they_are(
    tmp_path: Path, name: str, path: tuple[str, ...]
) -> None:
    shape, text = FILES[name]
    whole = read_json(text.encode())
    at(whole, path).update(UNKNOWN)
    files = ConfigFiles(OsFiles(), str(tmp_path))
    (tmp_path / name).write_text(json.dumps(whole))

    value = files.load(name, shape)
    for _ in range(2):  # and again
        files.save(name, value)
        found = at(read_json((tmp_path / name).read_bytes()), path)
        assert {key: found.get(key) for key in UNKNOWN} == UNKNOWN
        assert files.load(name, shape) == value

    # Nothing else has changed.
    plain = ConfigFiles(OsFiles(), str(tmp_path / "plain"))
    plain.save(name, value)
    wanted = read_json((tmp_path / "plain" / name).read_bytes())
    at(wanted, path).update(UNKNOWN)
    assert read_json((tmp_path / name).read_bytes()) == wanted


def test_an_entry_made_again_begins_without_them(tmp_path: Path) -> None:
    files = ConfigFiles(OsFiles(), str(tmp_path))
    whole = read_json(FILES["topics.json"][1].encode())
    whole["topicConfigTable"]["A"]["aNew"] = 1
    whole["topicConfigTable"]["B"]["aNew"] = 2
    (tmp_path / "topics.json").write_text(json.dumps(whole))
    value = files.load("topics.json", TopicConfigSerializeWrapper)
    assert value is not None
    gone = value.topic_config_table.pop("A")
    files.save("topics.json", value)
    value.topic_config_table["A"] = gone
    files.save("topics.json", value)

    table = read_json((tmp_path / "topics.json").read_bytes())["topicConfigTable"]
    assert "aNew" not in table["A"]
    assert table["B"]["aNew"] == 2


def test_a_broker_keeps_them_over_changes(run_broker: Any, tmp_path: Path) -> None:
    config = tmp_path / "store" / "config"

    async def use(case: Any, number: int = 0) -> None:
        client = await case.client()
        await client.produce(f"Mine{number}")
        await client.produce("Mine0")
        await client.pull("Mine0", sysFlag=5, commitOffset=number)
        await client.pull("Mine0", consumerGroup=f"g{number}", sysFlag=5, commitOffset=1)

    run_broker(use)
    entries = {
        "topics.json": ("topicConfigTable", "Mine0"),
        "subscriptionGroup.json": ("subscriptionGroupTable", "g"),
        "consumerOffset.json": (),
        "delayOffset.json": (),
    }
    for name, path in entries.items():
        whole = read_json((config / name).read_bytes())
        for part in {(), path, ("dataVersion",)}:
            at(whole, part).update(UNKNOWN)
        (config / name).write_text(json.dumps(whole))

    async def again(case: Any) -> None:
        await use(case, 1)

    run_broker(again)
    for name, path in entries.items():
        whole = read_json((config / name).read_bytes())
        for part in {(), path, ("dataVersion",)}:
            found = at(whole, part)
            assert {key: found.get(key) for key in UNKNOWN} == UNKNOWN, (name, part)
    assert "Mine1" in read_json((config / "topics.json").read_bytes())["topicConfigTable"]


TOPIC = {
    "topicName": "Mine0", "readQueueNums": 7, "writeQueueNums": 6, "perm": 6, "topicFilterType": "MULTI_TAG",
    "topicSysFlag": 1, "order": True, "attributes": {"a": "b"},
}  # fmt: skip
RETRIES = {
    "type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 5000, "max": 60000, "multiplier": 3},
    "customizedRetryPolicy": {"next": [1000, 2000]},
}  # fmt: skip
GROUP = {
    "groupName": "g", "consumeEnable": False, "consumeFromMinEnable": False, "consumeBroadcastEnable": False,
    "consumeMessageOrderly": True, "retryQueueNums": 3, "retryMaxTimes": 5, "groupRetryPolicy": RETRIES,
    "brokerId": 1, "whichBrokerWhenConsumeSlowly": 2, "notifyConsumerIdsChangedEnable": False, "groupSysFlag": 3,
    "consumeTimeoutMinute": 4, "attributes": {"q": "w"},
    "subscriptionDataSet": [{"topic": "A", "expressionType": "TAG", "expression": "x", "version": 5}],
}  # fmt: skip


def test_every_field_of_topics_and_groups_that_we_know_survives_a_rewrite(
    run_broker: Any, tmp_path: Path
) -> None:
    entries = {
        "topics.json": ("topicConfigTable", "Mine0", TOPIC),
        "subscriptionGroup.json": ("subscriptionGroupTable", "g", GROUP),
    }
    config = tmp_path / "store" / "config"

    async def use(case: Any, number: int = 0) -> None:
        client = await case.client()
        await client.produce("Mine0")
        await client.produce(f"Mine{number}")
        await client.pull("Mine0", sysFlag=5, commitOffset=1)
        await client.pull("Mine0", consumerGroup=f"g{number}", sysFlag=5, commitOffset=1)

    async def again(case: Any) -> None:
        await use(case, 1)

    run_broker(use)
    for name, (table, key, wanted) in entries.items():
        whole = read_json((config / name).read_bytes())
        assert set(whole[table][key]) <= set(wanted)
        whole[table][key] = wanted
        (config / name).write_text(json.dumps(whole))
    run_broker(again)
    for name, (table, key, wanted) in entries.items():
        assert read_json((config / name).read_bytes())[table][key] == wanted
