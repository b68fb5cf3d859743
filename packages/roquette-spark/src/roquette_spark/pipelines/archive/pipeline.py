"""`roquette pipeline archive`: topics to Parquet tables, each message exactly once.

The stream carries which messages to read. Tasks of a batch read them and write files at their last names; these count
when the table's log says so, in one entry together with the batch's number. Killed anywhere, the next run removes what
did not count and Spark's checkpoint asks for the same batch again. docs/decisions/0013 weighs this against other ways.
"""

import contextlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roquette.base.files import FileLock
from roquette.base.options import counted
from roquette.errors import ClientError, ConfigError, RouteNotFound
from roquette_spark.pipelines.archive.options import (
    ArchiveOptions,
    check_options,
    routed,
    stream_root,
    table_root,
)
from roquette_spark.pipelines.archive.report import build_result
from roquette_spark.pipelines.archive.topic import (
    TopicArchive,
    kept_form,
    offsets_at,
    read_options_of,
)
from roquette_spark.pipelines.kit.frame import Job, Pipeline, Plan, Result
from roquette_spark.pipelines.kit.lineage import table_dataset, topic_dataset
from roquette_spark.pipelines.kit.stream import Batches, RunHealth, TableHealth, await_end
from roquette_spark.pipelines.kit.table_files import TableFiles
from roquette_spark.pipelines.kit.topics import (
    GroupPlace,
    PlannedEnd,
    Queue,
    QueueBounds,
    checkpoint_offsets,
    describe,
    find_topics,
    forget_torn_batch,
    group_of,
    planned_ends,
    start_ranges,
    stream_options,
)
from roquette_spark.pipelines.rows.tasks import write_batch
from roquette_spark.pipelines.tables.streamed_table import (
    QUARANTINE,
    SharedStream,
    is_fresh,
    position_files,
    shared_stream,
)
from roquette_spark.pipelines.tables.table_place import (
    CHECKPOINT,
    OWN_FOLDER,
    SHARED_SETTING,
    Owner,
)
from roquette_spark.source.queues import (
    closed_pattern,
    matching_topics,
    open_reader,
    why_left_out,
)
from roquette_spark.values.offsets import QueueRange, ranges_by_topic
from roquette_spark.values.options import read_options
from roquette_spark.workers.reader import BlockingReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


# Which topics an archive takes: those that are named, and those that a pattern matches.


_SHOWN = 10  # names in a line
_NOTHING = "(?!)"  # matches no name
MOST_BATCHES = 100  # that Spark's checkpoint keeps


@dataclass(frozen=True, slots=True)
class Choice:
    """Choice of what is read.

    Attributes:
        own: topics that have a stream each.
        shared: topics of the folder's stream.
        pattern: matches `shared`, and what may come to that stream while it runs; "" where there is no such stream.
        notes: which were taken, and which not and why, for people.
    """

    own: tuple[str, ...]
    shared: tuple[str, ...] = ()
    pattern: str = ""
    notes: tuple[str, ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        return self.own + self.shared


def choose_topics(options: ArchiveOptions) -> Choice:
    """Asks a name server where there is a pattern.

    A table goes on with the stream it was begun with. The folder's stream goes on with all topics it has begun.

    Raises:
        ConfigError: nothing matches, or no name server answers.
    """
    named = tuple(dict.fromkeys(options.topics))
    begun = _begun(options)
    shared = {topic: _is_shared(options, topic, begun) for topic in named}
    if not options.topics_pattern and not any(shared.values()):
        return Choice(named)
    pattern = _for_source(options.topics_pattern)
    reader = _reader(options, pattern)
    there = _topics(reader, options)
    found = [topic for topic in matching_topics(there, pattern) if _readable(reader, topic)]
    for topic in found:
        shared[topic] = _is_shared(options, topic, begun, new=True)
    notes = []
    if options.topics_pattern:
        if not found:
            raise ConfigError(
                f"archive: no topic at {options.namesrv} matches --topics-pattern {options.topics_pattern}"
            )
        notes += [f"matched by --topics-pattern: {_listed(found)}"]
        notes += _left_out(options, there, found)
    more = sorted(set(begun) - set(named) - set(found))
    if more:
        notes.append(f"topics that this folder's stream has begun go on, too: {_listed(more)}")
    gone = [topic for topic in more if not _readable(reader, topic)]
    own = tuple(topic for topic, is_shared in shared.items() if not is_shared)
    joint = {topic for topic, is_shared in shared.items() if is_shared}
    by_name = sorted((joint - set(found)) | set(more))
    whole = "|".join([_without(pattern, own), *(re.escape(topic) for topic in by_name)])
    return Choice(own, tuple(sorted((joint | set(more)) - set(gone))), whole, tuple(notes))


def stream_positions(options: ArchiveOptions) -> TableFiles:
    """Return the files in which the position of the folder's stream is."""
    return position_files(TableFiles(stream_root(options)), options.checkpoints)


def _begun(options: ArchiveOptions) -> Mapping[str, object]:
    return checkpoint_offsets(stream_positions(options), CHECKPOINT)


def _is_shared(
    options: ArchiveOptions, topic: str, begun: Mapping[str, object], *, new: bool = False
) -> bool:
    """Return True if the folder's stream fills a topic's table; `new` says it of one that is not there."""
    there = options.tables().open(table_root(options, topic)).snapshot
    return topic in begun or (SHARED_SETTING in there.settings if there.version >= 0 else new)


def _for_source(pattern: str) -> str:
    """The pattern as the source takes it: retries and dead letters only where their prefix is written out.

    Raises:
        ConfigError: it is no regular expression.
    """
    if not pattern:
        return _NOTHING
    try:
        re.compile(pattern)
        re.compile(found := closed_pattern(pattern))
    except re.error as error:
        raise ConfigError(
            f"archive: --topics-pattern {pattern} is no regular expression: {error}"
        ) from None
    return found


def _without(pattern: str, topics: Sequence[str]) -> str:
    names = "|".join(map(re.escape, topics))
    return rf"(?!(?:{names})\Z){pattern}" if topics else pattern


def _reader(options: ArchiveOptions, pattern: str) -> BlockingReader:
    return open_reader(read_options({**stream_options(options), "subscribePattern": pattern}))


def _topics(reader: BlockingReader, options: ArchiveOptions) -> list[str]:
    try:
        return reader.topics()
    except ClientError as error:
        raise ConfigError(
            f"archive: no name server answers at {options.namesrv}: {error}"
        ) from None


def _readable(reader: BlockingReader, topic: str) -> bool:
    try:
        return bool(reader.queues(topic))
    except RouteNotFound:
        return False


def _left_out(options: ArchiveOptions, there: Sequence[str], found: Sequence[str]) -> list[str]:
    """Topics that were not taken, by reason."""
    matches = re.compile(options.topics_pattern).fullmatch
    left = [topic for topic in there if topic not in found and topic not in options.topics]
    reasons: dict[str, list[str]] = {}
    for topic in filter(matches, left):
        why = why_left_out(topic, options.topics_pattern) or "none of their queues can be read"
        reasons.setdefault(why, []).append(topic)
    lines = [f"not taken ({why}): {_listed(topics)}" for why, topics in sorted(reasons.items())]
    others = len(left) - sum(len(topics) for topics in reasons.values())
    if others:
        lines.append(f"{counted(others, 'other topic')} of the cluster not matched")
    return lines


def _listed(topics: Sequence[str]) -> str:
    more = f" and {len(topics) - _SHOWN} more" if len(topics) > _SHOWN else ""
    return ", ".join(topics[:_SHOWN]) + more


# The stream of a topic, or of many: their ranges travel together, each topic has its table, each table its commits.
# The position of one topic's stream is with its table, that of many topics in a folder beside theirs. A batch's files are written by the same tasks; then one table after another commits its own with the batch's number. Killed between two commits, the next run gets the same batch and leaves out the tables that have it.


class ArchiveStream:
    """A stream and the tables that it fills.

    A topic of the folder's stream gets its table with its first messages, one with a stream of its own at once.

    Args:
        pattern: matches the topics of the folder's stream, and what may come to it; "": a topic's own stream.
        states: the queues of these topics, and of others.

    Attributes:
        name: what it reads, for people.
        batches: of all tables together.
        archives: the topics that have tables.

    Raises:
        ConfigError: an option names a column that no topic has.
        PipelineError: another process writes there.
    """

    def __init__(
        self,
        topics: Sequence[str],
        pattern: str,
        states: Sequence[QueueBounds],
        options: ArchiveOptions,
        job: Job,
        spark: "SparkSession",
    ) -> None:
        self.name = counted(len(topics), "topic") + f" below {options.to}" if pattern else topics[0]
        self.batches = Batches(job, options.max_rate)
        self._options = options
        self._job = job
        self._spark = spark
        self._pattern = pattern
        self._by_topic: dict[str, TopicArchive] = {}
        self._states = {topic: [each for each in states if each.topic == topic] for topic in topics}
        self._shared: SharedStream | None = None
        self._lock: FileLock | None = None
        self._planned_ends: dict[int, dict[str, dict[Queue, PlannedEnd]]] = {}
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            if pattern:
                positions = stream_positions(options)
                self._lock = positions.lock(f"{OWN_FOLDER}/lock")
                anew = options.from_certificate
                self._keep_routes(positions)
                self._shared = shared_stream(positions, "archive", anew=anew)
            for topic, own in self._states.items():
                waiting = any(each.end > each.start for each in own)
                if not pattern or waiting or self._has_table(topic):
                    self._open(topic, own)
            self._check_columns()
            undo.pop_all()

    @property
    def archives(self) -> list[TopicArchive]:
        return [self._by_topic[topic] for topic in sorted(self._by_topic)]

    @property
    def waiting_rows(self) -> int:
        return sum(each.waiting_rows for each in self.archives)

    def start(self) -> "StreamingQuery":
        starts = {each.topic: each.kept_start() for each in self.archives if each.kept_start()}
        if not self._options.starting.isdigit():
            for topic in self._states.keys() - self._by_topic.keys():
                starts[topic] = offsets_at("latest", self._states[topic])
        given = read_options_of(self._options, starts)
        subscribed = (
            {"subscribePattern": self._pattern} if self._pattern else {"subscribe": self.name}
        )
        positions = (self._shared or self.archives[0]).positions
        forget_torn_batch(positions, CHECKPOINT)
        group = GroupPlace(self._options, _group(self._options), positions, CHECKPOINT)
        return start_ranges(
            self._spark,
            given | subscribed,
            group.after(self._write),
            checkpoint=positions.address(CHECKPOINT),
            interval_s=self._options.interval_s if self._options.follow else None,
        )

    def tidy(self) -> None:
        for each in self.archives:
            each.tidy()

    def close(self) -> None:
        for each in self._by_topic.values():
            each.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _keep_routes(self, positions: TableFiles) -> None:
        """Raises ConfigError when a topic that the stream has begun would go on in another table."""
        path, routes = f"{OWN_FOLDER}/routes", self._options.route
        before = json.loads(positions.read(path)) if positions.exists(path) else []
        for topic in checkpoint_offsets(positions, CHECKPOINT):
            if (kept := routed(before, topic)) != routed(routes, topic):
                raise ConfigError(
                    f"archive: --route: the table of {topic} was begun as {kept} below {self._options.to}: give the same "
                    "routes of such topics, or another --to"
                )
        if list(routes) != before:
            positions.write(path, json.dumps(routes).encode())

    def _check_columns(self) -> None:
        """Raises ConfigError when an option names a column that no topic has: that is a mistake, one without it is not."""
        lacks = [set(each.lacks) for each in self.archives]
        for option in sorted(set.intersection(*lacks)) if lacks else ():
            raise ConfigError(f"archive: {option}: no topic of the stream has a column for it")

    def _has_table(self, topic: str) -> bool:
        root = table_root(self._options, topic)
        return self._options.tables().open(root).snapshot.version >= 0

    def _open(self, topic: str, states: list[QueueBounds]) -> None:
        options = self._options
        archive = TopicArchive(topic, states, options, self._job, self._spark, self._shared)
        self._by_topic[topic] = archive
        for option in archive.lacks:
            what = "its rows are in order without it"
            if option.startswith(("--rename", "--mask")):
                what = "it holds when messages bring such a field"
            elif not option.startswith("--sort-by"):
                what = "its table has it as text, null until messages bring it"
            self._job.progress.say(f"warning: topic {topic} has no column for {option}: {what}")

    def _write(self, ranges: list[QueueRange], number: int) -> None:
        """One batch into the tables of its topics: each has it once, however often this is called for it.

        Files of all tables are written side by side; then each table's commit names the batch.
        """
        by_topic, archives = ranges_by_topic(ranges), self._by_topic
        for topic in sorted(by_topic.keys() - archives.keys()):
            self._job.progress.say(f"topic {topic} comes to the stream with batch {number}")
            given = stream_options(self._options)
            self._open(topic, find_topics(self._options.namesrv, [topic], given))
        begin, rows = time.monotonic(), 0
        left = {topic: own for topic, own in by_topic.items() if not archives[topic].has(number)}
        if not left:
            return
        while left:
            works = {topic: archives[topic].work(number) for topic in left}
            found = write_batch(self._spark, works, [each for own in left.values() for each in own])
            for topic, written in found.items():
                if archives[topic].takes(written, number):
                    planned = self._planned(topic, number)
                    archives[topic].commit(left.pop(topic), number, written, begin, planned)
                    rows += written.rows + written.bad_rows
        self.batches.done(number, rows, time.monotonic() - begin)

    def _planned(self, topic: str, number: int) -> dict[Queue, PlannedEnd]:
        """Where a batch ends in a topic's queues; those made anew by batches that had nothing for its table among them."""
        found = dict(self._ends(number).get(topic, {}))
        first = max(self._by_topic[topic].done, number - MOST_BATCHES)
        for earlier in range(number - 1, first, -1):
            for queue, end in self._ends(earlier).get(topic, {}).items():
                if end.anew is not None and queue in found and found[queue].anew is None:
                    found[queue] = replace(found[queue], anew=end.anew)
        return found

    def _ends(self, number: int) -> dict[str, dict[Queue, PlannedEnd]]:
        if number not in self._planned_ends:
            positions = (self._shared or self.archives[0]).positions
            self._planned_ends[number] = planned_ends(positions, CHECKPOINT, number)
            for old in [each for each in self._planned_ends if each < number - MOST_BATCHES]:
                del self._planned_ends[old]
        return self._planned_ends[number]


def plan(options: ArchiveOptions) -> Plan:
    check_options(options)
    choice = choose_topics(options)
    states = find_topics(options.namesrv, choice.topics, stream_options(options))
    writes, notes = _places(options, choice), list(choice.notes)
    for topic in choice.topics:
        there = options.tables().open(table_root(options, topic)).snapshot
        if options.format in ("json", "connect") and not options.schema and there.version < 0:
            notes.append(f"schema of {topic}: to be inferred from {options.sample:,} messages")
    notes.append(f"group {_group(options)} is told how far the tables are")
    notes.append("until stopped" if options.follow else "until what there is now has been read")
    return Plan(reads=describe(states), writes=writes, notes=notes)


def _group(options: ArchiveOptions) -> str:
    return group_of(options, "archive", TableFiles(options.to).root)


def _places(options: ArchiveOptions, choice: Choice) -> list[str]:
    """A plan's lines about each table. Raises ConfigError for one that is not this archive's."""
    keep_ms, lines = options.keep_replaced_minutes * 60_000, []
    shared, topics = stream_positions(options), dict[str, str]()
    for topic in choice.topics:
        other = topics.setdefault(root := table_root(options, topic), topic)
        if other != topic:
            raise ConfigError(
                f"archive: --route: topics {other} and {topic} would have one table, {root}: a table is of one topic"
            )
        table = options.tables().open(root)
        table.keep_versions = options.keep_versions
        lines += table.describe(Owner("archive", topic), keep_ms=keep_ms)
        own = position_files(table.files, options.checkpoints)
        if not is_fresh(table, shared if topic in choice.shared else own, topic):
            kept_form(table, options)
        if options.format != "raw":
            apart = options.tables().open(table_root(options, topic) + QUARANTINE)
            apart.keep_versions = options.keep_versions
            description = apart.describe(Owner("archive", topic, quarantine=True), keep_ms=keep_ms)
            lines += [f"{description[0]}, for rows that cannot be read", *description[1:]]
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
    with health.served(options.metrics_listen, job.progress.say) as look:
        return _archive(choice, states, streams, options, job, look)


def _look(streams: Sequence[ArchiveStream], options: ArchiveOptions) -> list[TableHealth]:
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
    look: Callable[[], None],
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
        if options.from_quarantine:
            for archive in (each for stream in streams for each in stream.archives):
                archive.mend()
        for group in [streams] if options.follow else [[each] for each in streams]:
            _stream(group, options, job, look)
        archives = [archive for each in streams for archive in each.archives]
        if options.check and not options.follow and not job.stop.is_set():
            for each in archives:
                each.check()
        results = [each.result() for each in archives]
    finally:
        for stream in streams:
            stream.close()
    result = build_result(results, time.monotonic() - begin, follows=options.follow)
    result.reads = [
        topic_dataset(options.namesrv, each.topic, each.batches.rows) for each in results
    ]
    result.writes = [
        table_dataset(each.root, each.batches.rows - each.bad, each.snapshot) for each in results
    ]
    return result


def _stream(
    group: Sequence[ArchiveStream],
    options: ArchiveOptions,
    job: Job,
    look: Callable[[], None],
) -> None:
    """Read by some streams at the same time, to their end or until stopped; then join small files."""
    if job.stop.is_set():
        return
    names = ", ".join(each.name for each in group)
    job.progress.step(f"archiving {names}")
    queries = [each.start() for each in group]
    total = None if options.follow else sum(each.waiting_rows for each in group)
    await_end(job, queries, [each.batches for each in group], total, look)
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
