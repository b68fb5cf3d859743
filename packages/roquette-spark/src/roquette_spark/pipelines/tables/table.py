"""A table of Parquet files in one place: batches that count once, compaction, and cleaning up after a crash.

What both formats do is here; how a log is read and written is said by `delta_table.py` (Delta Lake) and `iceberg_table.py`.
One process writes at a time (a lock on a local disk; elsewhere the log's numbers: the second writer fails). Readers need no
lock: they read a version's files, and files that were replaced stay for a while.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.base.files import FileLock
from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.table_files import (
    Commit,
    Compaction,
    DataFile,
    Overtaken,
    Snapshot,
    TableFiles,
    discard,
)
from roquette_spark.pipelines.rows.parquet_files import Rows, join_files
from roquette_spark.pipelines.tables.table_place import (
    OWN_FOLDER,
    STAGING,
    Owner,
    check_place,
    dead_staging,
    leftovers,
    numbered,
)


def data_files(files: TableFiles) -> list[str]:
    """Every Parquet file that a reader of the plain folders would see."""
    return [
        file.path
        for file in files.list_tree()
        if file.path.endswith(".parquet") and not _is_hidden(file.path)
    ]


def _is_hidden(path: str) -> bool:
    """Return True if readers skip it: folders of partitions may begin as they like."""
    return path.startswith(("_", ".")) and "=" not in path.partition("/")[0]


def small_files(
    files: Iterable[DataFile], *, target_bytes: int, at_least: int
) -> list[tuple[tuple[tuple[str, str | None], ...], list[DataFile]]]:
    """Per partition, the files under half the target, where there are enough of them."""
    found: dict[tuple[tuple[str, str | None], ...], list[DataFile]] = {}
    for file in sorted(files, key=lambda file: file.path):
        if file.size < target_bytes // 2:
            found.setdefault(file.partition, []).append(file)
    return [(key, each) for key, each in found.items() if len(each) >= at_least]


class Table:
    """A table; `claim` it before any change, `close` it at the end.

    Attributes:
        name: of the format, for people.
        log_folder: that has the log; `unfinished` matches names in it of what never counted: the writer was killed.
        whole_files: whether files have the partitions' columns, too.
        files: the place.
        snapshot: the newest version that this writer has seen or made.
        keep_versions: so many of the newest versions stay readable, however long ago their files were replaced.
        pinned: a folder whose files stay where they are, replaced or not; "" for none.
        entropy: for names that nobody else has.
    """

    name, log_folder, unfinished = "", "", ""
    whole_files = False

    def __init__(self, files: TableFiles, clock: Clock, entropy: Entropy) -> None:
        self.files, self.entropy, self._clock = files, entropy, clock
        self.snapshot = Snapshot()
        self.keep_versions, self.pinned = 1, ""
        self._lock: FileLock | None = None
        self._stopped = ""  # why it does not go on: there are two of us
        self.reload()

    # What a format says.

    @property
    def shared(self) -> bool:
        """Whether another writer may be at work that no lock of ours keeps out."""
        raise NotImplementedError

    def reload(self, version: int | None = None) -> None:
        """See the newest version, or, to read, an older one.

        Raises:
            ConfigError: the version is gone, or the table has what we would read wrong rows by: a feature.
        """
        raise NotImplementedError

    def create(
        self, schema: str, partitioned_by: Sequence[str], settings: Mapping[str, str]
    ) -> None:
        """A table without rows. `schema` is Spark's JSON of all columns, those of the partitions included.

        Raises:
            PipelineError: another process was faster.
        """
        raise NotImplementedError

    def widen(self, schema: str, settings: Mapping[str, str]) -> None:
        """Change the columns of rows that come to `schema` (Spark's JSON of all), and settings.

        All columns that there are stay, of the same type or a wider one; columns and nested fields may come.

        Raises:
            ConfigError: the rows there are would not fit.
        """
        raise NotImplementedError

    def drop(self) -> None:
        """Forget a table without rows, so that it can be created again."""
        raise NotImplementedError

    def done(self, stream: str) -> int:
        """The newest batch of a stream that is in the table; -1 when there is none."""
        raise NotImplementedError

    def last_info(self, name: str) -> Any:
        """Return what the newest commit that has it gave as `Commit.info[name]`; None if there is none."""
        raise NotImplementedError

    def ours_since(self, version: int) -> bool:
        """Whether a process of ours has changed the table after a version."""
        raise NotImplementedError

    def keeps_rows_since(self, version: int) -> bool:
        """Whether later versions have all rows of that one: others have added some, or arranged files."""
        return False

    def write(self, commit: Commit, operation: str) -> None:
        """Commit right after the version that was read last.

        Raises:
            Overtaken: there is a later one. PipelineError: a file does not fit the table's columns.
        """
        raise NotImplementedError

    def joinable(self) -> list[DataFile]:
        """Files that `compact` may rewrite."""
        raise NotImplementedError

    def rows_of(
        self, files: Iterable[DataFile], columns: Sequence[str] = ()
    ) -> dict[DataFile, Rows]:
        """How the rows of some files are read, here or in a task; deleted ones are left out.

        Args:
            columns: none: all.

        Raises:
            ConfigError: rows were deleted in a way that the table's library does not read.
        """
        raise NotImplementedError

    def arrow_schema(self) -> pa.Schema:
        """The columns, those of the partitions among them."""
        raise NotImplementedError

    def _held(self, before_ms: int | None) -> set[str]:
        """Files that are in no newest version and must stay: of any version there is, or (a time) of one that is to be kept then."""
        raise NotImplementedError

    def _clean_log(self) -> None:
        """Remove what a killed writer left in the log's folder."""
        raise NotImplementedError

    # What all tables do.

    def claim(self, owner: Owner) -> None:
        """Keep other writers out; nothing is removed yet (see `clean`).

        Raises:
            ConfigError: the place is somebody else's.
            PipelineError: another process writes.
        """
        self.check_owner(owner)
        self._lock = self.files.lock(f"{OWN_FOLDER}/lock")
        self.reload()

    def close(self) -> None:
        """Let others write."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def check_owner(self, owner: Owner) -> None:
        """Raises ConfigError as `claim` does."""
        check_place(
            self.files,
            self.snapshot,
            owner,
            log_folder=self.log_folder,
            unfinished=self.unfinished,
        )

    def describe(self, owner: Owner, *, keep_ms: int) -> list[str]:
        """For plans: what is there, and what a run would remove. Raises ConfigError as `claim` does."""
        self.check_owner(owner)
        there, root = self.snapshot, self.files.root
        if there.version < 0:
            return [f"table {root}: new{self.name}"]
        lines = [f"table {root}: {there.rows:,} rows in {len(there.files)} files{self.name}"]
        for paths, what in (
            (self.unknown(), "that a killed run has left"),
            (self.expired(keep_ms=keep_ms), "that were replaced"),
        ):
            if paths:
                lines.append(f"table {root}: removes {len(paths)} files {what}, such as {paths[0]}")
        return lines

    def clean(self) -> None:
        """Remove what a killed writer left half done. Options, schema and topic have been checked by now.

        Where there is no lock, another writer may be at work: only what can never count any more goes.
        """
        for folder in dead_staging(self.files, self.snapshot):
            self.files.remove_tree(folder)
        self._clean_log()
        for path in self.unknown():
            self.files.remove(path)

    def unknown(self) -> list[str]:
        """Data files of ours that no version knows."""
        found = leftovers(self.files, self.snapshot, only_past=self.shared)
        held = self._held(None) if found else set()
        return [path for path in found if path not in held and not self._is_pinned(path)]

    def _is_pinned(self, path: str) -> bool:
        return bool(self.pinned) and path.startswith(f"{self.pinned}/")

    def expired(self, *, keep_ms: int) -> list[str]:
        """Files that are still there, were replaced longer ago than `keep_ms`, and are of no version that is kept."""
        return self._there(self._replaced(keep_ms))

    def _there(self, paths: list[str]) -> list[str]:
        found = set(data_files(self.files)) if paths else set()
        return [path for path in paths if path in found]

    def _replaced(self, keep_ms: int) -> list[str]:
        before_ms = self._clock.now_ms() - keep_ms
        old = [path for path, at in self.snapshot.removed.items() if at <= before_ms]
        held = self._held(before_ms) if old else set()
        return [path for path in old if path not in held and not self._is_pinned(path)]

    def vacuum(self, *, keep_ms: int) -> int:
        """Delete those files, and what the log keeps of versions as old; returns how many files."""
        old = self._replaced(keep_ms)
        gone = self._there(old)
        self._forget(self._clock.now_ms() - keep_ms)
        for path in gone:
            self.files.remove(path)
        kept = {p: at for p, at in self.snapshot.removed.items() if p not in set(old)}
        self.snapshot = replace(self.snapshot, removed=kept)
        return len(gone)

    def _forget(self, before_ms: int) -> None:
        """Let the log forget versions that ended before a time, before their files go; Delta's entries go by themselves."""

    def new_staging(self) -> str:
        """A folder of its own for each attempt of a job: what a dead driver's tasks still write goes elsewhere."""
        return f"{STAGING}/{numbered(self.snapshot, self.entropy)}"

    def commit(self, commit: Commit, operation: str) -> int:
        """Make it count, all or nothing; returns the new version.

        Other programs may have committed since the version that was read last: what they did stays, if the commit is
        blind or arranges files that they have left alone.

        Raises:
            Overtaken: it is not, or does not: nothing of this commit counts.
            PipelineError: another process of ours was faster, the table has the batch, or a file has other columns: the same.
        """
        if self._stopped:
            discard(self.files, commit.adds)
            raise PipelineError(self._stopped)
        before = self.snapshot
        while True:
            if commit.batch is not None and self.done(commit.batch[0]) >= commit.batch[1]:
                stream, number = commit.batch
                raise PipelineError(f"batch {number} of {stream} is in {self.files.root} already")
            try:
                self.write(commit, operation)
                return self.snapshot.version
            except Overtaken as error:
                self._follow(commit, before, error)

    def _follow(self, commit: Commit, before: Snapshot, error: Overtaken) -> None:
        """See what was committed since. Raises Overtaken, or PipelineError, if the commit is not right after that."""
        self.reload()
        there, root = self.snapshot, self.files.root
        joinable = {file.path: file.rows for file in self.joinable()}
        arranges = not commit.data_change and all(
            joinable.get(each.path) == each.rows for each in commit.removes
        )
        form = (there.schema, there.partitioned_by, there.settings)
        ours = self.ours_since(before.version)
        same = form == (before.schema, before.partitioned_by, before.settings)
        if not ours and same and (commit.blind or arranges):
            return
        discard(self.files, commit.adds)  # they can never count
        if ours:
            version = before.version + 1
            self._stopped = f"another process has written version {version} of {root}: stop it, and start again ({error})"
            raise PipelineError(self._stopped) from None
        what = "files that it replaces" if same else "columns or settings"
        overtaken = Overtaken(
            f"another program has changed {root} (version {before.version + 1} and later), {what} among it: nothing of "
            f"what was to be written counts; start again ({error})"
        )
        overtaken.keeps_rows = same and self.keeps_rows_since(before.version)
        raise overtaken from None

    def _footers(self, adds: Sequence[DataFile]) -> dict[str, pq.FileMetaData]:
        """Of files that come, by path."""
        unread = [file.path for file in adds if file.footer is None]
        read = dict(zip(unread, self.files.footers(unread), strict=True))
        return {file.path: file.footer or read[file.path] for file in adds}

    def _after(self, commit: Commit, version: int) -> Snapshot:
        """The version that this process has just made."""
        there, now_ms = self.snapshot, self._clock.now_ms()
        files, removed = dict(there.files), dict(there.removed)
        for file in commit.removes:
            files.pop(file.path, None)
            removed[file.path] = now_ms
        for file in commit.adds:
            files[file.path] = file
            removed.pop(file.path, None)
        batches = {**there.batches, **({} if commit.batch is None else dict([commit.batch]))}
        return replace(there, version=version, files=files, removed=removed, batches=batches)

    def compact(
        self,
        *,
        target_bytes: int,
        at_least: int,
        stop: Callable[[], bool] = lambda: False,
        sort: Sequence[str] = (),
    ) -> Compaction:
        """Rewrite the small files of each partition as few large ones, one partition per commit.

        Args:
            target_bytes: of a file; those of more than half of it are left alone.
            at_least: so many small files must be there before a partition is worth it.
            sort: columns by which rows are put in order within each row group.

        Files that another program has changed meanwhile are left for the next time.

        Raises:
            PipelineError: rows would be lost or come twice: nothing was changed.
        """
        total = Compaction()
        for _, small in small_files(self.joinable(), target_bytes=target_bytes, at_least=at_least):
            if stop():
                break
            there = (
                self.snapshot.files
            )  # commits of other programs may have come with the one before
            if any(file.path not in there or there[file.path].rows != file.rows for file in small):
                continue
            name = f"compact-{numbered(self.snapshot, self.entropy)}"
            schema = self.arrow_schema()
            after = join_files(
                self.files,
                self.rows_of(small),
                name,
                schema,
                target_bytes=target_bytes,
                sort=sort,
                whole=self.whole_files,
            )
            info = {"files_before": len(small), "files_after": len(after)}
            commit = Commit(adds=after, removes=small, data_change=False, info=info)
            try:
                self.commit(commit, "OPTIMIZE")
            except Overtaken:
                continue
            total += Compaction(1, len(small), len(after), sum(file.rows for file in after))
        return total

    def place(self) -> dict[str, Any]:
        """Where another process finds this version (see `open_place`): plain values, and no secrets."""
        return {"root": self.files.root, "version": self.snapshot.version}
