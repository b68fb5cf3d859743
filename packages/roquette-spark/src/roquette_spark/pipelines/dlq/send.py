"""Dead letters back to their topics: noted before and after, so that a run after a crash sends nothing twice."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from roquette.errors import ConfigError
from roquette_spark.pipelines.dlq.audit_table import FOUND, SENT, AuditTable, with_letter
from roquette_spark.pipelines.kit.frame import Job
from roquette_spark.pipelines.kit.topics import beginning_at
from roquette_spark.sink.duplicates import spark_id
from roquette_spark.source.dead_letters import own_properties
from roquette_spark.workers.inspector import ClusterInspector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PREFIX: Final = "dlq:"
_DOUBT_MARGIN_MS: Final = 600_000  # clocks of this machine and of the brokers may differ so much


@dataclass(frozen=True, slots=True)
class Sent:
    """What was done.

    Attributes:
        sent: by this run. `settled`: by earlier runs, of those chosen. `found`: by a killed run, seen in the target.
        homeless: chosen, but their origin is unknown.
    """

    sent: int
    settled: int
    found: int
    homeless: int
    audit: str
    run: str


def send_back(
    chosen: "DataFrame",
    audit: AuditTable,
    job: Job,
    *,
    namesrv: str,
    to_topic: str,
    rate: int,
    limit: int,
) -> Sent:
    """Send what no run has sent before.

    Raises:
        ConfigError: a target topic does not exist; nothing has been sent then.
    """
    from pyspark.sql import functions as f

    target = f.lit(to_topic) if to_topic else f.col("origin_topic")
    letters = with_letter(chosen.withColumn("target", target))
    homeless = letters.where("target IS NULL").count()
    letters = letters.where("target IS NOT NULL")
    _check_targets(letters, namesrv)
    settled = letters.join(audit.settled(), "letter", "left_semi").count()
    found = _settle_doubt(letters, audit, namesrv)
    todo = letters.join(audit.settled(), "letter", "left_anti").orderBy("store_timestamp", "id")
    if limit:
        todo = todo.limit(limit)
    audit.append(todo, "planned")
    mine = letters.join(audit.planned_now(), "letter", "left_semi")
    count = mine.count()
    job.progress.update(0, count)
    if count:
        _send(mine, namesrv, rate)
        audit.append(mine, SENT)
    job.progress.update(count, count)
    return Sent(count, settled, found, homeless, audit.path, audit.run)


def _check_targets(letters: "DataFrame", namesrv: str) -> None:
    missing = [
        row.target
        for row in letters.select("target").distinct().collect()
        if not ClusterInspector(namesrv, timeout_ms=5_000).writable_queues(row.target)
    ]
    if missing:
        raise ConfigError(
            f"dlq: topic {', '.join(sorted(missing))} does not exist; make it, choose others with --where, "
            "or give --to-topic"
        )


def _settle_doubt(letters: "DataFrame", audit: AuditTable, namesrv: str) -> int:
    """Planned by a run that was killed: those that lie in their target are noted as found."""
    from pyspark.sql import functions as f

    doubt = letters.join(audit.in_doubt().select("letter", "at"), "letter").cache()
    try:
        first: Any = doubt.agg(f.min("at"), f.collect_set("target")).first()
        if first[0] is None:
            return 0
        since_ms = int(first[0].timestamp() * 1000) - _DOUBT_MARGIN_MS
        spark = letters.sparkSession
        there = (
            spark.read.format("rocketmq")
            .options(namesrvAddr=namesrv, subscribe=",".join(first[1]))
            .options(**beginning_at(max(0, since_ms)))
            .load()
        )
        ids = there.select(
            f.substring(spark_id(there), len(PREFIX) + 1, 1000).alias("id"),
            spark_id(there).startswith(PREFIX).alias("ours"),
        ).where("ours")
        seen = doubt.join(ids.select("id").distinct(), "id", "left_semi").dropDuplicates(["id"])
        count = seen.count()
        if count:
            audit.append(seen, FOUND)
        return int(count)
    finally:
        doubt.unpersist()


def _send(letters: "DataFrame", namesrv: str, rate: int) -> None:
    """One task, so that the rate is what was asked for and the order that of the dead letters."""
    from pyspark.sql import functions as f

    (
        letters.coalesce(1)
        .sortWithinPartitions("store_timestamp", "id")
        .select(
            f.col("raw").alias("body"),
            f.col("target").alias("topic"),
            *("keys", "tags", "message_group", "flag"),
            own_properties().alias("properties"),
            f.concat(f.lit(PREFIX), "id").alias("letter_id"),
        )
        .write.format("rocketmq")
        .options(namesrvAddr=namesrv, deliveryGuarantee="idempotent", idColumn="letter_id")
        # A worker that was killed has sent some of them: only another run finds out which.
        .options(rateLimit=str(rate), maxMessageSize=str(15 << 20), repeatTasks="false")
        .mode("append")
        .save()
    )
