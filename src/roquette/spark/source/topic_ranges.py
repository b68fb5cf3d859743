"""What topics hold, asked without Spark: bounds of their queues, by offset or by time; and making a topic."""

from collections.abc import Sequence

from roquette.client.blocking_topics import create_topic, writable_queues
from roquette.spark.source.offsets import Offsets
from roquette.spark.source.options import read_options
from roquette.spark.source.queues import QueueReader, open_reader

__all__ = ["create_topic", "queue_bounds", "reader_of", "writable_queues"]


def reader_of(namesrv: str, topics: Sequence[str]) -> QueueReader:
    """A reader of these topics. Raises ConfigError for a malformed address or name."""
    return open_reader(read_options({"namesrvAddr": namesrv, "subscribe": ",".join(topics)}))


def queue_bounds(
    namesrv: str,
    topics: Sequence[str],
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> tuple[Offsets, Offsets]:
    """First offset and end (exclusive) of every queue.

    Args:
        since_ms, until_ms: only what was stored then or later, and before; by the broker's clock.

    Raises:
        ClientError: no name server or broker answers, or a topic does not exist.
    """
    reader = reader_of(namesrv, topics)
    queues = [queue for topic in topics for queue in reader.queues(topic)]
    start, end = reader.min_offsets(queues), reader.max_offsets(queues)
    for queue in queues:
        low, high = start[queue], end[queue]
        if since_ms is not None:
            start[queue] = max(low, min(high, reader.offset_by_time(queue, since_ms)))
        if until_ms is not None:
            end[queue] = max(start[queue], min(high, reader.offset_by_time(queue, until_ms)))
    return start, end
