"""`roquette pipeline current-state`: change events to the current row of each key.

Each batch adds files of its changes to the table, and rewrites those parts of it (buckets) that have many; one entry of the
table's log makes both count. Of all changes of a key the one with the highest version wins, in whatever order they
come; deleted keys are remembered for a while, so that a late older change does not bring them back. Decision 35.
"""

import json
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from roquette.base.options import REQUIRED, option
from roquette.base.quantities import counted
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit import message_rows as forms
from roquette_spark.pipelines.kit.frame import Job, Pipeline, PipelineError, Plan, Result
from roquette_spark.pipelines.kit.options import PipelineOptions
from roquette_spark.pipelines.kit.stream import Batches, await_end, summary_of
from roquette_spark.pipelines.kit.table_values import Commit
from roquette_spark.pipelines.kit.topics import (
    QueueBounds,
    describe,
    find_topics,
    read_sample,
    start_ranges,
    stream_options,
)
from roquette_spark.pipelines.rows.decoder import arrow_of
from roquette_spark.pipelines.state.bucket_files import (
    BucketRules,
    Changed,
    ChangeWork,
    change_table,
    count_keys,
)
from roquette_spark.pipelines.state.buckets import buckets_of
from roquette_spark.pipelines.state.change_rows import DELETED, ChangeForm, changes_of, mark_changes
from roquette_spark.pipelines.state.plain_rows import PlainForm, plain_form
from roquette_spark.pipelines.state.pointer import (
    POINTED,
    POINTER,
    Pointer,
    newest_stored,
    pin,
    remove_strays,
)
from roquette_spark.pipelines.state.report import report_of
from roquette_spark.pipelines.state.staged import Staged, StageWork, stage_frame, stage_ranges
from roquette_spark.pipelines.state.views import FOLDER, StateView
from roquette_spark.pipelines.tables.streamed_table import QUARANTINE, StreamedTable
from roquette_spark.pipelines.tables.table import open_table
from roquette_spark.pipelines.tables.table_place import CHANGES_SETTING, CHECKPOINT, Owner
from roquette_spark.pipelines.tables.table_writer import TableWriter
from roquette_spark.source.offsets import QueueRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

RULES = BucketRules()
ENVELOPES = ("none", "debezium")


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentStateOptions(PipelineOptions):
    """Options of `current-state`."""

    topic: str = option(REQUIRED, "The topic of change events; bodies are JSON.", metavar="TOPIC")
    to: str = option(REQUIRED, "Directory or address of the table.", metavar="DIR")
    checkpoints: str = option(
        "",
        "Where Spark keeps how far it has read; default is in the table's folder. A local directory, for a table in an "
        "object store, does without Hadoop's jars.",
        metavar="DIR",
    )
    key: tuple[str, ...] = option(REQUIRED, "The columns that are the key.", metavar="COLUMN")
    version: str = option(
        "",
        "Expression of a change's version, such as updated_at: the highest wins. Default is the time the broker "
        "stored it; with --envelope debezium its ts_ms.",
        metavar="EXPRESSION",
        split=False,
    )
    delete_when: str = option(
        "", "Expression that is true for a deletion, such as \"op = 'd'\".", metavar="EXPRESSION"
    )
    envelope: str = option("none", "How changes are wrapped.", choices=ENVELOPES)
    schema: str = option(
        "", "Columns of the JSON body; default is inferred once and kept.", metavar="COLUMNS"
    )
    follow: bool = option(False, "Go on with what comes, until stopped.")
    interval_s: int = option(
        60, "With --follow: seconds between batches.", metavar="SECONDS", least=1
    )
    batch: int = option(500_000, "Changes in one batch, at most.", least=1)
    sample: int = option(10_000, "Messages looked at to infer a schema.", least=1)
    keep_deleted_days: float = option(
        7.0,
        "How long a deleted key is remembered, counted back from the newest change in the table.",
        metavar="DAYS",
    )
    rewrite_share: float = option(
        0.3,
        "A part of the table is rewritten when its changes are more than this share of its rows.",
        metavar="SHARE",
    )
    compact_every: int = option(
        20,
        "Rewrite the whole table in every Nth batch, so that readers without a view have one row per key, in the folder "
        "that the file CURRENT names; 0 is never.",
        metavar="N",
    )
    rewrite: bool = option(False, "Rewrite the whole table in every batch.")
    check: bool = option(
        True, "At the end, count the keys and look that none is there twice: reads all keys."
    )
    keep_replaced_minutes: int = option(
        60, "How long replaced files stay, for readers that still use them.", metavar="MINUTES"
    )
    source_option: tuple[str, ...] = option(
        (), "An option of the source; may be repeated.", metavar="KEY=VALUE", split=False
    )


def plan(options: CurrentStateOptions) -> Plan:
    """What would be read and written."""
    states = find_topics(options.namesrv, [options.topic], stream_options(options))
    return Plan(
        reads=describe(states),
        writes=_places(options),
        notes=["until stopped" if options.follow else "until what there is now has been read"],
    )


def _places(options: CurrentStateOptions) -> list[str]:
    """A plan's lines about table and quarantine. Raises ConfigError for one that is not of these options."""
    keep_ms, table = options.keep_replaced_minutes * 60_000, open_table(options.to)
    if CHANGES_SETTING in table.snapshot.settings:
        pin(table, Pointer.of_table(table))
    said = table.describe(Owner("current-state", options.topic), keep_ms=keep_ms)
    apart = open_table(table.files.root + QUARANTINE)
    owner = Owner("current-state", options.topic, quarantine=True)
    bad = apart.describe(owner, keep_ms=keep_ms)
    kept_changes(table, options)
    lines = [f"{said[0]}, by {', '.join(options.key)}", *said[1:]]
    return [*lines, f"{bad[0]}, for messages that cannot be read", *bad[1:]]


def kept_changes(table: TableWriter, options: CurrentStateOptions) -> ChangeForm | None:
    """How a table's changes are read; None for a new one.

    Raises:
        ConfigError: the options say it otherwise.
    """
    kept = table.snapshot.settings.get(CHANGES_SETTING)
    if kept is None:
        return None
    changes = ChangeForm.of_settings(kept)
    given = (options.key, options.version, options.delete_when, options.envelope)
    if given != (changes.key, changes.version, changes.delete_when, changes.envelope):
        raise ConfigError(
            f"current-state: the table {options.to} was begun with --key {','.join(changes.key)} "
            f"--version {changes.version!r} --delete-when {changes.delete_when!r} --envelope "
            f"{changes.envelope}: give the same, or another --to"
        )
    return changes


def run(options: CurrentStateOptions, job: Job) -> Result:
    """Bring the table up to date, or keep it so."""
    states = find_topics(options.namesrv, [options.topic], stream_options(options))
    _places(options)
    job.progress.step("starting Spark")
    state = CurrentState(states, options, job, job.open_spark())
    try:
        job.progress.step(f"bringing {state.table.files.root} up to date")
        query = state.start()
        await_end(job, [query], state.batches, None if options.follow else state.waiting(states))
        state.tidy()
        return state.result()
    finally:
        state.close()


class CurrentState(StreamedTable):
    """The table, its quarantine, and the stream into them."""

    quarantine: TableWriter

    def __init__(
        self,
        states: list[QueueBounds],
        options: CurrentStateOptions,
        job: Job,
        spark: "SparkSession",
    ) -> None:
        owner = Owner("current-state", options.topic)
        super().__init__(owner, options.to, job, spark, checkpoints=options.checkpoints)
        self.batches = Batches(job)
        self._rescued = 0  # changes of this run with fields without a column
        self._rewritten = 0  # buckets, in this run
        self._source: dict[str, str] = {}
        self._options = options
        self._states = states
        with self.closed_on_error() as undo:
            fresh = self.table.snapshot.version < 0
            self._pointer = Pointer.of_table(self.table)
            pin(self.table, self._pointer)
            self.claim_quarantine(fresh=fresh)
            self.changes = self._find_changes()
            rows = mark_changes(spark.createDataFrame([], forms.source_schema()), self.changes)
            good = changes_of(rows, self.changes)
            form = {CHANGES_SETTING: self.changes.settings()}
            self.prepare(good.schema.json(), (DELETED,), form, {} if fresh else None)
            self._point(Pointer.of_table(self.table))
            self._write_views()
            undo.pop_all()

    def _find_changes(self) -> ChangeForm:
        options = self._options
        changes = kept_changes(self.table, options)
        if changes is not None:
            return changes
        if options.schema:
            schema = forms.schema_of_text(self._spark, options.schema)
        else:
            self._job.progress.step("looking at messages for their columns")
            sample = read_sample(
                self._spark,
                stream_options(options),
                options.topic,
                self._states,
                rows=options.sample,
            )
            schema = forms.infer_json_schema(self._spark, sample, options.topic)
        return ChangeForm(
            schema, options.key, options.version, options.delete_when, options.envelope
        )

    def _write_views(self) -> None:
        there = self.table.snapshot
        view = StateView.of_schema(self.table.files.root, there.schema, self.changes.key)
        for name, text in view.files().items():
            self.table.files.write(f"{FOLDER}/{name}", text.encode())

    def start(self) -> "StreamingQuery":
        """Begin to read."""
        options = self._options
        given = {
            **stream_options(options),
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(options.batch),
        }
        interval_s = options.interval_s if options.follow else None
        plain = plain_form(self.changes)
        if plain is None:  # Spark evaluates the expressions, of messages that it has read
            return self.start_stream(given, self._apply_messages, interval_s)
        self._source = {**given, "subscribe": self.topic}
        return start_ranges(
            self._spark,
            self._source,
            partial(self._apply_ranges, plain),
            checkpoint=self.positions.address(CHECKPOINT),
            interval_s=interval_s,
        )

    def _apply_ranges(self, form: PlainForm, ranges: list[QueueRange], number: int) -> None:
        """One batch that tasks read and decode."""
        if not self._is_new(self.table, number):
            return
        begin, staging = time.monotonic(), self.table.new_staging()
        roots = self.table.files.root, staging, self.quarantine.files.root
        work = StageWork(number, self._source, form, *roots)
        staged = stage_ranges(self._spark, work, ranges)
        self.keep_aside(staged.bad, number)
        self._apply(staged, number, begin)
        self.table.files.remove_tree(staging)

    def _apply_messages(self, messages: "DataFrame", number: int) -> None:
        """One batch that Spark parses."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        if not self._is_new(self.table, number):
            return
        begin = time.monotonic()
        rows = mark_changes(messages, self.changes)
        seen = Observation()
        rescued = f.expr(f"if({forms.BAD} is null, {forms.LOOKED}.rescued, null)")
        watched = rows.observe(
            seen,
            f.count("*").alias("rows"),
            f.count(forms.BAD).alias("bad"),
            f.count(rescued).alias("rescued"),
        )
        # Written down first: the topic is read once, and the plan that is observed has no shuffle
        # (behind one, Spark 4.3 never delivers what was observed).
        staging = self.table.new_staging()
        paths = stage_frame(changes_of(watched, self.changes), self.table.files, staging)
        found = {name: int(count) for name, count in seen.get.items()}
        self.put_aside(rows, found["bad"], number)
        staged = Staged(paths, found["rows"] - found["bad"], [], found["bad"], found["rescued"])
        self._apply(staged, number, begin)
        self.table.files.remove_tree(staging)

    def _apply(self, staged: Staged, number: int, begin: float) -> None:
        """The changes of a batch into the table; they count when the log says so."""
        done = self._changed(staged, number)
        if done.rows != staged.rows:
            raise PipelineError(
                f"current-state: batch {number} has {staged.rows} changes, {done.rows} were read: nothing was changed"
            )
        pointer = self._pointer.after(self.table.snapshot, done)
        changes = staged.rows + staged.bad_rows
        info = {
            "changes": changes,
            "quarantined": staged.bad_rows,
            "buckets_rewritten": done.rewritten,
            POINTED: pointer.encode(),
        }
        batch = (self._stream_id, number)
        self.table.commit(Commit(done.adds, done.removes, batch, info=info), "MERGE")
        self._point(pointer)
        self._rescued += staged.rescued
        self._rewritten += done.rewritten
        self.batches.done(number, changes, time.monotonic() - begin)
        if self._options.follow:
            self.tidy()

    def _changed(self, staged: Staged, number: int) -> Changed:
        """The files of a batch."""
        options = self._options
        whole = options.rewrite or bool(
            options.compact_every and (number + 1) % options.compact_every == 0
        )
        buckets = buckets_of(self.table.snapshot.files.values())
        work = self._work(number, tuple(staged.paths), whole=whole)
        return change_table(self._spark, work, buckets, staged.rows)

    def _work(self, number: int, staged: tuple[str, ...], *, whole: bool) -> ChangeWork:
        from pyspark.sql.types import StructType

        there = self.table.snapshot
        schema = arrow_of(StructType.fromJson(json.loads(there.schema)))
        rules = replace(RULES, share=self._options.rewrite_share)
        # The same each time a batch is done.
        days = timedelta(days=self._options.keep_deleted_days)
        stored = newest_stored(there)
        forget = None if stored is None else stored - days
        return ChangeWork(
            number, self.table.files.root, schema, self.changes.key, staged, rules, forget, whole
        )

    def _point(self, pointer: "Pointer") -> None:
        """CURRENT follows the log: after a crash between the two, the next start mends it."""
        self._pointer = pointer
        if pointer.version == self.table.snapshot.version:
            remove_strays(self.table, pointer.snapshot)
        pin(self.table, pointer)
        self.table.files.write(POINTER, pointer.encode().encode() + b"\n")

    def tidy(self) -> None:
        """Delete files that were replaced long enough ago."""
        keep_ms = self._options.keep_replaced_minutes * 60_000
        self.table.vacuum(keep_ms=keep_ms)
        self.quarantine.vacuum(keep_ms=keep_ms)

    def result(self) -> Result:
        """Summary and report; checks that no key is there twice."""
        snapshot, keys = self.table.snapshot, None
        if self._options.check:
            self._job.progress.step("counting keys")
            work = self._work(0, (), whole=False)
            keys = count_keys(self._spark, work, buckets_of(snapshot.files.values()))
        summary = {
            "table": self.table.files.root,
            "version": snapshot.version,
            "rows": None if keys is None else keys.live,
            "deleted_remembered": None if keys is None else keys.deleted,
            "quarantined": self.quarantine.snapshot.rows,
            "keys_twice": None if keys is None else keys.twice,
            "rescued": self._rescued,
            "buckets_rewritten": self._rewritten,
            "current": json.loads(self._pointer.encode()),
            "this_run": summary_of(self.batches),
        }
        report = report_of(
            self._options.topic,
            self.changes.key,
            self.batches,
            snapshot,
            keys=keys,
            pointer=self._pointer,
            quarantined=self.quarantine.snapshot.rows,
        )
        line = f"{counted(self.batches.rows, 'change')} applied"
        if keys is not None:
            line += f", {counted(keys.live, 'row')} now"
        if self._rescued:
            line += f"; warning: {self._rescued:,} changes with fields without a column, kept in {forms.RESCUED}"
        ok = keys is None or keys.twice == 0
        return Result(ok=ok, summary=summary, report=report, last_line=line)


PIPELINE: Pipeline[CurrentStateOptions] = Pipeline(
    name="current-state",
    help="Keep a table of the current row of each key, from change events.\n\n"
    "Changes may come in any order, twice, and with deletions. A batch costs what it changes: readers of the log "
    "see each batch by a view (folder _view of the table), all others a folder of each Nth version.",
    options=CurrentStateOptions,
    plan=plan,
    run=run,
)
