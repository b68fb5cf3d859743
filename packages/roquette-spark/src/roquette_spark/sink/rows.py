"""Arrow batches of a write to messages: body, property string, and the queue each must go to."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from roquette.base.javatypes import java_hash
from roquette.client.core.route_cache import RoundRobin
from roquette.errors import ConfigError, RoquetteError
from roquette.message.compression import compress
from roquette.message.message import MessageQueue
from roquette.message.names import RETRY_PREFIX
from roquette.message.properties import SYSTEM, TIMER_DELIVER_MS
from roquette_spark.values.options import (
    COLUMN,
    HASH,
    ROUND_ROBIN,
    SPARK_ID,
    WriteOptions,
    check_topic,
)

# Arrow columns of a write as Python lists of bytes, and Java's hash of a whole column.


_SEPARATORS = (b"\x01", b"\x02")
_LONGEST_HASHED_AT_ONCE = 256


class BadRow(RoquetteError):
    """A row cannot become a message: which row, and what to do."""


def bytes_list(column: pa.Array) -> list[bytes | None]:
    """The values of a string or binary column; None where it is null."""
    values, spans = _spans(column)
    found: list[bytes | None] = [values[start:end] for start, end in pairwise(spans.tolist())]
    if column.null_count:
        for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            found[row] = None
    return found


def text_list(column: pa.Array, name: str, first_row: int) -> list[bytes | None]:
    """`bytes_list` of what becomes part of a property string. Raises BadRow for its separators."""
    found = bytes_list(column)
    values, _ = _spans(column)
    if any(separator in values for separator in _SEPARATORS):
        for row, value in enumerate(found):
            if value is not None and any(separator in value for separator in _SEPARATORS):
                raise BadRow(
                    f"rocketmq: row {first_row + row}: {name} holds a control character (1 or 2) that "
                    "RocketMQ uses as separator"
                )
    return found


def number_list(column: pa.Array) -> list[int | None]:
    """The values of an integer column; None where it is null."""
    if column.null_count == 0:
        return list(column.to_numpy(zero_copy_only=False).tolist())
    return list(column.to_pylist())


def millisecond_list(column: pa.Array) -> list[int | None]:
    """The values of a timestamp or bigint column as milliseconds since 1970."""
    if pa.types.is_timestamp(column.type):
        column = pc.floor_temporal(column, unit="millisecond").cast(
            pa.timestamp("ms", tz=column.type.tz)
        )
        column = column.cast(pa.int64())
    return number_list(column)


def joined_list(column: pa.Array, name: str, first_row: int) -> list[bytes | None]:
    """Each row's list of strings, joined by spaces; None where there is none."""
    words = text_list(column.flatten(), name, first_row)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    ends = np.concatenate(([0], np.cumsum(lengths)))
    found: list[bytes | None] = []
    for start, end in pairwise(ends.tolist()):
        row = [word for word in words[start:end] if word]
        if any(b" " in word for word in row):
            raise BadRow(_space(name, first_row + len(found)))
        found.append(b" ".join(row) if row else None)
    return found


def check_spaces(values: list[bytes | None], name: str, first_row: int) -> None:
    """Raise BadRow for a key with a space in it."""
    for row, value in enumerate(values):
        if value is not None and b" " in value:
            raise BadRow(_space(name, first_row + row))


def _space(name: str, row: int) -> str:
    return (
        f"rocketmq: row {row}: {name} holds a space, which RocketMQ takes for the end of a key; "
        "replace it, or send the text as a property"
    )


def property_list(
    column: pa.Array, reserved: frozenset[str], dropped: frozenset[str], first_row: int
) -> list[bytes]:
    """Each row's properties as a property string. Properties without a value are left out: they do not exist.

    Raises:
        BadRow: a name is RocketMQ's own, or a separator is in a name or value.
    """
    counts = pc.fill_null(_map_lengths(column), 0).to_numpy(zero_copy_only=False)
    entries = _entries(column)
    names, values = entries.field(0), entries.field(1)
    own = sorted(set(pc.unique(names).to_pylist()) & reserved)
    if own:
        row = _row_of(names, own[0], counts)
        raise BadRow(
            f"rocketmq: row {first_row + row}: the property {own[0]} is RocketMQ's own; there are columns for "
            "keys, tags, message_group and delays, leave the rest out (includeSystemProperties=false when read)"
        )
    unwanted = frozenset(name.encode() for name in dropped)
    pairs = [
        b"%b\x01%b\x02" % (name, value) if name and value and name not in unwanted else b""
        for name, value in zip(
            text_list(names, "a property's name", first_row),
            text_list(values, "a property", first_row),
            strict=True,
        )
    ]
    ends = np.concatenate(([0], np.cumsum(counts))).tolist()
    return [b"".join(pairs[start:end]) for start, end in pairwise(ends)]


def _map_lengths(column: pa.Array) -> pa.Array:
    offsets = np.asarray(column.offsets)
    lengths = pa.array(np.diff(offsets))
    return pc.if_else(column.is_valid(), lengths, pa.scalar(0, lengths.type))


def _entries(column: pa.Array) -> pa.StructArray:
    """Names and values of the rows that are there; what null rows cover is left out."""
    column = column.drop_null() if column.null_count else column
    offsets, keys, items = np.asarray(column.offsets), column.keys, column.items
    start, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    return pa.StructArray.from_arrays(
        [keys.slice(start, length), items.slice(start, length)], ["k", "v"]
    )


def _row_of(names: pa.Array, name: str, counts: np.ndarray) -> int:
    position = pc.index(names, pa.scalar(name, names.type)).as_py()
    return int(np.searchsorted(np.cumsum(counts), position, side="right"))


def java_hashes(column: pa.Array) -> np.ndarray:
    """`String.hashCode` of each value of a string column, as int64; of null it is 0."""
    values, spans = _spans(column)
    data = np.frombuffer(values, np.uint8)
    lengths = np.diff(spans)
    longest = int(lengths.max()) if len(lengths) else 0
    if longest > _LONGEST_HASHED_AT_ONCE or (len(data) and int(data.max()) > 127):
        exact: np.ndarray = np.array(
            [java_hash((value or b"").decode()) for value in bytes_list(column)], np.int64
        )
        return exact
    hashes: np.ndarray = np.zeros(len(lengths), np.uint32)
    starts = spans[:-1]
    for position in range(longest):
        rows = np.flatnonzero(lengths > position)
        hashes[rows] = hashes[rows] * np.uint32(31) + data[starts[rows] + position]
    signed: np.ndarray = hashes.astype(np.int32).astype(np.int64)
    return signed


def _spans(column: pa.Array) -> tuple[bytes, np.ndarray]:
    """All bytes of a column, and where its values begin and end in them."""
    kind = column.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        column = column.cast(pa.large_binary())
        kind = column.type
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    width = np.dtype(np.int64 if large else np.int32)
    _, offsets, data = column.buffers()
    if offsets is None or not len(column):
        return b"", np.zeros(len(column) + 1, np.int64)
    spans = np.frombuffer(offsets, width, len(column) + 1, column.offset * width.itemsize)
    spans = spans.astype(np.int64)
    first, last = int(spans[0]), int(spans[-1])
    values = b"" if data is None else memoryview(data)[first:last].tobytes()
    return values, spans - first


# The columns a write takes, checked once per write.


_INTEGERS = ("int", "bigint", "smallint", "tinyint")

# Type texts by column, all that are taken.
WRITE_COLUMNS: dict[str, tuple[str, ...]] = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "key": ("string",),
    "keys": ("array<string>",),
    "tags": ("string",),
    "properties": ("map<string,string>",),
    "broker_name": ("string",),
    "queue_id": _INTEGERS,
    "message_group": ("string",),
    "deliver_timestamp": ("timestamp", "bigint"),
    "delay_level": _INTEGERS,
    "flag": _INTEGERS,
}


@dataclass(frozen=True, slots=True)
class WriteColumns:
    """Places of a message's columns in the frame, and who chooses the queue.

    Attributes:
        positions: index in the frame by our name of a column; columns that are not ours are not in it.
        id_position: index of the column whose value is the message's id.
        selector: HASH, ROUND_ROBIN or COLUMN.
    """

    positions: dict[str, int]
    id_position: int | None
    selector: str


def write_columns(schema: StructType, options: WriteOptions) -> WriteColumns:
    """Find the columns; names are compared without case, as Spark's are.

    Raises:
        ConfigError: a column is unknown, twice there, missing, or of a type that is not taken.
    """
    positions: dict[str, int] = {}
    unknown: list[str] = []
    id_name = options.id_column.lower() or None
    id_position = None
    for position, column in enumerate(schema.fields):
        name, kind = column.name.lower(), column.dataType.simpleString()
        if name == id_name:
            id_position = position
            if kind != "string":
                raise ConfigError(f"rocketmq: idColumn {column.name} must be string, not {kind}")
        wanted = WRITE_COLUMNS.get(name)
        if wanted is None:
            if name != id_name:
                unknown.append(column.name)
            continue
        if kind not in wanted and kind != "void":
            raise ConfigError(f"rocketmq: column {name} must be {' or '.join(wanted)}, not {kind}")
        if name in positions:
            raise ConfigError(f"rocketmq: column {name} is there twice")
        if kind != "void":  # lit(None): as if it were not there
            positions[name] = position
    if unknown and not options.ignore_unknown_columns:
        raise ConfigError(
            f"rocketmq: columns that no message has: {', '.join(unknown)}; a message has "
            f"{', '.join(WRITE_COLUMNS)}; drop them, or set ignoreUnknownColumns=true"
        )
    _check(positions, options, has_id=id_position is not None)
    return WriteColumns(positions, id_position, _selector(positions, options))


def _check(positions: dict[str, int], options: WriteOptions, *, has_id: bool) -> None:
    if "body" not in positions:
        raise ConfigError("rocketmq: a column body (string or binary) is required")
    if not options.topic and "topic" not in positions:
        raise ConfigError("rocketmq: give option topic, or a column topic")
    if "broker_name" in positions and "queue_id" not in positions:
        raise ConfigError("rocketmq: column broker_name needs column queue_id")
    if options.id_column and not has_id:
        raise ConfigError(f"rocketmq: there is no column {options.id_column}, which idColumn names")
    if options.selector == COLUMN and "queue_id" not in positions:
        raise ConfigError("rocketmq: queueSelector=column needs a column queue_id")
    if options.selector == HASH and not {"key", "keys", "message_group"} & positions.keys():
        raise ConfigError(
            "rocketmq: queueSelector=hash(key) needs a column key, keys or message_group"
        )


def _selector(positions: dict[str, int], options: WriteOptions) -> str:
    if options.selector is not None:
        return options.selector
    if "queue_id" in positions:
        return COLUMN
    return HASH if {"key", "keys", "message_group"} & positions.keys() else ROUND_ROBIN


MAX_PROPERTIES: Final = 32_000  # of 32,767 bytes: brokers add some of their own
_DROPPED: Final = frozenset((SPARK_ID,))

QueuesOf = Callable[[str], Sequence[MessageQueue]]
Entry = tuple[int, bytes, bytes]  # flag, body, properties


@dataclass(slots=True)
class Rows:
    """The messages of one Arrow batch.

    Attributes:
        entries: flag, body and properties of each.
        topics: of each, or the one of all.
        queues: where each must go; None is any queue. None altogether: all may go anywhere.
        singles: index -> sys flag, of those that no batch may hold: delayed or compressed ones.
    """

    entries: list[Entry]
    topics: str | list[str]
    queues: list[MessageQueue | None] | None
    singles: dict[int, int]


class RowEncoder:
    """Makes messages of rows.

    Args:
        queues_of: the queues of a topic that take messages, always in the same order.
        next_ids: draws so many UNIQ_KEYs.
        id_prefix: of the deterministic id, to which the number of the row is added; None: no such ids.
    """

    def __init__(
        self,
        options: WriteOptions,
        columns: WriteColumns,
        *,
        queues_of: QueuesOf,
        next_ids: Callable[[int], list[str]],
        id_prefix: str | None,
    ) -> None:
        self._options = options
        self._columns = columns
        self._queues_of = queues_of
        self._next_ids = next_ids
        self._id_prefix = id_prefix
        self._turn = RoundRobin()
        self._known_topics: set[str] = set()
        self._named: dict[str, dict[tuple[str | None, int], MessageQueue | None]] = {}

    def encode(self, batch: pa.RecordBatch, first_row: int) -> Rows:
        """The messages of a batch whose first row is number `first_row` of its task.

        Raises:
            BadRow: a row cannot be a message.
            RouteNotFound: a topic is unknown.
        """
        columns = {
            name: batch.column(position) for name, position in self._columns.positions.items()
        }
        topics = self._topics(columns, first_row)
        bodies = self._bodies(columns["body"], first_row)
        singles: dict[int, int] = {}
        properties = self._properties(columns, batch, topics, singles, first_row)
        flags = [0] * len(bodies)
        if "flag" in columns:
            flags = [flag or 0 for flag in number_list(columns["flag"])]
        self._compress(bodies, singles)
        self._check_sizes(properties, first_row)
        entries = list(zip(flags, bodies, properties, strict=True))
        return Rows(
            entries, topics, self._queues(columns, topics, batch.num_rows, first_row), singles
        )

    def _topics(self, columns: dict[str, pa.Array], first_row: int) -> str | list[str]:
        if self._options.topic:
            return self._options.topic
        found = []
        for row, value in enumerate(bytes_list(columns["topic"])):
            if not value:
                raise BadRow(f"rocketmq: row {first_row + row}: topic is null or empty")
            found.append(value.decode())
        for topic in set(found) - self._known_topics:
            check_topic(topic)
            self._known_topics.add(topic)
        return found

    def _bodies(self, column: pa.Array, first_row: int) -> list[bytes]:
        found = []
        most = self._options.max_message_size
        for row, body in enumerate(bytes_list(column)):
            if not body:
                raise BadRow(
                    f"rocketmq: row {first_row + row}: body is null or empty, which RocketMQ does not store; "
                    "filter such rows"
                )
            if len(body) > most:
                raise BadRow(
                    f"rocketmq: row {first_row + row}: body of {len(body)} bytes is above maxMessageSize {most}"
                )
            found.append(body)
        return found

    def _compress(self, bodies: list[bytes], singles: dict[int, int]) -> None:
        over, kind = self._options.compress_over_bytes, self._options.compression
        for row, body in enumerate(bodies):
            if len(body) > over:
                packed = compress(body, kind)
                if len(packed) < len(body):
                    bodies[row] = packed
                    singles[row] = kind.sys_flag

    # properties

    def _properties(
        self,
        columns: dict[str, pa.Array],
        batch: pa.RecordBatch,
        topics: str | list[str],
        singles: dict[int, int],
        first_row: int,
    ) -> list[bytes]:
        parts: list[Sequence[bytes]] = []
        if "properties" in columns:
            parts.append(property_list(columns["properties"], SYSTEM, _DROPPED, first_row))
        parts.append([f"UNIQ_KEY\x01{one}\x02".encode() for one in self._next_ids(len(batch))])
        if "tags" in columns:
            tags = text_list(columns["tags"], "tags", first_row)
            parts.append([b"TAGS\x01%b\x02" % tag if tag else b"" for tag in tags])
        keys = self._keys(columns, first_row)
        if keys is not None:
            parts.append([b"KEYS\x01%b\x02" % key if key else b"" for key in keys])
        if "message_group" in columns:
            groups = text_list(columns["message_group"], "message_group", first_row)
            parts.append([b"__SHARDINGKEY\x01%b\x02" % group if group else b"" for group in groups])
        parts += self._delays(columns, singles, first_row)
        if self._columns.id_position is not None:
            parts.append(self._given_ids(batch.column(self._columns.id_position), first_row))
        elif self._id_prefix is not None:
            prefix = f"{SPARK_ID}\x01{self._id_prefix}".encode()
            rows = range(first_row, first_row + len(batch))
            parts.append([b"%b%d\x02" % (prefix, row) for row in rows])
        self._refuse_batches(topics, len(batch), singles)
        return [b"".join(row) for row in zip(*parts, strict=True)]

    def _keys(self, columns: dict[str, pa.Array], first_row: int) -> list[bytes | None] | None:
        key = keys = None
        if "key" in columns:
            key = text_list(columns["key"], "key", first_row)
            check_spaces(key, "key", first_row)
        if "keys" in columns:
            keys = joined_list(columns["keys"], "keys", first_row)
        if key is None or keys is None:
            return key if keys is None else keys
        return [_first_of(one, more) for one, more in zip(key, keys, strict=True)]

    def _delays(
        self, columns: dict[str, pa.Array], singles: dict[int, int], first_row: int
    ) -> list[list[bytes]]:
        parts: list[list[bytes]] = []
        if "deliver_timestamp" in columns:
            times = millisecond_list(columns["deliver_timestamp"])
            name = TIMER_DELIVER_MS.encode()
            parts.append([b"" if ms is None else b"%b\x01%d\x02" % (name, ms) for ms in times])
        if "delay_level" in columns:
            levels = number_list(columns["delay_level"])
            for row, level in enumerate(levels):
                if level is not None and not 0 <= level <= 1000:
                    raise BadRow(f"rocketmq: row {first_row + row}: delay_level {level} is none")
            parts.append([b"DELAY\x01%d\x02" % level if level else b"" for level in levels])
        for row, delays in enumerate(zip(*parts, strict=True)):
            if all(delays) and len(delays) > 1:
                raise BadRow(
                    f"rocketmq: row {first_row + row}: both deliver_timestamp and delay_level; give one"
                )
            if any(delays):
                singles[row] = 0
        return parts

    def _given_ids(self, column: pa.Array, first_row: int) -> list[bytes]:
        found = text_list(column, "the id column", first_row)
        for row, value in enumerate(found):
            if not value:
                raise BadRow(f"rocketmq: row {first_row + row}: the id column is null or empty")
        return [b"%b\x01%b\x02" % (SPARK_ID.encode(), value) for value in found if value]

    def _refuse_batches(self, topics: str | list[str], count: int, singles: dict[int, int]) -> None:
        """Brokers take no batch for a retry topic (SendMessageProcessor)."""
        rows: Iterable[int]
        if isinstance(topics, str):
            rows = range(count) if topics.startswith(RETRY_PREFIX) else ()
        else:
            rows = [row for row, topic in enumerate(topics) if topic.startswith(RETRY_PREFIX)]
        for row in rows:
            singles.setdefault(row, 0)

    def _check_sizes(self, properties: list[bytes], first_row: int) -> None:
        for row, text in enumerate(properties):
            if len(text) > MAX_PROPERTIES:
                raise BadRow(
                    f"rocketmq: row {first_row + row}: keys, tags and properties take {len(text)} bytes, "
                    f"at most {MAX_PROPERTIES} are possible"
                )

    # queues

    def _queues(
        self, columns: dict[str, pa.Array], topics: str | list[str], count: int, first_row: int
    ) -> list[MessageQueue | None] | None:
        kind = self._columns.selector
        if kind not in {HASH, COLUMN}:
            return None
        chosen: list[MessageQueue | None] = [None] * count
        if kind == COLUMN:
            chosen = self._named_queues(columns, topics, first_row)
        if {"key", "keys", "message_group"} & columns.keys():
            self._hashed_queues(columns, topics, chosen)
        return chosen

    def _hashed_queues(
        self,
        columns: dict[str, pa.Array],
        topics: str | list[str],
        chosen: list[MessageQueue | None],
    ) -> None:
        """Messages of one key share a queue, the one Java's SelectMessageQueueByHash takes."""
        column = order_column(columns)
        there = column.is_valid().to_numpy(zero_copy_only=False)
        hashes = np.abs(java_hashes(column))
        if isinstance(topics, str):
            queues = self._queues_of(topics)
            picked = (hashes % len(queues)).tolist()
            for row in np.flatnonzero(there).tolist():
                if chosen[row] is None:
                    chosen[row] = queues[picked[row]]
            return
        for row in np.flatnonzero(there).tolist():
            if chosen[row] is None:
                queues = self._queues_of(topics[row])
                chosen[row] = queues[int(hashes[row]) % len(queues)]

    def _named_queues(
        self, columns: dict[str, pa.Array], topics: str | list[str], first_row: int
    ) -> list[MessageQueue | None]:
        numbers = number_list(columns["queue_id"])
        names = columns["broker_name"].to_pylist() if "broker_name" in columns else None
        found: list[MessageQueue | None] = []
        for row, number in enumerate(numbers):
            if number is None:
                found.append(None)
                continue
            topic = topics if isinstance(topics, str) else topics[row]
            found.append(
                self._named_queue(topic, names[row] if names else None, number, first_row + row)
            )
        return found

    def _named_queue(self, topic: str, name: str | None, number: int, row: int) -> MessageQueue:
        table = self._named.get(topic)
        if table is None:
            table = self._named[topic] = _by_name(self._queues_of(topic))
        queue = table.get((name, number))
        if queue is None:
            known = ", ".join(sorted({broker for broker, _ in table if broker is not None}))
            if (None, number) in table and name is None:
                raise BadRow(
                    f"rocketmq: row {row}: several brokers have a queue {number} of {topic} ({known}): "
                    "give column broker_name, too"
                )
            where = f" on {name}" if name is not None else ""
            raise BadRow(
                f"rocketmq: row {row}: topic {topic} has no queue {number}{where} that takes messages; "
                f"its brokers: {known}"
            )
        return queue


def order_column(columns: dict[str, pa.Array]) -> pa.Array:
    """The text whose messages stay in order: the message group, else the (first) key."""
    found = [columns[name] for name in ("message_group", "key") if name in columns]
    if "keys" in columns:
        lists = columns["keys"]
        some = pc.greater(pc.fill_null(pc.list_value_length(lists), 0), 0)
        lists = pc.if_else(some, lists, pa.scalar([""], lists.type))
        found.append(pc.list_element(lists, 0))
    found = [pc.if_else(pc.equal(one, ""), pa.scalar(None, one.type), one) for one in found]
    column = found[0] if len(found) == 1 else pc.coalesce(*found)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _first_of(one: bytes | None, more: bytes | None) -> bytes | None:
    """The key, then those of the keys that are not the key again."""
    if one is None or more is None:
        return one or more
    rest = [word for word in more.split(b" ") if word != one]
    return b" ".join([one, *rest])


def _by_name(
    queues: Sequence[MessageQueue],
) -> dict[tuple[str | None, int], MessageQueue | None]:
    """Queues by broker name and id; by id alone (name None) where one broker has it, else None."""
    table: dict[tuple[str | None, int], MessageQueue | None] = {}
    for queue in queues:
        table[queue.broker_name, queue.queue_id] = queue
        alone: tuple[str | None, int] = (None, queue.queue_id)
        table[alone] = None if alone in table else queue
    return table
