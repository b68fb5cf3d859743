"""A table of Parquet files with a log: batches that count once, compaction, and cleaning up after a crash.

One process writes at a time (a lock on a local disk; elsewhere the log's numbers: the second writer fails).
Readers need no lock: they read a version's files, and files that were replaced stay for a while.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from roquette.base.clock import Clock, SystemClock
from roquette.base.entropy import Entropy
from roquette.base.files import FileLock
from roquette.pipelines.kit.frame import PipelineError
from roquette.pipelines.kit.table_data import data_files, publish_staged, read_table, small_files
from roquette.pipelines.kit.table_files import TableFiles
from roquette.pipelines.kit.table_log import (
    LOG_FOLDER,
    apply,
    checkpoint_actions,
    checkpoint_name,
    encode_commit,
    encode_creation,
    encode_widening,
    entry_name,
    replay,
    version_of,
)
from roquette.pipelines.kit.table_place import OWN_FOLDER, Owner, check_place, leftovers
from roquette.pipelines.kit.table_values import (
    Commit,
    Compaction,
    DataFile,
    Snapshot,
    TableCorrupt,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGING = f"{OWN_FOLDER}/staging"
CHECKPOINT_EVERY = 50  # versions
LOG_KEPT_MS = 30 * 24 * 3_600_000  # entries that a checkpoint sums up
LAST_CHECKPOINT = f"{LOG_FOLDER}/_last_checkpoint"

_TEXTS = pa.map_(pa.string(), pa.string())
# Columns of a checkpoint: Delta's actions, one per row, all others null.
_CHECKPOINT_SCHEMA = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64())])),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                ]
            ),
        ),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    (
                        "format",
                        pa.struct([("provider", pa.string()), ("options", _TEXTS)]),
                    ),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _TEXTS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]),
        ),
    ]
)


class Table:
    """Open it with `open_table`; call `close` at the end."""

    def __init__(self, files: TableFiles, clock: Clock, entropy: Entropy) -> None:
        self.files = files
        self._clock = clock
        self._entropy = entropy
        self._lock: FileLock | None = None
        self.snapshot = read_snapshot(files)

    def claim(self, owner: Owner) -> None:
        """Keep other writers out; nothing is removed yet (see `clean`).

        Raises:
            ConfigError: the place is somebody else's.
            PipelineError: another process writes.
        """
        check_place(self.files, self.snapshot, owner)
        self._lock = self.files.lock(f"{OWN_FOLDER}/lock")
        self.snapshot = read_snapshot(self.files)

    def clean(self) -> None:
        """Remove what a killed writer left half done. Options, schema and topic have been checked by now."""
        self.files.remove_tree(STAGING)
        for file in self.files.list_tree(LOG_FOLDER):
            if file.path.endswith(".tmp"):
                self.files.remove(file.path)
        for path in leftovers(self.files, self.snapshot):
            self.files.remove(path)

    def describe(self, owner: Owner, *, keep_ms: int) -> list[str]:
        """For plans: what is there, and what a run would remove. Raises ConfigError as `claim` does."""
        check_place(self.files, self.snapshot, owner)
        there, root = self.snapshot, self.files.root
        if there.version < 0:
            return [f"table {root}: new"]
        lines = [f"table {root}: {there.rows:,} rows in {len(there.files)} files"]
        for paths, what in (
            (leftovers(self.files, there), "that a killed run has left"),
            (self.expired(keep_ms=keep_ms), "that were replaced"),
        ):
            if paths:
                lines.append(f"table {root}: removes {len(paths)} files {what}, such as {paths[0]}")
        return lines

    def close(self) -> None:
        """Let others write."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def create(
        self, schema: str, partitioned_by: Sequence[str], settings: Mapping[str, str]
    ) -> None:
        """Version 0. `schema` is Spark's JSON of all columns, those of the partitions included."""
        data = encode_creation(
            schema,
            partitioned_by,
            settings,
            table_id=_uuid(self._entropy),
            now_ms=self._clock.now_ms(),
        )
        self._write_entry(0, data)

    def widen(self, schema: str, settings: Mapping[str, str]) -> None:
        """Change the columns for the rows that come, and some settings.

        Args:
            schema: Spark's JSON of all columns: those there are, also as a wider type, and more, which are nullable.
        """
        data = encode_widening(
            self.snapshot,
            schema,
            {**self.snapshot.settings, **settings},
            now_ms=self._clock.now_ms(),
        )
        self._write_entry(self.snapshot.version + 1, data)

    def drop(self) -> None:
        """Forget a table without rows, so that it can be created again."""
        assert not self.snapshot.files, self.files.root
        self.files.remove_tree(LOG_FOLDER)
        self.snapshot = Snapshot()

    def done(self, stream: str) -> int:
        """The newest batch of a stream that is in the table; -1 when there is none."""
        return self.snapshot.batches.get(stream, -1)

    def last_info(self, name: str) -> Any:
        """What the newest commit that has it gave as `Commit.info[name]`; None if none has, or its entry is gone."""
        for version in range(self.snapshot.version, -1, -1):
            path = f"{LOG_FOLDER}/{entry_name(version)}"
            if not self.files.exists(path):
                break
            for line in self.files.read(path).splitlines():
                info = json.loads(line).get("commitInfo") or {}
                if name in info:
                    return info[name]
        return None

    def new_staging(self) -> str:
        """A folder of its own for each attempt: what a dead driver's tasks still write goes elsewhere."""
        return f"{STAGING}/{self._entropy.token()}"

    def publish(self, staging: str, prefix: str) -> list[DataFile]:
        """Move the Parquet files of a finished job into the table's folders. They count once committed.

        Args:
            prefix: the new names begin with it.
        """
        return publish_staged(self.files, staging, prefix)

    def commit(self, commit: Commit, operation: str) -> int:
        """Make it count; returns the new version.

        Raises:
            PipelineError: another writer was faster: nothing of this commit counts.
        """
        version = self.snapshot.version + 1
        data = encode_commit(commit, operation=operation, now_ms=self._clock.now_ms())
        self._write_entry(version, data)
        if version % CHECKPOINT_EVERY == 0:
            self.write_checkpoint()
        return version

    def _write_entry(self, version: int, data: bytes) -> None:
        try:
            self.files.write_new(f"{LOG_FOLDER}/{entry_name(version)}", data)
        except FileExistsError:
            raise PipelineError(
                f"another process has written version {version} of {self.files.root}: stop it, and start again"
            ) from None
        self.snapshot = replay(self.snapshot, version, data)

    def write_checkpoint(self) -> None:
        """Sum the log up, so that readers need not read all of it. A half-written one is never looked at."""
        now_ms = self._clock.now_ms()
        actions = checkpoint_actions(self.snapshot, removed_since_ms=now_ms - LOG_KEPT_MS)
        version = self.snapshot.version
        path = f"{LOG_FOLDER}/{checkpoint_name(version)}"
        self.files.write_rows(path, _CHECKPOINT_SCHEMA, [_arrow_row(each) for each in actions])
        self.files.write(LAST_CHECKPOINT, b'{"version":%d,"size":%d}' % (version, len(actions)))

    def vacuum(self, *, keep_ms: int) -> int:
        """Delete files replaced longer ago than `keep_ms`, and old entries of the log; returns how many."""
        now_ms = self._clock.now_ms()
        gone = self.expired(keep_ms=keep_ms)
        for path in gone:
            self.files.remove(path)
        kept = {path: at for path, at in self.snapshot.removed.items() if at > now_ms - keep_ms}
        self.snapshot = replace(self.snapshot, removed=kept)
        last = _last_checkpoint(self.files)
        for file in self.files.list_tree(LOG_FOLDER):
            version = version_of(file.path.rpartition("/")[2], ".json")
            if version is not None and version < last and file.modified_ms < now_ms - LOG_KEPT_MS:
                self.files.remove(file.path)
        return len(gone)

    def expired(self, *, keep_ms: int) -> list[str]:
        """Files that are still there and were replaced longer ago than `keep_ms`."""
        before_ms = self._clock.now_ms() - keep_ms
        there = set(data_files(self.files))
        return [
            path for path, at in self.snapshot.removed.items() if at <= before_ms and path in there
        ]

    def compact(
        self,
        spark: "SparkSession",
        *,
        target_bytes: int,
        at_least: int,
        stop: Callable[[], bool] = lambda: False,
    ) -> Compaction:
        """Rewrite the small files of each partition as few large ones, one partition per commit.

        Args:
            target_bytes: of a file; those of more than half of it are left alone.
            at_least: so many small files must be there before a partition is worth it.
        """
        total = Compaction()
        for partition, small in small_files(
            self.snapshot.files.values(), target_bytes=target_bytes, at_least=at_least
        ):
            if stop():
                break
            after = self._compact_one(spark, partition, small, target_bytes)
            total = Compaction(
                total.partitions + 1,
                total.files_before + len(small),
                total.files_after + len(after),
                total.rows + sum(file.rows for file in after),
            )
        return total

    def _compact_one(
        self,
        spark: "SparkSession",
        partition: tuple[tuple[str, str | None], ...],
        small: Sequence[DataFile],
        target_bytes: int,
    ) -> list[DataFile]:
        from pyspark.sql.types import StructType

        staging = self.new_staging()
        count = max(1, -(-sum(file.size for file in small) // target_bytes))
        folder = small[0].path.rpartition("/")[0]
        place = f"{staging}/{folder}".rstrip("/")
        # Not the schema of one of the files: older ones may have fewer columns. Those of the partition are in the
        # folders' names.
        schema = json.loads(self.snapshot.schema)
        partitioned = {name for name, _ in partition}
        schema["fields"] = [each for each in schema["fields"] if each["name"] not in partitioned]
        reader = spark.read.schema(StructType.fromJson(schema))
        frame = reader.parquet(*(self.files.address(file.path) for file in small)).coalesce(count)
        frame.write.mode("overwrite").parquet(self.files.address(place))
        after = self.publish(staging, f"compact-{self._entropy.token()}")
        before, now = sum(file.rows for file in small), sum(file.rows for file in after)
        if before != now:
            raise PipelineError(
                f"compaction of {self.files.address(folder)} read {before} rows and wrote {now}: nothing was changed"
            )
        info = {"files_before": len(small), "files_after": len(after)}
        commit = Commit(adds=after, removes=small, data_change=False, info=info)
        self.commit(commit, "OPTIMIZE")
        return after

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """The table at this version."""
        return read_table(spark, self.files, self.snapshot)


def open_table(root: str, *, clock: Clock | None = None, entropy: Entropy | None = None) -> Table:
    """A table that is there, or one that is yet to be created (its version is -1)."""
    return Table(TableFiles(root), clock or SystemClock(), entropy or Entropy())


def read_snapshot(files: TableFiles) -> Snapshot:
    """The newest version of a table.

    Raises:
        TableCorrupt: the log is malformed or has a hole.
    """
    try:
        return _read_snapshot(files)
    except (KeyError, TypeError, ValueError, FileNotFoundError) as error:
        raise TableCorrupt(
            f"{files.root}: {LOG_FOLDER} is damaged or not of ours: {type(error).__name__}: {error}"
        ) from None


def _read_snapshot(files: TableFiles) -> Snapshot:
    snapshot = Snapshot()
    last = _last_checkpoint(files)
    if last >= 0:
        rows = files.read_rows(f"{LOG_FOLDER}/{checkpoint_name(last)}")
        snapshot = replace(apply(snapshot, map(_plain_action, rows)), version=last)
    versions = sorted(
        version
        for file in files.list_tree(LOG_FOLDER)
        if (version := version_of(file.path.rpartition("/")[2], ".json")) is not None
        and version > last
    )
    for expected, version in enumerate(versions, last + 1):
        if version != expected:
            raise TableCorrupt(f"{files.root}: version {expected} is missing in {LOG_FOLDER}")
        snapshot = replay(snapshot, version, files.read(f"{LOG_FOLDER}/{entry_name(version)}"))
    return snapshot


def live_files(root: str) -> list[str]:
    """The addresses of a table's files, for pandas, DuckDB and others that know no Delta.

    They stay readable for as long as replaced files are kept.
    """
    files = TableFiles(root)
    return [files.address(path) for path in sorted(read_snapshot(files).files)]


def _last_checkpoint(files: TableFiles) -> int:
    found = files.read_json(LAST_CHECKPOINT)
    return -1 if found is None else int(found["version"])


def _arrow_row(action: Mapping[str, Any]) -> dict[str, Any]:
    """Maps as lists of pairs: what Arrow takes."""

    def convert(value: Any, kind: Any) -> Any:
        if pa.types.is_map(kind):
            return list(value.items())
        if pa.types.is_struct(kind) and value is not None:
            return {child.name: convert(value.get(child.name), child.type) for child in kind}
        return value

    return {
        name: convert(value, _CHECKPOINT_SCHEMA.field(name).type) for name, value in action.items()
    }


def _plain_action(row: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `_arrow_row`; absent actions are None and are left out."""

    def convert(value: Any, kind: Any) -> Any:
        if value is None:
            return None
        if pa.types.is_map(kind):
            return dict(value)
        if pa.types.is_struct(kind):
            return {child.name: convert(value[child.name], child.type) for child in kind}
        return value

    return {
        field.name: convert(row[field.name], field.type)
        for field in _CHECKPOINT_SCHEMA
        if row.get(field.name) is not None
    }


def _uuid(entropy: Entropy) -> str:
    text = entropy.token(16)
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
