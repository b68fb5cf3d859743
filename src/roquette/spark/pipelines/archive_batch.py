"""Batches of an archive: writing one's good rows, and counting at the end what the tables have."""

from typing import TYPE_CHECKING

from roquette.spark.pipelines import archive_rows as forms
from roquette.spark.pipelines.archive_report import QueueCount
from roquette.spark.pipelines.frame import PipelineError
from roquette.spark.pipelines.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Offsets = dict[tuple[str, int], int]  # by broker and queue
PLACE = ("broker_name", "queue_id", "queue_offset")


def count_places(
    places: "DataFrame", starts: Offsets, ends: Offsets, *, every: bool
) -> list[QueueCount]:
    """Rows, rows too many, and offsets that are not there, per queue.

    Args:
        starts: where the stream began; a queue that is not named began at its first row.
        ends: where the stream has come to.
        every: every offset between must be there: no tags were asked for.
    """
    from pyspark.sql import functions as f

    rows = (
        places.groupBy(*PLACE)
        .count()
        .groupBy("broker_name", "queue_id")
        .agg(
            f.sum("count").alias("rows"),
            f.count("*").alias("distinct"),
            f.min("queue_offset").alias("first"),
            f.max("queue_offset").alias("last"),
        )
        .collect()
    )
    found = {(row["broker_name"], row["queue_id"]): row for row in rows}
    counts = []
    for queue in sorted(found.keys() | ends.keys()):
        row = found.get(queue)
        total, distinct = (row["rows"], row["distinct"]) if row is not None else (0, 0)
        end = ends.get(queue, 0 if row is None else row["last"] + 1)
        start = min(starts.get(queue, end if row is None else row["first"]), end)
        missing = max(0, end - start - distinct) if every else 0
        counts.append(QueueCount(queue[0], queue[1], total, total - distinct, missing))
    return counts


def write_rows(rows: "DataFrame", form: forms.RowForm, table: Table, staging: str) -> int:
    """Write the good rows; returns how many are bad, counted in the same pass."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    address = table.files.address(staging)
    if form.kind == "raw":
        forms.good_rows(rows, form).write.mode("overwrite").partitionBy(forms.DAY).parquet(address)
        return 0
    seen = Observation()
    watched = rows.observe(seen, f.count(f.col(forms.BAD)).alias("bad"))
    good = forms.good_rows(watched, form)
    good.write.mode("overwrite").partitionBy(forms.DAY).parquet(address)
    return int(seen.get["bad"] or 0)


def expect_rows(wanted: int, found: int, number: int) -> None:
    if wanted != found:
        raise PipelineError(
            f"archive: batch {number} has {wanted} bad rows, {found} came to the quarantine: nothing was changed"
        )
