"""Tables as `audit` compares them: those of `archive` by their log, together with their quarantine; others as they are."""

import os
from typing import TYPE_CHECKING

from roquette.errors import ConfigError
from roquette.spark.pipelines.audit_frames import places_of
from roquette.spark.pipelines.table import open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUARANTINE = ".quarantine"


def read_rows(spark: "SparkSession", path: str) -> "DataFrame":
    """The place (broker, queue, offset) of every row, bad ones in the quarantine among them.

    Raises:
        ConfigError: there is no table, or its rows have no places.
    """
    path = path.rstrip("/")
    found = _read_one(spark, path)
    if found is None:
        raise ConfigError(f"audit: there is no table {path}")
    bad = _read_one(spark, path + QUARANTINE)
    return found if bad is None else found.unionByName(bad)


def _read_one(spark: "SparkSession", path: str) -> "DataFrame | None":
    table = open_table(path)
    if table.snapshot.version >= 0:
        return places_of(table.frame(spark), path)
    if "://" not in path and not os.path.exists(path):
        return None
    return None if path.endswith(QUARANTINE) else places_of(spark.read.parquet(path), path)
