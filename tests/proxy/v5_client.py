"""A client of the v5 protocol made of grpcio and the generated messages: what official SDKs do, one call at a time."""

import itertools
import queue as queues
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc

from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s

SERVICE = "/apache.rocketmq.v2.MessagingService/"
Code: Any = d.Code
_ids = itertools.count(1)


class Failed(Exception):
    """A status that is not OK."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{Code.Name(code)}: {text}")
        self.code = code


class V5Client:
    """A client id on a connection of its own. `commands`: what the server asked over Telemetry."""

    def __init__(self, address: str, name: str = "client") -> None:
        self.address = address
        self.client_id = f"{name}-{next(_ids)}-{time.time_ns()}"
        self.channel = grpc.insecure_channel(
            address, options=[("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1_000)]
        )  # fmt: skip
        self.endpoints = endpoints_of(address)
        self.commands: queues.Queue[Any] = queues.Queue()
        self._out: list[queues.Queue[Any]] = []
        self._client_type: int = d.ClientType.PRODUCER

    def metadata(self) -> list[tuple[str, str]]:
        return [
            ("x-mq-language", "JAVA"), ("x-mq-client-version", "5.2.0"), ("x-mq-protocol", "v2"),
            ("x-mq-client-id", self.client_id),
        ]  # fmt: skip

    def call(self, rpc: str, request: Any, timeout: float = 10) -> Any:
        """A unary call; raises grpc.RpcError."""
        reply = getattr(s, f"{rpc}Response")
        method = self.channel.unary_unary(
            SERVICE + rpc,
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        return method(request, timeout=timeout, metadata=self.metadata(), wait_for_ready=True)

    def settings(self, settings: d.Settings) -> d.Settings:
        """Open Telemetry with settings; returns the merged ones. The stream stays, its commands go to `commands`."""
        out: queues.Queue[Any] = queues.Queue()
        out.put(s.TelemetryCommand(settings=settings))
        self._out.append(out)
        stream = self.channel.stream_stream(
            SERVICE + "Telemetry",
            request_serializer=s.TelemetryCommand.SerializeToString,
            response_deserializer=s.TelemetryCommand.FromString,
        )(iter(out.get, None), metadata=self.metadata(), wait_for_ready=True)
        first = next(stream)
        assert first.status.code == Code.OK, first
        threading.Thread(target=self._listen, args=(stream,), daemon=True).start()
        self._client_type = settings.client_type
        return first.settings  # type: ignore[no-any-return]

    def _listen(self, stream: Iterator[Any]) -> None:
        try:
            for command in stream:
                self.commands.put(command)
        except grpc.RpcError:
            return

    def produce(self, *topics: str) -> d.Settings:
        """Be a producer of topics."""
        return self.settings(producer(self.endpoints, *topics))

    def consume(self, group: str, topic: str) -> d.Settings:
        """Be a simple consumer."""
        return self.settings(consumer(self.endpoints, group, topic))

    def heartbeat(self, group: str = "") -> int:
        """The status."""
        request = s.HeartbeatRequest(client_type=self._client_type)  # type: ignore[arg-type]
        if group:
            request.group.name = group
        return int(self.call("Heartbeat", request).status.code)

    def send(self, topic: str, body: bytes, timeout: float = 10, **system: Any) -> Any:
        """Send a message; the result's entry. Raises Failed."""
        reply = self.call("SendMessage", send_request(topic, body, **system), timeout)
        check(reply.status)
        check(reply.entries[0].status)
        return reply.entries[0]

    def route(self, topic: str) -> list[d.MessageQueue]:
        """QueryRoute."""
        request = s.QueryRouteRequest(topic=d.Resource(name=topic), endpoints=self.endpoints)
        reply = self.call("QueryRoute", request)
        check(reply.status)
        return list(reply.message_queues)

    def assignment(self, group: str, topic: str) -> list[d.MessageQueue]:
        """QueryAssignment."""
        request = s.QueryAssignmentRequest(
            topic=d.Resource(name=topic), group=d.Resource(name=group), endpoints=self.endpoints
        )
        reply = self.call("QueryAssignment", request)
        check(reply.status)
        return [one.message_queue for one in reply.assignments]

    def receive(
        self, group: str, queue: d.MessageQueue, *, most: int = 32, invisible_s: int = 30, wait_s: int = 5
    ) -> list[d.Message]:  # fmt: skip
        """ReceiveMessage; no message where there is none. Raises Failed."""
        request = receive_request(group, queue, most=most, invisible_s=invisible_s, wait_s=wait_s)
        stream = self.channel.unary_stream(
            SERVICE + "ReceiveMessage",
            request_serializer=s.ReceiveMessageRequest.SerializeToString,
            response_deserializer=s.ReceiveMessageResponse.FromString,
        )(request, timeout=wait_s + 5, metadata=self.metadata(), wait_for_ready=True)
        return received(stream)

    def drain(
        self, group: str, topic: str, wanted: int, seconds: float, *, ack: bool = True,
        more: Callable[[d.Message], None] | None = None,
    ) -> list[d.Message]:  # fmt: skip
        """Receive until so many have come, from all queues in turn."""
        found: list[d.Message] = []
        end = time.monotonic() + seconds
        while len(found) < wanted and time.monotonic() < end:
            for queue in self.assignment(group, topic):
                got = self.receive(group, queue)
                found += got
                if ack and got:
                    self.ack(group, topic, got)
                for message in got:
                    if more is not None:
                        more(message)
        return found

    def ack(self, group: str, topic: str, messages: list[d.Message]) -> None:
        """Raises Failed."""
        request = ack_request(group, topic, messages)
        check(self.call("AckMessage", request).status)

    def change(self, group: str, topic: str, message: d.Message, seconds: int) -> str:
        """ChangeInvisibleDuration; the new handle."""
        request = s.ChangeInvisibleDurationRequest(
            group=d.Resource(name=group), topic=d.Resource(name=topic),
            receipt_handle=message.system_properties.receipt_handle,
            message_id=message.system_properties.message_id,
        )  # fmt: skip
        request.invisible_duration.seconds = seconds
        reply = self.call("ChangeInvisibleDuration", request)
        check(reply.status)
        return str(reply.receipt_handle)

    def bury(self, group: str, topic: str, message: d.Message) -> None:
        """ForwardMessageToDeadLetterQueue."""
        request = s.ForwardMessageToDeadLetterQueueRequest(
            group=d.Resource(name=group), topic=d.Resource(name=topic),
            receipt_handle=message.system_properties.receipt_handle,
            message_id=message.system_properties.message_id, delivery_attempt=1,
            max_delivery_attempts=1,
        )  # fmt: skip
        check(self.call("ForwardMessageToDeadLetterQueue", request).status)

    def end(
        self, topic: str, message_id: str, transaction_id: str, *, commit: bool, checked: bool = False
    ) -> None:  # fmt: skip
        """EndTransaction."""
        request = s.EndTransactionRequest(
            topic=d.Resource(name=topic), message_id=message_id, transaction_id=transaction_id,
            resolution=(
                d.TransactionResolution.COMMIT if commit else d.TransactionResolution.ROLLBACK
            ),
            source=(
                d.TransactionSource.SOURCE_SERVER_CHECK
                if checked
                else d.TransactionSource.SOURCE_CLIENT
            ),
        )  # fmt: skip
        check(self.call("EndTransaction", request).status)

    def close(self) -> None:
        """End the streams and the connection."""
        for out in self._out:
            out.put(None)
        self.channel.close()


def check(status: d.Status) -> None:
    """Raises Failed."""
    if status.code != Code.OK:
        raise Failed(status.code, status.message)


def every() -> d.FilterExpression:
    return d.FilterExpression(type=d.FilterType.TAG, expression="*")


def message_id() -> str:
    """As official clients make them."""
    return f"01{0xAB1234567890:012X}{0x4242:04X}{int(time.time()) & 0xFFFFFFFF:08X}{next(_ids):08X}"


def endpoints_of(address: str) -> d.Endpoints:
    host, _, port = address.rpartition(":")
    return d.Endpoints(
        scheme=d.AddressScheme.IPv4, addresses=[d.Address(host=host, port=int(port))]
    )


def producer(endpoints: d.Endpoints, *topics: str) -> d.Settings:
    return d.Settings(
        client_type=d.ClientType.PRODUCER,
        access_point=endpoints,
        publishing=d.Publishing(topics=[d.Resource(name=topic) for topic in topics]),
    )


def consumer(endpoints: d.Endpoints, group: str, topic: str) -> d.Settings:
    """Of a simple one."""
    entry = d.SubscriptionEntry(topic=d.Resource(name=topic), expression=every())
    return d.Settings(
        client_type=d.ClientType.SIMPLE_CONSUMER,
        access_point=endpoints,
        subscription=d.Subscription(group=d.Resource(name=group), subscriptions=[entry]),
    )


def send_request(topic: str, body: bytes, **system: Any) -> s.SendMessageRequest:
    fields = {"message_id": message_id(), "message_type": d.MessageType.NORMAL, **system}
    fields.setdefault("body_encoding", d.Encoding.IDENTITY)
    properties = d.SystemProperties(**fields)
    message = d.Message(topic=d.Resource(name=topic), body=body, system_properties=properties)
    return s.SendMessageRequest(messages=[message])


def receive_request(
    group: str, queue: d.MessageQueue, *, most: int = 32, invisible_s: int = 30, wait_s: int = 5
) -> s.ReceiveMessageRequest:
    request = s.ReceiveMessageRequest(
        group=d.Resource(name=group),
        message_queue=queue,
        filter_expression=every(),
        batch_size=most,
    )
    request.invisible_duration.seconds = invisible_s
    request.long_polling_timeout.seconds = wait_s
    return request


def received(parts: Iterable[Any]) -> list[d.Message]:
    """The messages of a reply to ReceiveMessage. Raises Failed."""
    found = []
    for part in parts:
        kind = part.WhichOneof("content")
        if kind == "message":
            found.append(part.message)
        elif kind == "status" and part.status.code != Code.MESSAGE_NOT_FOUND:
            check(part.status)
    return found


def ack_request(group: str, topic: str, messages: list[d.Message]) -> s.AckMessageRequest:
    entries = [
        s.AckMessageEntry(
            message_id=one.system_properties.message_id,
            receipt_handle=one.system_properties.receipt_handle,
        )
        for one in messages
    ]
    return s.AckMessageRequest(
        group=d.Resource(name=group), topic=d.Resource(name=topic), entries=entries
    )
