"""`format("rocketmq_offsets")`: where queues end and where groups are, as a table. Each action asks the brokers again.

Spark finds it through the module `pyspark_rocketmq_offsets`. Each broker is one partition.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from roquette.base.options import REQUIRED, option
from roquette.client.config import security_of
from roquette.errors import BrokerError, ClientError, ConfigError, RequestTimeout
from roquette.message.message import unread
from roquette.message.names import is_system_group, is_system_topic
from roquette_spark.source.refused import RefusedStream, TaskReader
from roquette_spark.values.errors import plain_errors
from roquette_spark.values.options import NAMES, PATTERN, AccessOptions, checked_options
from roquette_spark.values.schema import arrow_schema
from roquette_spark.workers.inspector import (
    BrokerAddress,
    ClusterInspector,
    wanted_topics,
)

SOURCE = "rocketmq_offsets"
ALL_GROUPS = "*"
COLUMNS = {
    "cluster": "string",
    "broker_name": "string",
    "topic": "string",
    "queue_id": "int",
    "group": "string",
    "min_offset": "bigint",
    "max_offset": "bigint",
    "committed_offset": "bigint",
    "lag": "bigint",
    "last_store_timestamp": "timestamp",
    "last_consume_timestamp": "timestamp",
}
_BATCH = 8_000  # rows of one Arrow batch


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsOptions(AccessOptions):
    """The options of one read."""

    namesrv_addr: str = option(REQUIRED, "name servers", also=["nameServer"])
    topics: tuple[str, ...] = option(
        (), "topics, with commas", name="subscribe", also=["topic"], kind=NAMES, unset="all"
    )
    topic_pattern: str = option(
        "", "a regular expression for whole topic names", name="subscribePattern", kind=PATTERN
    )
    groups: tuple[str, ...] = option(
        (), "`*`, or groups with commas", name="group", kind=NAMES, unset="queues only"
    )
    include_system_topics: bool = option(False, "topics of RocketMQ's own, too")
    timeout_ms: int = option(30_000, "of each answer", least=1)

    def wants(self, topic: str) -> bool:
        """Return True if a topic is asked for. A system's topic must be named, or asked for with all."""
        if self.topics:
            return topic in self.topics
        if not self.include_system_topics and is_system_topic(topic):
            return False
        return not self.topic_pattern or re.fullmatch(self.topic_pattern, topic) is not None


def offsets_options(options: Mapping[str, str]) -> OffsetsOptions:
    """Check the options Spark hands over.

    Raises:
        ConfigError: an option is unknown, missing or malformed; the text names it and what to do.
    """
    found = checked_options(OffsetsOptions, SOURCE, options)
    found.check_access()
    if found.topics and found.topic_pattern:
        raise ConfigError(f"{SOURCE}: give subscribe or subscribePattern, not both")
    return found


def broker_rows(
    cluster: ClusterInspector,
    broker: BrokerAddress,
    brokers: tuple[BrokerAddress, ...],
    options: OffsetsOptions,
) -> Iterator[dict[str, Any]]:
    """The rows of one broker: each queue by itself, and once for each group that is asked for.

    A group named in the options has a row for every queue; of all groups, those that have committed a place in
    the topic. Where a group has no place in a queue, all of the queue still lies before it.
    """
    topics = wanted_topics(cluster.topics_of(broker), options.wants, brokers)
    states = cluster.queue_states(broker, topics)
    committed = cluster.committed_offsets(broker) if options.groups else {}
    groups_of = _groups_by_topic(committed, topics, options)
    times = cluster.consume_times(
        broker, sorted({g for found in groups_of.values() for g in found})
    )
    for state in states:
        queue = state.queue
        row: dict[str, Any] = {
            "cluster": broker.cluster,
            "broker_name": broker.broker_name,
            "topic": queue.topic,
            "queue_id": queue.queue_id,
            "group": None,
            "min_offset": state.min_offset,
            "max_offset": state.max_offset,
            "committed_offset": None,
            "lag": None,
            "last_store_timestamp": _micros(state.last_store_ms),
            "last_consume_timestamp": None,
        }
        yield row
        for group in groups_of.get(queue.topic, ()):
            place_of = committed.get((group, queue.topic), {}).get(queue.queue_id)
            yield row | {
                "group": group,
                "committed_offset": place_of,
                "lag": unread(place_of, state.min_offset, state.max_offset),
                "last_consume_timestamp": _micros(times.get((group, queue), 0)),
            }


def _groups_by_topic(
    committed: Mapping[tuple[str, str], object], topics: Iterable[str], options: OffsetsOptions
) -> dict[str, list[str]]:
    if ALL_GROUPS not in options.groups:
        return {topic: list(options.groups) for topic in topics}
    found: dict[str, list[str]] = {}
    for group, topic in sorted(committed):
        if options.include_system_topics or not is_system_group(group):
            found.setdefault(topic, []).append(group)
    return found


def _micros(milliseconds: int) -> int | None:
    return milliseconds * 1000 if milliseconds > 0 else None


class OffsetsDataSource(DataSource):
    """Options: OffsetsOptions; columns: COLUMNS. Batch only: a table of now has no stream."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> str:
        """The columns when the user gives no schema. Raises ConfigError for wrong options."""
        with plain_errors():
            offsets_options(self.options)
        return ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())

    def reader(self, schema: StructType) -> "OffsetsReader":
        with plain_errors():
            for field in schema.fields:
                if COLUMNS.get(field.name) != field.dataType.simpleString():
                    raise ConfigError(
                        f"{SOURCE}: no column {field.name} {field.dataType.simpleString()}; known: "
                        + ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
                    )
            return OffsetsReader(schema, offsets_options(self.options))

    def streamReader(self, schema: StructType) -> RefusedStream:
        """There is none, and the reader says so."""
        what = f"{SOURCE}: there is no stream of offsets: read a table again, with spark.read"
        return RefusedStream(ConfigError(what))


class OffsetsReader(TaskReader):
    """Finds the brokers in the driver; the work of a task is to ask one of them."""

    def _inspector(self) -> ClusterInspector:
        options, security = self._options, security_of(*self._options.access)
        return ClusterInspector(
            options.namesrv_addr, timeout_ms=options.timeout_ms, security=security
        )

    def work(self) -> list[tuple[BrokerAddress, tuple[BrokerAddress, ...]]]:
        options, inspector = self._options, self._inspector()
        try:
            brokers = tuple(inspector.brokers())
            there = inspector.topics() if options.topics else ()
        except (ClientError, RequestTimeout) as error:
            raise ConfigError(
                f"{SOURCE}: no name server answers ({error}): is one running at {options.namesrv_addr}?"
            ) from None
        if missing := sorted(set(options.topics) - set(there)):
            raise ConfigError(f"{SOURCE}: no topic {', '.join(missing)}: see 'roquette topic list'")
        return [(broker, brokers) for broker in brokers]

    def batches(
        self, work: tuple[BrokerAddress, tuple[BrokerAddress, ...]]
    ) -> Iterator[pa.RecordBatch]:
        broker, brokers = work
        try:
            rows = list(broker_rows(self._inspector(), broker, brokers, self._options))
        except ClientError as error:
            kind = "refuses" if isinstance(error, BrokerError) else "does not answer"
            raise ClientError(
                f"{SOURCE}: broker {broker.broker_name} {kind}: {' '.join(str(error).split())}"
            ) from None
        schema = arrow_schema(self._schema)
        for start in range(0, len(rows), _BATCH):
            yield pa.RecordBatch.from_pylist(rows[start : start + _BATCH], schema=schema)
