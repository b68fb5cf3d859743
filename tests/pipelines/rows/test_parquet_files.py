"""Rows to Parquet files: partitions, bounds on memory and open files, statistics."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipelines.tables import partition_of

from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.table_files import TableFiles, partition_folder
from roquette_spark.pipelines.rows import parquet_files
from roquette_spark.pipelines.rows.parquet_files import (
    ParquetFiles,
    add_counts,
    count_queues,
)

DAYS = [date(2023, 11, day) for day in range(1, 6)]


def table(numbers: range, days: list[date | None] | None = None) -> pa.Table:
    found = days or [DAYS[n % 2] for n in numbers]
    return pa.table({"n": list(numbers), "dt": pa.array(found, type=pa.date32())})


def write(
    root: Path, *tables: pa.Table, partitioned_by: tuple[str, ...] = ("dt",), **rule: Any
) -> list[Any]:
    files = ParquetFiles(
        TableFiles(str(root)),
        "batch-1-a",
        tables[0].schema,
        partitioned_by,
        **rule,
    )
    for each in tables:
        files.write(each)
    return files.close()


def test_each_partition_is_a_file_in_its_folder_and_keeps_the_order(tmp_path: Path) -> None:
    found = write(tmp_path, table(range(6)), table(range(6, 9)))

    assert [(file.path, file.rows, file.partition) for file in found] == [
        ("dt=2023-11-01/batch-1-a-00000.parquet", 5, (("dt", "2023-11-01"),)),
        ("dt=2023-11-02/batch-1-a-00001.parquet", 4, (("dt", "2023-11-02"),)),
    ]
    read = pq.ParquetFile(tmp_path / found[0].path).read()
    assert read.to_pydict() == {"n": [0, 2, 4, 6, 8]}
    assert found[0].size == (tmp_path / found[0].path).stat().st_size


def test_a_row_without_a_day_is_in_the_folder_that_readers_know_as_null(tmp_path: Path) -> None:
    found = write(tmp_path, table(range(3), [None, DAYS[0], None]))

    assert {file.path.split("/")[0]: (file.rows, dict(file.partition)["dt"]) for file in found} == {
        "dt=2023-11-01": (1, "2023-11-01"),
        "dt=__HIVE_DEFAULT_PARTITION__": (2, None),
    }


def test_a_table_without_partitions_has_one_file_at_its_root(tmp_path: Path) -> None:
    found = write(tmp_path, table(range(3)), partitioned_by=())

    assert [(file.path, file.rows) for file in found] == [("batch-1-a-00000.parquet", 3)]


def test_hours_are_folders_within_days_and_iceberg_has_their_columns_in_the_files(
    tmp_path: Path,
) -> None:
    rows = table(range(6)).append_column("hour", pa.array([5, 5, 5, 0, 5, None], pa.int32()))
    places = {
        ("2023-11-01", "5"): [0, 2, 4],
        ("2023-11-02", "0"): [3],
        ("2023-11-02", "5"): [1],
        ("2023-11-02", None): [5],
    }
    for whole in (False, True):
        found = write(tmp_path, rows, partitioned_by=("dt", "hour"), whole=whole)

        read = [pq.ParquetFile(tmp_path / file.path).read() for file in found]
        values = [(dict(file.partition)["dt"], dict(file.partition)["hour"]) for file in found]
        assert dict(zip(values, (each["n"].to_pylist() for each in read), strict=True)) == places
        assert {file.path.rpartition("/")[0] for file in found} == {
            f"dt={day}/hour={hour or '__HIVE_DEFAULT_PARTITION__'}" for day, hour in places
        }
        assert read[0].column_names == (["n", "dt", "hour"] if whole else ["n"])


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("plain-1.2_~", "plain-1.2_~"),
        ("a b/c=d%", "a%20b%2Fc%3Dd%25"),
        ("ümlaut", "ümlaut"),
        ("", "__HIVE_DEFAULT_PARTITION__"),
        ("__HIVE_DEFAULT_PARTITION__", "%5F_HIVE_DEFAULT_PARTITION__"),
        ("..", ".."),
        (True, "true"),
        (-7, "-7"),
    ],
)
def test_values_of_a_column_are_escaped_in_the_names_of_folders(
    tmp_path: Path, value: Any, folder: str
) -> None:
    [found] = write(tmp_path, pa.table({"n": [1], "c": [value]}), partitioned_by=("c",))

    assert found.path == f"c={folder}/batch-1-a-00000.parquet"
    assert found.partition == partition_of(found.path)


def test_a_task_opens_no_more_partitions_than_it_may(tmp_path: Path) -> None:
    rows = pa.table({"n": range(5), "c": list("abcde")})

    assert len(write(tmp_path, rows, partitioned_by=("c",), most=5)) == 5
    with pytest.raises(PipelineError, match=r"more than 4 values of c in .* smaller --batch"):
        write(tmp_path, rows, partitioned_by=("c",), most=4)
    long = pa.table({"n": [1], "c": ["x" * 300]})
    with pytest.raises(PipelineError, match=r"a value of c is too long for a folder's name \(xxx"):
        write(tmp_path, long, partitioned_by=("c",))


def test_what_is_held_is_bounded_and_becomes_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = table(range(1000), [DAYS[0]] * 1000)
    monkeypatch.setattr(parquet_files, "GROUP_BYTES", 3 * one.drop_columns(["dt"]).nbytes)

    [found] = write(tmp_path, *[one] * 7)

    metadata = pq.read_metadata(tmp_path / found.path)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [3000, 3000, 1000]  # fmt: skip


def test_many_days_are_flushed_when_they_hold_too_much_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "HELD_BYTES", 5_000)
    files = ParquetFiles(TableFiles(str(tmp_path)), "b", table(range(1)).schema, ("dt",))
    for start in range(0, 5000, 100):
        files.write(table(range(start, start + 100)))
        assert files._held_bytes <= 5_000
    assert sum(file.rows for file in files.close()) == 5000


def test_files_that_are_open_at_once_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "OPEN_FILES", 2)
    monkeypatch.setattr(parquet_files, "GROUP_BYTES", 1)

    found = write(tmp_path, *[table(range(5), list(DAYS))] * 2)

    assert len(found) > len(DAYS)  # a day that came again has a second file
    assert sum(file.rows for file in found) == 10
    assert len({file.path for file in found}) == len(found)


def test_nothing_is_left_of_a_task_that_fails(tmp_path: Path) -> None:
    files = ParquetFiles(TableFiles(str(tmp_path)), "b", table(range(1)).schema, ("dt",))
    files.write(table(range(10)))
    day = ("2023-11-01",)
    files._flush(day, files._parts[day])
    (tmp_path / "dt=2023-11-01/foreign.parquet").write_bytes(b"x")

    files.abort()

    assert [path.name for path in tmp_path.rglob("*.parquet")] == ["foreign.parquet"]


def test_statistics_bound_every_value(tmp_path: Path) -> None:
    at = datetime(2023, 1, 1, 12, 30, 1, 250_001, tzinfo=UTC)
    rows = pa.table(
        {
            "whole": [3, None, -1],
            "text": ["b" * 40, "a" * 40, None],
            "at": pa.array([at, at, None], type=pa.timestamp("us", "UTC")),
            "day": [date(2023, 1, 2), date(2023, 1, 1), None],
            "price": pa.array([Decimal("1.20"), Decimal("-3.05"), None]),
            "share": [0.5, float("nan"), 1.5],
            "ratio": [0.5, 0.25, None],
            "yes": [True, False, None],
            "bytes": [b"a", None, b"b"],
            "list": [["x"], None, []],
            "inner": [{"x": 1, "deep": {"y": "q"}}, None, {"x": None, "deep": None}],
            "nothing": pa.array([None] * 3, type=pa.int32()),
        }
    )

    [found] = write(tmp_path, rows, partitioned_by=())

    stats = json.loads(found.stats)
    assert stats["numRecords"] == 3
    assert stats["minValues"] == {
        "whole": -1,
        "text": "a" * 32,
        "at": "2023-01-01T12:30:01.250001Z",
        "day": "2023-01-01",
        "price": -3.05,
        "ratio": 0.25,
        "inner": {"x": 1, "deep": {"y": "q"}},
    }
    assert stats["maxValues"]["text"] == "b" * 32 + "\U0010ffff"
    assert stats["nullCount"]["inner"] == {"x": 2, "deep": {"y": 2}}
    assert (stats["nullCount"]["nothing"], stats["nullCount"]["yes"]) == (3, 1)
    assert "list" not in stats["nullCount"]


def test_only_the_first_columns_and_ours_have_statistics(tmp_path: Path) -> None:
    rows = pa.table({**{f"c{n}": [n] for n in range(40)}, "_queue_id": [1]})

    [found] = write(tmp_path, rows, partitioned_by=())

    assert list(json.loads(found.stats)["minValues"]) == [
        *(f"c{n}" for n in range(32)),
        "_queue_id",
    ]


def test_rows_are_counted_by_queue() -> None:
    rows = pa.table({"b": ["x", "x", "y", "x"], "q": [0, 1, 0, 0]})
    total = {("x", 0): 5}

    add_counts(total, count_queues(rows, "b", "q"))

    assert total == {("x", 0): 7, ("x", 1): 1, ("y", 0): 1}


@pytest.mark.parametrize(
    ("value", "local", "store"),
    [
        ("a/b", "k=a%2Fb/", "k=a%2Fb/"),
        ("ü/ö %C3", "k=ü%2Fö%20%25C3/", "k=%C3%BC%2F%C3%B6%20%25C3/"),
        ("~-._", "k=~-._/", "k=~-._/"),
        (None, "k=__HIVE_DEFAULT_PARTITION__/", "k=__HIVE_DEFAULT_PARTITION__/"),
    ],
)
def test_folders_of_partitions(value: str | None, local: str, store: str) -> None:
    assert partition_folder("k", value) == local
    assert partition_folder("k", value, local=False) == store
    assert partition_of(f"{store}x.parquet") == (("k", value),)
