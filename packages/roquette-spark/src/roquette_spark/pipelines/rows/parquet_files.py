"""Rows to the Parquet files of a table: one file for each partition, memory bounded, statistics for the log."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.table_files import (
    DataFile,
    TableFiles,
    partition_folder,
    partition_text,
    too_long,
)

# Statistics of a Parquet file as a Delta log has them: readers skip files that cannot have what they ask for. Pure.


MOST_COLUMNS = 32  # Delta's default; columns of ours, which begin with "_", come on top
_TEXT = 32  # characters of a bound
_LAST = "\U0010ffff"  # no character is greater
_JSON = msgspec.json.Encoder(decimal_format="number")


def file_statistics(metadata: pq.FileMetaData, *, without: Collection[str] = ()) -> str:
    """JSON of numRecords, minValues, maxValues and nullCount.

    Args:
        without: columns that get no bounds: those with NaN, which Parquet's bounds leave out.

    A name may have dots: where a value is comes from the columns, not from Parquet's text of their path.
    """
    found: dict[str, Any] = {
        "numRecords": metadata.num_rows,
        "minValues": {},
        "maxValues": {},
        "nullCount": {},
    }
    shown = 0
    for index, path in enumerate(_leaves(metadata.schema.to_arrow_schema())):
        if not path[-1].startswith("_"):
            shown += 1
            if shown > MOST_COLUMNS:
                continue
        if metadata.schema.column(index).max_repetition_level:
            continue  # what is in lists has no bounds
        _add_column(found, metadata, index, path, bounds=path[0] not in without)
    return encode_statistics(found)


def _leaves(fields: Iterable[pa.Field], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The names on the way to each column of Parquet, in their order."""
    for field in fields:
        path, kind = (*above, field.name), field.type
        if pa.types.is_map(kind):
            yield from _leaves((kind.key_field, kind.item_field), path)
        elif pa.types.is_nested(kind):
            yield from _leaves((kind.field(at) for at in range(kind.num_fields)), path)
        else:
            yield path


def encode_statistics(found: Mapping[str, Any]) -> str:
    """As JSON in Delta's words, of times and decimals too."""
    return _JSON.encode(found).decode()


def _add_column(
    found: dict[str, Any],
    metadata: pq.FileMetaData,
    index: int,
    path: tuple[str, ...],
    *,
    bounds: bool,
) -> None:
    parts = [
        metadata.row_group(group).column(index).statistics
        for group in range(metadata.num_row_groups)
    ]
    if not parts or any(part is None for part in parts):
        return
    if all(part.has_null_count for part in parts):
        _put(found["nullCount"], path, sum(part.null_count for part in parts))
    some = [part for part in parts if part.num_values]
    if not bounds or not some or not all(part.has_min_max for part in some):
        return
    least = _lower(min(part.min for part in some))
    most = _upper(max(part.max for part in some))
    if least is not None and most is not None:
        _put(found["minValues"], path, least)
        _put(found["maxValues"], path, most)


def _put(target: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        target = target.setdefault(name, {})
    target[path[-1]] = value


def _lower(value: Any) -> Any:
    """A bound that no value is below; None where the log has none."""
    return value[:_TEXT] if isinstance(value, str) else _exact(value)


def _upper(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _TEXT else value[:_TEXT] + _LAST
    return _exact(value)


def _exact(value: Any) -> Any:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat(timespec="microseconds")
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return None
    return value


GROUP_BYTES = 64 << 20  # of rows held for a row group of one file
HELD_BYTES = 128 << 20  # of rows held for all files
OPEN_FILES = 64  # files that are open at the same time; a day that comes again gets one more file


Values = tuple[str | None, ...]  # of a partition's columns, as texts


@dataclass(slots=True)
class _Part:
    """Rows held and file open for one partition."""

    held: list[pa.Table]
    nbytes: int = 0
    file: "_OpenFile | None" = None


class ParquetFiles:
    """The files that one task writes for one table.

    They stand at their last names at once, and count when a commit names them.

    Args:
        name: the file names' begin; no other task may ever have it.
        schema: of the rows given to `write`, with the partitions' columns.
        partitioned_by: columns, in the order of folders.
        sort: columns by which the rows of each row group are put in order, nulls last; none: as they come.
        whole: the partitions' columns are in the files, too, as Iceberg has it; else in the folders' names only.
        most: different partitions that one task may write, at most; None: any number.
    """

    def __init__(
        self,
        files: TableFiles,
        name: str,
        schema: pa.Schema,
        partitioned_by: Sequence[str] = (),
        sort: Sequence[str] = (),
        *,
        whole: bool = False,
        most: int | None = None,
    ) -> None:
        self._sort = [(column, "ascending") for column in sort]
        self._files = files
        self._name = name
        self._columns = tuple(partitioned_by)
        left_out = () if whole else self._columns
        self._schema = pa.schema([each for each in schema if each.name not in left_out])
        self._most = most
        self._parts: dict[Values, _Part] = {}
        self._made: list[str] = []
        self._done: list[DataFile] = []
        self._held_bytes = 0

    def write(self, rows: pa.Table) -> None:
        """Take some rows; their order within a partition stays, unless they are sorted."""
        for values, some in _split(rows, self._columns):
            part = self._part(values)
            some = some.select(self._schema.names)
            part.held.append(some)
            part.nbytes += some.nbytes
            self._held_bytes += some.nbytes
            if part.nbytes >= GROUP_BYTES:
                self._flush(values, part)
        while self._held_bytes > HELD_BYTES:
            values, part = max(self._parts.items(), key=lambda item: item[1].nbytes)
            self._flush(values, part)

    def close(self) -> list[DataFile]:
        """Finish all files; on a local disk they are safe then."""
        for values, part in self._parts.items():
            if part.held:
                self._flush(values, part)
            self._finish(part)
        self._parts.clear()
        return self._done

    def abort(self) -> None:
        for part in self._parts.values():
            if part.file is not None:
                part.file.close()
        self._parts.clear()
        for path in self._made:
            if self._files.exists(path):
                self._files.remove(path)

    def _part(self, values: Values) -> _Part:
        found = self._parts.get(values)
        if found is None:
            wrong, advice = "", "give another --partition and another --to"
            if self._most is not None and len(self._parts) >= self._most:
                wrong = f"more than {self._most:,} values of {self._columns[0]} in one batch"
                advice = f"give a smaller --batch, or {advice.removeprefix('give ')}"
            for name, value in zip(self._columns, values, strict=True):
                if too_long(name, value):
                    wrong = (
                        f"a value of {name} is too long for a folder's name ({str(value)[:40]}...)"
                    )
            if wrong:
                root = self._files.root
                raise PipelineError(f"{root}: {wrong}: nothing of the batch counts; {advice}")
            found = self._parts[values] = _Part([])
        return found

    def _flush(self, values: Values, part: _Part) -> None:
        """Write what is held of a partition as a row group."""
        if part.file is None:
            self._close_one()
            partition = list(zip(self._columns, values, strict=True))
            local = self._files.local
            folder = "".join(partition_folder(*each, local=local) for each in partition)
            path = f"{folder}{self._name}-{len(self._made):05}.parquet"
            self._made.append(path)
            part.file = _OpenFile(self._files, path, self._schema, tuple(sorted(partition)))
        rows = pa.concat_tables(part.held)
        part.file.write(rows.sort_by(self._sort) if self._sort else rows)
        self._held_bytes -= part.nbytes
        part.held, part.nbytes = [], 0

    def _close_one(self) -> None:
        opened = [part for part in self._parts.values() if part.file is not None]
        if len(opened) >= OPEN_FILES:
            self._finish(opened[0])

    def _finish(self, part: _Part) -> None:
        if part.file is not None:
            self._done.append(part.file.finish())
            part.file = None


class _OpenFile:
    """One file that is being written."""

    def __init__(
        self,
        files: TableFiles,
        path: str,
        schema: pa.Schema,
        partition: tuple[tuple[str, str | None], ...],
    ) -> None:
        self._files = files
        self._path = path
        self._partition = partition
        self._schema = schema
        self._not_numbers: set[str] = set()
        self._stream = files.open_new(path)
        self._writer = pq.ParquetWriter(
            self._stream, schema, compression="snappy", store_schema=False
        )

    def write(self, rows: pa.Table) -> None:
        for field in self._schema:
            if not pa.types.is_floating(field.type) or field.name in self._not_numbers:
                continue
            if pc.any(pc.is_nan(rows.column(field.name))).as_py():
                self._not_numbers.add(field.name)
        self._writer.write_table(rows, row_group_size=rows.num_rows)

    def close(self) -> None:
        self._writer.close()
        self._stream.close()

    def finish(self) -> DataFile:
        """Write the footer, make it safe, and say what it is."""
        self.close()
        self._files.sync(self._path)
        metadata = self._writer.writer.metadata
        there = self._files.stat(self._path)
        return DataFile(
            self._path,
            there.size,
            metadata.num_rows,
            there.modified_ms,
            self._partition,
            file_statistics(metadata, without=self._not_numbers),
            footer=metadata,
        )


def count_queues(rows: pa.Table, broker_name: str, queue_id: str) -> dict[tuple[str, int], int]:
    """Rows of each queue. The arguments are the names of two columns."""
    counted = rows.select([broker_name, queue_id]).group_by([broker_name, queue_id])
    found = counted.aggregate([([], "count_all")])
    columns = (found.column(name).to_pylist() for name in (broker_name, queue_id, "count_all"))
    return {(broker, queue): count for broker, queue, count in zip(*columns, strict=True)}


def add_counts(total: dict[tuple[str, int], int], more: Mapping[tuple[str, int], int]) -> None:
    """Add the counts of some rows to those of others, in place."""
    for queue, count in more.items():
        total[queue] = total.get(queue, 0) + count


def _split(
    rows: pa.Table, columns: Sequence[str], before: Values = ()
) -> Iterator[tuple[Values, pa.Table]]:
    """By the values of columns; the order of rows within them stays."""
    if not rows.num_rows:
        return
    if not columns:
        yield before, rows
        return
    values, rest = rows.column(columns[0]), columns[1:]
    kinds = pc.unique(values)
    if len(kinds) == 1:
        yield from _split(rows, rest, (*before, partition_text(kinds[0].as_py())))
        return
    order = pc.sort_indices(values)
    ends = pc.run_end_encode(values.combine_chunks().take(order))
    ordered, start = rows.take(order), 0
    for value, end in zip(ends.values, ends.run_ends.to_pylist(), strict=True):
        some = ordered.slice(start, end - start)
        yield from _split(some, rest, (*before, partition_text(value.as_py())))
        start = end


# Small files of a table joined into large ones by pyarrow: no session, a row group of each at a time in memory.


BATCH_ROWS = 65_536  # read at a time
Rows = Callable[[], Iterator[pa.Table]]  # of one file of a table, as the table's library reads them


def join_files(
    files: TableFiles,
    small: Mapping[DataFile, Rows],
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
        whole: as of ParquetFiles.
        schema: of the table.

    Raises:
        PipelineError: not as many rows were read as the table knows; the new files are gone again.
    """
    first = next(iter(small))
    partition = dict(first.partition)
    kept = pa.schema([field for field in schema if whole or field.name not in partition])
    folder = first.path.rpartition("/")[0]
    place = f"{folder}/{name}" if folder else name
    made: list[DataFile] = []
    with contextlib.ExitStack() as undo:
        for number, some in enumerate(_shares(list(small), target_bytes)):
            target = ParquetFiles(files, f"{place}_{number}", kept, sort=sort)
            undo.callback(target.abort)
            for file in some:
                for rows in small[file]():
                    target.write(as_columns(rows, kept))
            made += target.close()
        before, now = sum(file.rows for file in small), sum(file.rows for file in made)
        if before != now:
            raise PipelineError(
                f"compaction of {files.address(folder)} read {now} rows where the table has {before}: nothing was "
                "changed"
            )
        undo.pop_all()
    return [replace(file, partition=first.partition) for file in made]


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


def read_rows(root: str, file: DataFile, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of a file that are there, with exactly these columns; those of its partition are not in it."""
    same = {
        name: pa.scalar(value).cast(schema.field(name).type)
        for name, value in file.partition
        if name in schema.names
    }
    start = 0
    with TableFiles(root).open_parquet(file.path) as found:
        there = found.schema_arrow.names
        wanted = [name for name in there if name in schema.names] or there[:1]
        for batch in found.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
            rows = as_columns(pa.table(batch), schema, same)
            if file.live is not None:
                rows = rows.filter(file.live.slice(start, batch.num_rows))
            start += batch.num_rows
            yield rows


def as_columns(
    rows: pa.Table, schema: pa.Schema, same: Mapping[str, pa.Scalar] | None = None
) -> pa.Table:
    """Rows with exactly these columns, cast where a file has narrower ones.

    Args:
        same: what all rows have in columns that the file does not have; null in the others.
    """
    return pa.table(
        [
            _plain(rows.column(field.name)).cast(field.type)
            if field.name in rows.column_names
            else pa.repeat((same or {}).get(field.name, pa.scalar(None, field.type)), rows.num_rows)
            for field in schema
        ],
        schema=schema,
    )


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Files of delta-rs give dictionaries of views, which Arrow can neither decode nor cast."""
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    if not pa.types.is_dictionary(column.type) or column.type.value_type not in views:
        return column
    kind = views[column.type.value_type]
    made = [
        pa.DictionaryArray.from_arrays(each.indices, each.dictionary.cast(kind))
        for each in column.chunks
    ]
    return pa.chunked_array(made, pa.dictionary(column.type.index_type, kind))
