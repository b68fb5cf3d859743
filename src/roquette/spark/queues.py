"""What the Spark source needs from a cluster: its queues, their bounds, and their records.

`QueueReader` is the seam: `open_reader` binds it to our blocking client, tests bind it to a list.
"""

from collections.abc import Iterator
from functools import cache
from typing import Protocol

from roquette.client.blocking import BlockingReader, Pulled
from roquette.message.message import MessageQueue
from roquette.spark.options import ReadOptions


class QueueReader(Protocol):
    """Blocking reads of queues. Offsets are queue offsets; an end is exclusive."""

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted. Raises RouteNotFound."""

    def min_offset(self, queue: MessageQueue) -> int:
        """The oldest offset the broker still has."""

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message will get."""

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at that time or later; the maximum when there is none."""

    def pull(self, queue: MessageQueue, offset: int, max_count: int, tags: str) -> Pulled:
        """One pull, without waiting: raw records from `offset` on, and where to go on."""

    def scan(self, queue: MessageQueue, start: int, end: int, tags: str) -> Iterator[Pulled]:
        """Pull until `end` is reached, reading ahead; stops early when a pull brings no progress."""


@cache
def open_reader(options: ReadOptions) -> QueueReader:
    """The reader of this process for these options.

    One per process, on purpose: Spark reuses its Python workers, so the connections are reused too.
    """
    return BlockingReader(
        options.namesrv_addr,
        group=options.group,
        timeout_ms=options.pull_timeout_ms,
        pull_batch_size=options.pull_batch_size,
    )
