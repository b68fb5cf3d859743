"""Topics: list, create, describe, delete, across every broker that is concerned."""

from collections.abc import Sequence

import msgspec

from roquette.admin.cluster import cluster_info, masters_of, require_one, system_names
from roquette.base.javatypes import whole_number
from roquette.client import calls
from roquette.client.core.route_cache import TopicRoute
from roquette.client.operations import ANY_NAME_SERVER, Operation, ask, ask_all
from roquette.errors import ClientError, ConfigError, RouteNotFound
from roquette.message.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    is_system_topic,
    perm_text,
    topic_error,
)
from roquette.wire.codes import ORDER_TOPIC_CONFIG


class QueueRow(msgspec.Struct, frozen=True):
    """One queue of a topic. Times are milliseconds since 1970; 0: never written."""

    broker: str
    queue: int
    min_offset: int
    max_offset: int
    last_update_ms: int


class BrokerRow(msgspec.Struct, frozen=True):
    """What one broker holds of a topic. `error`: why it does not tell of its queues."""

    broker: str
    read_queues: int
    write_queues: int
    perm: str
    error: str = ""


class TopicDescription(msgspec.Struct, frozen=True):
    """Everything about one topic."""

    topic: str
    brokers: list[BrokerRow]
    queues: list[QueueRow]
    messages: int


class TopicChange(msgspec.Struct, frozen=True):
    """Where a topic was changed.

    Attributes:
        done: names of brokers.
        failed: names of brokers that did not do it, and why.
        untold: addresses of name servers that were not told, and why.
    """

    done: list[str]
    failed: dict[str, str] = {}
    untold: dict[str, str] = {}

    def require_all(self) -> None:
        """Raise ClientError when a broker did not do it, or a name server was not told."""
        if missing := self.failed | self.untold:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
            raise ClientError(f"not done on {reasons}")


def list_topics(*, system: bool = False) -> Operation[list[str]]:
    """Names of all topics a name server knows, sorted; the system's own and groups' retries on request."""
    names = yield from ask(ANY_NAME_SERVER, calls.topic_names())
    if system:
        return names
    own = system_names((yield from cluster_info()))
    return [
        name
        for name in names
        if not is_system_topic(name)
        and name not in own
        and not name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    ]


def create_topic(
    name_servers: Sequence[str],
    topic: str,
    *,
    queues: int = 8,
    perm: int = 6,
    cluster: str | None = None,
    broker: str | None = None,
    order: bool = False,
) -> Operation[TopicChange]:
    """Create or change a topic on every master of a cluster, or on one broker.

    Raises:
        ConfigError: the name is not allowed, or no such cluster or broker exists.
        ClientError: no broker did it, or, for an order topic, a name server was not told.
    """
    error = topic_error(topic)
    if error is not None:
        raise ConfigError(error)
    call = calls.create_topic(topic, queues=queues, perm=perm, order=order)
    change = yield from _change_everywhere(cluster, broker, call)
    if order:
        counts = dict.fromkeys(change.done, queues)
        keep = broker is not None or bool(change.failed)
        yield from put_order_config(name_servers, topic, counts, keep=keep)
    return change


def _change_everywhere(
    cluster: str | None, broker: str | None, call: calls.Call[None]
) -> Operation[TopicChange]:
    masters = yield from masters_of(cluster, broker)
    answers = yield from ask_all((address, call) for _, address in masters)
    require_one(answers)
    results = [(name, answer.reason) for (name, _), answer in zip(masters, answers, strict=True)]
    return TopicChange(
        [name for name, reason in results if not reason],
        {name: reason for name, reason in results if reason},
    )


def put_order_config(
    name_servers: Sequence[str], topic: str, counts: dict[str, int], *, keep: bool
) -> Operation[None]:
    """Tell every name server the queues of an order topic, `broker:count;...`, so that a broker that is down
    keeps its place in clients' lists (Apache: DefaultMQAdminExtImpl.createOrUpdateOrderConf).

    Args:
        keep: other brokers' entries stay (not the whole cluster's topic was changed).
    """
    if keep:
        found = yield from ask(ANY_NAME_SERVER, calls.get_config(ORDER_TOPIC_CONFIG, topic))
        known = dict(word.split(":", 1) for word in found.split(";") if ":" in word)
        numbers = {name: whole_number(count, 2**31 - 1) for name, count in known.items()}
        counts = {name: count for name, count in numbers.items() if count >= 0} | counts
    value = ";".join(f"{name}:{count}" for name, count in sorted(counts.items()))
    call = calls.put_config(ORDER_TOPIC_CONFIG, topic, value)
    for answer in (yield from ask_all((address, call) for address in name_servers)):
        answer.get()


def hands_out_order_config(topic: str) -> Operation[bool]:
    """Whether clients get the order configuration: name servers give it with orderMessageEnable=true only."""
    return bool((yield from ask(ANY_NAME_SERVER, calls.route(topic))).order_topic_conf)


def describe_topic(topic: str) -> Operation[TopicDescription]:
    """Brokers, queues and offsets of a topic; raises RouteNotFound, and ClientError when no broker answers."""
    route = TopicRoute(topic, (yield from ask(ANY_NAME_SERVER, calls.route(topic))))
    asked = {name: address for name in route.addresses if (address := route.address_for_read(name))}
    answers = yield from ask_all((address, calls.topic_stats(topic)) for address in asked.values())
    require_one(answers)
    by_broker = dict(zip(asked, answers, strict=True))
    brokers: list[BrokerRow] = []
    rows: list[QueueRow] = []
    for data in sorted(route.data.queue_datas, key=lambda data: data.broker_name):
        name, answer = data.broker_name, by_broker.get(data.broker_name)
        reason = "" if answer is None else answer.reason
        counts = data.read_queue_nums, data.write_queue_nums
        brokers.append(BrokerRow(name, *counts, perm_text(data.perm), reason))
        rows += [
            QueueRow(name, queue.queue_id, at.min_offset, at.max_offset, at.last_update_timestamp)
            for queue, at in (answer.value if answer is not None else None) or ()
        ]
    return TopicDescription(topic, brokers, rows, sum(r.max_offset - r.min_offset for r in rows))


def delete_topic(
    name_servers: Sequence[str], topic: str, *, cluster: str | None = None
) -> Operation[TopicChange]:
    """Delete a topic on every broker and name server that has it.

    Raises:
        RouteNotFound: no name server knows it.
        ClientError: no broker did it.
    """
    yield from require_topic(topic)
    change = yield from _change_everywhere(cluster, None, calls.delete_topic(topic))
    answers = yield from ask_all((address, calls.forget_topic(topic)) for address in name_servers)
    untold = {answer.address: answer.reason for answer in answers if answer.error is not None}
    return TopicChange(change.done, change.failed, untold)


def require_topic(topic: str) -> Operation[None]:
    """Raise RouteNotFound in words that say what to do."""
    try:
        yield from ask(ANY_NAME_SERVER, calls.route(topic))
    except RouteNotFound:
        raise RouteNotFound(
            topic, f"topic {topic} does not exist: 'roquette topic list' shows those that do"
        ) from None
