"""The whole proxy over a backend that notes what it is asked, with as many clients and connections as a test wants."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from roquette.base.entropy import Entropy
from roquette.proxy.backend import Backend
from roquette.proxy.clients import Clients
from roquette.proxy.parts import make_proxy
from roquette.proxy.service import SERVICE, Asks, BrokerAnswer, Caller, RpcCall
from roquette.proxy.settings import ProxySettings
from roquette.proxy.telemetry import Commands, Telemetry
from roquette.remoting.request import Peer
from roquette.wire.bodies.clients import HeartbeatData
from roquette.wire.bodies.tables import SubscriptionGroupConfig
from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s
from roquette_testing.embedded import ManualClock


class FakeBackend:
    """`groups` there are; `said` is what it was told of clients: the first word is what happened."""

    in_process = False

    def __init__(self) -> None:
        self.groups: dict[str, SubscriptionGroupConfig] = {}
        self.said: list[tuple[Any, ...]] = []
        self.beats: list[HeartbeatData] = []
        self.later: list[Callable[[], None]] | None = None

    def group(
        self, caller: Caller, name: str, then: Callable[[SubscriptionGroupConfig | None], None]
    ) -> None:
        if self.later is None:
            then(self.groups.get(name))
        else:
            self.later.append(lambda: then(self.groups.get(name)))

    def register(self, caller: Caller, heartbeat: HeartbeatData) -> None:
        self.beats.append(heartbeat)
        names = [one.group_name for one in heartbeat.producer_data_set]
        names += [one.group_name for one in heartbeat.consumer_data_set]
        self.said.append(("in", caller.peer.id, heartbeat.client_id, *names))

    def unregister(self, caller: Caller, client_id: str, group: str, *, producer: bool) -> None:
        self.said.append(("out", caller.peer.id, client_id, group))

    def take(self) -> list[tuple[Any, ...]]:
        """What was said since."""
        said, self.said = self.said, []
        return said


class FakeStream:
    """Where calls reply; `replies` by stream, and how each ended: (status, text)."""

    def __init__(self) -> None:
        self.replies: dict[int, list[bytes]] = {}
        self.ends: dict[int, tuple[int, str]] = {}

    def respond(self, stream_id: int, message: bytes) -> None:
        self.send(stream_id, [message])
        self.finish(stream_id, 0, "")

    def send(self, stream_id: int, messages: list[bytes]) -> None:
        assert stream_id not in self.ends
        self.replies.setdefault(stream_id, []).extend(messages)

    def finish(self, stream_id: int, status: int, text: str) -> None:
        assert stream_id not in self.ends
        self.ends[stream_id] = status, text


class Talk:
    """A Telemetry stream of a client."""

    def __init__(self, world: "World", call: RpcCall) -> None:
        self.world = world
        self.call = call

    def say(self, command: Any) -> None:
        """A further message."""
        if isinstance(command, d.Settings):
            command = s.TelemetryCommand(settings=command)
        self.world.proxy.go_on(self.call, command.SerializeToString())

    def heard(self) -> list[s.TelemetryCommand]:
        """What came since."""
        found = self.world.stream.replies.pop(self.call.stream_id, [])
        return [s.TelemetryCommand.FromString(one) for one in found]

    @property
    def end(self) -> tuple[int, str] | None:
        """How it ended."""
        return self.world.stream.ends.get(self.call.stream_id)


class World:
    """A proxy."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.backend = FakeBackend()
        self.stream = FakeStream()
        backend = cast(Backend, self.backend)
        entropy = Entropy(seed=1)
        self.proxy = make_proxy(backend, ProxySettings(**settings), self.clock, entropy)
        self.clients = self.part(Clients)
        self.commands = self.part(Commands)
        self.telemetry = self.part(Telemetry)
        self._streams = 0

    def part(self, kind: type[Any]) -> Any:
        """The part of a kind."""
        return next(part for part in self.proxy.parts if isinstance(part, kind))

    def peer(self, number: int) -> Peer:
        """A connection."""
        turns, transport = cast(Any, None), asyncio.Transport()
        return Peer(turns, transport, number, bytes(8), f"10.0.0.{number}:1")

    def caller(self, client_id: str, peer: Peer) -> Caller:
        """A client on it."""
        return Caller(peer, client_id, Asks())

    def begin(self, caller: Caller, rpc: str, request: Any) -> RpcCall:
        """Begin a call."""
        self._streams += 1
        call = RpcCall(
            caller, self.proxy.rpcs[SERVICE + rpc], cast(Any, self.stream), self._streams
        )
        call.now_ms, call.arrived_ms = self.clock.now_ms(), self.clock.steady_ms()
        self.proxy.begin(call, request.SerializeToString())
        return call

    def call(self, caller: Caller, rpc: str, request: Any) -> Any:
        """The one reply to a call, decoded."""
        call = self.begin(caller, rpc, request)
        (reply,) = self.stream.replies.pop(call.stream_id)
        return getattr(s, f"{rpc}Response").FromString(reply)

    def tell(self, caller: Caller, command: Any) -> Talk:
        """Open a Telemetry stream."""
        if isinstance(command, d.Settings):
            command = s.TelemetryCommand(settings=command)
        return Talk(self, self.begin(caller, "Telemetry", command))

    def ask(
        self, peer: Peer | None, code: int, ext: bytes, body: bytes = b""
    ) -> list[BrokerAnswer]:
        """A broker asks; the list gets the answer."""
        answers: list[BrokerAnswer] = []
        if not self.proxy.asked(peer, code, ext, body, answers.append):
            answers.append(BrokerAnswer(3, "", b"", b""))
        return answers

    def lose(self, peer: Peer, *talks: Talk) -> None:
        """A connection is lost, with its streams."""
        for talk in talks:
            talk.call.cancelled()
        peer.closed = True
        self.proxy.connection_lost(peer)

    def pass_time(self, seconds: int) -> None:
        """Time passes, and all beats beat."""
        self.clock.advance(seconds * 1000)
        for part in self.proxy.parts:
            for beat in part.beats():
                beat.step()
