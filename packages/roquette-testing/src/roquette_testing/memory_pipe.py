"""Connections between event loops of one process, each in its own thread: no socket, no port, no delay.

The simulation's network (`memory_network`) lives on one loop in virtual time; here the servers' loop and their
clients' loops are real, and bytes pass from one to the other by `call_soon_threadsafe`.
"""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from roquette.remoting.address import HOSTS
from roquette_testing.memory_network import KERNEL_BUFFER, Address, MemoryServer

Factory = Callable[[], asyncio.Protocol]

SERVERS: Final = "240.0.0.1"  # addresses that no network has
CLIENTS: Final = "240.0.0.2"
_HIGH: Final = 65_536


class PipeNetwork:
    """Network of the pipes that listen in this process.

    Attributes:
        listeners: what makes the protocols, and the loop they live on.
    """

    def __init__(self) -> None:
        self.listeners: dict[Address, tuple[Factory, asyncio.AbstractEventLoop]] = {}
        self._ports = itertools.count(10_000, 4)
        self._client_ports = itertools.count(1)
        HOSTS[SERVERS] = self.connect

    def listen(self, factory: Factory, host: str, port: int) -> MemoryServer:
        """Accept connections on the running loop; a free port when 0. Raises OSError."""
        address = (host, port or next(self._ports))
        if address in self.listeners:
            raise OSError(98, f"address in use: {host}:{address[1]}")
        loop = asyncio.get_running_loop()
        self.listeners[address] = (factory, loop)
        return MemoryServer(self.listeners, address, loop)

    async def connect(self, factory: Factory, port: int) -> asyncio.Transport:
        """From the running loop to what listens at the port; raises OSError."""
        there = (SERVERS, port)
        listener = self.listeners.get(there)
        if listener is None:
            raise ConnectionRefusedError(111, f"nobody listens on {SERVERS}:{port}")
        serve, loop = listener
        here = (CLIENTS, 1 + next(self._client_ports) % 65_535)
        near, far = PipeEnd(asyncio.get_running_loop(), here, there), PipeEnd(loop, there, here)
        near.peer, far.peer = far, near
        near.call_peer(far.begin, serve)
        near.begin(factory)
        return near


class PipeEnd(asyncio.Transport):
    """One end of a connection; its methods belong to the thread of its loop.

    Attributes:
        peer: the other end. taken: bytes that this end's protocol has been given.
    """

    peer: "PipeEnd"

    def __init__(self, loop: asyncio.AbstractEventLoop, here: Address, there: Address) -> None:
        super().__init__({"peername": there, "sockname": here})
        self.taken = 0
        self.writing_paused = False
        self._loop = loop
        self._protocol: Any = None
        self._written = 0
        self._high, self._low = _HIGH, _HIGH // 4
        self._inbox: deque[bytes | None] = deque()
        self._reading_paused = False
        self._closing = False
        self._lost = False

    def call_peer(self, step: Callable[..., None], *args: Any) -> None:
        """Run a step of the other end, in its thread, after all that was told before."""
        try:
            self.peer._loop.call_soon_threadsafe(step, *args)
        except RuntimeError:  # its loop is closed
            self._lose(ConnectionResetError(104, "the other end has gone"))

    def begin(self, factory: Factory) -> None:
        """The connection is made."""
        self._protocol = factory()
        self._protocol.connection_made(self)

    # Writing

    def write(self, data: Any) -> None:
        if self._closing or not data:
            return
        chunk = bytes(data)
        self._written += len(chunk)
        self.call_peer(self.peer._arrive, chunk)
        if not self.writing_paused and self.get_write_buffer_size() > self._high:
            self.writing_paused = True
            self._protocol.pause_writing()
            self._loop.call_soon(self._go_on)  # it may all have been taken meanwhile

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def _go_on(self) -> None:
        if self.writing_paused and not self._lost and self.get_write_buffer_size() <= self._low:
            self.writing_paused = False
            self._protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return max(0, self._written - self.peer.taken - KERNEL_BUFFER)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = (_HIGH if low is None else 4 * low) if high is None else high
        self._low = self._high // 4 if low is None else low

    def write_eof(self) -> None:
        self.call_peer(self.peer._arrive, None)

    def can_write_eof(self) -> bool:
        return True

    # Reading

    def _arrive(self, data: bytes | None) -> None:
        self._inbox.append(data)
        self._deliver()

    def _deliver(self) -> None:
        while self._inbox and not (self._reading_paused or self._closing):
            data = self._inbox.popleft()
            if data is None:
                if not self._protocol.eof_received():
                    self.close()
                return
            self.taken += len(data)
            if self.peer.writing_paused:
                self.call_peer(self.peer._go_on)
            self._protocol.data_received(data)

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        self._loop.call_soon(self._deliver)

    def is_reading(self) -> bool:
        return not (self._reading_paused or self._closing)

    # Ending

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self.call_peer(self.peer._arrive, None)
            self._lose(None)

    def abort(self) -> None:
        if not self._lost:
            self.call_peer(self.peer._lose, ConnectionResetError(104, "connection reset"))
            self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        self._closing = True
        if not self._lost:
            self._lost = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is told
                self._loop.call_soon(self._protocol.connection_lost, error)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        found: asyncio.BaseProtocol = self._protocol
        return found


NETWORK: Final = PipeNetwork()
"""The one network of this process."""
