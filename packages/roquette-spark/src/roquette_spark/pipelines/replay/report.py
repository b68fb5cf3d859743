"""What came of a replay: summary.json, report.html and a line."""

import dataclasses
from typing import Any

from roquette.base.quantities import counted, plural
from roquette_spark.pipelines.kit.charts import bars
from roquette_spark.pipelines.kit.frame import Result
from roquette_spark.pipelines.kit.report import Cell, Report, ReportTable, Section
from roquette_spark.pipelines.replay.check import ReplayCheck
from roquette_spark.pipelines.replay.state import ReplayState


def make_result(
    *,
    source: str,
    target: str,
    state: ReplayState,
    sent: int,
    resumed: int,
    seconds: float,
    complete: bool,
    check: ReplayCheck | None,
    asked_to_verify: bool,
) -> Result:
    """The result of a run.

    Args:
        sent: messages of this run; `resumed`: of runs before it.
    """
    rate = sent / seconds if seconds > 0 else 0.0
    summary: dict[str, Any] = {
        "source": source,
        "target": target,
        "complete": complete,
        "sent": sent,
        "sent_before": resumed,
        "rows_per_second": round(rate),
        "ids": state.prefix,
        "check": None if check is None else {**dataclasses.asdict(check), "ok": check.ok},
    }
    ok = complete and (check.ok if check is not None else not asked_to_verify)
    report = Report(
        title=f"Replay of {source}",
        lead=f"Into {target}. Ids begin with {state.prefix}",
        facts=[
            (f"{state.rows:,}", plural(state.rows, "message") + " sent"),
            (f"{rate:,.0f}", "messages a second in this run"),
            ("complete" if complete else "stopped", "state"),
        ],
    )
    if check is not None:
        report.sections = _sections(check)
    return Result(
        ok=ok or not complete,
        summary=summary,
        report=report,
        last_line=_line(source, target, state, complete, check),
    )


def _sections(check: ReplayCheck) -> list[Section]:
    same = check.wanted_sum == check.found_sum
    rows = [
        ("messages", check.wanted, check.found, _cell(check.wanted == check.found)),
        ("checksum", str(check.wanted_sum), str(check.found_sum), _cell(same)),
        ("out of order within a key", 0, check.inversions, _cell(check.inversions == 0)),
        ("stored more than once", 0, check.copies, Cell("see below", True)),
    ]
    sections = [
        Section(
            "Source and target",
            "The checksum is the sum of hashes of body, keys, tags, properties, message group and flag. What is "
            "stored more than once came again after a failure; remove_duplicates takes it out.",
            [ReportTable(["", "source", "target", ""], rows)],
        )
    ]
    if check.missing:
        sections.append(
            Section(
                "Missing", "Some of the ids.", [ReportTable(["id"], [[m] for m in check.missing])]
            )
        )
    if check.by_queue:
        items = [(name, float(count), f"{count:,}") for name, count in check.by_queue]
        sections.append(Section("Queues of the target", "Messages in each.", [bars(items)]))
    return sections


def _cell(good: bool) -> Cell:
    return Cell("the same" if good else "DIFFERENT", good)


def _line(
    source: str, target: str, state: ReplayState, complete: bool, check: ReplayCheck | None
) -> str:
    head = f"{source} -> {target}: {counted(state.rows, 'message')} sent"
    if not complete:
        return f"{head}, stopped; the same command goes on"
    if check is None:
        return head
    if check.ok:
        return f"{head}; {check.found:,} there, checksums equal, {check.copies:,} stored twice"
    return (
        f"{head}; DIFFERENT: {check.wanted:,} wanted, {check.found:,} found, "
        f"{check.inversions:,} out of order, {len(check.missing)} or more missing"
    )
