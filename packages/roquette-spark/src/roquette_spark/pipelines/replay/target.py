"""Where a replay writes: topics that are made if asked for, their ends at the beginning, and what came since."""

import json
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from roquette.errors import ConfigError
from roquette_spark.sink.duplicates import spark_id
from roquette_spark.source.offsets import decode_offsets, encode_offsets
from roquette_spark.source.queues import queue_bounds
from roquette_spark.workers.inspector import ClusterInspector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from roquette_spark.pipelines.replay.state import ReplayState


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
        self._topics = tuple(topics)
        self._queues = queues

    def describe(self) -> list[str]:
        """Lines for a plan. Raises ConfigError."""
        lines = []
        for topic in self._topics:
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
        for topic in self._topics:
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
        """The end of every queue now."""
        return encode_offsets(queue_bounds(self.namesrv, self._topics)[1])

    def wait_until_readable(self, state: "ReplayState", stop: threading.Event) -> None:
        """Brokers build their queues a little after they have acknowledged (Apache: ReputMessageService)."""
        start = decode_offsets(state.target_start)
        for _ in range(_READABLE_TRIES):
            _, end = queue_bounds(self.namesrv, self._topics)
            there = sum(offset - start.get(queue, 0) for queue, offset in end.items())
            if there >= state.rows or stop.wait(_READABLE_PAUSE_S):
                return

    def read(self, spark: "SparkSession", state: "ReplayState") -> "DataFrame":
        """What this replay has written, copies included."""
        frame = (
            spark.read.format("rocketmq")
            .options(namesrvAddr=self.namesrv, subscribe=",".join(self._topics))
            .options(startingOffsets=json.dumps(state.target_start))
            .load()
        )
        return frame.where(spark_id(frame).startswith(state.prefix))
