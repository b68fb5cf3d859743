"""Replication connections between brokers that ask for a signature: a ticket is said before anything else (13007)."""

import hmac
from collections.abc import Callable
from typing import Final

from roquette.access.processor import Tickets
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Lane, MasterSource
from roquette.errors import BrokerError, ClientError, ConnectError, Refused, RemoteProtocolError
from roquette.remoting.client import split_address
from roquette.remoting.ha import HaConnection, HaSide
from roquette.remoting.promises import Promise
from roquette.remoting.request import Reply, RequestContext, Row, row
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import decode_ext, encode_ext
from roquette.wire.headers import HaTicketRequestHeader, HaTicketResponseHeader
from roquette.wire.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, ext_fields

MARK: Final = b"ROQUETTE-TICKET "  # no protocol of replication begins so
BYTES: Final = 32  # of randomness, two characters each
TIMEOUT_MS: Final = 3_000
SIGNED: Final = frozenset((ACCESS_KEY, SECURITY_TOKEN, SIGNATURE))


def ticket_of(secret: bytes, challenge: str) -> str:
    """Return what only who has the secret makes of a challenge."""
    return hmac.digest(secret, b"roquette-ticket:1" + challenge.encode(), "sha256").hex()


def words_of(ticket: str) -> bytes:
    """Return what a replica says first."""
    return MARK + ticket.encode()


class HaTickets(Feature):
    """Serves GET_HA_TICKET, and lets nobody to the log without one."""

    def __init__(self, core: BrokerCore) -> None:
        self._settings = core.access.settings
        self._clock = core.clock
        self._entropy = core.entropy
        self._users = core.access.users
        self._tickets = Tickets()

    def rows(self) -> list[Row]:
        """GET_HA_TICKET."""
        code = RequestCode.GET_HA_TICKET
        return [row(code, self.give, HaTicketRequestHeader, Lane.ADMIN, Promise.NOTHING)]

    def give(self, ctx: RequestContext, header: HaTicketRequestHeader, body: bytes) -> Reply:
        """GET_HA_TICKET: empty for an address that needs none.

        Who proves is told nothing that opens the door, so that nobody gains by passing his request on. A replica of before
        cannot: it is told its ticket, for a request that holds its name and nothing else, which ours sign no more. The log has
        everybody's messages: it is for who may read them all, a super user, as users are.
        """
        ip, drawn = ctx.peer.ip, self._entropy.secret(BYTES)
        if not self._settings.authentication_enabled or self._settings.allows_replica(ip):
            return Reply(encode_ext(HaTicketResponseHeader()))
        signer = self._users.signer(ctx)
        if signer is None or not signer.is_super:
            words = "the log is for replicas whose innerClientAuthenticationCredentials are a super user's here"
            raise Refused(ResponseCode.NO_PERMISSION, words)
        if header.proves and signer is not None:
            self._tickets.give(ticket_of(signer.secret, drawn), ip, ctx.steady_ms)
            return Reply(encode_ext(HaTicketResponseHeader(challenge=drawn)))
        bare = not body and ext_fields(ctx.command.ext).keys() <= SIGNED
        if not bare:
            raise Refused(ResponseCode.NO_PERMISSION, "this was signed as another request")
        self._tickets.give(drawn, ip, ctx.steady_ms)
        return Reply(encode_ext(HaTicketResponseHeader(ticket=drawn)))

    def door(self, connection: HaConnection, side: Callable[[HaConnection], HaSide]) -> HaSide:
        """Return what takes a connection that has come: its side at once, or a gate until it has said its ticket."""
        ip = connection.remote.rpartition(":")[0].strip("[]")
        if not self._settings.authentication_enabled or self._settings.allows_replica(ip):
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
        self._received = b""
        self._side: HaSide | None = None

    def received(self, data: bytes) -> None:
        """Look at the ticket, then pass on what follows. Raises RemoteProtocolError: it is none."""
        if self._side is not None:
            self._side.received(data)
            return
        received = self._received = self._received + data
        if received[: len(MARK)] != MARK[: len(received)]:
            raise RemoteProtocolError("it says no ticket")
        size = len(MARK) + 2 * BYTES
        if len(received) < size:
            return
        self._received = b""
        if not self._take(received[len(MARK) : size].decode("latin-1")):
            raise RemoteProtocolError("its ticket is wrong, too old, used, or another address's")
        self._side = self._make(self._connection)
        if received[size:]:
            self._side.received(received[size:])

    def room(self) -> None:
        """Tell the side, once there is one, that what waited has been taken."""
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

    def __init__(self, core: BrokerCore, master: MasterSource) -> None:
        self._credentials = core.access.settings.credentials
        self._outbound = core.outbound
        self._master = master

    async def fetch(self, ha_address: str) -> bytes:
        """Fetch what to say first to the door at this address; empty: nothing.

        Raises:
            ConnectError: the master does not answer, or refuses.
        """
        if self._credentials is None:
            return b""
        address = self._master.master_address
        if not address:  # haMasterAddress without name servers: as `ClassicSource.prepare`
            host, port = split_address(ha_address)
            address = f"{host}:{port - 1}"
        try:
            code = RequestCode.GET_HA_TICKET
            ext = encode_ext(HaTicketRequestHeader(proves=True))
            answer = await self._outbound.ask(address, code, ext, timeout_ms=TIMEOUT_MS)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return b""  # Apache's masters ask for none
            raise ConnectError(f"no ticket: {error}") from None
        except ClientError as error:
            raise ConnectError(f"no ticket: {error}") from None
        told = decode_ext(HaTicketResponseHeader, answer.ext)
        if told.challenge:
            return words_of(ticket_of(self._credentials.secret_key.encode(), told.challenge))
        return words_of(told.ticket) if told.ticket else b""
