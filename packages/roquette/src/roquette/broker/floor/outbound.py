"""Every call the broker makes to others: registrations, routes, auto-created topics. Apache: BrokerOuterAPI."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from roquette.base.clock import Clock
from roquette.base.executor import run_blocking
from roquette.broker.floor.config import BrokerConfig
from roquette.errors import BrokerError, ConfigError
from roquette.message.message_id import host_bytes
from roquette.message.names import TBW102
from roquette.remoting.address import first_address
from roquette.remoting.client import RemotingClient
from roquette.remoting.security import Security
from roquette.wire.bodies import (
    PART,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicRouteData,
    crc_of,
    encode_register_broker_body,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.header_codec import encode_dict, encode_ext, ext_dict
from roquette.wire.headers import (
    BrokerHeartbeatRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicConfigRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from roquette.wire.json_body import decode_body

AUTO_CREATED = "autoCreated"
"""Field of ours: in UPDATE_AND_CREATE_TOPIC and in the answer to GET_TOPIC_CONFIG, a first message made it."""
LOG_END = "logEnd"
"""Field of ours in answers for replicas: where the log ended when the answer was true."""


class NameServerAnswer(NamedTuple):
    """Answer of a name server: its order-topic table, if it sent one, and to replicas where their master is."""

    order_topics: KVTable | None
    master_address: str
    ha_address: str


class Outbound:
    """Calls to name servers and other brokers over one remoting client.

    Attributes:
        lost: called with the address of each connection that has ended.
    """

    def __init__(self, clock: Clock, security: Security) -> None:
        self.lost: list[Callable[[str], None]] = []
        self._client = RemotingClient(clock, on_lost=self._lost, security=security)

    def _lost(self, address: str) -> None:
        for follow in self.lost:
            follow(address)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def register(
        self,
        name_server: str,
        header: RegisterBrokerRequestHeader,
        body: RegisterBrokerBody,
        timeout_ms: int,
        *,
        part: bool = False,
    ) -> "NameServerAnswer":
        """REGISTER_BROKER at one name server.

        `part`: there are more topics than in this body; our name server reads that, Apache's ignores it.

        Raises:
            ClientError: it did not answer, or it refused (BrokerError).
        """
        if header.compressed:
            data = await run_blocking(partial(encode_register_broker_body, body, compressed=True))
        else:
            data = encode_register_broker_body(body)
        header.body_crc32 = crc_of(data)
        ext = encode_ext(header)
        reply = await self._client.invoke(
            name_server,
            RequestCode.REGISTER_BROKER,
            ext[:-1] + b',"%b":"true"}' % PART.encode() if part else ext,
            data,
            timeout_ms=timeout_ms,
        )
        if reply.code != ResponseCode.SUCCESS:
            raise BrokerError(reply.code, reply.remark or "", address=name_server)
        told = ext_dict(reply.ext)
        return NameServerAnswer(
            decode_body(KVTable, reply.body) if reply.body else None,
            told.get("masterAddr", ""),
            told.get("haServerAddr", ""),
        )

    async def ask(self, broker: str, code: int, ext: bytes = b"", *, timeout_ms: int) -> Command:
        """A request to another server; raises ClientError, BrokerError when it is refused."""
        reply = await self._client.invoke(broker, code, ext, timeout_ms=timeout_ms)
        if reply.code != ResponseCode.SUCCESS:
            raise BrokerError(reply.code, reply.remark or "", address=broker)
        return reply

    def heartbeat(self, name_server: str, header: BrokerHeartbeatRequestHeader) -> None:
        """BROKER_HEARTBEAT at one name server that is connected, without an answer."""
        peer = self._client.peer(name_server)
        if peer is not None:
            peer.notify(RequestCode.BROKER_HEARTBEAT, encode_ext(header))

    async def unregister(
        self, name_server: str, header: UnRegisterBrokerRequestHeader, timeout_ms: int
    ) -> None:
        """UNREGISTER_BROKER at one name server; raises ClientError."""
        reply = await self._client.invoke(
            name_server, RequestCode.UNREGISTER_BROKER, encode_ext(header), timeout_ms=timeout_ms
        )
        if reply.code != ResponseCode.SUCCESS:
            raise BrokerError(reply.code, reply.remark or "", address=name_server)

    async def runtime_info(self, broker: str, timeout_ms: int) -> dict[str, str]:
        """GET_BROKER_RUNTIME_INFO at another broker. Raises ClientError."""
        reply = await self._client.invoke(
            broker, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_ms=timeout_ms
        )
        if reply.code != ResponseCode.SUCCESS:
            raise BrokerError(reply.code, reply.remark or "", address=broker)
        return decode_body(KVTable, reply.body).table

    async def topic_config(
        self, broker: str, topic: str, timeout_ms: int
    ) -> tuple[TopicConfig | None, bool]:
        """GET_TOPIC_CONFIG at another broker: the topic, None when it has none, and whether it says that a
        first message made it just now (ours do). Raises ClientError."""
        reply = await self._client.invoke(
            broker,
            RequestCode.GET_TOPIC_CONFIG,
            encode_ext(GetTopicConfigRequestHeader(topic=topic)),
            timeout_ms=timeout_ms,
        )
        if reply.code in {ResponseCode.TOPIC_NOT_EXIST, ResponseCode.REQUEST_CODE_NOT_SUPPORTED}:
            return None, False
        if reply.code != ResponseCode.SUCCESS:
            raise BrokerError(reply.code, reply.remark or "", address=broker)
        auto = ext_dict(reply.ext).get(AUTO_CREATED) == "true"
        return decode_body(TopicConfig, reply.body), auto

    async def auto_create_topic(self, broker: str, config: TopicConfig, timeout_ms: int) -> None:
        """UPDATE_AND_CREATE_TOPIC at another broker, marked as the work of a first message, which Apache's
        brokers do not notice. Raises ClientError."""
        ext = {
            "topic": config.topic_name,
            "defaultTopic": TBW102,
            "readQueueNums": str(config.read_queue_nums),
            "writeQueueNums": str(config.write_queue_nums),
            "perm": str(config.perm),
            "topicFilterType": config.topic_filter_type or "SINGLE_TAG",
            "topicSysFlag": str(config.topic_sys_flag),
            "order": "false",
            AUTO_CREATED: "true",
        }
        plain = encode_dict(ext)
        if config.attributes:
            ext["attributes"] = ",".join(
                f"+{key}={text}" for key, text in config.attributes.items()
            )
            reply = await self._client.invoke(
                broker, RequestCode.UPDATE_AND_CREATE_TOPIC, encode_dict(ext), timeout_ms=timeout_ms
            )
            if reply.code == ResponseCode.SUCCESS:
                return  # else one without MIXED topics (Apache: enableMixedMessageType)
        reply = await self._client.invoke(
            broker, RequestCode.UPDATE_AND_CREATE_TOPIC, plain, timeout_ms=timeout_ms
        )
        if reply.code != ResponseCode.SUCCESS:
            raise BrokerError(reply.code, reply.remark or "", address=broker)

    async def route(
        self, name_server: str, topic: str, timeout_ms: int, *, outside: bool = False
    ) -> TopicRouteData | None:
        """GET_ROUTEINFO_BY_TOPIC at one name server; None when it knows nothing. Raises ClientError. `outside`: also where
        clients from outside reach brokers."""
        header = GetRouteInfoRequestHeader(
            topic=topic, accept_standard_json_only=True, outside=outside or None
        )
        reply = await self._client.invoke(
            name_server,
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            encode_ext(header),
            timeout_ms=timeout_ms,
        )
        if reply.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if reply.code != ResponseCode.SUCCESS:
            raise BrokerError(reply.code, reply.remark or "", address=name_server)
        return decode_body(TopicRouteData, reply.body)


# A broker's addresses: the address it advertises, and free ports to listen on.


PORT_TRIES = 20


def advertised_host(config: BrokerConfig) -> str:
    """The IP address, or the name, that clients get; raises ConfigError."""
    host = config.broker_ip1 or config.bind_address
    if host in {"", "0.0.0.0", "::"}:
        raise ConfigError("brokerIP1 is not set and the bind address is not a specific one")
    return host


async def store_host(host: str, port: int) -> bytes:
    """Return what records and message ids carry for what is advertised: an IP address, of a name the one it has now.

    Raises:
        ConfigError: it has none.
    """
    try:
        return host_bytes(await first_address(host), port)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"brokerIP1={host!r} is no IP address, and has none, which records and message ids carry: {error}"
        ) from None


async def free_port(bind: str, held: ExitStack) -> int:
    """A free main port; the fast port, two below it, and the one above it, for replicas, are free as well. Until `held` is
    closed they are taken: a port that is free for a moment only is soon that of somebody's connection."""
    loop = asyncio.get_running_loop()
    for _ in range(PORT_TRIES):
        with ExitStack() as probes:
            probe = await loop.create_server(asyncio.Protocol, bind, 0)
            probes.callback(probe.close)
            port = int(probe.sockets[0].getsockname()[1])
            try:
                for other in (port - 2, port + 1):
                    probe = await loop.create_server(asyncio.Protocol, bind, other)
                    probes.callback(probe.close)
            except (OSError, OverflowError):
                continue
            held.push(probes.pop_all())
        return port
    raise OSError(f"no free ports with their neighbours on {bind} in {PORT_TRIES} tries")
