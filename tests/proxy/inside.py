"""Consumers' parts of the proxy over a real broker in virtual time, without a session: calls go in as messages."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from tests.broker.conftest import Case

from roquette.proxy.backend import Backend, TopicFacts
from roquette.proxy.receipts import Receipts
from roquette.proxy.receiving import Receiving
from roquette.proxy.renewals import Renewals
from roquette.proxy.routes import Routes
from roquette.proxy.service import SERVICE, Asks, Caller, Proxy, RpcCall, Then
from roquette.proxy.settings import ProxySettings
from roquette.remoting.request import Peer, RequestContext
from roquette.remoting.transport import InnerWire
from roquette.wire.bodies.route import BrokerData, QueueData, TopicRouteData
from roquette.wire.bodies.tables import SubscriptionGroupConfig
from roquette.wire.command import Command
from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s


class NoTransport(asyncio.Transport):
    """A peer's transport that nothing is written to."""

    backlog = 0

    def get_write_buffer_size(self) -> int:
        return self.backlog


class InsideAsk:
    def __init__(self, backend: "InsideBackend", asks: Asks, number: int, job: Any) -> None:
        self.backend, self.asks, self.number, self.job = backend, asks, number, job

    def cancel(self) -> None:
        if self.asks.drop(self.number) and self.job is not None:
            self.backend.dispatcher.cancel(self.job)


class InsideBackend:
    """The dispatcher of the broker, as LOCAL has it."""

    in_process = True

    def __init__(self, case: Case) -> None:
        self.core = case.broker.core
        self.dispatcher = case.broker._listeners._main
        self.asked: list[int] = []
        self.refuse: dict[int, int] = {}  # request code -> how it is answered
        self.own = self.caller("own")

    def caller(self, client_id: str) -> Caller:
        asks = Asks()
        wire = InnerWire(asks.answered, lambda *asked: None, list)
        peer = Peer(self.dispatcher, NoTransport(), -1, b"\x0a\0\0\x01\0\0\0\1", "10.0.0.1:1", wire)
        made = Caller(peer, client_id, asks)
        made.version = "5.0.7"
        return made

    def ask(
        self, caller: Caller, broker: str, code: int, header: Any, body: bytes, then: Then,
        timeout_ms: int = 3000,
    ) -> InsideAsk:  # fmt: skip
        assert broker == self.core.live.current.broker_name
        self.asked.append(int(code))
        number = caller.asks.add(then)
        if code in self.refuse:
            caller.asks.answered(number, self.refuse[code], "refused", b"", b"")
            return InsideAsk(self, caller.asks, number, None)
        job: RequestContext | None = self.dispatcher.submit(
            caller.peer, Command(code=code, opaque=number, body=body), header, None
        )
        self.last = InsideAsk(self, caller.asks, number, job)
        return self.last

    def topic(self, caller: Caller, name: str, then: Callable[[TopicFacts | None], None]) -> None:
        found = self.core.tables.topics.find(name)
        if found is None:
            then(None)
            return
        queues = QueueData(
            self.core.live.current.broker_name, found.read_queues, found.write_queues, found.perm
        )
        brokers = BrokerData("c", self.core.live.current.broker_name, {0: "10.0.0.1:10911"})
        then(TopicFacts(name, "NORMAL", TopicRouteData([queues], [brokers])))

    def route(
        self,
        caller: Caller,
        name: str,
        used: d.Endpoints,
        then: Callable[[TopicFacts | None], None],
    ) -> None:
        self.topic(caller, name, then)

    def endpoints(
        self, caller: Caller, broker: BrokerData, number: int, used: d.Endpoints
    ) -> d.Endpoints:
        return used

    def group(
        self, caller: Caller, name: str, then: Callable[[SubscriptionGroupConfig | None], None]
    ) -> None:
        then(self.core.tables.groups.known(name))


class Reply:
    """What one call was answered."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.done = asyncio.Event()
        self.call: RpcCall | None = None

    def respond(self, stream_id: int, message: bytes) -> None:
        self.messages.append(message)
        self.done.set()

    def send(self, stream_id: int, messages: list[bytes]) -> None:
        self.messages += messages

    def finish(self, stream_id: int, status: int, text: str) -> None:
        self.done.set()


class Consumers:
    """A proxy with the parts of consumers."""

    def __init__(self, case: Case, **settings: Any) -> None:
        self.case = case
        self.backend = InsideBackend(case)
        backend, clock = cast(Backend, self.backend), case.clock
        self.renewals = Renewals(backend, clock)
        chosen = ProxySettings(**settings)
        self.receiving = Receiving(backend, chosen, clock, self.renewals)
        receipts = Receipts(backend, chosen, self.renewals)
        self.proxy = Proxy([Routes(backend), self.receiving, receipts, self.renewals], clock)
        self.caller = self.backend.caller("client")

    def start(
        self, rpc: str, request: Any, *, deadline_ms: int | None = 60_000, caller: Caller | None = None
    ) -> Reply:  # fmt: skip
        reply = Reply()
        call = RpcCall(caller or self.caller, self.proxy.rpcs[SERVICE + rpc], cast(Any, reply), 1)
        call.arrived_ms, call.now_ms = self.case.clock.steady_ms(), self.case.clock.now_ms()
        if deadline_ms is not None:
            call.deadline_ms = call.arrived_ms + deadline_ms
        reply.call = call
        self.proxy.begin(call, request.SerializeToString())
        return reply

    async def unary(self, rpc: str, request: Any) -> Any:
        reply = self.start(rpc, request)
        await reply.done.wait()
        return getattr(s, f"{rpc}Response").FromString(reply.messages[0])

    async def receive(self, *, deadline_ms: int | None = 60_000, **more: Any) -> "Received":
        reply = self.start("ReceiveMessage", receive(**more), deadline_ms=deadline_ms)
        return await received(reply)

    async def ack(self, *messages: d.Message, topic: str = "T", group: str = "g") -> Any:
        entries = [
            s.AckMessageEntry(
                message_id=one.system_properties.message_id,
                receipt_handle=one.system_properties.receipt_handle,
            )
            for one in messages
        ]
        names = {"topic": {"name": topic}, "group": {"name": group}}
        return await self.unary("AckMessage", s.AckMessageRequest(**names, entries=entries))

    async def change(self, handle: str, ms: int, **more: Any) -> Any:
        request = s.ChangeInvisibleDurationRequest(
            group={"name": "g"}, topic={"name": "T"}, receipt_handle=handle, **more
        )
        request.invisible_duration.FromMilliseconds(ms)
        return await self.unary("ChangeInvisibleDuration", request)


class Received:
    """A ReceiveMessage answered: status, messages, and that the time of delivery came last."""

    def __init__(self, messages: list[bytes]) -> None:
        parts = [s.ReceiveMessageResponse.FromString(one) for one in messages]
        assert parts[0].HasField("status")
        assert parts[-1].HasField("delivery_timestamp")
        assert all(part.HasField("message") for part in parts[1:-1])
        self.code = d.Code.Name(parts[0].status.code)
        self.text = parts[0].status.message
        self.messages = [part.message for part in parts[1:-1]]
        self.bodies = [message.body for message in self.messages]


async def received(reply: Reply) -> Received:
    await reply.done.wait()
    return Received(reply.messages)


def receive(
    topic: str = "T",
    *,
    group: str = "g",
    batch: int = 32,
    invisible_ms: int = 10_000,
    polling_ms: int | None = 5_000,
    tag: str = "*",
    sql: str | None = None,
    renews: bool = False,
    attempt: str | None = None,
    broker: str = "broker-a",
) -> s.ReceiveMessageRequest:
    request = s.ReceiveMessageRequest(
        group={"name": group},
        message_queue={"topic": {"name": topic}, "id": 0, "broker": {"name": broker}},
        batch_size=batch,
        auto_renew=renews,
        attempt_id=attempt,
    )
    request.filter_expression.type = d.FilterType.TAG if sql is None else d.FilterType.SQL
    request.filter_expression.expression = tag if sql is None else sql
    if invisible_ms:
        request.invisible_duration.FromMilliseconds(invisible_ms)
    if polling_ms is not None:
        request.long_polling_timeout.FromMilliseconds(polling_ms)
    return request
