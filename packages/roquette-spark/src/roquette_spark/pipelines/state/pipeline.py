"""`roquette pipeline current-state`: change events to the current row of each key.

Each batch adds files of its changes to the table, and rewrites those parts of it (buckets) that have many; one entry of the
table's log makes both count. Of all changes of a key the one with the highest version wins, in whatever order they
come; deleted keys are remembered for a while, so that a late older change does not bring them back. Decision 35.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from roquette.base.options import REQUIRED, counted, option, plural
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit import message_rows as forms
from roquette_spark.pipelines.kit.frame import (
    Job,
    Pipeline,
    PipelineError,
    Plan,
    Result,
)
from roquette_spark.pipelines.kit.lineage import table_dataset, topic_dataset
from roquette_spark.pipelines.kit.report import Report, ReportTable, lines
from roquette_spark.pipelines.kit.stream import (
    Batches,
    RunHealth,
    StreamedOptions,
    TableHealth,
    await_end,
    rates,
    summary_of,
)
from roquette_spark.pipelines.kit.table_files import (
    Commit,
    DataFile,
    Overtaken,
    Snapshot,
    discard,
)
from roquette_spark.pipelines.kit.topics import (
    GroupPlace,
    QueueBounds,
    describe,
    find_topics,
    forget_torn_batch,
    group_of,
    read_sample,
    start_ranges,
    stream_options,
)
from roquette_spark.pipelines.rows.connect_json import connect_columns
from roquette_spark.pipelines.rows.decoder import arrow_of, grew_from, possible_columns, widened
from roquette_spark.pipelines.rows.json_rows import infer_columns, schema_of_text
from roquette_spark.pipelines.state.bucket_files import (
    STORED,
    BucketRules,
    Changed,
    ChangeWork,
    Keys,
    Staged,
    StageWork,
    change_table,
    count_keys,
    evaluate,
    stage_messages,
    stage_ranges,
)
from roquette_spark.pipelines.state.change_rows import (
    DELETED,
    TIES,
    VERSION,
    ChangeForm,
    ChangeRows,
    base_folder,
    buckets_of,
    enveloped,
    evaluated,
    unevaluated,
)
from roquette_spark.pipelines.tables.delta_table import open_table
from roquette_spark.pipelines.tables.mending import MENDED, MENDED_STREAM
from roquette_spark.pipelines.tables.streamed_table import QUARANTINE, StreamedTable
from roquette_spark.pipelines.tables.table import Table
from roquette_spark.pipelines.tables.table_place import (
    CHANGES_SETTING,
    CHECKPOINT,
    OWN_FOLDER,
    Owner,
    own_names,
)
from roquette_spark.values.offsets import QueueRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType


# Where readers find one row per key without a view: the newest version that is one folder of Parquet files.


POINTER = "CURRENT"  # the file
POINTED = "current"  # in the commits of batches


@dataclass(frozen=True, slots=True)
class Pointer:
    """Content of the file CURRENT.

    Attributes:
        version: of the table's log.
        snapshot: the folder; "" while there are no rows.
        rows: that are not deleted.
    """

    version: int = 0
    snapshot: str = ""
    rows: int = 0

    @classmethod
    def of_files(cls, version: int, files: list[DataFile]) -> "Pointer | None":
        """None if they are not one folder, or there are changes."""
        folders = {base_folder(file.path) for file in files}
        if len(folders) > 1 or "" in folders:
            return None
        rows = sum(file.rows for file in files if dict(file.partition).get(DELETED) != "true")
        return cls(version, min(folders, default=""), rows)

    @classmethod
    def of_table(cls, table: Table) -> "Pointer":
        """By its log."""
        there = table.snapshot
        found = cls.of_files(there.version, list(there.files.values()))
        if found is None:
            kept = table.last_info(POINTED)
            found = cls() if kept is None else cls(**json.loads(kept))
        return found

    def after(self, there: Snapshot, changed: Changed) -> "Pointer":
        """Of the version that a batch makes."""
        gone = {file.path for file in changed.removes}
        files = [file for path, file in there.files.items() if path not in gone]
        return Pointer.of_files(there.version + 1, [*files, *changed.adds]) or self

    def encode(self) -> str:
        """JSON."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})


def pin(table: Table, pointer: Pointer) -> None:
    """Files of the pointer's folder stay."""
    assert isinstance(table, Table), table
    table.pinned = pointer.snapshot


def remove_strays(table: Table, folder: str) -> None:
    """Files of tasks that failed go from a folder that readers are led to: no commit names them, nor ever will."""
    there = table.snapshot
    ours = own_names(there.partitioned_by)
    for file in table.files.list_tree(folder) if folder else ():
        known = file.path in there.files or file.path in there.removed
        if not known and ours.fullmatch(file.path):
            table.files.remove(file.path)


def newest_stored(there: Snapshot) -> datetime | None:
    """Return when the broker stored the newest change that a table has; None if no file says it."""
    found = [
        (json.loads(file.stats or "{}").get("maxValues") or {}).get(STORED)
        for file in there.files.values()
    ]
    return max((datetime.fromisoformat(text) for text in found if text), default=None)


# What a run of current-state shows people.


def report_of(
    topic: str,
    key: Sequence[str],
    batches: Batches,
    snapshot: Snapshot,
    *,
    keys: Keys | None,
    pointer: Pointer,
    reasons: Sequence[tuple[str, int]],
) -> Report:
    """The page.

    Args:
        keys: None if they were not counted; `reasons`: why messages are in quarantine, of all runs, and how many.
    """
    report = Report(
        title=f"Current state of {topic}",
        lead=f"One row per {', '.join(key)}: the newest change of each.",
        facts=_facts(keys),
    )
    report.count(batches.rows, "change", " in this run")
    report.count(sum(count for _, count in reasons), "message", " in quarantine")
    if len(batches.kept) > 1:
        text = "Changes a second of each batch of this run, by the seconds since its begin."
        report.add("Pace", text, lines(rates(batches), "changes a second"))
    numbers: list[list[object]] = [
        ["version", snapshot.version],
        ["files", len(snapshot.files)],
        ["bytes", snapshot.size],
        ["rows in files, changes among them", snapshot.rows],
        ["keys that are there twice", "not counted" if keys is None else keys.twice],
    ]
    report.add(
        "The table",
        f"Readers of its log have one row per key by a view (folder _view). Readers that know no views find version {pointer.version} "
        "in the folder that the file CURRENT names.",
        ReportTable(["", ""], numbers),
    )
    report.add(
        "Quarantine",
        "Why messages could not be read. They are whole in the table beside this one whose name ends with .quarantine.",
        ReportTable(["what is wrong", "messages"], reasons),
    )
    return report


def _facts(keys: Keys | None) -> list[tuple[str, str]]:
    if keys is None:
        return []
    return [
        (f"{keys.live:,}", plural(keys.live, "row") + " now"),
        (f"{keys.deleted:,}", plural(keys.deleted, "deleted key") + " remembered"),
    ]


# One row per key for engines that read the table by its log: the text of views. Pure.


FOLDER = "_view"  # readers of Parquet skip names with "_"
_NEWEST = "_newest"
_FILLED = "_filled"  # the version; without one as high as the highest of the key, so that the place in the topic decides


@dataclass(frozen=True, slots=True)
class StateView:
    """The view of one table.

    Attributes:
        root: address of the table.
        columns: of the table; the view has all but `deleted`.
        key: the columns that are the key.
    """

    root: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    @classmethod
    def of_schema(cls, root: str, schema: str, key: Sequence[str]) -> "StateView":
        """`schema` is Spark's JSON of the table's columns."""
        names = tuple(field["name"] for field in json.loads(schema)["fields"])
        return cls(root, names, tuple(key))

    def shown(self) -> list[str]:
        """The view's columns."""
        return [name for name in self.columns if name != DELETED]

    def files(self) -> dict[str, str]:
        """Return the files that users are given, by name."""
        return {
            "duckdb.sql": f"CREATE OR REPLACE VIEW current_state AS\n{self.duckdb()};\n",
            "spark.sql": f"CREATE OR REPLACE TEMPORARY VIEW current_state AS\n{self.spark()};\n",
            "polars.py": f"import polars as pl\n\n{self.polars()}",
        }

    def duckdb(self, source: str = "") -> str:
        """A query. `source` is what stands for the table, default is delta_scan of its address."""
        quoted = self.root.replace("'", "''")
        return self._query('"', source or f"delta_scan('{quoted}')")

    def spark(self, source: str = "") -> str:
        """A query. `source` is what stands for the table, default is Delta by its address."""
        return self._query("`", source or f"delta.{_quoted(self.root, '`')}")

    def polars(self, source: str = "") -> str:
        """Code that makes the LazyFrame `current_state`. `source` is an expression, default is scan_delta."""
        return (
            f"changes = {source or f'pl.scan_delta({self.root!r})'}\n"
            f"highest = pl.col({VERSION!r}).sort().last().over({list(self.key)!r})\n"
            f"filled = changes.with_columns({_FILLED}=pl.col({VERSION!r}).fill_null(highest))\n"
            f"order = {[_FILLED, *TIES]!r}\n"
            "newest_first = filled.sort(order, descending=True, nulls_last=True)\n"
            f"newest = newest_first.unique(subset={list(self.key)!r}, keep='first', maintain_order=True)\n"
            f"current_state = newest.filter(~pl.col({DELETED!r})).select({self.shown()!r})\n"
        )

    def _query(self, quote: str, source: str) -> str:
        def names(found: Sequence[str], after: str = "") -> str:
            return ", ".join(_quoted(name, quote) + after for name in found)

        version = _quoted(VERSION, quote)
        return (
            f"SELECT {names(self.shown())}\n"
            f"FROM (SELECT *, row_number() OVER (PARTITION BY {names(self.key)}\n"
            f"        ORDER BY {names([_FILLED, *TIES], ' DESC NULLS LAST')}) AS {_NEWEST}\n"
            f"      FROM (SELECT *, coalesce({version}, max({version}) OVER (PARTITION BY {names(self.key)})) AS {_FILLED}\n"
            f"            FROM {source}) AS filled) AS changes\n"
            f"WHERE {_NEWEST} = 1 AND NOT {_quoted(DELETED, quote)}"
        )


def _quoted(name: str, quote: str) -> str:
    return quote + name.replace(quote, quote * 2) + quote


RULES = BucketRules()
# What comes from the quarantine adds files only: a base would be in a folder of another batch, which readers may be led to.
ADDING = BucketRules(share=float("inf"), small_rows=0, most_files=1 << 30)
MENDING = f"{OWN_FOLDER}/mended"  # files of changes from the quarantine, until they have left it
WHOLE = {"byte", "short", "integer", "long"}  # a key of any of them has the same place
ENVELOPES = ("none", "debezium")


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentStateOptions(StreamedOptions):
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
    batch: int = option(500_000, "Changes in one batch, at most.", least=1)
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
    check: bool = option(
        True, "At the end, count the keys and look that none is there twice: reads all keys."
    )


def plan(options: CurrentStateOptions) -> Plan:
    """Say what would be read and written."""
    options.check_listen("current-state")
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
    description = table.describe(Owner("current-state", options.topic), keep_ms=keep_ms)
    apart = open_table(table.files.root + QUARANTINE)
    owner = Owner("current-state", options.topic, quarantine=True)
    bad = apart.describe(owner, keep_ms=keep_ms)
    kept_changes(table, options)
    lines = [f"{description[0]}, by {', '.join(options.key)}", *description[1:]]
    return [*lines, f"{bad[0]}, for messages that cannot be read", *bad[1:]]


def kept_changes(table: Table, options: CurrentStateOptions) -> ChangeForm | None:
    """Return how a table's changes are read; None for a new one.

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


def _shown(kind: Any) -> str:
    """Columns as in DDL, as far as a line has room."""
    found = ", ".join(f"{f['name']} {json.dumps(f['type'])}" for f in kind["fields"])
    return found.replace('"', "")[:300]


def run(options: CurrentStateOptions, job: Job) -> Result:
    """Bring the table up to date, or keep it so."""
    options.check_listen("current-state")
    states = find_topics(options.namesrv, [options.topic], stream_options(options))
    _places(options)
    job.progress.step("starting Spark")
    state = CurrentState(states, options, job, job.open_spark())
    health = RunHealth("current-state", state.health, job.clock, options.interval_s)
    try:
        with health.served(options.metrics_listen, job.progress.say) as look:
            if options.from_quarantine:
                state.mend()
            job.progress.step(f"bringing {state.table.files.root} up to date")
            query, total = state.start(), None if options.follow else state.waiting(states)
            await_end(job, [query], [state.batches], total, look)
        state.tidy()
        return state.result()
    finally:
        state.close()


class CurrentState(StreamedTable):
    """The table, its quarantine, and the stream into them."""

    quarantine: Table

    def __init__(
        self,
        states: list[QueueBounds],
        options: CurrentStateOptions,
        job: Job,
        spark: "SparkSession",
    ) -> None:
        owner = Owner("current-state", options.topic)
        super().__init__(owner, options.to, job, spark, checkpoints=options.checkpoints)
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
            good = evaluated(spark.createDataFrame([], unevaluated(self.changes)), self.changes)
            self._check_key(good.schema)
            form = {CHANGES_SETTING: self.changes.settings()}
            self.prepare(good.schema.json(), (DELETED,), form, {} if fresh else None)
            self._point(Pointer.of_table(self.table))
            self.leave_quarantine()
            self._write_views()
            undo.pop_all()

    def _find_changes(self) -> ChangeForm:
        options = self._options
        changes = kept_changes(self.table, options)
        if changes is not None:
            return self._with_schema(changes)
        if options.schema:
            schema = schema_of_text(options.schema, "current-state")
        else:
            self._job.progress.step("looking at messages for their columns")
            sample = read_sample(
                self._spark,
                stream_options(options),
                options.topic,
                self._states,
                rows=options.sample,
            )
            if options.envelope == "debezium":
                schema = enveloped(possible_columns(connect_columns(sample, options.topic)))
            else:
                schema = possible_columns(infer_columns(sample, options.topic))
        return ChangeForm(
            schema, options.key, options.version, options.delete_when, options.envelope
        )

    def _with_schema(self, changes: ChangeForm) -> ChangeForm:
        """With the columns of --schema, where all rows that there are fit into them. Raises ConfigError."""
        if not self._options.schema:
            return changes
        given = json.loads(schema_of_text(self._options.schema, "current-state"))
        known = json.loads(changes.body_schema)
        wider = widened(known, given)
        if not grew_from(given, wider):
            raise ConfigError(
                f"current-state: the table {self.table.files.root} has the columns {_shown(known)}, and --schema does not "
                "keep each of them as it is or wider: leave it out, or give another --to"
            )
        return replace(changes, body_schema=json.dumps(wider))

    def _check_key(self, columns: "StructType") -> None:
        """A key's place is by its value: raises ConfigError where a column of it becomes another kind."""
        there = json.loads(self.table.snapshot.schema or '{"fields":[]}')["fields"]
        before = {each["name"]: each["type"] for each in there}
        for name in self.changes.key:
            kind = columns[name].dataType.jsonValue()
            if before.get(name, kind) != kind and not {before[name], kind} <= WHOLE:
                raise ConfigError(
                    f"current-state: --schema makes the key {name} {kind}, it is {before[name]} in the table "
                    f"{self.table.files.root}: give another --to"
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
        group = group_of(options, "current-state", self.table.files.root)
        forget_torn_batch(self.positions, CHECKPOINT)
        place = GroupPlace(options, group, self.positions, CHECKPOINT)
        self._source = {**given, "subscribe": self.topic}
        return start_ranges(
            self._spark,
            self._source,
            place.after(self._apply_ranges),
            checkpoint=self.positions.address(CHECKPOINT),
            interval_s=options.interval_s if options.follow else None,
        )

    def _apply_ranges(self, ranges: list[QueueRange], number: int) -> None:
        """One batch that tasks read and decode."""
        if not self._is_new(self.table, number):
            return
        begin, staging = time.monotonic(), self.table.new_staging()
        work = self._stage_work(number, staging)
        staged = stage_ranges(self._spark, work, ranges)
        self._evaluate(work, staged)
        self.check_bad(staged.rows, staged.bad, self._options.max_bad, number)
        self.keep_aside(staged.bad, number)
        every = self._options.compact_every
        whole = bool(every) and (number + 1) % every == 0
        changes = staged.rows + staged.bad_rows
        info = {"changes": changes, "quarantined": staged.bad_rows}
        change = self._work(number, tuple(staged.paths), whole=whole)
        self._apply(staged, change, Commit(batch=(self._stream_id, number), info=info))
        self.batches.done(number, changes, time.monotonic() - begin)
        self.table.files.remove_tree(staging)
        if self._options.follow:
            self.tidy()

    def _stage_work(self, number: int, staging: str) -> StageWork:
        aside = number == self._options.set_aside
        roots = self.table.files.root, staging, self.quarantine.files.root
        return StageWork(number, self._source, self.changes, *roots, aside)

    def _evaluate(self, work: StageWork, staged: Staged) -> None:
        if not ChangeRows(self.changes).is_plain:
            staged.paths = evaluate(self._spark, work, staged.paths)

    def bring_back(self, messages: Callable[[], Iterator[pa.RecordBatch]], number: int) -> None:
        work = replace(self._stage_work(number, MENDING), aside=False)
        staged = stage_messages(work, messages(), kept=True)
        discard(self.quarantine.files, staged.bad)
        self._evaluate(work, staged)
        done = max(0, self.table.done(self._stream_id))
        change = replace(self._work(done, tuple(staged.paths), whole=False), rules=ADDING)
        commit = Commit(batch=(MENDED_STREAM, number), info={MENDED: staged.paths})
        self._apply(staged, change, commit)

    def leave_quarantine(self, some: Sequence[DataFile] = ()) -> None:
        super().leave_quarantine(some)
        self.table.files.remove_tree(MENDING)

    def _apply(self, staged: Staged, work: ChangeWork, commit: Commit) -> None:
        """Some changes into the table; they count when the log says so, as `commit` has it.

        Raises:
            Overtaken: another program has taken rows out meanwhile, or changed columns or settings.
        """
        while True:
            buckets = buckets_of(self.table.snapshot.files.values())
            done = change_table(self._spark, work, buckets, staged.rows)
            if done.rows != staged.rows:
                raise PipelineError(
                    f"current-state: batch {work.number} has {staged.rows} changes, {done.rows} were read: nothing was changed"
                )
            pointer = self._pointer.after(self.table.snapshot, done)
            more = {"buckets_rewritten": done.rewritten, POINTED: pointer.encode()}
            info = {**commit.info, **more}
            try:
                filled = replace(commit, adds=done.adds, removes=done.removes, info=info)
                self.table.commit(filled, "MERGE")
                break
            except Overtaken as error:
                if not error.keeps_rows:
                    raise
                self._job.progress.say(
                    f"another program has arranged files of {self.table.files.root}: its rows are as before, and the batch is done again"
                )
        self._point(pointer)
        self._rescued += staged.rescued
        self._rewritten += done.rewritten

    def health(self) -> list[TableHealth]:
        """Ask the brokers how far the table is."""
        states = find_topics(self._options.namesrv, [self.topic], stream_options(self._options))
        batch = self.table.snapshot.batches.get(self._stream_id, -1)
        lag, apart = self.waiting(states, batch), self.quarantine.snapshot.rows
        return [TableHealth(self.topic, lag, batch, self.batches.rows, apart)]

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
            "quarantined_now": self.bad,
            "from_quarantine": self.mended,
            "reasons": dict(self.reasons()),
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
            reasons=self.reasons(),
        )
        line = f"{counted(self.batches.rows, 'change')} applied"
        if keys is not None:
            line += f", {counted(keys.live, 'row')} now"
        if self._rescued:
            line += f"; warning: {self._rescued:,} changes with fields without a column, kept in {forms.RESCUED}"
        if self.bad:
            line += f"; warning: {counted(self.bad, 'message')} of this run went to the quarantine"
        ok = keys is None or keys.twice == 0
        status = Result.BAD_MESSAGES if self.bad and not self._options.follow else 0
        return Result(
            ok=ok,
            summary=summary,
            report=report,
            last_line=line,
            status=status,
            reads=[topic_dataset(self._options.namesrv, self._options.topic, self.batches.rows)],
            writes=[table_dataset(self.table.files.root, at=snapshot)],
        )


PIPELINE: Pipeline[CurrentStateOptions] = Pipeline(
    name="current-state",
    help="Keep a table of the current row of each key, from change events.\n\n"
    "Changes may come in any order, twice, and with deletions. A batch costs what it changes: readers of the log "
    "see each batch by a view (folder _view of the table), all others a folder of each Nth version.",
    options=CurrentStateOptions,
    plan=plan,
    run=run,
)
