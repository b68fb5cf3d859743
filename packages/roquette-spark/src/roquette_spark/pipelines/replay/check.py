"""Whether a replay is complete and in order: counts, checksums and inversions, from the messages themselves."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from roquette_spark.options import SPARK_ID
from roquette_spark.sink.duplicates import remove_duplicates, spark_id

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ID: Final = "__replay_id"
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class ReplayCheck:
    """What was found.

    Attributes:
        wanted, found: messages that should be there, and that are there once.
        copies: messages that came more than once, beyond the first.
        wanted_sum, found_sum: sums of 64-bit hashes of body, keys, tags, properties, message group and flag.
        inversions: messages of a key that lie before one they followed in its source queue.
        missing: ids that are not there (some of them).
        by_queue: the queues of the target, and how many messages each has.
    """

    wanted: int
    found: int
    copies: int
    wanted_sum: int
    found_sum: int
    inversions: int
    missing: tuple[str, ...]
    by_queue: tuple[tuple[str, int], ...]

    @property
    def ok(self) -> bool:
        """Whether everything is there, unchanged, and each key in its order."""
        same = self.wanted == self.found and self.wanted_sum == self.found_sum
        return same and self.inversions == 0


def check_replay(wanted: "DataFrame", stored: "DataFrame", prefix: str) -> ReplayCheck:
    """Compare.

    Args:
        wanted: what was to be sent, with column __replay_id.
        stored: what lies in the target, copies included.
        prefix: of the ids in the target.
    """
    from pyspark.sql import functions as f

    stored = stored.withColumn(ID, f.substring(spark_id(stored), len(prefix) + 1, 100_000)).cache()
    try:
        all_of_them = stored.count()
        once = remove_duplicates(stored)
        wanted_count, wanted_sum = _sum(wanted)
        found_count, found_sum = _sum(once)
        missing: tuple[str, ...] = ()
        if wanted_count != found_count:
            gone = wanted.select(ID).join(stored.select(ID), ID, "left_anti").limit(_SHOWN)
            missing = tuple(sorted(row[0] for row in gone.collect()))
        queues = once.groupBy("topic", "broker_name", "queue_id").count().collect()
        return ReplayCheck(
            wanted=wanted_count,
            found=found_count,
            copies=all_of_them - found_count,
            wanted_sum=wanted_sum,
            found_sum=found_sum,
            inversions=_inversions(once),
            missing=missing,
            by_queue=tuple(
                sorted((f"{row[0]} {row[1]} {row[2]:>3}", int(row[3])) for row in queues)
            ),
        )
    finally:
        stored.unpersist()


def _sum(frame: "DataFrame") -> tuple[int, int]:
    from pyspark.sql import functions as f

    number = f.xxhash64(*fingerprint_columns(frame)).cast("decimal(20,0)")
    row: Any = frame.select(f.count(f.lit(1)), f.sum(number.cast("decimal(38,0)"))).first()
    return int(row[0]), int(row[1] or 0)


def fingerprint_columns(frame: "DataFrame") -> "list[Column]":
    """What must be the same on both sides, in a form that hashes the same."""
    from pyspark.sql import functions as f

    columns = [frame[ID], frame["body"].cast("binary")]
    for name in ("tags", "message_group", "flag"):
        if name in frame.columns:
            empty = f.lit(0) if name == "flag" else f.lit("")
            columns.append(f.coalesce(frame[name], empty))
        else:
            columns.append(f.lit(0) if name == "flag" else f.lit(""))
    keys = frame["keys"] if "keys" in frame.columns else f.array().cast("array<string>")
    columns.append(f.concat_ws(" ", keys))
    if "properties" in frame.columns:
        own = f.map_filter(
            frame["properties"], lambda name, value: (name != SPARK_ID) & (value != "")
        )
        entries = f.coalesce(
            f.map_entries(own), f.array().cast("array<struct<key:string,value:string>>")
        )
        columns.append(
            f.array_sort(f.transform(entries, lambda e: f.concat_ws("\x01", e.key, e.value)))
        )
    else:
        columns.append(f.array().cast("array<string>"))
    return columns


def _inversions(once: "DataFrame") -> int:
    """Of messages from one source queue (or file) and with one key, those before a predecessor in the target."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order_key = f.coalesce(f.col("message_group"), f.col("key"))
    origin = f.regexp_extract(f.col(ID), r"^(.*)/(\d+)$", 1)
    number = f.regexp_extract(f.col(ID), r"^(.*)/(\d+)$", 2).cast("bigint")
    lane = Window.partitionBy("k", "o").orderBy("queue_offset")
    found = (
        once.select(order_key.alias("k"), origin.alias("o"), number.alias("n"), "queue_offset")
        .where("k IS NOT NULL AND o != '' AND o NOT LIKE '%.parquet'")
        .withColumn("before", f.lag("n").over(lane))
        .where("n < before")
    )
    return int(found.count())
