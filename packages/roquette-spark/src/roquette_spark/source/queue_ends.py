"""The ends of all queues of a stream, asked for no more often than options say; Trigger.AvailableNow freezes them."""

import logging
from collections.abc import Collection

from roquette.base.clock import Clock
from roquette.errors import ConnectError, RequestTimeout, RouteNotFound
from roquette.message.message import MessageQueue
from roquette_spark.options import ReadOptions
from roquette_spark.source.offsets import Offsets
from roquette_spark.source.positions import bounds_of, find_queues, missing_error
from roquette_spark.source.queues import BlockingQueueReader

log = logging.getLogger("roquette_spark")


class QueueEnds:
    """Queues are looked for once per discovery interval, their ends once per poll interval."""

    def __init__(self, reader: BlockingQueueReader, options: ReadOptions, clock: Clock) -> None:
        self._reader = reader
        self._options = options
        self._clock = clock
        self._queues: list[MessageQueue] = []
        self._missing: list[str | MessageQueue] = []
        self._queues_at_ms = 0
        self._ends: Offsets = {}
        self._ends_at_ms = 0
        self.frozen = False

    def freeze(self) -> None:
        """Ask once more and then never again: no queue and no message that comes later counts."""
        self._queues_at_ms = self._ends_at_ms = 0
        self.find()
        self.frozen = True

    @property
    def known(self) -> Offsets:
        """Ends of the last answer, without asking."""
        return self._ends

    def find(self) -> Offsets:
        """The offset after the newest message, of each queue that exists."""
        if self.frozen:
            return self._ends
        now_ms = self._clock.now_ms()
        if now_ms - self._queues_at_ms >= self._options.partition_discovery_interval_ms:
            self._discover(now_ms)
        if now_ms - self._ends_at_ms >= self._options.offset_poll_interval_ms:
            try:
                self._ends = self._reader.max_offsets(self._queues)
            except RouteNotFound:  # a queue has gone since they were looked for
                self._discover(now_ms)
                self._ends = self._reader.max_offsets(self._queues)
            self._ends_at_ms = now_ms
        return self._ends

    def require(self, begun: Collection[str]) -> None:
        """Raises ConfigError when a topic or queue was asked for that never existed.

        Args:
            begun: topics the stream has offsets of; that these are gone now is for others to judge.
        """
        for what in self._missing:
            topic = what if isinstance(what, str) else what.topic
            if topic not in begun:
                raise missing_error(self._reader, self._options, what)

    def starts_of_new(self, known: Collection[MessageQueue]) -> Offsets:
        """The oldest offsets of queues that are not in `known`: where a stream begins to read them."""
        fresh = [queue for queue in self._ends if queue not in known]
        return bounds_of(self._reader, fresh, fail_on_data_loss=False) if fresh else {}

    def _discover(self, now_ms: int) -> None:
        self._queues_at_ms = now_ms
        try:
            self._queues, self._missing = find_queues(self._reader, self._options)
        except (ConnectError, RequestTimeout) as error:
            if not self._queues:
                raise
            log.warning("queues were not looked for: no name server answers error=%s", error)
        self._ends_at_ms = 0
