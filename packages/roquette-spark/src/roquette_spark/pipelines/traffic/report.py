"""Findings of `traffic`: for people (charts and tables), for programs (summary.json) and as a line."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

from roquette.base.options import clock_text, counted, duration_text, size_text, time_text
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.report import (
    MOST_ROWS,
    Cell,
    Chart,
    Column,
    Report,
    bars,
    columns,
    lines,
    table_of,
)

# Name servers that disagree, found in snapshots of their routes: since when, about what, until when. Pure.
# Brokers register with each name server by themselves and clients ask only one of them, so a route that reaches the servers at different times gives clients different queues: producers leave some unused, consumers of one group share them wrongly.


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
    """History of routes, as a file of snapshots tells it."""

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
        by_server = {server: line["queues"].get(broker) for server, line in sorted(answers.items())}
        lacking = [server for server, queues in by_server.items() if queues is None]
        if lacking:
            read = max(queues[0] for queues in by_server.values() if queues is not None)
            found.append(
                f"{_list(lacking)} {'does' if len(lacking) == 1 else 'do'} not know {broker}: clients that ask there "
                f"miss {read} queue{'s' if read != 1 else ''}"
            )
        kinds = {json.dumps(queues) for queues in by_server.values() if queues is not None}
        if len(kinds) > 1:
            words = ", ".join(
                f"{server} says {q[0]} to read and {q[1]} to write, {_perm(q[2])}"
                for server, q in by_server.items()
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


PLOTTED = 20  # bars of one chart
UNEVEN = 2.0  # the fullest queue has so many times the mean
Row = Mapping[str, Any]


@dataclass(slots=True)
class TrafficFindings:
    """All answers; what was not asked is empty."""

    begin_ms: int
    end_ms: int
    bucket_ms: int
    topics: list[dict[str, Any]] = field(default_factory=list)
    brokers: list[dict[str, Any]] = field(default_factory=list)
    queues: list[dict[str, Any]] = field(default_factory=list)
    over_time: list[dict[str, Any]] = field(default_factory=list)
    hot_keys: list[dict[str, Any]] = field(default_factory=list)
    tags: list[dict[str, Any]] = field(default_factory=list)
    offsets: list[dict[str, Any]] = field(default_factory=list)
    sends: list[dict[str, Any]] = field(default_factory=list)
    end_to_end: list[dict[str, Any]] = field(default_factory=list)
    routes: RouteHistory | None = None

    @property
    def consumed(self) -> list[dict[str, Any]]:
        """Offsets of groups; the other rows are the ends of queues."""
        return [row for row in self.offsets if row["group"] is not None]

    @property
    def behind(self) -> int:
        """Messages that all groups have still to consume."""
        return sum(row["lag"] for row in self.consumed)


def report_of(found: TrafficFindings) -> Report:
    """Everything; a section without rows is left out."""
    span = f"From {time_text(found.begin_ms)} to {time_text(found.end_ms)} UTC."
    report = Report(title="Traffic", lead=span)
    if found.topics:
        report.count(_sum(found.topics, "messages"), "message")
        report.facts.append((size_text(_sum(found.topics, "bytes")), "in the log"))
        report.count(len(found.topics), "topic", " with messages")
    if found.offsets:
        report.count(found.behind, "message", " that groups have still to consume")
    if found.routes is not None:
        open_now = len(found.routes.open)
        report.count(open_now, "topic", " on which name servers disagree now")
    if found.topics:
        _add_volume(report, found)
    _add_shares(report, found)
    _add_lag(report, found)
    _add_traces(report, found)
    if found.routes is not None:
        _add_routes(report, found.routes)
    return report


def _sum(rows: Sequence[Row], name: str) -> int:
    return sum(row[name] for row in rows)


def _spans(kind: str, heads: Sequence[str]) -> dict[str, Column]:
    """Columns of the percentiles 50, 95 and 99 of a time."""

    def column(name: str) -> Column:
        return lambda row: duration_text(row[name])

    return {head: column(f"{kind}_p{p}_ms") for head, p in zip(heads, (50, 95, 99), strict=True)}


def _largest(
    rows: Sequence[Row], by: str, name: Callable[[Row], str], text: Callable[[Row], str]
) -> Chart:
    """Bars of the rows with the most of a number."""
    ordered = sorted(rows, key=lambda row: -row[by])[:PLOTTED]
    return bars([(name(row), float(row[by]), text(row)) for row in ordered])


def _add_volume(report: Report, found: TrafficFindings) -> None:
    series: dict[str, list[tuple[float, float]]] = {}
    for row in found.over_time:
        point = float(row["bucket_ms"]), row["messages"] / (found.bucket_ms / 1000)
        series.setdefault(row["topic"], []).append(point)
    report.add(
        "Messages over time",
        f"Messages a second by time of storing, {duration_text(found.bucket_ms)} each; the busiest topics.",
        lines(fill_gaps(series, found.bucket_ms), "messages a second", x_text=clock_text),
    )
    report.add(
        "Volume by topic",
        "Bytes in the log, the largest topics first.",
        _largest(
            found.topics,
            "bytes",
            lambda row: row["topic"],
            lambda row: f"{size_text(row['bytes'])}, {counted(row['messages'], 'message')}",
        ),
    )
    shown: dict[str, Column] = {
        "topic": "topic",
        "messages": "messages",
        "mean bytes": lambda row: round(row["bytes"] / row["messages"]),
        "largest": "largest",
        "first": lambda row: time_text(row["first_ms"]),
        "last": lambda row: time_text(row["last_ms"]),
    }
    text = "Bytes of a stored record: body, properties and about 100 bytes around them."
    report.add("Sizes by topic", text, table_of(found.topics, shown))


def fill_gaps(
    series: Mapping[str, Sequence[tuple[float, float]]], step: float
) -> dict[str, list[tuple[float, float]]]:
    """Points with zeros where a gap begins and ends: a line must not cross hours without a message."""
    filled: dict[str, list[tuple[float, float]]] = {}
    for name, points in series.items():
        found: list[tuple[float, float]] = []
        for x, y in sorted(points):
            if found and x - found[-1][0] > step:
                found.append((found[-1][0] + step, 0.0))
                if x - found[-1][0] > step:
                    found.append((x - step, 0.0))
            found.append((x, y))
        filled[name] = found
    return filled


def _add_shares(report: Report, found: TrafficFindings) -> None:
    """How messages are spread over times, tags, keys and queues."""
    rows = [
        *({"": f"topic {row['topic']}", **row} for row in found.topics[:MOST_ROWS]),
        *({"": f"broker {row['broker_name'] or '(unknown)'}", **row} for row in found.brokers),
    ]
    spans = _spans("latency", ("half within", "95 % within", "99 % within"))
    report.add(
        "From producer to broker",
        "Time from the message's making to its storing. Two clocks: a negative time is their difference. "
        "Delayed messages count from their making, too.",
        table_of(rows, {"": "", "messages": "messages", **spans}),
    )
    if len(found.tags) > 1:  # only where tags tell messages apart
        tags = _largest(
            found.tags,
            "messages",
            lambda row: f"{row['topic']}: {row['tag']}",
            lambda row: f"{row['messages']:,}, {size_text(row['bytes'])}",
        )
        report.add("Messages by tag", "The commonest tags of all topics.", tags)
    totals = {row["topic"]: row["messages"] for row in found.topics}
    hot = [row for row in found.hot_keys if row["messages"] > 1 and row["topic"] in totals]
    keys: dict[str, Column] = {
        "topic": "topic",
        "key": "key",
        "messages": "messages",
        "share": lambda row: f"{100 * row['messages'] / totals[row['topic']]:.1f} %",
    }
    report.add(
        "Hot keys",
        "The commonest message groups, or keys where there is no group, and their share of the topic.",
        table_of(hot, keys),
    )
    queues: dict[str, Column] = {
        "topic": "topic",
        "queues": "queues",
        "without any": "empty",
        "mean": lambda row: round(row["mean"]),
        "fullest": "fullest",
        "which": lambda row: f"{row['fullest_broker']} {row['fullest_queue']}",
        "fullest / mean": lambda row: Cell(f"{row['ratio']:.2f}", row["ratio"] < UNEVEN),
    }
    report.add(
        "Balance of queues",
        "Messages of the span by queue. A fullest queue of twice the mean or more is one key's, or a route's fault.",
        table_of(imbalance(found.queues, found.offsets), queues),
    )


def imbalance(queues: Sequence[Row], offsets: Sequence[Row]) -> list[dict[str, Any]]:
    """By topic: messages of the fullest queue beside the mean of all queues, those without any among them."""
    counts: dict[str, dict[tuple[str, int], int]] = {}
    busy = {row["topic"] for row in queues}
    for row in offsets:
        if row["group"] is None and row["topic"] in busy:
            counts.setdefault(row["topic"], {})[row["broker_name"], row["queue_id"]] = 0
    for row in queues:
        counts.setdefault(row["topic"], {})[row["broker_name"], row["queue_id"]] = row["messages"]
    found = []
    for topic, by_queue in counts.items():
        mean = sum(by_queue.values()) / len(by_queue)
        fullest = max(by_queue, key=lambda queue: by_queue[queue])
        found.append(
            {
                "topic": topic,
                "queues": len(by_queue),
                "empty": sum(1 for count in by_queue.values() if not count),
                "mean": mean,
                "fullest": by_queue[fullest],
                "fullest_broker": fullest[0],
                "fullest_queue": fullest[1],
                "ratio": by_queue[fullest] / mean if mean else 0.0,
            }
        )
    return sorted(found, key=lambda row: (-row["ratio"], row["topic"]))


def _add_lag(report: Report, found: TrafficFindings) -> None:
    by_group: dict[tuple[str, str], list[Row]] = {}
    for row in found.consumed:
        by_group.setdefault((row["group"], row["topic"]), []).append(row)
    totals: list[dict[str, Any]] = [
        {
            "group": group,
            "topic": topic,
            "lag": _sum(rows, "lag"),
            "worst": max(rows, key=lambda row: row["lag"]),
            "last": max((row["last_consume_ms"] or 0 for row in rows), default=0),
        }
        for (group, topic), rows in by_group.items()
    ]
    totals.sort(key=lambda row: -row["lag"])

    def fullest(row: Row) -> str:
        worst = row["worst"]
        return f"{worst['lag']:,} in {worst['broker_name']} {worst['queue_id']}"

    def behind_by(row: Row) -> str:
        late = row["last"] and row["worst"]["lag"]
        return duration_text(found.end_ms - row["last"] if late else None)

    def last(row: Row) -> str:
        return time_text(row["last"]) if row["last"] else "never"

    names, lags = lambda row: f"{row['group']}: {row['topic']}", lambda row: f"{row['lag']:,}"
    text = "Messages that groups have still to consume."
    report.add("Lag", text, _largest(totals, "lag", names, lags))
    shown: dict[str, Column] = {
        "group": "group",
        "topic": "topic",
        "lag": "lag",
        "most in one queue": fullest,
        "last consumed was stored": last,
        "behind by": behind_by,
    }
    report.add("Lag by group and topic", "The furthest behind first.", table_of(totals, shown))


def _add_traces(report: Report, found: TrafficFindings) -> None:
    spans = ("half within", "95 %", "99 %")
    consumed: dict[str, Column] = {
        "topic": "topic",
        "group": "client_group",
        "messages": "messages",
        "again": lambda row: row["deliveries"] - row["messages"],
        "failed": lambda row: row["failed"] or 0,
        **_spans("wait", spans),
        "work, 95 %": lambda row: duration_text(row["cost_p95_ms"]),
    }
    text = "From the send to the first consumption, as the clients' traces say; their clocks may differ."
    report.add("End to end", text, table_of(found.end_to_end, consumed))
    sent: dict[str, Column] = {
        "topic": "topic",
        "producer group": "client_group",
        "sends": "sends",
        "failed": lambda row: row["failed"] or 0,
        **_spans("cost", spans),
    }
    report.add("Sends", "What a send cost its producer.", table_of(found.sends, sent))


def _add_routes(report: Report, routes: RouteHistory) -> None:
    plotted = [
        (clock_text(at), float(count), f"{time_text(at)}: {counted(count, 'topic')}")
        for at, count in _thinned(routes.disagreeing_by_time)
    ]
    shown: dict[str, Column] = {
        "topic": lambda each: each.topic,
        "since": lambda each: time_text(each.begin_ms),
        "agreed again": lambda each: (
            Cell("not yet", False) if each.healed_ms is None else time_text(each.healed_ms)
        ),
        "for at least": lambda each: duration_text(each.lasted_ms),
        "what differed": lambda each: "; ".join(each.differences),
    }
    silent = ", ".join(
        f"{server} {counted(count, 'time')}" for server, count in routes.unanswered.items()
    )
    text = (
        f"{counted(routes.snapshots, 'snapshot')} of {counted(len(routes.name_servers), 'name server')} "
        f"({', '.join(routes.name_servers)}), {counted(routes.topics, 'topic')}."
        + (f" No answer came from {silent}." if silent else "")
        + " Brokers register with each server by themselves; a client knows only what its server says."
    )
    verdict = table_of(routes.found, shown) or "They agreed in every snapshot."
    chart = columns(plotted, "topics by snapshot")
    report.add("Routes on which name servers disagree", text, chart, verdict)


def _thinned(points: list[tuple[int, int]], most: int = 120) -> list[tuple[int, int]]:
    """At most `most` points; each stands for some neighbours and shows the largest of them."""
    size = -(-len(points) // most) or 1
    return [
        (points[i][0], max(count for _, count in points[i : i + size]))
        for i in range(0, len(points), size)
    ]


def summary_of(found: TrafficFindings) -> dict[str, Any]:
    seconds = max(1, (found.end_ms - found.begin_ms) // 1000)
    groups: dict[str, int] = {}
    for row in found.consumed:
        groups[row["group"]] = groups.get(row["group"], 0) + row["lag"]
    as_they_are = ("begin_ms", "end_ms", "brokers", "queues", "tags", "hot_keys", "sends")
    summary = {
        **{name: getattr(found, name) for name in (*as_they_are, "end_to_end")},
        "messages": _sum(found.topics, "messages"),
        "bytes": _sum(found.topics, "bytes"),
        "topics": [
            row | {"per_second": round(row["messages"] / seconds, 3)} for row in found.topics
        ],
        "imbalance": imbalance(found.queues, found.offsets),
        "lag": found.consumed,
        "lag_by_group": groups,
    }
    if (routes := found.routes) is not None:
        told = [{k: v for k, v in asdict(each).items() if k != "seen_ms"} for each in routes.found]
        kept = ("snapshots", "name_servers", "unanswered", "left_out")
        summary["routes"] = {n: getattr(routes, n) for n in kept} | {"disagreements": told}
    return summary


def last_line(found: TrafficFindings) -> str:
    parts = []
    if found.topics:
        messages = counted(_sum(found.topics, "messages"), "message")
        parts.append(f"{messages} in {counted(len(found.topics), 'topic')}")
    if found.offsets:
        parts.append(f"groups are {counted(found.behind, 'message')} behind")
    if found.routes is not None:
        open_now = len(found.routes.open)
        parts.append(
            f"name servers disagreed {counted(len(found.routes.found) + found.routes.left_out, 'time')}, "
            f"now on {counted(open_now, 'topic')}"
        )
    return "; ".join(parts) or "nothing was found"
