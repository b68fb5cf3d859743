"""`roquette pipeline replay`: topics or a table into topics, in order of each key, as often resumed as need be.

A run goes on in steps: so many messages of every queue, or so many files, are read, sent, and noted in the state
directory. A step that was cut off is sent again; each message carries where it came from as its id (property
__SPARK_ID), so the check at the end counts what came twice, and `remove_duplicates` takes it out.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from roquette.base.options import REQUIRED, option
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import Job, Pipeline, Plan, Result
from roquette_spark.pipelines.kit.options import PipelineOptions
from roquette_spark.pipelines.replay.check import ReplayCheck, check_replay
from roquette_spark.pipelines.replay.report import make_result
from roquette_spark.pipelines.replay.source import TableSource, TopicSource
from roquette_spark.pipelines.replay.state import ReplayState, check_place, open_state
from roquette_spark.pipelines.replay.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ID: Final = "__replay_id"
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
    """What would be read and written; asks name servers and brokers."""
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
    job.progress.step("look at source and target")
    state = open_state(options.state, job.files, _identity(options), job.clock.now_ms())
    if state.fresh:
        target.prepare()
        state.begin(source.bounds(), target.offsets())
    total = source.total(state)
    job.progress.step("replay")
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
        job.progress.step("compare")
        source.check(state)
        target.wait_until_readable(state, job.stop)
        wanted = _chosen(source.read_all(spark, state), options)
        check = check_replay(wanted, target.read(spark, state), state.prefix)
    return make_result(
        source=source.name, target=target.name, state=state, sent=sent, resumed=resumed,
        seconds=seconds, complete=complete, check=check, asked_to_verify=options.verify,
    )  # fmt: skip


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
    """What makes a replay the one it is: a state directory belongs to these values."""
    names = (
        "topics",
        "table",
        "column",
        "to_topic",
        "to_namesrv",
        "namesrv",
        "where",
        "since",
        "until",
    )
    return {name: _plain(getattr(options, name)) for name in names}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


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
