"""Making a topic over plain sockets, for processes without an event loop."""

from typing import Final

from roquette.base.clock import SystemClock
from roquette.base.executor import pause
from roquette.client.blocking import BlockingConnection, BlockingReader
from roquette.client.core.retry_policy import broker_error
from roquette.errors import ClientError, RouteNotFound
from roquette.message.names import PERM_READ, PERM_WRITE
from roquette.wire.bodies import ClusterInfo
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette.wire.headers import CreateTopicRequestHeader, GetRouteInfoRequestHeader
from roquette.wire.json_body import decode_body

_ROUTE_WAIT_MS: Final = 15_000  # brokers tell name servers of a new topic at once; routes follow
_ROUTE_STEP_MS: Final = 50


def writable_queues(namesrv_addr: str, topic: str, timeout_ms: int = 5_000) -> dict[str, int]:
    """How many queues take messages, by broker name; empty when the topic does not exist."""
    names = BlockingReader(namesrv_addr, group="roquette", timeout_ms=timeout_ms)
    try:
        route = names.route(topic)
    except RouteNotFound:
        return {}
    finally:
        names.close()
    return {
        data.broker_name: data.write_queue_nums
        for data in route.queue_datas
        if data.perm & PERM_WRITE
    }


def create_topic(
    namesrv_addr: str, topic: str, queues: int, timeout_ms: int = 5_000
) -> dict[str, int]:
    """Make a topic with so many queues on every master, and wait until its route is known.

    Returns its queues by broker name.

    Raises:
        BrokerError, ConnectError: a master refused, or cannot be reached.
        RouteNotFound: the name servers did not hear of it in time.
    """
    for master in _masters(namesrv_addr, timeout_ms):
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=PERM_READ | PERM_WRITE,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
        )
        _ask(master, RequestCode.UPDATE_AND_CREATE_TOPIC, header, timeout_ms)
    clock = SystemClock()
    end_ms = clock.steady_ms() + _ROUTE_WAIT_MS
    while not (found := writable_queues(namesrv_addr, topic, timeout_ms)):
        if clock.steady_ms() > end_ms:
            raise RouteNotFound(topic, f"the name servers did not hear of the new topic {topic}")
        pause(_ROUTE_STEP_MS)
    return found


def _masters(namesrv_addr: str, timeout_ms: int) -> list[str]:
    failure: ClientError | None = None
    for address in namesrv_addr.replace(",", ";").split(";"):
        try:
            answer = _ask(
                address.strip(),
                RequestCode.GET_BROKER_CLUSTER_INFO,
                GetRouteInfoRequestHeader(topic=""),
                timeout_ms,
            )
        except ClientError as error:
            failure = error
            continue
        table = decode_body(ClusterInfo, answer.body).broker_addr_table
        return [data.broker_addrs[0] for data in table.values() if 0 in data.broker_addrs]
    raise failure or ClientError("no name server address is given")


def _ask(
    address: str,
    code: int,
    header: GetRouteInfoRequestHeader | CreateTopicRequestHeader,
    timeout_ms: int,
) -> Command:
    connection = BlockingConnection(address, timeout_ms=timeout_ms)
    try:
        answer = connection.receive(connection.send(code, header))
    finally:
        connection.close()
    if answer.code != ResponseCode.SUCCESS:
        raise broker_error(answer.code, answer.remark, address)
    return answer
