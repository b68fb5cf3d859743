"""What a run of current-state shows people."""

from collections.abc import Sequence

from roquette.pipelines.kit.charts import lines
from roquette.pipelines.kit.quantities import plural
from roquette.pipelines.kit.report import Report, ReportTable, Section
from roquette.pipelines.kit.stream import Batches, rates
from roquette.pipelines.kit.table_values import Snapshot


def report_of(
    topic: str,
    key: Sequence[str],
    batches: Batches,
    snapshot: Snapshot,
    *,
    live: int,
    quarantined: int,
    twice: int,
) -> Report:
    """The page.

    Args:
        live: rows that are not deleted; `quarantined`: messages, of all runs; `twice`: keys that are there more than once.
    """
    deleted = snapshot.rows - live
    sections = [
        Section(
            "The table",
            "Readers without Delta find the folder of the current snapshot in the file CURRENT.",
            [
                ReportTable(
                    ["", ""],
                    [
                        ["version", snapshot.version],
                        ["files", len(snapshot.files)],
                        ["bytes", snapshot.size],
                        ["keys that are there twice", twice],
                    ],
                )
            ],
        )
    ]
    if batches.kept:
        pace = Section(
            "Pace",
            "Changes a second of each batch of this run, by the seconds since its begin.",
            [lines(rates(batches), "changes a second")],
        )
        sections.insert(0, pace)
    return Report(
        title=f"Current state of {topic}",
        lead=f"One row per {', '.join(key)}: the newest change of each.",
        facts=[
            (f"{live:,}", plural(live, "row") + " now"),
            (f"{deleted:,}", plural(deleted, "deleted key") + " remembered"),
            (f"{batches.rows:,}", plural(batches.rows, "change") + " in this run"),
            (f"{quarantined:,}", plural(quarantined, "message") + " in quarantine"),
        ],
        sections=sections,
    )
