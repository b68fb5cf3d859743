"""Rows of a table as Spark's: each file is read in a task by the table's library, which knows what was deleted from it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import LongType, StringType, StructType

from roquette_spark.pipelines.rows.decoder import arrow_of
from roquette_spark.pipelines.rows.parquet_files import Rows, as_columns
from roquette_spark.source.refused import TaskReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE, ROW = "__file", "__row"


def open_frame(
    spark: "SparkSession",
    columns: StructType,
    table: Mapping[str, Any],
    files: Sequence[str],
    *,
    places: bool,
) -> "DataFrame":
    """The rows of some files of a table, which is named by its `place`. `places`: as of `Table.frame`."""
    if places:
        columns = StructType([*columns.fields]).add(FILE, StringType()).add(ROW, LongType())
    if not files:
        return spark.createDataFrame([], columns)
    spark.dataSource.register(TableFilesSource)
    plan = json.dumps({"table": table, "files": files})
    return spark.read.format(TableFilesSource.name()).schema(columns).option("plan", plan).load()


class TableFilesSource(DataSource):
    """Spark's door to `open_frame`."""

    @classmethod
    def name(cls) -> str:
        return "roquette_table_files"

    def reader(self, schema: StructType) -> "TableReader":
        return TableReader(schema, json.loads(self.options["plan"]))


class TableReader(TaskReader):
    """The work of a task is a file: its path, and how its rows are read."""

    def work(self) -> list[tuple[str, Rows]]:
        from roquette_spark.pipelines.tables.table_formats import open_place

        table = open_place(self._options["table"])
        names = [name for name in self._schema.names if name not in (FILE, ROW)]
        some = [table.snapshot.files[path] for path in self._options["files"]]
        return [(file.path, rows) for file, rows in table.rows_of(some, names).items()]

    def batches(self, work: tuple[str, Rows]) -> Iterator[pa.RecordBatch]:
        (path, rows), schema = work, arrow_of(self._schema)
        start = 0
        for some in rows():
            if ROW in schema.names:
                numbers = pa.array(range(start, start + some.num_rows), pa.int64())
                some = some.append_column(ROW, numbers)
                some = some.append_column(FILE, pa.repeat(path, some.num_rows))
            start += some.num_rows
            yield from as_columns(some, schema).to_batches()
