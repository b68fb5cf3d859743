"""A proxy with three rpcs, one of each kind, for tests of sessions."""

import asyncio
from collections.abc import Iterable
from typing import Any

from roquette.base.clock import Clock
from roquette.base.lifecycle import Tasks
from roquette.proxy.service import BrokerAnswer, Part, Proxy, Rpc, RpcCall
from roquette.proxy.sessions import Sessions
from roquette.proxy.settings import ProxySettings
from roquette.proxy.statuses import RpcError
from roquette.remoting.dispatcher import Dispatcher, LaneLimits
from roquette.remoting.http_pages import HttpPages
from roquette.remoting.request import Peer, Reply, Row
from roquette.wire.command import Command
from roquette.wire.http2 import Http2Limits
from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s

Code = d.Code
ECHO = 7


class Toy(Part):
    """SendMessage answers at once by its topic's name, ReceiveMessage waits for `release`, Telemetry echoes."""

    dispatcher: Dispatcher

    def __init__(self) -> None:
        self.held: list[RpcCall] = []
        self.ended: list[str] = []
        self.cancelled = 0
        self.served = 0
        self.lost: list[Peer] = []
        self.calls: list[RpcCall] = []
        self.stopped = False

    def rpcs(self) -> Iterable[Rpc[Any]]:
        return (
            Rpc("SendMessage", s.SendMessageRequest, s.SendMessageResponse, self.send),
            Rpc(
                "ReceiveMessage",
                s.ReceiveMessageRequest,
                s.ReceiveMessageResponse,
                self.receive,
                streams=True,
            ),
            Rpc(
                "Telemetry",
                s.TelemetryCommand,
                s.TelemetryCommand,
                self.talk,
                streams=True,
                listens=True,
            ),
        )

    def send(self, call: RpcCall, request: Any) -> None:
        self.served += 1
        self.calls = [call]
        if not request.messages:
            raise RpcError(Code.MESSAGE_CORRUPTED, "no message")
        name = request.messages[0].topic.name
        if name == "crash":
            raise ValueError("a defect")
        if name == "refuse":
            raise RpcError(Code.TOPIC_NOT_FOUND, "no such topic")
        if name == "ask":
            self.ask(call, request.messages[0].body)
            return
        if name == "hold":
            self.hold(call)
            return
        body = request.messages[0].body
        reply = s.SendMessageResponse()
        reply.status.code = Code.OK
        reply.status.message = name
        entry = reply.entries.add()
        entry.offset = len(body)
        entry.message_id = name
        if name.startswith("big") and name[3:].isdecimal():
            reply.status.message = "x" * int(name[3:])
        call.reply(reply)

    def ask(self, call: RpcCall, body: bytes) -> None:
        """Answer with what the dispatcher's echo says."""

        def then(answer: BrokerAnswer) -> None:
            call.refuse(Code.OK, f"{answer.code} {len(answer.body)}")

        caller = call.caller
        opaque = caller.asks.add(then)
        command = Command(code=ECHO, opaque=opaque, body=body)
        self.dispatcher.submit(caller.peer, command, None, None)

    def asked(self, peer: Peer | None, code: int, ext: bytes, body: bytes, answer: Any) -> bool:
        if code == 1:
            answer(BrokerAnswer(0, "", b"", body[::-1]))
        return code == 1

    def hold(self, call: RpcCall) -> None:
        self.held.append(call)

        def forget() -> None:
            self.cancelled += 1
            self.held.remove(call)

        call.on_cancel = forget

    def receive(self, call: RpcCall, request: Any) -> None:
        self.served += 1
        self.calls = [call]
        if 0 < request.batch_size < 10_000:
            status = s.ReceiveMessageResponse()
            status.status.code = Code.OK
            call.send(status)
            for _ in range(request.batch_size):
                message = s.ReceiveMessageResponse()
                message.message.body = b"m" * 100
                call.send(message)
            call.finish()
        else:
            self.hold(call)

    def talk(self, call: RpcCall, command: Any) -> None:
        self.served += 1
        if not command.HasField("settings"):
            raise RpcError(Code.BAD_REQUEST, "settings come first", grpc=3)
        self.hold(call)
        call.on_message = call.send
        call.on_end = lambda: (self.ended.append("end"), self.held.remove(call), call.finish())
        call.send(command)

    def release(self) -> None:
        """Answer what is held."""
        held, self.held = self.held, []
        for call in held:
            if call.rpc.listens:
                self.held.append(call)
            elif call.rpc.streams:
                answer = s.ReceiveMessageResponse()
                answer.status.code = Code.MESSAGE_NOT_FOUND
                call.send(answer)
                call.finish()
            else:
                call.refuse(Code.INTERNAL_ERROR, "released")

    def connection_lost(self, peer: Peer) -> None:
        self.lost.append(peer)

    def stop(self) -> None:
        self.stopped = True
        self.release()


class World:
    """Sessions over a dispatcher without rows, in front of a `Toy`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        *,
        limits: Http2Limits | None = None,
        who: Any = None,
        settings: ProxySettings | None = None,
    ) -> None:
        self.toy = Toy()
        self.peers: dict[int, Peer] = {}
        echo = Row(ECHO, lambda ctx, header, body: Reply(body=body), None, 0)
        self.dispatcher = Dispatcher([echo], [LaneLimits("all", 1_000)], clock, loop, Tasks())
        self.toy.dispatcher = self.dispatcher
        self.proxy = Proxy([self.toy], clock)
        self.sessions = Sessions(
            self.dispatcher, self.proxy, settings or ProxySettings(), clock, who
        )
        self.sessions.limits = limits or self.sessions.limits
        self.pages: HttpPages | None = None
        self._next = 0

    def accept(self) -> Any:
        self._next += 1
        return self.sessions.open(self._next, self._made, self._lost, self.pages)

    def _made(self, peer: Peer) -> None:
        self.peers[peer.id] = peer

    def _lost(self, peer: Peer, error: Exception | None) -> None:
        self.peers.pop(peer.id)
