"""`roquette pipeline replay`: topics or a table into topics, in order of each key, as often resumed as need be.

A run goes on in steps: so many messages of every queue, or so many files, are read, sent, and noted in the state
directory. A step that was cut off is sent again; each message carries where it came from as its id (property
__SPARK_ID), so the check at the end counts what came twice, and `remove_duplicates` takes it out.
"""

import dataclasses
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from roquette.base.options import REQUIRED, counted, option
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import Job, Pipeline, PipelineOptions, Plan, Result
from roquette_spark.pipelines.kit.lineage import table_dataset, topic_dataset
from roquette_spark.pipelines.kit.report import Cell, Report, ReportTable, bars
from roquette_spark.pipelines.kit.topics import read_messages
from roquette_spark.pipelines.replay.source import (
    ReplayState,
    TableSource,
    TopicSource,
    check_place,
    open_state,
)
from roquette_spark.sink.duplicates import remove_duplicates, spark_id
from roquette_spark.source.queues import queue_bounds
from roquette_spark.values.offsets import decode_offsets, encode_offsets
from roquette_spark.values.options import SPARK_ID
from roquette_spark.workers.inspector import ClusterInspector

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


# Whether a replay is complete and in order: counts, checksums and inversions, from the messages themselves.


ID: Final = "__replay_id"
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class ReplayCheck:
    """Findings of the check of a replay.

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
        """Return True if everything is there, unchanged, and each key in its order."""
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
    """Return the columns that must be the same on both sides, in a form that hashes the same."""
    from pyspark.sql import functions as f

    def given(name: str, otherwise: "Column") -> "Column":
        return f.coalesce(frame[name], otherwise) if name in frame.columns else otherwise

    keys = given("keys", f.array().cast("array<string>"))
    properties = given("properties", f.create_map().cast("map<string,string>"))
    own = f.map_filter(properties, lambda name, value: (name != SPARK_ID) & (value != ""))
    entries = f.transform(f.map_entries(own), lambda e: f.concat_ws("\x01", e.key, e.value))
    return [
        *(frame[ID], frame["body"].cast("binary")),
        *(given("tags", f.lit("")), given("message_group", f.lit("")), given("flag", f.lit(0))),
        *(f.concat_ws(" ", keys), f.array_sort(entries)),
    ]


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


# What came of a replay: summary.json, report.html and a line.


def make_result(
    *,
    source: str,
    target: str,
    state: ReplayState,
    sent: int,
    resumed: int,
    seconds: float,
    complete: bool,
    check: ReplayCheck | None,
    asked_to_verify: bool,
) -> Result:
    """The result of a run.

    Args:
        sent: messages of this run; `resumed`: of runs before it.
    """
    rate = sent / seconds if seconds > 0 else 0.0
    summary: dict[str, Any] = {
        "source": source,
        "target": target,
        "complete": complete,
        "sent": sent,
        "sent_before": resumed,
        "rows_per_second": round(rate),
        "ids": state.prefix,
        "check": None if check is None else {**dataclasses.asdict(check), "ok": check.ok},
    }
    ok = complete and (check.ok if check is not None else not asked_to_verify)
    report = Report(
        title=f"Replay of {source}", lead=f"Into {target}. Ids begin with {state.prefix}"
    )
    report.count(state.rows, "message", " sent")
    report.facts += [
        (f"{rate:,.0f}", "messages a second in this run"),
        ("complete" if complete else "stopped", "state"),
    ]
    if check is not None:
        _add_check(report, check)
    return Result(
        ok=ok or not complete,
        summary=summary,
        report=report,
        last_line=_line(source, target, state, complete, check),
    )


def _add_check(report: Report, check: ReplayCheck) -> None:
    same = check.wanted_sum == check.found_sum
    rows = [
        ("messages", check.wanted, check.found, _cell(check.wanted == check.found)),
        ("checksum", str(check.wanted_sum), str(check.found_sum), _cell(same)),
        ("out of order within a key", 0, check.inversions, _cell(check.inversions == 0)),
        ("stored more than once", 0, check.copies, Cell("see below", True)),
    ]
    report.add(
        "Source and target",
        "The checksum is the sum of hashes of body, keys, tags, properties, message group and flag. What is "
        "stored more than once came again after a failure; remove_duplicates takes it out.",
        ReportTable(["", "source", "target", ""], rows),
    )
    report.add("Missing", "Some of the ids.", ReportTable(["id"], [[m] for m in check.missing]))
    items = [(name, float(count), f"{count:,}") for name, count in check.by_queue]
    report.add("Queues of the target", "Messages in each.", bars(items))


def _cell(good: bool) -> Cell:
    return Cell("the same" if good else "DIFFERENT", good)


def _line(
    source: str, target: str, state: ReplayState, complete: bool, check: ReplayCheck | None
) -> str:
    head = f"{source} -> {target}: {counted(state.rows, 'message')} sent"
    if not complete:
        return f"{head}, stopped; the same command goes on"
    if check is None:
        return head
    if check.ok:
        return f"{head}; {check.found:,} there, checksums equal, {check.copies:,} stored twice"
    return (
        f"{head}; DIFFERENT: {check.wanted:,} wanted, {check.found:,} found, "
        f"{check.inversions:,} out of order, {len(check.missing)} or more missing"
    )


# Where a replay writes: topics that are made if asked for, their ends at the beginning, and what came since.


_READABLE_TRIES: Final = 150
_READABLE_PAUSE_S: Final = 0.2


class Target:
    """The topics of one cluster that are written.

    Args:
        queues: on each broker, of topics that must be made; 0: they must be there.
    """

    def __init__(self, namesrv: str, topics: Sequence[str], queues: int) -> None:
        self.namesrv = namesrv
        self.name = ", ".join(topics)
        self.topics = tuple(topics)
        self._queues = queues

    def describe(self) -> list[str]:
        """Lines for a plan. Raises ConfigError."""
        lines = []
        for topic in self.topics:
            there = self._checked(topic)
            count = sum(there.values())
            lines.append(
                f"topic {topic} of {self.namesrv}: {count} queues on {len(there)} brokers"
                if there
                else f"topic {topic} of {self.namesrv}: made with {self._queues} queues on each broker"
            )
        return lines

    def prepare(self) -> None:
        """Make what is missing. Raises ConfigError when that is not asked for, or a number of queues is another."""
        for topic in self.topics:
            if not self._checked(topic):
                self._cluster().create_topic(topic, self._queues)

    def _cluster(self) -> ClusterInspector:
        return ClusterInspector(self.namesrv, timeout_ms=5_000)

    def _checked(self, topic: str) -> dict[str, int]:
        there = self._cluster().writable_queues(topic)
        if not there and not self._queues:
            raise ConfigError(
                f"replay: topic {topic} does not exist in {self.namesrv}; make it, or give --queues"
            )
        other = {name: count for name, count in there.items() if count != self._queues}
        if self._queues and other:
            name, count = next(iter(other.items()))
            raise ConfigError(
                f"replay: topic {topic} has {count} queues on {name}, not {self._queues}; "
                "give another --to-topic, or no --queues"
            )
        return there

    def offsets(self) -> dict[str, Any]:
        return encode_offsets(queue_bounds(self.namesrv, self.topics)[1])

    def wait_until_readable(self, state: "ReplayState", stop: threading.Event) -> None:
        """Brokers build their queues a little after they have acknowledged (Apache: ReputMessageService)."""
        start = decode_offsets(state.target_start)
        for _ in range(_READABLE_TRIES):
            _, end = queue_bounds(self.namesrv, self.topics)
            there = sum(offset - start.get(queue, 0) for queue, offset in end.items())
            if there >= state.rows or stop.wait(_READABLE_PAUSE_S):
                return

    def read(self, spark: "SparkSession", state: "ReplayState") -> "DataFrame":
        """Read what this replay has written, copies included."""
        given = {"startingOffsets": json.dumps(state.target_start)}
        frame = read_messages(spark, "", self.topics, namesrv=self.namesrv, more=given)
        return frame.where(spark_id(frame).startswith(state.prefix))


SENT = ("body", "keys", "tags", "properties", "message_group", "flag")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions(PipelineOptions):
    """Options of `replay`."""

    topics: tuple[str, ...] = option((), "Topics to read.", metavar="TOPIC")
    table: str = option(
        "", "A table to read instead: a directory of Parquet files.", metavar="PATH"
    )
    to_topic: str = option("", "Topic to write to; default is each message's own.")
    to_namesrv: str = option(
        "", "Name servers of the cluster to write to; default is --namesrv.", metavar='"NS1;NS2"'
    )
    queues: int = option(
        0,
        "Make topics that are not there with so many queues on each broker; a topic that is there must have "
        "so many. 0 takes topics as they are.",
    )
    where: str = option("", "Only rows for which this SQL condition holds.")
    since: str = option(
        "", "Only messages stored then or later: 2026-01-31T12:00:00Z, or milliseconds."
    )
    until: str = option("", "Only messages stored before.")
    order_by: tuple[str, ...] = option(
        ("store_timestamp", "queue_offset"), "Of a table: the order of a key's rows."
    )
    rate: int = option(0, "Messages a second, altogether; 0 is as fast as it goes.")
    step: int = option(200_000, "Messages of one step.", least=1)
    column: tuple[str, ...] = option(
        (),
        "Of a table: a column made from others, such as body=_body; may be repeated.",
        metavar="NAME=SQL",
        split=False,
    )
    state: str = option(
        REQUIRED,
        "Directory that keeps how far the replay is; the same again goes on there.",
        metavar="DIR",
    )
    verify: bool = option(True, "Compare counts and checksums at the end.")


def plan(options: ReplayOptions) -> Plan:
    """Say what would be read and written; asks name servers and brokers."""
    source, target = _parts(options)
    notes = [f"state in {options.state}: {check_place(options.state)}; ids begin with replay:"]
    if options.rate:
        notes.append(f"at most {options.rate:,} messages a second")
    return Plan(reads=source.describe(), writes=target.describe(), notes=notes)


def run(options: ReplayOptions, job: Job) -> Result:
    """Replay until everything that was in the source at the beginning is in the target, too.

    Raises:
        ConfigError: options contradict each other or the state. BrokerError, RouteNotFound: of the cluster.
    """
    source, target = _parts(options)
    job.progress.step("looking at source and target")
    state = open_state(options.state, job.files, _identity(options), job.clock.now_ms())
    if state.fresh:
        target.prepare()
        state.begin(source.bounds(), target.offsets())
    total = source.total(state)
    job.progress.step("sending")
    began_ms, sent, resumed = job.clock.now_ms(), 0, state.rows
    spark = job.open_spark()
    while not job.stop.is_set():
        step = source.next_step(state, options.step)
        if step is None:
            break
        source.check(state)
        frame = _chosen(source.read(spark, step), options)
        count = _send(spark, frame, options, target, state)
        state.advance(step.after, count)
        sent += count
        job.progress.update(source.done(state), total, f"{state.rows:,} sent")
    seconds = (job.clock.now_ms() - began_ms) / 1000
    complete = source.next_step(state, 1) is None
    check: ReplayCheck | None = None
    if complete and options.verify:
        job.progress.step("comparing")
        source.check(state)
        target.wait_until_readable(state, job.stop)
        wanted = _chosen(source.read_all(spark, state), options)
        check = check_replay(wanted, target.read(spark, state), state.prefix)
    result = make_result(
        source=source.name, target=target.name, state=state, sent=sent, resumed=resumed,
        seconds=seconds, complete=complete, check=check, asked_to_verify=options.verify,
    )  # fmt: skip
    rows = None if len(target.topics) > 1 else sent
    if options.table:
        result.reads = [table_dataset(options.table, sent)]
    result.writes = [topic_dataset(target.namesrv, each, rows) for each in target.topics]
    return result


def _parts(options: ReplayOptions) -> tuple[TopicSource | TableSource, Target]:
    if bool(options.topics) == bool(options.table):
        raise ConfigError("replay: give either --topics or --table")
    to = options.to_namesrv or options.namesrv
    source: TopicSource | TableSource
    if options.topics:
        if to == options.namesrv and options.to_topic in {"", *options.topics}:
            raise ConfigError(
                "replay: a topic would be replayed into itself; give --to-topic or --to-namesrv"
            )
        source = TopicSource(options.namesrv, options.topics, options.since, options.until)
        names = (options.to_topic,) if options.to_topic else options.topics
    else:
        if options.since or options.until:
            raise ConfigError(
                "replay: --since and --until are for topics; use --where with a table"
            )
        if not options.to_topic:
            raise ConfigError("replay: --table needs --to-topic")
        source = TableSource(options.table, options.order_by, options.column)
        names = (options.to_topic,)
    return source, Target(to, names, options.queues)


def _identity(options: ReplayOptions) -> dict[str, Any]:
    """Return the values that make a replay the one it is: a state directory belongs to them."""
    lists = {name: list(getattr(options, name)) for name in ("topics", "column")}
    names = ("table", "to_topic", "to_namesrv", "namesrv", "where", "since", "until")
    return lists | {name: getattr(options, name) for name in names}


def _chosen(frame: "DataFrame", options: ReplayOptions) -> "DataFrame":
    return frame.where(options.where) if options.where else frame


def _send(
    spark: "SparkSession",
    frame: "DataFrame",
    options: ReplayOptions,
    target: Target,
    state: ReplayState,
) -> int:
    """Send one step's rows and return how many there were."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    frame = frame.observe(seen, f.count(f.lit(1)).alias("rows"))
    columns: Sequence[Any] = [name for name in SENT if name in frame.columns]
    if not options.to_topic:
        columns = [*columns, "topic"]
    given = {
        "namesrvAddr": target.namesrv,
        "deliveryGuarantee": "idempotent",
        "idColumn": ID,
        "maxMessageSize": str(15 << 20),
    }
    if options.to_topic:
        given["topic"] = options.to_topic
    if options.rate:
        tasks = max(1, spark.sparkContext.defaultParallelism)
        given["rateLimit"] = str(max(1, options.rate // tasks))
    identity = f.concat(f.lit(state.prefix), f.col(ID)).alias(ID)
    (
        frame.select(*columns, identity)
        .write.format("rocketmq")
        .options(**given)
        .mode("append")
        .save()
    )
    return int(seen.get["rows"])


PIPELINE = Pipeline(
    name="replay",
    help=(
        "Send topics or a table into topics again: back-fill, re-shard, move to another cluster.\n\n"
        "A key's messages keep their order and come into one queue. Stop it when you like; the same command "
        "goes on. At the end counts and checksums of both sides are compared."
    ),
    options=ReplayOptions,
    plan=plan,
    run=run,
)
