"""A table of Parquet files with a Delta log: batches that count once, compaction, and cleaning up after a crash.

One process writes at a time (a lock on a local disk; elsewhere the log's numbers: the second writer fails).
Readers need no lock: they read a version's files, and files that were replaced stay for a while.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from roquette.base.clock import Clock, SystemClock
from roquette.base.entropy import Entropy
from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.table_files import Commit, DataFile, TableFiles
from roquette_spark.pipelines.rows.parquet_files import Rows, read_rows
from roquette_spark.pipelines.tables.delta_log import LOG_FOLDER, UNFINISHED, DeltaLog, check_wider
from roquette_spark.pipelines.tables.table_place import (
    Owner,
    check_place,
    dead_staging,
    leftovers,
)
from roquette_spark.pipelines.tables.table_writer import TableWriter, data_files


class Table(TableWriter):
    """Delta Lake. Open it with `open_table`; call `close` at the end.

    Attributes:
        pinned: a folder whose files stay where they are, replaced or not; "" for none.
    """

    name, whole_files = "", False

    def __init__(self, files: TableFiles, clock: Clock, entropy: Entropy) -> None:
        self.files = files
        self._clock = clock
        self.entropy = entropy
        self._log = DeltaLog(files, clock)
        self.snapshot = self._log.read()
        self.pinned = ""

    @property
    def keep_versions(self) -> int:
        return self._log.keep_versions

    @keep_versions.setter
    def keep_versions(self, count: int) -> None:
        self._log.keep_versions = count

    def reload(self, version: int | None = None) -> None:
        self.snapshot = self._log.read(version)

    def clean(self) -> None:
        """Remove what a killed writer left half done. Options, schema and topic have been checked by now.

        Where there is no lock, another writer may be at work: only what can never count any more goes.
        """
        for folder in dead_staging(self.files, self.snapshot):
            self.files.remove_tree(folder)
        if self.files.local:
            for name in self.files.list_names(LOG_FOLDER):
                if re.fullmatch(UNFINISHED, name):
                    self.files.remove(f"{LOG_FOLDER}/{name}")
        for path in self.unknown():
            self.files.remove(path)

    def unknown(self) -> list[str]:
        found = leftovers(self.files, self.snapshot, only_past=not self.files.local)
        held = self._log.held_files() if found else set()
        return [path for path in found if path not in held and not self._is_pinned(path)]

    def check_owner(self, owner: Owner) -> None:
        check_place(self.files, self.snapshot, owner)

    def _is_pinned(self, path: str) -> bool:
        return bool(self.pinned) and path.startswith(f"{self.pinned}/")

    def create(
        self, schema: str, partitioned_by: Sequence[str], settings: Mapping[str, str]
    ) -> None:
        """A table without rows. `schema` is Spark's JSON of all columns, those of the partitions included.

        Raises:
            PipelineError: another process was faster.
        """
        there = self.snapshot
        if there.version < 0:
            self._log.create(schema, partitioned_by, settings)
        elif there.files or there.partitioned_by != tuple(partitioned_by):
            raise PipelineError(
                f"{self.files.root} has another table: remove it, or give another --to"
            )
        else:
            self._log.set_settings(settings)  # from now on a writer of the version before fails
            self._log.set_schema(schema)
        self.snapshot = self._log.read()

    def widen(self, schema: str, settings: Mapping[str, str]) -> None:
        check_wider(self.snapshot.schema, schema)
        # Settings come first: a writer that is killed in between finds columns missing, and comes here again.
        if {**self.snapshot.settings, **settings} != self.snapshot.settings:
            self._log.set_settings(settings)
        if json.loads(schema) != json.loads(self.snapshot.schema):
            self._log.set_schema(schema)
        self.snapshot = self._log.read()

    def drop(self) -> None:
        """Forget a table without rows, so that it can be created again.

        Where there is no lock its log stays: `create` changes it by commits, which another writer's would stop.
        """
        assert not self.snapshot.files, self.files.root
        if self.files.local:
            self._log.drop()
            self.snapshot = self._log.read()

    def done(self, stream: str) -> int:
        """The newest batch of a stream that is in the table; -1 when there is none."""
        return self._log.done(stream)

    def last_info(self, name: str) -> Any:
        """Return what the newest commit that has it gave as `Commit.info[name]`; None if none has, or its entry is gone."""
        return self._log.last_info(name)

    def ours_since(self, version: int) -> bool:
        return self._log.ours_since(version)

    def keeps_rows_since(self, version: int) -> bool:
        return self._log.keeps_rows_since(version)

    def write(self, commit: Commit, operation: str) -> None:
        now_ms = self._clock.now_ms()
        version = self._log.commit(commit, operation, now_ms=now_ms)
        there = self.snapshot
        files, removed = dict(there.files), dict(there.removed)
        for file in commit.removes:
            files.pop(file.path, None)
            removed[file.path] = now_ms
        for file in commit.adds:
            files[file.path] = file
            removed.pop(file.path, None)
        batches = {**there.batches, **({} if commit.batch is None else dict([commit.batch]))}
        self.snapshot = replace(
            there, version=version, files=files, removed=removed, batches=batches
        )

    def vacuum(self, *, keep_ms: int) -> int:
        """Delete the `expired` files; returns how many. The log's entries go by themselves."""
        gone = self.expired(keep_ms=keep_ms)
        for path in gone:
            self.files.remove(path)
        old = set(self._old(keep_ms))
        kept = {path: at for path, at in self.snapshot.removed.items() if path not in old}
        if kept and self._log.keep_removals(keep_ms):
            self.snapshot = self._log.read()
        self.snapshot = replace(self.snapshot, removed=kept)
        return len(gone)

    def expired(self, *, keep_ms: int) -> list[str]:
        old = self._old(keep_ms)
        there = set(data_files(self.files)) if old else set()
        return [path for path in old if path in there]

    def _old(self, keep_ms: int) -> list[str]:
        before_ms, held = self._clock.now_ms() - keep_ms, self._log.held_files()
        return [
            path
            for path, at in self.snapshot.removed.items()
            if at <= before_ms and path not in held and not self._is_pinned(path)
        ]

    def arrow_schema(self) -> pa.Schema:
        return self._log.arrow_schema()

    def joinable(self) -> list[DataFile]:
        """As `TableWriter` says. No commit of ours can take out a file with a deletion vector."""
        return [file for file in self.snapshot.files.values() if file.live is None]

    def rows_of(
        self, files: Iterable[DataFile], columns: Sequence[str] = ()
    ) -> dict[DataFile, Rows]:
        schema = self.arrow_schema()
        kept = pa.schema([each for each in schema if not columns or each.name in columns])
        return {file: partial(read_rows, self.files.root, file, kept) for file in files}


def open_table(root: str, *, clock: Clock | None = None, entropy: Entropy | None = None) -> Table:
    """A table that is there, or one that is yet to be created (its version is -1)."""
    return Table(TableFiles(root), clock or SystemClock(), entropy or Entropy())
