"""A micro-batch written by its tasks: each reads its share of the messages and writes files; the driver commits what they name."""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from roquette.base.entropy import Entropy
from roquette_spark.pipelines.kit.message_rows import DAY, ERROR, RowForm
from roquette_spark.pipelines.kit.table_files import DataFile, TableFiles
from roquette_spark.pipelines.rows.decoder import (
    ASIDE,
    NULL,
    UNREADABLE,
    Bodies,
    BodyReader,
    Decoded,
    Decoder,
    Kind,
    fields_of,
    messages_schema,
    renamed,
    set_aside,
    struct_of,
    widened,
)
from roquette_spark.pipelines.rows.expectations import expectations
from roquette_spark.pipelines.rows.json_rows import JsonReader, decode_object, text_of
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
    if form.renames or form.masked:
        fields = {column: name for name, column in form.renames.items()}
        bodies = json.dumps(renamed(json.loads(form.body_schema), fields))
        return _ChangedFields(_reader(form, bodies, registry), form)
    return _reader(form, form.body_schema, registry)


def _reader(form: RowForm, schema: str, registry: str) -> BodyReader:
    """`schema` has the names of the bodies' fields."""
    if form.kind == "json":
        return JsonReader(schema, form.takes)
    if form.kind == "connect":
        from roquette_spark.pipelines.rows.connect_json import ConnectReader

        return ConnectReader(schema, form.takes)
    if form.kind == "registry":
        from roquette_spark.pipelines.rows.registry_rows import RegistryReader
        from roquette_spark.registry import Registry

        return RegistryReader(schema, Registry(registry), form.takes)
    from roquette_spark.pipelines.rows.avro_rows import AvroReader

    return AvroReader(schema, form.avro_schema)


class _ChangedFields:
    """Reads bodies some of whose fields have columns of other names, or columns without values.

    What has no column keeps the body's name; so does a field that is called as another one's column. A masked field is in no row.
    """

    def __init__(self, reader: BodyReader, form: RowForm) -> None:
        self._reader = reader
        self._renames = form.renames
        self._masked = {name.lower() for name in form.masked}
        names = fields_of(json.loads(form.body_schema))
        self._blank = [name.lower() in self._masked for name in names]

    @property
    def news(self) -> Kind:
        if self._reader.news == NULL:
            return NULL
        found = fields_of(renamed(self._reader.news, self._renames)).items()
        return struct_of({n: kind for n, kind in found if n.lower() not in self._masked})

    def read(self, bodies: pa.Array) -> Bodies:
        found = self._reader.read(bodies)
        pairs = zip(found.columns, self._blank, strict=True)
        columns = [pa.nulls(len(each), each.type) if blank else each for each, blank in pairs]
        rescued = found.rescued
        if rescued is not None and self._masked:
            rescued = pa.array(map(self._shown, rescued.to_pylist()), pa.string())
        return Bodies(columns, found.errors, rescued)

    def _shown(self, text: str | None) -> str | None:
        left = {} if text is None else decode_object(text)
        column = self._renames.get
        kept = {n: each for n, each in left.items() if column(n, n).lower() not in self._masked}
        return text_of(kept) if kept else None


def _without_bodies(bad: pa.Table) -> pa.Table:
    """Rows of the quarantine that show nothing of a body, in their reasons neither."""
    why, body = bad.schema.get_field_index(ERROR), bad.schema.get_field_index("body")
    told = rf"(?s)^({re.escape(UNREADABLE)} \(\w+): .*"
    reasons = pc.replace_substring_regex(bad.column(why), told, r"\1)")
    bad = bad.set_column(why, bad.schema.field(why), reasons)
    return bad.set_column(body, bad.schema.field(body), pa.nulls(bad.num_rows, pa.binary()))


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
        whole=work.whole and decoder.hidden is None,
        most=None if form.by_time else MOST_VALUES,
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
                bad.write(_without_bodies(decoded.bad) if form.masked else decoded.bad)
                add_counts(found.queues, count_queues(decoded.bad, "broker_name", "queue_id"))
        found.good = good.close()
        found.bad = [] if bad is None else bad.close()
        found.news = NULL if reader is None else reader.news
        undo.pop_all()
    return found
