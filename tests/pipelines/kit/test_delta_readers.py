"""Readers that are not ours agree row by row on our Delta tables: delta-rs, Polars, DuckDB."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema
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
from tests.pipelines.old_places import unpack
from tests.pipelines.tables import publish

from roquette.base.clock import SystemClock
from roquette_spark.pipelines.kit.table_files import Commit
from roquette_spark.pipelines.rows.parquet_files import ParquetFiles
from roquette_spark.pipelines.tables.delta_table import open_table
from roquette_spark.pipelines.tables.table import data_files
from roquette_spark.pipelines.tables.table_place import STREAM_SETTING

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
    check_life(tmp_path, read)


def check_life(tmp_path: Path, read: Callable[[Path], Rows]) -> None:
    """A reader sees each row once after each thing that happens to a table."""
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
    table.commit(Commit(adds=publish(table, staging, "batch-0000000008"), batch=(STREAM, 8)), "X")
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


def plain(value: Any) -> Any:
    """A value as all readers have it: maps as sorted pairs, times in UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, dict):
        return {"of": sorted((key, plain(each)) for key, each in value.items())}
    if isinstance(value, list) and value and isinstance(value[0], tuple):  # Arrow's map
        return plain(dict(value))
    if isinstance(value, list) and value and isinstance(value[0], dict):  # Polars'
        return plain({each["key"]: each["value"] for each in value})
    return {"of": []} if value == [] else value  # an empty map may be an empty list


def plain_rows(rows: Rows) -> list[str]:
    return sorted(repr([plain(value) for value in row]) for row in rows)


RICH = pa.schema(
    [
        ("whole", pa.int64()),
        ("text", pa.string()),
        ("yes", pa.bool_()),
        ("part", pa.float64()),
        ("money", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("bytes", pa.binary()),
        ("words", pa.list_(pa.string())),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("inner", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("dt", pa.date32()),
    ]
)


def rich_rows(batch: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "whole": batch,
                "text": "ü" * 40 if i else None,
                "yes": bool(i % 2),
                "part": [1.5, float("inf"), None][i],
                "money": Decimal("12.30"),
                "day": date(1999, 12, 31),
                "at": datetime(2026, 11, 23, 23, 59, 59, 999_999, UTC),
                "bytes": b"\x00\xff",
                "words": [["a", None], [], None][i],
                "properties": [{"k": "v", "": "e"}, {}, None][i],
                "inner": [{"a": 1, "b": None}, {"a": None, "b": "x"}, None][i],
                "dt": date(2026, 11, 22 + i),
            }
            for i in range(3)
        ],
        schema=RICH,
    )


@pytest.mark.parametrize("read", [by_delta, by_polars, by_duckdb])
def test_all_kinds_of_columns_come_through_files_and_compaction(
    tmp_path: Path, read: Callable[[Path], Rows]
) -> None:
    check_kinds(tmp_path, read)


def check_kinds(tmp_path: Path, read: Callable[[Path], Rows]) -> None:
    """A reader has each value of each type as it was written."""
    clock = SetClock()
    clock.ms = SystemClock().now_ms()
    table = open_table(str(tmp_path), clock=clock)
    schema = Schema.from_arrow(RICH).to_json()
    table.create(schema, ("dt",), {STREAM_SETTING: STREAM})
    for batch in range(3):
        files = ParquetFiles(table.files, f"batch-{batch:010}-x", RICH, ("dt",))
        files.write(rich_rows(batch))
        table.commit(Commit(adds=files.close(), batch=(STREAM, batch)), "X")
    expected = plain_rows(
        [tuple(row.values()) for batch in range(3) for row in rich_rows(batch).to_pylist()]
    )

    assert plain_rows(read(tmp_path)) == expected
    assert table.compact(target_bytes=1 << 20, at_least=3).partitions == 3
    assert plain_rows(read(tmp_path)) == expected


@pytest.mark.parametrize("name", ["json/T", "json/T.quarantine", "raw/U", "avro/A"])
def test_tables_of_1b94d96_open_are_joined_and_read_alike(tmp_path: Path, name: str) -> None:
    root = unpack("tables", tmp_path) / name
    table = open_table(str(root))
    before = [plain_rows(read(root)) for read in (by_arrow, by_delta, by_polars, by_duckdb)]

    done = table.compact(target_bytes=1 << 20, at_least=3)

    assert (done.files_before, done.rows) == (3, table.snapshot.rows)
    after = [plain_rows(read(root)) for read in (by_arrow, by_delta, by_polars, by_duckdb)]
    assert [len(rows) for rows in before] == [table.snapshot.rows] * 4
    assert all(rows == before[0] for rows in (*before, *after))
    assert table.done(table.snapshot.settings[STREAM_SETTING]) == 2
