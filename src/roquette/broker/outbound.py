"""Every call the broker makes to others: registrations and routes. Apache: BrokerOuterAPI."""

from roquette.errors import BrokerError
from roquette.remoting.client import RemotingClient
from roquette.wire.bodies import (
    KVTable,
    RegisterBrokerBody,
    TopicRouteData,
    crc_of,
    encode_register_broker_body,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import encode_ext
from roquette.wire.headers import (
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from roquette.wire.json_body import decode_body


class Outbound:
    """Calls to name servers over one remoting client."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    async def register(
        self,
        name_server: str,
        header: RegisterBrokerRequestHeader,
        body: RegisterBrokerBody,
        timeout_ms: int,
    ) -> KVTable | None:
        """REGISTER_BROKER at one name server; returns its order-topic table, if it sent one.

        Raises:
            ClientError: it did not answer, or it refused (BrokerError).
        """
        data = encode_register_broker_body(body)
        header.body_crc32 = crc_of(data)
        reply = await self._client.invoke(
            name_server,
            RequestCode.REGISTER_BROKER,
            encode_ext(header),
            data,
            timeout_ms=timeout_ms,
        )
        if reply.code != ResponseCode.SUCCESS:
            raise BrokerError(reply.code, reply.remark or "", address=name_server)
        return decode_body(KVTable, reply.body) if reply.body else None

    async def unregister(
        self, name_server: str, header: UnRegisterBrokerRequestHeader, timeout_ms: int
    ) -> None:
        """UNREGISTER_BROKER at one name server; raises ClientError."""
        reply = await self._client.invoke(
            name_server, RequestCode.UNREGISTER_BROKER, encode_ext(header), timeout_ms=timeout_ms
        )
        if reply.code != ResponseCode.SUCCESS:
            raise BrokerError(reply.code, reply.remark or "", address=name_server)

    async def route(self, name_server: str, topic: str, timeout_ms: int) -> TopicRouteData | None:
        """GET_ROUTEINFO_BY_TOPIC at one name server; None when it knows nothing. Raises ClientError."""
        reply = await self._client.invoke(
            name_server,
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            encode_ext(GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)),
            timeout_ms=timeout_ms,
        )
        if reply.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if reply.code != ResponseCode.SUCCESS:
            raise BrokerError(reply.code, reply.remark or "", address=name_server)
        return decode_body(TopicRouteData, reply.body)
