"""Offsets of many queues as values: canonical JSON, fair shares of a limit, ranges for tasks. Pure.

The JSON is `{"v":1,"offsets":{topic:{broker:{queue:offset}}}}` with sorted keys, since Spark stores and
compares its text. An offset is where the next read begins. A queue that is new has no key yet. Beside "offsets" there may
be, of the same form, "seen" (of the message before the offset: topic_life), "from" (where the batch that ends here
begins in a queue whose topic was created again) and "closed" (the ends of queues that took no messages any more, and that
this batch reads to there). Versions that do not know one ignore it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from roquette.errors import ClientError, ConfigError
from roquette.message.message import MessageQueue

Offsets = dict[MessageQueue, int]
Lives = dict[MessageQueue, str]
T = TypeVar("T", int, str)

_RANGES_PER_TASK = 64


class DataLoss(ClientError):
    """The broker no longer has messages that this query has still to read."""


@dataclass(frozen=True, slots=True, order=True)
class QueueRange:
    """Offsets `start` (inclusive) to `end` (exclusive) of one queue: the work of one Spark task."""

    queue: MessageQueue
    start: int
    end: int


def encode_offsets(
    offsets: Mapping[MessageQueue, int],
    seen: Mapping[MessageQueue, str] | None = None,
    begin: Mapping[MessageQueue, int] | None = None,
    closed: Mapping[MessageQueue, int] | None = None,
) -> dict[str, object]:
    """The same position always gives the same nested dict, in the same order."""
    found: dict[str, object] = {"v": 1, "offsets": _nested(offsets)}
    if seen:
        found["seen"] = _nested(seen)
    if begin:
        found["from"] = _nested(begin)
    if closed:
        found["closed"] = _nested(closed)
    return found


def _nested(values: Mapping[MessageQueue, T]) -> dict[str, dict[str, dict[str, T]]]:
    nested: dict[str, dict[str, dict[str, T]]] = {}
    for queue in sorted(values):
        brokers = nested.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = values[queue]
    return nested


def decode_offsets(value: Mapping[str, object]) -> Offsets:
    """Raises ConfigError when a checkpoint was not written by this version or an older one."""
    nested = value.get("offsets")
    if value.get("v") != 1 or not isinstance(nested, dict):
        raise ConfigError(
            f"rocketmq: these are not offsets of ours: {str(value)[:80]}; "
            "each query needs a checkpointLocation of its own"
        )
    return {queue: int(offset) for queue, offset in _flat(nested)}


def decode_seen(value: Mapping[str, object]) -> Lives:
    """Part "seen"; empty in checkpoints that have none."""
    return {queue: str(life) for queue, life in _flat(value.get("seen"))}


def decode_begin(value: Mapping[str, object]) -> Offsets:
    """Part "from"; mostly empty."""
    return {queue: int(offset) for queue, offset in _flat(value.get("from"))}


def decode_closed(value: Mapping[str, object]) -> Offsets:
    """Part "closed"; mostly empty."""
    return {queue: int(offset) for queue, offset in _flat(value.get("closed"))}


def _flat(nested: Any) -> Iterator[tuple[MessageQueue, Any]]:
    for topic, brokers in (nested or {}).items():
        for broker, queues in brokers.items():
            for queue, value in queues.items():
                yield MessageQueue(topic=topic, broker_name=broker, queue_id=int(queue)), value


def share_limit(start: Offsets, end: Offsets, limit: int) -> Offsets:
    """Move from `start` towards `end` by at most `limit` messages, in proportion to each queue's lag.

    Every queue with lag moves by at least one, unless there are more of them than `limit`, so that none starves beside
    a large one. What rounding leaves over goes to the largest remainders. Every queue of `end` needs a start,
    else it counts as having no lag.
    """
    lags = {queue: max(0, end[queue] - start.get(queue, end[queue])) for queue in sorted(end)}
    if sum(lags.values()) <= limit:
        return {queue: start.get(queue, end[queue]) + lag for queue, lag in lags.items()}
    waiting = [queue for queue, lag in lags.items() if lag]
    least = 1 if len(waiting) <= limit else 0
    rest = {queue: lags[queue] - least for queue in waiting}
    total, left = sum(rest.values()), limit - least * len(waiting)
    shares = {queue: least + lag * left // max(1, total) for queue, lag in rest.items()}
    over = limit - sum(shares.values())
    by_remainder = sorted(waiting, key=lambda queue: (-(rest[queue] * left % max(1, total)), queue))
    for queue in by_remainder[:over]:
        shares[queue] += 1
    return {q: start.get(q, end[q]) + shares.get(q, 0) for q in lags}


def split_ranges(
    ranges: Sequence[QueueRange], *, min_partitions: int | None, max_records: int | None
) -> list[QueueRange]:
    """Cut big ranges so that tasks are small enough and many enough; empty ranges disappear."""
    ranges = [r for r in ranges if r.end > r.start]
    total = sum(r.end - r.start for r in ranges)
    largest = max_records or total
    if min_partitions is not None and len(ranges) < min_partitions:
        largest = min(largest, max(1, total // min_partitions))
    found: list[QueueRange] = []
    for r in ranges:
        parts = -(-(r.end - r.start) // largest)
        size, extra = divmod(r.end - r.start, parts)
        start = r.start
        for index in range(parts):
            end = start + size + (index < extra)
            found.append(QueueRange(r.queue, start, end))
            start = end
    return found


def group_ranges(
    ranges: Sequence[QueueRange],
    *,
    least: int,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[tuple[QueueRange, ...]]:
    """The ranges of each task: those of fewer than `least` messages go together until they are so many.

    A task costs Spark as much as reading some thousand messages. The same ranges always make the same tasks.
    `min_partitions` and `max_records` hold all the same; no task gets more than 64 ranges.
    """
    small = [r for r in ranges if r.end - r.start < least]
    single = [(r,) for r in ranges if r.end - r.start >= least]
    wanted = max(1, (min_partitions or 1) - len(single))
    most = min(_RANGES_PER_TASK, max(1, len(small) // wanted))
    groups: list[list[QueueRange]] = []
    held = 0
    for r in sorted(small):
        size = r.end - r.start
        fits = max_records is None or held + size <= max_records
        if groups and held < least and fits and len(groups[-1]) < most:
            groups[-1].append(r)
            held += size
        else:
            groups.append([r])
            held = size
    return sorted(single + [tuple(group) for group in groups])


def offsets_json(offsets: Mapping[MessageQueue, int]) -> str:
    """The canonical text: as options startingOffsets and endingOffsets take it."""
    return json.dumps(encode_offsets(offsets), separators=(",", ":"))


# Ranges of queues as text, and as even shares for tasks. Pure.


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
