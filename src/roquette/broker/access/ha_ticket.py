"""Replication connections between brokers that ask for a signature: a ticket is said before anything else (13007)."""

from collections.abc import Callable
from typing import Final

from roquette.access.guard import ip_of
from roquette.access.tickets import Tickets
from roquette.broker.cluster.outbound import Outbound
from roquette.broker.core import BrokerCore
from roquette.broker.feature import Feature, Lane
from roquette.broker.replication.source import MasterSource
from roquette.errors import BrokerError, ClientError, ConnectError, RemoteProtocolError
from roquette.remoting.client import split_address
from roquette.remoting.ha import HaConnection, HaSide
from roquette.remoting.outcomes import Reply
from roquette.remoting.promises import Promise
from roquette.remoting.request import RequestContext, Row, row
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import decode_ext, encode_ext
from roquette.wire.headers import HaTicketResponseHeader

MARK: Final = b"ROQUETTE-TICKET "  # no protocol of replication begins so
BYTES: Final = 32  # of randomness, two characters each
TIMEOUT_MS: Final = 3_000


def words_of(ticket: str) -> bytes:
    """What a replica says first."""
    return MARK + ticket.encode()


class HaTickets(Feature):
    """Serves GET_HA_TICKET, and lets nobody to the log without one."""

    def __init__(self, core: BrokerCore) -> None:
        self._settings = core.access.settings
        self._clock = core.clock
        self._entropy = core.entropy
        self._tickets = Tickets()

    def rows(self) -> list[Row]:
        """GET_HA_TICKET."""
        code = RequestCode.GET_HA_TICKET
        return [row(code, self.give, None, Lane.ADMIN, Promise.NOTHING)]

    def give(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_HA_TICKET: empty for an address that needs none."""
        ip, ticket = ip_of(ctx.peer), ""
        if self._settings.enabled and not self._settings.allows_replica(ip):
            ticket = self._tickets.give(self._entropy.secret(BYTES), ip, ctx.steady_ms)
        return Reply(encode_ext(HaTicketResponseHeader(ticket=ticket)))

    def door(self, connection: HaConnection, side: Callable[[HaConnection], HaSide]) -> HaSide:
        """What is done with a connection that has come: at once, or after its ticket."""
        ip = connection.remote.rpartition(":")[0].strip("[]")
        if not self._settings.enabled or self._settings.allows_replica(ip):
            return side(connection)
        if not self._tickets.expects(ip, self._clock.steady_ms()):
            connection.close("no replica at this address has asked for a ticket")

        def take(ticket: str) -> bool:
            return self._tickets.take(ticket, ip, self._clock.steady_ms())

        return _Gate(connection, take, side)


class _Gate:
    """A connection that has not said its ticket: `remoting.ha.HaSide`."""

    def __init__(
        self,
        connection: HaConnection,
        take: Callable[[str], bool],
        side: Callable[[HaConnection], HaSide],
    ) -> None:
        self._connection = connection
        self._take = take
        self._make = side
        self._said = b""
        self._side: HaSide | None = None

    def received(self, data: bytes) -> None:
        """Look at the ticket, then pass on what follows. Raises RemoteProtocolError: it is none."""
        if self._side is not None:
            self._side.received(data)
            return
        said = self._said = self._said + data
        if said[: len(MARK)] != MARK[: len(said)]:
            raise RemoteProtocolError("it says no ticket")
        size = len(MARK) + 2 * BYTES
        if len(said) < size:
            return
        self._said = b""
        if not self._take(said[len(MARK) : size].decode("latin-1")):
            raise RemoteProtocolError("its ticket is wrong, too old, used, or another address's")
        self._side = self._make(self._connection)
        if said[size:]:
            self._side.received(said[size:])

    def room(self) -> None:
        """What waited has been taken."""
        if self._side is not None:
            self._side.room()

    def sign(self) -> None:
        """Nothing is said to whom nobody knows."""
        if self._side is not None:
            self._side.sign()

    def lost(self) -> None:
        """The connection has ended."""
        if self._side is not None:
            self._side.lost()


class TicketSource:
    """Asks a master for tickets, where this broker has credentials to sign with."""

    def __init__(self, core: BrokerCore, outbound: Outbound, master: MasterSource) -> None:
        self._signs = core.access.settings.credentials is not None
        self._outbound = outbound
        self._master = master

    async def fetch(self, ha_address: str) -> bytes:
        """What to say first to the door at this address; empty: nothing.

        Raises:
            ConnectError: the master does not answer, or refuses.
        """
        if not self._signs:
            return b""
        address = self._master.master_address
        if not address:  # haMasterAddress without name servers: as `ClassicSource.prepare`
            host, port = split_address(ha_address)
            address = f"{host}:{port - 1}"
        try:
            code = RequestCode.GET_HA_TICKET
            answer = await self._outbound.ask(address, code, timeout_ms=TIMEOUT_MS)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return b""  # Apache's masters ask for none
            raise ConnectError(f"no ticket: {error}") from None
        except ClientError as error:
            raise ConnectError(f"no ticket: {error}") from None
        ticket = decode_ext(HaTicketResponseHeader, answer.ext).ticket
        return words_of(ticket) if ticket else b""
