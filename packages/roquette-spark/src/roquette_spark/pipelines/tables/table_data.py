"""The Parquet files of a table, whatever its log: which there are, publishing new ones, reading a version by Spark."""

import json
from collections.abc import Iterable
from functools import reduce
from itertools import takewhile
from typing import TYPE_CHECKING

from roquette_spark.pipelines.kit.table_files import TableFiles
from roquette_spark.pipelines.kit.table_values import DataFile, Snapshot, partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def publish_staged(files: TableFiles, staging: str, prefix: str) -> list[DataFile]:
    """Move the Parquet files of a finished job into the table's folders. They count once committed.

    Args:
        staging: the folder that the job has written, with the partitions' folders below it.
        prefix: the new names begin with it.
    """
    found = []
    written = sorted(
        file.path
        for file in files.list_tree(staging)
        if file.path.endswith(".parquet")
        and not file.path.rpartition("/")[2].startswith((".", "_"))
    )
    for number, path in enumerate(written):
        rows = files.rows(path)
        if rows == 0:
            continue
        folder = path[len(staging) + 1 :].rpartition("/")[0]
        target = f"{folder}/{prefix}-{number:05}.parquet".lstrip("/")
        files.publish(path, target)
        found.append(_describe(files, target, rows))
    files.remove_tree(staging)
    return found


def _describe(files: TableFiles, path: str, rows: int) -> DataFile:
    file = files.stat(path)
    return DataFile(path, file.size, rows, file.modified_ms, partition_of(path))


def data_files(files: TableFiles) -> list[str]:
    """Every Parquet file that a reader of the plain folders would see."""
    return [
        file.path
        for file in files.list_tree()
        if file.path.endswith(".parquet") and not _is_hidden(file.path)
    ]


def _is_hidden(path: str) -> bool:
    """Whether readers skip it: folders of partitions may begin as they like."""
    return path.startswith(("_", ".")) and "=" not in path.partition("/")[0]


def small_files(
    files: Iterable[DataFile], *, target_bytes: int, at_least: int
) -> list[tuple[tuple[tuple[str, str | None], ...], list[DataFile]]]:
    """Per partition, the files under half the target, where there are enough of them."""
    found: dict[tuple[tuple[str, str | None], ...], list[DataFile]] = {}
    for file in sorted(files, key=lambda file: file.path):
        if file.size < target_bytes // 2:
            found.setdefault(file.partition, []).append(file)
    return [(key, each) for key, each in found.items() if len(each) >= at_least]


def read_table(spark: "SparkSession", files: TableFiles, snapshot: Snapshot) -> "DataFrame":
    """Exactly the files of a version, with the columns of the partitions."""
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(snapshot.schema))
    if not snapshot.files:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema)
    bases: dict[
        str, list[str]
    ] = {}  # Spark finds no partitions' values below several folders at once
    for path in sorted(snapshot.files):
        bases.setdefault(_base(path), []).append(files.address(path))
    parts = [
        reader.option("basePath", files.address(base)).parquet(*paths)
        for base, paths in bases.items()
    ]
    every = reduce(lambda some, more: some.unionAll(more), parts)
    return every.select([every[f"`{name}`"] for name in schema.fieldNames()])


def _base(path: str) -> str:
    """The folder that has a file's partitions' folders."""
    folders = path.split("/")[:-1]
    return "/".join(takewhile(lambda folder: "=" not in folder, folders))
