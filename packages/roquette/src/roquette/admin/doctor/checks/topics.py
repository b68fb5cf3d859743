"""Checks of topics: where they are, and whether name servers agree about that."""

from collections.abc import Iterator
from typing import Final

from roquette.admin.doctor.findings import Looks, Remedy, Sign, command
from roquette.admin.facts import BrokerFacts, ClusterFacts
from roquette.base.options import counted
from roquette.message.names import DLQ_PREFIX, PREDEFINED_GROUPS, RETRY_PREFIX
from roquette.wire.bodies import TopicConfig, TopicRouteData
from roquette.wire.bodies.route import canonical

_NAMED: Final = 5  # topics in one line


def disagreement(looks: Looks) -> Iterator[Sign]:
    """Topics whose routes differ between name servers; in both looks, when there are two."""
    found = _differing(looks.now)
    if looks.before is not None:
        before = _differing(looks.before)
        found = {topic: answers for topic, answers in found.items() if topic in before}
    if not found:
        return
    names = sorted(found)
    first = names[0]
    yield Sign(
        "topics " + ", ".join(names[:_NAMED]) if len(names) > 1 else f"topic {first}",
        f"{counted(len(names), 'topic')} with different routes; {first}: {found[first]}",
        "brokers register with some name servers only, or a name server has kept what the others dropped: "
        "clients get another route by whom they ask",
        "`roquette namesrv diff` shows all of them; check namesrvAddr of the brokers, restart the name server that is behind",
    )


def _differing(facts: ClusterFacts) -> dict[str, str]:
    """Topic -> what each name server says. Brokers that some do not know at all are left out: that is told of them."""
    servers = [server for server in facts.name_servers if not server.error]
    if len(servers) < 2:
        return {}
    everywhere = set(servers[0].cluster.broker_addr_table)
    for server in servers[1:]:
        everywhere &= set(server.cluster.broker_addr_table)
    found: dict[str, str] = {}
    for topic in sorted({topic for server in servers for topic in server.routes}):
        if any(topic not in server.routes for server in servers):
            continue  # one of them did not answer about it
        routes = [_among(server.routes[topic], everywhere) for server in servers]
        if len({canonical(route) for route in routes}) > 1:
            found[topic] = "; ".join(
                f"{server.address} says {_words(route)}"
                for server, route in zip(servers, routes, strict=True)
            )
    return found


def _among(route: TopicRouteData | None, brokers: set[str]) -> TopicRouteData:
    """The part of a route about these brokers."""
    if route is None:
        return TopicRouteData()
    return TopicRouteData(
        queue_datas=[data for data in route.queue_datas if data.broker_name in brokers],
        broker_datas=[data for data in route.broker_datas if data.broker_name in brokers],
    )


def _words(route: TopicRouteData) -> str:
    parts = [
        f"{data.broker_name}: {data.write_queue_nums} queues, perm {data.perm}"
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
    ]
    return ", ".join(parts) or "nothing"


def on_one_broker(looks: Looks) -> Iterator[Sign]:
    """Topics that only some of their cluster's brokers have."""
    for topic, (has, lacks) in looks.now.partial_topics().items():
        if _came_back(topic, has, lacks):
            continue
        config = has[0].topics[topic]
        yield Sign(
            f"topic {topic}",
            f"on {_names(has)}, not on {_names(lacks)}",
            "it was created by a send, or on one broker by hand: all of its load is there, and nobody can send while it is down",
            command("topic", "create", topic),
            remedies=tuple(_created(topic, config, broker) for broker in lacks),
        )


def _created(topic: str, config: TopicConfig, broker: BrokerFacts) -> Remedy:
    undo = command("topic", "create", topic, "--perm", 4, "--broker", broker.name)
    queues, perm = config.write_queue_nums, config.perm & 6 or 6
    return Remedy(broker.name, broker.address, undo, topic, queues, perm)


def came_back(looks: Looks) -> Iterator[Sign]:
    """Topics only brokers have that started after the others, and that nobody has written to since."""
    for topic, (has, lacks) in looks.now.partial_topics().items():
        if evidence := _came_back(topic, has, lacks):
            yield Sign(
                f"topic {topic}",
                f"on {_names(has)}, not on {_names(lacks)}; {evidence}",
                "it was probably deleted while this broker was down, and came back with it",
                f"{command('topic', 'delete', topic)} if it is to be gone; else "
                f"{command('topic', 'create', topic)}",
            )


def _came_back(topic: str, has: list[BrokerFacts], lacks: list[BrokerFacts]) -> str:
    """Why we think so; "": we do not."""
    booted = min(broker.number("bootTimestamp") or 0 for broker in has)
    if booted <= max(broker.number("bootTimestamp") or booted for broker in lacks):
        return ""
    written = [
        ends.last_update_timestamp
        for broker in has
        for queue, ends in broker.queues.items()
        if queue.topic == topic and ends.max_offset > 0
    ]
    if not written or max(written) >= booted:
        return ""
    age_s = (booted - max(written)) // 1000
    return f"last written {age_s} s before {_names(has)} started, and the others were running then"


def _names(brokers: list[BrokerFacts]) -> str:
    return ", ".join(broker.name for broker in brokers)


def orphaned(looks: Looks) -> Iterator[Sign]:
    """Retry and dead-letter topics of groups that no broker knows."""
    masters = looks.now.masters()
    groups = {group for broker in masters for group in broker.groups} | PREDEFINED_GROUPS
    topics: dict[str, list[BrokerFacts]] = {}
    for broker in masters:
        for topic in broker.topics:
            prefix = next((p for p in (RETRY_PREFIX, DLQ_PREFIX) if topic.startswith(p)), None)
            if prefix is not None and not _has_group(topic.removeprefix(prefix), groups):
                topics.setdefault(topic, []).append(broker)
    for topic, brokers in sorted(topics.items()):
        messages = sum(
            ends.max_offset - ends.min_offset
            for broker in brokers
            for queue, ends in broker.queues.items()
            if queue.topic == topic
        )
        yield Sign(
            f"topic {topic}",
            f"{counted(messages, 'message')} on {_names(brokers)}; no broker knows its group",
            "the group was deleted, its topic was left: nobody will be given these messages",
            f"{command('topic', 'delete', topic)} after a look at what it holds, or start a consumer of the group again",
        )


def _has_group(name: str, groups: set[str]) -> bool:
    """Whether `name` is a group, or of POP's retry topics: group_topic, group+topic."""
    if name in groups:
        return True
    cuts = [at for at, character in enumerate(name) if character in "_+"]
    return any(name[:at] in groups for at in cuts)
