"""Ranges of queues as text, and as even shares for tasks. Pure."""

import json
from collections.abc import Iterable, Sequence

from roquette.message.message import MessageQueue
from roquette_spark.source.offsets import QueueRange


def encode_ranges(ranges: Iterable[QueueRange]) -> str:
    """As JSON: [topic, broker, queue, first offset, offset after the last] of each."""
    return json.dumps(
        [
            [each.queue.topic, each.queue.broker_name, each.queue.queue_id, each.start, each.end]
            for each in ranges
        ]
    )


def decode_ranges(text: str) -> list[QueueRange]:
    """Decode what `encode_ranges` made."""
    return [
        QueueRange(MessageQueue(topic, broker_name, queue_id), start, end)
        for topic, broker_name, queue_id, start, end in json.loads(text)
    ]


def ranges_by_topic(ranges: Iterable[QueueRange]) -> dict[str, list[QueueRange]]:
    """The ranges of each topic, in their order."""
    found: dict[str, list[QueueRange]] = {}
    for each in ranges:
        found.setdefault(each.queue.topic, []).append(each)
    return found


def share_ranges(
    ranges: Sequence[QueueRange], *, tasks: int, least: int
) -> list[tuple[QueueRange, ...]]:
    """Ranges as the work of tasks, cut so that each task has as many messages as the others.

    Args:
        tasks: at most so many.
        least: messages that are worth a task; the same ranges always give the same tasks.
    """
    total = sum(each.end - each.start for each in ranges)
    count = max(1, min(tasks, total // least))
    bounds = [total * number // count for number in range(1, count + 1)]
    found: list[list[QueueRange]] = [[]]
    done = 0
    for each in sorted(ranges):
        start = each.start
        while start < each.end:
            end = min(each.end, start + bounds[len(found) - 1] - done)
            found[-1].append(QueueRange(each.queue, start, end))
            done += end - start
            start = end
            if done == bounds[len(found) - 1] and done < total:
                found.append([])
    return [tuple(group) for group in found if group]
