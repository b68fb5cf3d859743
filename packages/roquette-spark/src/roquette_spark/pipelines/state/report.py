"""What a run of current-state shows people."""

from collections.abc import Sequence

from roquette.base.quantities import plural
from roquette_spark.pipelines.kit.charts import lines
from roquette_spark.pipelines.kit.report import Report, ReportTable, Section
from roquette_spark.pipelines.kit.stream import Batches, rates
from roquette_spark.pipelines.kit.table_values import Snapshot
from roquette_spark.pipelines.state.bucket_files import Keys
from roquette_spark.pipelines.state.pointer import Pointer


def report_of(
    topic: str,
    key: Sequence[str],
    batches: Batches,
    snapshot: Snapshot,
    *,
    keys: Keys | None,
    pointer: Pointer,
    quarantined: int,
) -> Report:
    """The page.

    Args:
        keys: None if they were not counted; `quarantined`: messages, of all runs.
    """
    sections = [
        Section(
            "The table",
            f"Readers of its log have one row per key by a view (folder _view). Readers without find version {pointer.version} "
            "in the folder that the file CURRENT names.",
            [
                ReportTable(
                    ["", ""],
                    [
                        ["version", snapshot.version],
                        ["files", len(snapshot.files)],
                        ["bytes", snapshot.size],
                        ["rows in files, changes among them", snapshot.rows],
                        [
                            "keys that are there twice",
                            "not counted" if keys is None else keys.twice,
                        ],
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
            *_facts(keys),
            (f"{batches.rows:,}", plural(batches.rows, "change") + " in this run"),
            (f"{quarantined:,}", plural(quarantined, "message") + " in quarantine"),
        ],
        sections=sections,
    )


def _facts(keys: Keys | None) -> list[tuple[str, str]]:
    if keys is None:
        return []
    return [
        (f"{keys.live:,}", plural(keys.live, "row") + " now"),
        (f"{keys.deleted:,}", plural(keys.deleted, "deleted key") + " remembered"),
    ]
