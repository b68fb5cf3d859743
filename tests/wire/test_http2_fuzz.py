"""Mutated HTTP/2 at a session: frames, header blocks, messages. Nothing crashes, grows or stays behind.

The short form is part of `make test`; the long one is a million inputs over libnghttp2 and a tenth of it over h2.
"""

import asyncio
import logging
from collections import Counter
from random import Random
from typing import Any

import pytest
from tests.proxy.toy_proxy import World
from tests.wire.http2_h2 import H2Connection
from tests.wire.http2_pair import PREFACE, frame

from roquette.base.clock import LoopClock
from roquette.wire.grpc import prefixed
from roquette.wire.http2 import Http2Limits
from roquette.wire.proto import service_pb2 as s
from roquette_testing.sim_loop import SimLoop, run

HELLO = PREFACE + frame(4, 0, 0) + frame(4, 1, 0)
PATHS = (b"SendMessage", b"ReceiveMessage", b"Telemetry") * 5 + (b"Nothing", b"", b"\xff" * 50)
NAMES = (
    b"grpc-timeout", b"grpc-encoding", b"content-type", b"x-mq-client-id", b"authorization", b"te", b":path",
    b":method", b":status", b"Upper", b"", b"a b", b"connection", b"cookie", b"x\0y", b"content-length",
)  # fmt: skip
VALUES = (
    b"", b"1S", b"99999999H", b"0n", b"-1S", b"gzip", b"identity", b"application/grpc", b"text/html", b"\0", b"\xff\xfe",
    b"a" * 3_000, b"\r\nx: y", b" ", b"GET", b"trailers", b"5", b"18446744073709551616",
)  # fmt: skip
LIMITS = Http2Limits(streams=200, unfinished=1 << 20, queued=1 << 16, queued_most=1 << 20)


class Transport:
    """Takes what is written."""

    def __init__(self) -> None:
        self.closed = False
        self.written = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.9", 1) if name in ("peername", "sockname") else default

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def writelines(self, parts: list[bytes]) -> None:
        self.written += sum(map(len, parts))

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True

    abort = close

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    pause_reading = resume_reading = is_closing


def literal(fields: list[tuple[bytes, bytes]]) -> bytes:
    """A header block without a table."""

    def text(value: bytes) -> bytes:
        size = len(value)
        if size < 127:
            return bytes((size,)) + value
        rest, size = b"\x7f", size - 127
        while size >= 128:
            rest += bytes((size & 127 | 128,))
            size >>= 7
        return rest + bytes((size,)) + value

    return b"".join(b"\0" + text(name) + text(value) for name, value in fields)


class Inputs:
    """An endless stream of writes, all drawn from one generator."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.next_stream = 1
        send = s.SendMessageRequest()
        for number in range(3):
            message = send.messages.add()
            message.topic.name = ("orders", "hold", "ask")[number]
            message.body = bytes(200)
            message.user_properties["k"] = "v"
            message.system_properties.keys.append("key")
        talk = s.TelemetryCommand()
        talk.settings.access_point.scheme = 1
        self.messages = [
            send.SerializeToString(),
            s.ReceiveMessageRequest(batch_size=3).SerializeToString(),
            b"",
            talk.SerializeToString(),
        ]

    def fresh(self) -> None:
        """On a new connection."""
        self.next_stream = 1

    def stream(self) -> int:
        """A new stream, mostly; or any."""
        random = self.random
        if random.random() < 0.98:
            self.next_stream += 2
            return self.next_stream - 2
        return random.choice((0, 1, 2, self.next_stream, max(1, self.next_stream - 4), 2**31 - 1))

    def mutated(self, data: bytes) -> bytes:
        random = self.random
        for _ in range(random.choice((0, 0, 0, 1, 2, 5))):
            at, size = random.randrange(len(data) + 1), random.choice((1, 1, 2, 4, 9, 40))
            act = random.randrange(4)
            if act == 0:
                data = data[:at] + random.randbytes(size) + data[at + size :]
            elif act == 1:
                data = data[:at] + data[at + size :]
            elif act == 2:
                data = data[:at] + data[at : at + size] * 2 + data[at + size :]
            else:
                data = (
                    data[:at] + random.choice((b"\0", b"\xff", b"\x80", b"\x7f")) + data[at + 1 :]
                )
        return data

    def fields(self) -> bytes:
        random = self.random
        path = b"/apache.rocketmq.v2.MessagingService/" + random.choice(PATHS)
        fields = [
            (b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x:1"),
            (b"content-type", b"application/grpc"), (b"x-mq-client-id", b"c%d" % random.randrange(100)),
        ]  # fmt: skip
        for _ in range(random.choice((0, 0, 0, 0, 0, 0, 0, 1, 2, 3))):
            act = random.randrange(3)
            if act == 0:
                fields.pop(random.randrange(len(fields)))
            else:
                at = random.randrange(len(fields) + 1)
                fields.insert(at, (random.choice(NAMES), random.choice(VALUES)))
            fields = fields or [(b"x", b"y")]
        block = literal(fields)
        return self.mutated(block) if random.random() < 0.03 else block

    def body(self) -> bytes:
        random = self.random
        data = prefixed(self.mutated(random.choice(self.messages)))
        if random.random() < 0.2:
            data = self.mutated(data)
        if random.random() < 0.1:
            data = random.choice((b"", data[:3], data * 2, b"\0\0\x50\0\0", b"\1" + data[1:]))
        return data

    def call(self) -> bytes:
        stream = self.stream()
        data = frame(
            1,
            4 if self.random.random() < 0.95 else self.random.choice((5, 0, 0x2C)),
            stream,
            self.fields(),
        )
        if self.random.random() < 0.9:
            body = self.body()
            cut = self.random.randrange(len(body) + 1) if self.random.random() < 0.2 else 0
            if cut:
                data += frame(0, 0, stream, body[:cut])
            data += frame(
                0,
                9 if self.random.random() < 0.02 else self.random.choice((0, 1, 1, 1)),
                stream,
                body[cut:],
            )
        if self.random.random() < 0.15:
            data += frame(3, 0, stream, bytes((0, 0, 0, 8)))
        return data

    def odd(self) -> bytes:
        random = self.random
        kind = random.choice((0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 200))
        size = random.choice((0, 1, 4, 5, 6, 8, 12, 17))
        return frame(kind, random.choice((0, 1, 4, 8, 0xFF)), self.stream(), random.randbytes(size))

    def next(self) -> bytes:
        """One write."""
        random = self.random
        act = random.random()
        if act < 0.85:
            data = b"".join(self.call() for _ in range(random.choice((1, 1, 2, 3))))
            return data if random.random() < 0.96 else self.mutated(data)
        if act < 0.9:
            return self.odd()
        if act < 0.99:  # what keeps a connection going
            return random.choice(
                (frame(6, 0, 0, bytes(8)), frame(8, 0, 0, b"\0\0\x10\0"), frame(4, 0, 0))
            )
        return random.randbytes(random.randrange(1, 60))


async def attack(loop: SimLoop, library: str, count: int, seed: int, seen: Counter[str]) -> None:
    """Send `count` inputs, each connection until it is closed."""
    world = World(loop, LoopClock(loop), limits=LIMITS)
    if library == "h2":
        world.sessions.connect = H2Connection
    inputs = Inputs(seed)
    session: Any = None
    transport = Transport()
    for number in range(count):
        if session is None or transport.closed:
            if session is not None:
                seen["closed"] += 1
                session.connection_lost(None)
                await asyncio.sleep(0)
                assert not session.calls and not session._reading and not world.toy.held
            session, transport = world.accept(), Transport()
            session.connection_made(transport)
            inputs.fresh()
            await asyncio.sleep(0)  # our settings leave, before they are acknowledged
            await asyncio.sleep(0)
            session.data_received(HELLO)
            seen["opened"] += 1
        session.data_received(inputs.next())
        if number % 2:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        if number % 50 == 0:
            world.toy.release()
            await asyncio.sleep(0.3)
            world.sessions.beat()
            assert 0 <= session._unfinished <= LIMITS.unfinished
            assert len(session.calls) <= LIMITS.streams and len(session._callers._known) <= 64
            held = sum(reader.held for reader in session._reading.values() if reader is not None)
            assert held == session._unfinished
            assert len(world.sessions.open_now) == 1
    session.connection_lost(None)
    await asyncio.sleep(0)
    seen["served"] += world.toy.served
    assert not world.toy.held and not world.sessions.open_now and not world.peers
    assert world.proxy.crashed == 0 and world.dispatcher.crashed == 0


def fuzz(library: str, count: int, seed: int) -> Counter[str]:
    """Run it; what was seen."""
    seen: Counter[str] = Counter()
    logging.getLogger("roquette.proxy").setLevel(logging.CRITICAL)
    try:
        run(lambda loop: attack(loop, library, count, seed, seen), seed)
    finally:
        logging.getLogger("roquette.proxy").setLevel(logging.NOTSET)
    return seen


@pytest.mark.parametrize("library, count", [("ngh2", 10_000), ("h2", 1_500)])
def test_inputs_of_all_kinds_disturb_nothing(library: str, count: int) -> None:
    seen = fuzz(library, count, 1)
    assert seen["served"] > count // 10, "many get as far as an rpc"
    assert seen["opened"] > count // 100


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2, 22))
def test_a_million_inputs_disturb_nothing(seed: int) -> None:
    fuzz("ngh2", 50_000, seed)
    fuzz("h2", 5_000, seed)
