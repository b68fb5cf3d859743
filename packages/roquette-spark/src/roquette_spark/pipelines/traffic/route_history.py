"""Name servers that disagree, found in snapshots of their routes: since when, about what, until when. Pure.

Brokers register with each name server by themselves and clients ask only one of them, so a route that reaches the
servers at different times gives clients different queues: producers leave some unused, consumers of one group
share them wrongly.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from roquette.errors import ConfigError

MOST = 10_000  # disagreements kept of one file; more are counted only


@dataclass(slots=True)
class Disagreement:
    """One topic on which servers that answered differed, without a pause.

    Attributes:
        begin_ms, seen_ms: the first and the last snapshot that shows it.
        healed_ms: the first snapshot after it in which they agree; None while they do not.
        views: what each server said when it was seen last: `broker-a 4/4 RW-, broker-b 4/4 RW-`, or `unknown`.
        differences: what that means, one sentence for each broker.
    """

    topic: str
    begin_ms: int
    seen_ms: int
    healed_ms: int | None = None
    snapshots: int = 1
    views: dict[str, str] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)

    @property
    def lasted_ms(self) -> int:
        """At least this long: from the first snapshot to the one in which they agreed again."""
        return (self.healed_ms or self.seen_ms) - self.begin_ms


@dataclass(slots=True)
class RouteHistory:
    """What a file of snapshots tells."""

    snapshots: int = 0
    first_ms: int = 0
    last_ms: int = 0
    name_servers: list[str] = field(default_factory=list)
    topics: int = 0
    found: list[Disagreement] = field(default_factory=list)
    left_out: int = 0
    unanswered: dict[str, int] = field(default_factory=dict)  # snapshots a server did not answer
    disagreeing_by_time: list[tuple[int, int]] = field(default_factory=list)  # (at, topics)

    @property
    def open(self) -> list[Disagreement]:
        """Those that had not ended in the last snapshot."""
        return [each for each in self.found if each.healed_ms is None]


def read_lines(lines: Iterable[str | bytes], where: str) -> Iterator[dict[str, Any]]:
    """Snapshot lines of a file. Raises ConfigError for a malformed line."""
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            line["at_ms"], line["name_server"], line["topic"], line["queues"], line["addresses"]
        except (ValueError, TypeError, KeyError):
            raise ConfigError(f"{where}, line {number}: this is no snapshot of routes") from None
        yield line


def history(lines: Iterable[Mapping[str, Any]]) -> RouteHistory:
    """Compare the servers within each snapshot; lines of one snapshot stand together, in the order of time."""
    routes = RouteHistory()
    going_on: dict[str, Disagreement] = {}
    topics: set[str] = set()
    servers: set[str] = set()
    for at_ms, snapshot in groupby(lines, key=lambda line: int(line["at_ms"])):
        by_topic: dict[str, dict[str, Mapping[str, Any]]] = {}
        silent: set[str] = set()
        for line in snapshot:
            servers.add(line["name_server"])
            if line.get("error"):
                silent.add(line["name_server"])
            else:
                by_topic.setdefault(line["topic"], {})[line["name_server"]] = line
        routes.first_ms = routes.first_ms or at_ms
        routes.last_ms = at_ms
        routes.snapshots += 1
        topics |= set(by_topic)
        for server in silent:
            routes.unanswered[server] = routes.unanswered.get(server, 0) + 1
        count = 0
        for topic, answers in by_topic.items():
            count += _compare(routes, going_on, topic, answers, at_ms)
        routes.disagreeing_by_time.append((at_ms, count))
    routes.name_servers = sorted(servers)
    routes.topics = len(topics)
    return routes


def _compare(
    routes: RouteHistory,
    going_on: dict[str, Disagreement],
    topic: str,
    answers: Mapping[str, Mapping[str, Any]],
    at_ms: int,
) -> bool:
    views = {server: _meaning(line) for server, line in sorted(answers.items())}
    agree = len(set(views.values())) <= 1
    before = going_on.get(topic)
    if agree:
        if before is not None and len(views) > 1:
            before.healed_ms = at_ms
            del going_on[topic]
        return False
    if before is None:
        before = Disagreement(topic, at_ms, at_ms, snapshots=0)
        going_on[topic] = before
        if len(routes.found) < MOST:
            routes.found.append(before)
        else:
            routes.left_out += 1
    before.seen_ms = at_ms
    before.snapshots += 1
    before.views = {server: _words(line) for server, line in sorted(answers.items())}
    before.differences = differences(answers)
    return True


def _meaning(line: Mapping[str, Any]) -> str:
    return json.dumps([line["queues"], line["addresses"]], sort_keys=True)


def _words(line: Mapping[str, Any]) -> str:
    if not line.get("known", True):
        return "unknown"
    return ", ".join(
        f"{broker} {read}/{write} {_perm(perm)}"
        for broker, (read, write, perm) in sorted(line["queues"].items())
    )


def _perm(perm: int) -> str:
    return ("R" if perm & 4 else "-") + ("W" if perm & 2 else "-")


def differences(answers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A sentence for each broker about which servers differ."""
    found: list[str] = []
    for broker in sorted({broker for line in answers.values() for broker in line["queues"]}):
        said = {server: line["queues"].get(broker) for server, line in sorted(answers.items())}
        lacking = [server for server, queues in said.items() if queues is None]
        if lacking:
            read = max(queues[0] for queues in said.values() if queues is not None)
            found.append(
                f"{_list(lacking)} {'does' if len(lacking) == 1 else 'do'} not know {broker}: clients that ask there "
                f"miss {read} queue{'s' if read != 1 else ''}"
            )
        kinds = {json.dumps(queues) for queues in said.values() if queues is not None}
        if len(kinds) > 1:
            words = ", ".join(
                f"{server} says {q[0]} to read and {q[1]} to write, {_perm(q[2])}"
                for server, q in said.items()
                if q is not None
            )
            found.append(f"the queues of {broker} differ: {words}")
        where = {
            server: line["addresses"].get(broker)
            for server, line in sorted(answers.items())
            if line["queues"].get(broker) is not None
        }
        if len({json.dumps(each, sort_keys=True) for each in where.values()}) > 1:
            words = ", ".join(
                f"{server} says {' '.join((each or {}).values()) or 'nowhere'}"
                for server, each in where.items()
            )
            found.append(f"the addresses of {broker} differ: {words}")
    return found


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
