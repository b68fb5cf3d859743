"""`format("rocketmq_commitlog")`: a store's commit log as a table, read from its files with no broker running.

Spark finds it through the module `pyspark_rocketmq_commitlog`.
"""

import logging
import re
from collections.abc import Callable, Iterator
from functools import lru_cache

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from roquette.errors import ConfigError, CorruptRecord
from roquette.message.names import is_system_topic
from roquette.message.properties import SYSTEM
from roquette_spark.commitlog.files import (
    SOURCE,
    CommitLogOptions,
    commitlog_options,
    open_files,
    read_size,
)
from roquette_spark.commitlog.plan import (
    DAMAGED,
    MISSING,
    Gap,
    Split,
    Walk,
    plan,
    rows_wanted,
)
from roquette_spark.source.decode import RecordColumns, RecordDecoder
from roquette_spark.source.refused import RefusedStream, TaskReader
from roquette_spark.values.errors import plain_errors
from roquette_spark.values.schema import arrow_schema, check_schema, default_schema

log = logging.getLogger("roquette_spark")

GAP_SCHEMA = "kind string, path string, broker_name string, physical_offset bigint, size bigint, reason string"
_BODY_BYTES = 32 << 20  # of one batch, where compressed bodies grow
_LOST = (DAMAGED, MISSING)


class CommitLogDataSource(DataSource):
    """Options: roquette_spark.commitlog.files; columns: roquette_spark.values.schema, or GAP_SCHEMA."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> str:
        """The columns when the user gives no schema. Raises ConfigError for wrong options."""
        with plain_errors():
            options = commitlog_options(self.options)
            if options.stretches:
                return GAP_SCHEMA
            return default_schema(options.columns, include_properties=options.include_properties)

    def reader(self, schema: StructType) -> "CommitLogReader":
        with plain_errors():
            options = commitlog_options(self.options)
            if not options.stretches:
                check_schema(schema)
            return CommitLogReader(schema, options)

    def streamReader(self, schema: StructType) -> RefusedStream:
        """There is none, and the reader says so."""
        what = f'{SOURCE}: there is no stream of files: use spark.read, or a broker with format("rocketmq")'
        return RefusedStream(ConfigError(what))


class CommitLogReader(TaskReader):
    """The work of a task is a split."""

    def work(self) -> list[Split]:
        return plan(self._options)

    def batches(self, work: Split) -> Iterator[pa.RecordBatch]:
        read = gap_batches if self._options.stretches else message_batches
        return read(work, self._options, arrow_schema(self._schema))


def walk_split(split: Split, options: CommitLogOptions) -> Iterator[RecordColumns | Gap]:
    """The records of a split and the gaps between them."""
    if split.missing:
        start = split.base - split.missing
        reason = f"no file holds the {split.missing} bytes before it"
        yield Gap(MISSING, split.path, start, split.missing, reason)
        return
    path = options.paths[split.root]
    files, _ = open_files(path, options.storage_options)
    file = files.open_file(split.path)
    try:
        yield from Walk(
            split,
            lambda position, size: file.pread(size, position),
            read_bytes=read_size(path, options.read_bytes),
            rows=options.batch_rows,
            check_crc=options.check_crc,
        )
    finally:
        file.close()


def message_batches(
    split: Split, options: CommitLogOptions, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The wanted messages of a split.

    Raises:
        CorruptRecord: some of the log is damaged or missing, and `fail_on_corrupt_record` is set.
    """
    decoder = RecordDecoder(
        schema,
        topic=None,
        broker_name=options.broker_name(split.root),
        tags=options.tags,
        reserved=frozenset() if options.include_system_properties else SYSTEM,
    )
    topic_wanted = wanted_topics(options)
    for found in walk_split(split, options):
        if isinstance(found, Gap):
            if found.kind in _LOST:
                _damaged(found, options)
            continue
        wanted = rows_wanted(
            found,
            topic_wanted=topic_wanted,
            starting_ms=options.starting_ms,
            ending_ms=options.ending_ms,
            with_unfinished=options.include_system_topics,
        )
        records = found if wanted is None else found.where(wanted)
        if records.count:
            for batch in _decode(decoder, records, split, options):
                if batch.num_rows:
                    yield batch


def _decode(
    decoder: RecordDecoder, records: RecordColumns, split: Split, options: CommitLogOptions
) -> Iterator[pa.RecordBatch]:
    """Batches; where a body cannot be decompressed, those around it."""
    done = 0
    try:
        for part in records.parts(_BODY_BYTES) if decoder.reads("body") else (records,):
            batch = decoder.decode(part)
            done += part.count
            yield batch
        return
    except CorruptRecord as error:
        reason = str(error)
    rest = records.part(done, records.count)
    if rest.count == 1:
        place, size = int(rest.physical_offsets[0]), int(rest.sizes[0])
        _damaged(Gap(DAMAGED, split.path, place, size, reason), options)
        return
    half = rest.count // 2
    yield from _decode(decoder, rest.part(0, half), split, options)
    yield from _decode(decoder, rest.part(half, rest.count), split, options)


def _damaged(gap: Gap, options: CommitLogOptions) -> None:
    text = (
        f"{SOURCE}: {gap.path} is {gap.kind} at physical offset {gap.physical_offset}, "
        f"{gap.size} bytes: {gap.reason}"
    )
    if options.fail_on_corrupt_record:
        raise CorruptRecord(
            f"{text}; failOnCorruptRecord=false reads what there is, rows=stretches lists what there is not"
        )
    log.warning("%s; skipped", text)


def gap_batches(
    split: Split, options: CommitLogOptions, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The gaps as rows; options that select messages do not apply."""
    rows = [
        found._asdict() | {"broker_name": options.broker_name(split.root)}
        for found in walk_split(split, options)
        if isinstance(found, Gap)
    ]
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def wanted_topics(options: CommitLogOptions) -> Callable[[str], bool]:
    """Return a test of whether a query wants a topic. A system's topic must be named, or asked for with all."""
    topics = frozenset(options.topics)
    pattern = re.compile(options.topic_pattern) if options.topic_pattern else None

    @lru_cache(4096)
    def wanted(topic: str) -> bool:
        if topics:
            return topic in topics
        if not options.include_system_topics and is_system_topic(topic):
            return False
        return pattern is None or pattern.fullmatch(topic) is not None

    return wanted
