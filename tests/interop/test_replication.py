"""Mixed pairs with Apache's broker 5.5.0, classic protocol, both directions: equal bytes, and the statuses of a SYNC_MASTER.

Apache's slave listens to no haMasterAddress: it learns the master's door from the name server, so our master must have
registered it, and its empty slave gets the last file of a log only. Ours gets everything.
"""

import asyncio
import contextlib
import json
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop import peers
from tests.interop.peers import Server

from roquette import Client, ClientConfig, Message
from roquette.apps.features import broker_features, replica_features
from roquette.base.clock import SystemClock
from roquette.base.entropy import Entropy
from roquette.base.executor import LoopThread
from roquette.base.files import OsFiles
from roquette.broker.cluster.feature import ClusterFeature
from roquette.broker.config import BrokerConfig
from roquette.broker.core import BrokerCore
from roquette.broker.feature import Feature
from roquette.broker.replication.master import MasterReplication
from roquette.broker.replication.quorum import ClassicQuorum
from roquette.broker.replication.source import MasterSource
from roquette.broker.service import Broker, Features
from roquette.store.config import StoreConfig
from roquette.wire.ha import Epochs, Welcome

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SOON_S = 90.0
BATCH = 400  # messages of 1 KiB in one request
SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "1", "slaveTimeout": "3000"}
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


def log_range(server: Server) -> tuple[int, int]:
    """Begin and end of a broker's log."""
    answer = peers.call(server.address, 28)
    assert answer is not None, server.process.tail()
    table = json.loads(answer[1])["table"]
    return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])


def wait_equal(master: Server, slave: Server) -> int:
    """Wait until both logs end at one offset; returns it."""
    end = time.monotonic() + SOON_S
    while (has := log_range(slave)[1]) != (wants := log_range(master)[1]):
        assert time.monotonic() < end, f"{has} of {wants}\n{slave.process.tail()}"
        time.sleep(0.1)
    return wants


def until(done: Callable[[], object], slave: Server) -> None:
    """Wait until it is true."""
    end = time.monotonic() + SOON_S
    while not done():
        assert time.monotonic() < end, slave.process.tail()
        time.sleep(0.1)


def segments(folder: Path) -> dict[str, bytes]:
    """The log's files by name."""
    found = [path for path in sorted(folder.rglob("commitlog/*")) if path.name.isdigit()]
    return {path.name: path.read_bytes() for path in found}


def compare(one: Path, other: Path, end: int) -> None:
    """All bytes up to the log's end are the same."""
    ours, theirs = segments(one), segments(other)
    size = 16 << 20
    names = [f"{base:020d}" for base in range(0, end, size)]
    assert set(names) <= set(ours) and set(names) <= set(theirs)
    for name in names:
        upto = min(size, end - int(name))
        assert ours[name][:upto] == theirs[name][:upto], name


def fill(namesrv: str, megabytes: int, wait: bool = False) -> list[str]:
    """Send so much in messages of 1 KiB; returns the statuses of the answers, each once."""

    async def work() -> set[str]:
        config = ClientConfig(name_servers=namesrv, send_timeout_ms=15_000)
        found = set()
        async with Client(config=config) as mq:
            await mq.send(Message("copied", b"first", wait_store_ok=wait))
            for number in range(megabytes * 1024 // BATCH):
                bodies = [b"%08d.%03d" % (number, k) + b"x" * 1012 for k in range(BATCH)]
                messages = [Message("copied", body, wait_store_ok=wait) for body in bodies]
                found |= {one.status for one in await mq.send_batch("copied", messages)}
        return found

    return sorted(asyncio.run(work()))


def send(namesrv: str, count: int) -> list[str]:
    """Send single messages that wait; returns the statuses."""

    async def work() -> list[str]:
        config = ClientConfig(name_servers=namesrv, send_timeout_ms=15_000)
        async with Client(config=config) as mq:
            return [(await mq.send("copied", b"%d" % k)).status for k in range(count)]

    return asyncio.run(work())


def change(server: Server, **settings: str) -> None:
    """UPDATE_BROKER_CONFIG."""
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    answer = peers.call(server.address, 25, body=text.encode())
    assert answer is not None and answer[0]["code"] == 0, answer


def ha_status(server: Server) -> dict[str, object]:
    """GET_BROKER_HA_STATUS."""
    answer = peers.call(server.address, 907)
    assert answer is not None and answer[0]["code"] == 0, answer
    found: dict[str, object] = json.loads(answer[1])
    return found


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[list[Server]]:
    """Servers that end with the test, youngest first."""
    peers.require_java()
    started: list[Server] = []
    yield started
    for server in reversed(started):
        if server.process.popen.poll() is None:
            server.discard()


@pytest.mark.parametrize("flavours", ["apache-roquette", "roquette-apache"])
def test_a_mixed_pair(ward: list[Server], tmp_path: Path, flavours: str) -> None:
    masters, slaves = flavours.split("-")
    namesrv = peers.start_namesrv(masters, tmp_path / "namesrv")
    ward.append(namesrv)
    master = peers.start_broker(masters, tmp_path / "master", namesrv.address, settings=SYNC)
    ward.append(master)
    if slaves == "roquette":  # it comes late, and empty
        assert fill(namesrv.address, 50) == ["SEND_OK"]
    began = time.monotonic()
    slave = peers.start_broker(slaves, tmp_path / "slave", namesrv.address, settings=SLAVE)
    ward.append(slave)
    if slaves == "apache":  # an empty one of Apache's gets the log's last file only
        until(lambda: ha_status(master)["haConnectionInfo"], slave)
        assert fill(namesrv.address, 50) == ["SEND_OK"]

    end = wait_equal(master, slave)
    print(flavours, end, "bytes after", round(time.monotonic() - began, 1), "s")
    assert end > 50 << 20
    change(master, inSyncReplicas="2")
    assert set(send(namesrv.address, 50)) == {"SEND_OK"}
    status = ha_status(master)
    assert status["master"] is True and status["inSyncSlaveNums"] == 1
    assert ha_status(slave)["master"] is False
    end = wait_equal(master, slave)
    compare(tmp_path / "master", tmp_path / "slave", end)

    slave.process.kill()
    assert send(namesrv.address, 1) == ["FLUSH_SLAVE_TIMEOUT"]


# The protocol with epochs. Apache's broker speaks it in controller mode; what it asks its controller a few lines answer,
# and our side is a broker in a thread of the test.


class Controller(socketserver.ThreadingTCPServer):
    """Answers as Apache's controller does: the next broker id, and who is master of which epoch (0: whoever asks)."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, broker_id: int, master: int = 0, address: str = "", epoch: int = 1) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.broker_id, self.master, self.master_address, self.epoch = (
            broker_id,
            master,
            address,
            epoch,
        )
        self.address = f"127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def answer(self, code: int, fields: dict[str, str]) -> tuple[dict[str, str], object]:
        """Header fields and body."""
        if code == 1005:
            told = {"group": "c", "controllerLeaderId": "n0", "isLeader": "true"}
            return told | {"controllerLeaderAddress": self.address, "peers": ""}, None
        if code in {1012, 1013}:
            return {"nextBrokerId": str(self.broker_id), "clusterName": "DefaultCluster"}, None
        if code == 1003 and not self.master:
            self.master_address = fields["brokerAddress"]
            return {}, {"syncStateSet": [], "syncStateSetEpoch": 0}
        if code == 1002:
            self.master = self.master or int(fields["brokerId"])
        members = {"syncStateSet": [self.master], "syncStateSetEpoch": 1}
        told = {"masterBrokerId": str(self.master), "masterAddress": self.master_address}
        told |= {"masterEpoch": str(self.epoch), "syncStateSetEpoch": "1"}
        return told, members


class Requests(socketserver.StreamRequestHandler):
    """One connection to it."""

    def handle(self) -> None:
        """Frames with JSON headers."""
        assert isinstance(self.server, Controller)
        while len(head := self.rfile.read(8)) == 8:
            size, length = struct.unpack(">ii", head)
            asked = json.loads(self.rfile.read(length & 0xFFFFFF))
            self.rfile.read(size - 4 - (length & 0xFFFFFF))
            fields, body = self.server.answer(asked["code"], asked.get("extFields") or {})
            reply = {"code": 0, "flag": 1, "language": "JAVA", "version": 493, "extFields": fields}
            reply |= {"opaque": asked["opaque"], "serializeTypeCurrentRPC": "JSON"}
            text, data = (
                json.dumps(reply).encode(),
                b"" if body is None else json.dumps(body).encode(),
            )
            frame = struct.pack(">ii", 4 + len(text) + len(data), len(text)) + text + data
            with contextlib.suppress(OSError):
                self.wfile.write(frame)


class Followed:
    """Our replica's source: the member it is, and what it heard."""

    retry_s = 0.2

    master: MasterSource

    def __init__(self, member: int) -> None:
        self.member: int | None = member
        self.epochs: list[tuple[int, int]] = []
        self.answer: Welcome | None = None
        self.confirm = 0

    @property
    def address(self) -> str:
        return self.master.ha_address

    async def prepare(self) -> bool:
        return True

    def welcomed(self, answer: Welcome) -> bool:
        self.answer = answer
        return True

    def epoch_begins(self, epoch: int, start: int) -> None:
        self.epochs.append((epoch, start))

    def confirmed(self, offset: int) -> None:
        self.confirm = offset

    def heard(self) -> None:
        pass

    def behind(self, begin: int) -> None:
        raise AssertionError(begin)


class InEpochs(ClassicQuorum):
    """Our master's: as many epochs as the test says."""

    epochs: tuple[tuple[int, int], ...] = ((1, 0),)

    @property
    def marks(self) -> Epochs:
        return self.epochs


class Ours:
    """A broker of ours in a thread."""

    def __init__(self, folder: Path, namesrv: str, features: Features, **settings: Any) -> None:
        port = peers.free_port()
        values: dict[str, Any] = {
            "broker_name": "broker-a",
            "bind_address": "127.0.0.1",
            "listen_port": port,
            "namesrv_addr": namesrv,
        }
        store = StoreConfig(
            root_dir=str(folder),
            segment_size=16 << 20,
            max_hash_slots=50_000,
            max_index_entries=200_000,
        )
        self.thread = LoopThread("ours")
        self.thread.start()
        config = BrokerConfig(**values | settings)
        world = {"files": OsFiles(), "clock": SystemClock(), "entropy": Entropy()}
        self.broker = Broker(config, store, features, **world)  # type: ignore[arg-type]
        self.thread.call(self.broker.start())
        self.address = f"127.0.0.1:{port}"

    def stop(self) -> None:
        self.thread.call(self.broker.stop())
        self.thread.stop()


def controlled(controller: Controller) -> dict[str, str]:
    """Settings of Apache's broker in controller mode."""
    return {
        "enableControllerMode": "true",
        "controllerAddr": controller.address,
        "brokerId": "-1",
        "allAckInSyncStateSet": "false",
    }


def end_of(one: Ours) -> int:
    return one.broker.store.max_physical_offset


def test_a_replica_of_ours_follows_a_master_of_apaches_controller_mode(
    ward: list[Server], tmp_path: Path
) -> None:
    namesrv = peers.start_namesrv("roquette", tmp_path / "namesrv")
    ward.append(namesrv)
    with Controller(broker_id=1) as controller:
        master = peers.start_broker(
            "apache", tmp_path / "master", namesrv.address, settings=controlled(controller)
        )
        ward.append(master)
        assert fill(namesrv.address, 50) == ["SEND_OK"]
        sources: list[Followed] = []

        def features(core: BrokerCore) -> list[Feature]:
            sources.append(Followed(2))
            made = replica_features(core, followed=sources[0])
            (cluster,) = [one for one in made if isinstance(one, ClusterFeature)]
            sources[0].master = cluster.registration
            return made

        ours = Ours(tmp_path / "slave", namesrv.address, features, broker_id=2, broker_role="SLAVE")
        try:
            until(lambda: end_of(ours) == log_range(master)[1], master)
            assert send(namesrv.address, 20) == ["SEND_OK"] * 20
            until(lambda: end_of(ours) == log_range(master)[1], master)
            until(lambda: sources[0].confirm == end_of(ours), master)
            end = end_of(ours)
        finally:
            ours.stop()
        assert sources[0].answer is not None
        assert sources[0].epochs == list(sources[0].answer.epochs)
        compare(tmp_path / "master", tmp_path / "slave", end)
        controller.shutdown()


def test_a_replica_of_apaches_controller_mode_follows_a_master_of_ours(
    ward: list[Server], tmp_path: Path
) -> None:
    namesrv = peers.start_namesrv("roquette", tmp_path / "namesrv")
    ward.append(namesrv)
    quorums: list[InEpochs] = []

    def features(core: BrokerCore) -> list[Feature]:
        quorums.append(InEpochs(core))
        made = [one for one in broker_features(core) if not isinstance(one, MasterReplication)]
        return [*made, MasterReplication(core, quorums[0])]

    ours = Ours(tmp_path / "master", namesrv.address, features)
    try:
        assert fill(namesrv.address, 20) == ["SEND_OK"]
        quorums[0].epochs = ((1, 0), (3, end_of(ours)))
        assert fill(namesrv.address, 30) == ["SEND_OK"]
        with Controller(broker_id=2, master=1, address=ours.address, epoch=3) as controller:
            slave = peers.start_broker(
                "apache", tmp_path / "slave", namesrv.address, settings=controlled(controller)
            )
            ward.append(slave)
            until(lambda: end_of(ours) == log_range(slave)[1], slave)
            assert send(namesrv.address, 20) == ["SEND_OK"] * 20
            until(lambda: end_of(ours) == log_range(slave)[1], slave)
            end = end_of(ours)
            controller.shutdown()
        written = (tmp_path / "slave" / "store" / "epochFileCheckpoint").read_text().split()
        assert written[-2:] == [f"{epoch}-{start}" for epoch, start in quorums[0].epochs]
    finally:
        ours.stop()
    compare(tmp_path / "master", tmp_path / "slave", end)
