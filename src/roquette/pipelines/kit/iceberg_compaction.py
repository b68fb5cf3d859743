"""Small files of one partition into few large ones, with pyarrow: some rows at a time, in the files' order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from roquette.pipelines.kit.frame import PipelineError
from roquette.pipelines.kit.iceberg_files import partition_scalar
from roquette.pipelines.kit.table_files import TableFiles
from roquette.pipelines.kit.table_values import DataFile

_BATCH_BYTES = 16 << 20  # of rows, as they are in memory
_MOST_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Joined:
    """A new file and its footer."""

    file: DataFile
    footer: pq.FileMetaData


def join_files(
    files: TableFiles, schema: Schema, small: Sequence[DataFile], name: str, target_bytes: int
) -> list[Joined]:
    """Write files that have the rows of others of one partition.

    Args:
        schema: of the table now: older files may lack columns, or have narrower ones.
        name: the new names begin with it.
        target_bytes: a new file is made of as many old ones as have this size together.

    Raises:
        PipelineError: a file has columns that are not the table's.
    """
    folder = small[0].path.rpartition("/")[0]
    made = []
    for number, group in enumerate(_groups(small, target_bytes)):
        path = f"{folder}/{name}-{number:05}.parquet".lstrip("/")
        made.append(_join(files, schema, group, path))
    return made


def _groups(small: Sequence[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    group: list[DataFile] = []
    for file in small:
        if group and sum(each.size for each in group) + file.size > target_bytes:
            yield group
            group = []
        group.append(file)
    yield group


def _join(files: TableFiles, schema: Schema, group: Sequence[DataFile], path: str) -> Joined:
    footers: list[pq.FileMetaData] = []
    wanted = schema_to_pyarrow(schema, include_field_ids=True)
    with files.open_new(path) as stream:
        writer = pq.ParquetWriter(
            stream, wanted, store_schema=False, metadata_collector=footers, compression="zstd"
        )
        with writer:
            for file in group:
                for batch in _batches(files, file):
                    writer.write_batch(_fit(batch, wanted, schema, file), row_group_size=1 << 20)
    files.sync(path)
    there = files.stat(path)
    footer = footers[0]
    file = DataFile(path, there.size, footer.num_rows, there.modified_ms, group[0].partition)
    return Joined(file, footer)


def _batches(files: TableFiles, file: DataFile) -> Iterator[pa.RecordBatch]:
    with files.open_file(file.path) as source, pq.ParquetFile(source) as parquet:
        footer = parquet.metadata
        size = sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))
        rows = _BATCH_BYTES // max(1, size // max(1, footer.num_rows))
        yield from parquet.iter_batches(batch_size=max(1, min(_MOST_ROWS, rows)))


def _fit(
    batch: pa.RecordBatch, wanted: pa.Schema, schema: Schema, file: DataFile
) -> pa.RecordBatch:
    """The table's columns, by name; those that are not there are the partition's value, or null."""
    more = set(batch.schema.names) - set(wanted.names)
    if more:
        raise PipelineError(
            f"{file.path} has columns that its table has not ({', '.join(sorted(more))}): nothing was changed"
        )
    partition = dict(file.partition)
    columns: list[Any] = []
    for field in wanted:
        if field.name in batch.schema.names:
            columns.append(batch.column(field.name).cast(field.type))
        elif field.name in partition:
            value = partition_scalar(schema.find_type(field.name), partition[field.name])
            columns.append(pa.repeat(pa.scalar(value, field.type), batch.num_rows))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=wanted)
