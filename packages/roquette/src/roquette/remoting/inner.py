"""The wire of a peer that speaks another protocol than remoting: what is said to it goes to callables. HOT."""

from collections.abc import Callable

from roquette.wire.connection import Wire

Answered = Callable[[int, int, str | None, bytes, bytes], None]
"""Takes opaque, code, remark, ext (JSON), body of an answer."""
Asked = Callable[[int, int, bytes, bytes, bool], None]
"""Takes opaque, code, ext (JSON), body of a request to the peer, and whether it wants no answer."""


class InnerWire(Wire):
    """Passes answers and requests on.

    Args:
        answered, asked: get them. drain: the bytes to write, at the end of the turn.
    """

    __slots__ = ("_answered", "_asked", "_drain", "_next")

    def __init__(self, answered: Answered, asked: Asked, drain: Callable[[], list[bytes]]) -> None:
        self._answered: Answered = answered
        self._asked: Asked = asked
        self._drain: Callable[[], list[bytes]] = drain
        self._next: int = 0

    def send_request(self, code: int, ext: bytes, body: bytes = b"", oneway: bool = False) -> int:
        """Pass a request on; the answer comes back by `Peer.pending`."""
        opaque = self._next
        self._next = (opaque + 1) & 0x7FFFFFFF
        self._asked(opaque, code, ext, body, oneway)
        return opaque

    def send_reply(
        self, opaque: int, code: int, remark: str | None, ext: bytes, body: bytes
    ) -> None:
        """Pass an answer on."""
        self._answered(opaque, code, remark, ext, body)

    def data_to_send(self) -> list[bytes]:
        """Return what the protocol has to write."""
        return self._drain()
