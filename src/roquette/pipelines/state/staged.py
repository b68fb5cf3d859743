"""Changes of a batch as Spark has them, to files of the table's staging folder by its Python workers."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from roquette.base.entropy import Entropy
from roquette.pipelines.kit.table_files import TableFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stage(changes: "DataFrame", files: TableFiles, staging: str) -> list[tuple[str, int]]:
    """Run the job; returns the files, of which no failed attempt is one, and their rows."""
    tasks = changes.mapInArrow(partial(_write, files.root, staging), "path string, rows long")
    return [(row["path"], row["rows"]) for row in tasks.collect()]


def _write(root: str, staging: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task, in a worker; one row of what it wrote."""
    files, path = TableFiles(root), f"{staging}/{Entropy().token()}.parquet"
    count, writer = 0, None
    for batch in batches:
        if writer is None:
            opened = files.open_new(path)
            writer = pq.ParquetWriter(opened, batch.schema, store_schema=False)
        writer.write_batch(batch)
        count += batch.num_rows
    if writer is not None:
        writer.close()
        opened.close()
        yield pa.RecordBatch.from_pydict({"path": [path], "rows": [count]})
