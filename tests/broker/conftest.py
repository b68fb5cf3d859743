"""A whole broker on the simulated loop, and a raw client that speaks frames to it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from roquette.apps.features import broker_features
from roquette.base.clock import LoopClock
from roquette.base.entropy import Entropy
from roquette.base.files import OsFiles
from roquette.broker.floor.config import BrokerConfig
from roquette.broker.service import Broker, Features
from roquette.message.properties import encode_properties
from roquette.remoting.settings import UNPROTECTED, Protection
from roquette.store.format.config import StoreConfig
from roquette.wire.command import Command
from roquette.wire.connection import WireConnection
from roquette.wire.header_codec import encode_dict, ext_dict
from roquette_testing.sim_loop import SimLoop, run

HOST = "10.0.0.1"
PORT = 10911


class RawClient:
    """One connection, frames in and out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.wire = WireConnection()
        self.unread: list[Command] = []

    def send(
        self, code: int, ext: dict[str, Any], body: bytes = b"", *, oneway: bool = False
    ) -> int:
        opaque = self.wire.send_request(
            code, encode_dict({k: str(v) for k, v in ext.items()}), body, oneway
        )
        self.writer.write(b"".join(self.wire.data_to_send()))
        return opaque

    async def receive(self) -> Command:
        while not self.unread:
            data = await self.reader.read(65536)
            assert data, "the connection was closed"
            self.unread += self.wire.receive_data(data)
        return self.unread.pop(0)

    async def call(self, code: int, ext: dict[str, Any], body: bytes = b"") -> Command:
        opaque = self.send(code, ext, body)
        while True:
            reply = await self.receive()
            if reply.opaque == opaque and reply.is_response:
                return reply

    async def produce(self, topic: str = "T", body: bytes = b"hello", **changes: Any) -> Command:
        return await self.call(310, send_ext(topic, **changes), body)

    async def pull(
        self, topic: str = "T", queue_id: int = 0, offset: int = 0, **more: Any
    ) -> Command:
        return await self.call(11, pull_ext(topic, queue_id, offset, **more))


def send_ext(
    topic: str = "T", *, properties: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    """The V2 send header; keyword arguments replace its letters."""
    named = {"UNIQ_KEY": "0A0000010001", "WAIT": "true"} if properties is None else properties
    base = {
        "a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1_700_000_000_000,
        "h": 0, "i": encode_properties(named), "j": 0, "k": "false", "m": "false",
    }  # fmt: skip
    return base | more


def pull_ext(topic: str = "T", queue_id: int = 0, offset: int = 0, **more: Any) -> dict[str, Any]:
    """A pull that brings its subscription; keyword arguments replace fields."""
    base = {
        "consumerGroup": "g", "topic": topic, "queueId": queue_id, "queueOffset": offset,
        "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 15000,
        "subscription": "*", "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip
    return base | more


class Case:
    """What a scenario works with."""

    def __init__(self, loop: SimLoop, broker: Broker, clock: LoopClock) -> None:
        self.loop, self.broker, self.clock = loop, broker, clock

    async def client(self, port: int = PORT) -> RawClient:
        return RawClient(*await asyncio.open_connection(HOST, port))

    ext = staticmethod(lambda command: ext_dict(command.ext))
    send_ext = staticmethod(send_ext)
    pull_ext = staticmethod(pull_ext)


@pytest.fixture
def run_broker(tmp_path: Path) -> Callable[..., SimLoop]:
    """`run_broker(scenario, broker={...}, store={...})`: a scenario against a broker, in virtual time."""

    def start(
        scenario: Callable[[Case], Awaitable[None]],
        *,
        broker: dict[str, Any] | None = None,
        store: dict[str, Any] | None = None,
        files: Any = None,
        features: Features = broker_features,
        seed: int = 1,
        protection: Protection = UNPROTECTED,
    ) -> SimLoop:
        async def main(loop: SimLoop) -> None:
            clock = LoopClock(loop)
            settings = {
                "broker_name": "broker-a", "bind_address": HOST, "listen_port": PORT,
            } | (broker or {})  # fmt: skip
            sizes = {
                "root_dir": str(tmp_path / "store"), "segment_size": 1 << 20,
                "queue_file_size": 20 * 1000, "max_hash_slots": 100, "max_index_entries": 1000,
                "timer_log_file_size": 1 << 16,
            } | (store or {})  # fmt: skip
            service = Broker(
                BrokerConfig(**settings),
                StoreConfig(**sizes),
                features,
                files=files or OsFiles(),
                clock=clock,
                entropy=Entropy(seed, process_id=7),
            )
            service.protection = protection
            await service.start()
            try:
                await scenario(Case(loop, service, clock))
            finally:
                await service.stop()

        return run(main, seed)

    return start


@pytest.fixture
def raw_client() -> Callable[[str, int], Awaitable[RawClient]]:
    """`await raw_client(host, port)`: a connection to any server of the simulation."""

    async def connect(host: str, port: int) -> RawClient:
        return RawClient(*await asyncio.open_connection(host, port))

    return connect
