"""An open-loop load of one process: so many requests a second, each counted from the moment at which it was due.

`Connection` speaks remoting frames, plain or within TLS; whatever has `ask(number, done)` takes its place (benchmarks/grpc_load.py
has one for gRPC). A server that stops for 50 ms shows in the latencies of all that were due meanwhile.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from tests.real_servers import frame

TICK_S = 0.001
LIMIT_S = 30.0

Done = Callable[[str], None]
"""Called with "", or with what was answered instead of success."""


class Head(msgspec.Struct):
    """What is read of an answer's header."""

    code: int
    opaque: int
    flag: int = 0
    remark: str | None = None


class Asking(Protocol):
    """One connection of a load."""

    def ask(self, number: int, done: Done) -> None:
        """Send the request with this number."""
        ...


class Connection(asyncio.Protocol):
    """Frames over one connection. `make` gives code, ext fields and body of a request by its number."""

    def __init__(self, make: Callable[[int], tuple[int, dict[str, Any], bytes]]) -> None:
        self.make = make
        self.told: Callable[[Head], None] = lambda head: None  # requests of the server
        self.body = b""  # of the last answer
        self._waiting: dict[int, Done] = {}
        self._data = bytearray()
        self._opaque = 0
        self._read = msgspec.json.Decoder(Head).decode

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It can be asked."""
        self.transport: Any = transport

    def connection_lost(self, error: Exception | None) -> None:
        """Who waits is told."""
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            done(f"closed {error}")

    def ask(self, number: int, done: Done) -> None:
        """Send the request with this number."""
        self.send(*self.make(number), done)

    def send(self, code: int, ext: dict[str, Any], body: bytes, done: Done) -> None:
        """Send one request."""
        if self.transport.is_closing():
            done("closed")
            return
        self._opaque += 1
        self._waiting[self._opaque] = done
        self.transport.write(frame(code, ext, body, opaque=self._opaque))

    async def call(self, code: int, ext: dict[str, Any], body: bytes = b"") -> bytes:
        """One request; the answer's body. Raises RuntimeError when it is no success."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.send(code, ext, body, lambda words: future.done() or future.set_result(words))
        async with asyncio.timeout(LIMIT_S):
            if words := await future:
                raise RuntimeError(f"request {code} was answered: {words}")
        return self.body

    def data_received(self, data: bytes) -> None:
        """Frames, whole or in part."""
        held = self._data
        held += data
        at = 0
        while len(held) - at >= 4:
            end = at + 4 + int.from_bytes(held[at : at + 4], "big")
            if end > len(held):
                break
            middle = at + 8 + int.from_bytes(held[at + 5 : at + 8], "big")
            self.frame_received(bytes(held[at + 8 : middle]), bytes(held[middle:end]))
            at = end
        if at:
            del held[:at]

    def frame_received(self, header: bytes, body: bytes) -> None:
        """An answer, or a request of the server."""
        head = self._read(header)
        if head.flag & 1:
            self.body = body
            done = self._waiting.pop(head.opaque)
            done("" if head.code == 0 else f"{head.code} {head.remark}")
        else:
            self.told(head)


async def connected(
    address: tuple[str, int],
    count: int,
    make: Callable[[int], Any],
    context: ssl.SSLContext | None = None,
) -> list[Any]:
    """So many protocols with connections; `make` gives one by its number."""
    loop, found = asyncio.get_running_loop(), []

    async def one(number: int) -> Any:
        made = await loop.create_connection(lambda: make(number), *address, ssl=context)
        return made[1]

    for first in range(0, count, 50):
        some = [one(number) for number in range(first, min(first + 50, count))]
        async with asyncio.timeout(LIMIT_S):
            found += await asyncio.gather(*some)
    return found


@dataclass(frozen=True)
class Paced:
    """What one load found; latencies in ms from the moment a request was due. `refused` says how many answers were no success,
    `first` what the first of them was."""

    count: int
    rate: float
    p99_ms: float
    most_ms: float
    refused: int
    first: str


async def paced(connections: Sequence[Asking], rate: float, seconds: float) -> Paced:
    """Ask `rate` times a second, in turn over the connections."""
    spans: list[float] = []
    failed: list[str] = []
    total = int(rate * seconds)

    def ask(number: int, due: float) -> None:
        def done(words: str) -> None:
            spans.append(time.perf_counter() - due)
            if words:
                failed.append(words)

        connections[number % len(connections)].ask(number, done)

    began, number = time.perf_counter(), 0
    while number < total:
        now = time.perf_counter()
        while number < total and (due := began + number / rate) <= now:
            ask(number, due)
            number += 1
        await asyncio.sleep(TICK_S)
    ends = time.perf_counter() + LIMIT_S
    while len(spans) < number and time.perf_counter() < ends:
        await asyncio.sleep(TICK_S)
    failed += ["no answer in time"] * (number - len(spans))
    return summed(spans, time.perf_counter() - began, failed)


async def closed(connections: Sequence[Asking], inflight: int, seconds: float) -> Paced:
    """As many a second as there is room for: each connection has `inflight` requests on their way."""
    spans: list[float] = []
    failed: list[str] = []
    began, left = time.perf_counter(), len(connections) * inflight
    number = 0

    def ask(connection: Asking) -> None:
        nonlocal number
        number += 1
        since = time.perf_counter()

        def done(words: str) -> None:
            nonlocal left
            now = time.perf_counter()
            spans.append(now - since)
            if words:
                failed.append(words)
            if now - began < seconds:
                ask(connection)
            else:
                left -= 1

        connection.ask(number, done)

    for connection in connections:
        for _ in range(inflight):
            ask(connection)
    async with asyncio.timeout(seconds + LIMIT_S):
        while left:
            await asyncio.sleep(TICK_S)
    return summed(spans, time.perf_counter() - began, failed)


def summed(spans: list[float], seconds: float, failed: list[str]) -> Paced:
    """Figures of latencies in seconds, and of the words of those that failed."""
    found, first = sorted(span * 1000 for span in spans), "".join(failed[:1])
    p99 = found[int(len(found) * 0.99)]
    return Paced(len(found), len(found) / seconds, p99, found[-1], len(failed), first)
