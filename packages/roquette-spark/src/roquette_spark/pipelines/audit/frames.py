"""The checks of `audit` as Spark queries. Each gives an exact count of exceptions and the first few of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.message_rows import PLACE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COLUMNS = (
    "topic string, broker_name string, queue_id int, queue_offset bigint, uniq_key string, key string, "
    "message_group string, properties map<string,string>, body binary, body_crc int, store_size int, "
    "store_timestamp timestamp, commit_log_offset bigint, tags string"
)
QUEUE = PLACE[:2]
STORED_MS = "stored_ms"
MOST_QUEUES = 100_000
_OP_TAG = "d"


@dataclass(slots=True)
class AuditCheck:
    """One check: how much was looked at, how many exceptions there are, and some of them.

    Attributes:
        skipped: why it was not made; "" when it was.
    """

    name: str
    meaning: str
    looked_at: int = 0
    exceptions: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)
    skipped: str = ""

    @property
    def ok(self) -> bool:
        """Made, and without exceptions; or not asked for."""
        return not self.exceptions

    def note(self, exceptions: int, example: Mapping[str, Any], most: int) -> None:
        """One thing more was looked at; of those with exceptions the first `most` are kept."""
        self.looked_at += 1
        self.exceptions += exceptions
        if exceptions and len(self.examples) < most:
            self.examples.append(dict(example))


FIELDS = ("key", "uniq_key", "message_group", "tags")


def check_field(where: str) -> None:
    """Raises ConfigError for what is no text of a message, in the words of `field_of`."""
    kind, _, name = where.partition(":")
    if where not in FIELDS and not (kind in ("property", "json") and name):
        raise ConfigError(
            f"audit: {where!r} is none of {', '.join(FIELDS)}, property:NAME, json:FIELD"
        )


def field_of(where: str) -> "Column":
    """A text of a message: of FIELDS, `property:NAME` or `json:FIELD`. Raises ConfigError if it is none."""
    from pyspark.sql import functions as F

    check_field(where)
    kind, _, name = where.partition(":")
    if kind == "property":
        return F.col("properties")[name]
    return F.get_json_object(F.col("body").cast("string"), f"$.{name}") if name else F.col(where)


def slim(messages: "DataFrame", id_field: str, order_key: str, sequence: str) -> "DataFrame":
    """Return what the checks need of each message."""
    from pyspark.sql import functions as F

    nothing = F.lit(None).cast("string")
    group = field_of(order_key) if order_key else F.coalesce("message_group", "key")
    return messages.select(
        "topic",
        F.coalesce("broker_name", F.lit("")).alias("broker_name"),
        "queue_id",
        "queue_offset",
        field_of(id_field).alias("id"),
        group.alias("order_key"),
        (field_of(sequence) if sequence else nothing).try_cast("bigint").alias("sequence"),
        F.unix_millis("store_timestamp").alias(STORED_MS),
        F.concat_ws(".", F.unix_millis("store_timestamp"), "commit_log_offset").alias("life"),
        F.xxhash64(*PLACE, "body_crc", "store_size").alias("hash"),
    )


def queues_of(messages: "DataFrame") -> list[dict[str, Any]]:
    """By queue: first and last offset, messages, and a fingerprint of what they are (in any order).

    first_message and last_message say which these are, as the source's offsets do: another topic of the same name has others.
    """
    from pyspark.sql import functions as F

    queues = messages.groupBy("topic", "broker_name", "queue_id").agg(
        F.count("*").alias("messages"),
        F.count_distinct("queue_offset").alias("offsets"),
        F.min("queue_offset").alias("first_offset"),
        F.max("queue_offset").alias("last_offset"),
        F.min("stored_ms").alias("first_ms"),
        F.max("stored_ms").alias("last_ms"),
        F.min_by("life", "queue_offset").alias("first_message"),
        F.max_by("life", "queue_offset").alias("last_message"),
        F.hex(F.bit_xor("hash")).alias("fingerprint"),
    )
    return _rows(queues.orderBy("topic", "broker_name", "queue_id"), MOST_QUEUES)


def holes(queues: Sequence[Mapping[str, Any]], most: int) -> AuditCheck:
    """Offsets between a queue's first and last message without a message."""
    check = AuditCheck("holes", "offsets within a queue that have no message")
    for row in queues:
        first, last = row["first_offset"], row["last_offset"]
        missing = last - first + 1 - row["offsets"]
        place = {name: row[name] for name in ("topic", "broker_name", "queue_id")}
        found = {**place, "from_offset": first, "to_offset": last, "missing": missing}
        check.note(missing, found, most)
    return check


def against_manifest(messages: "DataFrame", manifest: "DataFrame", most: int) -> list[AuditCheck]:
    """Lost, sent twice, never meant: ids of messages beside ids of the manifest (columns topic, id, meant).

    A manifest's topic may be null: the id may then be in any of the topics.
    """
    from pyspark.sql import functions as F

    by_topic = manifest.where("topic is not null").limit(1).count() > 0
    on = ["topic", "id"] if by_topic else ["id"]
    meant = manifest.groupBy(*on).agg(F.sum("meant").alias("meant"))
    there = messages.groupBy(*on).agg(
        F.count("*").alias("there"),
        F.min_by(F.struct(*PLACE), F.col("stored_ms")).alias("first"),
    )
    both = meant.join(there, on, "full_outer").fillna(0, ["meant", "there"]).persist()
    try:
        looked_at = meant.count()
        checks = []
        for name, meaning, condition, amount in (
            ("lost", "meant, but not there often enough", "there < meant", "meant - there"),
            (
                "duplicates",
                "there more often than meant",
                "there > meant and meant > 0",
                "there - meant",
            ),
            ("unmeant", "there, but nobody meant it", "meant = 0", "there"),
        ):
            hit = both.where(condition)
            total = hit.agg(F.sum(F.expr(amount))).first()
            count = int(total[0] or 0) if total is not None else 0
            rows = _rows(hit.orderBy(*on), most) if count else []
            checks.append(AuditCheck(name, meaning, looked_at, count, [_flat(row) for row in rows]))
        return checks
    finally:
        both.unpersist()


def repeated_ids(messages: "DataFrame", most: int) -> AuditCheck:
    """Without a manifest: one id in several messages of a topic."""
    from pyspark.sql import functions as F

    check = AuditCheck("duplicates", "one id in several messages of a topic")
    check.looked_at = messages.where("id is not null").count()
    hit = (
        messages.where("id is not null")
        .groupBy("topic", "id")
        .agg(
            F.count("*").alias("there"),
            F.min_by(F.struct(*PLACE), F.col("stored_ms")).alias("first"),
        )
        .where("there > 1")
    )
    return _counted(check, hit, ["topic", "id"], "there - 1", most)


def inversions(messages: "DataFrame", most: int) -> AuditCheck:
    """A message whose sequence is smaller than that of one before it, of the same key and in the same queue."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    ordered = messages.where("order_key is not null and sequence is not null")
    check = AuditCheck(
        "inversions", "a key's messages stand in another order than they were made in"
    )
    check.looked_at = ordered.count()
    before = (
        Window.partitionBy("topic", "broker_name", "queue_id", "order_key")
        .orderBy("queue_offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    hit = ordered.withColumn("highest_before", F.max("sequence").over(before)).where(
        "sequence < highest_before"
    )
    hit = hit.select("topic", *PLACE, "order_key", "sequence", "highest_before")
    return _counted(check, hit, ["topic", *PLACE], "1", most)


def scattered_keys(messages: "DataFrame", most: int) -> AuditCheck:
    """Keys with messages in more than one queue: nothing keeps these in order."""
    from pyspark.sql import functions as F

    keyed = messages.where("order_key is not null")
    check = AuditCheck("scattered", "a key's messages lie in more than one queue")
    found = keyed.groupBy("topic", "order_key").agg(
        F.count_distinct("broker_name", "queue_id").alias("queues"), F.count("*").alias("messages")
    )
    check.looked_at = found.count()
    return _counted(check, found.where("queues > 1"), ["topic", "order_key"], "1", most)


Ends = Mapping[tuple[str, int], int]  # by broker and queue


def against_table(
    topic: str, messages: "DataFrame", table: "DataFrame", most: int, ends: Ends | None = None
) -> tuple[list[AuditCheck], dict[str, int]]:
    """A topic beside a table of it, by place: missing from the table, twice in it, another message there, not in the topic.

    Rows of messages that are older than all of the topic, or of queues that are gone, prove nothing and are no exceptions.

    Args:
        table: as `places_of` gives it.
        ends: of the queues that brokers have, asked after the table's version was settled; None: no broker was asked.

    Returns:
        also how many rows the table has, how many of them are the topic's own, and how many are not proven.
    """
    from pyspark.sql import functions as F

    of_topic = messages.where(F.col("topic") == topic)
    mine = of_topic.select(*PLACE, F.lit(1).alias("in_topic"), F.col("stored_ms").alias("topic_ms"))
    known = of_topic.groupBy("broker_name", "queue_id").agg(
        F.min("queue_offset").alias("lowest"), F.max("queue_offset").alias("highest")
    )
    identified = STORED_MS in table.columns
    by_message = [*PLACE, STORED_MS] if identified else list(PLACE)
    rows = table.groupBy(*by_message).agg(F.count("*").alias("in_table"))
    if not identified:
        rows = rows.withColumn(STORED_MS, F.lit(None).cast("bigint"))
    both = mine.join(rows, list(PLACE), "full_outer").fillna(0, ["in_topic", "in_table"])
    both = both.join(F.broadcast(known), ["broker_name", "queue_id"], "left")
    bounds = [(*queue, end) for queue, end in (ends or {}).items()]
    at_brokers = table.sparkSession.createDataFrame(
        bounds, "broker_name string, queue_id int, broker_end bigint"
    )
    both = both.join(F.broadcast(at_brokers), ["broker_name", "queue_id"], "left").persist()
    other = f"in_topic = 1 and {STORED_MS} != topic_ms"
    extra = "in_topic = 0 and (queue_offset >= lowest and queue_offset <= highest or queue_offset >= broker_end)"
    try:
        looked_at = both.count()
        checks = [
            _counted(
                AuditCheck(name, f"{meaning} (table of {topic})", looked_at),
                both.where(condition).select(F.lit(topic).alias("topic"), *PLACE, "in_table"),
                list(PLACE),
                amount,
                most,
            )
            for name, meaning, condition, amount in (
                ("table_missing", "in the topic, but not in the table", "in_table = 0", "1"),
                ("table_twice", "more than once in the table", "in_table > 1", "in_table - 1"),
                (
                    "table_other",
                    "the table has another message there: the topic was made anew, or is not the table's",
                    other,
                    "in_table",
                ),
                ("table_extra", "in the table, but not in the topic", extra, "in_table"),
            )
        ]
        if not identified:
            checks[2].skipped = "the table has no column store_timestamp"
        sums = both.agg(
            F.sum("in_table").alias("rows"),
            F.sum(F.expr(f"if(in_topic = 1 and not coalesce({other}, false), in_table, 0)")).alias(
                "proven"
            ),
            F.sum(F.expr(f"if(in_topic = 0 and not coalesce({extra}, false), in_table, 0)")).alias(
                "unproven"
            ),
        ).collect()[0]
        return checks, {name: int(count or 0) for name, count in sums.asDict().items()}
    finally:
        both.unpersist()


def unconsumed(
    offsets: Sequence[Mapping[str, Any]], groups: Sequence[str], most: int
) -> AuditCheck:
    """Queues in which a group has still to consume; `offsets` are rows of rocketmq_offsets."""
    check = AuditCheck("unconsumed", f"not yet consumed by {', '.join(groups)}")
    names = ("group", "topic", *QUEUE, "committed_offset", "max_offset", "lag")
    for row in offsets:
        if row["group"] is not None:
            check.note(row["lag"], {name: row[name] for name in names}, most)
    return check


def unfinished(
    halves: "DataFrame", ops: "DataFrame", topics: Sequence[str], before_ms: int, most: int
) -> AuditCheck:
    """Half messages that no op message ends, of these topics, stored before a moment.

    An op message has the tag `d` and, in its body, the half queue's offsets it ends, with commas (Apache:
    TransactionalMessageBridge). Both topics have one queue on each broker.
    """
    from pyspark.sql import functions as F

    at = F.explode(F.split(F.col("body").cast("string"), ",")).alias("ended")
    ended = (
        ops.where(F.col("tags") == _OP_TAG)
        .select(F.coalesce("broker_name", F.lit("")).alias("broker_name"), at)
        .select("broker_name", F.trim("ended").try_cast("bigint").alias("queue_offset"))
        .where("queue_offset is not null")
        .distinct()
    )
    open_halves = halves.select(
        F.coalesce("broker_name", F.lit("")).alias("broker_name"),
        "queue_offset",
        "uniq_key",
        F.col("properties")["REAL_TOPIC"].alias("topic"),
        F.unix_millis("store_timestamp").alias("stored_ms"),
    )
    if topics:
        open_halves = open_halves.where(F.col("topic").isin(list(topics)))
    check = AuditCheck("unfinished", "transactions that were neither committed nor rolled back")
    check.looked_at = open_halves.count()
    hit = open_halves.where(F.col("stored_ms") < before_ms).join(
        ended, ["broker_name", "queue_offset"], "left_anti"
    )
    return _counted(check, hit, ["broker_name", "queue_offset"], "1", most)


def read_manifest(spark: "SparkSession", path: str, id_column: str) -> "DataFrame":
    """A manifest as columns topic (or null), id and meant: how often it was meant, 1 unless it says `count`.

    Raises:
        ConfigError: the file has no such column.
    """
    from pyspark.sql import functions as F

    plain = path.rstrip("/").lower()
    if plain.endswith((".csv", ".csv.gz")):
        frame = spark.read.option("header", "true").csv(path)
    elif plain.endswith((".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz")):
        frame = spark.read.json(path)
    else:
        frame = spark.read.parquet(path)
    if id_column not in frame.columns:
        raise ConfigError(
            f"audit: the manifest {path} has no column {id_column} (--manifest-id); it has: "
            + ", ".join(frame.columns)
        )
    topic = F.col("topic") if "topic" in frame.columns else F.lit(None)
    one = F.lit(1)
    count = F.coalesce(F.col("count"), one) if "count" in frame.columns else one
    return frame.select(
        topic.cast("string").alias("topic"),
        F.col(id_column).cast("string").alias("id"),
        count.cast("bigint").alias("meant"),
    ).where("id is not null")


def places_of(frame: "DataFrame", path: str) -> "DataFrame":
    """The place columns of a table: `broker_name` ..., or with "_" in front where the body's columns stand beside.

    And when the message was stored (milliseconds since 1970), if the table has a timestamp that says so.

    Raises:
        ConfigError: it has neither.
    """
    from pyspark.sql import functions as F

    for prefix in ("_", ""):
        if all(prefix + name in frame.columns for name in PLACE):
            columns = [F.col(prefix + name).alias(name) for name in PLACE]
            stored = f"{prefix}store_timestamp"
            if dict(frame.dtypes).get(stored, "").startswith("timestamp"):
                columns.append(F.unix_millis(F.col(stored).cast("timestamp")).alias(STORED_MS))
            return frame.select(*columns)
    raise ConfigError(
        f"audit: the table {path} has no columns broker_name, queue_id and queue_offset (or with _ in front): "
        "without them rows cannot be told from each other"
    )


def _counted(
    check: AuditCheck, hit: "DataFrame", order: list[str], amount: str, most: int
) -> AuditCheck:
    from pyspark.sql import functions as F

    total = hit.agg(F.sum(F.expr(amount))).first()
    check.exceptions = int(total[0] or 0) if total is not None else 0
    if check.exceptions:
        check.examples = [_flat(row) for row in _rows(hit.orderBy(*order), most)]
    return check


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without the struct `first`."""
    found = {name: value for name, value in row.items() if name != "first"}
    first = row.get("first")
    return found | (first.asDict() if first is not None else {})


def _rows(frame: "DataFrame", most: int) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.limit(most).collect()]
