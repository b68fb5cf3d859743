"""The proxy: its rpcs, gathered from its parts, and the one place where a call is begun."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError
from mypy_extensions import mypyc_attr

from roquette.base.clock import Clock
from roquette.base.logs import RateLimited
from roquette.errors import Refused
from roquette.proxy.answers import BrokerAnswer
from roquette.proxy.call import Rpc, RpcCall
from roquette.proxy.statuses import GRPC_INTERNAL, GRPC_INVALID_ARGUMENT, GRPC_OK, RpcError, code_of
from roquette.remoting.request import Peer
from roquette.wire.proto.definition_pb2 import Code

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
