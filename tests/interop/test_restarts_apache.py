"""Apache's broker at our name server: stopped, killed, started again elsewhere, and beside a stranger."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop import peers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[peers.Server]:
    server = peers.start_namesrv("roquette", tmp_path / "namesrv")
    yield server
    server.discard()


def addresses(namesrv: peers.Server) -> list[str]:
    """Where the name server says that broker-a is."""
    answer = peers.call(namesrv.address, 106)
    assert answer is not None
    table = json.loads(answer[1].replace(b"{0:", b'{"0":'))["brokerAddrTable"]
    return list(table["broker-a"]["brokerAddrs"].values()) if "broker-a" in table else []


def until(namesrv: peers.Server, wanted: list[str], seconds: float) -> None:
    end = time.monotonic() + seconds
    while addresses(namesrv) != wanted:
        assert time.monotonic() < end, addresses(namesrv)
        time.sleep(0.1)


def test_a_restarted_broker_is_routed_and_a_stranger_moves_nothing(
    namesrv: peers.Server, tmp_path: Path
) -> None:
    first = peers.start_broker("apache", tmp_path / "broker", namesrv.address)
    try:
        assert addresses(namesrv) == [first.address]
        fields = {
            "brokerName": "broker-a", "brokerAddr": first.address, "clusterName": "DefaultCluster",
            "brokerId": "0", "haServerAddr": "", "heartbeatTimeoutMillis": "120000", "compressed": "false",
            "bodyCrc32": "0",
        }  # fmt: skip
        for code, changes in (
            (104, {}), (103, {}), (103, {"brokerAddr": "127.0.0.1:1"}), (103, {"brokerName": "b"}), (904, {}),
        ):  # fmt: skip
            answer = peers.call(namesrv.address, code, fields | changes)
            assert answer is not None
            assert answer[0]["code"] == 1, (code, changes)
            assert "alive on another connection" in answer[0]["remark"]
        time.sleep(2)
        assert addresses(namesrv) == [first.address]
        assert first.process.popen.poll() is None
    finally:
        first.process.kill()
    until(namesrv, [], 20)

    second = peers.start_broker("apache", tmp_path / "broker", namesrv.address)  # another port
    assert second.address != first.address
    assert addresses(namesrv) == [second.address]
    second.stop()
    until(namesrv, [], 20)

    third = peers.start_broker("apache", tmp_path / "broker", namesrv.address)
    try:
        assert addresses(namesrv) == [third.address]
    finally:
        third.process.kill()
