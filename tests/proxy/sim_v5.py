"""A client of the v5 protocol on asyncio, over `h2`: it works in virtual time. Requests are those of v5_client.py."""

import asyncio
from collections.abc import Iterable
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
from tests.proxy.v5_client import (
    SERVICE,
    Code,
    Failed,
    ack_request,
    check,
    consumer,
    endpoints_of,
    producer,
    receive_request,
    received,
    send_request,
)

from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s


class Gone(Exception):
    """The connection, or the call, has ended without an answer."""


class _Call:
    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.data = bytearray()
        self.parts: asyncio.Queue[Any] = asyncio.Queue()
        self.status = ""
        self.text = ""

    def take(self, data: bytes) -> None:
        self.data += data
        while len(self.data) >= 5:
            size = int.from_bytes(self.data[1:5], "big")
            if len(self.data) < 5 + size:
                return
            self.parts.put_nowait(self.reply.FromString(bytes(self.data[5 : 5 + size])))
            del self.data[: 5 + size]


class SimV5(asyncio.Protocol):
    """One connection of one client id. `connect` makes it.

    Attributes:
        commands: what the server asked over Telemetry. told_to_go: a GOAWAY has come. metadata: more of each call's.
    """

    def __init__(self, address: str, name: str) -> None:
        self.endpoints = endpoints_of(address)
        self.address = address
        self.client_id = name
        self.metadata: dict[str, str] = {}
        self.commands: asyncio.Queue[Any] = asyncio.Queue()
        self.told_to_go = False
        self.lost = False
        self._calls: dict[int, _Call] = {}
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        )
        # `h2` takes nothing after a GOAWAY; RFC 9113 lets calls in hand go on.
        machine, states = self._h2.state_machine, h2.connection.ConnectionState
        told = h2.connection.ConnectionInputs.RECV_GOAWAY
        goes_on = {(one, told): (None, one) for one in (states.IDLE, states.CLIENT_OPEN)}
        machine._transitions = machine._transitions | goes_on
        self._tasks: list[asyncio.Task[None]] = []
        self._telemetry: int | None = None

    @classmethod
    async def connect(cls, address: str, name: str, local: str) -> "SimV5":
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        made: SimV5
        _, made = await loop.create_connection(
            lambda: cls(address, name), host, int(port), local_addr=(local, 0)
        )
        await asyncio.sleep(0)
        return made

    # connection

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._h2.initiate_connection()
        self._flush()

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and not self.lost:
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        for event in self._h2.receive_data(data):
            number = getattr(event, "stream_id", None)
            call = self._calls.get(number or 0)
            if isinstance(event, h2.events.ConnectionTerminated):
                self.told_to_go = True
            elif call is None:
                continue
            elif isinstance(event, h2.events.DataReceived):
                call.take(event.data)
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                fields = dict(event.headers)
                call.status = str(fields.get("grpc-status", call.status))
                call.text = str(fields.get("grpc-message", call.text))
            elif isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
                self._calls.pop(event.stream_id)
                call.parts.put_nowait(None)
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.parts.put_nowait(None)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._transport.close()

    # calls

    def begin(self, rpc: str, request: Any, reply: Any, *, more: bool = False) -> tuple[int, _Call]:
        """Send a request; `more` leaves our side open."""
        if self.lost or self.told_to_go:
            raise Gone(f"{self.address}: the connection has ended")
        number = self._h2.get_next_available_stream_id()
        fields = {
            ":method": "POST", ":scheme": "http", ":path": SERVICE + rpc, ":authority": self.address,
            "content-type": "application/grpc", "te": "trailers", "x-mq-language": "JAVA",
            "x-mq-client-version": "5.2.0", "x-mq-protocol": "v2", "x-mq-client-id": self.client_id,
        } | self.metadata  # fmt: skip
        self._h2.send_headers(number, list(fields.items()))
        body = request.SerializeToString()
        data = b"\0" + len(body).to_bytes(4, "big") + body
        self._h2.send_data(number, data, end_stream=not more)
        self._flush()
        call = self._calls[number] = _Call(reply)
        return number, call

    def reset(self, number: int) -> None:
        """Cancel a call."""
        call = self._calls.pop(number, None)
        if call is not None:
            self._h2.reset_stream(number, 8)
            self._flush()
            call.parts.put_nowait(None)

    async def all(self, rpc: str, request: Any, reply: Any, timeout: float = 30) -> list[Any]:
        """All messages of a reply. Raises Gone."""
        number, call = self.begin(rpc, request, reply)
        found = []
        try:
            async with asyncio.timeout(timeout):
                while (part := await call.parts.get()) is not None:
                    found.append(part)
        except TimeoutError:
            self.reset(number)
            raise Gone(f"no answer to {rpc} from {self.address}") from None
        if call.status != "0":
            raise Gone(f"{rpc} ended with status {call.status or 'none'} {call.text}")
        return found

    async def call(self, rpc: str, request: Any, timeout: float = 10) -> Any:
        """A unary call. Raises Gone."""
        (reply,) = await self.all(rpc, request, getattr(s, f"{rpc}Response"), timeout)
        return reply

    async def settings(self, settings: d.Settings) -> d.Settings:
        """Open Telemetry; returns the merged settings."""
        command = s.TelemetryCommand(settings=settings)
        self._telemetry, call = self.begin("Telemetry", command, s.TelemetryCommand, more=True)
        first = await call.parts.get()
        if first is None:
            raise Gone(f"Telemetry ended with {call.status} {call.text}")
        check(first.status)
        self._tasks.append(asyncio.get_running_loop().create_task(self._listen(call)))
        return first.settings  # type: ignore[no-any-return]

    async def _listen(self, call: _Call) -> None:
        while (command := await call.parts.get()) is not None:
            self.commands.put_nowait(command)

    async def produce(self, *topics: str) -> d.Settings:
        return await self.settings(producer(self.endpoints, *topics))

    async def consume(self, group: str, topic: str) -> d.Settings:
        return await self.settings(consumer(self.endpoints, group, topic))

    async def send(self, topic: str, body: bytes, **system: Any) -> Any:
        """The entry of the result. Raises Failed, Gone."""
        reply = await self.call("SendMessage", send_request(topic, body, **system))
        check(reply.status)
        check(reply.entries[0].status)
        return reply.entries[0]

    async def assignment(self, group: str, topic: str) -> list[d.MessageQueue]:
        request = s.QueryAssignmentRequest(
            topic=d.Resource(name=topic), group=d.Resource(name=group), endpoints=self.endpoints
        )
        reply = await self.call("QueryAssignment", request)
        check(reply.status)
        return [one.message_queue for one in reply.assignments]

    async def receive(self, group: str, queue: d.MessageQueue, **options: int) -> list[d.Message]:
        """Raises Failed, Gone."""
        request = receive_request(group, queue, **options)
        return received(await self.all("ReceiveMessage", request, s.ReceiveMessageResponse))

    async def ack(self, group: str, topic: str, messages: Iterable[d.Message]) -> None:
        """Raises Failed, Gone."""
        reply = await self.call("AckMessage", ack_request(group, topic, list(messages)))
        check(reply.status)

    async def end(self, topic: str, asked: Any, *, commit: bool) -> None:
        """EndTransaction, after a check."""
        request = s.EndTransactionRequest(
            topic=d.Resource(name=topic), transaction_id=asked.transaction_id,
            message_id=asked.message.system_properties.message_id,
            resolution=(
                d.TransactionResolution.COMMIT if commit else d.TransactionResolution.ROLLBACK
            ),
            source=d.TransactionSource.SOURCE_SERVER_CHECK,
        )  # fmt: skip
        check((await self.call("EndTransaction", request)).status)


__all__ = ["Code", "Failed", "Gone", "SimV5"]
