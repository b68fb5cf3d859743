"""A table that a stream of a topic fills, each batch once, and the quarantine of bad messages beside it."""

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roquette.base.entropy import Entropy
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import Job, PipelineError
from roquette_spark.pipelines.kit.message_rows import DAY
from roquette_spark.pipelines.kit.table_files import Commit, DataFile, TableFiles, discard
from roquette_spark.pipelines.kit.topics import QueueBounds, checkpoint_offsets, torn_batch
from roquette_spark.pipelines.rows.decoder import quarantine_type, widened
from roquette_spark.pipelines.tables.table import Table
from roquette_spark.pipelines.tables.table_formats import TableFormat
from roquette_spark.pipelines.tables.table_place import (
    CHECKPOINT,
    OWN_FOLDER,
    SHARED_SETTING,
    STREAM_SETTING,
    TOPIC_SETTING,
    Owner,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUARANTINE = ".quarantine"  # after the name of the table's folder


@dataclass(frozen=True, slots=True)
class SharedStream:
    """A stream that fills several tables.

    Attributes:
        id: what the tables' commits call it.
        positions: where its position is kept.
    """

    id: str
    positions: TableFiles


class StreamedTable:
    """Claims the table; a subclass then calls `prepare` (within `closed_on_error`).

    Attributes:
        way_on: what else to do about a position that is lost, for the error.

    Raises:
        ConfigError: the directory belongs to another pipeline or topic.
        PipelineError: another process writes there.
    """

    way_on = ""

    def __init__(
        self,
        owner: Owner,
        root: str,
        job: Job,
        spark: "SparkSession",
        tables: TableFormat = TableFormat(),  # noqa: B008 (a frozen value)
        checkpoints: str = "",
    ) -> None:
        self.topic = owner.topic
        self._pipeline = owner.pipeline
        self._job = job
        self._spark = spark
        self._root = root
        self._tables = tables
        self.table = tables.open(root, clock=job.clock)
        self.positions = position_files(self.table.files, checkpoints)
        self.table.claim(owner)
        self.quarantine: Table | None = None
        self._shared: SharedStream | None = None
        self._stream_id = ""

    def share(self, stream: SharedStream) -> None:
        """Be filled by a stream that fills other tables, too; before `prepare`."""
        self._shared = stream
        self.positions = stream.positions

    def closed_on_error(self) -> contextlib.ExitStack:
        """A context that closes the tables unless its `pop_all` is called."""
        undo = contextlib.ExitStack()
        undo.callback(self.close)
        return undo

    def close(self) -> None:
        """Let others write to the tables."""
        self.table.close()
        if self.quarantine is not None:
            self.quarantine.close()

    def claim_quarantine(self, *, fresh: bool) -> Table:
        """Raises ConfigError when a new table would stand beside an older quarantine, and as `__init__` does."""
        apart = self._tables.open(self._root + QUARANTINE, clock=self._job.clock)
        apart.claim(Owner(self._pipeline, self.topic, quarantine=True))
        if fresh and apart.snapshot.files:
            apart.close()
            raise ConfigError(
                f"{self._pipeline}: {apart.files.root} has rows of an earlier table: move it away, or "
                "give another --to"
            )
        self.quarantine = apart
        return apart

    def prepare(
        self,
        schema: str,
        partitioned_by: Sequence[str],
        form: Mapping[str, str],
        new: Mapping[str, str] | None,
    ) -> None:
        """Remove what killed runs left, create the tables that are missing, add columns that rows have now.

        Args:
            schema: Spark's JSON of the table's columns.
            form: the setting that says how rows are made.
            new: more settings of a table to create; None: the table exists.
        """
        self.table.clean()
        if new is not None:
            shared = self._shared
            settings = {
                STREAM_SETTING: new_stream_id(self._pipeline) if shared is None else shared.id,
                TOPIC_SETTING: self.topic,
                **({} if shared is None else {SHARED_SETTING: "true"}),
                **form,
                **new,
            }
            # What is left of a stream must go before a table is there, and not before this writer has it.
            if shared is None and self.table.snapshot.version < 0:
                self.positions.remove_tree(CHECKPOINT)
            self.table.drop()
            self.table.create(schema, partitioned_by, settings)
            if shared is None:
                self.positions.remove_tree(CHECKPOINT)
        self.widen(schema, form)  # a table of the first form
        self._stream_id = self.table.snapshot.settings[STREAM_SETTING]
        if self.quarantine is not None:
            self.quarantine.clean()
            if self.quarantine.snapshot.version < 0:
                schema = quarantine_type().json()
                self.quarantine.create(schema, (DAY,), {STREAM_SETTING: self._stream_id})
        torn = torn_batch(self.positions, CHECKPOINT)
        if torn is not None and not self._is_new(self.table, torn):
            raise PipelineError(
                f"{self._pipeline}: {self.positions.address(CHECKPOINT)}/offsets/{torn} is empty, and the table has that "
                "batch, so nobody knows where it ended: restore the file, or give another --to"
            )
        lost = self._shared is not None and self._shared.id != self._stream_id
        if not self._is_new(self.table, 0):
            lost |= not self.positions.exists(f"{CHECKPOINT}/offsets")
        if lost and not self.begin_anew():
            raise PipelineError(
                f"{self._pipeline}: {self.positions.address(CHECKPOINT)} is gone, so nobody knows where to "
                f"go on: restore it, {self.way_on}or give another --to"
            )

    def begin_anew(self) -> bool:
        """Have another stream go on after what the table has, since the position of its own is lost; False: it cannot."""
        return False

    def drop_unfinished(self) -> None:
        """Take bad messages of a batch that never came to the table out of the quarantine: another stream brings them again."""
        apart, stream = self.quarantine, self._stream_id
        if apart is None or apart.done(stream) <= (done := self.table.done(stream)):
            return
        unfinished = re.compile(rf"(?:.*/)?batch-{done + 1:010}-.*")
        found = [file for path, file in apart.snapshot.files.items() if unfinished.fullmatch(path)]
        apart.commit(Commit(removes=found), "DELETE")

    def adopt(self, stream_id: str) -> None:
        """Be filled by another stream from now on, whose batches are counted from 0."""
        self.table.widen(self.table.snapshot.schema, {STREAM_SETTING: stream_id})
        self._stream_id = stream_id

    def widen(self, schema: str, form: Mapping[str, str]) -> list[str]:
        """Let the table take these columns, too, and say so; returns the names of the new ones."""
        there = json.loads(self.table.snapshot.schema)
        wider = widened(there, json.loads(schema), limited=False)
        if wider == there:
            return []
        self.table.widen(json.dumps(wider), form)
        before = {each["name"]: each["type"] for each in there["fields"]}
        new = [each["name"] for each in wider["fields"] if each["name"] not in before]
        other = [f for f in wider["fields"] if before.get(f["name"], f["type"]) != f["type"]]
        for what, names in (
            ("the columns", new),
            ("a wider type of", [each["name"] for each in other]),
        ):
            if names:
                line = f"{self.table.files.root} has {what} {', '.join(names)} from now on"
                self._job.progress.say(line)
        return new

    def _is_new(self, table: Table, number: int) -> bool:
        """Return True if a table does not have that batch yet."""
        return table.done(self._stream_id) < number

    def checkpoint_offsets(self) -> dict[tuple[str, int], int]:
        """Read how far the stream has planned, by broker and queue."""
        return checkpoint_offsets(self.positions, CHECKPOINT).get(self.topic, {})

    def waiting(self, states: Sequence[QueueBounds]) -> int:
        """Messages between the stream's position and the ends of queues."""
        done = self.checkpoint_offsets()
        return sum(
            state.end - max(state.start, done.get((state.broker_name, state.queue_id), 0))
            for state in states
        )

    def keep_aside(self, files: Sequence[DataFile], number: int) -> None:
        """Files of bad messages that tasks of a batch have written count in the quarantine, once."""
        apart = self.quarantine
        if not files or apart is None:
            return
        if self._is_new(apart, number):
            commit = Commit(adds=files, batch=(self._stream_id, number), blind=True)
            apart.commit(commit, "STREAMING UPDATE")
        else:
            discard(apart.files, files)


def is_fresh(table: Table, positions: TableFiles, topic: str) -> bool:
    """Return True if it does not exist, or the run that created it ended before it began to read."""
    there = table.snapshot
    if there.version < 0:
        return True
    begun = checkpoint_offsets(positions, CHECKPOINT).get(topic)
    return not (there.batches or there.files or begun)


def new_stream_id(pipeline: str) -> str:
    return f"{pipeline}-{Entropy().token(8)}"


def shared_stream(positions: TableFiles, pipeline: str, *, anew: bool = False) -> SharedStream:
    """The stream whose position is kept there; a new one when there is none. The caller has the lock.

    Args:
        anew: also a new one when its position is gone.
    """
    path = f"{OWN_FOLDER}/stream"
    lost = anew and not positions.exists(f"{CHECKPOINT}/offsets")
    if lost or not positions.exists(path):
        positions.write(path, new_stream_id(pipeline).encode())
    return SharedStream(positions.read(path).decode(), positions)


def position_files(table: TableFiles, folder: str = "") -> TableFiles:
    """Return the files in which the position of a table's stream is: in the table's folder, or in one for it below another."""
    if not folder:
        return table
    name = table.root.rpartition("/")[2]
    return TableFiles(f"{folder}/{name}-{hashlib.sha256(table.root.encode()).hexdigest()[:16]}")
