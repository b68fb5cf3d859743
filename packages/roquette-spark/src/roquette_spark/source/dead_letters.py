"""Dead letters as a frame: where each came from, how often it was tried, and what is known of its error.

RocketMQ itself notes the origin topic (RETRY_TOPIC, DLQ_ORIGIN_TOPIC), the first message id (ORIGIN_MESSAGE_ID,
DLQ_ORIGIN_MESSAGE_ID), the count of tries and the producer's host. Errors and versions are there if applications put
them into properties.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from roquette.errors import RouteNotFound
from roquette.message.names import DLQ_PREFIX, TBW102, dlq_topic
from roquette.message.properties import (
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    SYSTEM,
)
from roquette_spark.source.queues import queue_bounds, reader_of
from roquette_spark.values.offsets import Offsets, encode_offsets

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CLUSTER_COLUMNS: Final = (
    *("group", "origin_topic", "error", "version", "tags", "born_host", "reconsume_times", "day"),
)
_MOST_CLUSTERS: Final = 200
_ERROR_SIZE: Final = 160


@dataclass(frozen=True, slots=True)
class Letters:
    """The dead-letter topics, and the range of each queue that a run looks at.

    Attributes:
        counts: messages by topic.
    """

    namesrv: str
    counts: dict[str, int]
    start: Offsets
    end: Offsets

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def find_dlq_topics(namesrv: str, groups: Sequence[str]) -> Letters:
    """The dead-letter topics of these groups, or all of them, as they are now.

    Raises:
        RouteNotFound: a named group has none.
    """
    if groups:
        topics = [dlq_topic(group) for group in groups]
    else:
        topics = [name for name in _all_topics(namesrv) if name.startswith(DLQ_PREFIX)]
    counts: dict[str, int] = {}
    start: Offsets = {}
    end: Offsets = {}
    for topic in topics:
        try:
            first, last = queue_bounds(namesrv, [topic])
        except RouteNotFound:
            group = topic.removeprefix(DLQ_PREFIX)
            raise RouteNotFound(topic, f"dlq: group {group} has no dead letters") from None
        start |= first
        end |= last
        counts[topic] = sum(last[queue] - first[queue] for queue in first)
    return Letters(namesrv, dict(sorted(counts.items())), start, end)


def _all_topics(namesrv: str) -> list[str]:
    return reader_of(namesrv, [TBW102]).topics()


def own_properties() -> "Column":
    """Column properties without those that are RocketMQ's."""
    from pyspark.sql import functions as f

    names = f.array(*[f.lit(name) for name in sorted(SYSTEM)])
    return f.map_filter("properties", lambda name, value: ~f.array_contains(names, name))


def letters_of(
    spark: "SparkSession",
    topics: Letters,
    error_properties: Sequence[str],
    version_properties: Sequence[str],
) -> "DataFrame":
    """One row for each dead letter; its body is text, undecodable bytes replaced, and `raw` as it is."""
    from pyspark.sql import functions as f

    frame = (
        spark.read.format("rocketmq")
        .options(namesrvAddr=topics.namesrv, subscribe=",".join(topics.counts))
        .options(
            startingOffsets=json.dumps(encode_offsets(topics.start)),
            endingOffsets=json.dumps(encode_offsets(topics.end)),
        )
        .options(includeSystemProperties="true")
        .load()
    )
    properties = f.col("properties")
    return frame.select(
        f.concat_ws("/", "topic", "broker_name", "queue_id", "queue_offset").alias("id"),
        f.substring("topic", len(DLQ_PREFIX) + 1, 255).alias("group"),
        f.coalesce(properties[DLQ_ORIGIN_TOPIC], properties[RETRY_TOPIC]).alias("origin_topic"),
        f.coalesce(properties[DLQ_ORIGIN_MESSAGE_ID], properties[ORIGIN_MESSAGE_ID], "uniq_key")
        .alias("origin_msg_id"),
        _error(error_properties).alias("error"),
        _first(version_properties).alias("version"),
        "tags",
        "key",
        "keys",
        f.decode("body", "UTF-8").alias("body"),
        f.col("body").alias("raw"),
        "properties",
        "message_group",
        "flag",
        "reconsume_times",
        "born_host",
        "born_timestamp",
        "store_timestamp",
        f.to_date("store_timestamp").alias("day"),
    )  # fmt: skip


def _first(names: Sequence[str]) -> "Column":
    from pyspark.sql import functions as f

    return f.coalesce(*[f.col("properties")[name] for name in names], f.lit(None).cast("string"))


def _error(names: Sequence[str]) -> "Column":
    """The first line of an error, without what differs from message to message: numbers and ids."""
    from pyspark.sql import functions as f

    line = f.regexp_extract(_first(names), r"^\s*([^\r\n]*)", 1)
    line = f.regexp_replace(line, r"\b(0x)?[0-9a-fA-F]{8,}(-[0-9a-fA-F]{4,})*\b|\d+", "#")
    return f.when(line != "", f.substring(line, 1, _ERROR_SIZE))


def clusters_of(letters: "DataFrame", by: Sequence[str]) -> list[dict[str, Any]]:
    """The largest groups of letters that have these columns in common, with counts, times and a sample."""
    from pyspark.sql import functions as f

    rows = (
        letters.groupBy(*by)
        .agg(
            f.count(f.lit(1)).alias("messages"),
            f.min("store_timestamp").alias("first"),
            f.max("store_timestamp").alias("last"),
            f.max("reconsume_times").alias("tries"),
            f.min(f.struct("store_timestamp", "id")).alias("sample"),
        )
        .orderBy(f.desc("messages"), *by)
        .limit(_MOST_CLUSTERS)
        .collect()
    )
    found = []
    for row in rows:
        values = row.asDict()
        values["sample"] = values["sample"]["id"]
        found.append({**{name: values[name] for name in by}, **values})
    return found
