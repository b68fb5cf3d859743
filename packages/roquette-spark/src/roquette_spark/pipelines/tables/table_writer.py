"""Base of tables, whatever their format: what pipelines ask of one. `table.py` is Delta Lake, `iceberg_table.py` Iceberg."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

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
    partition_of,
)
from roquette_spark.pipelines.tables.table_place import OWN_FOLDER, STAGING, Owner, numbered

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from roquette_spark.pipelines.rows.parquet_files import Rows


# The Parquet files of a table, whatever its log: which there are, publishing new ones.


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


class TableWriter(Protocol):
    """A table of Parquet files in one place, with one writer; `claim` it before any change, `close` it at the end.

    Attributes:
        files: the place.
        snapshot: the newest version that this writer has seen or made.
        keep_versions: so many of the newest versions stay readable, however long ago their files were replaced.
        name: of the format, for people.
        entropy: for names that nobody else has.
        whole_files: whether files have the partitions' columns, too.
    """

    name: str
    entropy: Entropy
    keep_versions: int
    whole_files: bool
    files: TableFiles
    snapshot: Snapshot
    _lock: FileLock | None = None
    _stopped: str = ""  # why it does not go on: there are two of us

    def claim(self, owner: Owner) -> None:
        """Keep other writers out; nothing is removed yet (see `clean`).

        Raises:
            ConfigError: the place is somebody else's.
            PipelineError: another process writes.
        """
        self.check_owner(owner)
        self._lock = self.files.lock(f"{OWN_FOLDER}/lock")
        self.reload()

    def reload(self, version: int | None = None) -> None:
        """See the newest version, or, to read, an older one.

        Raises:
            ConfigError: the version is gone, or the table has what we would read wrong rows by: a feature.
        """

    def clean(self) -> None:
        """Remove what a killed writer left half done."""

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

    def check_owner(self, owner: Owner) -> None:
        """Raises ConfigError as `claim` does."""

    def unknown(self) -> list[str]:
        """Data files of ours that no version knows."""
        ...

    def close(self) -> None:
        """Let others write."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def create(
        self, schema: str, partitioned_by: Sequence[str], settings: Mapping[str, str]
    ) -> None:
        """A table without rows. `schema` is Spark's JSON of all columns, those of the partitions included."""

    def widen(self, schema: str, settings: Mapping[str, str]) -> None:
        """Change the columns of rows that come to `schema` (Spark's JSON of all), and settings.

        All columns that there are stay, of the same type or a wider one; columns and nested fields may come.

        Raises:
            ConfigError: the rows there are would not fit.
        """

    def drop(self) -> None:
        """Forget a table without rows, so that it can be created again."""

    def done(self, stream: str) -> int:
        """The newest batch of a stream that is in the table; -1 when there is none."""
        ...

    def last_info(self, name: str) -> Any:
        """Return what the newest commit that has it gave as `Commit.info[name]`; None if there is none."""
        ...

    def new_staging(self) -> str:
        """A folder of its own for each attempt of a job: what a dead driver's tasks still write goes elsewhere."""
        return f"{STAGING}/{numbered(self.snapshot, self.entropy)}"

    def publish(self, staging: str, prefix: str) -> list[DataFile]:
        """Move the Parquet files of a finished job into the table's folders. They count once committed.

        Args:
            staging: the folder that the job has written, with the partitions' folders below it.
            prefix: the new names begin with it.
        """
        found = []
        written = sorted(
            file.path
            for file in self.files.list_tree(staging)
            if file.path.endswith(".parquet")
            and not file.path.rpartition("/")[2].startswith((".", "_"))
        )
        for number, path in enumerate(written):
            footer = self.files.footers([path])[0]
            if footer.num_rows == 0:
                continue
            folder = path[len(staging) + 1 :].rpartition("/")[0]
            target = f"{folder}/{prefix}-{number:05}.parquet".lstrip("/")
            self.files.publish(path, target)
            there = self.files.stat(target)
            partition = partition_of(target)
            found.append(
                DataFile(
                    target, there.size, footer.num_rows, there.modified_ms, partition, footer=footer
                )
            )
        self.files.remove_tree(staging)
        return found

    def commit(self, commit: Commit, operation: str) -> int:
        """Make it count, all or nothing; returns the new version.

        Other programs may have committed since the version that was read last: what they did stays, if the commit is
        blind or arranges files that they have left alone.

        Raises:
            Overtaken: it is not, or does not: nothing of this commit counts.
            PipelineError: another process of ours was faster: the same.
        """
        if self._stopped:
            discard(self.files, commit.adds)
            raise PipelineError(self._stopped)
        before = self.snapshot
        while True:
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

    def write(self, commit: Commit, operation: str) -> None:
        """Commit right after the version that was read last. Raises Overtaken where there is a later one."""

    def ours_since(self, version: int) -> bool:
        """Whether a process of ours has changed the table after a version."""
        ...

    def keeps_rows_since(self, version: int) -> bool:
        """Whether later versions have all rows of that one: others have added some, or arranged files."""
        return False

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
        from roquette_spark.pipelines.rows.parquet_files import join_files

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

    def joinable(self) -> list[DataFile]:
        """Files that `compact` may rewrite."""
        ...

    def rows_of(
        self, files: Iterable[DataFile], columns: Sequence[str] = ()
    ) -> "dict[DataFile, Rows]":
        """How the rows of some files are read, here or in a task; deleted ones are left out.

        Args:
            columns: none: all.

        Raises:
            ConfigError: rows were deleted in a way that the table's library does not read.
        """
        ...

    def arrow_schema(self) -> "pa.Schema":
        """The columns, those of the partitions among them."""
        ...

    def expired(self, *, keep_ms: int) -> list[str]:
        """Files that are still there, were replaced longer ago than `keep_ms`, and are of no version that is kept."""
        ...

    def vacuum(self, *, keep_ms: int) -> int:
        """Delete those files, and what the log keeps of versions as old; returns how many files."""
        ...

    def frame(
        self,
        spark: "SparkSession",
        columns: Sequence[str] = (),
        files: Iterable[DataFile] | None = None,
        *,
        places: bool = False,
    ) -> "DataFrame":
        """The table at this version, or the rows of some of its files.

        Args:
            columns: none: all.
            places: with columns FILE and ROW: the file's path, and which of its rows that are there, from 0.

        Raises:
            ConfigError: as `rows_of`.
        """
        from pyspark.sql.types import StructType

        from roquette_spark.pipelines.tables.table_source import open_frame

        kinds = StructType.fromJson(json.loads(self.snapshot.schema))
        wanted = StructType([each for each in kinds if not columns or each.name in columns])
        some = self.snapshot.files.values() if files is None else files
        return open_frame(spark, wanted, self.rows_of(some, wanted.names), places=places)


# Who knows where tables of Iceberg are; known without pyiceberg.


CATALOG_FILE = "_roquette/catalog.db"  # in the folder of a table that has a catalog of its own


@dataclass(frozen=True, slots=True)
class CatalogAddress:
    """A server of Iceberg's REST catalog; without an address the table has a catalog in its own folder.

    Secrets are not part of it: pyiceberg reads them from variables PYICEBERG_CATALOG__ROQUETTE__...

    Attributes:
        uri: such as http://host:8181.
        warehouse: what the server calls the place of tables; may be empty.
        namespace: of the tables; parts with dots.
    """

    uri: str = ""
    warehouse: str = ""
    namespace: str = "roquette"
