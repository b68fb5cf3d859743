"""Tables of Iceberg whose columns grow, read by pyiceberg, DuckDB and Polars before and after compaction."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.table_files import Commit

pytest.importorskip("pyiceberg")

from datetime import date

from tests.pipelines.kit.test_iceberg_table import (
    ARROW,
    DAY,
    SETTINGS,
    STREAM,
    SetClock,
    add,
    column,
    new_table,
    open_table,
    peer,
    rows,
    wider,
    write,
)

from roquette_spark.pipelines.tables.iceberg_table import IcebergTable


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def evolved(path: Path, clock: SetClock) -> IcebergTable:
    """Four files of two days: three without the new columns, one with them and a wider number."""
    table = new_table(path, clock)
    add(table, range(10), 0)
    add(table, range(10, 20), 1)
    add(table, range(20, 30), 2, date(2013, 1, 2))
    inner = {"type": "struct", "fields": [column("a", "double"), column("b", "string")]}
    more = [column("n", "long"), column("more", "long"), column("inner", inner)]
    table.widen(wider(*more), {"a": "b"})
    wide = rows(range(30, 32), kind=pa.int64())
    wide = wide.set_column(0, "n", pa.array([2**40, 2**40 + 1]))
    wide = wide.append_column("more", pa.array([7, None], pa.int64()))
    values = [{"a": 0.5, "b": "x"}, None]
    kind = pa.struct([("a", pa.float64()), ("b", pa.string())])
    wide = wide.append_column("inner", pa.array(values, kind))
    adds = write(table, "batch-0000000003-x", wide)
    table.commit(Commit(adds=adds, batch=(STREAM, 3)), "STREAMING UPDATE")
    return table


EXPECTED_NUMBERS = [*range(30), 2**40, 2**40 + 1]


def test_tables_evolve_and_widen_and_are_compacted(tmp_path: Path, clock: SetClock) -> None:
    table = evolved(tmp_path, clock)
    before = peer(tmp_path).scan().to_arrow().sort_by("n").cast(peer_schema(tmp_path))

    done = table.compact(target_bytes=1 << 20, at_least=2)

    assert (done.partitions, done.files_before, done.files_after, done.rows) == (1, 3, 1, 22)
    assert table.done(STREAM) == 3
    assert len(table.snapshot.files) == 2
    after = peer(tmp_path).scan().to_arrow().sort_by("n").cast(peer_schema(tmp_path))
    assert after.equals(before)
    assert after["n"].to_pylist() == EXPECTED_NUMBERS
    assert [each for each in after["inner"].to_pylist() if each] == [{"a": 0.5, "b": "x"}]
    assert peer(tmp_path).scan("n > 1000000000000").to_arrow().num_rows == 2
    assert peer(tmp_path).scan("more = 7").to_arrow()["n"].to_pylist() == [2**40]
    snapshot = open_table(tmp_path, clock).snapshot
    assert snapshot.schema == table.snapshot.schema
    assert snapshot.settings == {**SETTINGS}
    assert peer(tmp_path).properties["a"] == "b"


def peer_schema(path: Path) -> pa.Schema:
    """Plain kinds: readers differ in "large" or not."""
    return peer(path).schema().as_arrow()


def test_other_readers_agree(
    tmp_path: Path, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    table, connection = evolved(tmp_path, clock), duckdb.connect()
    whole: set[str] = set()
    for state in ("as written", "compacted", "expired"):
        peer(tmp_path).scan().to_duckdb("seen", connection)
        by_duckdb = connection.sql("select n, word, more, dt from seen order by n").fetchall()
        by_polars = polars.scan_iceberg(peer(tmp_path)).collect().sort("n")
        assert [row[0] for row in by_duckdb] == by_polars["n"].to_list() == EXPECTED_NUMBERS
        assert (
            [row[2] for row in by_duckdb] == by_polars["more"].to_list() == [None] * 30 + [7, None]
        )
        assert [row[3] for row in by_duckdb] == by_polars["dt"].to_list()
        assert [row[1] for row in by_duckdb] == by_polars["word"].to_list()
        whole.add(repr(peer(tmp_path).scan().to_arrow().sort_by("n").to_pylist()))
        if state == "as written":
            assert table.compact(target_bytes=1 << 20, at_least=2).files_before == 3
        elif state == "compacted":
            clock.ahead_ms = 60_000
            assert table.vacuum(keep_ms=0) == 3
    assert len(whole) == 1  # every column of every row, by pyiceberg


def test_fields_come_within_columns(tmp_path: Path, clock: SetClock) -> None:
    def struct(*names: str) -> dict[str, Any]:
        return {"type": "struct", "fields": [column(name, "long") for name in names]}

    def array(kind: Any) -> dict[str, Any]:
        return {"type": "array", "elementType": kind, "containsNull": True}

    def some(names: str) -> pa.Table:
        value = dict.fromkeys(names, 5)
        columns = {"n": [len(names)], "inner": [value], "many": [[value]], "dt": [DAY]}
        kind = pa.struct([(name, pa.int64()) for name in names])
        fields = [
            ("n", pa.int16()),
            ("inner", kind),
            ("many", pa.list_(kind)),
            ("dt", ARROW.field("dt").type),
        ]
        return pa.table(columns, schema=pa.schema(fields))

    table = open_table(tmp_path, clock)
    for number, names in enumerate(("a", "ab")):
        kind = struct(*names)
        schema = json.dumps(
            {
                "type": "struct",
                "fields": [
                    column("n", "short"),
                    column("inner", kind),
                    column("many", array(kind)),
                    column("dt", "date"),
                ],
            }
        )
        if number == 0:
            table.create(schema, ("dt",), SETTINGS)
        else:
            table.widen(schema, {})
        adds = write(table, f"batch-{number:010}-x", some(names))
        table.commit(Commit(adds=adds, batch=(STREAM, number)), "STREAMING UPDATE")
    expected = [{"a": 5, "b": None}, {"a": 5, "b": 5}]
    for files in (2, 1):
        found = peer(tmp_path).scan().to_arrow().sort_by("n")
        assert found["inner"].to_pylist() == expected
        assert found["many"].to_pylist() == [[each] for each in expected]
        assert len(table.snapshot.files) == files
        table.compact(target_bytes=1 << 20, at_least=2)
    with pytest.raises(ConfigError, match="cannot have these columns"):
        table.widen(wider(column("n", "string")), {})
