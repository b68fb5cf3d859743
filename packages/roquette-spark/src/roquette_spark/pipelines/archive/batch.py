"""What an archive's tables have, looked up in their files: places of all messages, fields without a column, reasons."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from roquette_spark.pipelines.archive.certificate import Certificate, Queue, QueueRecord
from roquette_spark.pipelines.kit import message_rows as forms
from roquette_spark.pipelines.tables.table_writer import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAMES = 100  # of fields, in a report
PLACE = ("broker_name", "queue_id", "queue_offset")


def count_places(places: "DataFrame", starts: Mapping[Queue, int], *, every: bool) -> Certificate:
    """A certificate from all rows: a scan, for tables that have none or have been changed by others.

    Args:
        starts: where the stream began; a queue that is not named began at its first row.
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
    queues = {}
    for row in rows:
        queue = row["broker_name"], row["queue_id"]
        start, end = min(starts.get(queue, row["first"]), row["first"]), row["last"] + 1
        missing = end - start - row["distinct"] if every else 0
        queues[queue] = QueueRecord(start, end, row["rows"], missing, row["rows"] - row["distinct"])
    return Certificate(queues)


def rescued_fields(table: TableWriter) -> list[tuple[str, int]]:
    """Names of the fields that no column takes, and in how many rows; the most frequent first."""
    found: Counter[str] = Counter()
    for file in table.snapshot.files.values():
        stats = json.loads(file.stats or "{}")
        nulls = (stats.get("nullCount") or {}).get(forms.RESCUED)
        if nulls is not None and nulls == file.rows:
            continue
        for text in table.files.column(file.path, forms.RESCUED):
            if text is not None:
                found.update(json.loads(text).keys())
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return ordered[:_NAMES]


def reasons(quarantine: TableWriter) -> list[tuple[str, int]]:
    """Bad rows by what is wrong with them; the most frequent first."""
    found: Counter[str] = Counter()
    for file in quarantine.snapshot.files.values():
        found.update(quarantine.files.column(file.path, forms.ERROR))
    return found.most_common()
