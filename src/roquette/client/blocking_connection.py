"""One TCP connection for code without an event loop: requests may be sent ahead, answers are taken by opaque."""

import socket
from typing import Final

import msgspec

from roquette.errors import ConnectError, RequestTimeout
from roquette.wire.command import Command
from roquette.wire.connection import Connection
from roquette.wire.header_codec import encode_ext

_RECEIVE_SIZE: Final = 256 * 1024


class BlockingConnection:
    """Requests and answers over one socket. Memory is bounded by what the caller sends ahead.

    Args:
        address: "host:port".
        timeout_ms: of each answer.
        connect_timeout_ms: of connecting; the same as `timeout_ms` if None.
    """

    def __init__(
        self, address: str, *, timeout_ms: int, connect_timeout_ms: int | None = None
    ) -> None:
        self.address = address
        self._answers: dict[int, Command] = {}  # arrived before they were asked for
        self._waiting: set[int] = set()
        self._wire = Connection()
        host, _, port = address.rpartition(":")
        limit_ms = timeout_ms if connect_timeout_ms is None else connect_timeout_ms
        try:
            self._socket = socket.create_connection((host.strip("[]"), int(port)), limit_ms / 1000)
        except (OSError, ValueError, OverflowError) as error:
            raise ConnectError(f"connect to {address} failed: {error}") from None
        self._socket.settimeout(timeout_ms / 1000)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, code: int, header: msgspec.Struct, body: bytes = b"") -> int:
        """Send a request and return its opaque, to be given to `receive`."""
        opaque = self.post(code, header, body)
        self.flush()
        return opaque

    def post(self, code: int, header: msgspec.Struct, body: bytes = b"") -> int:
        """As `send`, but the request leaves with the next `flush`."""
        opaque = self._wire.send_request(code, encode_ext(header), body)
        self._waiting.add(opaque)
        return opaque

    def flush(self) -> None:
        """Let go what was posted, in one write. Raises ConnectError or RequestTimeout."""
        try:
            self._socket.sendall(b"".join(self._wire.data_to_send()))
        except OSError as error:
            raise self._broken(error) from None

    def receive(self, opaque: int) -> Command:
        """Wait for one answer."""
        while opaque not in self._answers:
            for command in self._read():
                self._answers[command.opaque] = command
        self._waiting.discard(opaque)
        return self._answers.pop(opaque)

    def arrived(self) -> list[Command]:
        """The answers one read of the socket brings; waits when there is nothing to read."""
        found = self._read()
        self._waiting.difference_update(command.opaque for command in found)
        return found

    def _read(self) -> list[Command]:
        """What arrives next. Requests that the broker sends are not for us: dropped."""
        try:
            data = self._socket.recv(_RECEIVE_SIZE)
        except OSError as error:
            raise self._broken(error) from None
        if not data:
            raise ConnectError(f"{self.address} closed the connection")
        commands = self._wire.receive_data(data)
        return [c for c in commands if c.is_response and c.opaque in self._waiting]

    def fileno(self) -> int:
        """The socket's descriptor, for a selector."""
        return self._socket.fileno()

    @property
    def local_host(self) -> str:
        """Our address on this connection."""
        return str(self._socket.getsockname()[0])

    def _broken(self, error: OSError) -> ConnectError | RequestTimeout:
        if isinstance(error, TimeoutError):
            return RequestTimeout(
                f"{self.address} did not answer within {self._socket.gettimeout()} s"
            )
        return ConnectError(f"the connection to {self.address} broke: {error}")

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
