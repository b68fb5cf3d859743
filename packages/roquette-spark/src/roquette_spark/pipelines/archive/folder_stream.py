"""One stream for many topics: their ranges travel together, each topic has its table, each table its commits.

The stream's position is in a folder beside the tables. A batch's files are written by the same tasks; then one table after
another commits its own with the batch's number. Killed between two commits, the next run gets the same batch and leaves
out the tables that have it.
"""

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from roquette.base.files import FileLock
from roquette.base.quantities import counted
from roquette.errors import ConfigError
from roquette_spark.pipelines.archive.choice import Choice, stream_positions
from roquette_spark.pipelines.archive.options import ArchiveOptions, table_root
from roquette_spark.pipelines.archive.topic import TopicArchive, read_options_of, write_topics
from roquette_spark.pipelines.kit.frame import Job
from roquette_spark.pipelines.kit.stream import Batches
from roquette_spark.pipelines.kit.streamed_table import shared_stream
from roquette_spark.pipelines.kit.table_place import CHECKPOINT, OWN_FOLDER
from roquette_spark.pipelines.kit.topics import (
    QueueBounds,
    find_topics,
    start_ranges,
    stream_options,
)
from roquette_spark.source.offsets import QueueRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


class FolderStream:
    """The stream of a folder's tables, except of those that have their own.

    A topic without messages gets its table with its first ones.

    Attributes:
        archives: the topics that have tables.

    Raises:
        ConfigError: an option names a column that no topic has.
        PipelineError: another process writes there.
    """

    def __init__(
        self,
        choice: Choice,
        states: Sequence[QueueBounds],
        options: ArchiveOptions,
        job: Job,
        spark: "SparkSession",
    ) -> None:
        self.topic = counted(len(choice.shared), "topic") + f" below {options.to}"
        self.batches = Batches(job, options.max_rate)
        self._options = options
        self._job = job
        self._spark = spark
        self._pattern = choice.pattern
        self._by_topic: dict[str, TopicArchive] = {}
        positions = stream_positions(options)
        self._lock: FileLock | None = positions.lock(f"{OWN_FOLDER}/lock")
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._stream = shared_stream(positions, "archive")
            self._states: dict[str, list[QueueBounds]] = {
                topic: [each for each in states if each.topic == topic] for topic in choice.shared
            }
            for topic, own in self._states.items():
                there = options.tables().open(table_root(options, topic)).snapshot
                if there.version >= 0 or any(each.end > each.start for each in own):
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
                starts[topic] = ends_of(self._states[topic])
        given = read_options_of(self._options, starts)
        return start_ranges(
            self._spark,
            {**given, "subscribePattern": self._pattern},
            self._write,
            checkpoint=self._stream.positions.address(CHECKPOINT),
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

    def _open(self, topic: str, states: list[QueueBounds]) -> None:
        options = self._options
        archive = TopicArchive(topic, states, options, self._job, self._spark, self._stream)
        self._by_topic[topic] = archive
        for option in archive.lacks:
            what = "its rows are in order without it"
            if not option.startswith("--sort-by"):
                what = "its table has it as text, null until messages bring it"
            self._job.progress.say(f"warning: topic {topic} has no column for {option}: {what}")

    def _write(self, ranges: list[QueueRange], number: int) -> None:
        begin = time.monotonic()
        for topic in sorted({each.queue.topic for each in ranges} - self._by_topic.keys()):
            self._job.progress.say(f"topic {topic} comes to the stream with batch {number}")
            given = stream_options(self._options)
            self._open(topic, find_topics(self._options.namesrv, [topic], given))
        rows = write_topics(self._spark, self._by_topic, ranges, number)
        self.batches.done(number, rows, time.monotonic() - begin)


def ends_of(states: Sequence[QueueBounds]) -> dict[str, dict[str, int]]:
    """Where queues end, by broker and queue."""
    found: dict[str, dict[str, int]] = {}
    for each in states:
        found.setdefault(each.broker_name, {})[str(each.queue_id)] = each.end
    return found
