"""`roquette pipeline archive`: topics to Parquet tables, each message exactly once.

The stream carries which messages to read. Tasks of a batch read them and write files at their last names; these count
when the table's log says so, in one entry together with the batch's number. Killed anywhere, the next run removes what
did not count and Spark's checkpoint asks for the same batch again. docs/decisions/0013 weighs this against other ways.
"""

import time
from collections.abc import Sequence

from roquette_spark.pipelines.archive.choice import Choice, choose_topics, stream_positions
from roquette_spark.pipelines.archive.options import ArchiveOptions, check_options, table_root
from roquette_spark.pipelines.archive.report import build_result
from roquette_spark.pipelines.archive.stream import ArchiveStream
from roquette_spark.pipelines.archive.topic import kept_form
from roquette_spark.pipelines.kit.frame import Job, Pipeline, Plan, Result
from roquette_spark.pipelines.kit.health import RunHealth, TableHealth
from roquette_spark.pipelines.kit.stream import Sum, await_end
from roquette_spark.pipelines.kit.topics import QueueBounds, describe, find_topics, stream_options
from roquette_spark.pipelines.tables.streamed_table import QUARANTINE, is_fresh, position_files
from roquette_spark.pipelines.tables.table_place import Owner

__all__ = ["PIPELINE", "ArchiveOptions", "plan", "run"]


def plan(options: ArchiveOptions) -> Plan:
    """What would be read and written."""
    check_options(options)
    choice = choose_topics(options)
    states = find_topics(options.namesrv, choice.topics, stream_options(options))
    writes, notes = _places(options, choice), list(choice.notes)
    for topic in choice.topics:
        there = options.tables().open(table_root(options, topic)).snapshot
        if options.format == "json" and not options.schema and there.version < 0:
            notes.append(f"schema of {topic}: to be inferred from {options.sample:,} messages")
    notes.append("until stopped" if options.follow else "until what there is now has been read")
    return Plan(reads=describe(states), writes=writes, notes=notes)


def _places(options: ArchiveOptions, choice: Choice) -> list[str]:
    """A plan's lines about each table. Raises ConfigError for one that is not this archive's."""
    keep_ms, lines = options.keep_replaced_minutes * 60_000, []
    shared = stream_positions(options)
    for topic in choice.topics:
        table = options.tables().open(table_root(options, topic))
        table.keep_versions = options.keep_versions
        lines += table.describe(Owner("archive", topic), keep_ms=keep_ms)
        own = position_files(table.files, options.checkpoints)
        if not is_fresh(table, shared if topic in choice.shared else own, topic):
            kept_form(table, options)
        if options.format != "raw":
            apart = options.tables().open(table_root(options, topic) + QUARANTINE)
            apart.keep_versions = options.keep_versions
            said = apart.describe(Owner("archive", topic, quarantine=True), keep_ms=keep_ms)
            lines += [f"{said[0]}, for rows that cannot be read", *said[1:]]
    return lines


def run(options: ArchiveOptions, job: Job) -> Result:
    """One stream after another, or at the same time with --follow."""
    check_options(options)
    choice = choose_topics(options)
    states = find_topics(options.namesrv, choice.topics, stream_options(options))
    _places(options, choice)
    for line in choice.notes:
        job.progress.say(line)
    streams: list[ArchiveStream] = []
    health = RunHealth("archive", lambda: _look(streams, options), job.clock, options.interval_s)
    with health.served(options.metrics_listen) as port:
        if port:
            host = options.metrics_listen.rpartition(":")[0]
            job.progress.say(f"/metrics, /healthz and /readyz at http://{host}:{port}")
        return _archive(choice, states, streams, options, job, health)


def _look(streams: Sequence[ArchiveStream], options: ArchiveOptions) -> list[TableHealth]:
    """How far the tables are."""
    archives = [archive for each in streams for archive in each.archives]
    names = [each.topic for each in archives]
    states = find_topics(options.namesrv, names, stream_options(options)) if names else []
    return [each.health(states) for each in archives]


def _archive(
    choice: Choice,
    states: list[QueueBounds],
    streams: list[ArchiveStream],
    options: ArchiveOptions,
    job: Job,
    health: RunHealth,
) -> Result:
    job.progress.step("starting Spark")
    spark = job.open_spark()
    begin = time.monotonic()
    try:
        for topic in choice.own:
            streams.append(ArchiveStream([topic], "", states, options, job, spark))
        if choice.shared:
            streams.append(
                ArchiveStream(choice.shared, choice.pattern, states, options, job, spark)
            )
        for group in [streams] if options.follow else [[each] for each in streams]:
            _stream(group, options, job, health)
        archives = [archive for each in streams for archive in each.archives]
        if options.check and not options.follow and not job.stop.is_set():
            for each in archives:
                each.check()
        results = [each.result() for each in archives]
    finally:
        for stream in streams:
            stream.close()
    return build_result(results, time.monotonic() - begin)


def _stream(
    group: Sequence[ArchiveStream],
    options: ArchiveOptions,
    job: Job,
    health: RunHealth,
) -> None:
    """Read by some streams at the same time, to their end or until stopped; then join small files."""
    if job.stop.is_set():
        return
    names = ", ".join(each.name for each in group)
    job.progress.step(f"archiving {names}")
    queries = [each.start() for each in group]
    total = None if options.follow else sum(each.waiting_rows for each in group)
    look = health.update if options.metrics_listen else lambda: None
    await_end(job, queries, Sum([each.batches for each in group]), total, look)
    for each in group:
        each.tidy()


PIPELINE: Pipeline[ArchiveOptions] = Pipeline(
    name="archive",
    help="Copy topics to Parquet tables, each message exactly once.\n\n"
    "One table per topic, partitioned by day, readable by everything that reads Parquet or Delta. Rows that "
    "cannot be read go to a table beside it. Ends when it has caught up, or follows.",
    options=ArchiveOptions,
    plan=plan,
    run=run,
    jvm_plans_only=True,
)
