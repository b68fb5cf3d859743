"""Mixed pairs with Apache's broker 5.5.0, classic protocol, both directions: equal bytes, and the statuses of a SYNC_MASTER.

Apache's slave listens to no haMasterAddress: it learns the master's door from the name server, so our master must have
registered it, and its empty slave gets the last file of a log only. Ours gets everything.
"""

import time
from pathlib import Path

import pytest
from tests.interop import peers
from tests.interop.copied_logs import (
    SOON_S,
    change,
    compare,
    fill,
    ha_status,
    send,
    until,
    wait_equal,
)
from tests.interop.peers import Server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "1", "slaveTimeout": "3000"}
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


SIZES = [50, pytest.param(3072, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]


@pytest.mark.promise("Replication", "master and replica have the same bytes, ours with Apache's")
@pytest.mark.parametrize("megabytes", SIZES)
@pytest.mark.parametrize("flavours", ["apache-roquette", "roquette-apache", "roquette-roquette"])
def test_a_pair(started: list[Server], tmp_path: Path, flavours: str, megabytes: int) -> None:
    masters, slaves = flavours.split("-")
    namesrv = peers.start_namesrv(masters, tmp_path / "namesrv")
    started.append(namesrv)
    master = peers.start_broker(masters, tmp_path / "master", namesrv.address, settings=SYNC)
    started.append(master)
    if slaves == "roquette":  # it comes late, and empty
        assert fill(namesrv.address, megabytes) == ["SEND_OK"]
    began = time.monotonic()
    slave = peers.start_broker(slaves, tmp_path / "slave", namesrv.address, settings=SLAVE)
    started.append(slave)
    if slaves == "apache":  # an empty one of Apache's gets the log's last file only
        until(lambda: ha_status(master)["haConnectionInfo"], slave)
        assert fill(namesrv.address, megabytes) == ["SEND_OK"]

    end = wait_equal(master, slave, SOON_S * megabytes / 50)
    print(flavours, end, "bytes after", round(time.monotonic() - began, 1), "s")
    assert end > megabytes << 20
    change(master, inSyncReplicas="2")
    assert set(send(namesrv.address, 50)) == {"SEND_OK"}
    status = ha_status(master)
    assert status["master"] is True and status["inSyncSlaveNums"] == 1
    assert ha_status(slave)["master"] is False
    end = wait_equal(master, slave)
    compare(tmp_path / "master", tmp_path / "slave", end)

    slave.process.kill()
    assert send(namesrv.address, 1) == ["FLUSH_SLAVE_TIMEOUT"]
