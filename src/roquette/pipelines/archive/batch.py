"""Batches of an archive: writing one's good rows, and counting at the end what the tables have."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roquette.pipelines.archive.report import QueueCount
from roquette.pipelines.kit import message_rows as forms
from roquette.pipelines.kit.table_writer import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Offsets = dict[tuple[str, int], int]  # by broker and queue
_NAMES = 100  # of fields, in a report
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


@dataclass(frozen=True, slots=True)
class Written:
    """Of one batch: rows that are bad, and good ones that have fields without a column."""

    bad: int = 0
    rescued: int = 0


def write_rows(rows: "DataFrame", form: forms.RowForm, table: TableWriter, staging: str) -> Written:
    """Write the good rows; the others are counted in the same pass."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    address = table.files.address(staging)
    if form.kind == "raw":
        forms.good_rows(rows, form).write.mode("overwrite").partitionBy(forms.DAY).parquet(address)
        return Written()
    seen = Observation()
    rescued = f"{forms.LOOKED}.rescued" if form.kind == "json" else "null"
    watched = rows.observe(
        seen,
        f.count(f.col(forms.BAD)).alias("bad"),
        f.count(f.expr(f"if({forms.BAD} is null, {rescued}, null)")).alias("rescued"),
    )
    good = forms.good_rows(watched, form)
    good.write.mode("overwrite").partitionBy(forms.DAY).parquet(address)
    found = seen.get
    return Written(int(found["bad"] or 0), int(found["rescued"] or 0))


def rescued_fields(table: "DataFrame") -> list[tuple[str, int]]:
    """Names of the fields that no column takes, and in how many rows; the most frequent first."""
    from pyspark.sql import functions as f

    if forms.RESCUED not in table.columns:
        return []
    names = table.where(f.col(forms.RESCUED).isNotNull()).select(
        f.explode(f.json_object_keys(forms.RESCUED)).alias("name")
    )
    rows = names.groupBy("name").count().orderBy(f.desc("count"), "name").limit(_NAMES).collect()
    return [(row[0], row[1]) for row in rows]
