"""TCP connections for code without an event loop: requests may be sent ahead, answers are taken by opaque.

`BlockingConnections` runs calls and operations over them, as `Session` does on the event loop.
"""

import socket
import ssl
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from roquette.client import calls
from roquette.client.calls import AHEAD, ANY_NAME_SERVER, Answer, Ask, Call, Operation
from roquette.client.core.route_cache import check_queues
from roquette.errors import BrokerError, ClientError, ConnectError, RequestTimeout, RouteNotFound
from roquette.remoting.security import OPEN, Security
from roquette.remoting.tls import words_of
from roquette.wire.bodies import TopicRouteData
from roquette.wire.command import Command
from roquette.wire.connection import WireConnection
from roquette.wire.signature import Signer

_RECEIVE_SIZE: Final = 256 * 1024
T = TypeVar("T")


class BlockingConnection:
    """Requests and answers over one socket. Memory is bounded by what the caller sends ahead.

    Args:
        address: "host:port".
        timeout_ms: of each answer.
        connect_timeout_ms: of connecting; the same as `timeout_ms` if None.

    Raises:
        ConnectError: nobody answers, or TLS does not come about; it says why.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout_ms: int,
        connect_timeout_ms: int | None = None,
        security: Security = OPEN,
    ) -> None:
        self.address = address
        self._heard = False
        self._answers: dict[int, Command] = {}  # arrived before they were asked for
        self._waiting: set[int] = set()
        self._wire = WireConnection()
        if security.credentials is not None:
            self._wire.signer = Signer(security.credentials)
        host, _, port = address.rpartition(":")
        limit_ms = timeout_ms if connect_timeout_ms is None else connect_timeout_ms
        try:
            self._socket = socket.create_connection((host.strip("[]"), int(port)), limit_ms / 1000)
        except (OSError, ValueError, OverflowError) as error:
            raise ConnectError(f"connect to {address} failed: {error}") from None
        if self._socket.getsockname() == self._socket.getpeername():  # see `open_connection`
            self._socket.close()
            raise ConnectError(f"connect to {address} failed: nobody listens there")
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls = security.tls is not None
        if security.tls is not None:
            plain = self._socket
            try:
                self._socket = security.tls.context().wrap_socket(
                    plain, server_hostname=host.strip("[]")
                )
            except OSError as error:
                plain.close()
                raise ConnectError(
                    f"TLS with {address} failed: {_tls_failure(error, agreed=False)}"
                ) from None
        self._socket.settimeout(timeout_ms / 1000)

    def call(self, call: Call[T]) -> T:
        """Send a request and return what its answer says. Raises ClientError."""
        return call.result(self.receive(self.send(call)), self.address)

    def send(self, call: Call[Any]) -> int:
        """Send a request and return its opaque, to be given to `receive`."""
        opaque = self.post(call)
        self.flush()
        return opaque

    def post(self, call: Call[Any]) -> int:
        """As `send`, but the request leaves with the next `flush`."""
        opaque = self._wire.send_request(call.code, call.ext, call.body)
        self._waiting.add(opaque)
        return opaque

    def flush(self) -> None:
        """Write what was posted, all at once. Raises ConnectError or RequestTimeout."""
        try:
            self._socket.sendall(b"".join(self._wire.data_to_send()))
        except OSError as error:
            raise self._broken(self._alert(error)) from None

    def receive(self, opaque: int) -> Command:
        while opaque not in self._answers:
            for command in self._read():
                self._answers[command.opaque] = command
        self._waiting.discard(opaque)
        return self._answers.pop(opaque)

    def arrived(self) -> list[Command]:
        """The answers one read of the socket brings; waits when there is nothing to read.

        Over TLS it does not: what has come may have been no answer, but a record of TLS itself.
        """
        found = self._read(wait=not self._tls)
        self._waiting.difference_update(command.opaque for command in found)
        return found

    def _read(self, *, wait: bool = True) -> list[Command]:
        """Read what arrives next. Requests from the broker are dropped."""
        limit_s = self._socket.gettimeout()
        try:
            if not wait:
                self._socket.settimeout(0)
            data = self._socket.recv(_RECEIVE_SIZE)
        except ssl.SSLWantReadError:
            return []
        except OSError as error:
            raise self._broken(error) from None
        finally:
            if not wait:
                self._socket.settimeout(limit_s)
        if not data:
            hint = (
                "" if self._heard or self._tls else " without an answer: perhaps it takes TLS only"
            )
            raise ConnectError(f"{self.address} closed the connection{hint}")
        self._heard = True
        commands = self._wire.receive_data(data)
        return [c for c in commands if c.is_response and c.opaque in self._waiting]

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def local_host(self) -> str:
        return str(self._socket.getsockname()[0])

    def _alert(self, error: OSError) -> OSError:
        """Return the reason why the server has closed, when it said so: a write fails before that is read."""
        if self._tls and not self._heard and not isinstance(error, TimeoutError):
            try:
                self._socket.recv(1)
            except OSError as told:
                return told
        return error

    def _broken(self, error: OSError) -> ConnectError | RequestTimeout:
        if isinstance(error, TimeoutError):
            return RequestTimeout(
                f"{self.address} did not answer within {self._socket.gettimeout()} s"
            )
        if self._tls and not self._heard:
            why = _tls_failure(error, agreed=True)
            return ConnectError(f"TLS with {self.address} failed: {why}")
        return ConnectError(f"the connection to {self.address} broke: {error}")

    def close(self) -> None:
        self._socket.close()


def _tls_failure(error: OSError, *, agreed: bool) -> str:
    """Return the reason why TLS failed; `agreed`: our end of the handshake was done, after which TLS 1.3 refuses a client's certificate."""
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        if agreed:
            return "it closed the connection: perhaps it wants another certificate, or one at all"
        return "it closed the connection in the handshake: perhaps TLS is disabled there (tls.server.mode)"
    return words_of(error)


class BlockingConnections:
    """Connections to a cluster, each made when it is needed first, and kept.

    Args:
        namesrv_addr: "host:port;host:port".
        timeout_ms: of each answer.
        connect_timeout_ms: of connecting; the same as `timeout_ms` if None.
    """

    def __init__(
        self,
        namesrv_addr: str,
        *,
        timeout_ms: int,
        connect_timeout_ms: int | None = None,
        security: Security = OPEN,
    ) -> None:
        addresses = namesrv_addr.replace(",", ";").split(";")
        self.name_servers = tuple(each.strip() for each in addresses if each.strip())
        self._timeout_ms = timeout_ms
        self._connect_timeout_ms = connect_timeout_ms
        self._security = security
        self._open: dict[str, BlockingConnection] = {}

    def close(self) -> None:
        for address in list(self._open):
            self.drop(address)

    def connect(self, address: str) -> BlockingConnection:
        """The connection to an address. Raises ConnectError."""
        connection = self._open.get(address)
        if connection is None:
            connection = BlockingConnection(
                address,
                timeout_ms=self._timeout_ms,
                connect_timeout_ms=self._connect_timeout_ms,
                security=self._security,
            )
            self._open[address] = connection
        return connection

    def drop(self, address: str) -> None:
        """Close the connection to an address, if there is one."""
        connection = self._open.pop(address, None)
        if connection is not None:
            connection.close()

    def call(self, address: str, call: Call[T]) -> T:
        """One request to one server. A kept connection, which the server may have closed, is replaced once.

        Raises:
            ClientError: ConnectError and RequestTimeout close the connection.
        """
        kept = address in self._open
        try:
            return self.connect(address).call(call)
        except (ConnectError, RequestTimeout) as error:
            self.drop(address)
            if not kept or isinstance(error, RequestTimeout):
                raise
        return self.call(address, call)

    def ask_name_servers(self, call: Call[T]) -> T:
        """Ask the name servers in their order until one has an answer; raises what the last one said."""
        failure: ClientError = ConnectError("no name server address is given")
        for address in self.name_servers:
            try:
                return self.call(address, call)
            except (ConnectError, RequestTimeout, BrokerError, RouteNotFound) as error:
                failure = error
        raise failure

    def route(self, topic: str) -> TopicRouteData:
        """A topic's route, freshly asked of a name server. Raises RouteNotFound."""
        found = self.ask_name_servers(calls.route(topic))
        check_queues(topic, (data.read_queue_nums for data in found.queue_datas))
        return found

    def exchange(self, asks: Sequence[Ask]) -> list[Answer[Any]]:
        """Requests to servers, which all have theirs before the first answer is read. Nothing is asked twice."""
        found: list[Answer[Any]] = []
        for start in range(0, len(asks), AHEAD):
            found += self._exchange_block(asks[start : start + AHEAD])
        return found

    def _exchange_block(self, asks: Sequence[Ask]) -> list[Answer[Any]]:
        failed: dict[str, ClientError] = {}
        opaques: list[int] = []
        for address, call in asks:
            opaques.append(0)
            try:
                if address not in failed:
                    opaques[-1] = self.connect(address).post(call)
            except ConnectError as error:
                failed[address] = error
        # All requests leave before the first answer is awaited: the brokers work side by side.
        for address in dict.fromkeys(ask.address for ask in asks):
            try:
                if address not in failed:
                    self.connect(address).flush()
            except (ConnectError, RequestTimeout) as error:
                failed[address] = error
        found: list[Answer[Any]] = []
        for (address, call), opaque in zip(asks, opaques, strict=True):
            try:
                if address in failed:
                    raise failed[address]
                answer = self.connect(address).receive(opaque)
                found.append(Answer(address, call.result(answer, address)))
            except ClientError as error:
                if isinstance(error, ConnectError | RequestTimeout) and address not in failed:
                    failed[address] = error
                found.append(Answer(address, error=error))
        # An answer may still come there, and nobody waits for it any more.
        for address in failed:
            self.drop(address)
        return found

    def run(self, operation: Operation[T]) -> T:
        """Run an operation, such as those of the admin room: return what it finds, or raise. Closes all connections."""
        silent: dict[str, ClientError] = {}
        try:
            asks = next(operation)
            while True:
                asks = operation.send(self._answers(asks, silent))
        except StopIteration as end:
            found: T = end.value
            return found
        finally:
            self.close()

    def _answers(self, asks: Sequence[Ask], silent: dict[str, ClientError]) -> list[Answer[Any]]:
        """The answers of one step; servers that do not answer are added to `silent`."""
        beside = {*silent, ANY_NAME_SERVER}
        answers = iter(self.exchange([ask for ask in asks if ask.address not in beside]))
        found: list[Answer[Any]] = []
        for ask in asks:
            address, call = ask
            if address == ANY_NAME_SERVER:
                found.append(self._name_server_answer(call))
            elif address in beside:
                found.append(Answer(address, error=silent[address]))
            else:
                found.append(answer := next(answers))
                if answer.error is not None and ask.is_silence(answer.error):
                    silent[address] = answer.error
        return found

    def _name_server_answer(self, call: Call[Any]) -> Answer[Any]:
        try:
            return Answer(ANY_NAME_SERVER, self.ask_name_servers(call))
        except ClientError as error:
            return Answer(ANY_NAME_SERVER, error=error)
