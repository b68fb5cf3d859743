"""Records and a queue reader without a cluster, for the tests of the Spark room."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any

from pyspark.sql import types
from tests.records import encode_record

from roquette.client.calls import EVERYTHING, Pulled, PullFilter
from roquette.errors import RouteNotFound
from roquette.message.message import MessageQueue
from roquette.message.message_id import host_bytes
from roquette.message.properties import encode_properties
from roquette.message.record import decode_record
from roquette_spark.values.schema import COLUMNS

_TYPES = {
    "string": types.StringType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "binary": types.BinaryType(),
    "timestamp": types.TimestampType(),
    "array<string>": types.ArrayType(types.StringType()),
    "map<string,string>": types.MapType(types.StringType(), types.StringType()),
}

BORN_HOST = host_bytes("10.0.0.7", 50000)
STORE_HOST = host_bytes("127.0.0.1", 10911)


def struct_of(*names: str, **other: str) -> types.StructType:
    """A Spark schema of our columns; keyword arguments give a column another type."""
    kinds = {name: COLUMNS[name] for name in names} | other
    return types.StructType([types.StructField(name, _TYPES[kind]) for name, kind in kinds.items()])


def make_record(
    queue_offset: int,
    body: bytes = b"hello",
    properties: dict[str, str] | bytes | None = None,
    *,
    topic: str = "T",
    queue_id: int = 3,
    sys_flag: int = 0,
    born_host: bytes = BORN_HOST,
    store_host: bytes = STORE_HOST,
    physical_offset: int | None = None,
    later_ms: int = 0,
) -> bytes:
    """One stored record; unless it is given, its physical offset is 1000 times its queue offset."""
    raw = (
        properties
        if isinstance(properties, bytes)
        else encode_properties(properties or {}).encode()
    )
    return encode_record(
        topic.encode(),
        queue_id,
        7,
        queue_offset,
        queue_offset * 1000 if physical_offset is None else physical_offset,
        sys_flag,
        1_700_000_000_000 + queue_offset,
        born_host,
        1_700_000_000_100 + queue_offset + later_ms,
        store_host,
        2,
        0,
        body,
        raw,
    )


def make_log(parts: list[dict[str, Any]], base: int = 0) -> tuple[bytes, list[int]]:
    """Records one after the other, made of `make_record`'s arguments, and where each stands."""
    data, places = b"", []
    for number, part in enumerate(parts):
        places.append(base + len(data))
        data += make_record(**{"queue_offset": number} | part, physical_offset=places[-1])
    return data, places


class ListReader:
    """A `QueueReader` over lists of records; the index of a record is its offset."""

    def __init__(
        self,
        records: dict[MessageQueue, list[bytes]],
        *,
        oldest: int = 0,
        per_pull: int = 3,
        tells_lives: bool = False,
    ) -> None:
        self.records = records
        self.oldest = oldest
        self.per_pull = per_pull
        self.tells_lives = tells_lives  # answers messages_at: offsets carry what was seen
        self.looks = 0  # round trips of messages_at
        self.asked = 0
        self.committed: dict[MessageQueue, int] = {}
        self.replicas: set[MessageQueue] = set()
        self.closed: set[MessageQueue] = set()  # producers are told not to send there
        self.hidden: set[MessageQueue] = set()  # no route tells of them, their broker knows them
        self.wanted: list[PullFilter] = []

    def topics(self) -> list[str]:
        return sorted({queue.topic for queue in self.records})

    def queues(self, topic: str) -> list[MessageQueue]:
        there = self.records.keys() - self.hidden
        found = sorted(queue for queue in there if queue.topic == topic)
        if not found:
            raise RouteNotFound(topic)
        return found

    def closed_queues(self, topics: Iterable[str]) -> set[MessageQueue]:
        return {queue for queue in self.closed if queue.topic in set(topics)}

    def _records(self, queue: MessageQueue) -> list[bytes]:
        if queue not in self.records:
            raise RouteNotFound(queue.topic)
        return self.records[queue]

    def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        return {queue: min(self.oldest, len(self._records(queue))) for queue in queues}

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        found = {queue: len(self._records(queue)) for queue in queues}
        self.asked += len(found)
        return found

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        times = (decode_record(each, 0, False).store_timestamp_ms for each in self.records[queue])
        return sum(1 for _ in takewhile(lambda stored_ms: stored_ms < timestamp_ms, times))

    def committed_offset(self, queue: MessageQueue) -> int | None:
        return self.committed.get(queue)

    def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        self.committed |= offsets

    def from_replica(self, queue: MessageQueue) -> bool:
        return queue in self.replicas

    def pull(
        self, queue: MessageQueue, offset: int, max_count: int, wanted: PullFilter = EVERYTHING
    ) -> Pulled:
        self.wanted.append(wanted)
        records = self._records(queue)
        if offset < self.oldest:
            return Pulled(b"", self.oldest, self.oldest, len(records))
        end = min(offset + min(max_count, self.per_pull), len(records))
        found = records[offset:end]
        reached = min(offset, len(records)) + len(found)
        return Pulled(b"".join(found), reached, self.oldest, len(records))

    def messages_at(self, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, bytes]:
        self.looks += 1
        return {
            queue: self.records[queue][offset]
            for queue, offset in places.items()
            if self.tells_lives
            and queue not in self.replicas
            and self.oldest <= offset < len(self.records.get(queue, ()))
        }

    def scan(
        self, queue: MessageQueue, start: int, end: int, wanted: PullFilter = EVERYTHING
    ) -> Iterator[Pulled]:
        offset = start
        while offset < end:
            pulled = self.pull(queue, offset, 1024, wanted)
            yield pulled
            if pulled.next_offset <= offset:
                return
            offset = pulled.next_offset
