"""Delta Lake by delta-rs: which Parquet files are the table now, which batches it has.

What the library leaves to its caller is done here: a batch comes once, another process of ours is an error, files fit
the table's columns, an entry is safe on a local disk before anybody is told. Decisions 13 and 45.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from roquette.base.clock import Clock, SystemClock
from roquette.base.entropy import Entropy
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.table_files import (
    Commit,
    DataFile,
    Overtaken,
    Snapshot,
    TableCorrupt,
    TableFiles,
    partition_text,
)
from roquette_spark.pipelines.rows.parquet_files import Rows, encode_statistics, read_rows
from roquette_spark.pipelines.tables.table import Table

# Whether Parquet files have the columns of a table, and a table's columns may become others.


def misfits(found: pa.Schema, wanted: pa.Schema) -> str:
    """Say what is wrong with a file's columns, "" when they fit: the same types or narrower, none that the table lacks."""
    for field in found:
        index = wanted.get_field_index(field.name)
        if index < 0:
            return f"the table has no column {field.name}"
        if not _fits(field.type, wanted.field(index).type):
            return f"{field.name} is {field.type}, the table has {wanted.field(index).type}"
    return ""


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    t = pa.types

    def both(*kinds: Callable[[pa.DataType], bool]) -> bool:
        return all(any(is_kind(each) for is_kind in kinds) for each in (found, wanted))

    if both(t.is_signed_integer) or both(t.is_floating):
        return bool(found.bit_width <= wanted.bit_width)
    if both(t.is_timestamp):
        # INT96, which Spark writes, has no zone and is UTC.
        return found.unit == "ns" or (found.tz is None) == (wanted.tz is None)
    if both(t.is_decimal):
        return bool(found.scale == wanted.scale and found.precision <= wanted.precision)
    if both(t.is_struct):
        return not misfits(pa.schema(list(found)), pa.schema(list(wanted)))
    if both(t.is_map):
        return _fits(found.key_type, wanted.key_type) and _fits(found.item_type, wanted.item_type)
    if both(t.is_list, t.is_large_list):
        return _fits(found.value_type, wanted.value_type)
    texts = both(t.is_string, t.is_large_string) or both(t.is_binary, t.is_large_binary)
    return texts or bool(found == wanted)


def check_wider(before: str, after: str) -> None:
    """Of two schemas (Spark's JSON). Raises ConfigError for a column that rows of the first do not fit into."""
    wrong = misfits(arrow_schema(before), arrow_schema(after))
    if wrong:
        raise ConfigError(f"columns only come and become wider: {wrong}")


def arrow_schema(spark_json: str) -> pa.Schema:
    """Of Spark's JSON of a schema."""
    return pa.schema(_library().Schema.from_json(spark_json).to_arrow())


LOG_FOLDER = "_delta_log"
UNFINISHED = (
    r".*(\.tmp|#\d+)"  # names in its folder of what never became an entry: the writer was killed
)
_ENTRIES = rf"_last_checkpoint|\d{{20}}\.(json|crc|checkpoint\.(.*\.)?parquet)|{UNFINISHED}"
KEPT_DAYS = 30  # entries that a checkpoint sums up, and what it knows of files that were replaced
CHECKPOINT_INTERVAL = 50  # versions
_READABLE = {
    "deletionVectors",
    "timestampNtz",
}  # features of tables whose files `read_rows` reads right
_LONGEST_ERROR = 500  # characters of an error of the library
_DAY_MS = 24 * 3_600_000
_FILES_KEPT = "delta.deletedFileRetentionDuration"
_DEFAULT_FILES_KEPT_MS = 7 * _DAY_MS  # Delta's, of tables that do not say it
_PROPERTIES = {
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
    "delta.logRetentionDuration": f"interval {KEPT_DAYS} days",
    _FILES_KEPT: f"interval {KEPT_DAYS} days",
}
_OURS = "roquetteOperation"  # in the words of our commits
_RULES = "delta.constraints."  # delta-rs leaves them to whoever writes files
_UNITS_MS = {
    "day": _DAY_MS,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1000,
    "millisecond": 1,
}


class DeltaTable(Table):
    """Open it with `open_table`."""

    log_folder, unfinished = LOG_FOLDER, UNFINISHED

    def __init__(self, files: TableFiles, clock: Clock, entropy: Entropy) -> None:
        self._address = _address(files)
        self._table: Any = None
        self._removed: dict[int, frozenset[str]] = {}  # of the newest versions, what each took out
        super().__init__(files, clock, entropy)

    @property
    def shared(self) -> bool:
        return not self.files.local

    def reload(self, version: int | None = None) -> None:
        """As its base, and TableCorrupt where the log is malformed or has a hole; ConfigError, too, without deltalake."""
        self._removed = {}
        if not self.files.exists(LOG_FOLDER):
            self._table, self.snapshot = None, Snapshot()
            return
        library = _library()
        try:
            self._table = library.DeltaTable(self._address, version=version)
            self._check_features()
            self.snapshot = self._read()
        except library.exceptions.TableNotFoundError:
            self._table, self.snapshot = None, Snapshot()
        except OSError as error:
            raise PipelineError(f"{self.files.root} cannot be read: {_reason(error)}") from None
        except (library.exceptions.DeltaError, KeyError, TypeError, ValueError) as error:
            if version is not None:
                raise ConfigError(
                    f"{self.files.root}: version {version} cannot be read any more: {_reason(error)}"
                ) from None
            raise TableCorrupt(
                f"{self.files.root}: {LOG_FOLDER} is damaged or not of ours: {_reason(error)}{_torn(self.files)}"
            ) from None

    def _read(self) -> Snapshot:
        table = self._table
        about = table.metadata()
        given = dict(about.configuration)
        files = {file.path: file for file in self._live_files()}
        removed = _removed_files(self.files)
        return Snapshot(
            version=table.version(),
            files=files,
            # A file of which some rows were deleted is taken out and put in again by one commit.
            removed={path: at for path, at in removed.items() if path not in files},
            batches=self._batches(given.values()),
            schema=table.schema().to_json(),
            partitioned_by=tuple(about.partition_columns),
            settings={key: value for key, value in given.items() if not key.startswith("delta.")},
            table_id=str(about.id),
            created_ms=about.created_time or 0,
        )

    def _check_features(self) -> None:
        """Raises ConfigError."""
        protocol, root = self._table.protocol(), self.files.root
        unknown = set(protocol.reader_features or ()) - _READABLE
        mapping = self._table.metadata().configuration.get("delta.columnMapping.mode", "none")
        if protocol.min_reader_version == 2 and mapping != "none":
            unknown.add("columnMapping")
        if unknown:
            raise ConfigError(
                f"{root}: another program has given the table {', '.join(sorted(unknown))}, and by that its files cannot "
                "be read alone: read it by Delta's own library; to go on writing, ALTER TABLE ... DROP FEATURE there, "
                "or give another --to"
            )

    def _live_files(self) -> list[DataFile]:
        """Each file with the rows that are there: another engine may have deleted some by a vector beside it."""
        found = _files_of(self._table, self.files)
        if "deletionVectors" not in (self._table.protocol().reader_features or ()):
            return found
        base, vectors = len(f"{self._table.table_uri.rstrip('/')}/"), {}
        for batch in pa.RecordBatchReader.from_stream(self._table.deletion_vectors()):
            for path, live in zip(*(batch.column(at) for at in range(2)), strict=True):
                vectors[unquote(path.as_py()[base:])] = live.values
        return [_with_vector(file, vectors.get(file.path)) for file in found]

    def _batches(self, names: Any) -> dict[str, int]:
        """Of the streams that settings name; delta-rs lists none."""
        found = {name: self.done(name) for name in names if len(name) < 200}
        return {name: batch for name, batch in found.items() if batch >= 0}

    def done(self, stream: str) -> int:
        found = None if self._table is None else self._table.transaction_version(stream)
        return -1 if found is None else int(found)

    def create(
        self, schema: str, partitioned_by: Sequence[str], settings: Mapping[str, str]
    ) -> None:
        there, library = self.snapshot, _library()
        if there.version >= 0:
            if there.files or there.partitioned_by != tuple(partitioned_by):
                raise PipelineError(
                    f"{self.files.root} has another table: remove it, or give another --to"
                )
            self._set_settings(settings)  # from now on a writer of the version before fails
            self._set_schema(schema)
            self.reload()
            return
        try:
            self._table = library.DeltaTable.create(
                self._address,
                library.Schema.from_json(schema),
                partition_by=list(partitioned_by),
                configuration={**_PROPERTIES, **settings},
                raise_if_key_not_exists=False,
            )
        except (library.exceptions.DeltaError, OSError) as error:
            raise PipelineError(f"{self.files.root} cannot be created: {_reason(error)}") from None
        self._make_safe(0)
        self.reload()

    def widen(self, schema: str, settings: Mapping[str, str]) -> None:
        check_wider(self.snapshot.schema, schema)
        # Settings come first: a writer that is killed in between finds columns missing, and comes here again.
        if {**self.snapshot.settings, **settings} != self.snapshot.settings:
            self._set_settings(settings)
        if json.loads(schema) != json.loads(self.snapshot.schema):
            self._set_schema(schema)
        self.reload()

    def drop(self) -> None:
        """As its base: all entries, the newest first, so that what a kill leaves is a table; what others have put there stays.

        Where there is no lock the log stays: `create` changes it by commits, which another writer's would stop.
        """
        assert not self.snapshot.files, self.files.root
        if self.files.local:
            for name in sorted(self.files.list_names(LOG_FOLDER), reverse=True):
                if re.fullmatch(_ENTRIES, name):
                    self.files.remove(f"{LOG_FOLDER}/{name}")
            self.reload()

    def _set_settings(self, settings: Mapping[str, str]) -> int:
        """One version more with these, the others stay; returns it."""
        alter = self._table.alter.set_table_properties
        write = partial(alter, dict(settings), raise_if_not_exists=False)
        return self._commit(write, Commit(), "SET TBLPROPERTIES")

    def _set_schema(self, schema: str) -> int:
        """One version more with these columns and the same files; returns it."""
        new = _library().Schema.from_json(schema)
        columns = list(self._table.metadata().partition_columns)
        # Our tables have partitions; without them this would remove all files.
        assert columns, self.files.root
        nothing: list[Any] = [(columns[0], "in", [])]
        overwrite = partial(self._table.create_write_transaction, [], "overwrite")
        write = partial(overwrite, new, columns, partition_filters=nothing)
        return self._commit(write, Commit(), "CHANGE COLUMNS")

    def write(self, commit: Commit, operation: str) -> None:
        transaction, now_ms = _library().transaction, self._clock.now_ms()
        marked = [file.path for file in commit.removes if file.live is not None]
        if marked:
            raise ConfigError(
                f"{self.files.root}: another program has deleted rows of {marked[0]} by a deletion vector, and so no commit of "
                "ours can replace that file: let it purge them first (REORG TABLE ... APPLY (PURGE))"
            )
        self._check_columns(commit.adds)
        rules = [key for key in self._table.metadata().configuration if key.startswith(_RULES)]
        if commit.adds and rules:
            raise ConfigError(
                f"{self.files.root}: another program has given the table rules for its rows ({', '.join(sorted(rules))}), "
                "which are not looked at here: drop them there, or give another --to"
            )
        actions = [
            transaction.RemoveAction(
                file.path, commit.data_change, now_ms, file.size, dict(file.partition)
            )
            for file in commit.removes
        ]
        actions += [
            transaction.AddAction(
                file.path,
                file.size,
                dict(file.partition),
                file.modified_ms,
                commit.data_change,
                file.stats or json.dumps({"numRecords": file.rows}),
            )
            for file in commit.adds
        ]
        schema, columns = self._table.schema(), list(self._table.metadata().partition_columns)
        append = partial(self._table.create_write_transaction, actions, "append")
        version = self._commit(partial(append, schema, columns), commit, operation)
        self.snapshot = self._after(commit, version)

    def _check_columns(self, adds: Sequence[DataFile]) -> None:
        """A file of other types would make the table unreadable, and the library does not look."""
        wanted = self.arrow_schema()
        for path, footer in self._footers(adds).items():
            if wrong := misfits(footer.schema.to_arrow_schema(), wanted):
                raise PipelineError(
                    f"{self.files.address(path)} does not fit the table's columns: {wrong}: nothing was changed"
                )

    def arrow_schema(self) -> pa.Schema:
        return pa.schema(self._table.schema().to_arrow())

    def _commit(self, write: Any, commit: Commit, operation: str) -> int:
        library = _library()
        version = int(self._table.version()) + 1
        batch = commit.batch
        properties = library.CommitProperties(
            custom_metadata={**commit.info, _OURS: operation},
            max_commit_retries=0,  # its own retries put compacted rows beside those of another's OPTIMIZE
            app_transactions=None if batch is None else [library.Transaction(*batch)],
        )
        try:
            write(commit_properties=properties, post_commithook_properties=self._hooks(library))
        except (library.exceptions.DeltaError, OSError) as error:
            self._explain(error, commit, version)
        self._make_safe(version)
        self._table.update_incremental()
        return version

    def _hooks(self, library: Any) -> Any:
        """Return what a commit does beside: entries as old as KEPT_DAYS go, unless versions that are kept need them."""
        if self.keep_versions == 1:
            return library.PostCommitHookProperties()
        needed = int(self._table.version()) + 2 - self.keep_versions - 2 * CHECKPOINT_INTERVAL
        path = f"{LOG_FOLDER}/{entry_name(max(0, needed))}"
        before_ms = self._clock.now_ms() - KEPT_DAYS * _DAY_MS
        young = self.files.exists(path) and self.files.stat(path).modified_ms > before_ms
        return library.PostCommitHookProperties(cleanup_expired_logs=None if young else False)

    def _held(self, before_ms: int | None) -> set[str]:
        if self._table is None:
            return set()
        last = int(self._table.version())
        versions = range(max(0, last + 2 - self.keep_versions), last + 1)
        self._removed = {
            version: self._removed[version]
            if version in self._removed
            else frozenset(_removals(_actions(self.files, version)))
            for version in versions
        }
        return set().union(*self._removed.values())

    def _explain(self, error: Exception, commit: Commit, version: int) -> None:
        """A write has failed. Raises PipelineError unless the version is this commit: its answer was lost."""
        root = self.files.root
        try:
            there = _actions(self.files, version)
        except OSError as worse:
            error, there = worse, []
        if not there:
            raise PipelineError(
                f"version {version} of {root} cannot be written: {_reason(error)}"
            ) from None
        names = {file.path for file in commit.adds}  # nobody else has them
        added = {unquote(each["add"]["path"]) for each in there if each.get("add")}
        if not names or not names <= added:
            raise Overtaken(f"version {version} is written: {_reason(error)}") from None

    def ours_since(self, version: int) -> bool:
        return any(_OURS in (each.get("commitInfo") or {}) for each in self._since(version))

    def keeps_rows_since(self, version: int) -> bool:
        removes = (each["remove"] for each in self._since(version) if each.get("remove"))
        return not any(each.get("dataChange", True) for each in removes)

    def _since(self, version: int) -> Iterator[dict[str, Any]]:
        for each in range(version + 1, int(self._table.version()) + 1):
            yield from _actions(self.files, each)

    def _make_safe(self, version: int) -> None:
        """delta-rs does not flush what it has written to a local disk."""
        self.files.sync(f"{LOG_FOLDER}/{entry_name(version)}")

    def last_info(self, name: str) -> Any:
        version = -1 if self._table is None else self._table.version()
        while version >= 0 and (found := _actions(self.files, version)):
            for action in found:
                info = action.get("commitInfo") or {}
                if name in info:
                    return info[name]
            version -= 1
        return None

    def vacuum(self, *, keep_ms: int) -> int:
        """As its base; checkpoints are to know files that were replaced for at least as long."""
        count, kept = super().vacuum(keep_ms=keep_ms), self.snapshot.removed
        known = self._table.metadata().configuration.get(_FILES_KEPT) if kept else None
        if kept and keep_ms > (_DEFAULT_FILES_KEPT_MS if known is None else interval_ms(known)):
            self._set_settings({_FILES_KEPT: f"interval {keep_ms // 1000 + 1} seconds"})
            self.reload()
            self.snapshot = replace(self.snapshot, removed=kept)
        return count

    def _clean_log(self) -> None:
        for name in self.files.list_names(LOG_FOLDER) if self.files.local else ():
            if re.fullmatch(UNFINISHED, name):
                self.files.remove(f"{LOG_FOLDER}/{name}")

    def joinable(self) -> list[DataFile]:
        """As its base. No commit of ours can take out a file with a deletion vector."""
        return [file for file in self.snapshot.files.values() if file.live is None]

    def rows_of(
        self, files: Iterable[DataFile], columns: Sequence[str] = ()
    ) -> dict[DataFile, Rows]:
        schema = self.arrow_schema()
        kept = pa.schema([each for each in schema if not columns or each.name in columns])
        return {file: partial(read_rows, self.files.root, file, kept) for file in files}


def open_table(
    root: str, *, clock: Clock | None = None, entropy: Entropy | None = None
) -> DeltaTable:
    """A table that is there, or one that is yet to be created (its version is -1)."""
    return DeltaTable(TableFiles(root), clock or SystemClock(), entropy or Entropy())


def entry_name(version: int) -> str:
    return f"{version:020}.json"


def interval_ms(text: str) -> int:
    """Of a property such as "interval 30 days"; raises ValueError."""
    found = re.fullmatch(r"\s*interval\s+(\d+)\s+(\w+?)s?\s*", text)
    if found is None or found[2] not in {*_UNITS_MS, "week"}:
        raise ValueError(text)
    return int(found[1]) * (7 * _DAY_MS if found[2] == "week" else _UNITS_MS[found[2]])


def _library() -> Any:
    try:
        import deltalake
    except ModuleNotFoundError:
        raise ConfigError('deltalake is not installed: pip install "roquette[lake]"') from None
    import deltalake.exceptions
    import deltalake.transaction

    return deltalake


def _address(files: TableFiles) -> str:
    """Return what delta-rs calls the table. Raises ConfigError for what it cannot open."""
    if not files.local:
        return files.root
    if "%" in files.root:
        raise ConfigError(f"{files.root}: delta-rs cannot open a path with %: give another --to")
    return Path(files.root).as_uri()


def _reason(error: BaseException) -> str:
    """Return what delta-rs says, on one line, without colours and backtraces."""
    text = re.sub(r"\x1b\[[0-9;]*m|↳", "", str(error))
    words = re.split(r"(?i)\n\s*(?:stack )?backtrace|\n\s*0: ", text)[0].split()
    return f"{type(error).__name__}: {' '.join(words)[:_LONGEST_ERROR]}"


def _with_vector(file: DataFile, live: pa.BooleanArray | None) -> DataFile:
    if live is None:
        return file
    rest = pa.array([True] * (file.rows - len(live)))  # a vector may end with the last row deleted
    return replace(
        file,
        rows=file.rows - live.false_count,
        live=pa.concat_arrays([live, rest.cast(pa.bool_())]),
    )


def _files_of(table: Any, files: TableFiles) -> list[DataFile]:
    rows = pa.table(table.get_add_actions(flatten=False)).to_pylist()
    foreign = [row["path"] for row in rows if "://" in row["path"]]
    if foreign:
        raise ConfigError(
            f"{files.root}: the table has a file elsewhere ({foreign[0]}): copy it deeply"
        )
    bare = [unquote(row["path"]) for row in rows if row["num_records"] is None]
    counts = {p: f.num_rows for p, f in zip(bare, files.footers(bare), strict=True)}
    return [
        DataFile(
            path=unquote(row["path"]),
            size=row["size_bytes"],
            rows=counts.get(unquote(row["path"]), row["num_records"]),
            modified_ms=row["modification_time"],
            partition=tuple(
                sorted(
                    (name, partition_text(value))
                    for name, value in (row.get("partition") or {}).items()
                )
            ),
            stats=_stats_text(row),
        )
        for row in rows
    ]


def _stats_text(row: Mapping[str, Any]) -> str:
    found = {"minValues": row.get("min"), "maxValues": row.get("max")}
    found["nullCount"] = row.get("null_count")
    return encode_statistics({"numRecords": row["num_records"], **_without_none(found)})


def _without_none(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    kept = {name: _without_none(each) for name, each in value.items() if each is not None}
    return {name: each for name, each in kept.items() if each != {}}


def _actions(files: TableFiles, version: int) -> list[dict[str, Any]]:
    """One entry's; none when it is not there."""
    path = f"{LOG_FOLDER}/{entry_name(version)}"
    if not files.exists(path):
        return []
    return [json.loads(line) for line in files.read(path).splitlines() if line.strip()]


def _torn(files: TableFiles) -> str:
    """Say what to do about a newest entry that is not JSON; "" when it is."""
    entries = [n for n in files.list_names(LOG_FOLDER) if re.fullmatch(r"\d{20}\.json", n)]
    if entries:
        try:
            _actions(files, int(max(entries)[:20]))
        except ValueError:
            path = files.address(f"{LOG_FOLDER}/{max(entries)}")
            return (
                f". If the machine lost power while {path} was written, remove it: it never counted"
            )
    return ""


def _removed_files(files: TableFiles) -> dict[str, int]:
    """Files that were replaced, and when (ms): what delta-rs' vacuum lists by whole hours only."""
    found: dict[str, int] = {}
    names = files.list_names(LOG_FOLDER)
    sums = [name for name in names if re.fullmatch(r"\d{20}\.checkpoint\.(.*\.)?parquet", name)]
    last = max((int(name[:20]) for name in sums), default=-1)
    for name in sums:
        if int(name[:20]) == last:
            found |= _removals(files.read_columns(f"{LOG_FOLDER}/{name}", ["remove"]))
    entries = [int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.json", name)]
    for version in sorted(entry for entry in entries if entry > last):
        actions = _actions(files, version)
        for action in actions:
            found.pop(unquote((action.get("add") or {}).get("path", "")), None)
        found |= _removals(actions)
    return found


def _removals(actions: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    found = [action["remove"] for action in actions if action.get("remove")]
    return {
        unquote(each["path"]): int(each.get("deletionTimestamp") or 0)
        for each in found
        if each.get("path")
    }
