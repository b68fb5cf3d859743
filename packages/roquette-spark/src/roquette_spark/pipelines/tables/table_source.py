"""Rows of a table as Spark's: each file is read in a task by the table's library, which knows what was deleted from it."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import LongType, StringType, StructType

from roquette_spark.pipelines.kit.table_files import DataFile
from roquette_spark.pipelines.rows.decoder import arrow_of
from roquette_spark.pipelines.rows.parquet_files import Rows, as_columns
from roquette_spark.pipelines.tables.table import Table
from roquette_spark.pipelines.tables.table_formats import open_place
from roquette_spark.source.refused import TaskReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE, ROW = "__file", "__row"


class FileRows(NamedTuple):
    """A file, and how its rows are read."""

    path: str
    rows: Rows


def open_frame(
    spark: "SparkSession",
    table: Table,
    columns: Sequence[str] = (),
    files: Iterable[DataFile] | None = None,
    *,
    places: bool = False,
) -> "DataFrame":
    """A table at its version, or the rows of some of its files.

    Args:
        columns: none: all.
        places: with columns FILE and ROW: the file's path, and which of its rows that are there, from 0.

    Raises:
        ConfigError: as `Table.rows_of`.
    """
    whole = StructType.fromJson(json.loads(table.snapshot.schema))
    kinds = StructType([each for each in whole if not columns or each.name in columns])
    some = table.rows_of(table.snapshot.files.values() if files is None else files, kinds.names)
    if places:
        kinds = StructType([*kinds.fields]).add(FILE, StringType()).add(ROW, LongType())
    if not some:
        return spark.createDataFrame([], kinds)
    spark.dataSource.register(TableFilesSource)
    plan = json.dumps({"table": table.place(), "files": [file.path for file in some]})
    return spark.read.format(TableFilesSource.name()).schema(kinds).option("plan", plan).load()


class TableFilesSource(DataSource):
    """Spark's door to `open_frame`."""

    @classmethod
    def name(cls) -> str:
        return "roquette_table_files"

    def reader(self, schema: StructType) -> "TableReader":
        return TableReader(schema, json.loads(self.options["plan"]))


class TableReader(TaskReader):
    """The work of a task is a file."""

    def work(self) -> list[FileRows]:
        table = open_place(self._options["table"])
        names = [name for name in self._schema.names if name not in (FILE, ROW)]
        some = [table.snapshot.files[path] for path in self._options["files"]]
        return [FileRows(file.path, rows) for file, rows in table.rows_of(some, names).items()]

    def batches(self, work: FileRows) -> Iterator[pa.RecordBatch]:
        (path, rows), schema = work, arrow_of(self._schema)
        start = 0
        for some in rows():
            if ROW in schema.names:
                numbers = pa.array(range(start, start + some.num_rows), pa.int64())
                some = some.append_column(ROW, numbers)
                some = some.append_column(FILE, pa.repeat(path, some.num_rows))
            start += some.num_rows
            yield from as_columns(some, schema).to_batches()
