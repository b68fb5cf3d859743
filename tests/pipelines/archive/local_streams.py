"""A pipeline's Spark without a JVM: tasks run in this process, streams over a checkpoint in Spark's own files.

Messages, files, commits and checkpoints are real; only Spark's engine is played.
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType
from tests.client.fake_cluster import FakeCluster
from tests.spark.records import make_record

from roquette.errors import RoquetteError
from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive.options import ArchiveOptions
from roquette_spark.source.stream_reader import RocketmqStreamReader
from roquette_spark.values.offsets import QueueRange
from roquette_spark.values.options import read_options

POLL_S = 0.01


class LocalSpark:
    """As much of a session as tasks of ranges need."""

    defaultParallelism = 2

    @property
    def sparkContext(self) -> "LocalSpark":
        return self

    def parallelize(self, shares: list[Any], count: int) -> "LocalTasks":
        assert len(shares) == count
        return LocalTasks(shares, lambda share: share)


class LocalTasks:
    """Shares and what is to be done with each."""

    def __init__(self, shares: Iterable[Any], task: Callable[[Any], Any]) -> None:
        self.shares, self.task = shares, task

    def map(self, task: Callable[[Any], Any]) -> "LocalTasks":
        return LocalTasks(self.shares, task)

    def collect(self) -> list[Any]:
        return [self.task(share) for share in self.shares]


class LocalStream:
    """A query over ranges: `start_ranges` of the pipelines."""

    def __init__(
        self,
        spark: LocalSpark,
        options: Mapping[str, str],
        write: Callable[[list[QueueRange], int], None],
        *,
        checkpoint: str,
        interval_s: int | None,
    ) -> None:
        checked = read_options(
            {**options, "offsetPollIntervalMs": "0", "partitionDiscoveryIntervalMs": "0"}
        )
        self.reader = RocketmqStreamReader(StructType(), checked)
        self.write = write
        self.folder = Path(checkpoint)
        self.error: RoquetteError | None = None
        self.ended = threading.Event()
        if interval_s is None:
            self.reader.prepareForTriggerAvailableNow()
        self.thread = threading.Thread(target=self._run, args=(interval_s is not None,))
        self.thread.start()

    @property
    def isActive(self) -> bool:
        return self.thread.is_alive()

    def exception(self) -> RoquetteError | None:
        return None if self.isActive else self.error

    def awaitTermination(self, timeout: float) -> None:
        self.thread.join(min(timeout, POLL_S))

    def stop(self) -> None:
        self.ended.set()
        self.thread.join()

    def _run(self, follow: bool) -> None:
        try:
            while not self.ended.is_set():
                if not self._batch():
                    if not follow:
                        return
                    self.ended.wait(POLL_S)
        except RoquetteError as error:
            self.error = error

    def _offsets(self, number: int) -> dict[str, object]:
        path = self.folder / "offsets" / str(number)
        if number < 0:
            path = self.folder / "initial"
            if not path.exists():
                self._put(path, json.dumps(self.reader.initialOffset()))
        found: dict[str, object] = json.loads(path.read_text().splitlines()[-1])
        return found

    def _put(self, path: Path, line: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"v1\n{{}}\n{line}")

    def _batch(self) -> bool:
        commits = self.folder / "commits"
        number = len(list(commits.iterdir())) if commits.exists() else 0
        start = self._offsets(number - 1)
        planned = self.folder / "offsets" / str(number)
        if not planned.exists():
            end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
            if end == start:
                return False
            self._put(planned, json.dumps(end))
        tasks = self.reader.partitions(start, self._offsets(number))
        self.write([each for task in tasks for each in task.value], number)
        self._put(commits / str(number), "{}")
        return True


QUEUE = MessageQueue("t", "broker-a", 0)


def fill(cluster: FakeCluster, values: Iterable[Mapping[str, Any]], **more: Any) -> None:
    """More messages of topic `t`, as JSON, each with these fields, too."""
    there = cluster.queues.setdefault(QUEUE, [])
    for each in values:
        there.append(make_record(len(there), json.dumps({**each, **more}).encode(), queue_id=0))


def small_batches(cluster: FakeCluster, folder: Path, **more: Any) -> ArchiveOptions:
    """An archive of topic `t` with few rows a file, which compacts after three of them and keeps nothing it replaced."""
    given = ArchiveOptions(
        namesrv=cluster.address,
        topics=("t",),
        to=str(folder / "lake"),
        report=str(folder / "report"),
        batch=15,
        small_files=3,
        keep_replaced_minutes=0,
    )
    return replace(given, **more)
