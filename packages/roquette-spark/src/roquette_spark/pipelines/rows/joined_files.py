"""Small files of a table joined into large ones by pyarrow: no session, a row group of each at a time in memory."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.table_files import TableFiles
from roquette_spark.pipelines.kit.table_values import DataFile
from roquette_spark.pipelines.rows.parquet_files import ParquetFiles

BATCH_ROWS = 65_536  # read at a time


def join_files(
    files: TableFiles,
    small: Sequence[DataFile],
    name: str,
    schema: pa.Schema,
    *,
    target_bytes: int,
    sort: Sequence[str] = (),
    whole: bool = False,
) -> list[DataFile]:
    """Write the rows of some files of one partition, in their order, to few files beside them.

    Args:
        name: of the new files, which nobody else has.
        sort: as of ParquetFiles.
        whole: as of PartitionRule.
        schema: of the table; older files may have fewer columns and narrower types.

    Raises:
        PipelineError: not as many rows were read as the table knows; the new files are gone again.
    """
    partition = dict(small[0].partition)
    kept = pa.schema([field for field in schema if whole or field.name not in partition])
    same = {
        name: pa.scalar(value).cast(schema.field(name).type) for name, value in partition.items()
    }
    folder = small[0].path.rpartition("/")[0]
    place = f"{folder}/{name}" if folder else name
    made: list[DataFile] = []
    with contextlib.ExitStack() as undo:
        for number, some in enumerate(_shares(small, target_bytes)):
            target = ParquetFiles(files, f"{place}_{number}", kept, sort=sort)
            undo.callback(target.abort)
            for rows in _rows(files, some, kept, same):
                target.write(rows)
            made += target.close()
        before, now = sum(file.rows for file in small), sum(file.rows for file in made)
        if before != now:
            raise PipelineError(
                f"compaction of {files.address(folder)} read {now} rows where the table has {before}: nothing was "
                "changed"
            )
        undo.pop_all()
    return [replace(file, partition=small[0].partition) for file in made]


def _shares(small: Sequence[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    """Of about the same size, none much larger than the target."""
    total = sum(file.size for file in small)
    each = total / max(1, -(-total // target_bytes))
    share: list[DataFile] = []
    size = 0
    for file in small:
        share.append(file)
        size += file.size
        if size >= each:
            yield share
            share, size = [], 0
    if share:
        yield share


def _rows(
    files: TableFiles, some: Sequence[DataFile], schema: pa.Schema, same: Mapping[str, pa.Scalar]
) -> Iterator[pa.Table]:
    for file in some:
        with files.open_parquet(file.path) as found:
            for batch in found.iter_batches(batch_size=BATCH_ROWS):
                yield as_columns(pa.table(batch), schema, same)


def as_columns(
    rows: pa.Table, schema: pa.Schema, same: Mapping[str, pa.Scalar] | None = None
) -> pa.Table:
    """Rows with exactly these columns, cast where a file has narrower ones.

    Args:
        same: what all rows have in columns that the file does not have; null in the others.
    """
    return pa.table(
        [
            rows.column(field.name).cast(field.type)
            if field.name in rows.column_names
            else pa.repeat((same or {}).get(field.name, pa.scalar(None, field.type)), rows.num_rows)
            for field in schema
        ],
        schema=schema,
    )
