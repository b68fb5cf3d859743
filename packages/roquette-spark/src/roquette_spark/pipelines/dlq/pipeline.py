"""`roquette pipeline dlq`: what lies in dead-letter topics and why, and some of it back to where it came from."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from roquette.base.options import option
from roquette.errors import ConfigError
from roquette_spark.pipelines.dlq.audit_table import AuditTable, check_place
from roquette_spark.pipelines.dlq.report import make_result
from roquette_spark.pipelines.dlq.send import Sent, send_back
from roquette_spark.pipelines.kit.frame import Job, Pipeline, Plan, Result
from roquette_spark.pipelines.kit.options import PipelineOptions
from roquette_spark.source.dead_letters import (
    CLUSTER_COLUMNS,
    Letters,
    clusters_of,
    find_dlq_topics,
    letters_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DlqOptions(PipelineOptions):
    """Options of `dlq`."""

    groups: tuple[str, ...] = option((), "Consumer groups; default is all.", metavar="GROUP")
    where: str = option(
        "",
        "Only messages for which this SQL condition holds. Columns: group, origin_topic, error, version, tags, key, "
        "body (string), properties, reconsume_times, born_timestamp, store_timestamp, born_host, id.",
    )
    by: tuple[str, ...] = option(
        ("group", "origin_topic", "error", "version"),
        "What messages are put together by: " + ", ".join(CLUSTER_COLUMNS) + ".",
    )
    error_property: tuple[str, ...] = option(
        ("error", "exception", "error_message", "EXCEPTION"),
        "Properties that may hold the error; consumers must have put them there.",
    )
    version_property: tuple[str, ...] = option(
        ("version", "app_version"), "Properties that may hold a version."
    )
    show: int = option(20, "Messages shown in the report.")
    send: bool = option(False, "Send the chosen messages to their origin topic.")
    to_topic: str = option("", "Send there instead.")
    rate: int = option(100, "Messages a second, altogether.", least=1)
    limit: int = option(0, "Messages to send at most; 0 is all.")
    audit: str = option(
        "",
        "Directory of the audit table: what was sent is not sent again. Needed by --send.",
        metavar="DIR",
    )


def plan(options: DlqOptions) -> Plan:
    """What would be read and sent; asks name servers and brokers."""
    _check(options)
    found = find_dlq_topics(options.namesrv, options.groups)
    reads = [f"{topic}: {count:,} messages" for topic, count in found.counts.items()]
    writes = []
    notes = []
    if options.send:
        where = options.to_topic or "the topic each message came from"
        writes = [
            f"{where}, at most {options.rate:,} a second",
            f"audit table {options.audit}: {check_place(options.audit)}",
        ]
        notes = [
            "every consumer group of that topic gets the messages, not only the one that failed"
        ]
    return Plan(reads=reads, writes=writes, notes=notes)


def run(options: DlqOptions, job: Job) -> Result:
    """Look, and send if asked to.

    Raises:
        ConfigError: an option is wrong. Spark's errors for a wrong --where.
    """
    _check(options)
    job.progress.step("find dead-letter topics")
    topics = find_dlq_topics(options.namesrv, options.groups)
    if not topics.total:
        return make_result(topics, [], [], 0, None)
    job.progress.step(f"read {topics.total:,} dead letters")
    spark = job.open_spark()
    letters = letters_of(spark, topics, options.error_property, options.version_property)
    chosen = letters.where(options.where) if options.where else letters
    chosen = chosen.cache()
    try:
        count = chosen.count()
        clusters = clusters_of(chosen, options.by)
        shown = _shown(chosen, options.show)
        sent: Sent | None = None
        if options.send:
            job.progress.step("send back")
            audit = AuditTable(spark, options.audit, job.files, job.clock)
            sent = send_back(
                chosen, audit, job, namesrv=options.namesrv, to_topic=options.to_topic,
                rate=options.rate, limit=options.limit,
            )  # fmt: skip
        return make_result(topics, clusters, shown, count, sent)
    finally:
        chosen.unpersist()


def _check(options: DlqOptions) -> None:
    for name in options.by:
        if name not in CLUSTER_COLUMNS:
            raise ConfigError(f"dlq: --by {name} is none of: {', '.join(CLUSTER_COLUMNS)}")
    if not options.by:
        raise ConfigError("dlq: --by is empty")
    if options.send and not options.audit:
        raise ConfigError("dlq: --send needs --audit, so that a second run sends nothing twice")
    if options.send:
        check_place(options.audit)


def _shown(chosen: "DataFrame", most: int) -> Sequence[dict[str, Any]]:
    rows = chosen.orderBy("store_timestamp", "id").limit(most).collect() if most else []
    return [row.asDict() for row in rows]


__all__ = ["PIPELINE", "DlqOptions", "Letters"]

PIPELINE = Pipeline(
    name="dlq",
    help=(
        "Triage dead letters: what lies there, put together by cause; chosen ones go back to their topic.\n\n"
        "Without --send nothing is written. With it, each message is noted in the audit table before and after it is "
        "sent, so that no later run sends it again."
    ),
    options=DlqOptions,
    plan=plan,
    run=run,
)
