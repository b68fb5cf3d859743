"""TCP between simulated hosts: ordered, delayed, split anywhere, cut, reset; all drawn from one seed.

Hosts are IPv4 texts. Delay and partitions belong to pairs of hosts. A partition loses nothing: bytes arrive
late and in order, as TCP's retransmission gives them.
"""

import asyncio
import contextvars
import hashlib
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

# A simulated process: what it starts belongs to it, and ends with it, not one instruction later.


class Process:
    """One life of one process on one host.

    Ownership travels in the context: tasks, timers, file calls and connections that code of this process
    starts carry it, and the simulated loop skips whatever belongs to the dead.
    """

    __slots__ = ("alive", "context", "host", "stopped_until", "tasks", "waiting")

    def __init__(self, host: str) -> None:
        self.host = host
        self.alive = True
        self.stopped_until = 0.0  # virtual seconds
        self.waiting: list[Handle] = []  # what would have run since it was stopped
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.context = contextvars.copy_context()
        self.context.run(_owner.set, self)

    def __repr__(self) -> str:
        return f"<Process {self.host} {'alive' if self.alive else 'dead'}>"


_owner: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


def process_of(context: contextvars.Context | None = None) -> Process | None:
    """The process a context belongs to (default: the running code's); None for the test itself."""
    return _owner.get() if context is None else context.get(_owner)


class Handle(float):
    """Handle of what the loop calls at a time, or soon (-1); nothing of a process that is dead. A float, so that C compares those in the heap."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "is_timed", "loop", "process")

    args: tuple[Any, ...]
    callback: Callable[..., Any] | None
    context: contextvars.Context
    is_cancelled: bool
    is_timed: bool  # it is among the loop's timers
    loop: Any
    process: Process | None

    def cancel(self) -> None:
        """It is not called any more."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self.callback, self.args = None, ()
            if self.is_timed:
                self.loop._timer_cancelled_count += 1

    def cancelled(self) -> bool:
        """Return True if it is not called any more."""
        return self.is_cancelled

    def when(self) -> float:
        """The time, as `asyncio.TimerHandle` says it."""
        return float(self)

    def __repr__(self) -> str:
        return f"<Handle {self.callback!r} of {self.process!r}>"


DEFAULT_HOST = "10.0.0.254"  # where code runs that belongs to no process
RETRANSMIT_S = 0.2
CONNECT_GIVES_UP_S = 60.0
SPLIT_CHANCE = 0.1  # TCP may split anywhere
KERNEL_BUFFER = 65_536  # bytes in flight that do not count as the sender's backlog

Address = tuple[str, int]


class _Listener:
    __slots__ = ("address", "context", "factory", "process")

    def __init__(
        self, factory: Callable[[], Any], address: Address, process: Process | None
    ) -> None:
        self.factory = factory
        self.address = address
        self.process = process
        self.context = contextvars.copy_context()


class _BoundSocket:
    """The one thing a server asks of its sockets: where it listens."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def getsockname(self) -> Address:
        return self._address


class MemoryServer(asyncio.AbstractServer):
    """Server that `create_server` returns."""

    def __init__(
        self, listeners: dict[Address, Any], address: Address, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._listeners = listeners
        self._loop = loop
        self.address = address
        self.sockets = (_BoundSocket(address),)

    def close(self) -> None:
        """Stop to accept; connections stay."""
        self._listeners.pop(self.address, None)

    async def wait_closed(self) -> None:
        """Nothing to wait for."""

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop in which it serves."""
        return self._loop

    async def start_serving(self) -> None:
        """It serves from the start."""

    async def serve_forever(self) -> None:
        """Wait until cancelled, as asyncio's servers do."""
        await self._loop.create_future()

    def is_serving(self) -> bool:
        """Return True if connections are accepted."""
        return self.address in self._listeners


class NetworkLoop(asyncio.AbstractEventLoop):
    """Loop, as far as a network needs it: virtual seconds, one source of random numbers, a trace of events."""

    now: float
    random: Random

    def trace(self, *event: object) -> None:
        """Add an event to the run's fingerprint."""
        raise NotImplementedError

    def call_when(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """As `call_at`, in virtual seconds whatever the clocks of hosts show."""
        raise NotImplementedError


class MemoryNetwork:
    """All hosts, their listeners and the links between them."""

    def __init__(
        self, loop: NetworkLoop, shortest_s: float = 0.0001, longest_s: float = 0.002
    ) -> None:
        self.loop = loop
        self.delay_s = shortest_s, longest_s
        self.listeners: dict[Address, _Listener] = {}
        self.watch: Callable[[Address, Address, bytes], None] | None = None  # sees all that is sent
        self.links: dict[int, tuple[MemoryTransport, MemoryTransport]] = {}
        self._delays: dict[tuple[str, str], tuple[float, float]] = {}
        self._cut: dict[tuple[str, str], None] = {}
        self._cut_ways: dict[tuple[str, str], None] = {}
        self._isolated: dict[str, None] = {}
        self._next_link = 0
        self._next_port = 40_000

    # Faults

    def partition(self, a: str, b: str) -> None:
        """Nothing passes between two hosts until `heal`."""
        self._cut[_pair(a, b)] = None
        self.loop.trace("partition", a, b)

    def cut_way(self, a: str, b: str) -> None:
        """Lose what `a` sends to `b`, until `heal`; the other way it passes."""
        self._cut_ways[a, b] = None
        self.loop.trace("cut way", a, b)

    def isolate(self, host: str) -> None:
        """Nothing passes between `host` and any other host until `heal`."""
        self._isolated[host] = None
        self.loop.trace("isolate", host)

    def heal(self, a: str | None = None, b: str | None = None) -> None:
        """End every partition, or those of one host, or that of one pair."""
        for cuts in (self._cut, self._cut_ways):
            for pair in [pair for pair in cuts if a in (None, *pair) and b in (None, *pair)]:
                del cuts[pair]
        if a is None:
            self._isolated.clear()
        elif b is None:
            self._isolated.pop(a, None)
        self.loop.trace("heal", a, b)

    def is_cut(self, a: str, b: str) -> bool:
        """Return True if what `a` sends to `b` is lost."""
        if a == b:
            return False
        lost = (a, b) in self._cut_ways or _pair(a, b) in self._cut
        return lost or a in self._isolated or b in self._isolated

    def set_delay(self, a: str, b: str, shortest_s: float, longest_s: float) -> None:
        """Set the time that a chunk travels between two hosts, either way."""
        self._delays[_pair(a, b)] = (shortest_s, longest_s)

    def reset(self, host: str) -> None:
        """Every connection of `host` breaks for both sides; its servers go on to accept."""
        for near, far in list(self.links.values()):
            if host in (near.here[0], far.here[0]):
                near.lose(ConnectionResetError(104, "connection reset"))
                far.lose(ConnectionResetError(104, "connection reset"))

    def kill(self, process: Process) -> None:
        """The machine cleans up behind a dead process: listeners vanish, the other ends are reset."""
        for address, listener in list(self.listeners.items()):
            if listener.process is process:
                del self.listeners[address]
        for near, far in list(self.links.values()):
            if near.process is process or far.process is process:
                near.break_from_here()
                far.break_from_here()

    # What the loop calls

    def listen(self, factory: Callable[[], Any], host: str | None, port: int) -> MemoryServer:
        """Accept connections at host:port; a free port when 0."""
        process = process_of()
        if host in (None, "", "0.0.0.0", "::", "127.0.0.1"):
            host = process.host if process is not None else DEFAULT_HOST
        assert host is not None
        address = (host, port or self._free_port())
        if address in self.listeners:
            raise OSError(98, f"address in use: {host}:{address[1]}")
        self.listeners[address] = _Listener(factory, address, process)
        return MemoryServer(self.listeners, address, self.loop)

    async def connect(
        self, factory: Callable[[], Any], local_host: str | None, address: Address
    ) -> "tuple[MemoryTransport, Any]":
        """Connect as `create_connection` does: a transport and its protocol, or an OSError."""
        process = process_of()
        here = local_host or (process.host if process is not None else DEFAULT_HOST)
        if address[0] == "127.0.0.1":
            address = (here, address[1])
        there = address[0]
        waited = 0.0
        await asyncio.sleep(self.draw(here, there))
        while self.is_cut(here, there) or self.is_cut(there, here):
            if waited >= CONNECT_GIVES_UP_S:
                raise TimeoutError(110, f"{here} cannot reach {there}:{address[1]}")
            await asyncio.sleep(0.5)
            waited += 0.5
        listener = self.listeners.get(address)
        if listener is None:
            raise ConnectionRefusedError(111, f"nobody listens on {address[0]}:{address[1]}")
        self._next_link += 1
        link = self._next_link
        near = MemoryTransport(self, link, (here, self._free_port()), address, process)
        far = MemoryTransport(self, link, address, near.here, listener.process)
        far.context = listener.context.copy()
        near.peer, far.peer = far, near
        self.links[link] = (near, far)
        self.loop.trace("connect", link, here, address)
        far.begin(listener.factory)
        protocol = factory()
        near.protocol = protocol
        protocol.connection_made(near)
        await asyncio.sleep(self.draw(here, there))
        return near, protocol

    def draw(self, a: str, b: str) -> float:
        """A travel time between two hosts."""
        shortest, longest = self._delays.get(_pair(a, b), self.delay_s)
        return self.loop.random.uniform(shortest, longest)

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port


class MemoryTransport(asyncio.Transport):
    """One end of a link. Bytes arrive in order, in pieces of drawn size, after a drawn delay."""

    def __init__(
        self,
        network: MemoryNetwork,
        link: int,
        here: Address,
        there: Address,
        process: Process | None,
    ) -> None:
        super().__init__({"peername": there, "sockname": here})
        self.network = network
        self.loop = network.loop
        self.link = link
        self.here = here
        self.there = there
        self.process = process
        self.context = contextvars.copy_context()  # where the protocol's code runs
        self.peer: MemoryTransport
        self.protocol: Any = None
        self._arrives = 0.0
        self._closing = False
        self._lost = False
        self._reading_paused = False
        self._writing_paused = False
        self._retrying = False
        self._unread = 0  # bytes written here that the other end has not taken
        self._high = KERNEL_BUFFER
        self._low = KERNEL_BUFFER // 4
        self._travelling: deque[bytes | None] = deque()
        self._inbox: deque[bytes | None] = deque()

    def begin(self, factory: Callable[[], Any]) -> None:
        """The accepting side: build the protocol in the context of its server."""
        self.loop.call_soon(self._begin, factory, context=self.context)

    def _begin(self, factory: Callable[[], Any]) -> None:
        self.protocol = factory()
        self.protocol.connection_made(self)
        if self._lost:
            self.protocol.connection_lost(None)
        self._deliver()

    # Writing

    def write(self, data: Any) -> None:
        """Send bytes."""
        if self._closing or not data:
            return
        chunk = bytes(data)
        if self.network.watch is not None:
            self.network.watch(self.here, self.there, chunk)
        random = self.loop.random
        if len(chunk) > 1 and random.random() < SPLIT_CHANCE:
            at = random.randrange(1, len(chunk))
            self._send(chunk[:at])
            chunk = chunk[at:]
        self._send(chunk)
        if not self._writing_paused and self.get_write_buffer_size() > self._high:
            self._writing_paused = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Send several pieces."""
        self.write(b"".join(list_of_data))

    def _send(self, data: bytes | None) -> None:
        if data is not None:
            self._unread += len(data)
        delay = self.network.draw(self.here[0], self.there[0])
        self._arrives = max(self._arrives, self.loop.now + delay)
        peer = self.peer
        # Timers of one instant fire in any order, so the bytes queue here and a timer takes the first.
        peer._travelling.append(data)
        self.loop.call_when(self._arrives, peer._receive, context=peer.context)

    def _bytes_read(self, size: int) -> None:
        """The other end has read: flow control."""
        self._unread -= size
        if self._writing_paused and self.get_write_buffer_size() <= self._low and not self._lost:
            self._writing_paused = False
            self.loop.call_soon(self.protocol.resume_writing, context=self.context)

    def get_write_buffer_size(self) -> int:
        """Bytes that wait here because the other end does not read."""
        return max(0, self._unread - KERNEL_BUFFER)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Low and high mark."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Marks at which the protocol is asked to pause and to resume."""
        self._high = (65_536 if low is None else 4 * low) if high is None else high
        self._low = self._high // 4 if low is None else low

    def write_eof(self) -> None:
        """Send the end of the stream."""
        self._send(None)

    def can_write_eof(self) -> bool:
        """Yes."""
        return True

    # Reading

    def _receive(self) -> None:
        self._inbox.append(self._travelling.popleft())
        self._deliver()

    def _deliver(self) -> None:
        """One queue per direction: a partition delays bytes, it never reorders or loses them."""
        if self.protocol is None:
            return
        while self._inbox and not (self._closing or self._reading_paused or self._retrying):
            if self.network.is_cut(self.there[0], self.here[0]):
                self._retrying = True
                self.loop.call_later(RETRANSMIT_S, self._retransmit, context=self.context)
                return
            data = self._inbox.popleft()
            size = -1 if data is None else len(data)
            self.loop.trace("data", self.link, self.here, size, _hash_of(data))
            if data is not None:
                self.peer._bytes_read(size)
                self.protocol.data_received(data)
            elif not self.protocol.eof_received():
                self.close()

    def _retransmit(self) -> None:
        self._retrying = False
        self._deliver()

    def pause_reading(self) -> None:
        """Leave what arrives in the kernel."""
        self._reading_paused = True

    def resume_reading(self) -> None:
        """Read again."""
        self._reading_paused = False
        self.loop.call_soon(self._deliver, context=self.context)

    def is_reading(self) -> bool:
        """Return True if data is handed to the protocol."""
        return not (self._reading_paused or self._closing)

    # Ending

    def is_closing(self) -> bool:
        """Return True if `close`, `abort` or a loss has begun."""
        return self._closing

    def close(self) -> None:
        """Send what is buffered, then the end of the stream; read no more."""
        if not self._closing:
            self._closing = True
            self._send(None)
            self.loop.call_soon(self.lose, None, context=self.context)

    def abort(self) -> None:
        """Break at once; the other end is reset."""
        self.break_from_here()
        self.lose(None)

    def break_from_here(self) -> None:
        """A reset travels to the other end, behind the bytes already under way."""
        delay = self.network.draw(self.here[0], self.there[0])
        self._arrives = max(self._arrives, self.loop.now + delay)
        self.loop.call_when(self._arrives, self.peer._reset_arrives, context=self.peer.context)

    def _reset_arrives(self) -> None:
        if self.network.is_cut(self.there[0], self.here[0]):
            self.loop.call_later(RETRANSMIT_S, self._reset_arrives, context=self.context)
        else:
            self.lose(ConnectionResetError(104, "connection reset"))

    def lose(self, error: Exception | None) -> None:
        """The connection is gone for this end."""
        if self._lost:
            return
        self._lost = self._closing = True
        self.network.links.pop(self.link, None)
        self.loop.trace("lost", self.link, self.here)
        if self.protocol is not None:
            self.loop.call_soon(self.protocol.connection_lost, error, context=self.context)

    def set_protocol(self, protocol: Any) -> None:
        """Hand the connection to another protocol."""
        self.protocol = protocol

    def get_protocol(self) -> Any:
        """The protocol that gets the data."""
        return self.protocol

    def __repr__(self) -> str:
        return f"<MemoryTransport {self.link} {self.here} -> {self.there}>"


def _pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a <= b else (b, a)


def _hash_of(data: bytes | None) -> str:
    return "" if data is None else hashlib.blake2b(data, digest_size=6).hexdigest()
