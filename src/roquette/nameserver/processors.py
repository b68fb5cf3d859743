"""Every request a name server answers. Apache: DefaultRequestProcessor, ClientRequestProcessor."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final
from weakref import WeakValueDictionary

from roquette.base.clock import Clock
from roquette.base.config import format_properties, read_changes, to_properties, with_changes
from roquette.base.executor import run_blocking
from roquette.base.foreign_keys import NAMESRV
from roquette.base.logs import RateLimited
from roquette.errors import ConfigError, Refused, RemoteProtocolError
from roquette.nameserver.bounds import CACHED_BYTES, CACHED_ROUTES
from roquette.nameserver.config import NamesrvConfig, forbidden_keys
from roquette.nameserver.identity import BrokerIdentity, Registered
from roquette.nameserver.kv_table import KvTable
from roquette.nameserver.route_table import RouteTable
from roquette.remoting.dispatcher import RequestContext
from roquette.remoting.outcomes import Outcome, Reply, Task
from roquette.wire import headers
from roquette.wire.bodies import (
    PART,
    BrokerMemberGroup,
    DataVersion,
    GetBrokerMemberGroupResponseBody,
    KVTable,
    RegisterBrokerBody,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRouteData,
    crc_of,
    decode_register_broker_body,
)
from roquette.wire.codes import ORDER_TOPIC_CONFIG, ResponseCode
from roquette.wire.header_codec import encode_ext, ext_dict
from roquette.wire.json_body import decode_body, decode_request_body, encode_body

log = logging.getLogger("roquette.nameserver")

WAITING: Final = 100  # requests at a time
GONE_S: Final = 1.0  # for the end of a dead connection to be noticed, after a word was sent over it
V3_0_11: Final = 37  # brokers before it send topics alone
FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
DIRECT: Final = 64 << 10  # bytes of a registration that is read on the loop
DIRECT_COMPRESSED: Final = 2 << 10  # it may inflate a thousandfold
MANY: Final = 20_000  # topics: longer lists are written beside the loop
OK: Final = Reply()


class RouteProcessor:
    """What clients ask: routes. Answers are kept encoded until the table changes."""

    def __init__(
        self,
        routes: RouteTable,
        kv: KvTable,
        config: Callable[[], NamesrvConfig],
        started_ms: Callable[[], int],
    ) -> None:
        self._routes = routes
        self._kv = kv
        self._config = config
        self._started_ms = started_ms
        self._encoded: dict[str, Reply] = {}
        self._encoded_size = 0
        self._encoded_for: tuple[int, int, NamesrvConfig] | None = None

    def find_route(
        self, ctx: RequestContext, header: headers.GetRouteInfoRequestHeader, body: bytes
    ) -> Reply:
        """GET_ROUTEINFO_BY_TOPIC."""
        config = self._config()
        if (
            config.need_wait_for_service
            and ctx.steady_ms - self._started_ms() < config.wait_seconds_for_service * 1000
        ):
            raise Refused(ResponseCode.SYSTEM_ERROR, "name server not ready")
        zone = _zone_of(ctx)
        if zone is not None:
            found = self._find(header.topic, config)
            return Reply(body=encode_body(_of_zone(found, zone)))
        state = (self._routes.revision, self._kv.version, config)
        if self._encoded_for != state:
            self._encoded.clear()
            self._encoded_size, self._encoded_for = 0, state
        reply = self._encoded.get(header.topic)
        if reply is None:
            body = encode_body(self._find(header.topic, config))
            reply = Reply(body=body)
            size = self._encoded_size + len(body)
            if len(self._encoded) < CACHED_ROUTES and size <= CACHED_BYTES:
                self._encoded[header.topic] = reply
                self._encoded_size = size
        return reply

    def _find(self, topic: str, config: NamesrvConfig) -> TopicRouteData:
        found = self._routes.find_route(topic, support_acting_master=config.support_acting_master)
        if found is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}{FAQ}",
            )
        if config.order_message_enable:
            found.order_topic_conf = self._kv.find(ORDER_TOPIC_CONFIG, topic)
        return found


def _zone_of(ctx: RequestContext) -> str | None:
    """The zone a client wants to stay in (ZoneRouteRPCHook)."""
    raw = ctx.command.ext
    if raw is None or b"__ZONE_MODE" not in bytes(raw):
        return None
    fields = ext_dict(raw)
    name = fields.get("__ZONE_NAME", "")
    return name if name and fields.get("__ZONE_MODE", "").lower() == "true" else None


def _of_zone(route: TopicRouteData, zone: str) -> TopicRouteData:
    """Brokers of one zone, and those whose master is gone."""
    route.broker_datas = [
        broker
        for broker in route.broker_datas
        if 0 not in broker.broker_addrs or (broker.zone_name or "").lower() == zone.lower()
    ]
    names = {broker.broker_name for broker in route.broker_datas}
    addresses = {a for broker in route.broker_datas for a in broker.broker_addrs.values()}
    route.queue_datas = [data for data in route.queue_datas if data.broker_name in names]
    route.filter_server_table = {
        a: servers for a, servers in route.filter_server_table.items() if a in addresses
    }
    return route


class BrokerProcessor:
    """What brokers tell and ask: registrations, heartbeats, members.

    Args:
        clock: for how long a broker is silent.
        nudge: sends a word over a connection, so that one whose peer has vanished ends.
    """

    def __init__(
        self,
        routes: RouteTable,
        kv: KvTable,
        config: Callable[[], NamesrvConfig],
        clock: Clock,
        nudge: Callable[[int], None],
    ) -> None:
        self._routes = routes
        self._kv = kv
        self._config = config
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._steady_ms = clock.steady_ms
        self._noise = RateLimited(log, clock)
        self._waiting = 0
        self._nudge = nudge

    def register(
        self, ctx: RequestContext, header: headers.RegisterBrokerRequestHeader, body: bytes
    ) -> Outcome:
        """REGISTER_BROKER."""
        turn = self._turns.get(ctx.peer.id)
        small = len(body) <= (DIRECT_COMPRESSED if header.compressed else DIRECT)
        if turn is None and small and self._rival(ctx, _identity(header)) is None:
            registration = _decode_registration(header, body, ctx.command.version)
            return self._answer(self._enter(ctx, header, registration, stepwise=False))
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
        """Many topics: read beside the loop and taken in step by step, registrations of a connection in their order."""
        async with turn:
            await self._wait_for_place(ctx, _identity(header))
            version = ctx.command.version
            registration = await run_blocking(_decode_registration, header, body, version)
            await self._wait_for_place(ctx, _identity(header))
            if ctx.peer.closed:
                return OK  # nobody is there: what was registered meanwhile is gone, too
            result = self._enter(ctx, header, registration, stepwise=True)
            for _ in result.rest:
                await asyncio.sleep(0)
        return self._answer(result)

    def unregister(
        self, ctx: RequestContext, header: headers.UnRegisterBrokerRequestHeader, body: bytes
    ) -> Outcome:
        """UNREGISTER_BROKER: done when answered."""
        if self._rival(ctx, _identity(header)) is None:
            return self._leave(ctx, header)
        return Task(self._unregister_late(ctx, header))

    async def _unregister_late(
        self, ctx: RequestContext, header: headers.UnRegisterBrokerRequestHeader
    ) -> Reply:
        await self._wait_for_place(ctx, _identity(header))
        return self._leave(ctx, header)

    def _leave(self, ctx: RequestContext, header: headers.UnRegisterBrokerRequestHeader) -> Reply:
        identity = _identity(header)
        self._routes.unregister(identity, connection=ctx.peer.id, now_ms=self._steady_ms())
        return OK

    def _rival(self, ctx: RequestContext, identity: BrokerIdentity) -> int | None:
        return self._routes.rival(identity, connection=ctx.peer.id, now_ms=self._steady_ms())

    async def _wait_for_place(self, ctx: RequestContext, identity: BrokerIdentity) -> None:
        """Return when no living broker on another connection has the place of `identity`, or the asker is gone.

        A restarted broker may be faster than the end of its old connection: that has `GONE_S` to come.

        Raises:
            Refused: it is alive all the time.
        """
        other = self._rival(ctx, identity)
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
                if ctx.peer.closed or self._rival(ctx, identity) is None:
                    return
        finally:
            self._waiting -= 1
        self._noise.warning(
            "alive", "refused, it is alive elsewhere broker=%s peer=%s", identity, ctx.peer.remote
        )
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the place of broker {identity} belongs to a broker that is alive on another connection: "
            "it changes or leaves only over that one, until it ends or is silent for 75 s",
        )

    def _enter(
        self,
        ctx: RequestContext,
        header: headers.RegisterBrokerRequestHeader,
        registration: RegisterBrokerBody,
        *,
        stepwise: bool,
    ) -> Registered:
        wrapper = registration.topic_config_serialize_wrapper
        config = self._config()
        result = self._routes.register(
            _identity(header),
            wrapper.topic_config_table,
            wrapper.data_version,
            connection=ctx.peer.id,
            now_ms=self._steady_ms(),
            ha_address=header.ha_server_addr,
            timeout_ms=header.heartbeat_timeout_millis,
            enable_acting_master=header.enable_acting_master,
            zone=_registered_zone(ctx),
            filter_servers=registration.filter_server_list,
            mappings=wrapper.topic_queue_mapping_info_map,
            delete_absent=config.delete_topic_with_broker_registration and not _is_part(ctx),
            stepwise=stepwise,
        )
        if result is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "register broker failed")
        return result

    def _answer(self, result: Registered) -> Reply:
        answer = headers.RegisterBrokerResponseHeader(
            ha_server_addr=result.ha_address, master_addr=result.master_address
        )
        ordered = None
        if self._config().return_order_topic_config_to_broker:
            ordered = self._kv.namespace(ORDER_TOPIC_CONFIG)
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
        version = _decode(DataVersion, body)
        cluster, address = header.cluster_name, header.broker_addr
        changed = self._routes.is_changed(cluster, address, version)
        self._routes.touch(cluster, address, connection=ctx.peer.id, now_ms=ctx.steady_ms)
        stored = self._routes.find_data_version(cluster, address)
        return Reply(
            encode_ext(headers.QueryDataVersionResponseHeader(changed=changed)),
            None if stored is None else encode_body(stored),
        )

    def heartbeat(
        self, ctx: RequestContext, header: headers.BrokerHeartbeatRequestHeader, body: bytes
    ) -> Reply:
        """BROKER_HEARTBEAT."""
        cluster, address = header.cluster_name, header.broker_addr
        if not self._routes.touch(
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
        return Reply(body=encode_body(self._routes.cluster_info()))

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
    raw = ctx.command.ext
    return raw is not None and PART.encode() in bytes(raw)


def _registered_zone(ctx: RequestContext) -> str | None:
    raw = ctx.command.ext
    if raw is None or b"__ZONE_NAME" not in bytes(raw):
        return None
    return ext_dict(raw).get("__ZONE_NAME") or None


def _decode(kind: Any, body: bytes) -> Any:
    try:
        return decode_request_body(kind, body)
    except RemoteProtocolError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None


class TopicProcessor:
    """Lists of topics, and their removal."""

    def __init__(self, routes: RouteTable, config: Callable[[], NamesrvConfig]) -> None:
        self._routes = routes
        self._config = config

    def all_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""
        if not self._config().enable_all_topic_list:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disable")
        return _topic_list(self._routes.topics())

    def of_cluster(
        self, ctx: RequestContext, header: headers.GetTopicsByClusterRequestHeader, body: bytes
    ) -> Outcome:
        """GET_TOPICS_BY_CLUSTER."""
        self._check_enabled()
        return _topic_list(self._routes.topics_of_cluster(header.cluster))

    def system_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS."""
        topics, address = self._routes.system_topics()
        return _topic_list(topics, address)

    def unit_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """GET_UNIT_TOPIC_LIST."""
        self._check_enabled()
        return _topic_list(self._routes.topics_with_flags(unit=True))

    def unit_sub_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """GET_HAS_UNIT_SUB_TOPIC_LIST."""
        self._check_enabled()
        return _topic_list(self._routes.topics_with_flags(unit_sub=True))

    def unit_sub_not_unit_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST."""
        self._check_enabled()
        return _topic_list(self._routes.topics_with_flags(unit=False, unit_sub=True))

    def delete(
        self, ctx: RequestContext, header: headers.DeleteTopicFromNamesrvRequestHeader, body: bytes
    ) -> Reply:
        """DELETE_TOPIC_IN_NAMESRV."""
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        return OK

    def register(
        self, ctx: RequestContext, header: headers.RegisterTopicRequestHeader, body: bytes
    ) -> Reply:
        """REGISTER_TOPIC_IN_NAMESRV."""
        route: TopicRouteData = _decode(TopicRouteData, body)
        self._routes.register_topic(header.topic, route.queue_datas)
        return OK

    def _check_enabled(self) -> None:
        if not self._config().enable_topic_list:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disable")


def _topic_list(topics: list[str], address: str | None = None) -> Outcome:
    answer = TopicList(topic_list=topics, broker_addr=address)
    if len(topics) > MANY:
        return Task(_encoded(answer))
    return Reply(body=encode_body(answer))


async def _encoded(answer: TopicList) -> Reply:
    return Reply(body=await run_blocking(encode_body, answer))


class ConfigProcessor:
    """The KV config, and the name server's own settings.

    Args:
        save_kv: write the KV table to disk; changes are answered when that is done.
        replace: put another config in force.
    """

    def __init__(
        self,
        kv: KvTable,
        save_kv: Callable[[], Coroutine[Any, Any, None]],
        config: Callable[[], NamesrvConfig],
        replace: Callable[[NamesrvConfig], None],
    ) -> None:
        self._kv = kv
        self._save_kv = save_kv
        self._config = config
        self._replace = replace

    def put(self, ctx: RequestContext, header: None, body: bytes) -> Task:
        """PUT_KV_CONFIG."""
        fields = ext_dict(ctx.command.ext)
        namespace, key = fields.get("namespace"), fields.get("key")
        if namespace is None or key is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        self._kv.put(namespace, key, fields.get("value", ""))
        return Task(self._saved())

    def get(
        self, ctx: RequestContext, header: headers.GetKVConfigRequestHeader, body: bytes
    ) -> Reply:
        """GET_KV_CONFIG."""
        value = self._kv.find(header.namespace, header.key)
        if value is None:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return Reply(encode_ext(headers.GetKVConfigResponseHeader(value=value)))

    def delete(self, ctx: RequestContext, header: None, body: bytes) -> Task:
        """DELETE_KV_CONFIG."""
        fields = ext_dict(ctx.command.ext)
        namespace, key = fields.get("namespace"), fields.get("key")
        if namespace is None or key is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        self._kv.delete(namespace, key)
        return Task(self._saved())

    def list_namespace(
        self, ctx: RequestContext, header: headers.GetKVListByNamespaceRequestHeader, body: bytes
    ) -> Reply:
        """GET_KVLIST_BY_NAMESPACE."""
        table = self._kv.namespace(header.namespace)
        if table is None:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}"
            )
        return Reply(body=encode_body(KVTable(table=table)))

    async def _saved(self) -> Reply:
        try:
            await self._save_kv()
        except OSError as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"the KV config could not be saved: {error}"
            ) from None
        return OK

    def get_settings(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_NAMESRV_CONFIG."""
        return Reply(body=format_properties(to_properties(self._config())).encode())

    def update_settings(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """UPDATE_NAMESRV_CONFIG: only what may change while running, never an address or a path."""
        try:
            changes = read_changes(body)
            if forbidden_keys(changes):
                raise Refused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
            (config,) = with_changes((self._config(),), changes, NAMESRV)
            self._replace(config)
        except ConfigError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return OK
