"""`roquette pipeline current-state`: change events to the current row of each key.

Each batch merges its changes into a new snapshot of the table, which replaces the old one in one entry of the
table's log. Of all changes of a key the one with the highest version wins, in whatever order they come; deleted
keys are remembered for a while, so that a late older change does not bring them back.
"""

import json
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from roquette.base.options import REQUIRED, option
from roquette.errors import ConfigError
from roquette.pipelines.kit import message_rows as forms
from roquette.pipelines.kit.frame import Job, Pipeline, Plan, Result
from roquette.pipelines.kit.options import PipelineOptions
from roquette.pipelines.kit.quantities import counted
from roquette.pipelines.kit.stream import Batches, await_end, summary_of
from roquette.pipelines.kit.streamed_table import QUARANTINE, StreamedTable
from roquette.pipelines.kit.table import open_table
from roquette.pipelines.kit.table_place import CHANGES_SETTING, Owner
from roquette.pipelines.kit.table_values import Commit
from roquette.pipelines.kit.table_writer import TableWriter
from roquette.pipelines.kit.topics import (
    QueueBounds,
    describe,
    find_topics,
    read_sample,
    stream_options,
)
from roquette.pipelines.state.change_rows import (
    DELETED,
    ChangeForm,
    changes_of,
    latest,
    mark_changes,
)
from roquette.pipelines.state.report import report_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

POINTER = "CURRENT"  # for readers that know no Delta: which folder is the table now
ENVELOPES = ("none", "debezium")


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentStateOptions(PipelineOptions):
    """Options of `current-state`."""

    topic: str = option(REQUIRED, "The topic of change events; bodies are JSON.", metavar="TOPIC")
    to: str = option(REQUIRED, "Directory or address of the table.", metavar="DIR")
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
    keep_replaced_minutes: int = option(
        60, "How long replaced snapshots stay, for readers that still use them.", metavar="MINUTES"
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
        super().__init__(Owner("current-state", options.topic), options.to, job, spark)
        self.batches = Batches(job)
        self._rescued = 0  # changes of this run with fields without a column
        self._options = options
        self._states = states
        with self.closed_on_error() as undo:
            fresh = self.table.snapshot.version < 0
            self.claim_quarantine(fresh=fresh)
            self.changes = self._find_changes()
            rows = mark_changes(spark.createDataFrame([], forms.source_schema()), self.changes)
            good = changes_of(rows, self.changes)
            form = {CHANGES_SETTING: self.changes.settings()}
            self.prepare(good.schema.json(), DELETED, form, {} if fresh else None)
            self._point()
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

    def start(self) -> "StreamingQuery":
        """Begin to read."""
        options = self._options
        given = {
            **stream_options(options),
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(options.batch),
        }
        return self.start_stream(given, self._merge, options.interval_s if options.follow else None)

    def _merge(self, messages: "DataFrame", number: int) -> None:
        """One batch; the new snapshot counts when the log says so."""
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
        found_changes = changes_of(watched, self.changes)
        apart = self.table.new_staging()
        found_changes.write.mode("overwrite").parquet(self.table.files.address(apart))
        found = seen.get
        reader = self._spark.read.schema(found_changes.schema)
        new = latest(reader.parquet(self.table.files.address(apart)), self.changes.key)
        current = self.table.frame(self._spark).select(*new.columns)
        merged = self._without_old_deletions(
            latest(current.unionAll(new), self.changes.key), current
        )
        staging = self.table.new_staging()
        name = f"snapshot-{number:010}"
        writer = merged.write.mode("overwrite").partitionBy(DELETED)
        writer.parquet(self.table.files.address(f"{staging}/{name}"))
        self.table.files.remove_tree(apart)
        self.put_aside(rows, int(found["bad"]), number)
        adds = self.table.publish(staging, "part")
        self.table.commit(
            Commit(
                adds=adds,
                removes=list(self.table.snapshot.files.values()),
                batch=(self._stream_id, number),
                info={"changes": found["rows"], "quarantined": found["bad"]},
            ),
            "MERGE",
        )
        self._point()
        self._rescued += int(found["rescued"])
        self.batches.done(number, int(found["rows"]), time.monotonic() - begin)
        if self._options.follow:
            self.tidy()

    def _without_old_deletions(self, merged: "DataFrame", current: "DataFrame") -> "DataFrame":
        """Deletions long before the newest change that the table had: the same each time a batch is done."""
        from pyspark.sql import functions as f

        newest = current.agg(f.max("_store_timestamp")).first()
        if newest is None or newest[0] is None:
            return merged
        horizon = newest[0] - timedelta(days=self._options.keep_deleted_days)
        return merged.where(~f.col(DELETED) | (f.col("_store_timestamp") >= f.lit(horizon)))

    def _point(self) -> None:
        """CURRENT follows the log: after a crash between the two, the next start mends it."""
        found = self.table.snapshot
        folders = {path.partition("/")[0] for path in found.files}
        text = json.dumps(
            {
                "version": found.version,
                "snapshot": min(folders, default=""),
                "rows": live_rows(self.table),
            }
        )
        self.table.files.write(POINTER, text.encode() + b"\n")

    def tidy(self) -> None:
        """Forget old deletions' snapshots and replaced files."""
        keep_ms = self._options.keep_replaced_minutes * 60_000
        self.table.vacuum(keep_ms=keep_ms)
        self.quarantine.vacuum(keep_ms=keep_ms)

    def result(self) -> Result:
        """Summary and report; checks that no key is there twice."""
        frame = self.table.frame(self._spark)
        twice = frame.groupBy(*self.changes.key).count().where("count > 1").count()
        snapshot = self.table.snapshot
        live = live_rows(self.table)
        summary = {
            "table": self.table.files.root,
            "version": snapshot.version,
            "rows": live,
            "deleted_remembered": snapshot.rows - live,
            "quarantined": self.quarantine.snapshot.rows,
            "keys_twice": twice,
            "rescued": self._rescued,
            "this_run": summary_of(self.batches),
        }
        report = report_of(
            self._options.topic,
            self.changes.key,
            self.batches,
            snapshot,
            live=live,
            quarantined=self.quarantine.snapshot.rows,
            twice=twice,
        )
        applied = counted(self.batches.rows, "change")
        line = f"{applied} applied, {counted(live, 'row')} now"
        if self._rescued:
            line += f"; warning: {self._rescued:,} changes with fields without a column, kept in {forms.RESCUED}"
        return Result(ok=twice == 0, summary=summary, report=report, last_line=line)


def live_rows(state: TableWriter) -> int:
    """Rows that are not deleted."""
    return sum(
        file.rows
        for file in state.snapshot.files.values()
        if dict(file.partition).get(DELETED) != "true"
    )


PIPELINE: Pipeline[CurrentStateOptions] = Pipeline(
    name="current-state",
    help="Keep a table of the current row of each key, from change events.\n\n"
    "Changes may come in any order, twice, and with deletions. Each batch makes a new snapshot, which "
    "replaces the old one at once; readers see one or the other.",
    options=CurrentStateOptions,
    plan=plan,
    run=run,
)
