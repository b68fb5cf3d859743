"""Sources of a replay, cut into steps: ranges of queues, or files of a table."""

import datetime
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from roquette.base.entropy import Entropy
from roquette.base.files import Files
from roquette.base.options import key_values
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.message_rows import PLACE
from roquette_spark.pipelines.kit.topics import read_messages
from roquette_spark.pipelines.tables.table_formats import open_found
from roquette_spark.source.queues import check_lives, lives_before, queue_bounds, reader_of
from roquette_spark.values.offsets import (
    Offsets,
    decode_offsets,
    decode_seen,
    encode_offsets,
    share_limit,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


# How far a replay is: one JSON file that is replaced as a whole after each step.


_NAME: Final = "replay.json"
_VERSION: Final = 1


class ReplayState:
    """State of one replay.

    Attributes:
        fresh: nothing has been planned yet.
        bounds: what is replayed, settled at the beginning: offsets of queues, or files.
        target_start: offsets of the target's queues at the beginning.
        done: how much of `bounds` is sent.
        rows: messages sent by finished steps.
    """

    def __init__(self, path: str, files: Files, values: dict[str, Any]) -> None:
        self._path = path
        self._files = files
        self._values = values

    @property
    def fresh(self) -> bool:
        """Return True if `begin` has not been called in this or an earlier run."""
        return "bounds" not in self._values

    @property
    def prefix(self) -> str:
        """Return what every id of this replay begins with."""
        return f"replay:{self._values['id']}/"

    @property
    def bounds(self) -> dict[str, Any]:
        return dict(self._values["bounds"])

    @property
    def target_start(self) -> dict[str, Any]:
        return dict(self._values["target_start"])

    @property
    def done(self) -> dict[str, Any]:
        return dict(self._values.get("done", {}))

    @property
    def rows(self) -> int:
        return int(self._values.get("rows", 0))

    def begin(self, bounds: dict[str, Any], target_start: dict[str, Any]) -> None:
        """Settle what is replayed, before the first message is sent."""
        self._values |= {"bounds": bounds, "target_start": target_start}
        self._write()

    def advance(self, after: dict[str, Any], rows: int) -> None:
        self._values |= {"done": after, "rows": self.rows + rows}
        self._write()

    def _write(self) -> None:
        text = json.dumps(self._values, indent=1, sort_keys=True) + "\n"
        self._files.write_atomic(self._path, text.encode(), keep_backup=False)


def check_place(directory: str) -> str:
    """Say what is there, for plans.

    Raises:
        ConfigError: it is no directory, or has other things than a replay's.
    """
    if not os.path.lexists(directory):
        return "new"
    names = sorted(os.listdir(directory)) if os.path.isdir(directory) else None
    if names is None or (names and not {_NAME, _NAME + ".tmp"} & set(names)):
        what = "is no directory" if names is None else f"has other files ({', '.join(names[:3])})"
        raise ConfigError(
            f"replay: --state {directory} {what}: nothing was changed there; give another"
        )
    return "goes on" if names else "new"


def open_state(
    directory: str,
    files: Files,
    identity: dict[str, Any],
    now_ms: int,
    entropy: Entropy | None = None,
) -> ReplayState:
    """The state in a directory, or a fresh one.

    Raises:
        ConfigError: the directory belongs to another replay, or its file is damaged.
    """
    path = os.path.join(directory, _NAME)
    if not files.exists(path):
        check_place(directory)
        files.make_dirs(directory)
        token = (entropy or Entropy()).token(6)
        values = {"v": _VERSION, "id": token, "began_ms": now_ms, "options": identity}
        return ReplayState(path, files, values)
    try:
        values = json.loads(files.read_bytes(path))
        version, known = values["v"], values["options"]
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"replay: {path} is damaged; begin anew with another --state") from None
    if version != _VERSION:
        raise ConfigError(f"replay: {path} is of version {version}, this is {_VERSION}")
    for name, value in identity.items():
        if known.get(name) != value:
            flag = "--" + name.replace("_", "-")
            raise ConfigError(
                f"replay: {directory} belongs to a replay with {flag} {known.get(name)!r}, not {value!r}; "
                "give another --state"
            )
    return ReplayState(path, files, values)


ID: Final = "__replay_id"
_BYTES_A_STEP: Final = 256 << 20  # of files


@dataclass(frozen=True, slots=True)
class Step:
    """One step: how far the replay is after it, and what it reads."""

    after: dict[str, Any]
    reads: Any


class TopicSource:
    """The messages that were in topics when the replay began.

    Args:
        since, until: store times, as the options give them; "" is everything.
    """

    def __init__(self, namesrv: str, topics: Sequence[str], since: str, until: str) -> None:
        self.name = ", ".join(topics)
        self._namesrv = namesrv
        self._topics = tuple(topics)
        self._since_ms = time_ms(since, "--since")
        self._until_ms = time_ms(until, "--until")

    def bounds(self) -> dict[str, Any]:
        """First offsets, and ends (exclusive), of every queue. Raises ClientError."""
        start, end = queue_bounds(self._namesrv, self._topics, self._since_ms, self._until_ms)
        seen = lives_before(reader_of(self._namesrv, self._topics), end)
        return {"start": encode_offsets(start), "end": encode_offsets(end, seen)}

    def check(self, state: ReplayState) -> None:
        """The messages at the ends must still be those of the beginning. Raises DataLoss."""
        reader, end = reader_of(self._namesrv, self._topics), _end(state)
        check_lives(
            reader, end, decode_seen(state.bounds["end"]), "replay it anew, with another --state"
        )

    def describe(self) -> list[str]:
        start, end = queue_bounds(self._namesrv, self._topics, self._since_ms, self._until_ms)
        return [
            f"topic {topic} of {self._namesrv}: "
            f"{sum(end[q] - start[q] for q in start if q.topic == topic):,} messages in "
            f"{sum(q.topic == topic for q in start)} queues"
            for topic in self._topics
        ]

    def total(self, state: ReplayState) -> int:
        return _span(_start(state), _end(state))

    def done(self, state: ReplayState) -> int:
        return _span(_start(state), _here(state))

    def next_step(self, state: ReplayState, size: int) -> Step | None:
        """At most `size` messages, of each queue in proportion to what it still has; None at the end."""
        here, end = _here(state), _end(state)
        if here == end:
            return None
        after = share_limit(here, end, size)
        return Step({"offsets": encode_offsets(after)}, (here, after))

    def read(self, spark: "SparkSession", step: Step) -> "DataFrame":
        """The messages of a step, each queue's in order, with their ids."""
        return self._read(spark, *step.reads)

    def read_all(self, spark: "SparkSession", state: ReplayState) -> "DataFrame":
        return self._read(spark, _start(state), _end(state))

    def _read(self, spark: "SparkSession", start: Offsets, end: Offsets) -> "DataFrame":
        from pyspark.sql import functions as f

        given = {
            "startingOffsets": json.dumps(encode_offsets(start)),
            "endingOffsets": json.dumps(encode_offsets(end)),
        }
        frame = read_messages(spark, "", self._topics, namesrv=self._namesrv, more=given)
        return frame.withColumn(ID, f.concat_ws("/", "topic", *PLACE))


def _start(state: ReplayState) -> Offsets:
    return decode_offsets(state.bounds["start"])


def _end(state: ReplayState) -> Offsets:
    return decode_offsets(state.bounds["end"])


def _here(state: ReplayState) -> Offsets:
    return decode_offsets(state.done.get("offsets", state.bounds["start"]))


def _span(start: Offsets, end: Offsets) -> int:
    return sum(offset - start[queue] for queue, offset in end.items())


@dataclass(frozen=True, slots=True)
class FileSpan:
    """A file of a table, and the values that its rows have in the column that puts them in order.

    Attributes:
        low: the smallest one; None if some rows have none: these come first.
        high: the largest one; None if no row has one.
    """

    name: str
    size: int
    low: int | None = None
    high: int | None = None

    def has(self, first: int | None, end: int | None) -> bool:
        """Whether rows may lie in a span of values: from `first` (None: from those without one) to before `end` (None: all)."""
        starts = end is None or self.low is None or self.low < end
        return starts and (first is None or (self.high is not None and self.high >= first))


@dataclass(frozen=True, slots=True)
class TableStep:
    """Files to read, and which of their rows: all, or those of a span of values (see `FileSpan.has`) of the column `order`.

    Attributes:
        version: of the table whose files they are; -1: they are of a directory without a log.
    """

    files: Sequence[str]
    order: str = ""
    first: int | None = None
    end: int | None = None
    version: int = -1


class TableSource:
    """The rows of a directory of Parquet files, in the order of a column, or where it has none of these, of files' names.

    Columns are those of a write. Where broker_name, queue_id and queue_offset are there, as in a raw archive, they are
    a row's id; else it is the file and the place in it.

    Args:
        order_by: columns, with or without the "_" that `archive` puts in front. Steps are spans of the first one's values: a
            key's rows may lie in many files, and joined files are named after newer ones.
        columns: NAME=SQL words: columns made from the table's, such as `body=_body`.
    """

    def __init__(self, path: str, order_by: Sequence[str], columns: Sequence[str]) -> None:
        self.name = path
        self._path = path
        self._order_by = tuple(order_by)
        self._columns = key_values(columns, "--column")

    def bounds(self) -> dict[str, Any]:
        """The files there are now, with their sizes, and where steps begin. Raises ConfigError when there are none."""
        root = Path(self._path).absolute()
        found = open_found(str(root))
        table = found.snapshot  # files that were replaced do not count
        if table.version >= 0:
            root = Path(found.files.root)
            paths = sorted(root / name for name in table.files)
        else:
            paths = [path for path in sorted(root.rglob("*.parquet")) if not _hidden(path, root)]
        files = [FileSpan(str(path.relative_to(root)), path.stat().st_size) for path in paths]
        if not files:
            raise ConfigError(f"replay: {self._path} has no Parquet files")
        version = {"version": table.version} if table.version >= 0 else {}
        names = [each for path in paths for each in pq.read_schema(path).names]
        order = next(iter(self._order(names)), "")
        if not order:
            return {"files": [[each.name, each.size] for each in files], **version}
        spans = [_span_of(root, each, order) for each in files]
        known = [each for each in spans if each is not None]
        cuts = _cuts(known) if len(known) == len(spans) and order not in self._columns else []
        return {
            "files": [[e.name, e.size, e.low, e.high] for e in known]
            if cuts
            else [[e.name, e.size] for e in files],
            "order": order,
            "cuts": cuts,
            **version,
        }

    def _order(self, columns: Sequence[str]) -> list[str]:
        """The columns that put rows in order, of those there are."""
        there = {*columns, *self._columns}
        found = ((name, f"_{name}") for name in self._order_by)
        return [next(each for each in both if each in there) for both in found if there & set(both)]

    def describe(self) -> list[str]:
        files = self.bounds()["files"]
        return [
            f"table {self._path}: {len(files)} files of {sum(each[1] for each in files):,} bytes"
        ]

    def check(self, state: ReplayState) -> None:
        """Nothing: a missing file is an error when it is read."""

    def total(self, state: ReplayState) -> int:
        """Steps, or files where no column has an order."""
        cuts = state.bounds.get("cuts")
        return len(state.bounds["files"]) if cuts is None else len(cuts) + 1

    def done(self, state: ReplayState) -> int:
        """Of `total`, those passed so far."""
        return int(state.done.get("files" if state.bounds.get("cuts") is None else "steps", 0))

    def next_step(self, state: ReplayState, size: int) -> Step | None:
        """The next span of values, or the next files, of about 256 MiB; None at the end."""
        first, bounds = self.done(state), state.bounds
        if first == self.total(state):
            return None
        cuts, version = bounds.get("cuts"), bounds.get("version", -1)
        if cuts is not None:
            low, end = ([None, *cuts][first], [*cuts, None][first])
            names = [e[0] for e in bounds["files"] if not cuts or FileSpan(*e).has(low, end)]
            return Step({"steps": first + 1}, TableStep(names, bounds["order"], low, end, version))
        last, held = first, 0
        for _, file_bytes in bounds["files"][first:]:
            if last > first and held + file_bytes > _BYTES_A_STEP:
                break
            held += file_bytes
            last += 1
        names = [name for name, _ in bounds["files"][first:last]]
        return Step({"files": last}, TableStep(names, version=version))

    def read(self, spark: "SparkSession", step: Step) -> "DataFrame":
        """The rows of a step: all of a key in one partition, in order."""
        reads: TableStep = step.reads
        frame = self._files(spark, reads.files, reads.version)
        if reads.first is not None or reads.end is not None:
            frame = frame.where(_within(frame, reads))
        columns = [name for name in ("message_group", "keys") if name in frame.columns]
        if not columns:
            return frame
        order = self._order(frame.columns)
        return frame.repartition(*columns).sortWithinPartitions(*columns, *order, ID)

    def read_all(self, spark: "SparkSession", state: ReplayState) -> "DataFrame":
        names = [each[0] for each in state.bounds["files"]]
        return self._files(spark, names, state.bounds.get("version", -1))

    def _files(self, spark: "SparkSession", names: Sequence[str], version: int) -> "DataFrame":
        from pyspark.sql import functions as f

        from roquette_spark.pipelines.tables.table_source import FILE, ROW, open_frame

        root = str(Path(self._path).absolute())
        if version >= 0:  # as it was when the replay began
            table = open_found(root, version)
            some = [table.snapshot.files[name] for name in names]
            frame = open_frame(spark, table, files=some, places=True)
            name, number = f.substring_index(FILE, "/", -1), f.col(ROW)
        else:
            paths = [f"{root}/{name}" for name in names]
            frame = spark.read.option("basePath", self._path).parquet(*paths)
            name, number = f.col("_metadata.file_name"), f.col("_metadata.row_index")
        if set(PLACE) <= set(frame.columns):
            identity = f.concat_ws("/", *PLACE)
        else:
            file = f.regexp_replace(name, r"[^!-~]", "_")
            identity = f.concat_ws("/", file, f.lpad(number.cast("string"), 12, "0"))
        frame = frame.withColumn(ID, identity).drop(FILE, ROW)
        for name, expression in self._columns.items():
            frame = frame.withColumn(name, f.expr(expression))
        if "body" not in frame.columns:
            raise ConfigError(
                f"replay: {self._path} has no column body; make one, such as --column 'body=to_json(struct(*))'"
            )
        if "keys" not in frame.columns and "key" in frame.columns:
            frame = frame.withColumn("keys", f.when(f.col("key").isNotNull(), f.array("key")))
        return frame


def _span_of(root: Path, file: FileSpan, column: str) -> FileSpan | None:
    """With the values of a column of whole numbers or times (in microseconds), by the file's footer; None: it does not say."""
    with pq.ParquetFile(root / file.name) as parquet:
        footer, schema = parquet.metadata, parquet.schema_arrow
    if column not in schema.names:
        return file  # an older file: no row has a value
    kind = schema.field(column).type
    if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
        return None
    index = next(i for i in range(footer.num_columns) if footer.schema.column(i).path == column)
    low: list[int | None] = []
    high: list[int] = []
    for number in range(footer.num_row_groups):
        chunk = footer.row_group(number).column(index)
        found = chunk.statistics
        if found is None or not found.has_null_count:
            return None
        if found.null_count:
            low.append(None)
        if found.null_count < footer.row_group(number).num_rows:
            if not found.has_min_max:
                return None
            low.append(_whole(found.min, kind))
            high.append(_whole(found.max, kind))
    least = None if None in low else min((each for each in low if each is not None), default=None)
    return FileSpan(file.name, file.size, least, max(high, default=None))


def _whole(value: Any, kind: pa.DataType) -> int:
    """A value as a whole number; of a time microseconds since 1970, as Spark has them."""
    if pa.types.is_integer(kind):
        return int(value)
    return int(pa.scalar(value, kind).cast(pa.timestamp("us", kind.tz), safe=False).value)


def _cuts(files: Sequence[FileSpan]) -> list[int]:
    """Values at which steps begin, so that each has about 256 MiB of files that begin in it."""
    ordered = sorted(files, key=lambda each: (each.low is not None, each.low or 0))
    cuts: list[int] = []
    begin, held = ordered[0].low, 0  # of a step
    for file in ordered:
        low = file.low
        if low is not None and low != begin and held + file.size > _BYTES_A_STEP:
            cuts.append(low)
            begin, held = low, 0
        held += file.size
    return cuts


def _within(frame: "DataFrame", step: TableStep) -> "Column":
    from pyspark.sql import functions as f

    column = f.col(step.order)
    times = dict(frame.dtypes)[step.order].startswith("timestamp")
    value = f.unix_micros(column.cast("timestamp")) if times else column
    after = f.lit(True) if step.first is None else value >= step.first
    if step.end is None:
        return after
    before = value < step.end
    return after & ((before | value.isNull()) if step.first is None else before)


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)


def time_ms(text: str, flag: str) -> int | None:
    """A time as milliseconds since 1970: `1700000000000`, or ISO 8601 (UTC when it says nothing else).

    Raises:
        ConfigError: it is neither.
    """
    if not text:
        return None
    if re.fullmatch(r"\d+", text):
        return int(text)
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"replay: {flag} must be such as 2026-01-31T12:00:00Z or milliseconds, not {text!r}"
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=datetime.UTC)
    return int(found.timestamp() * 1000)
