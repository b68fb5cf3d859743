"""Changes of a batch to files of the table's staging folder, in tasks: read and decoded there, or by Spark before."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from roquette.base.entropy import Entropy
from roquette.pipelines.kit.message_rows import DAY
from roquette.pipelines.kit.table_files import TableFiles
from roquette.pipelines.kit.table_values import DataFile
from roquette.pipelines.rows.decoder import messages_schema
from roquette.pipelines.rows.parquet_files import ParquetFiles
from roquette.pipelines.rows.tasks import WORTH_A_TASK
from roquette.pipelines.state.plain_rows import PlainForm, PlainRows
from roquette.spark.source.offsets import QueueRange
from roquette.spark.source.shares import share_ranges

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
    from roquette.spark.source.ranges import read_ranges

    attempt = Entropy().token(8)
    reader, found = PlainRows(work.form), Staged()
    files, apart = TableFiles(work.root), TableFiles(work.quarantine)
    name = f"batch-{work.number:010}-{attempt}"
    bad = ParquetFiles(apart, name, reader.bad_schema, DAY)
    good: ParquetFiles | None = None
    with contextlib.ExitStack() as undo:
        undo.callback(bad.abort)
        for batch in read_ranges(share, work.source, messages_schema()):
            changes, decoded = reader.read(batch)
            if good is None:
                good = ParquetFiles(files, f"{work.staging}/{attempt}", changes.schema)
            good.write(changes)
            found.rows += changes.num_rows
            found.rescued += decoded.rescued
            if decoded.bad is not None:
                bad.write(decoded.bad)
        found.paths = [] if good is None else [file.path for file in good.close()]
        found.bad = bad.close()
        undo.pop_all()
    found.bad_rows = sum(file.rows for file in found.bad)
    return found


def stage_frame(changes: "DataFrame", files: TableFiles, staging: str) -> list[str]:
    """Run the job that makes changes; returns the files, of which no failed attempt is one."""
    tasks = changes.mapInArrow(partial(_write, files.root, staging), "path string")
    return [row["path"] for row in tasks.collect()]


def _write(root: str, staging: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task, in a worker; one row for each file that it wrote."""
    out: ParquetFiles | None = None
    for batch in batches:
        if out is None:
            out = ParquetFiles(TableFiles(root), f"{staging}/{Entropy().token(8)}", batch.schema)
        out.write(pa.table(batch))
    paths = [] if out is None else [file.path for file in out.close()]
    yield pa.RecordBatch.from_pydict({"path": pa.array(paths, pa.string())})
