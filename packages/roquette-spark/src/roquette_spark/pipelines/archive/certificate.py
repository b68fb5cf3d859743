"""What an archive has of each queue, counted batch by batch: the check at the end asks it instead of scanning. Pure.

Each commit carries the certificate of all commits until then. What a batch adds to it are the rows that its tasks wrote,
by the files' own counts, beside the offsets that the batch was to read.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from roquette.errors import ConfigError
from roquette_spark.source.offsets import QueueRange

Queue = tuple[str, int]  # broker, queue id


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """Of one queue.

    Attributes:
        start, end: the offsets that batches were to read, from the first to the last of them, `end` excluded.
        rows: in table and quarantine together.
        missing: offsets of that span without a row; not counted where tags were asked for.
        twice: rows more than offsets.
    """

    start: int
    end: int
    rows: int = 0
    missing: int = 0
    twice: int = 0


@dataclass(frozen=True, slots=True)
class Certificate:
    """Of one topic."""

    queues: Mapping[Queue, QueueRecord] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Of all queues."""
        return sum(each.rows for each in self.queues.values())

    @property
    def missing(self) -> int:
        """Of all queues."""
        return sum(each.missing for each in self.queues.values())

    @property
    def twice(self) -> int:
        """Of all queues."""
        return sum(each.twice for each in self.queues.values())

    def with_batch(
        self,
        ranges: Iterable[QueueRange],
        rows: Mapping[Queue, int],
        starts: Mapping[Queue, int],
        *,
        every: bool,
    ) -> "Certificate":
        """With one batch more.

        Args:
            ranges: what the batch was to read.
            rows: what its files have, by queue.
            starts: where the table began; a queue that is not named began where it is first read.
            every: each offset is to be a row: no tags were asked for.
        """
        queues = dict(self.queues)
        expected: dict[Queue, int] = {}
        for each in sorted(ranges):
            queue = each.queue.broker_name, each.queue.queue_id
            start = min(starts.get(queue, each.start), each.start)
            record = queues.get(queue, QueueRecord(start, start))
            end = max(record.end, each.end)
            expected[queue] = expected.get(queue, 0) + end - record.end
            queues[queue] = replace(record, end=end)
        for queue, wanted in expected.items():
            count, record = rows.get(queue, 0), queues[queue]
            queues[queue] = replace(
                record,
                rows=record.rows + count,
                missing=record.missing + (max(0, wanted - count) if every else 0),
                twice=record.twice + max(0, count - wanted),
            )
        return Certificate(queues)

    def reaching(self, ends: Mapping[Queue, int], *, every: bool) -> "Certificate":
        """Up to where a stream has come: what it has read and nobody wrote is missing."""
        queues = dict(self.queues)
        for queue, end in ends.items():
            record = queues.get(queue, QueueRecord(end, end))
            more = max(0, end - record.end) if every else 0
            queues[queue] = replace(record, end=max(record.end, end), missing=record.missing + more)
        return Certificate(queues)

    def encode(self) -> str:
        """For a commit."""
        found: dict[str, dict[str, list[int]]] = {}
        for (broker_name, queue_id), each in sorted(self.queues.items()):
            values = [each.start, each.end, each.rows, each.missing, each.twice]
            found.setdefault(broker_name, {})[str(queue_id)] = values
        return json.dumps({"v": 1, "queues": found}, separators=(",", ":"))


def decode_certificate(text: str) -> Certificate:
    """Raises ConfigError when it was made by a version that is newer than this."""
    found = json.loads(text)
    if found.get("v") != 1:
        raise ConfigError("archive: the table's certificate was made by a newer version: use that")
    return Certificate(
        {
            (broker_name, int(queue_id)): QueueRecord(*values)
            for broker_name, queues in found["queues"].items()
            for queue_id, values in queues.items()
        }
    )
