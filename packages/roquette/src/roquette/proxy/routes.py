"""Routes, as clients of the v5 protocol ask for them: QueryRoute, QueryAssignment (Apache: RouteActivity)."""

from collections.abc import Iterable
from typing import Any, Final

from roquette.base.javatypes import whole_number
from roquette.message.names import PERM_READ, PERM_WRITE
from roquette.proxy.backend import Backend, TopicFacts
from roquette.proxy.service import Part, Rpc, RpcCall
from roquette.proxy.statuses import status
from roquette.proxy.validators import group_of, topic_of
from roquette.wire.bodies.route import MASTER_ID, QueueData
from roquette.wire.bodies.tables import SubscriptionGroupConfig
from roquette.wire.proto.definition_pb2 import (
    Assignment,
    Broker,
    Code,
    Endpoints,
    MessageQueue,
    MessageType,
    Permission,
    Resource,
)
from roquette.wire.proto.service_pb2 import (
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
)

TYPES: Final[dict[str, tuple[MessageType, ...]]] = {
    "NORMAL": (MessageType.NORMAL,),
    "FIFO": (MessageType.FIFO,),
    "DELAY": (MessageType.DELAY,),
    "TRANSACTION": (MessageType.TRANSACTION,),
    "MIXED": (
        MessageType.NORMAL,
        MessageType.FIFO,
        MessageType.DELAY,
        MessageType.TRANSACTION,
    ),
    "PRIORITY": (MessageType.PRIORITY,),
    "LITE": (MessageType.LITE,),
}
UNSPECIFIED: Final = (MessageType.MESSAGE_TYPE_UNSPECIFIED,)
_PERMISSIONS: Final = {
    0: Permission.NONE,
    PERM_READ: Permission.READ,
    PERM_WRITE: Permission.WRITE,
    PERM_READ | PERM_WRITE: Permission.READ_WRITE,
}


def permission_of(perm: int) -> Permission:
    """Return what may be done with queues of a permission of the remoting protocol."""
    return _PERMISSIONS[perm & (PERM_READ | PERM_WRITE)]


def is_readable(queues: QueueData) -> bool:
    """Can messages be received from there?"""
    return bool(queues.perm & PERM_READ) and queues.read_queue_nums > 0


class Routes(Part):
    """Serves them from the backend's routes."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def rpcs(self) -> Iterable[Rpc[Any]]:
        """QueryRoute, QueryAssignment."""
        yield Rpc("QueryRoute", QueryRouteRequest, QueryRouteResponse, self._query_route)
        yield Rpc(
            "QueryAssignment",
            QueryAssignmentRequest,
            QueryAssignmentResponse,
            self._query_assignment,
        )

    def _query_route(self, call: RpcCall, request: QueryRouteRequest) -> None:
        name, resource, used = topic_of(request.topic), request.topic, used_endpoints(request)

        def found(topic: TopicFacts | None) -> None:
            if topic is None:
                call.refuse(Code.TOPIC_NOT_FOUND, no_route(name))
                return
            if words := out_of_reach(topic):
                call.refuse(Code.TOPIC_NOT_FOUND, words)
                return
            reply = QueryRouteResponse(status=status(Code.OK, "OK"))
            types = TYPES.get(topic.kind, UNSPECIFIED)
            brokers = self._brokers(call, topic, used)
            for queues in topic.route.queue_datas:
                for broker in brokers.get(queues.broker_name, {}).values():
                    reply.message_queues.extend(_queues(queues, resource, types, broker))
            call.reply(reply)

        self._backend.route(call.caller, name, used, found)

    def _query_assignment(self, call: RpcCall, request: QueryAssignmentRequest) -> None:
        name, group = topic_of(request.topic), group_of(request.group)
        resource, used = request.topic, used_endpoints(request)

        def known(config: SubscriptionGroupConfig | None) -> None:
            fifo = config is not None and config.consume_message_orderly
            self._backend.route(call.caller, name, used, lambda topic: found(topic, fifo))

        def found(topic: TopicFacts | None, fifo: bool) -> None:
            if topic is None:
                call.refuse(Code.TOPIC_NOT_FOUND, no_route(name))
                return
            reply = QueryAssignmentResponse(status=status(Code.OK, "OK"))
            brokers = self._brokers(call, topic, used)
            for queues in topic.route.queue_datas:
                broker = brokers.get(queues.broker_name, {}).get(MASTER_ID)
                if broker is None or not is_readable(queues):
                    continue
                permission = permission_of(queues.perm)
                ids = range(queues.read_queue_nums) if fifo else (-1,)
                reply.assignments.extend(
                    Assignment(
                        message_queue=MessageQueue(
                            topic=resource, id=number, permission=permission, broker=broker
                        )
                    )
                    for number in ids
                )
            if reply.assignments:
                call.reply(reply)
            elif words := out_of_reach(topic):
                call.refuse(Code.TOPIC_NOT_FOUND, words)
            else:
                call.refuse(Code.FORBIDDEN, "no readable queue")

        self._backend.group(call.caller, group, known)

    def _brokers(
        self, call: RpcCall, topic: TopicFacts, used: Endpoints
    ) -> dict[str, dict[int, Broker]]:
        """The brokers of a route by name and id, with the endpoints this client reaches them at."""
        found: dict[str, dict[int, Broker]] = {}
        for data in topic.route.broker_datas:
            ids = found[data.broker_name] = {}
            for number in sorted(data.broker_addrs):
                endpoints = self._backend.endpoints(call.caller, data, number, used)
                ids[number] = Broker(
                    name=data.broker_name, id=number & 0x7FFFFFFF, endpoints=endpoints
                )
        return found


def used_endpoints(request: QueryRouteRequest | QueryAssignmentRequest) -> Endpoints:
    """The endpoints a client says it used: several in one host, as the C++ client has them, apart
    (rocketmq-clients#606)."""
    used = request.endpoints
    if not any(";" in address.host or "," in address.host for address in used.addresses):
        return used
    apart = Endpoints(scheme=used.scheme)
    for address in used.addresses:
        for text in address.host.replace(",", ";").split(";"):
            host, mark, port = text.strip().rpartition(":")
            number = whole_number(port, 65_535)
            if mark and number > 0:
                apart.addresses.add(host=host, port=number)
            elif text.strip():
                apart.addresses.add(host=text.strip(), port=address.port)
    return apart


def no_route(topic: str) -> str:
    """The words for a topic that nobody has (Apache: MQClientException of code 17)."""
    return f"No topic route info in name server for the topic: {topic}"


def out_of_reach(topic: TopicFacts) -> str:
    """The words for a topic that only brokers have whose ports do not speak this protocol; "" for another one."""
    brokers = topic.route.broker_datas
    names = ", ".join(sorted(data.broker_name for data in brokers if not data.broker_addrs))
    if topic.route.queue_datas or not names:
        return ""
    return (
        f"{no_route(topic.name)}, but at brokers that do not speak the v5 protocol ({names}): "
        "clients reach them by a proxy (roquette proxy, or Apache's)"
    )


def _queues(
    queues: QueueData, topic: Resource, types: tuple[MessageType, ...], broker: Broker
) -> list[MessageQueue]:
    """A broker's queues: those to read only, then those to write only, then both (genMessageQueueFromQueueData)."""
    reads = queues.read_queue_nums if queues.perm & PERM_READ else 0
    writes = queues.write_queue_nums if queues.perm & PERM_WRITE else 0
    both = min(reads, writes)
    kinds = [Permission.READ] * (reads - both) + [Permission.WRITE] * (writes - both)
    kinds += [Permission.READ_WRITE] * both
    if not queues.perm & (PERM_READ | PERM_WRITE):
        most = max(1, queues.read_queue_nums, queues.write_queue_nums)
        kinds = [Permission.NONE] * most
    return [
        MessageQueue(
            topic=topic, id=number, permission=kind, broker=broker, accept_message_types=types
        )
        for number, kind in enumerate(kinds)
    ]
