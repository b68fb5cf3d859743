"""What came of a look at dead letters: summary.json, report.html and a line."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from roquette.base.quantities import counted, plural
from roquette_spark.pipelines.dlq.send import Sent
from roquette_spark.pipelines.kit.charts import bars
from roquette_spark.pipelines.kit.frame import Result
from roquette_spark.pipelines.kit.report import MOST_ROWS, Report, ReportTable, Section
from roquette_spark.source.dead_letters import Letters

_BODY_SHOWN = 200
_MEASURES = ("messages", "first", "last", "tries", "sample")


def make_result(
    topics: Letters,
    clusters: Sequence[dict[str, Any]],
    shown: Sequence[dict[str, Any]],
    chosen: int,
    sent: Sent | None,
) -> Result:
    """The result of a run."""
    summary: dict[str, Any] = {
        "dead_letters": topics.total,
        "topics": topics.counts,
        "chosen": chosen,
        "clusters": [{name: _plain(value) for name, value in each.items()} for each in clusters],
        "sent": None if sent is None else dataclasses.asdict(sent),
    }
    groups = sum(count > 0 for count in topics.counts.values())
    report = Report(
        title="Dead letters",
        lead=f"Of the cluster behind {topics.namesrv}.",
        facts=[
            (f"{topics.total:,}", plural(topics.total, "dead letter")),
            (
                f"{groups:,}",
                plural(groups, "group that has some", "groups that have some"),
            ),
            (f"{chosen:,}", "chosen"),
        ],
    )
    if sent is not None:
        report.facts.append((f"{sent.sent:,}", "sent back"))
    report.sections = _sections(topics, clusters, shown, sent)
    return Result(
        ok=True, summary=summary, report=report, last_line=_line(topics, clusters, chosen, sent)
    )


def _sections(
    topics: Letters,
    clusters: Sequence[dict[str, Any]],
    shown: Sequence[dict[str, Any]],
    sent: Sent | None,
) -> list[Section]:
    found = []
    if topics.counts:
        by_count = sorted(topics.counts.items(), key=lambda each: (-each[1], each[0]))
        items = [(name, float(count), f"{count:,}") for name, count in by_count[:MOST_ROWS]]
        text = "Messages in each dead-letter topic, the largest first."
        found.append(Section("By group", text, [bars(items)]))
    if clusters:
        head = list(clusters[0])
        largest = sorted(clusters, key=lambda each: -each["messages"])
        rows = [[_plain(each[name]) for name in head] for each in largest]
        found.append(
            Section(
                "Causes",
                "The largest first. Numbers and ids in errors are replaced by #; sample is a message's id.",
                [ReportTable(head, rows)],
            )
        )
    if shown:
        head = ["id", "group", "origin_topic", "error", "tags", "key", "reconsume_times", "body"]
        rows = [[_short(each[name]) for name in head] for each in shown]
        found.append(Section("Messages", "The oldest of those chosen.", [ReportTable(head, rows)]))
    if sent is not None:
        rows = [[name, value] for name, value in dataclasses.asdict(sent).items()]
        found.append(
            Section(
                "Sent back",
                "settled: by earlier runs; found: by a run that was killed, seen in the target topic; homeless: "
                "their origin is unknown.",
                [ReportTable(["", ""], rows)],
            )
        )
    return found


def _short(value: Any) -> Any:
    text = _plain(value)
    return text[:_BODY_SHOWN] if isinstance(text, str) else text


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (int, str)) else str(value)


def _line(
    topics: Letters, clusters: Sequence[dict[str, Any]], chosen: int, sent: Sent | None
) -> str:
    lines = [
        f"{counted(topics.total, 'dead letter')} in {counted(len(topics.counts), 'topic')}, {chosen:,} chosen"
    ]
    for each in sorted(clusters, key=lambda each: -each["messages"])[:10]:
        what = ", ".join(f"{name}={value}" for name, value in each.items() if name not in _MEASURES)
        lines.append(f"  {each['messages']:>8,}  {what}")
    if sent is not None:
        lines.append(
            f"{sent.sent:,} sent back, {sent.settled:,} had been sent before, {sent.found:,} found in the target, "
            f"{sent.homeless:,} of unknown origin"
        )
    return "\n".join(lines)
