"""Tables of Iceberg: what counts, what fails, what goes; read by pyiceberg, DuckDB and Polars."""

import json
import os
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipelines.tables import publish

from roquette.base.entropy import Entropy
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.table_files import Commit, DataFile
from roquette_spark.pipelines.replay.source import TableSource
from roquette_spark.pipelines.rows.parquet_files import ParquetFiles
from roquette_spark.pipelines.tables.table import Table, data_files
from roquette_spark.pipelines.tables.table_formats import open_found
from roquette_spark.pipelines.tables.table_place import (
    ROWS_SETTING,
    STREAM_SETTING,
    TOPIC_SETTING,
    Owner,
)

pytest.importorskip("pyiceberg")

from pyiceberg.catalog import load_catalog

from roquette_spark.pipelines.tables.iceberg_table import (
    ORPHANS_KEPT_MS,
    IcebergTable,
    open_iceberg_table,
)
from roquette_spark.pipelines.tables.table_formats import open_place
from roquette_spark.pipelines.tables.table_place import ADDRESS_FILE, CATALOG_FILE, CatalogAddress

OWNER = Owner("archive", "T")
STREAM = "archive-1"
SETTINGS = {STREAM_SETTING: STREAM, TOPIC_SETTING: "T", ROWS_SETTING: "{}"}
DAY = date(2013, 1, 1)


def column(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


FIELDS = [
    column("n", "integer"),
    column("word", "string"),
    column("at", "timestamp"),
    column("tags", {"type": "array", "elementType": "string", "containsNull": True}),
    column("dt", "date"),
]
SCHEMA = json.dumps({"type": "struct", "fields": FIELDS})


def wider(*columns: dict[str, Any]) -> str:
    """The schema with some columns more, or of other types."""
    fields = {each["name"]: each for each in (*FIELDS, *columns)}
    return json.dumps({"type": "struct", "fields": list(fields.values())})


ARROW = pa.schema(
    [
        ("n", pa.int32()),
        ("word", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("dt", pa.date32()),
    ]
)


class SetClock:
    """The time of day, and what is added to it: snapshots are dated by pyiceberg."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def open_table(path: Path, clock: SetClock, seed: int = 1) -> IcebergTable:
    return open_iceberg_table(str(path), clock=clock, entropy=Entropy(seed))


def new_table(path: Path, clock: SetClock, seed: int = 1) -> IcebergTable:
    table = open_table(path, clock, seed)
    table.claim(OWNER)
    table.clean()
    if table.snapshot.version < 0:
        table.create(SCHEMA, ("dt",), SETTINGS)
    return table


def rows(numbers: range, day: date = DAY, kind: Any = None) -> pa.Table:
    columns = {
        "n": list(numbers),
        "word": [f"word {n}" if n % 3 else None for n in numbers],
        "at": [1_357_000_000_000_000 + n for n in numbers],
        "tags": [["a", str(n)] for n in numbers],
        "dt": [day] * len(numbers),
    }
    schema = ARROW if kind is None else ARROW.set(0, pa.field("n", kind))
    return pa.table(columns, schema=schema)


def write(table: Table, name: str, some: pa.Table) -> list[DataFile]:
    files = ParquetFiles(table.files, name, some.schema, ("dt",))
    files.write(some)
    return files.close()


def add(table: Table, numbers: range, batch: int, day: date = DAY) -> None:
    adds = write(table, f"batch-{batch:010}-x", rows(numbers, day))
    table.commit(Commit(adds=adds, batch=(STREAM, batch)), "STREAMING UPDATE")


def peer(path: Path) -> Any:
    """The table as somebody has it who knows only the catalog."""
    catalog = load_catalog("roquette", type="sql", uri=f"sqlite:///{path}/{CATALOG_FILE}")
    return catalog.load_table(("roquette", path.name))


def numbers_in(path: Path) -> list[int]:
    return sorted(peer(path).scan().to_arrow()["n"].to_pylist())


def test_batches_count_once_they_are_committed(tmp_path: Path, clock: SetClock) -> None:
    path = tmp_path / "flights"
    table = new_table(path, clock)
    add(table, range(5), 0)
    left = write(table, "batch-0000000001-x", rows(range(5, 9)))  # and killed here
    assert numbers_in(path) == list(range(5))
    with pytest.raises(PipelineError, match=r"batch 0 of .* is in .* already"):
        table.commit(Commit(adds=left, batch=(STREAM, 0)), "STREAMING UPDATE")
    table.close()

    again = new_table(path, clock)

    assert (again.done(STREAM), again.done("t"), again.snapshot.rows) == (0, -1, 5)
    assert data_files(again.files) == ["dt=2013-01-01/batch-0000000000-x-00000.parquet"]
    assert again.snapshot.settings == SETTINGS
    assert (again.snapshot.partitioned_by, again.snapshot.version) == (("dt",), 1)
    assert json.loads(again.snapshot.schema)["fields"] == FIELDS
    again.close()


def test_a_snapshot_is_the_same_when_it_is_read_again(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    add(table, range(5), 0)
    add(table, range(7), 1, date(1969, 12, 31))
    table.commit(Commit(info={"certificate": '{"a":1}'}), "X")
    removed = next(iter(table.snapshot.files.values()))
    table.commit(Commit(removes=[removed], info={"other": 2}), "DELETE")

    found = open_table(tmp_path, clock)

    def known(files: Any) -> set[Any]:
        return {(f.path, f.size, f.rows, f.partition, f.stats) for f in files.values()}

    assert known(found.snapshot.files) == known(table.snapshot.files)
    assert list(found.snapshot.removed) == list(table.snapshot.removed) == [removed.path]
    assert found.snapshot.version == table.snapshot.version == 4
    assert [found.last_info(name) for name in ("certificate", "other", "none")] == [
        '{"a":1}',
        2,
        None,
    ]
    (file,) = found.snapshot.files.values()
    assert json.loads(file.stats)["nullCount"]["word"] == 3


def test_a_second_writer_is_kept_out(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)

    with pytest.raises(PipelineError, match="another process is writing to"):
        open_table(tmp_path, clock).claim(OWNER)
    table.close()
    new_table(tmp_path, clock).close()


@pytest.mark.parametrize("act", ["append", "empty", "widen", "compact", "create"])
def test_of_two_writers_the_second_fails_and_has_changed_nothing(
    tmp_path: Path, clock: SetClock, act: str
) -> None:
    path = tmp_path / "t"
    if act == "create":
        table = open_table(path, clock)
    else:
        table = new_table(path, clock)
        add(table, range(3), 0)
        add(table, range(3, 6), 1)
    other = open_table(path, clock, 2)  # as where locks are not possible
    if act == "create":
        other.create(SCHEMA, ("dt",), SETTINGS)
    elif act == "widen":
        other.widen(wider(column("more", "string")), {})
    else:
        other.commit(Commit(batch=("other", 0)), "X")
    before = peer(path).metadata_location

    with pytest.raises(PipelineError, match="another process has changed"):
        if act == "append":
            add(table, range(9), 2)
        elif act == "empty":
            table.commit(Commit(batch=(STREAM, 2)), "X")
        elif act == "widen":
            table.widen(wider(column("word2", "string")), {})
        elif act == "compact":
            table.compact(target_bytes=1 << 20, at_least=2)
        else:
            table.create(SCHEMA, ("dt",), SETTINGS)

    assert peer(path).metadata_location == before
    assert not numbers_in(path) or numbers_in(path) == list(range(6))
    table.close()
    mended = new_table(path, clock)
    assert len(data_files(mended.files)) == len(mended.snapshot.files)
    mended.close()


def test_files_without_statistics_are_asked_themselves(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    staging = table.new_staging()
    folder = Path(table.files.root) / staging / "dt=2013-01-01"
    folder.mkdir(parents=True)
    pq.write_table(rows(range(4)).drop_columns(["dt"]), folder / "part-00000-x.snappy.parquet")

    adds = publish(table, staging, "batch-0000000000")
    table.commit(Commit(adds=adds, batch=(STREAM, 0)), "STREAMING UPDATE")

    assert adds[0].stats == ""
    (file,) = table.snapshot.files.values()
    assert json.loads(file.stats)["nullCount"]["word"] == 2
    assert peer(tmp_path).scan("n >= 2 and dt = '2013-01-01'").to_arrow().num_rows == 2


@pytest.mark.parametrize(
    "wrong",
    [rows(range(3), kind=pa.float64()), rows(range(3)).append_column("more", pa.array([1, 2, 3]))],
    ids=["kind", "column"],
)
def test_files_with_other_columns_are_refused(
    tmp_path: Path, clock: SetClock, wrong: pa.Table
) -> None:
    table = new_table(tmp_path, clock)
    path = "dt=2013-01-01/batch-0000000000-00000.parquet"
    with table.files.open_new(path) as stream:
        pq.write_table(wrong.drop_columns(["dt"]), stream)
    file = DataFile(path, table.files.stat(path).size, 3, 0, (("dt", "2013-01-01"),))

    with pytest.raises(PipelineError, match="has other columns than its table"):
        table.commit(Commit(adds=[file], batch=(STREAM, 0)), "STREAMING UPDATE")

    assert table.snapshot.version == 0


def test_large_files_are_made_and_left_alone(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    for batch in range(6):
        add(table, range(batch * 100, batch * 100 + 100), batch)
    size = max(file.size for file in table.snapshot.files.values())

    done = table.compact(target_bytes=3 * size + 1, at_least=2)

    assert (done.files_before, done.files_after, done.rows) == (6, 2, 600)
    assert numbers_in(tmp_path) == list(range(600))
    assert table.compact(target_bytes=size, at_least=2).partitions == 0
    stopped = table.compact(target_bytes=1 << 30, at_least=2, stop=lambda: True)
    assert stopped.partitions == 0


def test_compaction_that_loses_rows_changes_nothing(
    tmp_path: Path, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from roquette_spark.pipelines.tables import iceberg_table

    table = new_table(tmp_path, clock)
    add(table, range(5), 0)
    add(table, range(5, 9), 1)
    whole = iceberg_table._scan

    def some(*given: Any) -> Iterator[pa.Table]:
        for batch in whole(*given):
            yield batch.slice(1)

    monkeypatch.setattr(iceberg_table, "_scan", some)
    with pytest.raises(PipelineError, match="read 7 rows where the table has 9: nothing was"):
        table.compact(target_bytes=1 << 20, at_least=2)
    assert numbers_in(tmp_path) == list(range(9))


def test_replaced_files_stay_for_readers_and_then_go(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    for batch in range(3):
        add(table, range(batch * 3, batch * 3 + 3), batch)
    reader = peer(tmp_path)
    old = data_files(table.files)
    table.compact(target_bytes=1 << 20, at_least=2)
    lists = len(list((tmp_path / "metadata").glob("*.avro")))

    assert table.expired(keep_ms=60_000) == [] == table.expired(keep_ms=60_000)
    assert table.vacuum(keep_ms=60_000) == 0
    assert sorted(reader.scan().to_arrow()["n"].to_pylist()) == list(range(9))
    clock.ahead_ms = 61_000
    assert table.expired(keep_ms=60_000) == sorted(old)
    assert table.vacuum(keep_ms=60_000) == 3

    assert len(data_files(table.files)) == 1
    assert len(list((tmp_path / "metadata").glob("*.avro"))) < lists
    assert numbers_in(tmp_path) == list(range(9))
    assert (table.vacuum(keep_ms=60_000), table.expired(keep_ms=0)) == (0, [])
    table.close()
    again = new_table(tmp_path, clock)
    assert (again.done(STREAM), again.snapshot.rows) == (2, 9)
    again.close()


def test_a_named_snapshot_keeps_its_files(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    add(table, range(3), 0)
    add(table, range(3, 6), 1)
    named = peer(tmp_path)
    named.manage_snapshots().create_tag(named.current_snapshot().snapshot_id, "kept").commit()
    table.close()
    table = new_table(tmp_path, clock)
    table.compact(target_bytes=1 << 20, at_least=2)
    clock.ahead_ms = 10 * ORPHANS_KEPT_MS

    assert table.vacuum(keep_ms=0) == 0
    table.close()
    new_table(tmp_path, clock).close()

    snapshot = peer(tmp_path).snapshot_by_name("kept").snapshot_id
    found = peer(tmp_path).scan(snapshot_id=snapshot).to_arrow()
    assert sorted(found["n"].to_pylist()) == list(range(6))


def test_foreign_files_are_left_alone(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    add(table, range(3), 0)
    foreign = [
        "foreign.parquet",
        "dt=2013-01-01/part-00000.parquet",
        "old/dt=2013-01-01/batch-0000000001-00000.parquet",
        "data/dt=2013-01-01/batch-0000000001-00000.parquet",
        "metadata/notes.txt",
        "metadata/foreign.avro",
        "metadata/v1.metadata.json",
    ]
    ours = [
        "dt=2013-01-01/batch-0000000009-x-00000.parquet",
        "dt=2013-01-01/compact-0a1b-00000.parquet",
    ]
    killed = "metadata/snap-1-0-0e5c6f3a-0000-4000-8000-000000000000.avro"
    for name in (*foreign, *ours, killed):
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"theirs")
        os.utime(place, (1, 1))
    table.close()

    table = new_table(tmp_path, clock)
    table.vacuum(keep_ms=0)

    assert [name for name in foreign if not (tmp_path / name).exists()] == []
    assert [name for name in (*ours, killed) if (tmp_path / name).exists()] == []
    assert numbers_in(tmp_path) == list(range(3))


def test_a_place_of_others_is_refused(tmp_path: Path, clock: SetClock) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata/v1.metadata.json").touch()
    with pytest.raises(ConfigError, match=r"is not empty \(there is v1.metadata.json\)"):
        open_table(tmp_path, clock).claim(OWNER)
    new_table(tmp_path / "ours", clock).close()
    with pytest.raises(ConfigError, match="is a table of topic T"):
        open_table(tmp_path / "ours", clock).claim(Owner("archive", "U"))
    with pytest.raises(ConfigError, match="a table of Iceberg in an object store needs a catalog"):
        open_iceberg_table("s3://bucket/table")
    with pytest.raises(ConfigError, match="cannot have"):
        open_iceberg_table(str(tmp_path / "a#b"))


def test_a_creation_that_was_killed_is_done_again(
    tmp_path: Path, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    class KilledError(Exception):
        pass

    write_metadata = SqlCatalog._write_metadata

    def killed(*given: Any) -> None:
        write_metadata(*given)
        raise KilledError

    with monkeypatch.context() as patch:
        table = open_table(tmp_path, clock)
        table.claim(OWNER)
        patch.setattr(SqlCatalog, "_write_metadata", staticmethod(killed))
        with pytest.raises(KilledError):
            table.create(SCHEMA, ("dt",), SETTINGS)
        table.close()
    assert len(list((tmp_path / "metadata").iterdir())) == 1

    table = new_table(tmp_path, clock)

    assert len(list((tmp_path / "metadata").iterdir())) == 1
    table.drop()
    assert table.snapshot.version == -1
    table.create(SCHEMA, ("dt",), SETTINGS)
    add(table, range(3), 0)
    assert numbers_in(tmp_path) == [0, 1, 2]
    table.close()


def test_a_long_history_stays_short(tmp_path: Path, clock: SetClock) -> None:
    table = open_table(tmp_path, clock)
    short = {"commit.manifest.min-count-to-merge": "9", "write.metadata.previous-versions-max": "9"}
    table.create(SCHEMA, ("dt",), {**SETTINGS, **short})
    for batch in range(25):
        add(table, range(batch, batch + 1), batch)

    lists = peer(tmp_path).current_snapshot().manifests(peer(tmp_path).io)

    assert len(lists) < 10
    assert len(list((tmp_path / "metadata").glob("*.metadata.json"))) <= 10
    assert numbers_in(tmp_path) == list(range(25))
    found = open_table(tmp_path, clock).snapshot
    assert (found.rows, len(found.files), found.batches) == (25, 25, {STREAM: 24})


def test_a_replay_takes_each_row_once(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    add(table, range(3), 0)
    add(table, range(3, 6), 1)
    table.compact(target_bytes=1 << 20, at_least=2)
    table.close()
    source = TableSource(str(tmp_path), [], [])

    files = [name for name, _ in source.bounds()["files"]]

    assert files == list(table.snapshot.files)
    assert len(data_files(table.files)) == 3
    found = open_found(str(tmp_path))
    assert (type(found), found.snapshot.rows) == (IcebergTable, 6)
    assert open_found(str(tmp_path / "none")).snapshot.version == -1


def test_a_catalog_of_any_kind_by_its_name_in_pyicebergs_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One SQL catalog with two tables, as its other users see them."""
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{tmp_path}/catalog.db")
    shop = CatalogAddress("shop", namespace="lake.raw")
    for number, name in enumerate(("orders", "payments")):
        table = open_iceberg_table(str(tmp_path / name), catalog=shop)
        table.claim(OWNER)
        table.create(SCHEMA, ("dt",), SETTINGS)
        add(table, range(number + 2), 0)
        place = table.place()
        table.close()
        assert open_place(place).snapshot.version == place["version"], (
            "by what other processes are told"
        )
        alone = open_found(str(tmp_path / name))
        assert alone.snapshot.rows == number + 2, "by the folder alone, as audit and replay find it"
        names = [each for each, _ in TableSource(str(tmp_path / name), [], []).bounds()["files"]]
        assert names == list(alone.snapshot.files)
        (tmp_path / name / ADDRESS_FILE).unlink()
        with pytest.raises(ConfigError, match="its folder does not say which catalog it is in"):
            open_found(str(tmp_path / name))
        assert not (tmp_path / name / CATALOG_FILE).exists()

    theirs = load_catalog("shop", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db")
    found = {
        name: theirs.load_table(f"lake.raw.{name}").scan().to_arrow()
        for name in ("orders", "payments")
    }
    assert {name: rows.num_rows for name, rows in found.items()} == {"orders": 2, "payments": 3}
    with pytest.raises(
        ConfigError, match=r"no catalog prod \(there: shop\): say what it is in .pyiceberg.yaml"
    ):
        open_iceberg_table(str(tmp_path / "x"), catalog=CatalogAddress("prod")).claim(OWNER)
