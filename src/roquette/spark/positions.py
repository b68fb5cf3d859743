"""Start and end positions, as options give them, to offsets of the queues that exist."""

from collections.abc import Iterable

from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette.spark.offsets import DataLoss, Offsets
from roquette.spark.options import EARLIEST, LATEST, Position
from roquette.spark.queues import QueueReader


def find_queues(reader: QueueReader, topics: Iterable[str]) -> list[MessageQueue]:
    """The readable queues of all topics, sorted. Raises RouteNotFound for a missing topic."""
    return sorted(queue for topic in topics for queue in reader.queues(topic))


def resolve(reader: QueueReader, queues: list[MessageQueue], position: Position) -> Offsets:
    """The offset of each queue. A queue the position does not name gets the position's default."""
    if position.timestamp_ms is not None:
        return {queue: reader.offset_by_time(queue, position.timestamp_ms) for queue in queues}
    named = {MessageQueue(*named[:3]): named[3] for named in position.queues}
    unknown = sorted(set(named) - set(queues))
    if unknown:
        first = unknown[0]
        raise ConfigError(
            f"rocketmq: offsets are given for {first.topic} {first.broker_name} "
            f"queue {first.queue_id}, which does not exist"
        )
    offsets: Offsets = {}
    for queue in queues:
        offset = named.get(queue, position.default)
        if offset == EARLIEST:
            offset = reader.min_offset(queue)
        elif offset == LATEST:
            offset = reader.max_offset(queue)
        offsets[queue] = offset
    return offsets


def check_available(
    reader: QueueReader, start: Offsets, end: Offsets, *, fail_on_data_loss: bool
) -> Offsets:
    """The start of each queue, moved up to what the broker still has, or DataLoss."""
    found: Offsets = {}
    for queue, offset in start.items():
        low = reader.min_offset(queue)
        if offset < low and end[queue] > offset:
            if fail_on_data_loss:
                raise DataLoss(
                    f"rocketmq: {queue.topic} {queue.broker_name} queue {queue.queue_id}: offset {offset} "
                    f"is gone, the oldest is {low}; failOnDataLoss=false starts there"
                )
            offset = low
        found[queue] = offset
    return found
