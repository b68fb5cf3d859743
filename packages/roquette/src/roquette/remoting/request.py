"""A request on its way: the row that serves it, the connection it came over, its times. HOT: compiled by mypyc."""

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar, overload

import msgspec
from mypy_extensions import mypyc_attr

from roquette.errors import ClientError, ConnectError, RequestTimeout, TooManyRequests
from roquette.remoting.promises import Promise
from roquette.wire.command import Command
from roquette.wire.connection import Wire, WireConnection
from roquette.wire.header_codec import HeaderDecoder
from roquette.wire.headers import SendMessageRequestHeaderV2

# Outcomes that a processor may return: five, encoded in one place (the dispatcher).
# `Refused` (an exception, in roquette.errors) is the sixth: an error response. HOT: built once per request.


@mypyc_attr(acyclic=True, free_list_len=1)
class Reply:
    """Answer now. `ext` is a JSON object of ext fields, `body` bytes or pieces to be joined."""

    __slots__ = ("body", "code", "ext", "remark")

    def __init__(
        self,
        ext: bytes = b"",
        body: bytes | list[bytes] | None = None,
        code: int = 0,
        remark: str | None = None,
    ) -> None:
        self.ext: bytes = ext
        self.body: bytes | list[bytes] | None = body
        self.code: int = code
        self.remark: str | None = remark


class Later:
    """The reply is ready, but waits until the log is durable up to `end_offset`; `size`: bytes of its request's body."""

    __slots__ = ("end_offset", "reply", "size")

    def __init__(self, end_offset: int, reply: Reply) -> None:
        self.end_offset: int = end_offset
        self.reply: Reply = reply
        self.size: int = 0  # until the dispatcher has it


class Held:
    """Nothing to send yet: the processor has put `hold` into its table, and gets the request in `hold.job`, to be run
    again later. `hold.drop()` takes it out again when nobody wants the answer any more."""

    __slots__ = ("hold",)

    def __init__(self, hold: Any) -> None:
        self.hold: Any = hold


class Task:
    """The few requests that must call out: a coroutine which returns the Reply (or None: no answer).

    Attributes:
        large: the answer may have megabytes, so it is made in turns with others of the kind (`LargeAnswers`); it waits for nobody.
    """

    __slots__ = ("large", "work")

    def __init__(self, work: Coroutine[Any, Any, Reply | None], *, large: bool = False) -> None:
        self.work: Coroutine[Any, Any, Reply | None] = work
        self.large: bool = large


class Silent:
    """No answer at all."""

    __slots__ = ()


Outcome = Reply | Later | Held | Task | Silent


# Requests we sent and whose answers we await: opaque -> who waits, bounded, expiring.


class Waiter(Protocol):
    """Waiter for an answer: a future, or something lighter whose methods raise nothing."""

    def done(self) -> bool:
        """It waits no longer."""
        ...

    def set_result(self, result: Command, /) -> None:
        """The answer."""
        ...

    def set_exception(self, exception: BaseException, /) -> None:
        """Take the reason why there is none."""
        ...


class PendingTable:
    """The outstanding requests of one connection. Deadlines are event-loop seconds.

    Raises:
        TooManyRequests: by `add`, when `capacity` requests are in flight (Apache: clientAsyncSemaphoreValue).
    """

    __slots__ = ("_capacity", "_deadlines", "_waiters", "answered")

    def __init__(self, capacity: int = 65_535) -> None:
        self._capacity: int = capacity
        self.answered: bool = False  # once, by whoever is at the other end
        self._waiters: dict[int, Waiter] = {}
        self._deadlines: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._waiters)

    def check(self) -> None:
        """Raise TooManyRequests when full: asked before a request is encoded."""
        if len(self._waiters) >= self._capacity:
            raise TooManyRequests(f"{self._capacity} requests are in flight on this connection")

    def add(self, opaque: int, waiter: Waiter, deadline: float) -> None:
        """Remember a request until it is answered, expires or the connection is lost."""
        self._waiters[opaque] = waiter
        heapq.heappush(self._deadlines, (deadline, opaque))

    def resolve(self, command: Command) -> bool:
        """Give an answer to who waits for it; False without one."""
        waiter = self._waiters.pop(command.opaque, None)
        if waiter is None:
            return False
        self.answered = True
        if not waiter.done():
            waiter.set_result(command)
        if not self._waiters:
            self._deadlines.clear()
        return True

    def expire(self, now: float, address: str) -> None:
        """Fail what is past its deadline."""
        while self._deadlines and self._deadlines[0][0] <= now:
            opaque = heapq.heappop(self._deadlines)[1]
            waiter = self._waiters.pop(opaque, None)
            if waiter is not None and not waiter.done():
                waiter.set_exception(RequestTimeout(f"no answer from {address} in time"))

    def fail_all(self, error: ClientError | None, address: str) -> None:
        """The connection is gone: nothing will be answered."""
        waiters = list(self._waiters.values())
        self._waiters.clear()
        self._deadlines.clear()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error or ConnectError(f"connection to {address} was lost"))


ANSWERS: Final = 1  # why a peer is not read: it does not take its answers,
TASKS: Final = 2  # too many of its requests are at work in tasks,
BYTES: Final = 4  # too many bytes are kept for it,
TURN: Final = 8  # or it has brought more than its share of a turn


class Turns(Protocol):
    """The dispatcher, as a connection sees it."""

    loop: asyncio.AbstractEventLoop

    def mark(self, peer: "Peer") -> None:
        """`peer` has something to send: one write at the end of the turn."""
        ...


class Row:
    """One served request code: who processes it, what its header is, which lane it queues in, and what its
    answer promises."""

    __slots__ = ("code", "coerce", "decode", "lane", "process", "promise", "sends")

    def __init__(
        self,
        code: int,
        process: Callable[..., Any],
        header: type[msgspec.Struct] | None,
        lane: int,
        promise: Promise = Promise.NOTHING,
    ) -> None:
        self.code: int = int(code)
        self.process: Callable[..., Any] = process
        decoder = None if header is None else HeaderDecoder(header)
        self.decode: Callable[..., Any] | None = None if decoder is None else decoder.fast
        self.coerce: Callable[..., Any] | None = None if decoder is None else decoder.coerce
        self.sends: bool = header is SendMessageRequestHeaderV2  # `Command.fields` is its header
        self.lane: int = lane
        self.promise: Promise = promise


class Unfinished:
    """One peer's unfinished business.

    size: bytes of memory that count. moved: bytes it has moved since it began. written: bytes it was given.
    """

    __slots__ = ("looked_s", "moved", "moved_then", "peer", "size", "written")

    def __init__(self, peer: "Peer", now_s: float) -> None:
        self.peer: Peer = peer
        self.size: int = 0
        self.moved: int = 0
        self.written: int = 0
        self.looked_s: float = now_s
        self.moved_then: int = 0


class Peer:
    """One connection as dispatcher and processors see it."""

    __slots__ = (
        "_turns",
        "asked",
        "behind",
        "closed",
        "crowded",
        "dirty",
        "ending",
        "half",
        "host",
        "id",
        "ip",
        "kept",
        "last_active",
        "local",
        "lost",
        "parked",
        "paused",
        "pending",
        "reads_less",
        "remote",
        "running",
        "transport",
        "unread",
        "unwritten",
        "wire",
    )

    def __init__(
        self,
        turns: Turns,
        transport: asyncio.Transport,
        number: int,
        host: bytes,
        remote: str,
        wire: Wire | None = None,
    ) -> None:
        self.wire: Wire = WireConnection() if wire is None else wire
        self.transport: asyncio.Transport = transport
        self.id: int = number
        self.host: bytes = host  # ip and port, as stored in records: 8 or 20 bytes
        self.remote: str = remote  # "ip:port"
        self.ip: str = remote.rpartition(":")[0].strip("[]")
        self.local: str = ""  # "ip:port" of ours that it came to
        self.pending: PendingTable = PendingTable()
        self.last_active: float = 0.0  # loop seconds
        self.dirty: bool = False
        self.closed: bool = False
        self.lost: str = ""  # why, where it is known
        self.ending: bool = False  # it broke the protocol: it asks nothing more, see `finish`
        self.asked: int = 0  # requests that are not answered yet
        self.half: Unfinished | None = None  # its unfinished frame
        self.behind: Unfinished | None = None  # its answers that wait for it
        self.paused: bool = False  # it does not read its answers, see `Dispatcher.pause`
        self.running: int = 0  # its requests that are at work in tasks: see `Running`
        self.crowded: bool = False  # too many are: its further requests wait
        self.reads_less: bool = True  # it may be left unread
        self.unread: int = 0  # why it is not read now: ANSWERS, TASKS, BYTES, TURN
        self.kept: int = 0  # bytes, see `Account`
        self.unwritten: int = 0  # bytes of bodies in this turn's answers
        self.parked: list[RequestContext] = []  # requests that wait until it reads again
        self._turns: Turns = turns

    def stop_reading(self, why: int) -> None:
        """Read nothing of it for a while; `why`: ANSWERS, TASKS, BYTES or TURN."""
        if self.reads_less:
            if not self.unread and self._stands():
                self.transport.pause_reading()
            self.unread |= why

    def read_on(self, why: int) -> None:
        """Drop a reason not to read: the peer is read again if it was the last one."""
        if self.unread:
            self.unread &= ~why
            if not self.unread and self._stands():
                self.transport.resume_reading()

    def _stands(self) -> bool:
        return not self.closed and not self.transport.is_closing()

    def notify(self, code: int, ext: bytes = b"", body: bytes = b"") -> None:
        """Send a one-way request to the peer; nothing happens when it is gone."""
        if not self.closed:
            self.wire.send_request(code, ext, body, True)
            self._turns.mark(self)

    def invoke(
        self, code: int, ext: bytes, body: bytes, timeout_ms: int
    ) -> "asyncio.Future[Command]":
        """Send a request to the peer; the future gets the answer, or RequestTimeout or ConnectError."""
        future: asyncio.Future[Command] = self._turns.loop.create_future()
        self.ask(code, ext, body, timeout_ms, future)
        return future

    def ask(self, code: int, ext: bytes, body: bytes, timeout_ms: int, waiter: Waiter) -> None:
        """Send a request to the peer; `waiter` gets the answer, or RequestTimeout or ConnectError.

        Raises:
            TooManyRequests: too many are under way. LocalProtocolError: it does not fit into a frame.
        """
        if self.closed:
            why = self.lost or f"connection to {self.remote} is closed"
            waiter.set_exception(ConnectError(why))
            return
        self.pending.check()
        opaque = self.wire.send_request(code, ext, body, False)
        self.pending.add(opaque, waiter, self._turns.loop.time() + timeout_ms / 1000)
        self._turns.mark(self)

    def soon(self, call: Callable[..., Any], *args: Any) -> None:
        """Call in the loop's next turn."""
        self._turns.loop.call_soon(call, *args)

    def __repr__(self) -> str:
        return f"<Peer {self.remote}>"


class RequestContext:
    """One request on its way: what a processor may know of it besides header and body.

    Attributes:
        arrived_ms, steady_ms: steady time of its arrival, and of now. `now_ms`: wall time.
        may_touch: asked with the topic of a message that the request names by its place in the log alone, before
            anything is done with it; raises Refused. None: it may be any.
        admitted: the guard of the server has let it in: it is not asked again when the request runs again.
        account: who asks, where another protocol has proven it; None: the request's own signature says so.
        hold: where it waits (`Held`), or None. kept, header_bytes: bytes counted of it while it
            waits, and of its header (`Account`).
        cancelled: nobody wants its answer any more: it must not change anything.
    """

    __slots__ = (
        "account",
        "admitted",
        "arrived_ms",
        "cancelled",
        "command",
        "header",
        "header_bytes",
        "hold",
        "kept",
        "may_hold",
        "may_touch",
        "now_ms",
        "peer",
        "row",
        "steady_ms",
    )

    def __init__(self, peer: Peer, command: Command, row: Row, arrived_ms: int) -> None:
        self.peer: Peer = peer
        self.command: Command = command
        self.row: Row = row
        self.arrived_ms: int = arrived_ms
        self.now_ms: int = 0  # until it runs
        self.steady_ms: int = arrived_ms
        self.may_hold: bool = True
        self.may_touch: Callable[[str], None] | None = None
        self.admitted: bool = False
        self.account: str | None = None
        self.hold: Any = None
        self.kept: int = 0
        self.header_bytes: int = 0
        self.cancelled: bool = False
        self.header: Any = None


H = TypeVar("H", bound=msgspec.Struct)


@overload
def row(
    code: int,
    process: Callable[[RequestContext, None, bytes], Outcome],
    header: None,
    lane: int,
    promise: Promise,
) -> Row: ...
@overload
def row(
    code: int,
    process: Callable[[RequestContext, H, bytes], Outcome],
    header: type[H],
    lane: int,
    promise: Promise,
) -> Row: ...
def row(
    code: int,
    process: Callable[..., Outcome],
    header: type[msgspec.Struct] | None,
    lane: int,
    promise: Promise,
) -> Row:
    """A `Row` whose processor takes the header that is decoded for it: the type checker refuses another."""
    return Row(code, process, header, lane, promise)
