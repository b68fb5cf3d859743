"""Apache's mqadmin 5.5.0 and a name server that is a controller: its commands about broker groups.

The group's brokers are played by the test, which writes their record; its own tests have the real ones.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.interop.driver import Driver
from tests.interop.peers import Server, start_roquette_namesrv

from roquette.base.clock import SystemClock
from roquette.remoting.client import RemotingClient
from roquette.remoting.etcd import RemoteAgreement
from roquette.replication.record import GroupRecord, MemberPlace, read_group, record_key

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

PLACES = {
    who: MemberPlace(address=f"10.9.0.{who}:10911", ha_address=f"10.9.0.{who}:10912")
    for who in (1, 2, 3)
}
RECORD = GroupRecord(number=1, epoch=4, master=1, members=(1, 2), set_epoch=5, places=PLACES)
NAME = ("-bn", "broker-g", "-c", "DefaultCluster")


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    driver = Driver("5.5.0", tmp_path_factory.mktemp("java"))
    yield driver
    driver.stop()


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[Server]:
    settings = {"controller": "embedded", "controllerStorePath": str(tmp_path / "c")}
    server = start_roquette_namesrv(tmp_path, settings)
    change(server, lambda record: RECORD)
    yield server
    server.stop()


def change(server: Server, make: Callable[[GroupRecord | None], GroupRecord | None]) -> GroupRecord:
    """Replace the record, as a broker does; returns what stands there."""

    async def work() -> GroupRecord:
        client = RemotingClient(SystemClock())
        agreement = RemoteAgreement(client, [server.address], try_ms=10_000)
        key = record_key("DefaultCluster", "broker-g")
        while True:
            revision, record = await read_group(agreement, key)
            wanted = make(record)
            if wanted is not None and wanted != record:
                assert await agreement.put_if(key, revision, wanted.encode())
            if wanted is not None:
                await client.close()
                return wanted
            await asyncio.sleep(0.05)

    return asyncio.run(work())


def test_what_it_shows(java: Driver, namesrv: Server) -> None:
    def mqadmin(verb: str, *words: str) -> str:
        printed = java.mqadmin(verb, "-n", namesrv.address, "-a", namesrv.address, *words)
        return printed.replace(namesrv.address, "NAMESRV").strip()

    assert mqadmin("getControllerMetaData").split("\n") == [
        "#ControllerGroup\tembedded",
        "#ControllerLeaderId\tNAMESRV",
        "#ControllerLeaderAddress\tNAMESRV",
        "#Peer:\tNAMESRV",
    ]
    shown = mqadmin("getSyncStateSet", "-b", "broker-g").split("\n")
    identity = "ReplicaIdentity{{brokerName='broker-g', brokerId={0}, brokerAddress='10.9.0.{0}:10911', alive=false}}"
    assert [line for line in shown if line] == [
        "#brokerName\tbroker-g",
        "#MasterBrokerId\t1",
        "#MasterAddr\t10.9.0.1:10911",
        "#MasterEpoch\t4",
        "#SyncStateSetEpoch\t5",
        "#SyncStateSetNums\t2",
        "InSyncReplica:\t" + identity.format(1),
        "InSyncReplica:\t" + identity.format(2),
        "NotInSyncReplica:\t" + identity.format(3),
    ]
    config = mqadmin("getControllerConfig")
    assert "embedded" in config and "orderMessageEnable" in config
    assert "success" in mqadmin("updateControllerConfig", "-k", "orderMessageEnable", "-v", "true")


def test_an_ordered_election(java: Driver, namesrv: Server) -> None:
    def group(record: GroupRecord | None) -> GroupRecord | None:
        """What its brokers do."""
        if record is None or record.ordered != 2:
            return None
        won: dict[str, Any] = {"number": record.number + 1, "epoch": 5, "master": 2, "ordered": 0}
        return replace(record, **won)

    brokers = threading.Thread(target=change, args=(namesrv, group))
    brokers.start()
    words = ("-a", namesrv.address, *NAME)
    printed = java.mqadmin("electMaster", "-n", namesrv.address, "-b", "2", *words)
    brokers.join()
    lines = [line for line in printed.split("\n") if line]
    assert lines == [
        "#ClusterName\tDefaultCluster",
        "#BrokerName\tbroker-g",
        "#BrokerMasterAddr\t10.9.0.2:10911",
        "#MasterEpoch\t5",
        "#SyncStateSetEpoch\t5",
        *(f"\t#Broker\t{who}\t10.9.0.{who}:10911" for who in (1, 2, 3)),
    ]
    printed = java.mqadmin("electMaster", "-n", namesrv.address, "-b", "3", *words)
    assert "broker 3 is not in step" in printed


def test_members_that_are_gone(java: Driver, namesrv: Server) -> None:
    words = ("-n", namesrv.address, "-a", namesrv.address, *NAME)
    printed = java.mqadmin("cleanBrokerMetadata", *words, "-b", "2;3")
    assert "clear broker broker-g metadata from controller success" in printed
    record = change(namesrv, lambda record: record)
    assert (sorted(record.places), record.members, record.set_epoch) == ([1], (1,), 6)
    assert "elect another one first" in java.mqadmin("cleanBrokerMetadata", *words, "-b", "1")
