"""Raw records of one queue, as a pull brings them, to Arrow batches: numpy reads all rows at once.

The layout is that of `message.record_layout`.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquette.base.checksum import crc32
from roquette.errors import CorruptRecord
from roquette.message import properties, sysflag
from roquette.message.compression import decompress
from roquette.message.message import MAX_BODY_SIZE
from roquette.message.message_id import host_text
from roquette.message.record_layout import (
    BORN_HOST_AT,
    FIXED_FIELDS,
    MAX_TOPIC_V1,
    RECORD_MAGIC_V1,
    RECORD_MAGIC_V2,
    SMALLEST_RECORD,
    STORED_AT,
    V6_MORE,
    names_directory,
)
from roquette_spark.source.columns import (
    Properties,
    contiguous,
    equal_sized_array,
    first_words,
    property_columns,
    record_starts,
    repeated_texts,
    rows_at,
    slice_array,
    uniform_size,
)

_HEAD = np.dtype(list(FIXED_FIELDS))
_TAIL = np.dtype(list(FIXED_FIELDS[-3:]))
_BYTE_HEX = np.frombuffer("".join(f"{n:02X}" for n in range(256)).encode(), np.uint16)
# Four digits by two bytes, as they lie in memory.
_HEX: np.ndarray = np.take(_BYTE_HEX, np.arange(1 << 16, dtype=np.uint16).view(np.uint8)).view(
    np.uint32
)


class RecordColumns:
    """Places of every field of every record; columns are made on demand.

    Args:
        data: whole records, one after the other; fewer than 2 GiB.
        start: rows with a lower queue offset are left out.
        end: rows with this or a higher queue offset are left out.
        positions: where whole records begin, ascending, when that is known and `data` may hold other bytes too.

    Raises:
        CorruptRecord: sizes do not add up or a magic code is wrong.
    """

    def __init__(
        self,
        data: bytes,
        *,
        start: int | None = None,
        end: int | None = None,
        positions: np.ndarray | None = None,
    ) -> None:
        self._bodies: list[bytes] | None = None
        self._data = data
        self._bytes = np.frombuffer(data, dtype=np.uint8)
        at = record_starts(data) if positions is None else positions
        head = rows_at(data, at, _HEAD.itemsize).view(_HEAD)[:, 0]
        if start is not None and end is not None:
            inside = (head["queue_offset"] >= start) & (head["queue_offset"] < end)
            if not inside.all():
                at, head = at[inside], head[inside]
        magic = head["magic"]
        if not np.all((magic == RECORD_MAGIC_V1) | (magic == RECORD_MAGIC_V2)):
            raise CorruptRecord("a record has an unknown magic code")
        self._at = at
        self._head = head
        self.count = len(at)
        self._properties: Properties | None = None
        self._topics: tuple[np.ndarray, list[bytes]] | None = None
        self._keys: tuple[pa.Array, pa.Array] | None = None
        if np.any(head["sys_flag"] & (sysflag.BORN_HOST_V6 | sysflag.STORE_HOST_V6)):
            stored_at, tail_at = self._behind_hosts(at, head)
            stored: np.ndarray = rows_at(data, stored_at, 8).view(">i8")[:, 0]
            self._tail = rows_at(data, tail_at, 16).view(_TAIL)[:, 0]
        else:
            stored_at, tail_at = at + STORED_AT, at + STORED_AT + 16
            stored, self._tail = head["stored"], head
        self.store_ms: np.ndarray = stored.astype(np.int64)
        self._hosts: dict[str, tuple[np.ndarray, np.ndarray]] = {
            "born": (at + BORN_HOST_AT, stored_at),
            "store": (stored_at + 8, tail_at),
        }
        self._spans = self._find_spans(at, tail_at + 16)

    def _behind_hosts(self, at: np.ndarray, head: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of the fields behind the born and the store host, of which some are IPv6."""
        v6_born = (head["sys_flag"] & sysflag.BORN_HOST_V6 != 0) * V6_MORE
        v6_store = (head["sys_flag"] & sysflag.STORE_HOST_V6 != 0) * V6_MORE
        if np.any(head["size"] < SMALLEST_RECORD + v6_born + v6_store):
            raise CorruptRecord("a record is shorter than its fixed fields")
        stored_at = at + STORED_AT + v6_born
        return stored_at, stored_at + 16 + v6_store

    def _find_spans(self, at: np.ndarray, body_at: np.ndarray) -> tuple[np.ndarray, ...]:
        """Start and end of body, properties and topic, checked against the size of the record."""
        ends = at + self._head["size"]
        body_end = body_at + self._tail["body_size"]
        wide = self._head["magic"] == RECORD_MAGIC_V2
        if np.any(body_end < body_at) or np.any(body_end + wide + 3 > ends):
            raise CorruptRecord("a body is longer than its record")
        topic_size = self._bytes[body_end].astype(np.int64)
        if wide.any():
            topic_size[wide] = topic_size[wide] << 8 | self._bytes[body_end[wide] + 1]
        if np.any(topic_size[~wide] > MAX_TOPIC_V1):
            raise CorruptRecord("a topic is longer than its kind of record allows")
        topic_at = body_end + 1 + wide
        topic_end = topic_at + topic_size
        properties_at = topic_end + 2
        if np.any(properties_at > ends):
            raise CorruptRecord("a topic is longer than its record")
        high = self._bytes[topic_end].astype(np.int64)
        properties_end = properties_at + (high << 8 | self._bytes[topic_end + 1])
        if np.any(properties_end > ends):
            raise CorruptRecord("properties are longer than their record")
        return body_at, body_end, properties_at, properties_end, topic_at, topic_end

    def check(self, base: int, *, crc: bool) -> None:
        """Check what a log promises beyond a reply: places, exact sizes and, if asked, CRCs of bodies.

        Args:
            base: the physical offset of the first byte of the data.

        Raises:
            CorruptRecord: some record breaks a promise.
        """
        if np.any(self._head["physical_offset"] != self._at + base):
            raise CorruptRecord("a record stands elsewhere than it says")
        if np.any(self._spans[3] != self._at + self._head["size"]):
            raise CorruptRecord("a record is longer than its parts")
        if not all(map(names_directory, self._encoded_topics()[1])):
            raise CorruptRecord("a topic cannot name a directory")
        if crc:
            found = np.array(array("I", map(crc32, self._slices(*self._spans[:2]))))
            right = (found & 0x7FFFFFFF == self._head["body_crc"]) | (self._tail["body_size"] == 0)
            if not right.all():
                raise CorruptRecord("a body does not match its CRC")

    def where(self, chosen_rows: np.ndarray) -> "RecordColumns":
        return RecordColumns(self._data, positions=self._at[chosen_rows])

    def _slices(self, starts: np.ndarray, ends: np.ndarray) -> list[bytes]:
        data = self._data
        size = uniform_size(starts, ends)
        if size > 0:  # numpy makes the objects, at a third of the cost
            found: list[bytes] = rows_at(data, starts, size).view(f"V{size}")[:, 0].tolist()
            return found
        return [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def part(self, first: int, after: int) -> "RecordColumns":
        return RecordColumns(self._data, positions=self._at[first:after])

    @classmethod
    def join(cls, parts: "Sequence[RecordColumns]") -> "RecordColumns":
        """The rows of all parts, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        bases = accumulate((part.stored_bytes for part in parts), initial=0)
        positions: list[np.ndarray] = [part._at + base for part, base in zip(parts, bases)]
        return cls(b"".join(part._data for part in parts), positions=np.concatenate(positions))

    @property
    def stored_bytes(self) -> int:
        """The size of the data, rows that were left out included."""
        return len(self._data)

    @property
    def physical_offsets(self) -> np.ndarray:
        """Physical offset at which each record says it stands."""
        return self._head["physical_offset"]

    @property
    def sizes(self) -> np.ndarray:
        return self._head["size"]

    def topics(self) -> tuple[np.ndarray, list[str]]:
        """The number of each row's topic, and the topics by number."""
        numbers, words = self._encoded_topics()
        return numbers, [word.decode("utf-8", "replace") for word in words]

    def _encoded_topics(self) -> tuple[np.ndarray, list[bytes]]:
        if self._topics is None:
            starts, ends = self._spans[4:]
            size = uniform_size(starts, ends)
            if size > 0:
                texts = contiguous(rows_at(self._data, starts, size)).tobytes()
                if texts == texts[:size] * self.count:
                    self._topics = np.zeros(self.count, dtype=np.int32), [texts[:size]]
                    return self._topics
            encoded = slice_array(self._data, starts, ends).dictionary_encode()
            numbers: np.ndarray = encoded.indices.to_numpy(zero_copy_only=False)
            self._topics = numbers, encoded.dictionary.to_pylist()
        return self._topics

    def unfinished(self) -> np.ndarray:
        """Return which records are prepared or rolled back by their sys flag: no queue holds them."""
        found: np.ndarray = self._head["sys_flag"] & sysflag.TRANSACTION_PREPARED != 0
        return found

    @property
    def queue_offsets(self) -> np.ndarray:
        return self._head["queue_offset"]

    @property
    def properties(self) -> Properties:
        """The properties, parsed when first asked for."""
        if self._properties is None:
            self._properties = property_columns(self._data, *self._spans[2:4])
        return self._properties

    def keys(self) -> tuple[pa.Array, pa.Array]:
        """The keys of each row as a list, and its first key."""
        if self._keys is None:
            self._keys = first_words(self.properties.column(properties.KEYS))
        return self._keys

    def ints(self, field: str) -> pa.Array:
        """A fixed field of the record, by its name in the layout."""
        source = self._tail if field in (_TAIL.names or ()) else self._head
        values = source[field]
        return pa.array(values.astype(values.dtype.newbyteorder("=")))

    def timestamps(self, field: str) -> pa.Array:
        """`born` or `stored`, as UTC time."""
        values = self._head["born"] if field == "born" else self.store_ms
        return pa.array(values.astype(np.int64) * 1000).view(pa.timestamp("us", tz="UTC"))

    def hosts(self, field: str) -> pa.Array:
        """`born` or `store` host as "ip:port"."""
        raw = self._v4_hosts(field)
        if raw is None:
            hosts = self._slices(*self._hosts[field])
            return pa.array([host_text(host) for host in hosts], pa.string())
        if (raw == raw[0]).all():
            return repeated_texts([host_text(raw[:1].tobytes())], self.count)
        found = pa.array(raw).dictionary_encode()
        texts = [host_text(np.uint64(value).tobytes()) for value in found.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(found.indices)

    def _v4_hosts(self, field: str) -> np.ndarray | None:
        """The 8 bytes of each host as one number; None if some have 20 or there are no rows."""
        starts, ends = self._hosts[field]
        if uniform_size(starts, ends) != 8:
            return None
        numbers: np.ndarray = rows_at(self._data, starts, 8).view(np.uint64)[:, 0].copy()
        return numbers

    def message_ids(self) -> pa.Array:
        """The broker's message ids: store host and physical offset, in hex (see message_id.py)."""
        offsets = self._head["physical_offset"]
        v4_hosts = self._v4_hosts("store")
        if v4_hosts is not None:
            raw = np.stack((v4_hosts, offsets.view(np.uint64)), axis=1)
            return equal_sized_array(
                np.take(_HEX, raw.view(np.uint16)), 32, self.count, pa.string()
            )
        hosts = self._slices(*self._hosts["store"])
        ids = [
            (host + int(offset).to_bytes(8, "big")).hex().upper()
            for host, offset in zip(hosts, offsets.tolist(), strict=True)
        ]
        return pa.array(ids, pa.string())

    def bodies(self) -> pa.Array:
        """Bodies, decompressed where the sys flag says so."""
        if self._bodies is not None:
            return pa.array(self._bodies, pa.binary())
        compressed = np.flatnonzero(self._head["sys_flag"] & sysflag.COMPRESSED)
        if not len(compressed):
            return slice_array(self._data, *self._spans[:2])
        bodies = self._slices(*self._spans[:2])
        for row in compressed.tolist():
            bodies[row] = decompress(bodies[row], int(self._head["sys_flag"][row]), MAX_BODY_SIZE)
        return pa.array(bodies, pa.binary())

    def parts(self, max_body_bytes: int) -> "Iterator[RecordColumns]":
        """These rows in runs, each ended by the body with which all of the run exceed a size.

        Stored bytes are bounded by who pulls them; only what is compressed can grow here.
        """
        flags = self._head["sys_flag"]
        if not np.any(flags & sysflag.COMPRESSED):
            yield self
            return
        start, size = 0, 0
        bodies: list[bytes] = []
        spans = zip(self._spans[0].tolist(), self._spans[1].tolist(), flags.tolist(), strict=True)
        for row, (begin, end, flag) in enumerate(spans, 1):
            bodies.append(decompress(self._data[begin:end], flag, MAX_BODY_SIZE))
            size += len(bodies[-1])
            if size >= max_body_bytes:
                yield self._run(start, row, bodies)
                bodies, start, size = [], row, 0
        if bodies:
            yield self._run(start, self.count, bodies)

    def _run(self, start: int, end: int, bodies: list[bytes]) -> "RecordColumns":
        run = self.part(start, end)
        run._bodies = bodies
        return run

    def message_types(self) -> pa.Array:
        """normal, lite, priority, fifo, delay or transaction, from what the record still tells.

        Of several the one named last counts (Apache: TopicMessageType.parseFromMessageProperty).
        """
        kinds: np.ndarray = np.zeros(self.count, dtype=np.int8)
        for name, kind in _KIND_PROPERTIES:
            present = self.properties.has(name)
            if present is not None:
                kinds[present] = _KINDS.index(kind)
        committed = self._head["sys_flag"] & sysflag.TRANSACTION_MASK == sysflag.TRANSACTION_COMMIT
        kinds[committed] = _KINDS.index("transaction")
        if not kinds.any():
            return repeated_texts(_KINDS[:1], self.count)
        return pa.array(_KINDS, pa.string()).take(pa.array(kinds))

    def deliver_timestamps(self) -> pa.Array:
        """Return the time at which a message with an arbitrary time was due: what the broker made of it, else what was asked for.

        Messages of delay levels lose their level when they are delivered.
        """
        if not any(self.properties.has(n) is not None for n in _DUE):
            return pa.nulls(self.count, pa.timestamp("us", tz="UTC"))
        due = self.properties.column(properties.TIMER_OUT_MS)
        asked = self.properties.column(properties.TIMER_DELIVER_MS)
        texts = pc.coalesce(due, asked)
        numbers = pc.if_else(pc.match_substring_regex(texts, "^[0-9]{1,15}$"), texts, None)
        return pc.multiply(numbers.cast(pa.int64()), 1000).view(pa.timestamp("us", tz="UTC"))


class RecordDecoder:
    """Makes batches of one schema for one queue.

    Args:
        schema: columns of values/schema.py in any order; batches have exactly this Arrow schema.
        topic: what all records have, where that is known; None: each record's own is read.
        broker_name: the broker they lie on; None: not known.
        tags: exact tags to keep; empty keeps all. (The broker filters by hash codes only.)
        reserved: property names that stay out of the `properties` map.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        topic: str | None,
        broker_name: str | None,
        tags: Sequence[str] = (),
        reserved: frozenset[str] = frozenset(),
    ) -> None:
        self._schema = schema
        self._topic = topic
        self._broker_name = broker_name
        self._tags = list(tags)
        self._reserved = reserved

    def reads(self, column: str) -> bool:
        """Return True if a column is asked for."""
        return column in self._schema.names

    def decode(self, records: RecordColumns) -> pa.RecordBatch:
        """All rows of `records`, save those of other tags."""
        columns = []
        for field in self._schema:
            column = self._column(field.name, records)
            columns.append(column if column.type == field.type else column.cast(field.type))
        if columns:
            batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        else:
            batch = pa.RecordBatch.from_struct_array(pa.array([{}] * records.count, pa.struct([])))
        if self._tags:
            chosen_rows = pc.is_in(
                records.properties.column(properties.TAGS), pa.array(self._tags, pa.string())
            )
            batch = batch.filter(chosen_rows)
        return batch

    def _column(self, name: str, records: RecordColumns) -> pa.Array:
        if name in _FIELDS:
            return records.ints(_FIELDS[name])
        if name in _PROPERTIES:
            return records.properties.column(_PROPERTIES[name])
        if name in _MADE:
            return _MADE[name](records)
        match name:
            case "topic":
                return self._topics(records)
            case "broker_name":
                if self._broker_name is None:
                    return pa.nulls(records.count, pa.string())
                return repeated_texts([self._broker_name], records.count)
            case "properties":
                return records.properties.maps(without=self._reserved)
            case _:
                raise AssertionError(f"column {name} has no source")

    def _topics(self, records: RecordColumns) -> pa.Array:
        if self._topic is not None:
            return repeated_texts([self._topic], records.count)
        codes, topics = records.topics()
        if len(topics) == 1:
            return repeated_texts(topics, records.count)
        return pa.array(topics, pa.string()).take(pa.array(codes))


_DUE = (properties.TIMER_OUT_MS, properties.TIMER_DELIVER_MS)
_KINDS = ("normal", "lite", "priority", "fifo", "delay", "transaction")
_FIELDS = {
    "queue_id": "queue_id",
    "queue_offset": "queue_offset",
    "flag": "flag",
    "sys_flag": "sys_flag",
    "body_crc": "body_crc",
    "reconsume_times": "reconsume_times",
    "commit_log_offset": "physical_offset",
    "store_size": "size",
}
_MADE: dict[str, Callable[[RecordColumns], pa.Array]] = {
    "body": RecordColumns.bodies,
    "msg_id": RecordColumns.message_ids,
    "key": lambda records: records.keys()[1],
    "keys": lambda records: records.keys()[0],
    "born_timestamp": lambda records: records.timestamps("born"),
    "store_timestamp": lambda records: records.timestamps("stored"),
    "born_host": lambda records: records.hosts("born"),
    "store_host": lambda records: records.hosts("store"),
    "message_type": RecordColumns.message_types,
    "deliver_timestamp": RecordColumns.deliver_timestamps,
}
_KIND_PROPERTIES = (
    (properties.LITE_TOPIC, "lite"),
    (properties.PRIORITY, "priority"),
    (properties.SHARDING_KEY, "fifo"),
    (properties.DELAY, "delay"),
    (properties.TIMER_OUT_MS, "delay"),
    (properties.TIMER_DELIVER_MS, "delay"),
    (properties.TIMER_DELAY_SEC, "delay"),
    (properties.TIMER_DELAY_MS, "delay"),
    (properties.TRAN_MSG, "transaction"),  # a half message
)
_PROPERTIES = {
    "uniq_key": properties.UNIQ_KEY,
    "tags": properties.TAGS,
    "message_group": properties.SHARDING_KEY,
    "dlq_origin_topic": properties.DLQ_ORIGIN_TOPIC,
    "dlq_origin_msg_id": properties.DLQ_ORIGIN_MESSAGE_ID,
}
