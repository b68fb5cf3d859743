"""Two ends of TLS joined by hand, without a network: every byte passes through the test."""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from tests.remoting.tls_world import client_context, server_context

from roquette.base.logs import RateLimited
from roquette.remoting.tls import TlsStream, log
from roquette_testing.embedded import ManualClock

Way = Callable[[str, bytes], Iterable[bytes]]


@lru_cache(maxsize=4)
def contexts(twelve: bool, asks: bool) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return client_context("client" if asks else "", twelve=twelve), server_context(asks=asks)


class Raw(asyncio.Transport):
    """What lies below one end: keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.9", 1), "sockname": ("10.0.0.1", 2)})
        self.out: list[bytes] = []
        self.closing = self.aborted = self.paused = self.ended = False

    def write(self, data: Any) -> None:
        assert data and not self.closing
        self.out.append(bytes(data))

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True
        self.out.clear()

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Talk(asyncio.Protocol):
    """What is spoken inside: keeps what it gets; `first` is said at once."""

    def __init__(self, first: bytes = b"") -> None:
        self.first = first
        self.got = b""
        self.calls = 0
        self.lost: list[Exception | None] = []
        self.eof = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self.first)

    def data_received(self, data: bytes) -> None:
        assert data and not self.lost
        self.got += data
        self.calls += 1

    def eof_received(self) -> bool:
        self.eof = True
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


class Couple:
    """A client and a server of TLS; `way(who, data)` gives the pieces in which what `who` wrote arrives."""

    def __init__(
        self,
        way: Way = lambda who, data: [data],
        *,
        twelve: bool = False,
        asks: bool = False,
        says: bytes = b"hello",
    ) -> None:
        noise = RateLimited(log, ManualClock())
        self.way = way
        self.raws = {"client": Raw(), "server": Raw()}
        self.talks = {"client": Talk(says), "server": Talk(says)}
        self.results: dict[str, list[Exception | None]] = {"client": [], "server": []}
        self.gone: list[str] = []
        ends = contexts(twelve, asks)
        self.streams = {
            who: TlsStream(*one, noise, self.results[who].append)
            for who, one in {
                "client": (ends[0], lambda: self.talks["client"], "10.0.0.1"),
                "server": (ends[1], lambda: self.talks["server"], None),
            }.items()
        }
        self.streams["server"].connection_made(self.raws["server"])
        self.streams["client"].connection_made(self.raws["client"])

    def pump(self) -> None:
        """Carry bytes until nobody says anything; a connection that one end closes ends for the other."""
        while any(raw.out for raw in self.raws.values()):
            for who, other in (("client", "server"), ("server", "client")):
                raw, self.raws[who].out = self.raws[who].out, []
                for piece in self.way(who, b"".join(raw)):
                    if piece and other not in self.gone:
                        self.streams[other].data_received(piece)
        for who, other in (("client", "server"), ("server", "client")):
            if self.raws[who].closing and who not in self.gone:
                self.gone.append(who)
                self.streams[who].connection_lost(None)
                if other not in self.gone:
                    self.streams[other].eof_received()
                    self.raws[other].closing = True
                    self.pump()

    def cut(self) -> None:
        """The connection is reset for both."""
        for who, stream in self.streams.items():
            if who not in self.gone:
                self.gone.append(who)
                self.raws[who].closing = True
                stream.connection_lost(ConnectionResetError(104, "connection reset"))
