"""A server with a few codes on the simulated network, and clients of it."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from roquette.base.clock import LoopClock
from roquette.base.lifecycle import Tasks
from roquette.errors import Refused
from roquette.remoting.client import RemotingClient
from roquette.remoting.dispatcher import Dispatcher, Hooks, LaneLimits
from roquette.remoting.request import Held, Later, Peer, Reply, RequestContext, Row, Silent, Task
from roquette.remoting.server import Server
from roquette.wire.command import Command
from roquette.wire.connection import WireConnection
from roquette.wire.headers import GetRouteInfoRequestHeader
from roquette_testing.sim_loop import SimLoop, run

HOST, PORT, ADDRESS = "10.0.0.1", 9000, "10.0.0.1:9000"
ECHO, REFUSE, CRASH, SILENT, TASK, LATER, HELD, SLOW, TOPIC, BIG, TASK_CRASH, HUNGRY, LARGE = range(
    1, 14
)


class Bench:
    """A server, what it saw, and how to call it."""

    echo, refuse, crash, silent, task, later = ECHO, REFUSE, CRASH, SILENT, TASK, LATER
    held, slow, topic, big, task_crash, hungry = HELD, SLOW, TOPIC, BIG, TASK_CRASH, HUNGRY
    large = LARGE
    host, port, address = HOST, PORT, ADDRESS

    def __init__(self, loop: SimLoop, **options: Any) -> None:
        self.loop = loop
        self.clock = LoopClock(loop)
        self.seen: list[bytes] = []
        self.lost: list[Peer] = []
        self.parked: list[tuple[RequestContext, Any]] = []
        self.made: list[bytes] = []  # of large answers, each for 1 s
        self.making = 0
        self.turns = 0
        self.unread: list[int] = []  # in each turn, why peers were not read
        self.reply_size = options.get("reply_size", 0)
        self.tasks = Tasks()
        lanes = options.get("lanes") or [LaneLimits("all", 100)]
        self.dispatcher = Dispatcher(
            self._rows(),
            lanes,
            self.clock,
            loop,
            self.tasks,
            Hooks(self._end_turn, self._park, options.get("guard")),
        )
        self.server = Server(
            self.dispatcher,
            self.clock,
            on_lost=self.lost.append,
            **{k: v for k, v in options.items() if k in ("idle_s", "bound")},
        )

    def _rows(self) -> list[Row]:
        lane = 0
        return [
            Row(ECHO, self._echo, None, lane),
            Row(REFUSE, self._refuse, None, lane),
            Row(CRASH, self._crash, None, lane),
            Row(SILENT, lambda c, h, b: Silent(), None, lane),
            Row(TASK, lambda c, h, b: Task(self._work(b)), None, lane),
            Row(LATER, lambda c, h, b: Later(7, Reply(body=b)), None, lane),
            Row(HELD, self._hold, None, lane),
            Row(SLOW, self._stall, None, lane),
            Row(TOPIC, lambda c, h, b: Reply(body=h.topic.encode()), GetRouteInfoRequestHeader, 0),
            Row(BIG, lambda c, h, b: Reply(body=[bytes(self.reply_size)] * 2), None, lane),
            Row(HUNGRY, self._eat, None, lane),
            Row(LARGE, lambda c, h, b: Task(self._make(b), large=True), None, lane),
            Row(TASK_CRASH, lambda c, h, b: Task(self._fail(b)), None, lane),
        ]

    def _echo(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        self.seen.append(body)
        return Reply(b'{"peer":"%s"}' % ctx.peer.remote.encode(), body)

    def _refuse(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        raise Refused(17, "no such thing")

    def _crash(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        raise ValueError("a bug")

    def _eat(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        raise MemoryError

    async def _work(self, body: bytes) -> Reply:
        await asyncio.sleep(1)
        return Reply(body=body)

    async def _make(self, body: bytes) -> Reply:
        assert not self.making, "one at a time"
        self.making += 1
        self.made.append(body)
        try:
            return await (self._fail(b"x") if body == b"refused" else self._work(body))
        finally:
            self.making -= 1

    async def _fail(self, body: bytes) -> Reply:
        await asyncio.sleep(1)
        if body:
            raise Refused(16, "not you")
        raise KeyError("a bug")

    def _hold(self, ctx: RequestContext, header: None, body: bytes) -> Reply | Held:
        if not ctx.may_hold:
            return Reply(body=b"after all")
        self.hold = SimpleNamespace(job=None)
        return Held(self.hold)

    def _stall(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        self.seen.append(body)
        self.loop.stall(0.3)
        return Reply(body=body)

    def _park(self, ctx: RequestContext, outcome: Any) -> None:
        self.parked.append((ctx, outcome))

    def _end_turn(self) -> None:
        self.turns += 1
        self.unread.append(sum(peer.unread for peer in self.server.peers.values()))

    async def start(self) -> int:
        return await self.server.start(HOST, PORT)

    def client(self, **options: Any) -> RemotingClient:
        return RemotingClient(self.clock, **{"local_host": "10.0.0.2"} | options)

    async def raw(self) -> "Raw":
        return Raw(*await asyncio.open_connection(HOST, PORT))


class Raw:
    """A peer that speaks frames by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.wire = reader, writer, WireConnection()
        self.unread: list[Command] = []

    def send(self, code: int, body: bytes = b"", ext: bytes = b"", oneway: bool = False) -> int:
        opaque = self.wire.send_request(code, ext, body, oneway)
        self.writer.write(b"".join(self.wire.data_to_send()))
        return opaque

    async def receive(self) -> Command:
        while not self.unread:
            data = await self.reader.read(65_536)
            if not data:
                raise EOFError
            self.unread += self.wire.receive_data(data)
        return self.unread.pop(0)


@pytest.fixture
def bench() -> Callable[..., SimLoop]:
    """`bench(scenario, **options)`: run a scenario with a started server."""

    def start(scenario: Callable[[Bench], Any], seed: int = 1, **options: Any) -> SimLoop:
        async def main(loop: SimLoop) -> None:
            case = Bench(loop, **options)
            await case.start()
            await scenario(case)
            await case.server.stop()
            await case.tasks.stop()

        return run(main, seed)

    return start
