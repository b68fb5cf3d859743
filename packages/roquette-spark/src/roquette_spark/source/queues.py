"""Cluster, as far as the Spark source needs it: its queues, their bounds, and their records.

`BlockingQueueReader` is the seam: `open_reader` binds it to our blocking client, tests bind it to a list.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from roquette.client.calls import EVERYTHING, Pulled, PullFilter
from roquette.message.message import MessageQueue
from roquette_spark.options import ReadOptions, read_options
from roquette_spark.source.offsets import Offsets
from roquette_spark.workers.reader import BlockingReader, ReaderConfig

__all__ = [
    "BlockingQueueReader",
    "open_reader",
    "pull_filter",
    "queue_bounds",
    "reader_of",
]
_POOL_SIZE = 8  # clusters (or groups, or time limits) one process reads at a time


class BlockingQueueReader(Protocol):
    """Blocking reads of queues. Offsets are queue offsets; an end is exclusive."""

    def topics(self) -> list[str]:
        """All topics, sorted."""

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted. Raises RouteNotFound."""

    def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The oldest offset the broker still has, of each. Raises RouteNotFound for a queue that is gone."""

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The offset the next message will get, of each. Raises RouteNotFound for a queue that is gone."""

    def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at that time or later; the maximum when there is none."""

    def committed_offset(self, queue: MessageQueue) -> int | None:
        """Return the offset at which the group goes on; None when it has committed nothing there."""

    def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Store where the group goes on."""

    def from_replica(self, queue: MessageQueue) -> bool:
        """Return True if the queue's last answer came from a replica, which may be behind its master."""

    def pull(
        self, queue: MessageQueue, offset: int, max_count: int, wanted: PullFilter = EVERYTHING
    ) -> Pulled:
        """One pull, without waiting: raw records from `offset` on, and where to go on."""

    def messages_at(self, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, bytes]:
        """The record at one offset of each queue, asked side by side; without those that are not there."""

    def scan(
        self, queue: MessageQueue, start: int, end: int, wanted: PullFilter = EVERYTHING
    ) -> Iterator[Pulled]:
        """Pull until `end` is reached, reading ahead; stops early when a pull brings no progress."""


_pool: dict[tuple[object, ...], BlockingReader] = {}


def open_reader(options: ReadOptions) -> BlockingQueueReader:
    """The reader of this process for the cluster, group and limits of these options.

    One per process, on purpose: Spark reuses its Python workers, so the connections are reused too.
    """
    key = (
        os.getpid(),  # a process that was forked must not share its parent's connections
        *(
            options.namesrv_addr,
            options.request_group,
            options.pull_timeout_ms,
            options.pull_batch_size,
        ),
        *(options.connect_timeout_ms, options.pulls_in_flight, options.fetch_retries),
        options.fetch_retry_interval_ms,
        options.access,
    )
    reader = _pool.pop(key, None)
    if reader is None:
        tls, credentials = options.access
        if len(_pool) >= _POOL_SIZE:
            _pool.pop(next(iter(_pool))).close()
        reader = BlockingReader(
            ReaderConfig(
                namesrv_addr=options.namesrv_addr,
                group=options.request_group,
                timeout_ms=options.pull_timeout_ms,
                connect_timeout_ms=options.connect_timeout_ms,
                pull_batch_size=options.pull_batch_size,
                pulls_in_flight=options.pulls_in_flight,
                retries=options.fetch_retries,
                retry_interval_ms=options.fetch_retry_interval_ms,
                tls=tls,
                credentials=credentials,
            )
        )
    _pool[key] = reader  # in order of use: the first is closed when the pool is full
    return reader


def pull_filter(options: ReadOptions) -> PullFilter:
    """Return the filter of what the broker is to leave out."""
    if options.filter_sql:
        return PullFilter(options.filter_sql, "SQL92")
    return PullFilter(options.tags, "TAG")


def reader_of(
    namesrv: str, topics: Sequence[str], options: Mapping[str, str] | None = None
) -> BlockingQueueReader:
    """A reader of these topics. Raises ConfigError for a malformed address, name or option."""
    given = {"namesrvAddr": namesrv, "subscribe": ",".join(topics), **(options or {})}
    return open_reader(read_options(given))


def queue_bounds(
    namesrv: str,
    topics: Sequence[str],
    since_ms: int | None = None,
    until_ms: int | None = None,
    options: Mapping[str, str] | None = None,
) -> tuple[Offsets, Offsets]:
    """First offset and end (exclusive) of every queue, asked without Spark; sorted by topic as given, then queue.

    Args:
        since_ms, until_ms: only what was stored then or later, and before; by the broker's clock.
        options: more options of the source, such as access keys.

    Raises:
        ClientError: no name server or broker answers, or a topic does not exist.
    """
    reader = reader_of(namesrv, topics, options)
    queues = [queue for topic in topics for queue in reader.queues(topic)]
    start, end = reader.min_offsets(queues), reader.max_offsets(queues)
    for queue in queues:
        low, high = start[queue], end[queue]
        if since_ms is not None:
            start[queue] = max(low, min(high, reader.offset_by_time(queue, since_ms)))
        if until_ms is not None:
            end[queue] = max(start[queue], min(high, reader.offset_by_time(queue, until_ms)))
    return start, end
