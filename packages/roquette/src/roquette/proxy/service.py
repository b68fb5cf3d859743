"""The proxy: its rpcs, gathered from its parts, and the one place where a call is begun."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message
from mypy_extensions import mypyc_attr

from roquette.base.clock import Clock
from roquette.base.logs import RateLimited
from roquette.errors import Refused
from roquette.proxy.statuses import (
    GRPC_INTERNAL,
    GRPC_INVALID_ARGUMENT,
    GRPC_OK,
    RpcError,
    code_of,
    status,
)
from roquette.remoting.request import Peer
from roquette.wire.proto.definition_pb2 import Code

# Answers of brokers, and how they find back to who asked, by a number.


@mypyc_attr(acyclic=True, free_list_len=1)
class BrokerAnswer:
    """A broker's answer; `ext` is the JSON object of its ext fields, or empty."""

    __slots__ = ("body", "code", "ext", "remark")

    def __init__(self, code: int, remark: str, ext: bytes, body: bytes) -> None:
        self.code: int = code
        self.remark: str = remark
        self.ext: bytes = ext
        self.body: bytes = body


Then = Callable[[BrokerAnswer], None]


class Asks:
    """The requests of one connection; `answered` is what its `InnerWire` calls."""

    __slots__ = ("_next", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[int, Then] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, then: Then) -> int:
        """Wait for an answer; returns its number, the `opaque` of the request."""
        number = self._next
        self._next = (number + 1) & 0x7FFFFFFF
        self._waiting[number] = then
        return number

    def drop(self, number: int) -> bool:
        """Wait no more; False: it was answered."""
        return self._waiting.pop(number, None) is not None

    def answered(self, number: int, code: int, remark: str | None, ext: bytes, body: bytes) -> None:
        """An answer has come; one that nobody waits for is dropped."""
        then = self._waiting.pop(number, None)
        if then is not None:
            then(BrokerAnswer(code, remark or "", ext, body))


# A call of a client: one rpc under way, and who makes it.


Q = TypeVar("Q", bound=Message)


class Caller:
    """One client on one connection.

    Attributes:
        peer: its connection, as the dispatcher knows it. asks: what that has under way inside.
        language, version, protocol: as it says, of any form.
        namespace: of its calls, or "".
        authority: the `:authority` it used: host and port, as it reaches us.
        account: who it is, as far as that is proven; None: nobody asks.
    """

    __slots__ = (
        "account", "asks", "authority", "client_id", "language", "namespace", "peer", "protocol", "version",
    )  # fmt: skip

    def __init__(self, peer: Peer, client_id: str, asks: Asks) -> None:
        self.peer = peer
        self.asks = asks
        self.client_id = client_id
        self.language = ""
        self.version = ""
        self.protocol = ""
        self.namespace = ""
        self.authority = ""
        self.account: str | None = None


class Stream(Protocol):
    """A call's way back: the session it came over. Nothing happens for a call that is over."""

    def respond(self, stream_id: int, message: bytes) -> None:
        """The one message of the reply, and the end."""

    def send(self, stream_id: int, messages: list[bytes]) -> None:
        """Messages of a reply that goes on."""

    def finish(self, stream_id: int, status: int, text: str) -> None:
        """The end, with a status of gRPC's."""


class Rpc(Generic[Q]):
    """One rpc: its messages, and who serves it.

    Args:
        name: as in the protocol, without the service.
        serve: gets the call and its first message; raises RpcError, Refused, or ends the call later.
        plain: serves a first message as it came, if it is an ordinary one; False: `serve` must. It is asked where no
            `Proxy.gate` judges messages.
        streams: the reply may have several messages (`RpcCall.send`).
        listens: the request may have several messages (`RpcCall.on_message`).
    """

    def __init__(
        self,
        name: str,
        request: type[Q],
        reply: Callable[..., Message],
        serve: Callable[["RpcCall", Q], None],
        *,
        plain: Callable[["RpcCall", bytes], bool] | None = None,
        streams: bool = False,
        listens: bool = False,
    ) -> None:
        self.name = name
        self.request = request
        self.reply = reply
        self.serve = serve
        self.plain = plain
        self.streams = streams
        self.listens = listens


class RpcCall:
    """One rpc of a client under way.

    Attributes:
        arrived_ms, deadline_ms: steady; the deadline is None when the client set none. now_ms: wall time of its arrival.
        begun: a call that listens has had its first message.
        size: bytes of its first message.
        over: it was answered, or nobody waits any more.
        on_cancel: called once when the client resets the call, its connection is lost, its deadline has passed, or it is
            ended because something that came for it is malformed or failed.
        on_message: gets further messages of a call that listens. on_end: the client says nothing more.
    """

    __slots__ = (
        "arrived_ms", "begun", "caller", "deadline_ms", "now_ms", "on_cancel", "on_end", "on_message", "over",
        "rpc", "size", "stream", "stream_id",
    )  # fmt: skip

    def __init__(self, caller: Caller, rpc: Rpc[Any], stream: Stream, stream_id: int) -> None:
        self.caller = caller
        self.rpc = rpc
        self.stream = stream
        self.stream_id = stream_id
        self.arrived_ms = 0
        self.now_ms = 0
        self.deadline_ms: int | None = None
        self.begun = False
        self.size = 0
        self.over = False
        self.on_cancel: Callable[[], None] | None = None
        self.on_message: Callable[[Message], None] | None = None
        self.on_end: Callable[[], None] | None = None

    def reply(self, message: Message) -> None:
        """Answer with the one message of the reply."""
        if not self.over:
            self.over = True
            self.stream.respond(self.stream_id, message.SerializeToString())

    def reply_bytes(self, message: bytes) -> None:
        """The same with a message that is serialized."""
        if not self.over:
            self.over = True
            self.stream.respond(self.stream_id, message)

    def refuse(self, code: int, text: str) -> None:
        """Answer with a reply that has nothing but a status."""
        self.reply(self.rpc.reply(status=status(code, text)))

    def send(self, *messages: Message) -> None:
        """Send messages of a reply that goes on, in one write."""
        if not self.over:
            self.stream.send(self.stream_id, [one.SerializeToString() for one in messages])

    def send_bytes(self, messages: list[bytes]) -> None:
        """The same with messages that are serialized."""
        if not self.over:
            self.stream.send(self.stream_id, messages)

    def finish(self, grpc: int = GRPC_OK, text: str = "") -> None:
        """End a call that streams, or any call with an error of gRPC's."""
        if not self.over:
            self.over = True
            self.stream.finish(self.stream_id, grpc, text)

    def broken(self, end: Callable[[], None]) -> None:
        """It cannot go on: `end` answers it, and who serves it hears that nobody waits any more."""
        if not self.over:
            undo, self.on_cancel = self.on_cancel, None
            end()
            if undo is not None:
                undo()

    def cancelled(self) -> None:
        """Nobody waits any more (called by the session)."""
        if not self.over:
            self.over = True
            if self.on_cancel is not None:
                self.on_cancel()


log = logging.getLogger("roquette.proxy")

SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
FAILED: Final = "the request failed inside the server, whose log says why"


class ProxyBeat(NamedTuple):
    """Work that comes again and again."""

    name: str
    seconds: float
    step: Callable[[], Awaitable[object] | None]


@mypyc_attr(allow_interpreted_subclasses=True)
class Part:
    """One thing the proxy does, with all that belongs to it; it overrides what it needs."""

    def rpcs(self) -> Iterable[Rpc[Any]]:
        """The rpcs it serves."""
        return ()

    def beats(self) -> Iterable[ProxyBeat]:
        """Return the work that is done again and again."""
        return ()

    def asked(
        self,
        peer: Peer | None,
        code: int,
        ext: bytes,
        body: bytes,
        answer: Callable[[BrokerAnswer], None],
    ) -> bool:
        """A broker asks clients something (CHECK_TRANSACTION_STATE and its kin); False: not this part's.

        Args:
            peer: the connection whose clients are asked; None: any that fits.
            answer: takes what the client says, at most once; nothing happens for what needs no answer.
        """
        return False

    def connection_lost(self, peer: Peer) -> None:
        """A connection has ended; its calls were cancelled before."""

    def stop(self) -> None:
        """The server stops: end what waits, give back what is held."""


class Proxy:
    """All rpcs of one server.

    Attributes:
        gate: asked with each message of a call before it is served; raises RpcError. None: everybody may everything.
    """

    def __init__(self, parts: list[Part], clock: Clock) -> None:
        self.parts = parts
        self.crashed = 0
        self.gate: Callable[[RpcCall, Any], None] | None = None
        self._noise = RateLimited(log, clock)
        self.rpcs = {f"{SERVICE}{rpc.name}": rpc for part in parts for rpc in part.rpcs()}

    def begin(self, call: RpcCall, message: bytes) -> None:
        """Serve a call's first message; it is answered now or later."""
        try:
            self._serve(call, message)
        except Exception as error:  # noqa: BLE001 - a defect of one call ends no server
            self._break(call, error)

    def go_on(self, call: RpcCall, message: bytes) -> None:
        """A further message of a call that listens."""
        if call.on_message is not None and not call.over:
            self.guarded(call, lambda: self._take(call, message))

    def _take(self, call: RpcCall, message: bytes) -> None:
        request = call.rpc.request.FromString(message)
        if self.gate is not None:
            self.gate(call, request)
        if call.on_message is not None:
            call.on_message(request)

    def _serve(self, call: RpcCall, message: bytes) -> None:
        rpc = call.rpc
        plain = rpc.plain
        if (
            plain is not None
            and self.gate is None
            and call.caller.client_id
            and plain(call, message)
        ):
            return
        request = rpc.request.FromString(message)
        if not call.caller.client_id:
            raise RpcError(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
        if self.gate is not None:
            self.gate(call, request)
        rpc.serve(call, request)

    def guarded(self, call: RpcCall, work: Callable[[], object]) -> None:
        """Do something for a call; an error ends it, and nothing else."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - see `begin`
            self._break(call, error)

    def _break(self, call: RpcCall, error: Exception) -> None:
        """A call ends with an error."""
        name = call.rpc.name
        if isinstance(error, DecodeError):
            text = f"the message is not a {call.rpc.request.__name__}"
            call.broken(lambda: call.finish(GRPC_INTERNAL, text))
            return
        if isinstance(error, RpcError):
            known = error
        elif isinstance(error, Refused):
            known = RpcError(code_of(error.code), error.remark)
        else:
            self.crashed += 1
            self._noise.warning(f"rpc{name}", "rpc failed name=%s error=%r", name, error)
            log.debug("rpc failed", exc_info=error)
            known = RpcError(Code.INTERNAL_SERVER_ERROR, FAILED)
        call.broken(lambda: fail(call, known))

    def asked(
        self,
        peer: Peer | None,
        code: int,
        ext: bytes,
        body: bytes,
        answer: Callable[[BrokerAnswer], None],
    ) -> bool:
        """A broker asks clients something: the first part that knows it does it (`Part.asked`)."""
        return any(part.asked(peer, code, ext, body, answer) for part in self.parts)

    def connection_lost(self, peer: Peer) -> None:
        """A connection has ended; its calls were cancelled before."""
        for part in self.parts:
            part.connection_lost(peer)

    def stop(self) -> None:
        """The server stops: end what waits, give back what is held."""
        for part in self.parts:
            part.stop()


def fail(call: RpcCall, error: RpcError) -> None:
    """End a call with an error: a reply of its kind, or gRPC's status where the error names one."""
    if error.grpc != GRPC_OK or call.rpc.listens:
        theirs = 40_000 <= error.code < 50_000
        call.finish(error.grpc or (GRPC_INVALID_ARGUMENT if theirs else GRPC_INTERNAL), error.text)
    elif call.rpc.streams:
        call.send(call.rpc.reply(status={"code": error.code, "message": error.text}))
        call.finish()
    else:
        call.refuse(error.code, error.text)
