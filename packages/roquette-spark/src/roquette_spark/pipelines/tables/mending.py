"""Messages of a quarantine that are read again: in portions, so that the places of one are held and not those of all."""

from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa

from roquette.base.entropy import Entropy
from roquette_spark.pipelines.kit.message_rows import DAY, ERROR, PLACE
from roquette_spark.pipelines.kit.table_files import DataFile, TableFiles
from roquette_spark.pipelines.rows.decoder import (
    arrow_of,
    messages_schema,
    quarantine_type,
    set_aside,
)
from roquette_spark.pipelines.rows.parquet_files import (
    BATCH_ROWS,
    ParquetFiles,
    as_columns,
)
from roquette_spark.pipelines.tables.table import Table
from roquette_spark.pipelines.tables.table_place import numbered

MENDED = "mended"  # in a commit: files with what came from the quarantine
MENDED_STREAM = "archive.mended"  # of commits that move messages from the quarantine
_PORTION = 500_000  # messages; a larger file is a portion by itself
Place = tuple[str, int, int]


def portions(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    """The files of a quarantine, some at a time."""
    some: list[DataFile] = []
    for file in files:
        if some and sum(each.rows for each in some) + file.rows > _PORTION:
            yield some
            some = []
        some.append(file)
    if some:
        yield some


def messages_of(
    files: TableFiles, some: Iterable[DataFile], *, errors: bool = False
) -> Iterator[pa.RecordBatch]:
    """The messages of a quarantine's files; with what is wrong with them if `errors`."""
    schema = messages_schema()
    if errors:
        schema = schema.insert(0, pa.field(ERROR, pa.string()))
    for each in some:
        with files.open_parquet(each.path) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=schema.names):
                yield from as_columns(pa.table(batch), schema).to_batches()


def places_in(files: TableFiles, paths: Iterable[str]) -> set[Place]:
    """Where the messages of some files of the table were in the topic."""
    names, found = [f"_{each}" for each in PLACE], set[Place]()
    for path in paths:
        with files.open_parquet(path) as file:
            columns = file.read(columns=names)
            found.update(zip(*(columns[name].to_pylist() for name in names), strict=True))
    return found


def without(apart: Table, some: Sequence[DataFile], there: Collection[Place]) -> list[DataFile]:
    """Files with the messages of some files of a quarantine, but for those at certain places; they count once committed."""
    kept = ParquetFiles(
        apart.files,
        f"compact-{numbered(apart.snapshot, Entropy())}",
        arrow_of(quarantine_type()),
        (DAY,),
        whole=apart.whole_files,
    )
    for batch in messages_of(apart.files, some, errors=True):
        places = zip(*(batch.column(each).to_pylist() for each in PLACE), strict=True)
        left = pa.array([each not in there for each in places], pa.bool_())
        kept.write(set_aside(batch.filter(left), batch.column(ERROR).filter(left)))
    return kept.close()
