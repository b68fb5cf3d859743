"""Rows made of looks at a cluster: how brokers are doing, and rates of topics and groups. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

import msgspec

from roquette.admin.cluster import left_words
from roquette.admin.facts import ClusterFacts
from roquette.message.names import REPLY_TOPIC_SUFFIX, is_users_group


class BrokerState(msgspec.Struct, frozen=True):
    """One broker process. Rates are messages per second over the last 10 s; -1 and "" when it does not answer; `error`: why.

    Attributes:
        drained: name servers have a note of a drain that nobody has taken back.
    """

    cluster: str
    broker: str
    broker_id: int
    address: str
    version: str
    in_tps: float
    out_tps: float
    messages_today: int
    disk_used: float
    answers: bool
    drained: bool = False
    error: str = ""

    NARROW: ClassVar = ("messages_today", "version", "cluster", "disk_used", "out_tps", "in_tps")


class TopRow(msgspec.Struct, frozen=True):
    """A topic, or a group in a topic.

    Attributes:
        in_per_s: messages that came to the topic. out_per_s: by how much the group's offsets moved, seeks too.
        lag: messages that the group has before it.
    """

    topic: str
    group: str
    in_per_s: float
    out_per_s: float
    lag: int


def broker_rows(facts: ClusterFacts, expected: Sequence[str] = ()) -> list[BrokerState]:
    """Every broker process, by cluster, name and id, with what is wrong with it; then those that are not there."""
    drained = {name for server in facts.name_servers for name in server.drained}
    rows = [
        _row(b.cluster, b.name, b.broker_id, b.address, b.runtime, b.error, drained)
        for b in sorted(facts.brokers, key=lambda b: (b.cluster, b.name, b.broker_id))
    ]
    return rows + [
        _row(g.cluster, g.broker_name, g.broker_id, g.broker_addr, {}, left_words(g), drained)
        for g in facts.gone(expected)
    ]


def _row(
    cluster: str,
    broker: str,
    broker_id: int,
    address: str,
    table: dict[str, str],
    error: str,
    drained: set[str],
) -> BrokerState:
    now, morning = (int(table.get(f"msgPutTotalToday{at}", "0")) for at in ("Now", "Morning"))
    return BrokerState(
        cluster,
        broker,
        broker_id,
        address,
        table.get("brokerVersionDesc", ""),
        _first(table.get("putTps", "")),
        _first(table.get("getTransferredTps", table.get("getTransferedTps", ""))),
        -1 if error else now - morning,
        _first(table.get("commitLogDiskRatio", "")),
        not error,
        broker in drained,
        error or _trouble(table),
    )


def _trouble(table: dict[str, str]) -> str:
    """Say what a broker that answers says is wrong."""
    have, want = (int(table.get(key, "0")) for key in ("replicasInStep", "replicasExpected"))
    words = [f"{have + 1} of {want + 1} members are in step"] if have < want else []
    for key, what in (
        ("messagesRefused", "refuses messages"),
        ("tablesUnwritten", "cannot write"),
    ):
        words += [f"{what}: {why}"] if (why := table.get(key, "no")) != "no" else []
    return "; ".join(words)


def _first(text: str) -> float:
    try:
        return float(text.split(maxsplit=1)[0])
    except (IndexError, ValueError):
        return -1.0


def busiest(before: ClusterFacts, now: ClusterFacts) -> list[TopRow]:
    """Topics with each of their groups: those first that have most to do, by rates, then by lag."""
    seconds = max((now.steady_ms - before.steady_ms) / 1000, 0.001)
    ends = {queue: at.max_offset for b in before.masters() for queue, at in b.queues.items()}
    places = {(at.group, at.queue): at.offset for at in before.positions()}
    came: Counter[str] = Counter()
    done: Counter[tuple[str, str]] = Counter()
    lag: Counter[tuple[str, str]] = Counter()
    for broker in now.masters():
        for queue, at in broker.queues.items():
            came[queue.topic] += at.max_offset - ends.get(queue, at.max_offset)
    for place in filter(lambda place: is_users_group(place.group), now.positions()):
        key = place.queue.topic, place.group
        done[key] += place.offset - places.get((place.group, place.queue), place.offset)
        lag[key] += place.lag
    read = {topic for topic, _ in lag} | {name for b in now.brokers for name in (b.name, b.cluster)}
    alone = [t for t in came if not (t in read or t.endswith(REPLY_TOPIC_SUFFIX))]
    rows = [
        TopRow(topic, group, came[topic] / seconds, done[topic, group] / seconds, lag[topic, group])
        for topic, group in [*lag, *((topic, "") for topic in alone)]
    ]
    return sorted(rows, key=lambda r: (-r.in_per_s - r.out_per_s, -r.lag, r.topic, r.group))


# Events in a cluster between two looks: who came, went, took over, or refuses. Pure.


KINDS: Final = {
    "there": ("joined", "left"),
    "master": ("is master", "is master no more"),
    "silent": ("is silent", "answers again"),
    "drained": ("is drained", "is restored"),
    "messagesRefused": ("refuses messages", "takes messages again"),
    "groupTrouble": ("has trouble in its group", "is well in its group again"),
    "followsRefused": ("is refused by its master", "follows its master again"),
}
"""What is looked at: the words when it begins to be so, or is another one, and when it ends."""


class ClusterEvent(msgspec.Struct, frozen=True):
    """One change, seen at `at_ms` by the clock of who looked. `kind`: one of the words of KINDS."""

    at_ms: int
    subject: str
    kind: str
    says: str


def events(before: ClusterFacts, now: ClusterFacts) -> Iterator[ClusterEvent]:
    """The changes, by subject."""
    old, new = _states(before), _states(now)
    for key in sorted(key for key in {**old, **new} if old.get(key) != new.get(key)):
        subject, kind, _ = key
        words = KINDS[kind][key not in new]
        yield ClusterEvent(now.at_ms, subject, words, new.get(key, old.get(key, "")))


def _states(facts: ClusterFacts) -> dict[tuple[str, str, str], str]:
    """By subject, what of it is so, and which of several: in words, where there is something to tell."""
    found: dict[tuple[str, str, str], str] = {}
    for server in facts.name_servers:
        if server.error:
            found[f"name server {server.address}", "silent", ""] = server.error
        for name in server.drained:
            found[f"broker {name}", "drained", ""] = "by a note at its name servers"
    for broker in facts.brokers:
        subject = f"broker {broker.name}"
        found[subject, "there", broker.address] = broker.address
        if broker.broker_id == 0:
            found[subject, "master", ""] = broker.address
        if broker.error:
            found[subject, "silent", broker.address] = f"{broker.address}: {broker.error}"
        for key in ("messagesRefused", "groupTrouble", "followsRefused"):
            if (text := broker.runtime.get(key, "no")) not in ("no", ""):
                found[subject, key, broker.address] = f"{broker.address}: {text}"
    return found
