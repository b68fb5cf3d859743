"""python -m tests.pipelines.ingest.query STEP PATH: the newest row of each key of a table, by DuckDB; pickled to standard output."""

import pickle
import sys
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

NEWEST = """SELECT unnest(after) FROM (SELECT *, row_number() OVER (PARTITION BY coalesce(after.id, before.id)
ORDER BY source.lsn DESC, _store_timestamp DESC, _queue_offset DESC) AS place FROM changes) WHERE place = 1 AND op <> 'd'"""


def rows(step: str, path: str) -> list[dict[str, Any]]:
    """By name."""
    text = NEWEST
    if step == "iceberg":
        newest = max(Path(path, "metadata").glob("*.metadata.json"))
        found = StaticTable.from_metadata(str(newest)).scan().to_arrow()
    else:
        found = DeltaTable(path).to_pyarrow_table()
    if step == "state":  # the view that users are given
        view = Path(path, "_view", "duckdb.sql").read_text()
        text = view[view.index("SELECT") :].replace(f"delta_scan('{path}')", "changes")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("changes", found)
        return connection.execute(text).to_arrow_table().to_pylist()


if __name__ == "__main__":
    sys.stdout.buffer.write(pickle.dumps(rows(*sys.argv[1:])))
