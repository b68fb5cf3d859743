"""A gRPC connection: HTTP/2 below, calls of the proxy above, a `Peer` of the dispatcher beside.

No task and no timer of its own: `Sessions.beat` looks after deadlines, silence and idleness.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from roquette.errors import ConnectError, RemoteProtocolError
from roquette.proxy.callers import Callers
from roquette.proxy.service import Asks, BrokerAnswer, RpcCall, fail
from roquette.proxy.serving import Serving, keep_half
from roquette.proxy.statuses import GRPC_INTERNAL, GRPC_UNAVAILABLE, GRPC_UNIMPLEMENTED, RpcError
from roquette.remoting.account import SLOWEST
from roquette.remoting.dispatcher import Dispatcher
from roquette.remoting.door import is_local
from roquette.remoting.http1 import Http2Pages
from roquette.remoting.http_pages import HttpPages
from roquette.remoting.request import ANSWERS, Peer
from roquette.remoting.transport import InnerWire, hang_up, host_of
from roquette.wire.codes import ResponseCode
from roquette.wire.command import Command
from roquette.wire.grpc import (
    RESPONSE,
    TRAILERS,
    Messages,
    MessageTooLarge,
    Metadata,
    NotCompressible,
    Unpacked,
    ending,
    prefixed,
    timeout_ms,
    trailers_only,
    whole,
)
from roquette.wire.http2 import (
    CANCEL,
    CHANGED,
    DATA,
    ENHANCE_YOUR_CALM,
    GONE,
    MOST_STREAMS,
    OPENED,
    PONG,
    Fields,
    Flood,
    Floods,
    Http2,
    Http2Limits,
)
from roquette.wire.proto.definition_pb2 import Code

# Memory of its server that a gRPC connection keeps, and whether its peer goes on taking its answers. HOT.


CALL: Final = 2_048  # bytes of an open call, or of one whose answer waits, beside its message
STALLED_S: Final = 60.0  # a peer may move less than `SLOWEST` bytes a second of its answers so long


class Backlog:
    """Of one connection.

    Attributes:
        stalled: the peer leaves too much unread, so that its further requests wait.
    """

    __slots__ = (
        "_answers", "_counted", "_dispatcher", "_limits", "_looked_s", "_moved", "_peer", "_replied", "stalled",
    )  # fmt: skip

    def __init__(self, dispatcher: Dispatcher, peer: Peer, limits: Http2Limits) -> None:
        self._dispatcher: Dispatcher = dispatcher
        self._peer: Peer = peer
        self._limits: Http2Limits = limits
        self._counted: int = 0
        self._looked_s: float = 0.0
        self._moved: int = 0  # bytes of answers it had taken then
        self._replied: int = 0  # bytes of answers' bodies so far
        self._answers: int = 0  # that may wait
        self.stalled: bool = False

    def add_answer(self, size: int) -> None:
        """An answer, or a part of one, is on its way."""
        self._replied += size
        self._answers += 1

    def measure(self, calls: int, held: int, queued: int) -> bool:
        """Measure what is kept at the end of a turn; True when the peer leaves so much unread that it is cut.

        Args:
            calls: open ones; `held`: bytes of their messages. queued: bytes of answers that wait for its windows.
        """
        if not queued:
            self._answers = 0
        answers: int = min(self._answers, self._limits.streams)
        more: int = CALL * (calls + answers) + held + queued - self._counted
        if more:
            self._counted += more
            if more > 0:
                self._dispatcher.limits.account.take(self._peer, more)
            else:
                self._dispatcher.limits.account.give(self._peer, -more)
        limits = self._limits
        if self.stalled:
            if queued <= limits.queued // 2:
                self.stalled = False
                self.resume()
        elif queued > limits.queued:
            self.stalled = True
            self._looked_s = self._dispatcher.loop.time()
            self._moved = self._replied - queued
            self._dispatcher.pause(self._peer)
        return queued > limits.queued_most

    def resume(self) -> None:
        """One of the two reasons is gone for which requests wait, `stalled` and a full transport: they go on if it was the only one."""
        if not (self.stalled or self._peer.unread & ANSWERS):
            self._dispatcher.resume(self._peer)

    def is_late(self, queued: int, now_s: float) -> bool:
        """Return True when a stalled peer has taken too little for too long, whatever else it sends, or keeps more than its share
        where all together keep too much."""
        if not self.stalled:
            return False
        account = self._dispatcher.limits.account
        if account.total > account.most and self._peer.kept > account.share():
            return True
        if now_s - self._looked_s < STALLED_S:
            return False
        moved: int = self._replied - queued
        late = moved - self._moved < SLOWEST * (now_s - self._looked_s)
        self._looked_s = now_s
        self._moved = moved
        return late


SILENT_S: Final = 60.0  # without a byte of a peer whose calls are open: it is pinged
PONG_S: Final = 20.0  # to answer
NOTICE_S: Final = 1.0  # between two GOAWAYs, unless our ping is answered before (RFC 9113, 6.8)
NO_DEADLINE: Final = 1 << 62
GRPC: Final = b"application/grpc"
GOING: Final = "the server is going away"

_BAD: Final[dict[type[RemoteProtocolError], RpcError]] = {
    MessageTooLarge: RpcError(Code.PAYLOAD_TOO_LARGE, ""),
    NotCompressible: RpcError(Code.BAD_REQUEST, "", GRPC_UNIMPLEMENTED),
}


class GrpcSession(asyncio.Protocol):
    """One connection.

    Attributes:
        calls: those under way, by stream. gone_away: no further ones are taken.
    """

    def __init__(
        self,
        sessions: Serving,
        number: int,
        on_made: Callable[[Peer], None],
        on_lost: Callable[[Peer, Exception | None], None],
        pages: HttpPages | None = None,
    ) -> None:
        self.calls: dict[int, RpcCall] = {}
        self._sessions = sessions
        self._dispatcher = sessions.dispatcher
        self._proxy = sessions.proxy
        self._max_message = sessions.max_message
        self._number = number
        self._on_made = on_made
        self._on_lost = on_lost
        self._shown = pages
        self._pages: Http2Pages
        self._peer: Peer
        self._http: Http2 = sessions.connect(sessions.limits)
        self._asks = Asks()
        self._reading: dict[int, Messages | None] = {}  # streams whose request has not ended
        self._speaking: set[int] = set()  # streams whose reply has begun
        self._callers: Callers
        self._unfinished = 0  # bytes of messages that have not come whole,
        self._held = 0  # and of those of calls under way
        self._backlog: Backlog
        self._soonest_ms = NO_DEADLINE  # no deadline is before
        self._timeout = b""  # the last one, and what it is
        self._timeout_ms = 0
        self._floods = Floods(sessions.limits)
        self._unpacked = Unpacked(sessions.max_message)
        now_s = self._dispatcher.loop.time()
        self._heard_s = self._called_s = now_s
        self._pinged_s: float | None = None
        self._left_s: float | None = None  # when it was told that it is over
        self.gone_away = False
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        there = transport.get_extra_info("peername") or ("0.0.0.0", 0)
        here = transport.get_extra_info("sockname") or ("0.0.0.0", 0)
        peer = self._peer = Peer(
            self._dispatcher, stream, self._number, host_of(there[0], there[1]),
            f"{there[0]}:{there[1]}", InnerWire(self._asks.answered, self._asked, self._drain),
        )  # fmt: skip
        self._pages = Http2Pages(self._shown, self._http, is_local(peer.ip), self._page_written)
        self._callers = Callers(peer, self._asks)
        self._backlog = Backlog(self._dispatcher, peer, self._sessions.limits)
        peer.local = f"{here[0]}:{here[1]}"
        peer.last_active = self._dispatcher.loop.time()
        stream.set_write_buffer_limits(high=1 << 20)
        self._sessions.open_now[id(self)] = self
        self._on_made(peer)
        if not peer.closed:
            self._dispatcher.mark(peer)
            if self._sessions.closing:  # it comes too late: nobody waits for it
                self._go_away()
                self._dispatcher.loop.call_soon(self.hang_up)

    def data_received(self, data: bytes) -> None:
        peer = self._peer
        if peer.closed or self._ended:
            return
        self._heard_s = peer.last_active = self._dispatcher.loop.time()
        self._pinged_s = None
        http = self._http
        try:
            events = http.receive_data(data)
            self._floods.check(http, self._heard_s)
        except RemoteProtocolError as error:
            self._broken(error)
            return
        clock = self._sessions.clock
        steady_ms, now_ms = clock.steady_ms(), clock.now_ms()
        for kind, stream, what, ended in events:
            if kind == OPENED:
                self._open(stream, what, ended, steady_ms, now_ms)
            elif kind == DATA:
                self._data(stream, what, ended)
            elif kind == GONE:
                self._drop_stream(stream)
            elif kind == CHANGED:
                self._floods.changes += 1
            elif kind == PONG and self._left_s is not None:
                self._go_away()
        if self._unfinished or peer.half is not None:
            keep_half(self._dispatcher, peer, self._unfinished, len(data), self._sessions.noise)
        self._dispatcher.mark(peer)

    def _broken(self, error: RemoteProtocolError) -> None:
        """The peer broke the protocol, or a limit: it is told, and its connection ends."""
        if isinstance(error, Flood):
            self._sessions.floods += 1
            self._http.go_away(self._http.last_stream, ENHANCE_YOUR_CALM)
        self._cut(str(error))

    def _cut(self, why: str) -> None:
        self._ended = True
        peer = self._peer
        self._sessions.noise.warning(
            "protocol", "connection closed peer=%s error=%s", peer.remote, why
        )
        if not peer.transport.is_closing():
            peer.transport.write(self._http.data_to_send())
        self._cancel_all()
        hang_up(peer)

    def _cancel_all(self) -> None:
        self._pages.close()
        calls = self.calls
        self.calls = {}
        self._held = 0
        for call in calls.values():
            self._proxy.guarded(call, call.cancelled)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        peer = self._peer
        if not peer.transport.is_closing():
            peer.stop_reading(ANSWERS)
            self._dispatcher.pause(peer)

    def resume_writing(self) -> None:
        peer = self._peer
        if not peer.transport.is_closing():
            peer.read_on(ANSWERS)
            self._backlog.resume()

    def connection_lost(self, error: Exception | None) -> None:
        peer = self._peer
        self._ended = peer.closed = True
        self._dispatcher.drop_parked(peer)
        peer.lost = f"connection to {peer.remote} was lost"
        if len(peer.pending):
            peer.pending.fail_all(ConnectError(peer.lost), peer.remote)
        self._dispatcher.limits.unsent.end(peer)
        self._dispatcher.limits.frames.end(peer)
        self._sessions.open_now.pop(id(self), None)
        self._cancel_all()
        self._backlog.measure(0, 0, 0)
        self._reading.clear()
        try:
            self._proxy.connection_lost(peer)
        finally:
            self._on_lost(peer, error)

    def _drain(self) -> list[bytes]:
        """Return the bytes that may be written: called at the end of the dispatcher's turn."""
        if self._ended:
            return []
        http = self._http
        data = http.data_to_send()
        stuck = self._backlog.measure(len(self.calls), self._held, http.queued())
        if stuck or http.over:
            self._ended = True  # here, so that one end follows, whatever else comes before it
            why = "it does not take its answers" if stuck else http.ended_by()
            self._dispatcher.loop.call_soon(*((self._cut, why) if why else (self.hang_up,)))
        return [data] if data else []

    def _open(self, stream: int, fields: Fields, ended: bool, steady_ms: int, now_ms: int) -> None:
        sessions = self._sessions
        if not ended:
            self._reading[stream] = None
        self._called_s = self._heard_s
        callers = self._callers
        callers.read(fields)
        rpc = None if callers.path is None else sessions.rpcs.get(callers.path)
        if rpc is None or not callers.kind.startswith(GRPC):
            self._turn_away(stream, dict(fields))
            return
        call = RpcCall(callers.caller(fields), rpc, self, stream)
        call.arrived_ms = steady_ms
        call.now_ms = now_ms
        call.size = callers.size
        self._held += call.size
        # Before it is judged: only a call that is known here can be refused.
        self.calls[stream] = call
        try:
            timeout = callers.timeout
            if timeout is not None:
                if timeout != self._timeout:  # a client's calls mostly have the same
                    self._timeout_ms = timeout_ms(timeout)
                    self._timeout = timeout
                deadline = call.deadline_ms = steady_ms + self._timeout_ms
                self._soonest_ms = min(self._soonest_ms, deadline)
            encoding = callers.encoding
            if encoding is not None and encoding != b"identity" and not ended:
                self._reading[stream] = Messages(self._max_message, encoding, self._unpacked)
        except RemoteProtocolError as error:
            call.finish(GRPC_INTERNAL, str(error))
        prove = sessions.prove
        if prove is not None and not call.over:
            self._proxy.guarded(call, lambda: prove(call.caller, dict(fields)))
        if ended:
            call.finish(GRPC_INTERNAL, "the request has no message")

    def _turn_away(self, stream: int, fields: Metadata) -> None:
        """A path or a content type that is not served."""
        if fields.get(b"content-type", b"").startswith(GRPC):
            path = fields.get(b":path", b"").decode("utf-8", "replace")
            self._end(stream, GRPC_UNIMPLEMENTED, f"Method not found: {path[:200].lstrip('/')}")
        else:
            self._pages.answer(stream, fields)

    def _page_written(self, stream: int, size: int, whole: bool) -> None:
        self._backlog.add_answer(size)
        self._close(stream) if whole else self._dispatcher.mark(self._peer)

    def _data(self, stream: int, data: bytes, ended: bool) -> None:
        reading = self._reading
        if stream not in reading:
            return  # of a call that was refused
        reader = reading[stream]
        if ended:
            del reading[stream]
        call = self.calls.get(stream)
        if call is None:
            return
        most = self._max_message
        if ended and reader is None and not call.rpc.listens and whole(data, most):
            self._begin(call, data[5:])
            return
        if reader is None:
            reader = Messages(most)
            if not ended:
                reading[stream] = reader
        try:
            self._piece(call, reader, data, ended)
        except RemoteProtocolError as error:
            bad = _BAD.get(type(error), RpcError(Code.BAD_REQUEST, "", GRPC_INTERNAL))
            known = RpcError(bad.code, str(error), bad.grpc)
            call.broken(lambda: fail(call, known))

    def _piece(self, call: RpcCall, reader: Messages, data: bytes, ended: bool) -> None:
        """A piece of a request's body that is not just one message."""
        before = reader.held
        try:
            messages = reader.feed(data)
        finally:
            self._unfinished += (0 if ended else reader.held) - before
        if ended and reader.pending:
            raise RemoteProtocolError("the request ends within a message")
        if self._unfinished > self._sessions.limits.unfinished:
            raise MessageTooLarge("messages that have not come whole hold too many bytes")
        if call.rpc.listens:
            self._listen(call, messages, ended)
            return
        if reader.first is None and messages:
            first = reader.first = messages.pop(0)
            self._unfinished += 0 if ended else len(first)
        if messages:
            raise RemoteProtocolError("the request has more than one message")
        if ended:
            if reader.first is None:
                raise RemoteProtocolError("the request has no message")
            self._begin(call, reader.first)

    def _listen(self, call: RpcCall, messages: list[bytes], ended: bool) -> None:
        proxy = self._proxy
        for message in messages:
            if call.begun:
                proxy.go_on(call, message)
            else:
                call.begun = True
                self._begin(call, message)
        if ended and not call.over:
            if call.on_end is not None:
                proxy.guarded(call, call.on_end)
            elif not call.begun:
                raise RemoteProtocolError("the request has no message")

    def _drop_stream(self, stream: int) -> None:
        """The peer has reset a stream, or broke it."""
        self._drop_request(stream)
        self._pages.gone(stream)
        self._speaking.discard(stream)
        call = self._remove_call(stream)
        if call is not None:
            self._proxy.guarded(call, call.cancelled)

    def _remove_call(self, stream: int) -> RpcCall | None:
        """A call is over."""
        call = self.calls.pop(stream, None)
        if call is not None:
            self._held -= call.size
        return call

    def _begin(self, call: RpcCall, message: bytes) -> None:
        """Serve a call: what is made of its message may live as long as it does."""
        call.size += len(message)
        self._held += len(message)
        self._proxy.begin(call, message)

    def _drop_request(self, stream: int) -> bool:
        """Drop what has come of a request; whether it has not ended yet."""
        if stream not in self._reading:
            return False
        reader = self._reading.pop(stream)
        if reader is not None:
            self._unfinished -= reader.held
        return True

    def _close(self, stream: int) -> None:
        """The reply is said: the stream is over when it is written."""
        if stream in self._reading:
            self._drop_request(stream)
            self._http.hush(stream)
        self._dispatcher.mark(self._peer)

    def respond(self, stream_id: int, message: bytes) -> None:
        if self._remove_call(stream_id) is not None:
            self._backlog.add_answer(len(message) + 5)
            self._http.respond(stream_id, RESPONSE, prefixed(message), TRAILERS)
            self._close(stream_id)

    def send(self, stream_id: int, messages: list[bytes]) -> None:
        if stream_id not in self.calls:
            return
        if stream_id not in self._speaking:
            self._speaking.add(stream_id)
            self._http.send_headers(stream_id, RESPONSE)
        data = b"".join([prefixed(message) for message in messages])
        self._backlog.add_answer(len(data))
        self._http.send_data(stream_id, data)
        self._dispatcher.mark(self._peer)

    def finish(self, stream_id: int, status: int, text: str) -> None:
        if self._remove_call(stream_id) is not None:
            self._end(stream_id, status, text)

    def _end(self, stream: int, status: int, text: str) -> None:
        if stream in self._speaking:
            self._speaking.discard(stream)
            self._http.send_trailers(stream, ending(status, text))
        else:
            self._http.send_headers(stream, trailers_only(status, text), end=True)
        self._close(stream)

    def _asked(self, opaque: int, code: int, ext: bytes, body: bytes, oneway: bool) -> None:
        def answer(broker_answer: BrokerAnswer) -> None:
            if not oneway:
                command = Command(
                    code=broker_answer.code,
                    flag=1,
                    opaque=opaque,
                    remark=broker_answer.remark or None,
                    body=broker_answer.body,
                )
                # In a later turn: who asked waits from the end of this one on.
                self._dispatcher.loop.call_soon(self._peer.pending.resolve, command)

        if not self._proxy.asked(self._peer, code, ext, body, answer):
            text = f" request type {code} not supported"
            answer(BrokerAnswer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text, b"", b""))

    def look(self, now_s: float, steady_ms: int) -> None:
        """The beat: deadlines, silence, idleness, and the end of a connection that was told to go."""
        peer = self._peer
        if self._ended:
            return
        if self._soonest_ms <= steady_ms:
            self._expire(steady_ms)
        if self._left_s is not None:
            self._go_on_leaving(now_s - self._left_s)
        elif self.calls:
            if peer.unread:
                self._pinged_s = None
            elif self._pinged_s is not None:
                if now_s - self._pinged_s >= PONG_S:
                    self._cut("it does not answer our ping")
                    return
            elif now_s - self._heard_s >= SILENT_S:
                self._pinged_s = now_s
                self._http.ping()
                self._dispatcher.mark(peer)
            self._called_s = now_s
        elif now_s - self._called_s >= self._sessions.settings.grpc_client_idle_time_mills / 1000:
            self.leave(now_s)
        if self._backlog.is_late(self._http.queued(), now_s):
            self._cut("it does not take its answers")

    def _expire(self, steady_ms: int) -> None:
        """Cancel calls whose deadline has passed: their clients have given them up."""
        soonest = NO_DEADLINE
        for stream, call in list(self.calls.items()):
            deadline = call.deadline_ms
            if deadline is None:
                continue
            if deadline <= steady_ms:
                self._drop_stream(stream)
                self._http.reset(stream, CANCEL)
            elif deadline < soonest:
                soonest = deadline
        self._soonest_ms = soonest
        self._dispatcher.mark(self._peer)

    def leave(self, now_s: float) -> None:
        """Tell the peer that this connection ends: it asks elsewhere, and what it has asked is answered."""
        if self._left_s is None and not self._ended:
            self._left_s = now_s
            self._http.go_away(MOST_STREAMS)
            self._http.ping()
            self._dispatcher.mark(self._peer)

    def _go_away(self) -> None:
        """Every request that was on its way has come: no further one is served, and streams that never end do."""
        if self.gone_away:
            return
        self.gone_away = True
        self._http.go_away(self._http.last_stream)
        for call in [call for call in self.calls.values() if call.rpc.listens]:
            self._remove_call(call.stream_id)
            self._proxy.guarded(call, call.cancelled)
            self._end(call.stream_id, GRPC_UNAVAILABLE, GOING)
        self._dispatcher.mark(self._peer)

    def _go_on_leaving(self, since_s: float) -> None:
        if since_s >= NOTICE_S:
            self._go_away()
        if not self.gone_away:
            return
        late = since_s >= self._sessions.settings.grpc_shutdown_time_seconds
        if late or not (self.calls or self._http.queued()):
            self._dispatcher.loop.call_soon(self.hang_up)

    def hang_up(self) -> None:
        """Close the connection."""
        self._ended = True
        self._cancel_all()
        hang_up(self._peer)
