"""What pipelines ask of a table, whatever its format: `table.py` is Delta Lake, `iceberg_table.py` Iceberg."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from roquette.pipelines.kit.table_files import TableFiles
from roquette.pipelines.kit.table_place import Owner
from roquette.pipelines.kit.table_values import Commit, Compaction, DataFile, Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TableWriter(Protocol):
    """A table of Parquet files in one place, with one writer; `claim` it before any change, `close` it at the end.

    Attributes:
        files: the place.
        snapshot: the newest version that this writer has seen or made.
        whole_files: whether files have the partitions' columns, too.
    """

    whole_files: bool
    files: TableFiles
    snapshot: Snapshot

    def claim(self, owner: Owner) -> None:
        """Keep other writers out; nothing is removed yet (see `clean`).

        Raises:
            ConfigError: the place is somebody else's.
            PipelineError: another process writes.
        """

    def clean(self) -> None:
        """Remove what a killed writer left half done."""

    def describe(self, owner: Owner, *, keep_ms: int) -> list[str]:
        """For plans: what is there, and what a run would remove. Raises ConfigError as `claim` does."""
        ...

    def close(self) -> None:
        """Let others write."""

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
        """What the newest commit that has it gave as `Commit.info[name]`; None if there is none."""
        ...

    def new_staging(self) -> str:
        """A folder of its own for each attempt of a job; `publish` empties it."""
        ...

    def publish(self, staging: str, prefix: str) -> list[DataFile]:
        """Move the Parquet files of a finished job into the table's folders. They count once committed."""
        ...

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
        ...

    def expired(self, *, keep_ms: int) -> list[str]:
        """Files that are still there and were replaced longer ago than `keep_ms`."""
        ...

    def vacuum(self, *, keep_ms: int) -> int:
        """Delete those files, and what the log keeps of versions as old; returns how many files."""
        ...

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """The table at this version."""
        ...
