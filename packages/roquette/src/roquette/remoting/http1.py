"""The little HTTP/1.1 that a port serves its pages with. `http.py` is the other end."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, cast

from roquette.remoting.http_pages import HttpPages, HttpReply, host_said
from roquette.remoting.http_stream import PageStream
from roquette.remoting.parting import part

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
        host = host_said(fields.get("host", ""))
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
