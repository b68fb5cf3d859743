"""Readers that are not ours agree row by row on our Delta tables: delta-rs, Polars, DuckDB."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from tests.pipelines.kit.test_table import (
    INTEGERS,
    STREAM,
    SetClock,
    add,
    column,
    new_table,
    schema_of,
    write_rows,
)

from roquette.base.clock import SystemClock
from roquette.pipelines.kit.table_data import data_files
from roquette.pipelines.kit.table_values import Commit

Rows = list[tuple[Any, ...]]


def by_delta(root: Path) -> Rows:
    found = QueryBuilder().register("t", DeltaTable(root.as_uri())).execute("SELECT * FROM t")
    return [tuple(row.values()) for row in pa.table(found.read_all()).to_pylist()]


def by_arrow(root: Path) -> Rows:
    found = DeltaTable(root.as_uri()).to_pyarrow_table().to_pylist()
    return [tuple(row.values()) for row in found]


def by_polars(root: Path) -> Rows:
    return polars.scan_delta(root.as_uri()).collect().rows()


def by_duckdb(root: Path) -> Rows:
    found = DeltaTable(root.as_uri()).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("t", found)
        return connection.execute("SELECT * FROM t").fetchall()


@pytest.mark.parametrize("read", [by_delta, by_arrow, by_polars, by_duckdb])
def test_readers_agree_after_evolution_widening_compaction_and_expiry(
    tmp_path: Path, read: Callable[[Path], Rows]
) -> None:
    clock = SetClock()
    clock.ms = SystemClock().now_ms()
    table = new_table(tmp_path, clock, INTEGERS)
    for batch in range(8):
        add(table, range(batch * 3, batch * 3 + 3), batch, f"2013-01-0{batch % 2 + 1}", pa.int32())
    expected = {(n, n // 3 % 2 + 1, None) for n in range(24)}

    def seen() -> set[tuple[Any, ...]]:
        rows = [(*row, None)[:3] for row in read(tmp_path)]
        found = {(n, day.day, more) for n, day, more in rows}
        assert len(found) == len(rows)
        return found

    assert seen() == expected
    table.widen(schema_of("long", column("m", "timestamp")), {})
    assert seen() == expected
    staging = table.new_staging()
    more = pa.table({"n": [1 << 40], "m": pa.array([1], pa.timestamp("us", "UTC"))})
    write_rows(table, staging, more)
    table.commit(Commit(adds=table.publish(staging, "batch-0000000008"), batch=(STREAM, 8)), "X")
    moment = more["m"][0].as_py()
    expected.add((1 << 40, 1, moment))
    assert seen() == expected
    assert table.compact(target_bytes=1 << 20, at_least=4).files_before == 9
    assert seen() == expected
    clock.ms += 60_000
    assert table.vacuum(keep_ms=60_000) == 9
    assert len(data_files(table.files)) == 2
    assert seen() == expected
    for batch in range(9, 60):  # over a checkpoint
        table.commit(Commit(batch=(STREAM, batch)), "X")
    assert list((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    assert seen() == expected
