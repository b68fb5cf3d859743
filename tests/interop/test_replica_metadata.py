"""What a replica copies besides the log: an Apache slave gets our master's tables, our replica those of an Apache master."""

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.promise_cases import TOPIC
from tests.interop import peers

from roquette.apps.features import replica_features
from roquette.base.clock import SystemClock
from roquette.base.entropy import Entropy
from roquette.base.files import OsFiles
from roquette.broker.floor.config import BrokerConfig
from roquette.broker.pop.assignment import AssignmentFeature
from roquette.broker.service import Broker
from roquette.store.format.config import StoreConfig

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]
MODE = {"topic": "Kept", "consumerGroup": "kept", "mode": "POP", "popShareQueueNum": 1}
GROUP = {"groupName": "kept", "retryMaxTimes": 3}
TIMED = {"timerWheelEnable": "true"}


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[peers.Server]:
    server = peers.start_namesrv("roquette", tmp_path / "namesrv")
    yield server
    server.discard()


def ask(address: str, code: int, fields: dict[str, str] | None = None, body: Any = b"") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = peers.call(address, code, fields, data)
    assert answer is not None and answer[0]["code"] == 0, (code, answer)
    return answer[1]


def fill(address: str) -> None:
    """A topic, a group, a request mode and an offset."""
    ask(address, 17, {key: str(value) for key, value in TOPIC.items()} | {"topic": "Kept"})
    ask(address, 200, {}, GROUP)
    ask(address, 401, {}, MODE)
    where = {"consumerGroup": "kept", "topic": "Kept", "queueId": "1", "commitOffset": "7"}
    ask(address, 15, where)


def number_keys(data: bytes) -> Any:
    """Java writes numbers as keys."""
    return json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', data))


def copied(address: str) -> list[str]:
    """What a broker has of all that."""
    found = []
    if "Kept" in number_keys(ask(address, 21))["topicConfigTable"]:
        found.append("topic")
    groups = number_keys(ask(address, 201))["subscriptionGroupTable"]
    if groups.get("kept", {}).get("retryMaxTimes") == 3:
        found.append("group")
    if number_keys(ask(address, 43))["offsetTable"].get("Kept@kept") == {"1": 7}:
        found.append("offset")
    if "Kept" in number_keys(ask(address, 402))["messageRequestModeMap"]:
        found.append("mode")
    return found


def until(done: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.2)


EVERYTHING = ["topic", "group", "offset", "mode"]


def test_our_replica_gets_an_apache_masters_tables(namesrv: peers.Server, tmp_path: Path) -> None:
    master = peers.start_apache_broker(
        tmp_path / "master", namesrv.address, name="broker-b", settings=TIMED
    )
    try:
        fill(master.address)
        asyncio.run(_copy(namesrv.address, tmp_path / "replica"))
        logs = b"".join(path.read_bytes() for path in tmp_path.glob("master/logs/**/*.log"))
        assert b"Failed field" not in logs
    finally:
        master.discard()


@pytest.mark.long  # Apache's slave asks first a minute after its start
def test_an_apache_slave_gets_our_masters_tables(namesrv: peers.Server, tmp_path: Path) -> None:
    ours = peers.start_broker("roquette", tmp_path / "ours", namesrv.address)
    fill(ours.address)
    settings = {"brokerId": "1", "brokerRole": "SLAVE", **TIMED}
    theirs = peers.start_apache_broker(tmp_path / "slave", namesrv.address, settings=settings)
    try:
        until(lambda: copied(theirs.address) == EVERYTHING, 100)
        # It asks us for the timer's metrics and progress of delays with the rest: nothing went wrong.
        logs = b"".join(path.read_bytes() for path in tmp_path.glob("slave/logs/**/*.log"))
        assert b"Update slave Message Request Mode from master" in logs
        assert re.findall(rb".*(?:Sync|sync)\w+ ?Exception.*", logs) == []
    finally:
        for server in (theirs, ours):
            server.discard()


async def _copy(namesrv: str, folder: Path) -> None:
    """Our replica of the Apache master."""
    config = BrokerConfig(
        broker_name="broker-b",
        broker_id=1,
        broker_role="SLAVE",
        bind_address="127.0.0.1",
        listen_port=peers.free_port(),
        namesrv_addr=namesrv,
    )
    store = StoreConfig(root_dir=str(folder), segment_size=1 << 20)
    world = {"files": OsFiles(), "clock": SystemClock(), "entropy": Entropy()}
    broker = Broker(config, store, replica_features, **world)  # type: ignore[arg-type]
    await broker.start()
    try:
        tables = broker.core.tables
        modes = broker.feature(AssignmentFeature).modes
        async with asyncio.timeout(30):
            while not (
                tables.topics.find("Kept") is not None
                and tables.groups.known("kept") is not None
                and tables.offsets.query("kept", "Kept", 1) == 7
                and "Kept" in modes.to_wrapper().message_request_mode_map
            ):
                await asyncio.sleep(0.1)
        group = tables.groups.known("kept")
        assert group is not None and group.retry_max_times == 3
    finally:
        await broker.stop()
