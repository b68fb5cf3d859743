"""One topic's table: its columns, what batches add to it, its check."""

import contextlib
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from roquette.base.entropy import Entropy
from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive.options import MARKED, ArchiveOptions, asked_form, table_root
from roquette_spark.pipelines.archive.report import (
    CERTIFICATE,
    Certificate,
    QueueCount,
    QueueRecord,
    TopicResult,
    decode_certificate,
)
from roquette_spark.pipelines.kit import message_rows as forms
from roquette_spark.pipelines.kit.frame import Job, PipelineError
from roquette_spark.pipelines.kit.stream import TableHealth
from roquette_spark.pipelines.kit.table_files import (
    LONGEST_FOLDER,
    Commit,
    Compaction,
    discard,
)
from roquette_spark.pipelines.kit.topics import (
    PlannedEnd,
    Queue,
    QueueBounds,
    beginning_at,
    newest_batch,
    planned_ends,
    read_sample,
    stream_options,
)
from roquette_spark.pipelines.rows.avro_rows import read_avro_schema
from roquette_spark.pipelines.rows.connect_json import connect_columns
from roquette_spark.pipelines.rows.decoder import (
    Kind,
    arrow_of,
    fields_of,
    grew_from,
    possible_columns,
    renamed,
    struct_of,
    table_type,
    widened,
)
from roquette_spark.pipelines.rows.expectations import expectations, read_expectations
from roquette_spark.pipelines.rows.json_rows import NoObjects, infer_columns, schema_of_text
from roquette_spark.pipelines.rows.tasks import MOST_VALUES, BatchWork, Written, write_messages
from roquette_spark.pipelines.tables.mending import MENDED, MENDED_STREAM
from roquette_spark.pipelines.tables.streamed_table import (
    SharedStream,
    StreamedTable,
    is_fresh,
    new_stream_id,
)
from roquette_spark.pipelines.tables.table import Table
from roquette_spark.pipelines.tables.table_place import CHECKPOINT, ROWS_SETTING, Owner
from roquette_spark.source.queues import lives_before, reader_of
from roquette_spark.values.offsets import QueueRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# What an archive's tables have, looked up in their files: places of all messages, fields without a column, reasons.


_NAMES = 100  # of fields, in a report


def count_places(places: "DataFrame", starts: Mapping[Queue, int], *, every: bool) -> Certificate:
    """A certificate from all rows: a scan, for tables that have none or have been changed by others.

    Rows at one place that were stored at different times are no copies: the topic was made anew between them.

    Args:
        places: columns of forms.PLACE, and store_timestamp.
        starts: where the stream began; a queue that is not named began at its first row.
        every: every offset between must be there: no tags were asked for.
    """
    from pyspark.sql import functions as f

    rows = (
        places.groupBy(*forms.PLACE)
        .agg(f.count("*").alias("count"), f.count_distinct("store_timestamp").alias("messages"))
        .groupBy("broker_name", "queue_id")
        .agg(
            f.sum("count").alias("rows"),
            f.sum("messages").alias("messages"),
            f.count("*").alias("distinct"),
            f.min("queue_offset").alias("first"),
            f.max("queue_offset").alias("last"),
        )
        .collect()
    )
    queues = {}
    for row in rows:
        queue = row["broker_name"], row["queue_id"]
        start, end = min(starts.get(queue, row["first"]), row["first"]), row["last"] + 1
        missing = end - start - row["distinct"] if every else 0
        queues[queue] = QueueRecord(start, end, row["rows"], missing, row["rows"] - row["messages"])
    return Certificate(queues)


def rescued_fields(table: Table) -> list[tuple[str, int]]:
    """Names of the fields that no column takes, and in how many rows; the most frequent first."""
    found: Counter[str] = Counter()
    for file in table.snapshot.files.values():
        stats = json.loads(file.stats or "{}")
        nulls = (stats.get("nullCount") or {}).get(forms.RESCUED)
        if nulls is not None and nulls == file.rows:
            continue
        for text in table.files.column(file.path, forms.RESCUED):
            if text is not None:
                found.update(json.loads(text).keys())
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return ordered[:_NAMES]


# How rows lie in a table's files: which columns partition it, and by which rows are in order.


_NAME = re.compile(r"\w[\w-]*")  # of a folder that every reader finds
_TIMES = ("timestamp", "timestamp_ntz", "string")  # kinds of a column that may have hours
_FOLDERS = ("string", "byte", "short", "integer", "long", "date", "boolean")


def check_partition(topic: str, columns: pa.Schema, form: forms.RowForm) -> None:
    """Check that a new table can be partitioned so.

    Args:
        columns: of the table.

    Raises:
        ConfigError: no such column, or none with values for folders' names; or there is no hour to take.
    """
    name = form.partition
    option = f"archive: --partition {name}: "
    if name == forms.BY_HOUR:
        body = {
            f["name"]: f["type"] for f in json.loads(form.body_schema or '{"fields":[]}')["fields"]
        }
        if body.get(form.day_of, "timestamp") not in _TIMES:
            raise ConfigError(
                f"{option}column {form.day_of} of topic {topic} has no hours: give --partition day, or another --day-of"
            )
    if name in (forms.BY_DAY, forms.BY_HOUR):
        return
    transform = form.transform
    if transform is not None:
        name, fits = transform.column, _made_of(columns, transform)
        limits = {"bucket": MOST_VALUES}
        if name in fits and pa.types.is_string(columns.field(name).type):  # four bytes a character
            limits["truncate"] = (LONGEST_FOLDER - len(f"{transform.name}=".encode())) // 4
        if transform.width > limits.get(transform.function, transform.width):
            raise ConfigError(f"{option}at most {limits[transform.function]:,}")
    else:
        fits = [each.name for each in columns if _names_folders(each) and each.name != forms.DAY]
        if name == forms.DAY:
            raise ConfigError(f"{option}that is --partition day")
    if name not in fits:
        what = "has no values for folders" if name in columns.names else "is not there"
        raise ConfigError(
            f"{option}in the table of {topic} this column {what}; day and hour are always possible, and "
            f"{'' if transform is None else transform.function + ' of '}the columns {', '.join(fits)}"
        )


def _names_folders(field: pa.Field) -> bool:
    t = pa.types
    kinds = (t.is_string, t.is_integer, t.is_date, t.is_boolean)
    return bool(_NAME.fullmatch(field.name)) and any(each(field.type) for each in kinds)


def _made_of(columns: pa.Schema, transform: forms.Transform) -> list[str]:
    """The columns that the transform has values of."""
    from roquette_spark.pipelines.rows.hidden_parts import can_make  # needs pyiceberg

    named = [each for each in columns if _NAME.fullmatch(each.name)]
    return [each.name for each in named if can_make(transform, each.type)]


def with_places(form: forms.RowForm) -> tuple[forms.RowForm, list[str]]:
    """The form with the columns that days, hours and folders are from, as text where bodies have none that fits.

    For a topic that is one of many: it has its table, with nulls there, and nothing is lost.

    Returns:
        also the options and columns in question, such as "--partition region".
    """
    schema = json.loads(form.body_schema)
    wanted: dict[str, tuple[str, Collection[str] | None]] = {}
    if form.day_of not in ("store_timestamp", "born_timestamp"):
        wanted[form.day_of] = "--day-of", _TIMES if form.partition == forms.BY_HOUR else None
    transform, instead = form.transform, "string"
    if transform is not None:
        fits = _made_of(arrow_of(table_type(form)), transform)
        of_body = [each["type"] for each in schema["fields"] if each["name"] in fits]
        wanted[transform.column] = "--partition", of_body
        instead = "timestamp" if transform.function in forms.TIMES else instead
    elif form.partition not in (forms.BY_DAY, forms.BY_HOUR):
        wanted[form.partition] = "--partition", _FOLDERS
    added = []
    for name, (option, kinds) in wanted.items():
        there = {each["name"]: each["type"] for each in schema["fields"]}
        if not forms.may_be_column(name, form.partition):  # one of ours, or refused for every topic
            continue
        if name not in there or (kinds is not None and there[name] not in kinds):
            others = [each for each in schema["fields"] if each["name"].lower() != name.lower()]
            kind = instead if option == "--partition" else "string"
            schema["fields"] = [*others, *struct_of({name: kind})["fields"]]
            added.append(f"{option} {name}")
    return (replace(form, body_schema=json.dumps(schema)), added) if added else (form, added)


def can_sort(columns: pa.Schema, name: str, partitioned_by: Sequence[str]) -> bool:
    """Return True if rows of a table's files can be in order by that column."""
    there = name in columns.names and name not in partitioned_by
    return there and not pa.types.is_nested(columns.field(name).type)


START_SETTING = "roquette.start"  # JSON: broker -> queue -> offset of the first message to read
_WHEN_OBJECTS_COME = {
    "add": "objects that come later bring their columns",
    "fixed": f"fields of objects that come later stay in {forms.RESCUED} (--schema-evolution fixed)",
    "fail": "the first object ends the run (--schema-evolution fail)",
}


def kept_form(table: Table, options: ArchiveOptions) -> forms.RowForm:
    """Return the form of the rows of a table that is begun.

    Raises:
        ConfigError: the options say it otherwise.
    """
    form = forms.RowForm.of_settings(table.snapshot.settings[ROWS_SETTING])
    asked = replace(asked_form(options), body_schema=form.body_schema, marks=form.marks)
    if replace(asked, avro_schema=form.avro_schema) != form:
        fields = [f"--rename {name}={column}" for name, column in form.renames.items()]
        fields += [f"--mask {name}" for name in form.masked]
        raise ConfigError(
            f"archive: the table {table.files.root} was begun with --format {form.kind}, "
            f"--{'' if form.keep_body else 'no-'}keep-body, --day-of {form.day_of}, --partition {form.partition}, "
            f"{', '.join(fields) or 'no --rename, no --mask'}: give the same, or another --to"
        )
    return form


def read_options_of(
    options: ArchiveOptions, starts: Mapping[str, Mapping[str, Mapping[str, int]]]
) -> dict[str, str]:
    """Options of the source.

    Args:
        starts: offsets where a new stream begins, by topic, broker and queue; none: the options' time.
    """
    given = {
        **stream_options(options),
        "tags": options.tags,
        "maxOffsetsPerTrigger": str(options.batch),
    }
    if starts:
        return {**given, "startingOffsets": json.dumps({"v": 1, "offsets": starts})}
    return given | (beginning_at(int(options.starting)) if options.starting.isdigit() else {})


def offsets_at(where: str, states: Sequence[QueueBounds]) -> dict[str, dict[str, int]]:
    """Ask where queues begin ("earliest") or end ("latest"), by broker and queue."""
    found: dict[str, dict[str, int]] = {}
    for each in states:
        offset = each.start if where == "earliest" else each.end
        found.setdefault(each.broker_name, {})[str(each.queue_id)] = offset
    return found


class TopicArchive(StreamedTable):
    """The table of one topic, and its quarantine.

    Args:
        stream: that may fill other tables, too; None: the topic's own.

    Attributes:
        lacks: options whose column the topic's bodies do not have, such as "--partition region".
    """

    def __init__(
        self,
        topic: str,
        states: list[QueueBounds],
        options: ArchiveOptions,
        job: Job,
        spark: "SparkSession",
        stream: SharedStream | None = None,
    ) -> None:
        owner, root = Owner("archive", topic), table_root(options, topic)
        super().__init__(owner, root, job, spark, options.tables(), options.checkpoints)
        self.table.keep_versions = options.keep_versions
        if stream is not None:
            self.share(stream)
        self._states = states
        self._options = options
        self._counts: list[QueueCount] | None = None
        self._columns_added: list[str] = []
        self.lacks: list[str] = []
        self._sort: tuple[str, ...] = ()
        self._compaction = Compaction()
        self._rescued = 0
        self._expect = read_expectations(options.expect) if options.expect else ""
        self._marks = bool(self._expect) and options.expect_action == MARKED
        names = expectations(self._expect).names if self._expect else ()
        self._unmet = Counter(dict.fromkeys(names, 0))  # rows of this run, by expectation
        with self.closed_on_error() as undo:
            self._fresh = is_fresh(self.table, self.positions, topic)
            form = self._form()
            self.form = replace(form, marks=form.marks or self._marks)
            self._prepare()
            self._certificate = self._kept_certificate()
            self._before = self._certificate
            self._uncertified = not self._certificate.queues and self.table.snapshot.rows > 0
            undo.pop_all()
        self.waiting_rows = self.waiting(states)

    def _form(self) -> forms.RowForm:
        """As the table keeps it, or for a new table as the options say."""
        options = self._options
        if not self._fresh:
            form = kept_form(self.table, options)
            if options.schema and not self._takes(form, self._given_schema()[0]):
                raise ConfigError(
                    f"archive: the table {self.table.files.root} has another schema than --schema: leave it "
                    "out, or give another --to"
                )
            return form
        schema, avro = self._given_schema()
        form = replace(asked_form(options), body_schema=schema, avro_schema=avro)
        if self._may_lack(form):
            form, self.lacks = with_places(form)
        return form

    def _may_lack(self, form: forms.RowForm) -> bool:
        """Return True if its messages alone say which columns there are, and other topics are not to suffer from that."""
        return self._shared is not None and form.kind in forms.EVOLVING and not self._options.schema

    def _given_schema(self) -> tuple[str, str]:
        """Spark's JSON of the body's columns, and the Avro schema if it is one."""
        schema, avro = self._schema_of_bodies()
        names = asked_form(self._options).renames
        return json.dumps(renamed(json.loads(schema), names)) if names else schema, avro

    def _schema_of_bodies(self) -> tuple[str, str]:
        """The same by the names of the bodies' fields."""
        options, takes = self._options, asked_form(self._options).takes
        if options.format == "raw":
            return "", ""
        if options.format == "avro":
            return read_avro_schema(options.schema, self._job.files)
        if options.format == "registry":
            from roquette_spark.pipelines.rows.registry_rows import newest_columns
            from roquette_spark.registry import Registry

            subject = options.registry_subject.replace("{topic}", self.topic)
            newest = newest_columns(Registry(options.registry), subject)
            return possible_columns(newest, takes), ""
        if options.schema:
            return schema_of_text(options.schema, "archive"), ""
        self._job.progress.step(f"looking at messages of {self.topic} for their columns")
        given = stream_options(options)
        sample = read_sample(self._spark, given, self.topic, self._states, rows=options.sample)
        try:
            infer = connect_columns if options.format == "connect" else infer_columns
            found = infer(sample, self.topic)
        except NoObjects:
            if self._shared is None:
                raise
            found = '{"type":"struct","fields":[]}'
            self._job.progress.say(
                f"warning: no message in the sample of topic {self.topic} is a JSON object: such messages go to its "
                f"quarantine; {_WHEN_OBJECTS_COME[options.schema_evolution]}"
            )
        return possible_columns(found, takes), ""

    def _takes(self, form: forms.RowForm, body_schema: str) -> bool:
        """Return True if a table has the columns of a schema that is given; more have come to it if it may evolve."""
        if form.kind not in forms.EVOLVING or self._options.schema_evolution != "add":
            return form.body_schema == body_schema
        return grew_from(json.loads(form.body_schema), json.loads(body_schema))

    def _prepare(self) -> None:
        if self._fresh:
            forms.check_names(self.form)
        arrow = arrow_of(table_type(self.form))
        if self._fresh:
            check_partition(self.topic, arrow, self.form)
        self._set_sort()
        if not self._may_lack(self.form):
            self._check_sort(arrow)
        self.lacks += [
            f"--sort-by {name}" for name in self._options.sort_by if name not in self._sort
        ]
        self.lacks += self._without_field()
        if self.form.kind != "raw":
            apart = self.claim_quarantine(fresh=self._fresh)
            apart.keep_versions = self._options.keep_versions
        new = {START_SETTING: json.dumps(self._starting_offsets())} if self._fresh else None
        columns = table_type(self.form).json()
        self.prepare(columns, self.form.parts, {ROWS_SETTING: self.form.settings()}, new)
        self.leave_quarantine()

    def _without_field(self) -> list[str]:
        """Options of fields that no body has had so far: mistakes, if no topic has."""
        form = self.form
        there = {name.lower() for name in fields_of(json.loads(form.body_schema or "null"))}
        asked = {f"--rename {name}={column}": column for name, column in form.renames.items()}
        asked |= {f"--mask {name}": name for name in form.masked}
        return [flag for flag, column in asked.items() if column.lower() not in there]

    def _check_sort(self, columns: pa.Schema) -> None:
        """Raises ConfigError for what is no column of the table's files, or has no order."""
        for name in self._options.sort_by:
            if name not in self._sort:
                there = name in columns.names and name not in self.form.partitioned_by
                what = f"the table of {self.topic} has no such column"
                what = "lists, maps and structs have no order" if there else what
                raise ConfigError(f"archive: --sort-by {name}: {what}")

    def _set_sort(self) -> None:
        """By those of the columns asked for that the table has now."""
        arrow, by = arrow_of(table_type(self.form)), self.form.partitioned_by
        self._sort = tuple(name for name in self._options.sort_by if can_sort(arrow, name, by))

    def _kept_certificate(self) -> Certificate:
        """As the table's newest commit has it; an older table has none."""
        kept = self.table.last_info(CERTIFICATE)
        return Certificate() if kept is None else decode_certificate(kept)

    def _rows(self) -> int:
        """Rows of table and quarantine by their logs."""
        apart = self.quarantine
        return self.table.snapshot.rows + (0 if apart is None else apart.snapshot.rows)

    def _starting_offsets(self) -> dict[str, dict[str, int]]:
        """Return the offsets at which a new table begins, so that what is missing can be known; empty when a time says it."""
        where = self._options.starting
        if self._shared is not None and self.positions.exists(f"{CHECKPOINT}/offsets"):
            where = "earliest"  # as a stream reads what comes to it later
        if where.isdigit():
            return {}
        return offsets_at(where, self._states)

    def kept_start(self) -> dict[str, dict[str, int]]:
        """Offsets where a stream that has not begun begins, by broker and queue; empty when a time says it.

        After what the table has, if it was begun by another stream.
        """
        found: dict[str, dict[str, int]] = json.loads(self.table.snapshot.settings[START_SETTING])
        there = {(each.broker_name, each.queue_id) for each in self._states}
        for queue, record in self._certificate.queues.items():
            if queue in there:
                found.setdefault(queue[0], {})[str(queue[1])] = record.end
        return found

    way_on = "give --from-certificate to go on after what the table has, "

    def begin_anew(self) -> bool:
        """With --from-certificate, if the stream has not begun. The certificate says where, and what the last messages were.

        Raises:
            PipelineError: the brokers have another message there.
        """
        if not self._options.from_certificate or self.positions.exists(f"{CHECKPOINT}/offsets"):
            return False
        self.drop_unfinished()
        kept = self._kept_certificate()
        found = kept if kept.rows == self._rows() else self._scan()
        if others := sorted(self._other_ends(found)):
            broker_name, queue_id = others[0]
            raise PipelineError(
                f"archive: {self.topic} {broker_name} queue {queue_id} has another message than the one with which the table "
                f"{self.table.files.root} ends: it was made anew, and nothing goes on from the certificate: give another --to"
            )
        self.adopt(new_stream_id("archive") if self._shared is None else self._shared.id)
        if found != kept:
            self.table.commit(Commit(info={CERTIFICATE: found.encode()}), "CHECK")
        self._job.progress.say(f"{self.table.files.root}: a new stream goes on after what it has")
        return True

    @property
    def done(self) -> int:
        """The newest batch that the table has; -1 for none."""
        return self.table.done(self._stream_id)

    def has(self, number: int) -> bool:
        return self.done >= number

    def work(self, number: int) -> BatchWork:
        """Return what tasks of a batch are to do for this table."""
        apart = "" if self.quarantine is None else self.quarantine.files.root
        source = {**read_options_of(self._options, {}), "subscribe": self.topic}
        root, options = self.table.files.root, self._options
        return BatchWork(
            number,
            source,
            self.form,
            root,
            apart,
            self._sort,
            options.registry,
            self.table.whole_files,
            number == options.set_aside,
            self._expect,
            self._marks,
        )

    def takes(self, written: Written, number: int, *, mended: bool = False) -> bool:
        """Return True if the table takes these files; else it has grown, they are gone, and are to be written once more."""
        wider = self._wider(written.news)
        if wider is None and mended:
            return True
        if wider is None:
            with contextlib.ExitStack() as undo:
                undo.callback(discard, self.table.files, written.good)
                self.check_bad(written.rows, written.bad, self._options.max_bad, number)
                undo.pop_all()
            return True
        discard(self.table.files, written.good)
        if self.quarantine is not None:
            discard(self.quarantine.files, written.bad)
        self._evolve(wider, number)
        return False

    def commit(
        self,
        ranges: Sequence[QueueRange],
        number: int,
        written: Written,
        begin: float,
        planned: Mapping[Queue, PlannedEnd],
    ) -> None:
        """One batch: both tables have it when this returns.

        Args:
            begin: when the batch began, by time.monotonic().
            planned: where it ends in each queue of the topic.
        """
        # An earlier version's rows have no record: what lies before this batch was not skipped, and `check` counts it.
        starts, every = {} if self._uncertified else self._starts(), self._every
        certificate = self._certificate.with_batch(
            ranges, written.queues, starts, every=every, planned=planned
        )
        info = {
            "rows": written.rows,
            "quarantined": written.bad_rows,
            "rescued": written.rescued,
            CERTIFICATE: certificate.encode(),
        }
        self.keep_aside(written.bad, number)
        batch = (self._stream_id, number)
        commit = Commit(adds=written.good, batch=batch, info=info, blind=True)
        self.table.commit(commit, "STREAMING UPDATE")
        self._certificate = certificate
        if written.rescued and not self._rescued:
            self._job.progress.say(
                f"warning: messages of {self.topic} have fields without a column: see column {forms.RESCUED}"
            )
        self._rescued += written.rescued
        self._unmet.update(written.unmet)
        self.batches.done(number, written.rows + written.bad_rows, time.monotonic() - begin)
        if self._options.follow:
            self.tidy()

    def bring_back(self, messages: Callable[[], Iterator[pa.RecordBatch]], number: int) -> None:
        written = None
        while written is None or not self.takes(written, number, mended=True):
            work = replace(self.work(number), aside=False)
            written = write_messages(work, messages(), f"mended_{Entropy().token(8)}")
            if self.quarantine is not None:
                discard(self.quarantine.files, written.bad)
        info = {MENDED: [file.path for file in written.good]}
        commit = Commit(adds=written.good, batch=(MENDED_STREAM, number), info=info)
        self.table.commit(commit, "STREAMING UPDATE")
        self._rescued += written.rescued

    def _wider(self, news: Kind) -> Kind | None:
        """The bodies' columns, so that they take what no column took; None if they already do, or cannot."""
        if self.form.kind not in forms.EVOLVING or self._options.schema_evolution == "fixed":
            return None
        known = json.loads(self.form.body_schema)
        wider = widened(known, news)
        return None if wider == known else wider

    def _evolve(self, wider: Kind, number: int) -> None:
        form = replace(self.form, body_schema=json.dumps(wider))
        if self._options.schema_evolution == "fail":
            known = {each["name"] for each in json.loads(self.form.body_schema)["fields"]}
            names = [each["name"] for each in wider["fields"] if each["name"] not in known]
            what = f"fields without a column: {', '.join(names)}" if names else "values too large"
            raise PipelineError(
                f"archive: batch {number} of {self.topic} has {what}: --schema-evolution add takes them, "
                "fixed keeps them as they are"
            )
        settings = {ROWS_SETTING: form.settings()}
        self._columns_added += self.widen(table_type(form).json(), settings)
        self.form = form
        self._set_sort()

    @property
    def _every(self) -> bool:
        """Return True if each offset is to be a row."""
        return self._options.tags == "*"

    def _starts(self) -> dict[Queue, int]:
        """Return the offsets at which the table began, as far as offsets said it."""
        kept = json.loads(self.table.snapshot.settings[START_SETTING])
        return {
            (broker, int(queue)): offset
            for broker, queues in kept.items()
            for queue, offset in queues.items()
        }

    def tidy(self) -> None:
        """Join small files, and delete what was replaced long enough ago."""
        options = self._options
        for table in (self.table, self.quarantine):
            if table is None:
                continue
            if options.compact:
                self._compaction += table.compact(
                    target_bytes=options.target_mb << 20,
                    at_least=options.small_files,
                    stop=self._job.stop.is_set,
                    sort=self._sort if table is self.table else (),
                )
            table.vacuum(keep_ms=options.keep_replaced_minutes * 60_000)

    def health(self, states: Sequence[QueueBounds]) -> TableHealth:
        """Return how far the table is.

        Args:
            states: the queues of all topics as they are now.
        """
        kept, starts = self._certificate.queues, self._starts()
        batch, lag = self.table.snapshot.batches.get(self._stream_id, -1), 0
        for each in states:
            if each.topic == self.topic:
                queue = each.broker_name, each.queue_id
                done = kept[queue].end if queue in kept else starts.get(queue, each.start)
                lag += max(0, each.end - max(done, each.start))
        apart = 0 if self.quarantine is None else self.quarantine.snapshot.rows
        unmet = sum(self._unmet.values())
        return TableHealth(self.topic, lag, batch, self.batches.rows, apart, unmet)

    def check(self) -> None:
        """Compare what the tables have of each queue with how far the stream has come."""
        self._job.progress.step(f"comparing the table of {self.topic} with the topic")
        found = self._certificate
        if found.rows != self._rows():  # an older table, or somebody else has changed one
            found = self._scan()
        newest = newest_batch(self.positions, CHECKPOINT)
        ends = planned_ends(self.positions, CHECKPOINT, newest).get(self.topic, {})
        found = found.reaching(ends, self._starts(), every=self._every)
        if found != self._certificate:
            self.table.commit(Commit(info={CERTIFICATE: found.encode()}), "CHECK")
        before, there = self._before.totals, {(q.broker_name, q.queue_id): q for q in self._states}
        others, lives = self._other_ends(found), Counter(queue for queue, _ in found.former)
        self._counts = [
            QueueCount(
                *queue,
                record,
                before.get(queue, QueueRecord(0, 0)),
                max(0, there[queue].end - record.end) if queue in there else 0,
                queue in others,
                lives[queue],
            )
            for queue, record in sorted(found.totals.items())
        ]

    def _other_ends(self, found: Certificate) -> set[Queue]:
        """Queues of which the brokers have another message than the one the table ends with: asked now."""
        given = stream_options(self._options)
        reader = reader_of(self._options.namesrv, [self.topic], given)
        ends = {
            MessageQueue(self.topic, *queue): record
            for queue, record in found.queues.items()
            if record.seen
        }
        now = lives_before(reader, {queue: record.end for queue, record in ends.items()})
        return {(q.broker_name, q.queue_id) for q, life in now.items() if life != ends[q].seen}

    def _scan(self) -> Certificate:
        from roquette_spark.pipelines.tables.table_source import open_frame  # needs PySpark

        name = "" if self.form.kind == "raw" else "_"
        columns = (*forms.PLACE, "store_timestamp")
        given = [f"{name}{each}" for each in columns]
        places = open_frame(self._spark, self.table, given).selectExpr(
            *(f"{name}{each} as {each}" for each in columns)
        )
        if self.quarantine is not None:
            apart = open_frame(self._spark, self.quarantine, columns)
            places = places.unionAll(apart.select(*columns))
        found = count_places(places, self._starts(), every=self._every)
        return found.remembering(self._kept_certificate())

    def result(self) -> TopicResult:
        return TopicResult(
            topic=self.topic,
            root=self.table.files.root,
            snapshot=self.table.snapshot,
            quarantined=0 if self.quarantine is None else self.quarantine.snapshot.rows,
            reasons=self.reasons(),
            bad=self.bad,
            mended=self.mended,
            unmet=self._unmet,
            rescued=self._rescued,
            fields=rescued_fields(self.table),
            evolution=self._options.schema_evolution,
            columns_added=self._columns_added,
            lacks=self.lacks,
            batches=self.batches,
            compaction=self._compaction,
            counts=self._counts,
            form=self.form,
        )
