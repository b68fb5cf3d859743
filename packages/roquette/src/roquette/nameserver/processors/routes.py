"""Requests of clients to a name server: routes. Apache: ClientRequestProcessor."""

from typing import Any

import msgspec

from roquette.errors import Refused
from roquette.nameserver.floor.config import CACHED_BYTES, CACHED_ROUTES, WATCH_BYTES, NamesrvConfig
from roquette.nameserver.floor.core import NameServerCore, NameServerLane, decode_or_refuse
from roquette.remoting.promises import Promise
from roquette.remoting.request import Reply, RequestContext, Row, row
from roquette.wire import headers
from roquette.wire.bodies import TopicList, TopicRouteData
from roquette.wire.codes import FAQ, ORDER_TOPIC_CONFIG, ResponseCode
from roquette.wire.codes import RequestCode as R
from roquette.wire.header_codec import ext_dict
from roquette.wire.json_body import encode_body


class RouteProcessor:
    """Answers routes, kept encoded until the table changes."""

    def __init__(self, core: NameServerCore) -> None:
        self._core = core
        self._encoded: dict[str, Reply] = {}
        self._encoded_size = 0
        self._brokers: dict[
            str, msgspec.Raw
        ] = {}  # what each says of itself is the same in all routes
        self._encoded_for: tuple[int, int, NamesrvConfig] | None = None

    def rows(self) -> list[Row]:
        """Return the rows of the requests that are served."""
        header = headers.GetRouteInfoRequestHeader
        return [
            row(
                R.GET_ROUTEINFO_BY_TOPIC,
                self.find_route,
                header,
                NameServerLane.CLIENTS,
                Promise.NOTHING,
            ),
            row(R.WATCH_ROUTES, self.watch, None, NameServerLane.CLIENTS, Promise.MEMORY),
        ]

    def watch(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """WATCH_ROUTES: ROUTES_CHANGED is sent when one of these topics changes, until the connection ends."""
        if len(body) > WATCH_BYTES:
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"more than {WATCH_BYTES} bytes of topics"
            )
        topics = decode_or_refuse(TopicList, body).topic_list
        self._core.routes.watches.watch(ctx.peer.id, topics)
        return Reply()

    def find_route(
        self, ctx: RequestContext, header: headers.GetRouteInfoRequestHeader, body: bytes
    ) -> Reply:
        """GET_ROUTEINFO_BY_TOPIC."""
        config = self._core.config
        if config.need_wait_for_service and self._core.waits_s():
            raise Refused(ResponseCode.SYSTEM_ERROR, "name server not ready")
        zone, outside = _zone_of(ctx), self._core.is_outside(ctx)
        if zone is not None or outside or header.outside:
            route = self._find(header.topic, config)
            if zone is not None:
                route = _of_zone(route, zone)
            routes = self._core.routes
            if outside:
                route.broker_datas = [routes.outside(data) for data in route.broker_datas]
            elif header.outside:
                route.broker_datas = [
                    msgspec.structs.replace(data, outside_addrs=routes.outside(data).broker_addrs)
                    for data in route.broker_datas
                ]
            return Reply(body=encode_body(route))
        state = (self._core.routes.revision, self._core.kv.version, config)
        if self._encoded_for != state:
            self._encoded.clear()
            self._brokers.clear()
            self._encoded_size, self._encoded_for = 0, state
        reply = self._encoded.get(header.topic)
        if reply is None:
            body = self._encode(self._find(header.topic, config))
            reply = Reply(body=body)
            size = self._encoded_size + len(body)
            if len(self._encoded) < CACHED_ROUTES and size <= CACHED_BYTES:
                self._encoded[header.topic] = reply
                self._encoded_size = size
        return reply

    def _encode(self, route: TopicRouteData) -> bytes:
        """`encode_body` of a route, with parts made before: most of a route of many brokers is the same in the next."""
        known, brokers = self._brokers, []
        for data in route.broker_datas:
            if data.broker_name not in known:
                known[data.broker_name] = msgspec.Raw(encode_body(data))
            brokers.append(known[data.broker_name])
        fields: dict[str, Any] = {
            "queueDatas": route.queue_datas,
            "brokerDatas": brokers,
            "filterServerTable": route.filter_server_table,
        }
        if route.order_topic_conf is not None:
            fields["orderTopicConf"] = route.order_topic_conf
        if route.topic_queue_mapping_by_broker is not None:
            fields["topicQueueMappingByBroker"] = route.topic_queue_mapping_by_broker
        return encode_body(fields)

    def _find(self, topic: str, config: NamesrvConfig) -> TopicRouteData:
        found = self._core.routes.find_route(topic)
        if found is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}{FAQ}",
            )
        if config.order_message_enable:
            found.order_topic_conf = self._core.kv.find(ORDER_TOPIC_CONFIG, topic)
        return found


def _zone_of(ctx: RequestContext) -> str | None:
    """The zone a client wants to stay in (ZoneRouteRPCHook)."""
    raw = ctx.command.ext
    if b"__ZONE_MODE" not in raw:
        return None
    fields = ext_dict(raw)
    name = fields.get("__ZONE_NAME", "")
    return name if name and fields.get("__ZONE_MODE", "").lower() == "true" else None


def _of_zone(route: TopicRouteData, zone: str) -> TopicRouteData:
    """Brokers of one zone, and those without a master."""
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
