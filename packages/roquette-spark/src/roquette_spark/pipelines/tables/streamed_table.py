"""A table that a stream of a topic fills, each batch once, and the quarantine of bad messages beside it."""

import contextlib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from roquette.base.entropy import Entropy
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import Job, PipelineError
from roquette_spark.pipelines.kit.message_rows import DAY, ERROR
from roquette_spark.pipelines.kit.stream import Batches
from roquette_spark.pipelines.kit.table_files import Commit, DataFile, TableFiles, discard
from roquette_spark.pipelines.kit.topics import (
    QueueBounds,
    checkpoint_offsets,
    newest_batch,
    planned_ends,
    torn_batch,
)
from roquette_spark.pipelines.rows.decoder import quarantine_type, widened
from roquette_spark.pipelines.tables.mending import (
    MENDED,
    MENDED_STREAM,
    messages_of,
    places_in,
    portions,
    without,
)
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
        batches: of this run.
        bad: messages that this run has put into the quarantine; `mended`: that it has brought from there to the table.

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
        self.batches = Batches(job)
        self.bad, self.mended = 0, 0
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

    def waiting(self, states: Sequence[QueueBounds], number: int | None = None) -> int:
        """Messages between the stream's position, or the end of batch `number`, and the ends of queues."""
        if number is None:
            number = newest_batch(self.positions, CHECKPOINT)
        ends = planned_ends(self.positions, CHECKPOINT, number).get(self.topic, {})
        done = {queue: end.offset for queue, end in ends.items()}
        return sum(
            max(0, state.end - max(state.start, done.get((state.broker_name, state.queue_id), 0)))
            for state in states
        )

    def keep_aside(self, files: Sequence[DataFile], number: int) -> None:
        """Files of bad messages that tasks of a batch have written count in the quarantine, once."""
        apart = self.quarantine
        if not files or apart is None:
            return
        self.bad += sum(file.rows for file in files)
        if self._is_new(apart, number):
            commit = Commit(adds=files, batch=(self._stream_id, number), blind=True)
            apart.commit(commit, "STREAMING UPDATE")
        else:
            discard(apart.files, files)

    def check_bad(self, rows: int, bad: Sequence[DataFile], limit: str, number: int) -> None:
        """Check a batch against --max-bad before it counts.

        Args:
            rows: of the batch that are not bad; `bad`: files of those that are.

        Raises:
            PipelineError: there are more in this run than the limit allows; the files are gone.
        """
        apart, bad_rows = self.quarantine, sum(file.rows for file in bad)
        if not limit or not bad_rows or apart is None:
            return
        rows += self.batches.rows + bad_rows
        most = float(limit.removesuffix("%")) * (rows / 100 if limit.endswith("%") else 1)
        if self.bad + bad_rows <= most:
            return
        why = apart.files.column(bad[0].path, ERROR)[0]
        discard(apart.files, bad)
        raise PipelineError(
            f"{self._pipeline}: batch {number} of {self.topic}: {self.bad + bad_rows:,} of {rows:,} messages of this run "
            f"are bad, more than --max-bad {limit} ({why}): nothing of it counts"
        )

    def reasons(self) -> list[tuple[str, int]]:
        """Messages in quarantine by what is wrong with them; the most frequent first."""
        found: Counter[str] = Counter()
        if (apart := self.quarantine) is not None:
            for file in apart.snapshot.files.values():
                found.update(apart.files.column(file.path, ERROR))
        return found.most_common()

    def mend(self) -> None:
        """Read what is in quarantine again: what can be read now moves to the table, in two commits a portion.

        A run that is killed between the two leaves the second to the next one.
        """
        apart = self.quarantine
        if apart is None or not apart.snapshot.files:
            return
        self._job.progress.step(f"reading the quarantine of {self.topic} again")
        for some in portions(apart.snapshot.files.values()):
            self.bring_back(partial(messages_of, apart.files, some), apart.snapshot.version)
            self.leave_quarantine(some)

    def bring_back(self, messages: Callable[[], Iterator[pa.RecordBatch]], number: int) -> None:
        """Commit what of these can be read, as batch `number` of MENDED_STREAM; MENDED of its commit names files with it."""
        raise NotImplementedError

    def leave_quarantine(self, some: Sequence[DataFile] = ()) -> None:
        """Take out of the quarantine what `mend` has brought to the table; of `some` of its files, or where a run was killed of all."""
        apart = self.quarantine
        if apart is None or self.table.done(MENDED_STREAM) != apart.snapshot.version:
            return
        there = places_in(self.table.files, self.table.last_info(MENDED) or ())
        gone = list(some or apart.snapshot.files.values())
        apart.commit(Commit(adds=without(apart, gone, there), removes=gone), "MEND")
        self.mended += len(there)
        self._job.progress.say(f"{len(there):,} messages of {self.topic} have left the quarantine")


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
