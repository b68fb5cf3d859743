"""The load of the v5 protocol: calls of one Python process over ngh2, against any server of it. Figures as `loads.Measured`.

    python benchmarks/grpc_load.py VERB HOST PORT TOPIC key=value ...

Verbs: send, receive (receives of 32, each message acknowledged by a call of its own), hold (receives that wait; keeps
them for `seconds`). Keys: pid (whose CPU counts), connections, inflight (calls at one time on each connection), size,
warmup (messages), seconds, group. Metadata is what official clients send: fresh request id and a deadline in each call.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import ngh2
import uvloop
from google.protobuf.message import Message

from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s

TICKS = os.sysconf("SC_CLK_TCK")
PREFIX = b"/apache.rocketmq.v2.MessagingService/"
ID = b"01" + b"0" * 32


def framed(message: Message) -> bytes:
    data = message.SerializeToString()
    return b"\0" + len(data).to_bytes(4, "big") + data


class Client(asyncio.Protocol):
    """One connection; each call's reply goes to a callable with the list of its messages, or the trailers' error."""

    def __init__(self, name: str, authority: str) -> None:
        self.waiting: dict[int, object] = {}
        self.parts: dict[int, bytes] = {}
        self.number = 0
        self.dirty = False
        self.base = [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":authority", authority.encode()),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
            (b"user-agent", b"grpc-python-load/1"),
            (b"x-mq-client-id", name.encode()),
            (b"x-mq-language", b"PYTHON"),
            (b"x-mq-protocol", b"v2"),
            (b"x-mq-client-version", b"5.0.5"),
            (b"x-mq-date-time", b"20261122T000000Z"),
            (b"x-mq-namespace", b""),
        ]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.http = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration())
        self.http.initiate_connection({ngh2.Setting.INITIAL_WINDOW_SIZE: 4 << 20})
        self.http.set_local_window_size(64 << 20)
        self.flush()

    def call(
        self, rpc: bytes, body: bytes, done: object, *, timeout: bytes = b"3S", ends: bool = True
    ) -> int:
        self.number += 1
        headers = [
            *self.base[:2],
            (b":path", PREFIX + rpc),
            *self.base[2:],
            (b"grpc-timeout", timeout),
            (
                b"x-mq-request-id",
                b"%032x" % (self.number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128),
            ),
        ]
        stream = self.http.send_request(headers)
        self.http.send_data(stream, body, end_stream=ends)
        self.waiting[stream] = done
        if not self.dirty:
            self.dirty = True
            asyncio.get_running_loop().call_soon(self.flush)
        return stream

    def flush(self) -> None:
        self.dirty = False
        out = self.http.data_to_send()
        if out:
            self.transport.write(out)

    def data_received(self, data: bytes) -> None:
        http = self.http
        http.receive_data(data)
        for event in http.events():
            if isinstance(event, ngh2.DataReceived):
                stream = event.stream_id
                self.parts[stream] = self.parts.get(stream, b"") + event.data
            elif isinstance(event, ngh2.TrailersReceived) or (
                isinstance(event, ngh2.ResponseReceived) and event.end_stream
            ):
                self.end(event.stream_id, event.headers)
            elif isinstance(event, ngh2.StreamReset | ngh2.GoAwayReceived):
                print(event, file=sys.stderr)
        self.flush()

    def end(self, stream: int, headers: tuple) -> None:
        done = self.waiting.pop(stream, None)
        data, at, found = self.parts.pop(stream, b""), 0, []
        while at < len(data):
            size = int.from_bytes(data[at + 1 : at + 5], "big")
            found.append(data[at + 5 : at + 5 + size])
            at += 5 + size
        if done is not None:
            done(found, dict(headers))


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Run:
    """One run: warm-up, then `seconds` of measuring."""

    def __init__(self, words: dict[str, str], topic: str) -> None:
        self.topic = topic
        self.group = words.get("group", "bench-group")
        self.pid = int(words.get("pid", "0")) or os.getpid()
        self.size = int(words.get("size", "128"))
        self.inflight = int(words.get("inflight", "32"))
        self.warmup = int(words.get("warmup", "2000"))
        self.seconds = float(words.get("seconds", "4"))
        self.done = 0
        self.errors = 0
        self.first_error = ""
        self.latencies: list[float] = []
        self.began = 0.0
        self.cpu = 0.0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def measured(self, count: int, since: float) -> bool:
        """Count; returns whether to go on."""
        now = time.perf_counter()
        self.done += count
        if not self.began:
            if self.done >= self.warmup:
                self.began, self.cpu, self.done = now, cpu_s(self.pid), 0
            return True
        self.latencies.append(now - since)
        if now - self.began < self.seconds:
            return True
        if not self.ended.done():
            self.cpu = cpu_s(self.pid) - self.cpu
            self.took = now - self.began
            self.total = self.done
            self.ended.set_result(None)
        return False

    def failed(self, why: object) -> None:
        self.errors += 1
        self.first_error = self.first_error or str(why)[:300]
        if self.errors > 1_000 and not self.ended.done():
            self.ended.set_exception(RuntimeError(self.first_error))

    def result(self) -> str:
        sorted_us = sorted(round(each * 1e6) for each in self.latencies) or [0]

        def at(share: float) -> int:
            return sorted_us[min(len(sorted_us) - 1, int(len(sorted_us) * share))]

        return json.dumps(
            {
                "messages": self.total, "seconds": self.took, "p50_us": at(0.5), "p99_us": at(0.99),
                "p999_us": at(0.999), "errors": self.errors, "first_error": self.first_error,
                "cpu_s": self.cpu,
            }
        )  # fmt: skip


def send_parts(topic: str, size: int) -> tuple[bytes, bytes]:
    """A framed SendMessage, before and behind the message's id of 34 characters."""
    request = s.SendMessageRequest()
    message = request.messages.add()
    message.topic.name = topic
    message.body = b"x" * size
    system = message.system_properties
    system.message_id = ID.decode()
    system.tag = "TagA"
    system.keys.append("key-1")
    system.message_type = d.MessageType.NORMAL
    system.born_host = "bench"
    system.born_timestamp.FromMilliseconds(time.time_ns() // 1_000_000)
    system.queue_id = 0
    message.user_properties["colour"] = "blue"
    head, _, tail = framed(request).partition(ID)
    return head, tail


def sender(run: Run, client: Client) -> None:
    head, tail = send_parts(run.topic, run.size)
    number = 0

    def go() -> None:
        nonlocal number
        number += 1
        since = time.perf_counter()

        def done(found: list[bytes], trailers: dict) -> None:
            if not found or b"OK" not in found[0]:
                run.failed(s.SendMessageResponse.FromString(found[0]) if found else trailers)
            if run.measured(1, since):
                go()

        client.call(
            b"SendMessage", head + b"01%032X" % (number + (id(client) << 40) % 2**120) + tail, done
        )

    for _ in range(run.inflight):
        go()


def receive_request(run: Run, batch: int, broker: str) -> bytes:
    request = s.ReceiveMessageRequest(batch_size=batch, auto_renew=False)
    request.group.name = run.group
    request.message_queue.topic.name = run.topic
    request.message_queue.id = -1
    request.message_queue.broker.name = broker
    request.filter_expression.type = d.FilterType.TAG
    request.filter_expression.expression = "*"
    request.invisible_duration.seconds = 60
    request.long_polling_timeout.seconds = 20
    return framed(request)


def introduce(client: Client, group: str, topic: str) -> None:
    """Open the stream on which a simple consumer has said its settings."""
    command = s.TelemetryCommand()
    command.settings.client_type = d.ClientType.SIMPLE_CONSUMER
    command.settings.subscription.group.name = group
    entry = command.settings.subscription.subscriptions.add()
    entry.topic.name = topic
    entry.expression.type = d.FilterType.TAG
    entry.expression.expression = "*"
    command.settings.access_point.scheme = d.AddressScheme.IPv4
    command.settings.user_agent.language = d.Language.PYTHON
    command.settings.request_timeout.seconds = 3
    command.settings.subscription.long_polling_timeout.seconds = 20
    client.call(
        b"Telemetry",
        framed(command),
        lambda *end: print(end, file=sys.stderr),
        timeout=b"600S",
        ends=False,
    )


def receiver(run: Run, client: Client, broker: str) -> None:
    request = receive_request(run, 32, broker)

    def receive() -> None:
        since = time.perf_counter()

        def got(found: list[bytes], trailers: dict) -> None:
            messages = []
            for each in found:
                part = s.ReceiveMessageResponse.FromString(each)
                if part.HasField("message"):
                    messages.append(part.message)
                elif part.HasField("status") and part.status.code not in (20000, 40401):
                    run.failed(part.status)
            if not messages:
                if run.measured(0, since):
                    receive()
                return
            left = len(messages)

            def acked(found: list[bytes], trailers: dict) -> None:
                nonlocal left
                left -= 1
                if not found or b"OK" not in found[0]:
                    run.failed(s.AckMessageResponse.FromString(found[0]) if found else trailers)
                if not left and run.measured(len(messages), since):
                    receive()

            for message in messages:
                ack = s.AckMessageRequest()
                ack.group.name, ack.topic.name = run.group, run.topic
                entry = ack.entries.add()
                entry.message_id = message.system_properties.message_id
                entry.receipt_handle = message.system_properties.receipt_handle
                client.call(b"AckMessage", framed(ack), acked)

        client.call(b"ReceiveMessage", request, got, timeout=b"25S")

    for _ in range(run.inflight):
        receive()


async def hold(run: Run, clients: list[Client], broker: str) -> str:
    """Wait with `inflight` receives on each connection; answers of any kind count as errors."""
    early: list[object] = []
    for number, client in enumerate(clients):
        run.group = f"held-{number % 20}"
        request = receive_request(run, 32, broker)
        for _ in range(run.inflight):
            client.call(
                b"ReceiveMessage",
                request,
                lambda found, trailers: early.append((found, trailers)),
                timeout=b"60S",
            )
    await asyncio.sleep(2)
    run.cpu = cpu_s(run.pid)
    memory = Path(f"/proc/{run.pid}/status").read_text().split("RssAnon:")[1].split()[0]
    await asyncio.sleep(run.seconds)
    spent = cpu_s(run.pid) - run.cpu
    return json.dumps(
        {
            "held": len(clients) * run.inflight - len(early), "anonymous_kb": int(memory),
            "cpu_s": spent, "seconds": run.seconds, "first": str(early[:1])[:300],
        }
    )  # fmt: skip


async def main() -> None:
    verb, host, port, topic, *rest = sys.argv[1:]
    words = dict(word.split("=", 1) for word in rest)
    run = Run(words, topic)
    loop = asyncio.get_running_loop()
    clients: list[Client] = []
    for number in range(int(words.get("connections", "1"))):
        client = Client(f"bench@{os.getpid()}@{number}@load", f"{host}:{port}")
        await loop.create_connection(lambda made=client: made, host, int(port))
        clients.append(client)
        if verb != "send":
            introduce(client, run.group, run.topic)
    for _ in range(200):  # until every client has its settings
        await asyncio.sleep(0.05)
        if verb == "send" or all(client.parts for client in clients):
            break
    else:
        raise RuntimeError("the server does not answer Telemetry")
    if verb == "hold":
        print(await hold(run, clients, words.get("broker", "bench")))
        return
    for client in clients:
        if verb == "send":
            sender(run, client)
        else:
            receiver(run, client, words.get("broker", "bench"))
    await run.ended
    print(run.result())


if __name__ == "__main__":
    uvloop.run(main())
