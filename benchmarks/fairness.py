"""What one hostile peer costs a hundred honest ones: `python -m benchmarks.fairness`.

A hundred connections send, one message after another each: alone, then beside a peer that speaks one of the broker's
protocols as fast as the broker reads, has no account, and waits for no answer. Of the honest ones p99 and refusals are
shown, and how much the broker's memory grew meanwhile. With --check the exit status is 1 when their p99 is more than three
times that of before, one of them was refused, or memory grew by more than what the broker's bounds allow one peer.
"""

import argparse
import asyncio
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks import grpc_load, loads, servers
from roquette.wire.codes import RequestCode
from roquette.wire.connection import WireConnection
from roquette.wire.header_codec import encode_ext
from roquette.wire.headers import SendMessageRequestHeaderV2
from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s

# A protocol, and how the servers are closed (tests/interop/ways.py): with users, so that the hostile one is nobody; where TLS
# is enforced everybody may all, and it takes a share of the work.
DOORS = {"remoting": "signed", "tls": "tls", "grpc": "signed", "http": "signed"}
HONEST = {"connections": 100, "inflight": 1, "body": 128, "warmup": 2_000}
MOST_TIMES = 3.0
MOST_MIB = 64  # what may wait of one peer: frames of 16 MiB in, answers out, its share of a lane
AT_ONCE = 64 * 1024


def remoting_flood(topic: str) -> bytes:
    """Some hundreds of sends that nobody signed."""
    wire = WireConnection()
    header = SendMessageRequestHeaderV2(
        producer_group="nobody",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
        properties="",
        reconsume_times=0,
        unit_mode=False,
    )
    ext = encode_ext(header)
    for _ in range(AT_ONCE // 256):
        wire.send_request(RequestCode.SEND_MESSAGE_V2, ext, bytes(128))
    return b"".join(wire.data_to_send())


def http_flood(host: str) -> bytes:
    """Some hundreds of questions for the page of metrics."""
    return f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() * (AT_ONCE // 64)


async def pour(host: str, port: int, chunk: bytes, secure: bool) -> None:
    """Write the same again and again, read what comes and forget it; a new connection when this one is cut."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def drop(reader: asyncio.StreamReader) -> None:
        while await reader.read(1 << 20):
            pass

    while True:
        reader, writer = await asyncio.open_connection(host, port, ssl=context if secure else None)
        dropping = asyncio.create_task(drop(reader))
        try:
            while not dropping.done():
                writer.write(chunk)
                await writer.drain()
        except OSError:
            pass
        dropping.cancel()
        writer.transport.abort()
        await asyncio.sleep(0.01)


async def call(host: str, port: int, topic: str) -> None:
    """Sends of v5 without an account, a hundred at one time on one connection; a new one when this is cut."""
    request = s.SendMessageRequest()
    message = request.messages.add()
    message.topic.name = topic
    message.body = bytes(128)
    message.system_properties.message_id = grpc_load.ID.decode()
    message.system_properties.message_type = d.MessageType.NORMAL
    framed = grpc_load.framed(request)
    loop = asyncio.get_running_loop()
    while True:
        client = grpc_load.Client("hostile@1@1@load", f"{host}:{port}")
        transport, _ = await loop.create_connection(lambda made=client: made, host, port)

        def go(*_: object, client: grpc_load.Client = client) -> None:
            client.call(b"SendMessage", framed, go)

        for _ in range(100):
            go()
        while not transport.is_closing():
            await asyncio.sleep(0.01)


def hostile(protocol: str, host: str, port: int, topic: str) -> None:
    """Be it, until this process is ended."""
    flood: dict[str, Callable[[], asyncio._CoroutineLike[None]]] = {
        "remoting": lambda: pour(host, port, remoting_flood(topic), False),
        "tls": lambda: pour(host, port, remoting_flood(topic), True),
        "http": lambda: pour(host, port, http_flood(f"{host}:{port}"), False),
        "grpc": lambda: call(host, port, topic),
    }
    uvloop.run(flood[protocol]())  # type: ignore[arg-type]


class Bench:
    """Servers behind one door, and the runs at them."""

    def __init__(self, protocol: str, kind: str, seconds: float) -> None:
        self.protocol, self.seconds = protocol, seconds
        self.pair = servers.start(kind, {"flushDiskType": "ASYNC_FLUSH"}, DOORS[protocol])
        servers.create_topic(self.pair, "BenchSend")
        self.alone: list[loads.Measured] = []
        self.beside: list[loads.Measured] = []
        self.grown_mib = 0.0

    def honest(self) -> loads.Measured:
        return loads.raw(self.pair, "send", "BenchSend", **HONEST, seconds=self.seconds)

    def turn(self) -> None:
        """Alone, then beside it."""
        self.alone.append(self.honest())
        before = servers.anonymous_kb(self.pair.broker_pid)
        host, _, port = self.pair.broker.partition(":")
        words = ["benchmarks.fairness", "--hostile", self.protocol, host, port, "BenchSend"]
        process = subprocess.Popen(["nice", "-n", "10", sys.executable, "-m", *words])
        try:
            time.sleep(1)
            self.beside.append(self.honest())
            after = servers.anonymous_kb(self.pair.broker_pid)
            self.grown_mib = max(self.grown_mib, (after - before) / 1024)
            if process.poll() is not None:
                raise RuntimeError(f"the hostile peer ended by itself: {process.returncode}")
        finally:
            process.terminate()
            process.wait()

    def row(self) -> tuple[list[str], bool]:
        """Of the table; whether everybody had a share."""
        times = statistics.median(
            beside.p99_us / alone.p99_us
            for alone, beside in zip(self.alone, self.beside, strict=True)
        )
        refused = sum(run.errors for run in self.beside)
        words = [
            self.protocol,
            *(f"{statistics.median(run.p99_us for run in runs) / 1000:.1f}" for runs in (self.alone, self.beside)),
            f"{times:.2f}",
            *(f"{statistics.median(run.rate for run in runs):,.0f}" for runs in (self.alone, self.beside)),
            str(refused),
            f"{self.grown_mib:.0f}",
        ]  # fmt: skip
        return words, times <= MOST_TIMES and not refused and self.grown_mib <= MOST_MIB


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.fairness", description=__doc__)
    parser.add_argument("--protocols", default=",".join(DOORS))
    parser.add_argument("--server", default="compiled", choices=("compiled", "interpreted"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run")
    parser.add_argument("--check", action="store_true", help="exit status 1 when one has no share")
    parser.add_argument("--hostile", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.hostile:
        protocol, host, port, topic = arguments.hostile
        hostile(protocol, host, int(port), topic)
    if arguments.server == "compiled":
        servers.build_compiled()
    head = ("hostile", "p99 ms alone", "beside it", "times", "sends/s alone", "beside it", "refused", "MiB more")  # fmt: skip
    table, fair = Table(*head), True
    for protocol in arguments.protocols.split(","):
        bench = Bench(protocol, arguments.server, arguments.seconds)
        try:
            for _ in range(arguments.repeats):
                bench.turn()
        finally:
            bench.pair.stop()
        words, good = bench.row()
        table.add_row(*words)
        fair = fair and good
        print(" ".join(words), flush=True)
    Console(width=110).print(table)
    sys.exit(1 if arguments.check and not fair else 0)


if __name__ == "__main__":
    main()
