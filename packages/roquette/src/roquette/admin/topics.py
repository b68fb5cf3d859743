"""Topics: create, describe, delete, across every broker that is concerned."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec

from roquette.admin.cluster import configs_of, masters_of, require_one
from roquette.admin.command import Attributes, Flag, OnCluster, OperationReport, command
from roquette.base.javatypes import whole_number
from roquette.base.options import counted
from roquette.client import calls
from roquette.client.calls import ANY_NAME_SERVER, Operation, ask, ask_all
from roquette.client.core.route_cache import TopicRoute
from roquette.client.operator_calls import put_topic
from roquette.errors import ClientError, ConfigError, RouteNotFound
from roquette.message.names import perm_text, topic_error
from roquette.wire.bodies import TopicConfig
from roquette.wire.bodies.progress import TopicStatsTable
from roquette.wire.codes import ORDER_TOPIC_CONFIG

_NEW_QUEUES: Final = 8


class QueueRow(msgspec.Struct, frozen=True):
    """One queue of a topic. Times are milliseconds since 1970; 0: never written."""

    broker: str
    queue: int
    min_offset: int
    max_offset: int
    last_update_ms: int

    NARROW: ClassVar = ("last_update_ms",)


class BrokerRow(msgspec.Struct, frozen=True):
    """Row of what one broker holds of a topic. `in_tps`: messages a second, -1: not known; `error`: why not."""

    broker: str
    read_queues: int
    write_queues: int
    perm: str
    in_tps: float
    error: str = ""


class TopicDescription(msgspec.Struct, frozen=True):
    """Everything about one topic."""

    topic: str
    brokers: list[BrokerRow]
    queues: list[QueueRow]
    messages: int


class TopicChange(msgspec.Struct, frozen=True):
    """Brokers on which a topic was changed.

    Attributes:
        done: names of brokers.
        failed: names of brokers that did not do it, and why.
        untold: addresses of name servers that were not told, and why.
        now: the topic as each broker of `done` has it; {} when it was deleted.
        order_hidden: it was made an order topic, and name servers keep its order from clients.
    """

    done: list[str]
    failed: dict[str, str] = {}
    untold: dict[str, str] = {}
    now: dict[str, TopicConfig] = {}
    order_hidden: bool = False

    def require_all(self) -> None:
        """Raise ClientError when a broker did not do it, or a name server was not told."""
        if missing := self.failed | self.untold:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
            raise ClientError(f"not done on {reasons}")


def _report(
    change: TopicChange, topic: str, words: Sequence[str], **more: object
) -> OperationReport[Any]:
    reasons = "; ".join(f"{broker}: {reason}" for broker, reason in change.failed.items())
    return OperationReport(
        {"topic": topic, **more, "brokers": change.done, "failed": change.failed},
        words,
        [f"name server {address} was not told: {why}" for address, why in change.untold.items()],
        failed=f"not done on {reasons}" if reasons else "",
    )


def _created(change: TopicChange, topic: str, **_: object) -> OperationReport[Any]:
    def words() -> Iterator[str]:
        same: dict[int, list[str]] = {}
        for name, config in change.now.items():
            same.setdefault(config.write_queue_nums, []).append(name)
        for count, names in same.items():
            yield f"topic {topic} now has {counted(count, 'queue')} on each of: {', '.join(names)}"
        if change.order_hidden:
            yield "the name servers keep its order from clients: set orderMessageEnable=true there"

    now = next(iter(change.now.values()))
    return _report(change, topic, [*words()], queues=now.write_queue_nums, perm=now.perm)


def _deleted(change: TopicChange, topic: str, **_: object) -> OperationReport[Any]:
    return _report(change, topic, [f"topic {topic} deleted on: {', '.join(change.done)}"])


def _perm_of(text: str) -> int:
    if text not in ("2", "4", "6"):
        raise ConfigError(f"--perm {text} is not one of 2 (write), 4 (read), 6 (both)")
    return int(text)


@command(shows=_created)
def create_topic(
    name_servers: Sequence[str],
    topic: str,
    *,
    queues: Annotated[int | None, Flag(least=1)] = None,
    perm: Annotated[int | None, Flag("--perm", reads=_perm_of)] = None,
    cluster: OnCluster = None,
    broker: str | None = None,
    order: Annotated[bool | None, Flag("--order/--no-order")] = None,
    attribute: Attributes = None,
) -> Operation[TopicChange]:
    """Create a topic on every broker of a cluster or on one; where it is, change what is said and nothing else.

    For fewer queues: roquette topic resize.

    Args:
        queues: Read and write queues on each broker; 8 for a new one.
        perm: What may be done: 2 write, 4 read, 6 both; 6 for a new one.
        broker: Only this broker.
        order: An order topic: a broker that is down keeps its place, so that keys do not move (with orderMessageEnable=true
            at the name servers).

    Raises:
        ConfigError: the name is not allowed, no such cluster or broker exists, it has more queues (see `resize`), or keys
            in order and `order` is not said.
        ClientError: no broker did it, or, for an order topic, a name server was not told.
    """
    # Where it is not, it becomes as it is on the others.
    error = topic_error(topic)
    if error is not None:
        raise ConfigError(error)
    masters = yield from masters_of(cluster, broker)
    before = yield from configs_of(topic, [address for _, address in masters])
    require_one(before)
    there = [answer.value for answer in before if answer.value is not None]
    if queues is not None:
        for config in there:
            _check_queues(config, queues, ordered=order is not None)
    model = there[0] if there else TopicConfig(topic, _NEW_QUEUES, _NEW_QUEUES)
    numbers = {"read_queue_nums": queues, "write_queue_nums": queues, "perm": perm, "order": order}
    changes = {field: value for field, value in numbers.items() if value is not None}
    wanted: dict[str, TopicConfig] = {}
    asks: list[tuple[str, calls.Call[None]]] = []
    for (name, address), answer in zip(masters, before, strict=True):
        if answer.error is None:
            config = wanted[name] = msgspec.structs.replace(answer.value or model, **changes)
            named = {**({} if answer.value else config.attributes), **(attribute or {})}
            asks.append((address, put_topic(config, attributes=named)))
    answers = yield from ask_all(asks)
    require_one(answers)
    reasons = [(name, answer.reason) for (name, _), answer in zip(masters, before, strict=True)]
    reasons += [(name, answer.reason) for name, answer in zip(wanted, answers, strict=True)]
    failed = {name: reason for name, reason in reasons if reason}
    now = {name: config for name, config in wanted.items() if name not in failed}
    if any(config.order for config in now.values()):
        counts = {name: config.write_queue_nums for name, config in now.items()}
        keep = broker is not None or bool(failed)
        yield from put_order_config(name_servers, topic, counts, keep=keep)
    hidden = bool(order) and not (yield from hands_out_order_config(topic))
    return TopicChange(list(now), failed, now=now, order_hidden=hidden)


def _check_queues(config: TopicConfig, queues: int, *, ordered: bool) -> None:
    """Raise ConfigError for a number of queues that would lose messages, or order that is not said to be known."""
    topic, most = config.topic_name, max(config.read_queue_nums, config.write_queue_nums)
    if queues < most:
        raise ConfigError(
            f"{topic} has {most} queues, and what is unread in queue {queues} and on would be out of reach: "
            f"roquette topic resize {topic} --queues {queues} --wait takes them away when every group has read them"
        )
    if config.order and not ordered and queues > config.write_queue_nums:
        raise ConfigError(
            f"{topic} is an order topic, and its keys would go to other queues; when none are under way: "
            f"roquette topic create {topic} --queues {queues} --order"
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
    """Return True when clients get the order configuration: name servers give it with orderMessageEnable=true only."""
    try:
        return bool((yield from ask(ANY_NAME_SERVER, calls.route(topic))).order_topic_conf)
    except RouteNotFound:  # it was made just now
        return True


def _described(found: TopicDescription, **_: object) -> OperationReport[TopicDescription]:
    end = f"\n{counted(found.messages, 'message')} in {counted(len(found.queues), 'queue')}"
    return OperationReport(found, [found.brokers, "", found.queues, end])


@command(shows=_described, watched=True)
def describe_topic(topic: str) -> Operation[TopicDescription]:
    """Show a topic's brokers, queues and offsets.

    Raises:
        RouteNotFound, or ClientError when no broker answers.
    """
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
        told = (answer and answer.value) or TopicStatsTable(topic_put_tps=-1.0)
        counts = data.read_queue_nums, data.write_queue_nums
        brokers.append(BrokerRow(name, *counts, perm_text(data.perm), told.topic_put_tps, reason))
        rows += [
            QueueRow(name, queue.queue_id, at.min_offset, at.max_offset, at.last_update_timestamp)
            for queue, at in told.offset_table.items()
        ]
    return TopicDescription(topic, brokers, rows, sum(r.max_offset - r.min_offset for r in rows))


@command(
    asks="delete topic {topic}, its messages and every group's place in it",
    shows=_deleted,
)
def delete_topic(
    name_servers: Sequence[str], topic: str, *, cluster: OnCluster = None
) -> Operation[TopicChange]:
    """Delete a topic with its messages' queues and every group's offsets on it.

    Raises:
        RouteNotFound: no name server knows it.
        ClientError: no broker did it.
    """
    yield from require_topic(topic)
    masters = yield from masters_of(cluster)
    gone = yield from ask_all((address, calls.delete_topic(topic)) for _, address in masters)
    require_one(gone)
    results = [(name, answer.reason) for (name, _), answer in zip(masters, gone, strict=True)]
    answers = yield from ask_all((address, calls.forget_topic(topic)) for address in name_servers)
    untold = {answer.address: answer.reason for answer in answers if answer.error is not None}
    failed = {name: reason for name, reason in results if reason}
    return TopicChange([name for name, _ in results if name not in failed], failed, untold)


def require_topic(topic: str) -> Operation[None]:
    """Raise RouteNotFound in words that say what to do."""
    try:
        yield from ask(ANY_NAME_SERVER, calls.route(topic))
    except RouteNotFound:
        raise RouteNotFound(
            topic, f"topic {topic} does not exist: 'roquette topic list' shows those that do"
        ) from None
