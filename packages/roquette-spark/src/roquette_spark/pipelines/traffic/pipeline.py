"""`roquette pipeline traffic`: who sends how much where, who is behind, how long it takes, and do routes agree.

Messages come from brokers, or from the files of stores; lag from brokers; end-to-end times from the trace topic;
routes from snapshots of every name server, which `--snapshots` collects.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roquette.base.files import read_lines as lines_of_file
from roquette.base.options import option, parse_duration
from roquette.errors import ConfigError
from roquette.message.names import TRACE_TOPIC
from roquette_spark.commitlog.plan import describe_store
from roquette_spark.offsets.route_snapshots import take_snapshot, user_topics
from roquette_spark.pipelines.kit.frame import SPAN, Job, Pipeline, PipelineOptions, Plan, Result
from roquette_spark.pipelines.kit.topics import (
    known_topics,
    read_messages,
    read_offsets,
    require_topics,
)
from roquette_spark.pipelines.traffic import frames as ask
from roquette_spark.pipelines.traffic.report import (
    RouteHistory,
    TrafficFindings,
    history,
    last_line,
    read_lines,
    report_of,
    summary_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLOTTED = 6  # topics with a line of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOptions(PipelineOptions):
    """Options of `traffic`."""

    topics: tuple[str, ...] = option(
        (), "Topics; default is all but the system's own.", metavar="TOPIC"
    )
    groups: tuple[str, ...] = option(
        ("*",), "Consumer groups whose lag is shown; default is all.", metavar="GROUP"
    )
    since: str = option("24h", "How far to look back.", kind=SPAN, metavar="TIME")
    bucket_seconds: int = option(60, "Seconds of one point in plots.", least=1)
    hot_keys: int = option(10, "Keys shown of each topic.", least=1)
    store: tuple[str, ...] = option(
        (),
        "Read messages from this store's files and not from brokers; may be repeated.",
        metavar="DIR",
    )
    lag: bool = option(True, "Ask brokers for offsets and lag.")
    trace_topic: str = option(
        TRACE_TOPIC, 'Topic with message traces; "" leaves them out.', metavar="TOPIC"
    )
    routes: str = option(
        "",
        "File of route snapshots (JSON lines) to compare; new ones are added to it.",
        metavar="FILE",
    )
    snapshots: int = option(
        0, "Take so many snapshots of every name server's routes, before all else."
    )
    snapshot_interval: float = option(5.0, "Seconds between snapshots.")
    messages: bool = option(True, "Look at messages; --no-messages is for routes and lag only.")


def plan(options: TrafficOptions) -> Plan:
    check(options)
    reads, writes = [], []
    if options.messages:
        where = ", ".join(options.store) or f"brokers of {options.namesrv}"
        what = ", ".join(options.topics) or "all topics but the system's"
        check_cluster(options)
        reads.append(f"{what}, of the last {options.since}, from {where}")
        reads += [describe_store(path) for path in options.store]
        if options.trace_topic:
            reads.append(f"{options.trace_topic}, if it is there")
    if options.lag:
        reads.append(f"offsets of {', '.join(options.groups)} from {options.namesrv}")
    if options.snapshots:
        writes.append(
            f"{options.snapshots} snapshots of routes, {options.snapshot_interval:g} s apart, to "
            f"{options.routes or 'routes.jsonl in the report directory'}"
        )
    elif options.routes:
        reads.append(f"route snapshots in {options.routes}")
    return Plan(reads=reads, writes=writes)


def check(options: TrafficOptions) -> None:
    """Raises ConfigError for what cannot be right."""
    if not (options.messages or options.lag or options.snapshots or options.routes):
        raise ConfigError("traffic: nothing is asked for: no messages, no lag and no routes")
    if options.routes and not options.snapshots and not os.path.exists(options.routes):
        raise ConfigError(
            f"traffic: there is no file {options.routes}: collect some with --snapshots N"
        )


def check_cluster(options: TrafficOptions) -> None:
    """Raises ConfigError when no name server answers, or none knows a topic: before Spark starts."""
    if options.lag or (options.messages and not options.store):
        wanted = options.topics if options.messages and not options.store else ()
        require_topics(options.namesrv, wanted, "traffic")


def run(options: TrafficOptions, job: Job) -> Result:
    check(options)
    check_cluster(options)
    end_ms = job.clock.now_ms()
    since_ms = parse_duration(options.since)
    found = TrafficFindings(end_ms - since_ms, end_ms, options.bucket_seconds * 1000)
    if options.snapshots or options.routes:
        found.routes = look_at_routes(options, job)
    if (options.messages or options.lag) and not job.stop.is_set():
        job.progress.step("starting Spark")
        spark = job.open_spark()
        if options.messages:
            look_at_messages(options, job, spark, found)
        if options.lag and not job.stop.is_set():
            job.progress.step("asking brokers for offsets")
            found.offsets = read_offsets(spark, options.namesrv, options.topics, options.groups)
        if options.messages and options.trace_topic and not job.stop.is_set():
            look_at_traces(options, job, spark, found)
    return Result(
        ok=True, summary=summary_of(found), report=report_of(found), last_line=last_line(found)
    )


def look_at_routes(options: TrafficOptions, job: Job) -> RouteHistory:
    """Take the snapshots that are asked for, then compare all of the file."""
    path = options.routes or os.path.join(job.directory, "routes.jsonl")
    if options.snapshots:
        if os.path.exists(path):  # lines are added to a file of snapshots only
            next(iter(read_lines(lines_of_file(path), path)), None)
        job.progress.step(f"asking name servers for routes ({options.snapshots} times)")
        for number in range(options.snapshots):
            if number and job.stop.wait(options.snapshot_interval):
                break
            taken = take_snapshot(options.namesrv, options.topics, job.clock.now_ms())
            append_lines(path, taken)
            job.progress.update(number + 1, options.snapshots)
    return history(read_lines(lines_of_file(path), path))


def append_lines(path: str, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows to a file of JSON lines. Raises ConfigError when it cannot be written."""
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write("".join(json.dumps(row, sort_keys=True) + "\n" for row in rows))
    except OSError as error:
        raise ConfigError(f"traffic: {path} cannot be written: {error.strerror}") from None


def look_at_messages(
    options: TrafficOptions, job: Job, spark: "SparkSession", found: TrafficFindings
) -> None:
    """Everything that one look at all messages can tell."""
    messages = messages_of(options, spark, options.topics, ask.COLUMNS, found)
    if messages is None:
        job.progress.say("there are no topics")
        return
    slim = ask.slim(messages, options.bucket_seconds).persist()
    try:
        job.progress.step("reading messages")
        found.topics = ask.by_topic(slim)
        job.progress.step("counting by broker, queue, time, tag and key")
        found.brokers = ask.by_broker(slim)
        found.queues = ask.by_queue(slim)
        found.over_time = ask.over_time(slim, [row["topic"] for row in found.topics[:PLOTTED]])
        found.hot_keys = ask.hot_keys(slim, options.hot_keys)
        found.tags = ask.by_tag(slim)
    finally:
        slim.unpersist()


def messages_of(
    options: TrafficOptions,
    spark: "SparkSession",
    topics: Sequence[str],
    columns: str,
    found: TrafficFindings,
) -> "DataFrame | None":
    """Messages of the span, from stores or brokers; None when the cluster has no topics."""
    wanted = topics if topics or options.store else user_topics(options.namesrv)
    if not wanted and not options.store:
        return None
    return read_messages(
        spark,
        columns,
        wanted,
        namesrv=options.namesrv,
        store=options.store,
        begin_ms=found.begin_ms,
        end_ms=found.end_ms,
    )


def look_at_traces(
    options: TrafficOptions, job: Job, spark: "SparkSession", found: TrafficFindings
) -> None:
    """Look at what clients say of sends and consumptions, where there is a trace topic."""
    if not options.store and options.trace_topic not in known_topics(options.namesrv, "traffic"):
        job.progress.say(f"{options.trace_topic} is not there: no end-to-end times")
        return
    job.progress.step("reading traces")
    messages = messages_of(options, spark, [options.trace_topic], ask.TRACE_COLUMNS, found)
    assert messages is not None
    events = ask.trace_events(messages).persist()
    try:
        found.sends = ask.sends(events)
        found.end_to_end = ask.end_to_end(events)
    finally:
        events.unpersist()


PIPELINE = Pipeline(
    name="traffic",
    help="Throughput, sizes, tags, hot keys, queue imbalance, lag and end-to-end times; do name servers agree.\n\n"
    "Looks at the messages of the last hours (from brokers or store files), at offsets, at message traces, and "
    "at snapshots of every name server's routes, and draws it all in report.html.",
    options=TrafficOptions,
    plan=plan,
    run=run,
)
