"""What `traffic` found, for people: plots and tables."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from roquette.pipelines.kit.durations import shown
from roquette.pipelines.kit.page import Cell, Page, Section, bars, columns, lines, table
from roquette.pipelines.traffic.route_history import RouteHistory

if TYPE_CHECKING:
    from roquette.pipelines.traffic.pipeline import Findings

MOST_ROWS = 50  # of a table on the page; the summary has all
PLOTTED_TAGS = 20
UNEVEN = 2.0  # the fullest queue has so many times the mean


def build_page(found: "Findings") -> Page:
    """The whole report."""
    messages = sum(row["messages"] for row in found.topics)
    size = sum(row["bytes"] for row in found.topics)
    behind = sum(row["lag"] for row in found.offsets if row["group"] is not None)
    page = Page(
        title="Traffic",
        lead=f"From {_time(found.begin_ms)} to {_time(found.end_ms)} UTC.",
    )
    if found.topics:
        page.facts += [
            (f"{messages:,}", "messages"),
            (_size(size), "in the log"),
            (str(len(found.topics)), "topics with messages"),
        ]
    if found.offsets:
        page.facts.append((f"{behind:,}", "messages that groups have still to consume"))
    if found.routes is not None:
        page.facts.append(
            (str(len(found.routes.open)), "topics on which name servers disagree now")
        )
    page.sections = [
        *_volume(found),
        *_latency(found),
        *_tags(found),
        *_keys(found),
        *_balance(found),
        *_lag(found),
        *_traces(found),
        *(_routes(found.routes) if found.routes is not None else []),
    ]
    return page


def _volume(found: "Findings") -> list[Section]:
    if not found.topics:
        return []
    seconds = found.bucket_ms / 1000
    series: dict[str, list[tuple[float, float]]] = {}
    for row in found.over_time:
        points = series.setdefault(row["topic"], [])
        points.append((float(row["bucket_ms"]), row["messages"] / seconds))
    sizes = [
        (row["topic"], float(row["bytes"]), f"{_size(row['bytes'])}, {row['messages']:,} messages")
        for row in found.topics[:20]
    ]
    return [
        Section(
            "Messages over time",
            f"Messages a second by time of storing, {shown(found.bucket_ms)} each; the busiest topics.",
            lines(fill_gaps(series, found.bucket_ms), "messages a second", x_text=_clock),
        ),
        Section("Volume by topic", "Bytes in the log, the largest topics first.", bars(sizes)),
        Section(
            "Sizes by topic",
            "Bytes of a stored record: body, properties and about 100 bytes around them.",
            table(
                ["topic", "messages", "mean bytes", "largest", "first", "last"],
                [
                    [
                        row["topic"],
                        row["messages"],
                        round(row["bytes"] / row["messages"]),
                        row["largest"],
                        _time(row["first_ms"]),
                        _time(row["last_ms"]),
                    ]
                    for row in found.topics[:MOST_ROWS]
                ],
            ),
        ),
    ]


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


def _latency(found: "Findings") -> list[Section]:
    rows: list[list[object]] = [
        [name, row["messages"], *(shown(row[f"latency_p{p}_ms"]) for p in (50, 95, 99))]
        for name, row in [
            *((f"topic {row['topic']}", row) for row in found.topics[:MOST_ROWS]),
            *((f"broker {row['broker_name'] or '(unknown)'}", row) for row in found.brokers),
        ]
    ]
    if not rows:
        return []
    return [
        Section(
            "From producer to broker",
            "Time from the message's making to its storing. Two clocks: a negative time is their difference. "
            "Delayed messages count from their making, too.",
            table(["", "messages", "half within", "95 % within", "99 % within"], rows),
        )
    ]


def _tags(found: "Findings") -> list[Section]:
    """Bars only where tags tell messages apart."""
    if len(found.tags) < 2:
        return []
    order = sorted(found.tags, key=lambda row: -row["messages"])[:PLOTTED_TAGS]
    items = [
        (
            f"{row['topic']}: {row['tag']}"[:28],
            float(row["messages"]),
            f"{row['messages']:,}, {_size(row['bytes'])}",
        )
        for row in order
    ]
    return [Section("Messages by tag", "The commonest tags of all topics.", bars(items))]


def _keys(found: "Findings") -> list[Section]:
    totals = {row["topic"]: row["messages"] for row in found.topics}
    rows: list[list[object]] = [
        [
            row["topic"],
            row["key"],
            row["messages"],
            f"{100 * row['messages'] / totals[row['topic']]:.1f} %",
        ]
        for row in found.hot_keys
        if row["messages"] > 1 and row["topic"] in totals
    ]
    if not rows:
        return []
    return [
        Section(
            "Hot keys",
            "The commonest message groups, or keys where there is no group, and their share of the topic.",
            table(["topic", "key", "messages", "share"], rows[:MOST_ROWS]),
        )
    ]


def imbalance(
    queues: Sequence[Mapping[str, Any]], offsets: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
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


def _balance(found: "Findings") -> list[Section]:
    rows: list[list[object]] = [
        [
            row["topic"],
            row["queues"],
            row["empty"],
            round(row["mean"]),
            row["fullest"],
            f"{row['fullest_broker']} {row['fullest_queue']}",
            Cell(f"{row['ratio']:.2f}", row["ratio"] < UNEVEN),
        ]
        for row in imbalance(found.queues, found.offsets)[:MOST_ROWS]
    ]
    if not rows:
        return []
    head = ["topic", "queues", "without any", "mean", "fullest", "which", "fullest / mean"]
    return [
        Section(
            "Balance of queues",
            "Messages of the span by queue. A fullest queue of twice the mean or more is one key's, or a route's fault.",
            table(head, rows),
        )
    ]


def _lag(found: "Findings") -> list[Section]:
    by_group: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in found.offsets:
        if row["group"] is not None:
            by_group.setdefault((row["group"], row["topic"]), []).append(row)
    if not by_group:
        return []
    order = sorted(by_group.items(), key=lambda item: -sum(row["lag"] for row in item[1]))
    plotted = [
        (
            f"{group}: {topic}"[:28],
            float(sum(r["lag"] for r in rows)),
            f"{sum(r['lag'] for r in rows):,}",
        )
        for (group, topic), rows in order[:20]
    ]
    cells: list[list[object]] = []
    for (group, topic), rows in order[:MOST_ROWS]:
        worst = max(rows, key=lambda row: row["lag"])
        last = max((row["last_consume_ms"] or 0 for row in rows), default=0)
        cells.append(
            [
                group,
                topic,
                sum(row["lag"] for row in rows),
                f"{worst['lag']:,} in {worst['broker_name']} {worst['queue_id']}",
                _time(last) if last else "never",
                shown(found.end_ms - last) if last and worst["lag"] else "–",
            ]
        )
    head = ["group", "topic", "lag", "most in one queue", "last consumed was stored", "behind by"]
    return [
        Section("Lag", "Messages that groups have still to consume.", bars(plotted)),
        Section("Lag by group and topic", "The furthest behind first.", table(head, cells)),
    ]


def _traces(found: "Findings") -> list[Section]:
    sections = []
    if found.end_to_end:
        rows: list[list[object]] = [
            [
                row["topic"],
                row["client_group"],
                row["messages"],
                row["deliveries"] - row["messages"],
                row["failed"] or 0,
                *(shown(row[f"wait_p{p}_ms"]) for p in (50, 95, 99)),
                shown(row["cost_p95_ms"]),
            ]
            for row in found.end_to_end[:MOST_ROWS]
        ]
        head = [
            "topic",
            "group",
            "messages",
            "again",
            "failed",
            "half within",
            "95 %",
            "99 %",
            "work, 95 %",
        ]
        sections.append(
            Section(
                "End to end",
                "From the send to the first consumption, as the clients' traces say; their clocks may differ.",
                table(head, rows),
            )
        )
    if found.sends:
        sends: list[list[object]] = [
            [
                row["topic"],
                row["client_group"],
                row["sends"],
                row["failed"] or 0,
                *(shown(row[f"cost_p{p}_ms"]) for p in (50, 95, 99)),
            ]
            for row in found.sends[:MOST_ROWS]
        ]
        head = ["topic", "producer group", "sends", "failed", "half within", "95 %", "99 %"]
        sections.append(Section("Sends", "What a send cost its producer.", table(head, sends)))
    return sections


def _routes(routes: RouteHistory) -> list[Section]:
    plotted = [
        (_clock(at), float(count), f"{_time(at)}: {count} topics")
        for at, count in _thinned(routes.disagreeing_by_time)
    ]
    rows: list[list[object]] = [
        [
            each.topic,
            _time(each.begin_ms),
            Cell("not yet", False) if each.healed_ms is None else _time(each.healed_ms),
            shown(each.lasted_ms),
            "; ".join(each.differences),
        ]
        for each in routes.found[:MOST_ROWS]
    ]
    silent = ", ".join(f"{server} {count} times" for server, count in routes.unanswered.items())
    text = (
        f"{routes.snapshots} snapshots of {len(routes.name_servers)} name servers "
        f"({', '.join(routes.name_servers)}), {routes.topics} topics."
        + (f" No answer came from {silent}." if silent else "")
        + " Brokers register with each server by themselves; a client knows only what its server says."
    )
    head = ["topic", "since", "agreed again", "for at least", "what differed"]
    verdict = table(head, rows) if rows else "<p>They agreed in every snapshot.</p>"
    return [
        Section(
            "Routes on which name servers disagree",
            text,
            columns(plotted, "topics by snapshot") + verdict,
        )
    ]


def _thinned(points: list[tuple[int, int]], most: int = 120) -> list[tuple[int, int]]:
    """At most `most` points; each stands for some neighbours and shows the largest of them."""
    size = -(-len(points) // most) or 1
    return [
        (points[i][0], max(count for _, count in points[i : i + size]))
        for i in range(0, len(points), size)
    ]


def _size(count: float) -> str:
    for bound, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= bound:
            return f"{count / bound:.1f} {unit}"
    return f"{count:.0f} B"


def _time(ms: float) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _clock(ms: float) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%H:%M:%S}"
