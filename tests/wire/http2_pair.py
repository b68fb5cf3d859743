"""A client of HTTP/2 in memory (libnghttp2's), at a server's end of either library."""

from collections.abc import Callable
from random import Random
from typing import Any

import hpack
import ngh2
from tests.wire.http2_h2 import H2Connection

from roquette.wire.http2 import Event, Http2, Http2Limits
from roquette.wire.http2_ngh2 import NgConnection

LIBRARIES: dict[str, Callable[[Http2Limits], Http2]] = {"ngh2": NgConnection, "h2": H2Connection}
REQUEST = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/a/B"),
    (b":authority", b"x"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
OK = ((b":status", b"200"),)
END = ((b"grpc-status", b"0"),)


class Pair:
    """A client, a server, and the bytes between them."""

    def __init__(
        self,
        library: str,
        limits: Http2Limits | None = None,
        settings: dict[Any, int] | None = None,
        split: Random | None = None,
    ) -> None:
        self.split = split
        self.sent = b""  # all the client has said
        self.server = LIBRARIES[library](limits or Http2Limits())
        self.client = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration())
        self.client.initiate_connection(settings)
        for _ in range(3):
            self.swap()

    def up(self, data: bytes | None = None) -> list[Event]:
        """The client's bytes reach the server, in pieces if they are split."""
        data = self.client.data_to_send() if data is None else data
        self.sent += data
        if self.split is None:
            return self.server.receive_data(data)
        events: list[Event] = []
        while data:
            size = self.split.choice((1, 2, 9, 30, 200, 5_000))
            events += self.server.receive_data(data[:size])
            data = data[size:]
        return events

    def down(self) -> list[Any]:
        """The server's bytes reach the client."""
        self.client.receive_data(self.server.data_to_send())
        found: list[Any] = self.client.events()
        return found

    def swap(self) -> tuple[list[Event], list[Any]]:
        """Both."""
        return self.up(), self.down()


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame, of any kind."""
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload


def block(fields: tuple[tuple[bytes, bytes], ...] = REQUEST) -> bytes:
    """A header block that does not depend on others."""
    return bytes(hpack.Encoder().encode([(n, v) for n, v in fields]))


def frames(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Kind, flags, stream, payload of each."""
    found, pos = [], 0
    while pos + 9 <= len(data):
        size = int.from_bytes(data[pos : pos + 3], "big")
        stream = int.from_bytes(data[pos + 5 : pos + 9], "big")
        found.append((data[pos + 3], data[pos + 4], stream, data[pos + 9 : pos + 9 + size]))
        pos += 9 + size
    return found
