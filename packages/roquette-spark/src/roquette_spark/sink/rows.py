"""Arrow batches of a write to messages: body, property string, and the queue each must go to."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquette.client.core.queue_selector import RoundRobin
from roquette.message.compression import compress
from roquette.message.message import MessageQueue
from roquette.message.names import RETRY_PREFIX
from roquette.message.properties import SYSTEM, TIMER_DELIVER_MS
from roquette_spark.options import COLUMN, HASH, SPARK_ID, WriteOptions, check_topic
from roquette_spark.sink.columns import (
    BadRow,
    bytes_list,
    check_spaces,
    java_hashes,
    joined_list,
    millisecond_list,
    number_list,
    property_list,
    text_list,
)
from roquette_spark.sink.schema import WriteColumns

MAX_PROPERTIES: Final = 32_000  # of 32,767 bytes: brokers add some of their own
_DROPPED: Final = frozenset((SPARK_ID,))

QueuesOf = Callable[[str], Sequence[MessageQueue]]
Entry = tuple[int, bytes, bytes]  # flag, body, properties


class Rows:
    """The messages of one Arrow batch.

    Attributes:
        entries: flag, body and properties of each.
        topics: of each, or the one of all.
        queues: where each must go; None is any queue. None altogether: all may go anywhere.
        singles: index -> sys flag, of those that no batch may hold: delayed or compressed ones.
    """

    __slots__ = ("entries", "queues", "singles", "topics")

    def __init__(
        self,
        entries: list[Entry],
        topics: str | list[str],
        queues: list[MessageQueue | None] | None,
        singles: dict[int, int],
    ) -> None:
        self.entries = entries
        self.topics = topics
        self.queues = queues
        self.singles = singles


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
            parts.append([_timer(time) for time in times])
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
        for row in range(count) if not isinstance(topics, str) else range(min(count, 1)):
            topic = topics if isinstance(topics, str) else topics[row]
            if topic.startswith(RETRY_PREFIX):
                rows = range(count) if isinstance(topics, str) else (row,)
                for number in rows:
                    singles.setdefault(number, 0)

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


def _timer(time_ms: int | None) -> bytes:
    return b"" if time_ms is None else b"%b\x01%d\x02" % (TIMER_DELIVER_MS.encode(), time_ms)


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
