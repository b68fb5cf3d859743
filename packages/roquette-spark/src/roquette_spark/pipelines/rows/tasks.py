"""A micro-batch written by its tasks: each reads its share of the messages and writes files; the driver commits what they name."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from roquette.base.entropy import Entropy
from roquette_spark.pipelines.kit.message_rows import BY_DAY, BY_HOUR, DAY, RowForm
from roquette_spark.pipelines.kit.table_files import DataFile, TableFiles
from roquette_spark.pipelines.rows.decoder import (
    ASIDE,
    NULL,
    BodyReader,
    Decoded,
    Decoder,
    Kind,
    messages_schema,
    set_aside,
    widened,
)
from roquette_spark.pipelines.rows.expectations import expectations
from roquette_spark.pipelines.rows.parquet_files import (
    ParquetFiles,
    add_counts,
    count_queues,
)
from roquette_spark.values.offsets import QueueRange, ranges_by_topic, share_ranges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Which reader a form's bodies need.


def body_reader(form: RowForm, registry: str = "") -> BodyReader | None:
    """A reader for one task; None for bodies that stay as they are.

    Args:
        registry: address of the one that has the schemas, where bodies name theirs.
    """
    if form.kind == "raw":
        return None
    if form.kind == "json":
        from roquette_spark.pipelines.rows.json_rows import JsonReader

        return JsonReader(form.body_schema, form.partition)
    if form.kind == "connect":
        from roquette_spark.pipelines.rows.connect_json import ConnectReader

        return ConnectReader(form.body_schema, form.partition)
    if form.kind == "registry":
        from roquette_spark.pipelines.rows.registry_rows import RegistryReader
        from roquette_spark.registry import Registry

        return RegistryReader(form.body_schema, Registry(registry), form.partition)
    from roquette_spark.pipelines.rows.avro_rows import AvroReader

    return AvroReader(form.body_schema, form.avro_schema)


WORTH_A_TASK = 10_000  # messages
MOST_VALUES = 1000  # of a column that partitions, in one task


@dataclass(frozen=True, slots=True)
class BatchWork:
    """Work of a batch, as every task is given it.

    Attributes:
        number: of the batch.
        source: options of the source.
        root: address of the table.
        quarantine: address of the table for bad messages; "" where there is none.
        sort: columns by which the table's rows are put in order within each row group.
        registry: address of the bodies' schema registry; "" where there is none.
        whole: as of ParquetFiles.
        aside: every message goes to the quarantine as it is.
        expect: as of Expectations; "" for nothing. `mark`: as of Decoder.
    """

    number: int
    source: Mapping[str, str]
    form: RowForm
    root: str
    quarantine: str
    sort: tuple[str, ...] = ()
    registry: str = ""
    whole: bool = False
    aside: bool = False
    expect: str = ""
    mark: bool = False


@dataclass(slots=True)
class Written:
    """Count of what one task or all of a batch have written.

    Attributes:
        good, bad: files of the table and of its quarantine.
        rescued: good rows with fields that no column takes.
        queues: rows in both by broker and queue.
        news: as of BodyReader.
        unmet: as of Decoded.
    """

    good: list[DataFile] = field(default_factory=list)
    bad: list[DataFile] = field(default_factory=list)
    rescued: int = 0
    queues: dict[tuple[str, int], int] = field(default_factory=dict)
    news: Kind = NULL
    unmet: Counter[str] = field(default_factory=Counter)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.good)

    @property
    def bad_rows(self) -> int:
        return sum(file.rows for file in self.bad)

    def add(self, more: "Written") -> None:
        self.good += more.good
        self.bad += more.bad
        self.rescued += more.rescued
        add_counts(self.queues, more.queues)
        self.unmet.update(more.unmet)
        self.news = widened(more.news if self.news == NULL else self.news, more.news)


def write_batch(
    spark: "SparkSession", works: Mapping[str, BatchWork], ranges: Sequence[QueueRange]
) -> dict[str, Written]:
    """Run the tasks of a batch; what of them failed and was tried again has left files that nothing names.

    Args:
        works: by topic; ranges of several topics share tasks where they are small.

    Returns what was written, by topic; each of `works` is there.
    """
    context = spark.sparkContext
    shares = share_ranges(ranges, tasks=context.defaultParallelism, least=WORTH_A_TASK)
    totals = {topic: Written() for topic in works}
    if shares:
        tasks = context.parallelize(shares, len(shares)).map(partial(write_share, works))
        for found in tasks.collect():
            for topic, each in found.items():
                totals[topic].add(each)
    return totals


def write_share(works: Mapping[str, BatchWork], share: Sequence[QueueRange]) -> dict[str, Written]:
    from roquette_spark.ranges import read_ranges

    found, schema = {}, messages_schema()
    for topic, own in ranges_by_topic(share).items():
        messages = read_ranges(own, works[topic].source, schema)
        found[topic] = write_messages(works[topic], messages, Entropy().token(8))
    return found


def write_messages(work: BatchWork, messages: Iterable[pa.RecordBatch], attempt: str) -> Written:
    """Write messages as rows.

    Args:
        attempt: part of the files' names; no other task or attempt may have it.
    """
    form = work.form
    reader = body_reader(form, work.registry)
    expected = expectations(work.expect) if work.expect else None
    decoder = Decoder(form, reader, expected, mark=work.mark)
    name = f"batch-{work.number:010}-{attempt}"
    good = ParquetFiles(
        TableFiles(work.root),
        name,
        decoder.schema,
        form.partitioned_by,
        work.sort,
        whole=work.whole,
        most=None if form.partition in (BY_DAY, BY_HOUR) else MOST_VALUES,
    )
    bad = None
    if work.quarantine:
        apart = TableFiles(work.quarantine)
        bad = ParquetFiles(apart, name, decoder.bad_schema, (DAY,), whole=work.whole)
    beside = "" if form.kind == "raw" else "_"
    found = Written()
    with contextlib.ExitStack() as undo:
        for files in (good, bad):
            if files is not None:
                undo.callback(files.abort)
        for batch in messages:
            if work.aside:
                decoded = Decoded(decoder.schema.empty_table(), set_aside(batch, ASIDE))
            else:
                decoded = decoder.decode(batch)
            good.write(decoded.good)
            found.rescued += decoded.rescued
            found.unmet.update(decoded.unmet)
            counts = count_queues(decoded.good, f"{beside}broker_name", f"{beside}queue_id")
            add_counts(found.queues, counts)
            if decoded.bad is not None and bad is not None:
                bad.write(decoded.bad)
                add_counts(found.queues, count_queues(decoded.bad, "broker_name", "queue_id"))
        found.good = good.close()
        found.bad = [] if bad is None else bad.close()
        found.news = NULL if reader is None else reader.news
        undo.pop_all()
    return found
