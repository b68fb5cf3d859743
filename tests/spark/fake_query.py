"""Spark's micro-batch engine in a few lines: the hooks in its order, over a checkpoint that survives crashes."""

import json
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import StructType
from tests.spark.records import struct_of

from roquette_spark.source.stream_reader import RocketmqStreamReader
from roquette_spark.values.options import read_options

COLUMNS = struct_of("topic", "broker_name", "queue_id", "queue_offset", "body")


@dataclass
class Checkpoint:
    """The texts Spark keeps: the end of each planned batch, and how many batches are done."""

    offsets: list[str] = field(default_factory=list)
    done: int = 0
    initial: str = ""


class FakeQuery:
    """One run of a query; a new one over the same checkpoint is a restart."""

    def __init__(
        self,
        options: dict[str, str],
        checkpoint: Checkpoint,
        *,
        available_now: bool = False,
        schema: StructType = COLUMNS,
    ) -> None:
        checked = read_options(
            options | {"offsetPollIntervalMs": "0", "partitionDiscoveryIntervalMs": "0"}
        )
        self.reader = RocketmqStreamReader(schema, checked)
        self.checkpoint = checkpoint
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        if not checkpoint.initial:
            checkpoint.initial = json.dumps(self.reader.initialOffset())
        elif checkpoint.done:
            self.reader.commit(json.loads(checkpoint.offsets[checkpoint.done - 1]))

    def batch(self, *, crash: bool = False) -> list[dict[str, Any]] | None:
        """Run the next micro-batch: its rows, None when there is nothing new.

        With `crash` the rows are read, but the batch does not count: the next run makes it again.
        """
        kept = self.checkpoint
        start = kept.offsets[kept.done - 1] if kept.done else kept.initial
        if len(kept.offsets) == kept.done:
            limit = self.reader.getDefaultReadLimit()
            end = json.dumps(self.reader.latestOffset(json.loads(start), limit))
            if end == start:
                return None
            kept.offsets.append(end)
            if kept.done:
                self.reader.commit(json.loads(start))
        end = kept.offsets[kept.done]
        partitions = self.reader.partitions(json.loads(start), json.loads(end))
        rows = [
            row
            for part in partitions
            for batch in self.reader.read(part)
            for row in batch.to_pylist()
        ]
        if not crash:
            kept.done += 1
        return rows

    def drain(self) -> list[dict[str, Any]]:
        """All batches until there is nothing new."""
        found: list[dict[str, Any]] = []
        while (rows := self.batch()) is not None:
            found += rows
        return found
