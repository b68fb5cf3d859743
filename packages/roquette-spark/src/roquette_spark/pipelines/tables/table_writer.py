"""Base of tables, whatever their format: what pipelines ask of one. `table.py` is Delta Lake, `iceberg_table.py` Iceberg."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol

from roquette.base.entropy import Entropy
from roquette.base.files import FileLock
from roquette_spark.pipelines.kit.table_files import (
    Commit,
    Compaction,
    DataFile,
    Snapshot,
    TableFiles,
    partition_of,
)
from roquette_spark.pipelines.tables.table_place import OWN_FOLDER, STAGING, Owner, numbered

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


# The Parquet files of a table, whatever its log: which there are, publishing new ones, reading a version by Spark.


def publish_staged(files: TableFiles, staging: str, prefix: str) -> list[DataFile]:
    """Move the Parquet files of a finished job into the table's folders. They count once committed.

    Args:
        staging: the folder that the job has written, with the partitions' folders below it.
        prefix: the new names begin with it.
    """
    found = []
    written = sorted(
        file.path
        for file in files.list_tree(staging)
        if file.path.endswith(".parquet")
        and not file.path.rpartition("/")[2].startswith((".", "_"))
    )
    for number, path in enumerate(written):
        rows = files.rows(path)
        if rows == 0:
            continue
        folder = path[len(staging) + 1 :].rpartition("/")[0]
        target = f"{folder}/{prefix}-{number:05}.parquet".lstrip("/")
        files.publish(path, target)
        found.append(_describe(files, target, rows))
    files.remove_tree(staging)
    return found


def _describe(files: TableFiles, path: str, rows: int) -> DataFile:
    file = files.stat(path)
    return DataFile(path, file.size, rows, file.modified_ms, partition_of(path))


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


def read_table(spark: "SparkSession", files: TableFiles, snapshot: Snapshot) -> "DataFrame":
    """Exactly the files of a version, with the columns of the partitions."""
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(snapshot.schema))
    if not snapshot.files:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema)
    bases: dict[
        str, list[str]
    ] = {}  # Spark finds no partitions' values below several folders at once
    for path in sorted(snapshot.files):
        bases.setdefault(_base(path), []).append(files.address(path))
    parts = [
        reader.option("basePath", files.address(base)).parquet(*paths)
        for base, paths in bases.items()
    ]
    every = reduce(lambda some, more: some.unionAll(more), parts)
    return every.select([every[f"`{name}`"] for name in schema.fieldNames()])


def _base(path: str) -> str:
    """The folder that has a file's partitions' folders."""
    folders = path.split("/")[:-1]
    return "/".join(takewhile(lambda folder: "=" not in folder, folders))


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

    def claim(self, owner: Owner) -> None:
        """Keep other writers out; nothing is removed yet (see `clean`).

        Raises:
            ConfigError: the place is somebody else's.
            PipelineError: another process writes.
        """
        self.check_owner(owner)
        self._lock = self.files.lock(f"{OWN_FOLDER}/lock")
        self.reload()

    def reload(self) -> None:
        """See the newest version."""

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
            prefix: the new names begin with it.
        """
        return publish_staged(self.files, staging, prefix)

    def commit(self, commit: Commit, operation: str) -> int:
        """Make it count, all or nothing; returns the new version.

        Raises:
            PipelineError: another writer was faster: nothing of this commit counts.
        """
        ...

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

        Raises:
            PipelineError: rows would be lost or come twice: nothing was changed.
        """
        from roquette_spark.pipelines.rows.parquet_files import join_files

        total = Compaction()
        for _, small in small_files(self.joinable(), target_bytes=target_bytes, at_least=at_least):
            if stop():
                break
            name = f"compact-{numbered(self.snapshot, self.entropy)}"
            schema = self.arrow_schema()
            after = join_files(
                self.files,
                small,
                name,
                schema,
                target_bytes=target_bytes,
                sort=sort,
                whole=self.whole_files,
            )
            info = {"files_before": len(small), "files_after": len(after)}
            self.commit(Commit(adds=after, removes=small, data_change=False, info=info), "OPTIMIZE")
            total += Compaction(1, len(small), len(after), sum(file.rows for file in after))
        return total

    def joinable(self) -> list[DataFile]:
        """Files that `compact` may rewrite."""
        return list(self.snapshot.files.values())

    def arrow_schema(self) -> "pa.Schema":
        """The columns, those of the partitions among them."""
        ...

    def expired(self, *, keep_ms: int) -> list[str]:
        """Files that are still there, were replaced longer ago than `keep_ms`, and are of no version that is kept."""
        ...

    def vacuum(self, *, keep_ms: int) -> int:
        """Delete those files, and what the log keeps of versions as old; returns how many files."""
        ...

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """The table at this version."""
        return read_table(spark, self.files, self.snapshot)


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
