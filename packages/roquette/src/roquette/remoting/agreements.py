"""A group's record as a broker reaches it: through name servers that are controllers, or straight in etcd."""

import asyncio
from collections.abc import Sequence

from roquette.base.files import Files
from roquette.base.options import split_addresses
from roquette.errors import AgreementError, ClientError, ConfigError, ConnectError
from roquette.remoting.client import RemotingClient, split_address
from roquette.remoting.etcd import SCHEME, EtcdAgreement, parse_etcd
from roquette.replication.agreement import Agreement, Stored
from roquette.wire import headers
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.header_codec import decode_ext, encode_ext


async def open_agreement(where: str, client: RemotingClient, files: Files) -> Agreement:
    """Open the agreement that the setting controllerAddr names: `etcd://...`, or name servers, `host:port;host:port`.

    Raises:
        ConfigError: it is neither, or names a file that cannot be used.
    """
    if where.startswith(SCHEME):
        etcd = EtcdAgreement(parse_etcd(where), files)
        await etcd.load()
        return etcd
    addresses = split_addresses(where)
    try:
        for address in addresses:
            split_address(address)
    except ConnectError as error:
        raise ConfigError(f"controllerAddr={where!r}: {error}") from None
    if not addresses:
        raise ConfigError("controllerAddr names no address")
    return RemoteAgreement(client, addresses)


class RemoteAgreement:
    """An `Agreement` behind name servers: one is asked, and the next one after an error or `try_ms`.

    All of them must stand before one etcd. A controller that keeps records in a file of its own refuses unless it is the
    only address: then a try may take a second.

    Args:
        client: the owner's; `close` leaves it open.
    """

    def __init__(
        self, client: RemotingClient, addresses: Sequence[str], try_ms: int | None = None
    ) -> None:
        assert addresses
        self._client = client
        self._addresses = list(addresses)
        self._several = len(addresses) > 1
        self._at = 0
        self._try_ms = try_ms or (250 if len(addresses) > 1 else 1_000)

    async def get(self, key: str) -> Stored:
        """See `Agreement`; each name server is tried once."""
        ext = encode_ext(headers.GetRegisterRequestHeader(key=key, several=self._several))
        said: list[str] = []
        for _ in self._addresses:
            address = self._addresses[self._at]
            try:
                answer = await self._ask(address, RequestCode.GET_REGISTER, ext, b"")
                return Stored(_revision(answer), bytes(answer.body or b""))
            except (ClientError, AgreementError) as error:
                said.append(f"{address}: {error}")
                self._next(address)
        raise AgreementError(f"the record {key} could not be read: {'; '.join(said)}")

    async def put_if(self, key: str, revision: int, value: bytes) -> int | None:
        """See `Agreement`; the next name server is tried only when the one before cannot have got the request."""
        ext = encode_ext(
            headers.PutRegisterIfRequestHeader(key=key, revision=revision, several=self._several)
        )
        said: list[str] = []
        for _ in self._addresses:
            address = self._addresses[self._at]
            try:
                async with asyncio.timeout(self._try_ms / 1000):
                    await self._client.connect(address)
            except (ClientError, TimeoutError) as error:
                said.append(f"{address}: {error or 'no connection in time'}")
                self._next(address)
                continue
            try:
                answer = await self._ask(address, RequestCode.PUT_REGISTER_IF, ext, value)
                return _revision(answer) or None
            except (ClientError, AgreementError) as error:
                said.append(f"{address}: {error}")
                self._next(address)
                break
        raise AgreementError(f"the record {key} may not be written: {'; '.join(said)}")

    async def _ask(self, address: str, code: int, ext: bytes, body: bytes) -> Command:
        answer = await self._client.invoke(address, code, ext, body, timeout_ms=self._try_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise AgreementError(answer.remark or f"code {answer.code}")
        return answer

    def _next(self, failed: str) -> None:
        if self._addresses[self._at] == failed:  # another call may have moved on already
            self._at = (self._at + 1) % len(self._addresses)

    async def close(self) -> None:
        """Nothing of its own is open."""


def _revision(answer: Command) -> int:
    return decode_ext(headers.RegisterResponseHeader, answer.ext).revision
