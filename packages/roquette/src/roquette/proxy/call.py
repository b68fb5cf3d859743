"""A call of a client: one rpc under way, and who makes it."""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf.message import Message

from roquette.proxy.answers import Asks
from roquette.proxy.statuses import GRPC_OK, status
from roquette.remoting.request import Peer

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
        streams: bool = False,
        listens: bool = False,
    ) -> None:
        self.name = name
        self.request = request
        self.reply = reply
        self.serve = serve
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
