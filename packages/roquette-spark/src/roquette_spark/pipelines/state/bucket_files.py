"""A batch of changes to files of the table, bucket by bucket, in tasks: no session, a bucket's changes in memory."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq

from roquette.base.entropy import Entropy
from roquette_spark.pipelines.kit.message_rows import DAY
from roquette_spark.pipelines.kit.table_files import DataFile, TableFiles
from roquette_spark.pipelines.rows.decoder import messages_schema
from roquette_spark.pipelines.rows.parquet_files import ParquetFiles, as_columns, read_rows
from roquette_spark.pipelines.rows.tasks import WORTH_A_TASK
from roquette_spark.pipelines.state.change_rows import (
    DELETED,
    ORDER,
    BucketFiles,
    ChangeForm,
    ChangeRows,
    Overlay,
    evaluated,
    hashes_of,
    key_of,
    newest,
    unevaluated,
)
from roquette_spark.values.offsets import QueueRange, share_ranges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Changes of a batch to files of the table's staging folder, in tasks: read and decoded there, or by Spark before.


@dataclass(frozen=True, slots=True)
class StageWork:
    """Work of staging, as every task is given it.

    Attributes:
        number: of the batch.
        source: options of the source.
        root: address of the table.
        staging: a folder below it, of this attempt.
        quarantine: address of the table for bad messages.
        aside: every message goes to the quarantine as it is.
    """

    number: int
    source: Mapping[str, str]
    form: ChangeForm
    root: str
    staging: str
    quarantine: str
    aside: bool = False


@dataclass(slots=True)
class Staged:
    """Count of what one task or all of a batch have written.

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
        """Add what another task has written."""
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
    from roquette_spark.ranges import read_ranges

    return stage_messages(work, read_ranges(share, work.source, messages_schema()))


def stage_messages(
    work: StageWork, messages: Iterable[pa.RecordBatch], *, kept: bool = False
) -> Staged:
    """Messages to files of changes, and of the quarantine; `kept` writes them as Parquet in any case."""
    reader, found = ChangeRows(work.form), Staged()
    name = f"batch-{work.number:010}-{Entropy().token(8)}"
    bad = ParquetFiles(TableFiles(work.quarantine), name, reader.bad_schema, (DAY,))
    files = TableFiles(work.root)
    plain = reader.is_plain and not kept
    with contextlib.ExitStack() as undo, _StagedFile(files, work.staging, plain) as out:
        undo.callback(bad.abort)
        for batch in messages:
            decoded = reader.decode(batch, aside=work.aside)
            out.write(decoded.good)
            found.rows += decoded.good.num_rows
            found.rescued += decoded.rescued
            if decoded.bad is not None:
                bad.write(decoded.bad)
        found.bad = bad.close()
        undo.pop_all()
    found.paths = out.paths
    found.bad_rows = sum(file.rows for file in found.bad)
    return found


def evaluate(spark: "SparkSession", work: StageWork, paths: Sequence[str]) -> list[str]:
    """Let Spark evaluate the form's expressions for staged files; returns the files with the changes, which it has written.

    Raises:
        ConfigError: an expression names what is not there.
    """
    if not paths:
        return []
    files, folder = TableFiles(work.root), f"{work.staging}/evaluated"
    rows = spark.read.schema(unevaluated(work.form))
    read = rows.parquet(*map(files.address, paths))
    evaluated(read, work.form).write.parquet(files.address(folder))
    names = sorted(files.list_names(folder))
    return [f"{folder}/{name}" for name in names if name.startswith("part-")]


class _StagedFile:
    """Changes of one task, as Arrow's file format: it is read once, soon; as Parquet where Spark reads it.

    Attributes:
        paths: the file, once there is a row; nobody else has its name.
    """

    def __init__(self, files: TableFiles, staging: str, is_plain: bool) -> None:
        self._files = files
        self._staging = staging
        self._is_plain = is_plain
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
            kind = "arrow" if self._is_plain else "parquet"
            path = f"{self._staging}/{Entropy().token(8)}.{kind}"
            stream = self._closing.enter_context(self._files.open_new(path))
            new: Any = pa.ipc.new_file if self._is_plain else pq.ParquetWriter
            self._writer = self._closing.enter_context(new(stream, rows.schema))
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


STORED = "_store_timestamp"
LIGHT_BYTES = (
    64 << 20
)  # in memory, of a batch that the driver does itself: a job of Spark costs more than that
_UNPACKED = 8  # bytes in memory for one of Parquet, or some more
_MOST_PARTS = 4  # of a bucket that is split: so many files are written at the same time


@dataclass(frozen=True, slots=True)
class BucketRules:
    """Rules for when a bucket is rewritten, joined or split.

    Attributes:
        share: rewritten when it has more changes than this share of its rows.
        small_rows: a bucket of fewer rows is always rewritten.
        most_files: of changes; more are joined into one.
        bucket_rows, bucket_bytes: a bucket of more is split when it is rewritten.
    """

    share: float = 0.3
    small_rows: int = 10_000
    most_files: int = 64
    bucket_rows: int = 1_000_000
    bucket_bytes: int = 64 << 20

    def rewrites(self, there: BucketFiles, new: float) -> bool:
        """Return True if a bucket is rewritten with so many changes more."""
        rows = there.base_rows
        return rows < self.small_rows or there.change_rows + new > self.share * rows


@dataclass(frozen=True, slots=True)
class ChangeWork:
    """Work of a batch of changes, as every task is given it.

    Attributes:
        number: of the batch.
        root: address of the table.
        schema: its columns.
        key: names of the columns that are the key.
        staged: the batch's changes, files below the root.
        forget_before: deletions that were stored earlier are forgotten when their bucket is rewritten; None: none is.
        whole: rewrite every bucket.
    """

    number: int
    root: str
    schema: pa.Schema
    key: tuple[str, ...]
    staged: tuple[str, ...]
    rules: BucketRules
    forget_before: datetime | None = None
    whole: bool = False


@dataclass(slots=True)
class Changed:
    """Count of what one task or all of a batch have done.

    Attributes:
        rows: changes that were read.
        rewritten, joined: buckets.
    """

    adds: list[DataFile] = field(default_factory=list)
    removes: list[DataFile] = field(default_factory=list)
    rows: int = 0
    rewritten: int = 0
    joined: int = 0

    def add(self, more: "Changed") -> None:
        """Add what another task has done."""
        self.adds += more.adds
        self.removes += more.removes
        self.rows += more.rows
        self.rewritten += more.rewritten
        self.joined += more.joined


@dataclass(frozen=True, slots=True)
class Keys:
    """Count of the keys there are.

    Attributes:
        live, deleted: by the newest change of each.
        twice: rows too many in files that are to have one of each key.
    """

    live: int = 0
    deleted: int = 0
    twice: int = 0

    def __add__(self, more: "Keys") -> "Keys":
        return Keys(self.live + more.live, self.deleted + more.deleted, self.twice + more.twice)


def change_table(
    spark: "SparkSession", work: ChangeWork, buckets: Sequence[BucketFiles], rows: int
) -> Changed:
    """Do a batch of so many changes: here if it is light, else in tasks, of which some may be tried again.

    What failed has left files that nothing names.
    """
    files, packed, plain = TableFiles(work.root), bytes_to_read(work, buckets, rows), 0
    for path in work.staged:
        size = files.stat(path).size
        packed, plain = (
            (packed + size, plain) if path.endswith(".parquet") else (packed, plain + size)
        )
    if plain + _UNPACKED * packed <= LIGHT_BYTES:
        return change_share(work, buckets)
    total, tasks = Changed(), spark.sparkContext.defaultParallelism
    shares = [buckets[at::tasks] for at in range(min(tasks, len(buckets)))]
    done = spark.sparkContext.parallelize(shares, len(shares)).map(partial(change_share, work))
    for each in done.collect():
        total.add(each)
    return total


def bytes_to_read(work: ChangeWork, buckets: Sequence[BucketFiles], rows: int) -> int:
    """Of the files that a batch of so many changes is likely to rewrite or join; no bucket has more than twice its share."""
    found = 0
    for each in buckets:
        new = 2 * rows / each.bucket.of
        if work.whole or work.rules.rewrites(each, new):
            found += sum(file.size for file in (*each.base, *each.changes))
        elif len(each.changes) >= work.rules.most_files:
            found += sum(file.size for file in each.changes)
    return found


def change_share(work: ChangeWork, buckets: Sequence[BucketFiles]) -> Changed:
    """One task, in a worker."""
    return _Task(work, Entropy().token(8)).run(buckets)


class _Task:
    def __init__(self, work: ChangeWork, attempt: str) -> None:
        self._work = work
        self._rules = work.rules
        self._attempt = attempt
        self._files = TableFiles(work.root)
        self._done = Changed()

    def run(self, buckets: Sequence[BucketFiles]) -> Changed:
        changes = read_staged(self._files, self._work.staged, self._work.schema)
        hashes = hashes_of(key_of(changes, self._work.key))
        for each in buckets:
            mine = changes.filter(each.bucket.has(hashes))
            self._done.rows += mine.num_rows
            self._change(each, newest(mine, self._work.key))
        return self._done

    def _change(self, there: BucketFiles, new: pa.Table) -> None:
        rules = self._rules
        if self._work.whole:
            self._rewrite(there, new)
            return
        if not new.num_rows:
            return
        if rules.rewrites(there, new.num_rows):
            self._rewrite(there, new)
            return
        files = there.changes
        if len(files) < rules.most_files:
            files = ()
        else:
            new = self._with_earlier(files, new)
            self._done.joined += 1
        name = f"batch-{self._work.number:010}-{there.bucket}_{self._attempt}"
        self._write(ParquetFiles(self._files, name, self._file_schema, (DELETED,)), [new])
        self._done.removes += files

    def _with_earlier(self, files: Iterable[DataFile], new: pa.Table) -> pa.Table:
        earlier = self._read_parts(files)
        return newest(pa.concat_tables([*earlier, new]), self._work.key)

    def _rewrite(self, there: BucketFiles, new: pa.Table) -> None:
        """The bucket's rows and changes as a new base, in one bucket or, if there are many, in several."""
        changes = Overlay(self._with_earlier(there.changes, new), self._work.key)
        parts = there.bucket.split(self._parts(there, new))
        folder = f"snapshot-{self._work.number:010}"
        files = TableFiles(self._files.address(folder))
        outs = [
            ParquetFiles(files, f"part-{bucket}_{self._attempt}", self._file_schema, (DELETED,))
            for bucket in parts
        ]
        with contextlib.ExitStack() as undo:
            for out in outs:
                undo.callback(out.abort)
            for rows in self._merged(there.base, changes):
                for bucket, out in zip(parts, outs, strict=True):
                    some = rows
                    if len(parts) > 1:
                        some = rows.filter(bucket.has(hashes_of(key_of(rows, self._work.key))))
                    out.write(self._with_text(some))
            made = [file for out in outs for file in out.close()]
            undo.pop_all()
        self._done.adds += [replace(file, path=f"{folder}/{file.path}") for file in made]
        self._done.removes += [*there.base, *there.changes]
        self._done.rewritten += 1

    def count(self, there: BucketFiles) -> Keys:
        """The keys of one bucket."""
        key, found, keys = self._work.key, Keys(), []
        changes = Overlay(self._with_earlier(there.changes, self._work.schema.empty_table()), key)
        for rows in self._read_parts(there.base):
            keys += key_of(rows, key).chunks
            found += _count(changes.over(rows))
        found += _count(changes.rest())
        distinct = pc.count_distinct(pa.chunked_array(keys)).as_py() if keys else 0
        return replace(found, twice=there.base_rows - distinct)

    def _parts(self, there: BucketFiles, new: pa.Table) -> int:
        rules = self._rules
        rows = there.base_rows + there.change_rows + new.num_rows
        size = sum(file.size for file in (*there.base, *there.changes))
        parts = 1
        while parts < _MOST_PARTS and (
            rows > parts * rules.bucket_rows or size > parts * rules.bucket_bytes
        ):
            parts *= 2
        return parts

    def _merged(self, base: Iterable[DataFile], changes: Overlay) -> Iterator[pa.Table]:
        for rows in self._read_parts(base):
            yield self._remembered(changes.over(rows))
        yield self._remembered(changes.rest())

    def _remembered(self, rows: pa.Table) -> pa.Table:
        """Without deletions that are to be forgotten."""
        before = self._work.forget_before
        if before is None:
            return rows
        recent = pc.greater_equal(
            rows.column(STORED), pa.scalar(before, rows.schema.field(STORED).type)
        )
        return rows.filter(pc.or_(pc.invert(rows.column(DELETED)), recent))

    def _write(self, out: ParquetFiles, tables: Iterable[pa.Table]) -> None:
        with contextlib.ExitStack() as undo:
            undo.callback(out.abort)
            for rows in tables:
                out.write(self._with_text(rows))
            self._done.adds += out.close()
            undo.pop_all()

    @property
    def _file_schema(self) -> pa.Schema:
        at = self._work.schema.get_field_index(DELETED)
        return self._work.schema.set(at, pa.field(DELETED, pa.string()))

    def _with_text(self, rows: pa.Table) -> pa.Table:
        """The partition's values as folders have them: true, false."""
        at = rows.schema.get_field_index(DELETED)
        return rows.set_column(at, DELETED, rows.column(at).cast(pa.string()))

    def _read_parts(self, files: Iterable[DataFile]) -> Iterator[pa.Table]:
        """Rows of the table's files, some at a time."""
        for each in files:
            yield from read_rows(self._work.root, each, self._work.schema)


def _count(rows: pa.Table) -> Keys:
    deleted = pc.sum(rows.column(DELETED)).as_py() or 0
    return Keys(rows.num_rows - deleted, deleted)


def count_keys(spark: "SparkSession", work: ChangeWork, buckets: Sequence[BucketFiles]) -> Keys:
    """Read keys and versions of a whole table; nothing of a batch is looked at."""
    names = {*work.key, *ORDER, DELETED}
    narrow = replace(work, schema=pa.schema([each for each in work.schema if each.name in names]))
    tasks = spark.sparkContext.parallelize(buckets, len(buckets)).map(partial(count_bucket, narrow))
    return sum(tasks.collect(), Keys())


def count_bucket(work: ChangeWork, there: BucketFiles) -> Keys:
    """One task, in a worker."""
    return _Task(work, "").count(there)
