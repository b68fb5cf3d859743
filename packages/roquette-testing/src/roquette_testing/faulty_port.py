"""A server's port where requests and answers get lost, come late, come twice, change places, or do not pass at all."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, cast

from roquette.errors import RemoteProtocolError
from roquette.wire.codes import RequestCode
from roquette.wire.command import Command
from roquette.wire.connection import WireConnection

Side = Literal["requests", "answers"]
Action = Literal["drop", "delay", "repeat", "reorder"]
Factory = Callable[[], asyncio.Protocol]

KINDS: Final[dict[str, frozenset[int]]] = {
    "send": frozenset(
        (
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE_V2,
        )
    ),
    "receive": frozenset(
        (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE)
    ),
    "acknowledge": frozenset(
        (
            RequestCode.UPDATE_CONSUMER_OFFSET,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.ACK_MESSAGE,
            RequestCode.BATCH_ACK_MESSAGE,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        )
    ),
    "end transaction": frozenset((RequestCode.END_TRANSACTION,)),
}
_ASKED: Final = 10_000  # requests of one connection whose answers are known by their request
_LONGEST: Final = 1 << 24  # bytes: what claims to be longer is no frame of remoting


def codes_of(kind: str | int | None) -> frozenset[int] | None:
    """Request codes of a kind of `KINDS`, or of one code; None: all. Raises ValueError for another text."""
    if kind is None:
        return None
    if isinstance(kind, int):
        return frozenset((kind,))
    if kind not in KINDS:
        raise ValueError(
            f"{kind!r} is not a kind of request: {', '.join(KINDS)}, or a request code"
        )
    return KINDS[kind]


@dataclass(eq=False)
class Fault:
    """Fault that will happen to the next frames of a kind.

    Attributes:
        side: whether requests or their answers are meant. codes: of the requests; None: all.
        left: how many frames it will still happen to.
    """

    action: Action
    side: Side
    codes: frozenset[int] | None
    left: int
    seconds: float = 0.0
    kept: list[Callable[[], None]] = field(default_factory=list)

    def is_for(self, side: Side, code: int | None) -> bool:
        """Does it happen to a frame of, or in answer to, a request with this code?"""
        if self.left <= 0 or side != self.side or code is None:
            return False
        return self.codes is None or code in self.codes

    def happen(self, loop: asyncio.AbstractEventLoop, deliver: Callable[[], None]) -> None:
        """To a frame that `deliver` would pass on."""
        self.left -= 1
        if self.action == "delay":
            loop.call_later(self.seconds, deliver)
        elif self.action == "repeat":
            deliver()
            deliver()
        elif self.action == "reorder":
            if not self.kept:
                loop.call_later(self.seconds, self.release)
            self.kept.append(deliver)
            if not self.left:
                self.release()

    def release(self) -> None:
        """Let go what is kept, the last first."""
        kept, self.kept = self.kept, []
        for deliver in reversed(kept):
            deliver()


class FaultyPort:
    """The faults of one server's ports; on the server's loop.

    Attributes:
        cut: what does not pass now.
    """

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.cut: frozenset[Side] = frozenset()
        self.connections: dict[_FaultyConnection, None] = {}

    def wrap(self, factory: Factory) -> Factory:
        """Connections that `factory` makes the protocols of go through the faults."""
        return lambda: _FaultyConnection(self, factory())

    def pass_on(self, side: Side, code: int | None, deliver: Callable[[], None]) -> None:
        """A frame is to pass: it does, unless a fault is for it."""
        for fault in self.faults:
            if fault.is_for(side, code):
                fault.happen(asyncio.get_running_loop(), deliver)
                if not fault.left:
                    self.faults.remove(fault)
                return
        deliver()

    def partition(self, sides: frozenset[Side]) -> None:
        """These do not pass any more; they wait."""
        self.cut = sides
        for connection in list(self.connections):
            connection.cut_changed()

    def heal(self) -> None:
        """No more faults; what waits passes."""
        faults, self.faults = self.faults, []
        for fault in faults:
            fault.left = 0
            fault.release()
        self.partition(frozenset())


class _FaultyConnection(asyncio.Transport, asyncio.Protocol):
    """Between the network's transport and the server's protocol: protocol of the one, transport of the other."""

    def __init__(self, port: FaultyPort, inner: asyncio.Protocol) -> None:
        super().__init__()
        self._port = port
        self._inner = inner
        self._raw: asyncio.Transport
        self._unread = b""  # of an unfinished frame
        self._foreign = False  # it does not speak remoting: all passes
        self._asked: dict[int, int] = {}  # opaque of a request to its code
        self._held: list[bytes] = []  # answers that a partition holds up
        self._paused = False  # the server wants to read no more

    # The network's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._port.connections[self] = None
        self._inner.connection_made(self)
        self.cut_changed()

    def connection_lost(self, exc: Exception | None) -> None:
        self._port.connections.pop(self, None)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._foreign:
            self._inner.data_received(data)
            return
        frames, self._unread = _frames(self._unread + data)
        for frame in frames:
            command = _read(frame)
            if command is not None and not command.is_response and not command.is_oneway:
                self._asked[command.opaque] = command.code
                if len(self._asked) > _ASKED:
                    del self._asked[next(iter(self._asked))]
            code = None if command is None or command.is_response else command.code
            self._port.pass_on("requests", code, partial(self._inner.data_received, frame))
        if len(self._unread) >= 4 and int.from_bytes(self._unread[:4], "big") >= _LONGEST:
            self._foreign = True
            unread, self._unread = self._unread, b""
            self._inner.data_received(unread)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    # The server's side

    def write(self, data: Any) -> None:
        if self._foreign:
            self._write_or_hold(bytes(data))
            return
        frames, rest = _frames(bytes(data))
        for frame in [*frames, rest] if rest else frames:
            command = _read(frame)
            code = None
            if command is not None and command.is_response:
                code = self._asked.pop(command.opaque, None)
            self._port.pass_on("answers", code, partial(self._write_or_hold, frame))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def _write_or_hold(self, data: bytes) -> None:
        if "answers" in self._port.cut:
            self._held.append(data)
        elif not self._raw.is_closing():
            self._raw.write(data)

    def cut_changed(self) -> None:
        """A partition has begun or ended."""
        if self._raw.is_closing():
            return
        if "requests" in self._port.cut or self._paused:
            self._raw.pause_reading()
        else:
            self._raw.resume_reading()
        if "answers" not in self._port.cut:
            held, self._held = self._held, []
            self._raw.writelines(held)

    def pause_reading(self) -> None:
        self._paused = True
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if "requests" not in self._port.cut:
            self._raw.resume_reading()

    def is_reading(self) -> bool:
        return self._raw.is_reading()

    def close(self) -> None:
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def write_eof(self) -> None:
        self._raw.write_eof()

    def can_write_eof(self) -> bool:
        return self._raw.can_write_eof()

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size() + sum(map(len, self._held))

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._raw.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high=high, low=low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._inner = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._inner


def _frames(data: bytes) -> tuple[list[bytes], bytes]:
    """The whole frames that `data` begins with, and the rest."""
    frames: list[bytes] = []
    while len(data) >= 4:
        end = 4 + int.from_bytes(data[:4], "big")
        if end > len(data):
            break
        frames.append(data[:end])
        data = data[end:]
    return frames, data


def _read(frame: bytes) -> Command | None:
    """The command of a frame; None: it is not one, which the server will say."""
    try:
        (command,) = WireConnection().receive_data(frame)
    except (RemoteProtocolError, ValueError):
        return None
    return command
