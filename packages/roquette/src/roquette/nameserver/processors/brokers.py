"""Requests of brokers to a name server: registrations, heartbeats, members. Apache: DefaultRequestProcessor."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

from msgspec.structs import replace

from roquette.base.executor import run_blocking
from roquette.base.logs import RateLimited
from roquette.errors import Refused, RemoteProtocolError
from roquette.nameserver.floor.core import NameServerCore, NameServerLane, decode_or_refuse
from roquette.nameserver.floor.identity import BrokerIdentity, Registered, Registration
from roquette.remoting.promises import Promise as P
from roquette.remoting.request import Outcome, Reply, RequestContext, Row, Task, row
from roquette.wire import headers
from roquette.wire.bodies import (
    FORGET,
    PART,
    REFUSED,
    BrokerMemberGroup,
    DataVersion,
    GetBrokerMemberGroupResponseBody,
    KVTable,
    RegisterBrokerBody,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigSerializeWrapper,
    crc_of,
    decode_register_broker_body,
)
from roquette.wire.codes import ORDER_TOPIC_CONFIG, ResponseCode
from roquette.wire.codes import RequestCode as R
from roquette.wire.header_codec import encode_ext, ext_dict
from roquette.wire.json_body import decode_body, encode_body

log = logging.getLogger("roquette.nameserver")

WAITING: Final = 100  # requests at a time
GONE_S: Final = 1.0  # how long a dead connection may take to end after a request was sent over it
V3_0_11: Final = 37  # brokers before it send topics alone
DIRECT: Final = 64 << 10  # bytes of a registration that is decoded on the event loop
DIRECT_COMPRESSED: Final = 2 << 10  # it may inflate a thousandfold
OK: Final = Reply()


class BrokerProcessor:
    """Processor of what brokers tell and ask: registrations, heartbeats, members.

    Args:
        nudge: sends a request over a connection, so that one whose peer has vanished ends.
    """

    def __init__(self, core: NameServerCore, nudge: Callable[[int], None]) -> None:
        self._core = core
        self._routes = core.routes
        self._live = core.routes.live
        self._steady_ms = core.clock.steady_ms
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._noise = RateLimited(log, core.clock)
        self._waiting = 0
        self._nudge = nudge

    def rows(self) -> list[Row]:
        """Return the rows of the requests that are served."""
        h, lane = headers, NameServerLane.BROKERS
        return [
            row(R.REGISTER_BROKER, self.register, h.RegisterBrokerRequestHeader, lane, P.MEMORY),
            row(
                R.UNREGISTER_BROKER,
                self.unregister,
                h.UnRegisterBrokerRequestHeader,
                lane,
                P.MEMORY,
            ),
            row(
                R.QUERY_DATA_VERSION,
                self.query_data_version,
                h.QueryDataVersionRequestHeader,
                lane,
                P.NOTHING,
            ),
            row(R.BROKER_HEARTBEAT, self.heartbeat, h.BrokerHeartbeatRequestHeader, lane, P.MEMORY),
            row(
                R.GET_BROKER_MEMBER_GROUP,
                self.find_members,
                h.GetBrokerMemberGroupRequestHeader,
                lane,
                P.NOTHING,
            ),
            row(R.GET_BROKER_CLUSTER_INFO, self.cluster_info, None, lane, P.NOTHING),
            row(
                R.WIPE_WRITE_PERM_OF_BROKER,
                self.wipe_write_perm,
                h.WipeWritePermOfBrokerRequestHeader,
                lane,
                P.MEMORY,
            ),
            row(
                R.ADD_WRITE_PERM_OF_BROKER,
                self.add_write_perm,
                h.AddWritePermOfBrokerRequestHeader,
                lane,
                P.MEMORY,
            ),
        ]

    def register(
        self, ctx: RequestContext, header: headers.RegisterBrokerRequestHeader, body: bytes
    ) -> Outcome:
        """REGISTER_BROKER."""
        turn = self._turns.get(ctx.peer.id)
        small = len(body) <= (DIRECT_COMPRESSED if header.compressed else DIRECT)
        if turn is None and small:
            registration = self._registration(
                ctx, header, _decode_registration(header, body, ctx.command.version)
            )
            if self._rival(ctx, registration) is None:
                return self._answer(self._enter(registration, stepwise=False))
        if turn is None:
            turn = self._turns[ctx.peer.id] = asyncio.Lock()
        return Task(self._register_large(turn, ctx, header, body))

    async def _register_large(
        self,
        turn: asyncio.Lock,
        ctx: RequestContext,
        header: headers.RegisterBrokerRequestHeader,
        body: bytes,
    ) -> Reply:
        """Decode many topics in the executor and take them in step by step; registrations of a connection keep their order."""
        async with turn:
            version = ctx.command.version
            decoded = await run_blocking(_decode_registration, header, body, version)
            registration = self._registration(ctx, header, decoded)
            await self._wait_for_place(
                ctx, registration.identity, lambda: self._rival(ctx, registration)
            )
            if ctx.peer.closed:
                return OK  # no answer: what its connection registered meanwhile is removed, too
            registration.now_ms = self._steady_ms()
            result = self._enter(registration, stepwise=True)
            for _ in result.rest:
                await asyncio.sleep(0)
        return self._answer(result)

    def unregister(
        self, ctx: RequestContext, header: headers.UnRegisterBrokerRequestHeader, body: bytes
    ) -> Outcome:
        """UNREGISTER_BROKER: done when answered. With our body it is of one that has left, for good."""
        if body == FORGET:
            self._routes.departed.forget(_identity(header).key)
            return OK
        if self._holder(ctx, _identity(header)) is None:
            return self._leave(ctx, header)
        return Task(self._unregister_late(ctx, header))

    async def _unregister_late(
        self, ctx: RequestContext, header: headers.UnRegisterBrokerRequestHeader
    ) -> Reply:
        identity = _identity(header)
        await self._wait_for_place(ctx, identity, lambda: self._holder(ctx, identity))
        return self._leave(ctx, header)

    def _leave(self, ctx: RequestContext, header: headers.UnRegisterBrokerRequestHeader) -> Reply:
        identity = _identity(header)
        self._routes.unregister(identity, connection=ctx.peer.id, now_ms=self._steady_ms())
        return OK

    def _holder(self, ctx: RequestContext, identity: BrokerIdentity) -> int | None:
        """The other connection over which the broker that says good-bye is alive: only its address counts."""
        return self._live.rival([identity.key], ctx.peer.id, self._steady_ms())

    def _rival(self, ctx: RequestContext, registration: Registration) -> int | None:
        """The other connection whose broker has the place asked for; raises Refused for a deposed master."""
        self._routes.check_epoch(registration)
        return self._routes.rival(
            registration.identity,
            connection=ctx.peer.id,
            now_ms=self._steady_ms(),
            claim=registration.claim,
        )

    async def _wait_for_place(
        self, ctx: RequestContext, identity: BrokerIdentity, rival: Callable[[], int | None]
    ) -> None:
        """Return when no living broker on another connection has the place of `identity`, or the peer is gone.

        A restarted broker may register before its old connection ends: that has `GONE_S` to end.

        Raises:
            Refused: the other broker stays alive.
        """
        other = rival()
        if other is None:
            return
        if self._waiting >= WAITING:
            raise Refused(
                ResponseCode.SYSTEM_BUSY, "too many wait for the places of living brokers"
            )
        self._nudge(other)
        self._waiting += 1
        try:
            for _ in range(10):
                await asyncio.sleep(GONE_S / 10)
                if ctx.peer.closed or rival() is None:
                    return
        finally:
            self._waiting -= 1
        if ctx.command.code == R.REGISTER_BROKER:
            host = ctx.peer.remote.rpartition(":")[0]
            self._routes.departed.note(identity, REFUSED, self._steady_ms(), host)
        self._noise.warning(
            "alive", "refused, it is alive elsewhere broker=%s peer=%s", identity, ctx.peer.remote
        )
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the place of broker {identity} belongs to a broker that is alive on another connection: "
            "it changes or leaves only over that one, until it ends or is silent for 75 s",
        )

    def _registration(
        self,
        ctx: RequestContext,
        header: headers.RegisterBrokerRequestHeader,
        body: RegisterBrokerBody,
    ) -> Registration:
        wrapper = body.topic_config_serialize_wrapper
        delete_absent = self._core.config.delete_topic_with_broker_registration
        return Registration(
            identity=_identity(header),
            topics=wrapper.topic_config_table,
            data_version=wrapper.data_version,
            connection=ctx.peer.id,
            now_ms=self._steady_ms(),
            ha_address=header.ha_server_addr,
            outside=header.outside_addr or "",
            timeout_ms=header.heartbeat_timeout_millis,
            modern=header.enable_acting_master is not None,  # as Apache's isOldVersionBroker
            zone=_registered_zone(ctx),
            filter_servers=body.filter_server_list,
            mappings=wrapper.topic_queue_mapping_info_map,
            delete_absent=delete_absent and not _is_part(ctx),
        )

    def _enter(self, registration: Registration, *, stepwise: bool) -> Registered:
        result = self._routes.register(registration, stepwise=stepwise)
        if result is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "register broker failed")
        return result

    def _answer(self, result: Registered) -> Reply:
        answer = headers.RegisterBrokerResponseHeader(
            ha_server_addr=result.ha_address, master_addr=result.master_address
        )
        ordered = None
        if self._core.config.return_order_topic_config_to_broker:
            ordered = self._core.kv.namespace(ORDER_TOPIC_CONFIG)
        return Reply(
            encode_ext(answer),
            None if ordered is None else encode_body(KVTable(table=ordered)),
            remark=f"{result.left_out} topics are left out: {self._routes.bounds.topics.words()}"
            if result.left_out
            else None,
        )

    def query_data_version(
        self, ctx: RequestContext, header: headers.QueryDataVersionRequestHeader, body: bytes
    ) -> Reply:
        """QUERY_DATA_VERSION: must this broker register again? Counts as a sign of life."""
        version = decode_or_refuse(DataVersion, body)
        cluster, address = header.cluster_name, header.broker_addr
        stored = self._live.find_data_version(cluster, address)
        self._live.touch(cluster, address, connection=ctx.peer.id, now_ms=ctx.steady_ms)
        return Reply(
            encode_ext(headers.QueryDataVersionResponseHeader(changed=stored != version)),
            None if stored is None else encode_body(stored),
        )

    def heartbeat(
        self, ctx: RequestContext, header: headers.BrokerHeartbeatRequestHeader, body: bytes
    ) -> Reply:
        """BROKER_HEARTBEAT."""
        cluster, address = header.cluster_name, header.broker_addr
        if not self._live.touch(
            cluster, address, connection=ctx.peer.id, now_ms=ctx.steady_ms, beats=True
        ):
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"broker {address} is alive on another connection"
            )
        return OK

    def find_members(
        self, ctx: RequestContext, header: headers.GetBrokerMemberGroupRequestHeader, body: bytes
    ) -> Reply:
        """GET_BROKER_MEMBER_GROUP."""
        group = BrokerMemberGroup(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_addrs=self._routes.find_members(header.broker_name),
        )
        return Reply(body=encode_body(GetBrokerMemberGroupResponseBody(broker_member_group=group)))

    def cluster_info(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_BROKER_CLUSTER_INFO."""
        info = self._routes.cluster_info(ctx.steady_ms)
        if self._core.is_outside(ctx):
            outside = {n: self._routes.outside(b) for n, b in info.broker_addr_table.items()}
            info = replace(info, broker_addr_table=outside)
        return Reply(body=encode_body(info))

    def wipe_write_perm(
        self, ctx: RequestContext, header: headers.WipeWritePermOfBrokerRequestHeader, body: bytes
    ) -> Reply:
        """WIPE_WRITE_PERM_OF_BROKER."""
        count = self._routes.wipe_write_perm(header.broker_name)
        return Reply(
            encode_ext(headers.WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))
        )

    def add_write_perm(
        self, ctx: RequestContext, header: headers.AddWritePermOfBrokerRequestHeader, body: bytes
    ) -> Reply:
        """ADD_WRITE_PERM_OF_BROKER."""
        count = self._routes.add_write_perm(header.broker_name)
        return Reply(encode_ext(headers.AddWritePermOfBrokerResponseHeader(add_topic_count=count)))


def _decode_registration(
    header: headers.RegisterBrokerRequestHeader, body: bytes, version: int
) -> RegisterBrokerBody:
    if not body:
        return RegisterBrokerBody()
    if header.body_crc32 and crc_of(body) != header.body_crc32:
        raise Refused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    try:
        if version >= V3_0_11:
            return decode_register_broker_body(body, compressed=header.compressed, version=version)
        old = decode_body(TopicConfigSerializeWrapper, body)
    except RemoteProtocolError as error:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"Failed to decode RegisterBrokerBody: {error}"
        ) from None
    wrapper = TopicConfigAndMappingSerializeWrapper(
        topic_config_table=old.topic_config_table, data_version=old.data_version
    )
    return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)


def _identity(
    header: headers.RegisterBrokerRequestHeader | headers.UnRegisterBrokerRequestHeader,
) -> BrokerIdentity:
    return BrokerIdentity(
        header.cluster_name, header.broker_name, header.broker_addr, header.broker_id
    )


def _is_part(ctx: RequestContext) -> bool:
    return PART.encode() in ctx.command.ext


def _registered_zone(ctx: RequestContext) -> str | None:
    raw = ctx.command.ext
    if b"__ZONE_NAME" not in raw:
        return None
    return ext_dict(raw).get("__ZONE_NAME") or None
