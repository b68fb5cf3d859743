"""Checks of consumer groups: who its members are and what they subscribe to."""

from collections.abc import Iterator
from typing import Final

from roquette.admin.doctor.checks.addresses import host_of
from roquette.admin.doctor.findings import Looks, Remedy, Severity, Sign, command
from roquette.admin.facts import About, BrokerFacts, ClusterFacts, GroupFacts, MemberFacts
from roquette.base.options import counted
from roquette.message.message import MessageQueue
from roquette.message.names import DLQ_PREFIX, PERM_READ, PREDEFINED_GROUPS, RETRY_PREFIX
from roquette.wire.bodies import TopicConfig, TopicOffset, TopicRouteData
from roquette.wire.bodies.route import canonical

RECENT_MS: Final = 300_000  # dead letters of the last five minutes are news


def readable_queues(facts: ClusterFacts, topic: str) -> list[MessageQueue]:
    """The queues of a topic that consumers divide among themselves."""
    return [
        MessageQueue(topic, broker.name, queue_id)
        for broker in facts.masters()
        if (config := broker.topics.get(topic)) is not None and config.perm & PERM_READ
        for queue_id in range(config.read_queue_nums)
    ]


def subscribed_topics(group: GroupFacts) -> list[str]:
    """Return what it wants, without its own retries."""
    return [topic for topic in sorted(group.subscriptions) if not topic.startswith(RETRY_PREFIX)]


def divides_queues(group: GroupFacts) -> bool:
    """Return True when every member says which queues are its own, and each queue is to be somebody's."""
    told = all(member.tells_queues for member in group.members)
    return group.model == "CLUSTERING" and bool(group.members) and told


def _doubled(facts: ClusterFacts) -> dict[tuple[str, str, str], set[str]]:
    """By (group, client id, broker): its connections, where there are more than one."""
    return {
        (group.group, member.client_id, broker): set(addresses)
        for group in facts.groups
        for member in group.members
        for broker, addresses in member.addresses.items()
        if len(addresses) > 1
    }


def duplicate_ids(looks: Looks) -> Iterator[Sign]:
    """Client ids with more than one connection of a group at one broker: one that broke may be a rest of what was."""
    before = None if looks.before is None else _doubled(looks.before)
    for key, addresses in sorted(_doubled(looks.now).items()):
        group, client_id, broker = key
        both = addresses if before is None else addresses & before.get(key, set())
        if len(both) < 2:
            continue
        sure = before is not None or len({host_of(address) for address in both}) > 1
        yield Sign(
            About(group=group, client=client_id),
            f"{len(both)} connections at {broker}: {', '.join(sorted(both))}",
            "two consumers have one client id, as containers with equal host names and process ids do: "
            "each takes the other's queues for its own, and some queues go to nobody",
            "give each consumer an instance name of its own (instanceName; our client's ids differ by themselves)",
            Severity.ERROR if sure else None,
        )


def silent(looks: Looks) -> Iterator[Sign]:
    """Members that are connected and do not answer; in both looks, when there are two."""
    for key, member in sorted(_silent(looks.now).items()):
        if looks.before is None or key in _silent(looks.before):
            group, client_id = key
            here = ", ".join(sorted({a for each in member.addresses.values() for a in each}))
            yield Sign(
                About(group=group, client=client_id),
                f"connected from {here}, and does not answer what brokers ask it",
                "the process stands still: a blocked event loop, a debugger, a machine that swaps; "
                "its queues wait for it until its connection is given up",
                "look at the process; restart it",
            )


def _silent(facts: ClusterFacts) -> dict[tuple[str, str], MemberFacts]:
    return {(g.group, m.client_id): m for g in facts.groups for m in g.members if m.silent}


def _subscription(member: MemberFacts) -> dict[str, str]:
    """Topic -> expression, in a form in which equal ones are equal."""
    found: dict[str, str] = {}
    for data in member.running.subscription_set if member.running is not None else ():
        if data.topic.startswith(RETRY_PREFIX):
            continue
        text, kind = data.sub_string or "*", data.expression_type or "TAG"
        if kind == "TAG":
            text = "||".join(sorted({tag.strip() for tag in text.split("||")}))
        found[data.topic] = text if kind == "TAG" else f"{kind} {text}"
    return found


def conflicting(looks: Looks) -> Iterator[Sign]:
    """Groups whose members subscribe to different things."""
    for group in looks.now.groups:
        told = [member for member in group.members if member.running is not None]
        by_words: dict[str, list[str]] = {}
        for member in told:
            words = ", ".join(f"{t}: {e}" for t, e in sorted(_subscription(member).items()))
            by_words.setdefault(words or "nothing", []).append(member.client_id)
        if len(by_words) > 1:
            yield Sign(
                About(group=group.group),
                "; ".join(f"{ids[0]} ({len(ids)} in all) wants {w}" for w, ids in by_words.items()),
                "all members of a group must subscribe alike: the broker keeps the last one's subscription for all, "
                "and what a member filters out is lost for the group",
                "give consumers that want something else a group of their own",
            )


def surplus_members(looks: Looks) -> Iterator[Sign]:
    """Members for whom there is no queue."""
    for group in looks.now.groups:
        pops = any(m.running is not None and m.running.mq_pop_table for m in group.members)
        topics = subscribed_topics(group)
        if not divides_queues(group) or pops or not topics:
            continue
        queues = max((readable_queues(looks.now, topic) for topic in topics), key=len)
        most = len(queues)
        if 0 < most < len(group.members):
            each = -(-len(group.members) // len({queue.broker_name for queue in queues}))
            yield Sign(
                About(group=group.group),
                f"{counted(len(group.members), 'member')}, {counted(most, 'queue')} in its largest topic",
                "a queue is consumed by one member at a time: the others have nothing to do",
                f"{command('topic', 'resize', queues[0].topic, '--queues', each)}, or run fewer consumers",
            )


def dead_letters(looks: Looks) -> Iterator[Sign]:
    """Dead letters that came between two looks, or in the last minutes."""
    found = _recent_dead(looks.now) if looks.before is None else _more_dead(looks)
    for topic, words in sorted(found.items()):
        group = topic.removeprefix(DLQ_PREFIX)
        yield Sign(
            About(group=group),
            f"{topic}: {words}",
            "its handlers fail for these messages as often as they may be tried again (16 times by default)",
            f"{command('dlq', 'ls', group)} shows them; mend the handler, then "
            f"{command('dlq', 'resend', group, '--since', '@-1d')}",
        )


def dead_queues(facts: ClusterFacts) -> dict[MessageQueue, TopicOffset]:
    """The ends of the queues of dead letters."""
    return {
        queue: ends
        for broker in facts.masters()
        for queue, ends in broker.queues.items()
        if queue.topic.startswith(DLQ_PREFIX)
    }


def _recent_dead(facts: ClusterFacts) -> dict[str, str]:
    last: dict[str, int] = {}
    for queue, ends in dead_queues(facts).items():
        if ends.max_offset > 0:
            last[queue.topic] = max(last.get(queue.topic, 0), ends.last_update_timestamp)
    return {
        topic: f"the last one came {max(0, facts.at_ms - at_ms) // 1000} s ago"
        for topic, at_ms in last.items()
        if facts.at_ms - at_ms < RECENT_MS
    }


def _more_dead(looks: Looks) -> dict[str, str]:
    before = {} if looks.before is None else dead_queues(looks.before)
    answered = set() if looks.before is None else {b.name for b in looks.before.masters()}
    more: dict[str, int] = {}
    for queue, ends in dead_queues(looks.now).items():
        known = before.get(queue)
        if queue.broker_name in answered:
            grown = ends.max_offset - (0 if known is None else known.max_offset)
            more[queue.topic] = more.get(queue.topic, 0) + grown
    return {t: f"{n} more in {looks.seconds:.0f} s" for t, n in more.items() if n > 0}


# Checks of topics: where they are, and whether name servers agree about that.


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
        About(other="topics " + ", ".join(names[:_NAMED]))
        if len(names) > 1
        else About(topic=first),
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
            About(topic=topic),
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
                About(topic=topic),
                f"on {_names(has)}, not on {_names(lacks)}; {evidence}",
                "it was probably deleted while this broker was down, and came back with it",
                f"{command('topic', 'delete', topic)} if it is to be gone; else "
                f"{command('topic', 'create', topic)}",
            )


def _came_back(topic: str, has: list[BrokerFacts], lacks: list[BrokerFacts]) -> str:
    """Say why we think so; "": we do not."""
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
            About(topic=topic),
            f"{counted(messages, 'message')} on {_names(brokers)}; no broker knows its group",
            "the group was deleted, its topic was left: nobody will be given these messages",
            f"{command('topic', 'delete', topic)} after a look at what it holds, or start a consumer of the group again",
        )


def _has_group(name: str, groups: set[str]) -> bool:
    """Return True when `name` is a group, or of POP's retry topics: group_topic, group+topic."""
    if name in groups:
        return True
    cuts = [at for at, character in enumerate(name) if character in "_+"]
    return any(name[:at] in groups for at in cuts)
