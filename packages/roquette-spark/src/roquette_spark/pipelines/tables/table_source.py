"""Rows of a table as Spark's: each file is read in a task by the table's library, which knows what was deleted from it."""

import base64
import pickle
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructType

from roquette_spark.pipelines.kit.table_files import DataFile
from roquette_spark.pipelines.rows.decoder import arrow_of
from roquette_spark.pipelines.rows.parquet_files import Rows, as_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE, ROW = "__file", "__row"


def open_frame(
    spark: "SparkSession", columns: StructType, files: Mapping[DataFile, Rows], *, places: bool
) -> "DataFrame":
    """The rows of some files. `places`: as of `Table.frame`."""
    if places:
        columns = StructType([*columns.fields]).add(FILE, StringType()).add(ROW, LongType())
    if not files:
        return spark.createDataFrame([], columns)
    parts = [(file.path, rows) for file, rows in files.items()]
    spark.dataSource.register(TableFilesSource)
    given = base64.b64encode(pickle.dumps(parts)).decode()
    return spark.read.format(TableFilesSource.name()).schema(columns).option("parts", given).load()


class TableFilesSource(DataSource):
    """Spark's door to `open_frame`."""

    @classmethod
    def name(cls) -> str:
        return "roquette_table_files"

    def reader(self, schema: StructType) -> "TableReader":
        parts = pickle.loads(base64.b64decode(self.options["parts"]))  # noqa: S301 (ours, of this job)
        return TableReader(schema, parts)


class TableReader(DataSourceReader):
    """A file is a partition."""

    def __init__(self, schema: StructType, parts: list[tuple[str, Rows]]) -> None:
        self._schema = arrow_of(schema)
        self._parts = parts

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(part) for part in self._parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        path, rows = partition.value
        start = 0
        for some in rows():
            if ROW in self._schema.names:
                numbers = pa.array(range(start, start + some.num_rows), pa.int64())
                some = some.append_column(ROW, numbers)
                some = some.append_column(FILE, pa.repeat(path, some.num_rows))
            start += some.num_rows
            yield from as_columns(some, self._schema).to_batches()
