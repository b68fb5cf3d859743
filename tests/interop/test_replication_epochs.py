"""Apache's controller mode with ours: the replication protocol with epochs, both directions.

What Apache's broker asks its controller a few lines answer, and our side is a broker in a thread of the test.
"""

import contextlib
import json
import socketserver
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.interop import peers
from tests.interop.copied_logs import compare, fill, log_range, send, until
from tests.interop.peers import Server

from roquette.apps.features import broker_features, replica_features
from roquette.base.clock import SystemClock
from roquette.base.entropy import Entropy
from roquette.base.executor import LoopThread
from roquette.base.files import OsFiles
from roquette.broker.cluster.feature import ClusterFeature
from roquette.broker.floor.config import BrokerConfig
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Copied, Feature, MasterSource
from roquette.broker.replication.master import ClassicQuorum, MasterReplication
from roquette.broker.service import Broker, Features
from roquette.store.format.config import StoreConfig
from roquette.wire.ha import Epochs, Welcome

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


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
    lacks_tables: Callable[[], bool]

    def __init__(self, member: int) -> None:
        self.member: int | None = member
        self.epochs: list[tuple[int, int]] = []
        self.answer: Welcome | None = None
        self.confirm = 0

    @property
    def address(self) -> str:
        return self.master.ha_address

    @property
    def copied(self) -> Copied:
        return Copied(self.master.master_address)

    async def prepare(self) -> bool:
        return True

    def welcomed(self, answer: Welcome) -> bool:
        self.answer = answer
        return True

    def epoch_begins(self, epoch: int, start: int) -> None:
        self.epochs.append((epoch, start))

    def confirmed(self, offset: int) -> None:
        self.confirm = offset

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
    started: list[Server], tmp_path: Path
) -> None:
    namesrv = peers.start_namesrv("roquette", tmp_path / "namesrv")
    started.append(namesrv)
    with Controller(broker_id=1) as controller:
        master = peers.start_broker(
            "apache", tmp_path / "master", namesrv.address, settings=controlled(controller)
        )
        started.append(master)
        assert fill(namesrv.address, 50) == ["SEND_OK"]
        sources: list[Followed] = []

        def features(core: BrokerCore) -> list[Feature]:
            sources.append(Followed(2))
            made = replica_features(core, followed=sources[0])
            (cluster,) = [one for one in made if isinstance(one, ClusterFeature)]
            sources[0].master = cluster.registration
            sources[0].lacks_tables = lambda: False  # Apache's master gets one greeting
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
    started: list[Server], tmp_path: Path
) -> None:
    namesrv = peers.start_namesrv("roquette", tmp_path / "namesrv")
    started.append(namesrv)
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
            started.append(slave)
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
