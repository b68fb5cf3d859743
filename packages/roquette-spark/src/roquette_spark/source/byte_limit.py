"""Ends of queues within a limit of bytes, from samples of its records' sizes."""

import struct
from dataclasses import dataclass

from roquette.message.message import MessageQueue
from roquette_spark.source.columns import record_starts
from roquette_spark.source.offsets import Offsets
from roquette_spark.source.queues import BlockingQueueReader

_SAMPLE = 8  # records per sample: a record may have 4 MiB
_physical_offset = struct.Struct(">q").unpack_from


@dataclass(frozen=True, slots=True)
class _Sample:
    count: int
    size: int
    first_at: int  # where the first record lies in its broker's log
    end_at: int  # where the last one ends


def limit_bytes(reader: BlockingQueueReader, start: Offsets, end: Offsets, limit: int) -> Offsets:
    """Move from `start` towards `end` by about `limit` bytes of stored records, shared by lag.

    The log positions of what waits are an upper bound: when they fit, nothing is estimated. Otherwise the
    sizes of records at both ends and in the middle of a queue's backlog stand for the rest. At least one
    message of the largest backlog moves, so that a message larger than the limit does not stop the stream.
    """
    lags = {queue: end[queue] - start[queue] for queue in start if end.get(queue, 0) > start[queue]}
    samples: dict[MessageQueue, list[_Sample]] = {}
    for queue in lags:
        places = sorted(
            {
                start[queue],
                (start[queue] + end[queue]) // 2,
                max(start[queue], end[queue] - _SAMPLE),
            }
        )
        found = [_sample(reader, queue, place, end[queue]) for place in places]
        samples[queue] = [sample for sample in found if sample is not None]
    if _span(samples) <= limit:
        return dict(end)
    means = {queue: _mean(samples[queue]) for queue in lags}
    total = sum(lags[queue] * means[queue] for queue in lags)
    if total <= limit:
        return dict(end)
    moved = {queue: int(lags[queue] * limit / total) for queue in lags}
    if not any(moved.values()):
        largest = max(lags, key=lambda queue: (lags[queue], queue))
        moved[largest] = 1
    return {**end, **{queue: start[queue] + moved[queue] for queue in lags}}


def _sample(
    reader: BlockingQueueReader, queue: MessageQueue, offset: int, end: int
) -> _Sample | None:
    data = reader.pull(queue, offset, min(_SAMPLE, end - offset)).records
    positions = record_starts(data).tolist()
    if not positions:
        return None  # gone meanwhile: the read tells
    first_at = int(_physical_offset(data, positions[0] + 28)[0])
    last_at = int(_physical_offset(data, positions[-1] + 28)[0])
    return _Sample(len(positions), len(data), first_at, last_at + len(data) - positions[-1])


def _mean(samples: list[_Sample]) -> float:
    count = sum(sample.count for sample in samples)
    return sum(sample.size for sample in samples) / count if count else 1.0


def _span(samples: dict[MessageQueue, list[_Sample]]) -> int:
    """Return the size of the stretches of their brokers' logs in which all these lie."""
    spans: dict[str, tuple[int, int]] = {}
    for queue, found in samples.items():
        for sample in found:
            low, high = spans.get(queue.broker_name, (sample.first_at, sample.end_at))
            spans[queue.broker_name] = min(low, sample.first_at), max(high, sample.end_at)
    return sum(high - low for low, high in spans.values())
