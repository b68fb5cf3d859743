"""The little HTTP/1.1 that a port serves its pages with. `http.py` is the other end."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple, cast

from roquette.base.descriptors import words_of
from roquette.errors import ConfigError
from roquette.remoting.http_pages import HttpPages, HttpReply, PageStream, host_of_authority
from roquette.wire.grpc import NOT_GRPC, Metadata, not_grpc
from roquette.wire.http2 import CANCEL, Http2

# The end of a connection whose peer shall read a last word.


PARTING_S: Final = 3.0  # for the peer to read it and to close
MOST_IGNORED: Final = 65_536  # bytes that may still come


def part(transport: asyncio.Transport, word: bytes, gone: Callable[[], None]) -> None:
    """Send a last word and read no more. To close at once would reset the connection where bytes are unread, and the
    word with it. `gone` is called when it has ended."""
    transport.set_protocol(_Parting(transport, gone))
    transport.write(word)
    if transport.can_write_eof():
        transport.write_eof()
    else:
        transport.close()


class _Parting(asyncio.Protocol):
    def __init__(self, transport: asyncio.Transport, gone: Callable[[], None]) -> None:
        self._transport = transport
        self._gone = gone
        self._ignored = 0
        self._timer = asyncio.get_running_loop().call_later(PARTING_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        self._ignored += len(data)
        if self._ignored > MOST_IGNORED:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._gone()


MOST_HEAD: Final = 16 << 10  # bytes of request line and headers
REQUEST_S: Final = 10.0  # for a request to arrive, and between two of one connection

_WORDS: Final = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class HttpRequest(NamedTuple):
    """The head of a request.

    Attributes:
        kept: whether another request may follow on the connection.
        chunks: whether the answer may come in chunks: HTTP/1.1.
        host: whom it wants to ask, without the port; "": it does not say.
    """

    method: str
    path: str
    kept: bool
    chunks: bool = False
    host: str = ""


class HttpRefused(Exception):
    """Refusal of bytes that are no request that is understood."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def read_request(data: bytes) -> tuple[HttpRequest, int] | None:
    """The request that `data` begins with, and the size of its head; None: it is not whole.

    Raises:
        HttpRefused: it is none.
    """
    end = data.find(b"\r\n\r\n", 0, MOST_HEAD)
    if end < 0:
        if len(data) >= MOST_HEAD:
            raise HttpRefused(431, f"more than {MOST_HEAD} bytes of request line and headers")
        return None
    first, *lines = data[:end].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/"):
        raise HttpRefused(400, "this is no request line of HTTP/1.1")
    if words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise HttpRefused(505, "HTTP/1.1 is spoken here")
    fields = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise HttpRefused(400, "a header line is not of the form name: value")
        fields[name.lower()] = value.strip().lower()
    body = fields.get("content-length", "0") != "0" or "transfer-encoding" in fields
    wish = fields.get("connection", "")
    kept = not body and (wish == "keep-alive" or (words[2] == "HTTP/1.1" and wish != "close"))
    try:
        host = host_of_authority(fields.get("host", ""))
    except ValueError:
        raise HttpRefused(400, "Host is no name or address") from None
    chunks = words[2] == "HTTP/1.1"
    request = HttpRequest(words[0], words[1].partition("?")[0], kept, chunks, host)
    return request, end + 4


class HttpSession(asyncio.Protocol):
    """One connection over HTTP/1.1.

    Args:
        gone: it has ended.
    """

    def __init__(self, pages: HttpPages, local: bool, gone: Callable[[], None]) -> None:
        self._pages = pages
        self._local = local
        self._stream: PageStream | None = None
        self._gone = gone
        self._data = b""
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """True if it is the other end's turn to ask."""
        return self._stream is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._wait()

    def _wait(self) -> None:
        self._stop_timer()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(REQUEST_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._stream is not None:
            if len(self._data) > MOST_HEAD:
                self._transport.abort()
            return
        self._read()

    def _read(self) -> None:
        while self._data:
            try:
                found = read_request(self._data)
            except HttpRefused as refused:
                reply = HttpReply(refused.status, f"{refused}\n".encode())
                self._answer(reply, HttpRequest("", "", False))
                return
            if found is None:
                return
            request, size = found
            self._data = self._data[size:]
            self._serve(request)
            if not request.kept or self._stream is not None:
                return
            if self._transport.get_write_buffer_size():  # it does not read its answers
                self._transport.abort()
                return
            self._wait()

    def _serve(self, request: HttpRequest) -> None:
        reply = self._pages.reply(request.method, request.path, request.host, self._local)
        if reply.stream is None:
            self._answer(reply, request)
            return
        self._stop_timer()
        chunks = "Transfer-Encoding: chunked\r\n" if request.chunks else ""
        kept = request.kept and request.chunks
        head = (
            f"HTTP/1.1 200 OK\r\nContent-Type: {reply.kind}\r\n{chunks}"
            "X-Content-Type-Options: nosniff\r\n"
            f"Connection: {'keep-alive' if kept else 'close'}\r\n\r\n"
        )
        self._transport.write(head.encode())
        write = self._write_chunk if request.chunks else self._transport.write
        done = partial(self._streamed, request.chunks, kept)
        self._stream = PageStream(reply.stream, write, self._transport.abort, done)

    def _write_chunk(self, piece: bytes) -> None:
        self._transport.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    def _streamed(self, chunks: bool, kept: bool) -> None:
        self._stream = None
        if chunks:
            self._write_chunk(b"")
        if not kept:
            part(self._transport, b"", self._gone)
            return
        self._wait()
        self._read()

    def pause_writing(self) -> None:
        if self._stream is not None:
            self._stream.pause()

    def resume_writing(self) -> None:
        if self._stream is not None:
            self._stream.resume()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _answer(self, reply: HttpReply, request: HttpRequest) -> None:
        status, body = reply.status, reply.body
        allow = "Allow: GET, HEAD\r\n" if status == 405 else ""
        head = (
            f"HTTP/1.1 {status} {_WORDS[status]}\r\nContent-Type: {reply.kind}\r\n"
            f"Content-Length: {len(body)}\r\nX-Content-Type-Options: nosniff\r\n{allow}"
            f"Connection: {'keep-alive' if request.kept else 'close'}\r\n\r\n"
        )
        data = head.encode() + (b"" if request.method == "HEAD" else body)
        if request.kept:
            self._transport.write(data)
            return
        self._stop_timer()
        part(self._transport, data, self._gone)

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_timer()
        if self._stream is not None:
            self._stream.close()
        self._gone()


# A port's pages over HTTP/2, beside the gRPC of one connection. `http1.py` is the same over HTTP/1.1.


class Http2Pages:
    """Answers to what is not gRPC, on one connection.

    Args:
        pages: None: whoever asks for one is told what is spoken here.
        local: whether the peer is on this machine.
        on_piece: something is to be written on a stream: so many bytes, and whether that is all of it.
    """

    def __init__(
        self,
        pages: HttpPages | None,
        http: Http2,
        local: bool,
        on_piece: Callable[[int, int, bool], None],
    ) -> None:
        self._pages = pages
        self._http = http
        self._local = local
        self._on_piece = on_piece
        self._streams: dict[int, PageStream] = {}

    def answer(self, stream: int, fields: Metadata) -> None:
        """A request of these fields has come."""
        method = fields.get(b":method", b"")
        head, reply = not_grpc(method), HttpReply(0, NOT_GRPC)
        if self._pages is not None and method in (b"GET", b"HEAD"):
            reply = self._reply(self._pages, method, fields)
            head = (
                (b":status", b"%d" % reply.status),
                (b"content-type", reply.kind.encode()),
                (b"x-content-type-options", b"nosniff"),
            )
        if reply.stream is not None:
            self._http.send_headers(stream, head)
            self._streams[stream] = PageStream(
                reply.stream,
                partial(self._write, stream),
                partial(self._abort, stream),
                partial(self._whole, stream),
            )
            return
        if method == b"HEAD":
            self._http.send_headers(stream, head, end=True)
        else:
            self._http.respond(stream, head, reply.body, ())
        self._on_piece(stream, len(reply.body), True)

    def _reply(self, pages: HttpPages, method: bytes, fields: Metadata) -> HttpReply:
        path = fields.get(b":path", b"").decode("latin-1").partition("?")[0]
        authority = fields.get(b":authority") or fields.get(b"host", b"")
        try:
            host = host_of_authority(authority.decode("latin-1").lower())
        except ValueError:
            return HttpReply(400, b"the authority is no name or address\n")
        return pages.reply(method.decode(), path, host, self._local)

    def _write(self, stream: int, piece: bytes) -> None:
        self._http.send_data(stream, piece)
        self._on_piece(stream, len(piece), False)

    def _whole(self, stream: int) -> None:
        del self._streams[stream]
        self._http.send_trailers(stream, ())
        self._on_piece(stream, 0, True)

    def _abort(self, stream: int) -> None:
        """It takes too long, or cannot be made: the peer must not take a part for all."""
        self.gone(stream)
        self._http.reset(stream, CANCEL)
        self._on_piece(stream, 0, True)

    def gone(self, stream: int) -> None:
        """Nobody wants the answer on a stream any more."""
        page = self._streams.pop(stream, None)
        if page is not None:
            page.close()

    def close(self) -> None:
        """The connection ends."""
        for stream in list(self._streams):
            self.gone(stream)


# A port that serves HTTP pages and nothing else: metrics and health for those who watch servers.


MOST: Final = 32  # connections; of more the one that has asked nothing for longest is closed


class HttpListener:
    """A port over `pages`, for every peer that can reach it.

    Attributes:
        port: the one it listens on; 0 before `start`.
    """

    def __init__(self, pages: HttpPages) -> None:
        self.port = 0
        self._pages = pages
        self._server: asyncio.AbstractServer | None = None
        self._open: dict[
            _Session, None
        ] = {}  # those that wait for a request: in the order of waiting

    async def start(self, address: str, context: ssl.SSLContext | None = None) -> None:
        """Listen on host:port, over TLS with a context; port 0 takes a free one. Raises ConfigError when it cannot."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._session, host.strip("[]"), int(port), ssl=context
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {address}: {words_of(error)}; set another port, or none"
            ) from None
        self.port = int(port)
        for bound in getattr(self._server, "sockets", None) or ():
            self.port = int(bound.getsockname()[1])

    def _session(self) -> asyncio.Protocol:
        session = _Session(self._pages, self._open)
        self._open[session] = None
        return session

    async def close(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        for session in list(self._open):
            session.abort()


@asynccontextmanager
async def served_health(address: str, about: str, ready: Callable[[], str]) -> AsyncIterator[None]:
    """/healthz and /readyz meanwhile, for everybody who reaches host:port; "": nowhere. Raises what `HttpListener.start` does.

    Args:
        ready: why it is not; "": it is.
    """
    if not address:
        yield
        return
    listener = HttpListener(HttpPages(about=about, anyone=True, check_readiness=ready))
    await listener.start(address)
    try:
        yield
    finally:
        await listener.close()


class _Session(HttpSession):
    def __init__(self, pages: HttpPages, others: "dict[_Session, None]") -> None:
        super().__init__(pages, True, lambda: others.pop(self, None))
        self._others = others

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self._others) > MOST:
            next((one for one in self._others if one.waits), self).abort()

    def _wait(self) -> None:
        super()._wait()
        if self in self._others:
            del self._others[self]
            self._others[self] = None

    def abort(self) -> None:
        """End the connection."""
        self._transport.abort()
