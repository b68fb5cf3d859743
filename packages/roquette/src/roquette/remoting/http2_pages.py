"""A port's pages over HTTP/2, beside the gRPC of one connection. `http1.py` is the same over HTTP/1.1."""

from collections.abc import Callable
from functools import partial

from roquette.remoting.http_pages import HttpPages, HttpReply, host_said
from roquette.remoting.http_stream import PageStream
from roquette.wire.grpc import NOT_GRPC, Metadata, not_grpc
from roquette.wire.http2 import CANCEL, Http2


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
        said = fields.get(b":authority") or fields.get(b"host", b"")
        try:
            host = host_said(said.decode("latin-1").lower())
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
