"""The stream of a topic, or of many: their ranges travel together, each topic has its table, each table its commits.

The position of one topic's stream is with its table, that of many topics in a folder beside theirs. A batch's files are
written by the same tasks; then one table after another commits its own with the batch's number. Killed between two
commits, the next run gets the same batch and leaves out the tables that have it.
"""

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from roquette.base.files import FileLock
from roquette.base.quantities import counted
from roquette.errors import ConfigError
from roquette_spark.pipelines.archive.choice import stream_positions
from roquette_spark.pipelines.archive.options import ArchiveOptions, table_root
from roquette_spark.pipelines.archive.topic import TopicArchive, offsets_at, read_options_of
from roquette_spark.pipelines.kit.frame import Job
from roquette_spark.pipelines.kit.stream import Batches
from roquette_spark.pipelines.kit.topics import (
    QueueBounds,
    find_topics,
    start_ranges,
    stream_options,
)
from roquette_spark.pipelines.rows.tasks import write_batch
from roquette_spark.pipelines.tables.streamed_table import SharedStream, shared_stream
from roquette_spark.pipelines.tables.table_place import CHECKPOINT, OWN_FOLDER
from roquette_spark.source.offsets import QueueRange
from roquette_spark.source.shares import ranges_by_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


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
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            if pattern:
                positions = stream_positions(options)
                self._lock = positions.lock(f"{OWN_FOLDER}/lock")
                self._shared = shared_stream(positions, "archive")
            for topic, own in self._states.items():
                waiting = any(each.end > each.start for each in own)
                if not pattern or waiting or self._has_table(topic):
                    self._open(topic, own)
            self._check_columns()
            undo.pop_all()

    @property
    def archives(self) -> list[TopicArchive]:
        """By topic."""
        return [self._by_topic[topic] for topic in sorted(self._by_topic)]

    @property
    def waiting_rows(self) -> int:
        """Messages to read."""
        return sum(each.waiting_rows for each in self.archives)

    def start(self) -> "StreamingQuery":
        """Begin to read."""
        starts = {each.topic: each.kept_start() for each in self.archives if each.kept_start()}
        if not self._options.starting.isdigit():
            for topic in self._states.keys() - self._by_topic.keys():
                starts[topic] = offsets_at("latest", self._states[topic])
        given = read_options_of(self._options, starts)
        subscribed = (
            {"subscribePattern": self._pattern} if self._pattern else {"subscribe": self.name}
        )
        place = self._shared or self.archives[0]
        return start_ranges(
            self._spark,
            given | subscribed,
            self._write,
            checkpoint=place.positions.address(CHECKPOINT),
            interval_s=self._options.interval_s if self._options.follow else None,
        )

    def tidy(self) -> None:
        """Of all tables."""
        for each in self.archives:
            each.tidy()

    def close(self) -> None:
        """Let others write."""
        for each in self._by_topic.values():
            each.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

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
            if not option.startswith("--sort-by"):
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
                    archives[topic].commit(left.pop(topic), number, written, begin)
                    rows += written.rows + written.bad_rows
        self.batches.done(number, rows, time.monotonic() - begin)
