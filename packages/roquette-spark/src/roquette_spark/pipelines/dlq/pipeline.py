"""`roquette pipeline dlq`: what lies in dead-letter topics and why, and some of it back to where it came from."""

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.base.files import Files
from roquette.base.options import counted, option, plural
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import Job, Pipeline, PipelineOptions, Plan, Result
from roquette_spark.pipelines.kit.lineage import topic_dataset
from roquette_spark.pipelines.kit.report import MOST_ROWS, Report, ReportTable, bars
from roquette_spark.pipelines.kit.topics import read_messages
from roquette_spark.sink.duplicates import spark_id
from roquette_spark.source.dead_letters import (
    CLUSTER_COLUMNS,
    Letters,
    clusters_of,
    find_dlq_topics,
    letters_of,
    own_properties,
)
from roquette_spark.workers.inspector import ClusterInspector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# The audit table of a dead-letter replay: Parquet files, one or two rows for each message that was sent back.
# State is `planned` before a message is sent, `sent` after; `found` when a later run saw in the target topic that a planned message had been sent by a run that was killed.


PLANNED, SENT, FOUND = "planned", "sent", "found"
SCHEMA: Final = (
    "id string, group string, origin_topic string, origin_msg_id string, target string, state string, "
    "run string, at timestamp"
)


def check_place(directory: str) -> str:
    """Say what is there, for plans. Spark would write beside, and remove, what others have in a folder.

    Raises:
        ConfigError: it is somebody else's.
    """
    if not os.path.lexists(directory):
        return "new"
    if not os.path.isdir(directory):
        raise ConfigError(f"dlq: --audit {directory} is no directory: give another")
    names = [name for name in sorted(os.listdir(directory)) if not name.startswith("_temporary")]
    parts = [name for name in names if name.startswith("part-") and name.endswith(".parquet")]
    others = [n for n in names if n not in parts and not n.endswith(".crc") and n != "_SUCCESS"]
    if not others and all(_is_part(os.path.join(directory, name)) for name in parts):
        return f"{len(parts)} files"
    shown = ", ".join((others or parts)[:3])
    raise ConfigError(
        f"dlq: --audit {directory} has files that are not of an audit table ({shown}): nothing was changed "
        "there; give another directory"
    )


def _is_part(path: str) -> bool:
    try:
        return bool(pq.read_schema(path).names == [each.split()[0] for each in SCHEMA.split(", ")])
    except (pa.ArrowInvalid, OSError):
        return False


def with_letter(rows: "DataFrame") -> "DataFrame":
    """With a column `letter`: the id, which is a position, and the first message's id: a topic that was created
    again has other letters at the same positions."""
    from pyspark.sql import functions as f

    return rows.withColumn("letter", f.concat_ws("|", "id", "origin_msg_id"))


class AuditTable:
    """Rows in a directory; only appended to. One run at a time may use it."""

    def __init__(self, spark: "SparkSession", directory: str, files: Files, clock: Clock) -> None:
        self._spark = spark
        self._directory = directory
        self._clock = clock
        files.make_dirs(directory)
        self.run = f"{clock.now_ms()}-{Entropy().token(4)}"

    def rows(self) -> "DataFrame":
        """Everything noted so far, with `letter`."""
        return with_letter(self._spark.read.schema(SCHEMA).parquet(self._directory))

    def append(self, letters: "DataFrame", state: str) -> None:
        """Note letters (columns id, group, origin_topic, origin_msg_id, target) under a state."""
        from pyspark.sql import functions as f

        at = f.timestamp_millis(f.lit(self._clock.now_ms()))
        rows = letters.select(
            *("id", "group", "origin_topic", "origin_msg_id", "target"),
            f.lit(state).alias("state"),
            f.lit(self.run).alias("run"),
            at.alias("at"),
        )
        rows.coalesce(1).write.mode("append").parquet(self._directory)

    def settled(self) -> "DataFrame":
        """Letters that are sent: never again."""
        return self.rows().where(f"state IN ('{SENT}', '{FOUND}')").select("letter").distinct()

    def in_doubt(self) -> "DataFrame":
        """Planned by a run that did not say what became of them: letter, id, target, at."""
        planned = self.rows().where(f"state = '{PLANNED}'").select("letter", "id", "target", "at")
        return planned.join(self.settled(), "letter", "left_anti")

    def planned_now(self) -> "DataFrame":
        mine = self.rows().where(f"state = '{PLANNED}' AND run = '{self.run}'")
        return mine.select("letter").distinct()

    @property
    def path(self) -> str:
        return os.path.abspath(self._directory)


# Dead letters back to their topics: noted before and after, so that a run after a crash sends nothing twice.


PREFIX: Final = "dlq:"
_DOUBT_MARGIN_MS: Final = 600_000  # clocks of this machine and of the brokers may differ so much


@dataclass(frozen=True, slots=True)
class Sent:
    """Count of what was done.

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

    # Where that run sent them, whatever the target of this one is.
    doubt = letters.drop("target").join(audit.in_doubt().drop("id"), "letter").cache()
    try:
        first: Any = doubt.agg(f.min("at"), f.collect_set("target")).first()
        if first[0] is None:
            return 0
        since_ms = int(first[0].timestamp() * 1000) - _DOUBT_MARGIN_MS
        spark, topics = letters.sparkSession, first[1]
        there = read_messages(spark, "", topics, namesrv=namesrv, begin_ms=max(0, since_ms))
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


# What came of a look at dead letters: summary.json, report.html and a line.


_BODY_SHOWN = 200
MESSAGE = ("id", "group", "origin_topic", "error", "tags", "key", "reconsume_times", "body")
_MEASURES = ("messages", "first", "last", "tries", "sample")


def make_result(
    topics: Letters,
    clusters: Sequence[dict[str, Any]],
    shown: Sequence[dict[str, Any]],
    chosen: int,
    sent: Sent | None,
) -> Result:
    summary: dict[str, Any] = {
        "dead_letters": topics.total,
        "topics": topics.counts,
        "chosen": chosen,
        "clusters": [{name: _plain(value) for name, value in each.items()} for each in clusters],
        "sent": None if sent is None else dataclasses.asdict(sent),
    }
    report = Report(title="Dead letters", lead=f"Of the cluster behind {topics.namesrv}.")
    report.count(topics.total, "dead letter")
    groups = sum(count > 0 for count in topics.counts.values())
    report.facts.append(
        (f"{groups:,}", plural(groups, "group that has some", "groups that have some"))
    )
    report.facts.append((f"{chosen:,}", "chosen"))
    if sent is not None:
        report.facts.append((f"{sent.sent:,}", "sent back"))
    by_count = sorted(topics.counts.items(), key=lambda each: (-each[1], each[0]))
    items = [(name, float(count), f"{count:,}") for name, count in by_count[:MOST_ROWS]]
    report.add("By group", "Messages in each dead-letter topic, the largest first.", bars(items))
    head = list(clusters[0]) if clusters else []
    report.add(
        "Causes",
        "The largest first. Numbers and ids in errors are replaced by #; sample is a message's id.",
        ReportTable(head, [[_plain(each[name]) for name in head] for each in _largest(clusters)]),
    )
    rows = [[_short(each[name]) for name in MESSAGE] for each in shown]
    report.add("Messages", "The oldest of those chosen.", ReportTable(MESSAGE, rows))
    if sent is not None:
        report.add(
            "Sent back",
            "settled: by earlier runs; found: by a run that was killed, seen in the target topic; homeless: "
            "their origin is unknown.",
            ReportTable(["", ""], [list(each) for each in dataclasses.asdict(sent).items()]),
        )
    line = _line(topics, clusters, chosen, sent)
    reads = [topic_dataset(topics.namesrv, name, n) for name, n in topics.counts.items()]
    return Result(ok=True, summary=summary, report=report, last_line=line, reads=reads)


def _largest(clusters: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(clusters, key=lambda each: -each["messages"])


def _short(value: Any) -> Any:
    text = _plain(value)
    return text[:_BODY_SHOWN] if isinstance(text, str) else text


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (int, str)) else str(value)


def _line(
    topics: Letters, clusters: Sequence[dict[str, Any]], chosen: int, sent: Sent | None
) -> str:
    lines = [
        f"{counted(topics.total, 'dead letter')} in {counted(len(topics.counts), 'topic')}, {chosen:,} chosen"
    ]
    for each in _largest(clusters)[:10]:
        what = ", ".join(f"{name}={value}" for name, value in each.items() if name not in _MEASURES)
        lines.append(f"  {each['messages']:>8,}  {what}")
    if sent is not None:
        lines.append(
            f"{sent.sent:,} sent back, {sent.settled:,} had been sent before, {sent.found:,} found in the target, "
            f"{sent.homeless:,} of unknown origin"
        )
    return "\n".join(lines)


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
        "Directory of the audit table: what was sent is not sent again, to no other topic either. Needed by --send.",
        metavar="DIR",
    )


def plan(options: DlqOptions) -> Plan:
    """Say what would be read and sent; asks name servers and brokers."""
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
    job.progress.step("finding dead-letter topics")
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
            job.progress.step("sending back")
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
