"""Tables as `audit` compares them: those of `archive` by their log, together with their quarantine; others as they are."""

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from roquette.errors import ConfigError
from roquette_spark.pipelines.audit.frames import AuditCheck, places_of
from roquette_spark.pipelines.tables.table_data import data_files, read_table
from roquette_spark.pipelines.tables.table_formats import open_found

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUARANTINE = ".quarantine"


@dataclass(slots=True)
class TableRows:
    """The place (broker, queue, offset) of every row of a table.

    Attributes:
        files: how many files its log names; 0 for a table without one.
        gone: those that are not there, with their rows by the log; their rows are not in `frame`.
    """

    frame: "DataFrame"
    files: int = 0
    gone: list[tuple[str, int]] = field(default_factory=list)


def read_rows(spark: "SparkSession", path: str) -> TableRows:
    """The rows of a table, bad ones in the quarantine among them.

    Raises:
        ConfigError: there is no table, or its rows have no places.
    """
    path = path.rstrip("/")
    found = _read_one(spark, path)
    if found is None:
        raise ConfigError(f"audit: there is no table {path}")
    bad = _read_one(spark, path + QUARANTINE)
    if bad is None:
        return found
    return TableRows(
        found.frame.unionByName(bad.frame), found.files + bad.files, found.gone + bad.gone
    )


def _read_one(spark: "SparkSession", path: str) -> TableRows | None:
    table = open_found(path)
    snapshot = table.snapshot
    if snapshot.version >= 0:
        there = set(data_files(table.files))
        left = {name: file for name, file in snapshot.files.items() if name in there}
        frame = read_table(spark, table.files, replace(snapshot, files=left))
        gone = [
            (table.files.address(name), file.rows)
            for name, file in sorted(snapshot.files.items())
            if name not in there
        ]
        return TableRows(places_of(frame, path), len(snapshot.files), gone)
    if "://" not in path and not os.path.exists(path):
        return None
    if path.endswith(QUARANTINE):
        return None
    return TableRows(places_of(spark.read.parquet(path), path))


def lost_files(topic: str, rows: TableRows, most: int) -> AuditCheck:
    """Files that a table's log names and that are not there."""
    check = AuditCheck(
        "table_files",
        f"files that the table's log names and that are not there (table of {topic})",
        rows.files,
        len(rows.gone),
    )
    check.examples = [
        {"topic": topic, "file": path, "rows": count} for path, count in rows.gone[:most]
    ]
    if not rows.files:
        check.skipped = "the table has no log"
    return check
