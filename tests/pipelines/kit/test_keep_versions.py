"""Older versions of a table stay readable, so many as are asked for; files of older ones go."""

import json
import os
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from roquette_spark.pipelines.kit.table_files import Commit
from roquette_spark.pipelines.rows.parquet_files import ParquetFiles
from roquette_spark.pipelines.tables.delta_table import CHECKPOINT_INTERVAL, entry_name, open_table
from roquette_spark.pipelines.tables.table import Table, data_files
from roquette_spark.pipelines.tables.table_formats import open_place
from roquette_spark.pipelines.tables.table_place import Owner

pytest.importorskip("pyiceberg")

from pyiceberg.catalog import load_catalog
from tests.pipelines.kit.test_iceberg_table import OWNER, SCHEMA, SETTINGS, STREAM, rows

from roquette_spark.pipelines.tables.iceberg_table import open_iceberg_table

KEPT = 5


class SetClock:
    """Each reading is later than what was done before."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + 1000


def by_delta(path: Path) -> dict[int, list[int]]:
    """Numbers in each version whose files are there."""
    found = {}
    for version in range(DeltaTable(path.as_uri()).version() + 1):
        table = DeltaTable(path.as_uri(), version=version)
        if all(Path(each.removeprefix("file://")).exists() for each in table.file_uris()):
            found[version] = sorted(table.to_pyarrow_table()["n"].to_pylist())
    return found


def by_iceberg(path: Path) -> dict[int, list[int]]:
    uri = f"sqlite:///{path}/_roquette/catalog.db"
    table: Any = load_catalog("roquette", type="sql", uri=uri).load_table(("roquette", path.name))
    found = {}
    for each in table.snapshots():
        read: pa.Table = table.scan(snapshot_id=each.snapshot_id).to_arrow()
        found[each.sequence_number] = sorted(read["n"].to_pylist())
    return found


FORMATS: list[tuple[Callable[..., Table], Callable[[Path], dict[int, list[int]]]]] = [
    (open_table, by_delta),
    (open_iceberg_table, by_iceberg),
]


def opened(open_one: Callable[..., Table], path: Path, owner: Owner, keep: int) -> Table:
    table = open_one(str(path), clock=SetClock())
    table.keep_versions = keep
    table.claim(owner)
    table.clean()
    return table


@pytest.mark.parametrize(("open_one", "read"), FORMATS)
def test_the_newest_versions_are_read_right_after_compactions(
    tmp_path: Path,
    open_one: Callable[..., Table],
    read: Callable[[Path], dict[int, list[int]]],
) -> None:
    path = tmp_path / "flights"
    table = opened(open_one, path, OWNER, KEPT)
    table.create(SCHEMA, ("dt",), SETTINGS)
    known: dict[int, list[int]] = {}
    for batch in range(12):
        some = rows(range(batch * 3, batch * 3 + 3), date(2013, 1, 1))
        files = ParquetFiles(table.files, f"batch-{batch:010}-x", some.schema, ("dt",))
        files.write(some)
        commit = Commit(adds=files.close(), batch=(STREAM, batch))
        known[table.commit(commit, "STREAMING UPDATE")] = list(range(batch * 3 + 3))
        if table.compact(target_bytes=1 << 20, at_least=3).files_before:
            known[table.snapshot.version] = list(range(batch * 3 + 3))
        table.vacuum(keep_ms=0)
        if batch % 4 == 3:  # a start of the pipeline
            table.close()
            table = opened(open_one, path, OWNER, KEPT)
        newest = sorted(known)[-KEPT:]
        found = read(path)
        assert {version: found[version] for version in newest} == {v: known[v] for v in newest}
    assert len(known) > 3 * KEPT
    there = len(data_files(table.files))
    assert there < 12 + 5  # of older versions files are gone

    table.keep_versions = 1
    table.vacuum(keep_ms=0)
    assert len(data_files(table.files)) == len(table.snapshot.files) < there
    assert read(path)[table.snapshot.version] == list(range(36))


@pytest.mark.parametrize(("keep", "first"), [(1, CHECKPOINT_INTERVAL - 1), (110, 0)])
def test_entries_of_kept_versions_do_not_go_however_old_they_are(
    tmp_path: Path, keep: int, first: int
) -> None:
    table = opened(open_table, tmp_path, OWNER, keep)
    table.create(SCHEMA, ("dt",), SETTINGS)
    for batch in range(CHECKPOINT_INTERVAL):
        table.commit(Commit(batch=(STREAM, batch)), "X")
    old = time.time() - 40 * 24 * 3600
    for entry in (tmp_path / "_delta_log").iterdir():
        os.utime(entry, (old, old))
    for batch in range(CHECKPOINT_INTERVAL, 2 * CHECKPOINT_INTERVAL):
        table.commit(Commit(batch=(STREAM, batch)), "X")

    there = sorted(each.name for each in (tmp_path / "_delta_log").glob("*.json"))
    assert there[0] == entry_name(first)
    oldest = max(first, 2 * CHECKPOINT_INTERVAL - keep + 1)
    assert DeltaTable(tmp_path.as_uri(), version=oldest).version() == oldest


@pytest.mark.parametrize(("open_one", "read"), FORMATS)
def test_another_process_reads_the_version_that_a_place_names(
    tmp_path: Path, open_one: Callable[..., Table], read: Any
) -> None:
    """A place is plain JSON: what of a table Spark is told in the options of a read."""
    table = opened(open_one, tmp_path / "flights", OWNER, KEPT)
    table.create(SCHEMA, ("dt",), SETTINGS)
    found = []
    for batch in range(3):
        some = rows(range(batch * 3, batch * 3 + 3), date(2013, 1, 1))
        files = ParquetFiles(table.files, f"batch-{batch:010}-x", some.schema, ("dt",))
        files.write(some)
        table.commit(Commit(adds=files.close(), batch=(STREAM, batch)), "STREAMING UPDATE")
        found.append((json.loads(json.dumps(table.place())), set(table.snapshot.files)))

    for place, paths in found:
        there = open_place(place)
        parts = there.rows_of(there.snapshot.files.values(), ["n"])
        numbers = [n for part in parts.values() for some in part() for n in some["n"].to_pylist()]
        assert (there.place(), set(there.snapshot.files)) == (place, paths)
        assert sorted(numbers) == list(range(3 * len(paths)))
