"""The questions of `traffic` as Spark queries; every answer is small, bounded and a list of plain dicts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = (
    "topic string, broker_name string, queue_id int, key string, message_group string, "
    "store_size int, born_timestamp timestamp, store_timestamp timestamp, tags string"
)
TRACE_COLUMNS = "body string, store_timestamp timestamp"
MOST_QUEUES = 10_000
MOST_TOPICS = 1_000
MOST_BUCKETS = 2_000  # of one topic's line in the plot
MOST_GROUPS = 10_000
MOST_TAGS = 50  # of one topic
_SHARES = (0.5, 0.95, 0.99)


def slim(messages: "DataFrame", bucket_s: int) -> "DataFrame":
    """Return what the questions need of each message. The latency is from the producer's clock to the broker's."""
    from pyspark.sql import functions as F

    stored = F.unix_millis("store_timestamp")
    return messages.select(
        "topic",
        F.coalesce("broker_name", F.lit("")).alias("broker_name"),
        "queue_id",
        F.coalesce("message_group", "key").alias("key"),
        F.col("tags").alias("tag"),
        F.col("store_size").cast("long").alias("size"),
        stored.alias("stored_ms"),
        (stored - F.unix_millis("born_timestamp")).alias("latency_ms"),
        (F.floor(stored / (bucket_s * 1000)) * bucket_s * 1000).cast("long").alias("bucket_ms"),
    )


def by_topic(frame: "DataFrame") -> list[dict[str, Any]]:
    """Messages, bytes, span and latency of each topic, the busiest first."""
    return _rows(_totals(frame, ["topic"]).orderBy("messages", ascending=False), MOST_TOPICS)


def by_broker(frame: "DataFrame") -> list[dict[str, Any]]:
    return _rows(_totals(frame, ["broker_name"]).orderBy("broker_name"), MOST_TOPICS)


def by_queue(frame: "DataFrame") -> list[dict[str, Any]]:
    """Messages and bytes of each queue that has any."""
    from pyspark.sql import functions as F

    queues = frame.groupBy("topic", "broker_name", "queue_id").agg(
        F.count("*").alias("messages"), F.sum("size").alias("bytes")
    )
    return _rows(queues.orderBy("topic", "broker_name", "queue_id"), MOST_QUEUES)


def over_time(frame: "DataFrame", topics: Sequence[str]) -> list[dict[str, Any]]:
    """Messages and bytes by topic and bucket of time, of these topics."""
    from pyspark.sql import functions as F

    chosen = frame.where(F.col("topic").isin(list(topics)))
    buckets = chosen.groupBy("topic", "bucket_ms").agg(
        F.count("*").alias("messages"), F.sum("size").alias("bytes")
    )
    return _rows(buckets.orderBy("bucket_ms", "topic"), MOST_BUCKETS * max(1, len(topics)))


def hot_keys(frame: "DataFrame", count: int) -> list[dict[str, Any]]:
    """The `count` commonest keys (message groups, where there are any) of each topic."""
    return _commonest(frame, "key", count)


def by_tag(frame: "DataFrame") -> list[dict[str, Any]]:
    """Messages and bytes of each topic's commonest tags; those without a tag are not there."""
    return _commonest(frame, "tag", MOST_TAGS)


def _commonest(frame: "DataFrame", column: str, count: int) -> list[dict[str, Any]]:
    """Of each topic the `count` values of a column that most messages have, ranked from 1."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    values = (
        frame.where(F.col(column).isNotNull())
        .groupBy("topic", column)
        .agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
    )
    order = Window.partitionBy("topic").orderBy(F.desc("messages"), column)
    ranked = values.withColumn("rank", F.row_number().over(order)).where(F.col("rank") <= count)
    return _rows(ranked.orderBy("topic", "rank"), MOST_TOPICS * count)


def _totals(frame: "DataFrame", names: list[str]) -> "DataFrame":
    from pyspark.sql import functions as F

    found = frame.groupBy(*names).agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.max("size").alias("largest"),
        F.min("stored_ms").alias("first_ms"),
        F.max("stored_ms").alias("last_ms"),
        F.percentile_approx("latency_ms", list(_SHARES), 1000).alias("latency"),
    )
    return _named(found, "latency")


def _named(frame: "DataFrame", *columns: str) -> "DataFrame":
    """With columns of their own for the shares of percentiles."""
    from pyspark.sql import functions as F

    named = {
        f"{column}_p{int(share * 100)}_ms": F.element_at(column, place + 1)
        for column in columns
        for place, share in enumerate(_SHARES)
    }
    return frame.withColumns(named).drop(*columns)


def trace_events(messages: "DataFrame") -> "DataFrame":
    """Trace messages as events, one row each, with the fields that all kinds have by name, null where one has not.

    A message holds events that end with 0x02, their fields parted by 0x01 (Apache: TraceDataEncoder). Times
    are the clients' own clocks.
    """
    from pyspark.sql import functions as F

    event = F.explode(F.split("body", "\u0002")).alias("event")
    fields = messages.select(event).select(F.split("event", "\u0001").alias("f"))
    kind = F.col("f")[0]

    def pick(**places: int) -> Any:
        """The field at a place that depends on the kind."""
        found = F.lit(None).cast("string")
        for name, place in places.items():
            found = F.when(kind == name, F.get("f", F.lit(place))).otherwise(found)
        return found

    return fields.where(kind.isin("Pub", "SubBefore", "SubAfter")).select(
        kind.alias("kind"),
        pick(Pub=1, SubBefore=1, SubAfter=7).try_cast("long").alias("at_ms"),
        pick(Pub=3, SubBefore=3, SubAfter=8).alias("client_group"),
        pick(Pub=4).alias("topic"),
        pick(Pub=5, SubBefore=5, SubAfter=2).alias("msg_id"),
        pick(SubBefore=4, SubAfter=1).alias("request_id"),
        pick(SubBefore=6).try_cast("int").alias("retry"),
        pick(Pub=10, SubAfter=3).try_cast("long").alias("cost_ms"),
        F.when(kind == "SubAfter", F.get("f", F.lit(4)) == "true")
        .when(kind == "Pub", F.get("f", F.when(F.size("f") == 13, 12).otherwise(13)) == "true")
        .alias("success"),
    )


def sends(events: "DataFrame") -> list[dict[str, Any]]:
    """By topic and producer group: sends, failures, and what a send cost."""
    from pyspark.sql import functions as F

    found = (
        events.where("kind = 'Pub'")
        .groupBy("topic", "client_group")
        .agg(
            F.count("*").alias("sends"),
            F.count_if(~F.col("success")).alias("failed"),
            F.percentile_approx("cost_ms", list(_SHARES), 1000).alias("cost"),
        )
    )
    return _rows(_named(found, "cost").orderBy("topic", "client_group"), MOST_GROUPS)


def end_to_end(events: "DataFrame") -> list[dict[str, Any]]:
    """By topic and consumer group: from the send to the begin of the first consumption, and what that took."""
    from pyspark.sql import functions as F

    sent = (
        events.where("kind = 'Pub'")
        .groupBy("msg_id")
        .agg(F.min("at_ms").alias("sent_ms"), F.min("topic").alias("topic"))
    )
    begun = events.where("kind = 'SubBefore'").select(
        "msg_id", "request_id", "client_group", "at_ms", "retry"
    )
    ended = (
        events.where("kind = 'SubAfter'")
        .groupBy("msg_id", "request_id")
        .agg(F.max("cost_ms").alias("cost_ms"), F.min("success").alias("success"))
    )
    consumed = begun.join(ended, ["msg_id", "request_id"], "left")
    each = consumed.groupBy("msg_id", "client_group").agg(
        F.min("at_ms").alias("begun_ms"),
        F.count("*").alias("deliveries"),
        F.max("cost_ms").alias("cost_ms"),
        F.count_if(~F.col("success")).alias("failed"),
    )
    both = each.join(sent, "msg_id").withColumn("wait_ms", F.col("begun_ms") - F.col("sent_ms"))
    found = both.groupBy("topic", "client_group").agg(
        F.count("*").alias("messages"),
        F.sum("deliveries").alias("deliveries"),
        F.sum("failed").alias("failed"),
        F.percentile_approx("wait_ms", list(_SHARES), 1000).alias("wait"),
        F.percentile_approx("cost_ms", list(_SHARES), 1000).alias("cost"),
    )
    return _rows(_named(found, "wait", "cost").orderBy("topic", "client_group"), MOST_GROUPS)


def _rows(frame: "DataFrame", most: int) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.limit(most).collect()]
