"""Changes of a batch to files of the table's staging folder, in tasks: read and decoded there, or by Spark before."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.ipc

from roquette.base.entropy import Entropy
from roquette_spark.pipelines.kit.message_rows import DAY
from roquette_spark.pipelines.kit.table_files import TableFiles
from roquette_spark.pipelines.kit.table_values import DataFile
from roquette_spark.pipelines.rows.decoder import messages_schema
from roquette_spark.pipelines.rows.joined_files import as_columns
from roquette_spark.pipelines.rows.parquet_files import ParquetFiles
from roquette_spark.pipelines.rows.tasks import WORTH_A_TASK
from roquette_spark.pipelines.state.plain_rows import PlainForm, PlainRows
from roquette_spark.source.offsets import QueueRange
from roquette_spark.source.shares import share_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class StageWork:
    """What every task is given.

    Attributes:
        number: of the batch.
        source: options of the source.
        root: address of the table.
        staging: a folder below it, of this attempt.
        quarantine: address of the table for bad messages.
    """

    number: int
    source: Mapping[str, str]
    form: PlainForm
    root: str
    staging: str
    quarantine: str


@dataclass(slots=True)
class Staged:
    """What one task or all of a batch have written.

    Attributes:
        paths: files of changes.
        rows: changes.
        bad: files of the quarantine; `bad_rows`: messages that are no changes, whether they are in those or not.
        rescued: changes with fields that no column takes.
    """

    paths: list[str] = field(default_factory=list)
    rows: int = 0
    bad: list[DataFile] = field(default_factory=list)
    bad_rows: int = 0
    rescued: int = 0

    def add(self, more: "Staged") -> None:
        """What another task has written."""
        self.paths += more.paths
        self.rows += more.rows
        self.bad += more.bad
        self.bad_rows += more.bad_rows
        self.rescued += more.rescued


def stage_ranges(spark: "SparkSession", work: StageWork, ranges: Sequence[QueueRange]) -> Staged:
    """Run tasks that read and decode; of one that failed and was tried again nothing is named."""
    context = spark.sparkContext
    shares = share_ranges(ranges, tasks=context.defaultParallelism, least=WORTH_A_TASK)
    total = Staged()
    if shares:
        tasks = context.parallelize(shares, len(shares)).map(partial(_stage_share, work))
        for each in tasks.collect():
            total.add(each)
    return total


def _stage_share(work: StageWork, share: Sequence[QueueRange]) -> Staged:
    """One task, in a worker."""
    from roquette_spark.source.ranges import read_ranges

    reader, found = PlainRows(work.form), Staged()
    name = f"batch-{work.number:010}-{Entropy().token(8)}"
    bad = ParquetFiles(TableFiles(work.quarantine), name, reader.bad_schema, (DAY,))
    with contextlib.ExitStack() as undo, _StagedFile(TableFiles(work.root), work.staging) as out:
        undo.callback(bad.abort)
        for batch in read_ranges(share, work.source, messages_schema()):
            changes, decoded = reader.read(batch)
            out.write(changes)
            found.rows += changes.num_rows
            found.rescued += decoded.rescued
            if decoded.bad is not None:
                bad.write(decoded.bad)
        found.bad = bad.close()
        undo.pop_all()
    found.paths = out.paths
    found.bad_rows = sum(file.rows for file in found.bad)
    return found


def stage_frame(changes: "DataFrame", files: TableFiles, staging: str) -> list[str]:
    """Run the job that makes changes; returns the files, which Spark has written (mapInArrow would want pandas)."""
    changes.write.mode("overwrite").parquet(files.address(staging))
    names = sorted(files.list_names(staging))
    return [f"{staging}/{name}" for name in names if name.startswith("part-")]


class _StagedFile:
    """Changes of one task, as Arrow's file format: it is read once, soon.

    Attributes:
        paths: the file, once there is a row; nobody else has its name.
    """

    def __init__(self, files: TableFiles, staging: str) -> None:
        self._files = files
        self._staging = staging
        self._closing = contextlib.ExitStack()
        self._writer: Any = None
        self.paths: list[str] = []

    def __enter__(self) -> "_StagedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def write(self, rows: pa.Table) -> None:
        """Take some changes."""
        if self._writer is None:
            path = f"{self._staging}/{Entropy().token(8)}.arrow"
            stream = self._closing.enter_context(self._files.open_new(path))
            self._writer = self._closing.enter_context(pa.ipc.new_file(stream, rows.schema))
            self.paths.append(path)
        self._writer.write_table(rows)


def read_staged(files: TableFiles, paths: Iterable[str], schema: pa.Schema) -> pa.Table:
    """The changes of a batch, with exactly these columns."""
    found = [schema.empty_table()]
    for path in paths:
        if path.endswith(".parquet"):
            with files.open_parquet(path) as rows:
                found.append(as_columns(rows.read(), schema))
        else:
            with files.open_file(path) as stream, pa.ipc.open_file(stream) as file:
                found.append(as_columns(file.read_all(), schema))
    return pa.concat_tables(found)
