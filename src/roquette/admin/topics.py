"""Topics: list, create, describe, delete, across every broker that is concerned."""

import msgspec

from roquette.admin.cluster import Brokers, masters_of
from roquette.client.session import Session
from roquette.errors import ClientError, ConfigError, RouteNotFound
from roquette.message.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    is_system_topic,
    perm_text,
    topic_error,
)
from roquette.wire.bodies import TopicList, TopicStatsTable
from roquette.wire.codes import ORDER_TOPIC_CONFIG, RequestCode
from roquette.wire.command import Command
from roquette.wire.header_codec import decode_ext
from roquette.wire.headers import (
    CreateTopicRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    DeleteTopicRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetTopicStatsInfoRequestHeader,
    PutKVConfigRequestHeader,
)
from roquette.wire.json_body import decode_body


class QueueRow(msgspec.Struct, frozen=True):
    """One queue of a topic. Times are milliseconds since 1970; 0: never written."""

    broker: str
    queue: int
    min_offset: int
    max_offset: int
    last_update_ms: int


class BrokerRow(msgspec.Struct, frozen=True):
    """What one broker holds of a topic."""

    broker: str
    read_queues: int
    write_queues: int
    perm: str


class TopicDescription(msgspec.Struct, frozen=True):
    """Everything about one topic."""

    topic: str
    brokers: list[BrokerRow]
    queues: list[QueueRow]
    messages: int


async def list_topics(session: Session, *, system: bool = False) -> list[str]:
    """Names of all topics the name servers know, sorted; the system's own and groups' retries on request."""
    reply = await session.call_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    names = sorted(set(decode_body(TopicList, reply.body).topic_list))
    if system:
        return names
    clusters = await Brokers.load(session)
    own = clusters.system_names()
    return [
        name
        for name in names
        if not is_system_topic(name)
        and name not in own
        and not name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    ]


async def create_topic(
    session: Session,
    topic: str,
    *,
    queues: int = 8,
    perm: int = 6,
    cluster: str | None = None,
    broker: str | None = None,
    order: bool = False,
) -> list[str]:
    """Create or change a topic on every master of a cluster, or on one broker; returns their names.

    Raises:
        ConfigError: the name is not allowed, or no such cluster or broker exists.
    """
    error = topic_error(topic)
    if error is not None:
        raise ConfigError(error)
    done: list[str] = []
    for name, address in await masters_of(session, cluster=cluster, broker=broker):
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=order,
        )
        await session.api.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        done.append(name)
    if order:
        await _put_order_config(
            session, topic, dict.fromkeys(done, queues), keep=broker is not None
        )
    return done


async def _put_order_config(
    session: Session, topic: str, counts: dict[str, int], *, keep: bool
) -> None:
    """Tell every name server the queues of an order topic, `broker:count;...`, so that a broker that is down
    keeps its place in clients' lists (Apache: DefaultMQAdminExtImpl.createOrUpdateOrderConf).

    Args:
        keep: other brokers' entries stay (one broker's topic was changed, not the cluster's).
    """
    if keep:
        wanted = GetKVConfigRequestHeader(namespace=ORDER_TOPIC_CONFIG, key=topic)

        async def ask(address: str) -> Command:
            return await session.api.ask(address, RequestCode.GET_KV_CONFIG, wanted)

        found = decode_ext(GetKVConfigResponseHeader, (await session.ask_name_servers(ask)).ext)
        known = dict(word.split(":", 1) for word in (found.value or "").split(";") if ":" in word)
        counts = {name: int(count) for name, count in known.items() if count.isdigit()} | counts
    value = ";".join(f"{name}:{count}" for name, count in sorted(counts.items()))
    header = PutKVConfigRequestHeader(namespace=ORDER_TOPIC_CONFIG, key=topic, value=value)
    for address in session.name_servers:
        await session.api.call(address, RequestCode.PUT_KV_CONFIG, header)


async def hands_out_order_config(session: Session, topic: str) -> bool:
    """Whether clients get the order configuration: name servers give it with orderMessageEnable=true only."""
    return bool((await session.route(topic, fresh=True)).data.order_topic_conf)


async def describe_topic(session: Session, topic: str) -> TopicDescription:
    """Brokers, queues and offsets of a topic; raises RouteNotFound."""
    route = await session.route(topic, fresh=True)
    brokers = [
        BrokerRow(q.broker_name, q.read_queue_nums, q.write_queue_nums, perm_text(q.perm))
        for q in sorted(route.data.queue_datas, key=lambda q: q.broker_name)
    ]
    rows: list[QueueRow] = []
    for row in brokers:
        address = route.address_for_read(row.broker)
        if address is None:
            continue
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        reply = await session.api.call(address, RequestCode.GET_TOPIC_STATS_INFO, header)
        table = decode_body(TopicStatsTable, reply.body).offset_table
        rows += [
            QueueRow(
                row.broker, queue.queue_id, o.min_offset, o.max_offset, o.last_update_timestamp
            )
            for queue, o in sorted(table.items())
        ]
    return TopicDescription(topic, brokers, rows, sum(r.max_offset - r.min_offset for r in rows))


async def delete_topic(session: Session, topic: str, *, cluster: str | None = None) -> list[str]:
    """Delete a topic on every broker and name server that has it; returns the brokers' names.

    Raises:
        RouteNotFound: nobody has it.
    """
    done: list[str] = []
    for name, address in await masters_of(session, cluster=cluster, broker=None):
        await session.api.call(
            address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic)
        )
        done.append(name)
    header = DeleteTopicFromNamesrvRequestHeader(topic=topic)
    for address in session.name_servers:
        try:
            await session.api.call(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        except ClientError as error:
            session.noise.warning(
                f"delete-{address}", "name server was not told address=%s error=%s", address, error
            )
    return done


async def require_topic(session: Session, topic: str) -> None:
    """Raise RouteNotFound in words that say what to do."""
    try:
        await session.route(topic, fresh=True)
    except RouteNotFound:
        raise RouteNotFound(
            topic, f"topic {topic} does not exist: 'roquette topic list' shows those that do"
        ) from None
