"""Other engines at our tables: rows that they have deleted stay deleted, what we cannot read right is refused in words."""

import json
import tarfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipelines.kit import test_iceberg_table as iceberg
from tests.pipelines.kit.other_engines import (
    actions,
    delete_by_file,
    delete_by_vector,
    give_features,
    write_entry,
)
from tests.pipelines.kit.test_table import STREAM, SetClock, add, new_table, numbers_in
from tests.pipelines.tables import publish

from roquette.base.clock import SystemClock
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.table_files import Commit, DataFile, Overtaken
from roquette_spark.pipelines.replay.source import ID, ReplayState, TableSource
from roquette_spark.pipelines.rows.parquet_files import file_statistics
from roquette_spark.pipelines.tables.delta_table import open_table
from roquette_spark.pipelines.tables.table import Table
from roquette_spark.pipelines.tables.table_formats import open_found
from roquette_spark.pipelines.tables.table_source import FILE, ROW, open_frame

FIXTURE = Path(__file__).parents[2] / "fixtures/spark-4.1-delta-4.4/deleted_by_vectors.tar.gz"
DAY = "2013-01-01"


@pytest.fixture
def clock() -> SetClock:
    found = SetClock()
    found.ms = SystemClock().now_ms()
    return found


def file_of(batch: int) -> str:
    return f"dt={DAY}/batch-{batch:010}-00000.parquet"


def four_batches(path: Path, clock: SetClock) -> Table:
    table = new_table(path, clock)
    for batch in range(4):
        add(table, range(batch * 10, batch * 10 + 10), batch)
    return table


def read(table: Table) -> list[int]:
    """By our own reading, which compaction, checks, audits and replays have."""
    parts = table.rows_of(table.snapshot.files.values(), ["n"]).values()
    return sorted(n for rows in parts for some in rows() for n in some["n"].to_pylist())


def append(table: Table, numbers: range, batch: int) -> int:
    """A batch of an archive."""
    from tests.pipelines.kit.test_table import stage

    adds = publish(table, stage(table, numbers), f"batch-{batch:010}")  # type: ignore[arg-type]
    return table.commit(Commit(adds=adds, batch=(STREAM, batch), blind=True), "STREAMING UPDATE")


def test_rows_deleted_by_a_vector_stay_deleted(tmp_path: Path, clock: SetClock) -> None:
    """Before, 39 rows became 49 by a compaction: the deleted one was back, nine were there twice."""
    four_batches(tmp_path, clock).close()
    delete_by_vector(tmp_path, file_of(0), [5])
    left = [n for n in range(40) if n != 5]

    table = new_table(tmp_path, clock)
    assert (table.snapshot.rows, read(table)) == (39, left)
    assert table.snapshot.files[file_of(0)].rows == 9

    done = table.compact(target_bytes=1 << 20, at_least=2)

    assert (done.files_before, done.rows) == (3, 30)
    assert numbers_in(tmp_path) == read(table) == left
    delete_by_vector(tmp_path, file_of(0), [0, 5, 9])
    table.reload()
    assert numbers_in(tmp_path) == read(table) == left[1:8] + left[9:]
    clock.ms += 3_600_000
    assert (
        table.vacuum(keep_ms=60_000) == 3
    )  # what was joined; a file with a vector is no replaced file
    table.reload()
    assert table.unknown() == []
    assert numbers_in(tmp_path) == read(table) == left[1:8] + left[9:]
    assert append(table, range(40, 50), 4) == table.snapshot.version
    assert numbers_in(tmp_path) == [*left[1:8], *left[9:], *range(40, 50)]


def test_a_table_that_spark_has_deleted_from_is_read_right(tmp_path: Path) -> None:
    """Spark 4.1 with Delta 4.4 wrote it: four files of ten rows, `DELETE ... WHERE n = 5` with deletion vectors."""
    with tarfile.open(FIXTURE) as packed:
        packed.extractall(tmp_path, filter="data")
    root = tmp_path / "t"
    table = open_table(str(root))

    assert read(table) == [n for n in range(40) if n != 5]
    assert table.compact(target_bytes=1 << 20, at_least=2).rows == 30
    assert numbers_in(root) == [n for n in range(40) if n != 5]


@pytest.mark.parametrize(
    ("feature", "told"), [("typeWidening", "typeWidening"), ("v2Checkpoint", "v2Checkpoint")]
)
def test_a_table_with_an_unknown_feature_is_refused(
    tmp_path: Path, clock: SetClock, feature: str, told: str
) -> None:
    four_batches(tmp_path, clock).close()
    give_features(tmp_path, feature)

    for use in (lambda: new_table(tmp_path, clock), lambda: open_found(str(tmp_path))):
        with pytest.raises(
            ConfigError, match=rf"{tmp_path}: another program .* {told}, .*DROP FEATURE"
        ):
            use()


def test_a_table_whose_columns_have_other_names_in_files_is_refused(
    tmp_path: Path, clock: SetClock
) -> None:
    four_batches(tmp_path, clock).close()
    meta = next(each["metaData"] for each in actions(tmp_path) if "metaData" in each)
    fields = json.loads(meta["schemaString"])["fields"]
    for number, field in enumerate(fields):
        ids = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
        field["metadata"] = ids
    fields[0]["name"] = "renamed"
    meta["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    meta["configuration"]["delta.columnMapping.mode"] = "name"
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    write_entry(tmp_path, {"protocol": protocol}, {"metaData": meta}, operation="RENAME COLUMN")

    with pytest.raises(ConfigError, match=r"columnMapping, .* its files cannot be read alone"):
        open_found(str(tmp_path))


def test_rules_of_another_engine_for_rows_are_not_broken(tmp_path: Path, clock: SetClock) -> None:
    table = four_batches(tmp_path, clock)
    deltalake.DeltaTable(tmp_path).alter.add_constraint({"small": "n < 100"})
    table.reload()

    with pytest.raises(ConfigError, match="has given the table rules for its rows"):
        append(table, range(200, 210), 4)
    assert numbers_in(tmp_path) == list(range(40))


OTHERS: dict[str, tuple[Callable[[Path], object], Callable[[int], bool]]] = {
    "append": (
        lambda root: deltalake.write_deltalake(
            root,
            pa.table({"n": pa.array([-1], pa.int64()), "dt": [date(2013, 1, 1)]}),
            mode="append",
        ),
        lambda n: True,
    ),
    "delete": (lambda root: deltalake.DeltaTable(root).delete("n = 5"), lambda n: n != 5),
    "vector": (lambda root: delete_by_vector(root, file_of(1), [5]), lambda n: n != 15),
    "optimize": (lambda root: deltalake.DeltaTable(root).optimize.compact(), lambda n: True),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_batch_goes_on_after_what_others_have_committed(
    tmp_path: Path, clock: SetClock, name: str
) -> None:
    """Before: "another process has written version N: stop it", and the archive ended."""
    table = four_batches(tmp_path, clock)
    act, kept = OTHERS[name]
    act(tmp_path)

    version = append(table, range(40, 50), 4)

    expected = [-1] * (name == "append") + [n for n in range(50) if kept(n)]
    assert numbers_in(tmp_path) == read(table) == expected
    assert table.snapshot.version == version == deltalake.DeltaTable(tmp_path).version()
    assert table.snapshot.rows == len(expected)
    assert table.done(STREAM) == 4
    again = open_table(str(tmp_path))
    assert again.snapshot.files.keys() == table.snapshot.files.keys()


@pytest.mark.parametrize("name", OTHERS)
def test_a_compaction_never_undoes_what_others_have_committed(
    tmp_path: Path, clock: SetClock, name: str
) -> None:
    table = four_batches(tmp_path, clock)
    act, kept = OTHERS[name]
    act(tmp_path)

    done = table.compact(target_bytes=1 << 20, at_least=2)

    assert done.partitions == (name == "append")  # files that are gone or changed: the next time
    expected = [-1] * (name == "append") + [n for n in range(40) if kept(n)]
    assert numbers_in(tmp_path) == read(table) == expected
    table.compact(target_bytes=1 << 20, at_least=2)
    assert numbers_in(tmp_path) == read(table) == expected
    assert table.unknown() == []


def test_what_is_no_append_is_refused_after_anothers_commit(
    tmp_path: Path, clock: SetClock
) -> None:
    """A batch of current-state: it is made of rows that may be others now."""
    table = four_batches(tmp_path, clock)
    replaced = [table.snapshot.files[file_of(0)]]
    deltalake.DeltaTable(tmp_path).delete("n = 25")

    with pytest.raises(Overtaken, match=r"another program has changed .* start again"):
        table.commit(Commit(removes=replaced, batch=(STREAM, 4)), "MERGE")
    assert numbers_in(tmp_path) == [n for n in range(40) if n != 25]


def test_columns_that_another_engine_has_changed_end_a_batch_in_words(
    tmp_path: Path, clock: SetClock
) -> None:
    table = four_batches(tmp_path, clock)
    more = deltalake.Field("more", deltalake.schema.PrimitiveType("string"))
    deltalake.DeltaTable(tmp_path).alter.add_columns(more)

    with pytest.raises(Overtaken, match="another program has changed"):
        append(table, range(40, 50), 4)
    table.reload()
    assert table.unknown() == []
    append(table, range(40, 50), 4)
    assert numbers_in(tmp_path) == list(range(50))


def test_statistics_of_a_column_with_a_dot_are_its_own(tmp_path: Path) -> None:
    """Before, bounds of `a.b` stood as those of field b of struct a: engines skipped rows that are there."""
    rows = pa.table(
        {
            "a": pa.array([{"b": 1, "c.d": 5}, {"b": 2, "c.d": 6}]),
            "a.b": [100, 200],
            "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
            "l": [[{"x": 1}], []],
            "z.": ["p", "q"],
        }
    )
    pq.write_table(rows, tmp_path / "x.parquet")

    found = json.loads(file_statistics(pq.read_metadata(tmp_path / "x.parquet")))

    assert found["minValues"] == {"a": {"b": 1, "c.d": 5}, "a.b": 100, "z.": "p"}
    assert found["maxValues"] == {"a": {"b": 2, "c.d": 6}, "a.b": 200, "z.": "q"}
    assert found["nullCount"] == {"a": {"b": 0, "c.d": 0}, "a.b": 0, "z.": 0}


def two_of_iceberg(path: Path) -> Any:
    table = iceberg.new_table(path, iceberg.SetClock())
    for batch in range(2):
        iceberg.add(table, range(batch * 10, batch * 10 + 10), batch)
    return table


def test_rows_deleted_by_files_of_positions_stay_deleted(tmp_path: Path) -> None:
    table = two_of_iceberg(tmp_path)
    address = f"file://{tmp_path}/{min(table.snapshot.files)}"
    delete_by_file(iceberg.peer(tmp_path), address, [5])
    left = [n for n in range(20) if n != 5]
    assert iceberg.numbers_in(tmp_path) == left

    table.reload()

    assert read(table) == left
    assert (
        table.compact(target_bytes=1 << 20, at_least=2).partitions == 0
    )  # left alone, and said so
    assert iceberg.numbers_in(tmp_path) == left
    iceberg.add(table, range(20, 30), 2)
    assert iceberg.numbers_in(tmp_path) == read(table) == [*left, *range(20, 30)]
    table.close()


def test_rows_deleted_by_values_are_refused(tmp_path: Path) -> None:
    table = two_of_iceberg(tmp_path)
    address = f"file://{tmp_path}/{min(table.snapshot.files)}"
    delete_by_file(iceberg.peer(tmp_path), address, [5], equal=True)

    table.reload()

    with pytest.raises(
        ConfigError, match=rf"{tmp_path}: another program has deleted rows .* rewrite_data_files"
    ):
        read(table)
    assert table.compact(target_bytes=1 << 20, at_least=2).partitions == 0
    table.close()


def test_a_column_that_another_engine_has_renamed_keeps_its_values(tmp_path: Path) -> None:
    """By its id: a compaction that went by names wrote nulls."""
    table = two_of_iceberg(tmp_path)
    with iceberg.peer(tmp_path).update_schema() as update:
        update.rename_column("word", "text")
    words = sorted(iceberg.rows(range(20))["word"].drop_null().to_pylist())

    table.reload()
    assert table.compact(target_bytes=1 << 20, at_least=2).rows == 20

    found = iceberg.peer(tmp_path).scan().to_arrow()
    assert sorted(found["text"].drop_null().to_pylist()) == words
    assert sorted(found["n"].to_pylist()) == list(range(20))
    table.close()


ICEBERG_OTHERS: dict[str, Callable[[Any], object]] = {
    "append": lambda peer: peer.append(iceberg.rows(range(-1, 0)).cast(peer.schema().as_arrow())),
    "delete": lambda peer: peer.delete("n = 5"),
    "optimize": lambda peer: peer.overwrite(peer.scan().to_arrow()),
}


@pytest.mark.parametrize("name", ICEBERG_OTHERS)
@pytest.mark.parametrize("act", ["append", "compact"])
def test_iceberg_goes_on_after_what_others_have_committed(
    tmp_path: Path, name: str, act: str
) -> None:
    table = two_of_iceberg(tmp_path)
    ICEBERG_OTHERS[name](iceberg.peer(tmp_path))
    expected = [-1] * (name == "append") + [n for n in range(20) if (name, n) != ("delete", 5)]

    if act == "append":
        adds = iceberg.write(table, "batch-0000000002-x", iceberg.rows(range(20, 30)))
        table.commit(Commit(adds=adds, batch=(iceberg.STREAM, 2), blind=True), "STREAMING UPDATE")
        expected += range(20, 30)
    else:
        done = table.compact(target_bytes=1 << 20, at_least=2)
        assert done.partitions == (name == "append")

    assert iceberg.numbers_in(tmp_path) == read(table) == expected
    assert table.unknown() == []
    table.close()


def test_iceberg_refuses_what_is_no_append(tmp_path: Path) -> None:
    table = two_of_iceberg(tmp_path)
    gone: list[DataFile] = [min(table.snapshot.files.values(), key=lambda file: file.path)]
    iceberg.peer(tmp_path).delete("n = 15")

    with pytest.raises(PipelineError, match="another process has changed"):
        table.commit(Commit(removes=gone, batch=(iceberg.STREAM, 2)), "MERGE")
    assert iceberg.numbers_in(tmp_path) == [n for n in range(20) if n != 15]
    table.close()


def test_a_version_that_is_gone_is_told(tmp_path: Path, clock: SetClock) -> None:
    four_batches(tmp_path, clock).close()

    assert open_found(str(tmp_path), 2).snapshot.rows == 20
    with pytest.raises(ConfigError, match=r"version 7 cannot be read any more"):
        open_found(str(tmp_path), 7)


@pytest.mark.spark
def test_spark_sees_what_others_have_left(spark: Any, tmp_path: Path, clock: SetClock) -> None:
    """What the check, `audit --table` and `replay --table` read."""
    four_batches(tmp_path / "d", clock).close()
    delete_by_vector(tmp_path / "d", file_of(0), [5])
    more = deltalake.Field("more", deltalake.schema.PrimitiveType("string"))
    deltalake.DeltaTable(tmp_path / "d").alter.add_columns(more)
    two_of_iceberg(tmp_path / "i").close()
    first = min(open_found(str(tmp_path / "i")).snapshot.files)
    delete_by_file(iceberg.peer(tmp_path / "i"), f"file://{tmp_path}/i/{first}", [5])

    for name, count in (("d", 40), ("i", 20)):
        root = tmp_path / name
        rows = open_frame(spark, open_found(str(root)), ["n", "dt"], places=True).collect()
        assert sorted(row["n"] for row in rows) == [n for n in range(count) if n != 5]
        assert {row["dt"] for row in rows} == {date(2013, 1, 1)}
        assert len({(row[FILE], row[ROW]) for row in rows}) == count - 1
        source = TableSource(str(root), (), ["body=cast(cast(n as string) as binary)"])
        state = ReplayState("", Any, {"bounds": source.bounds()})
        step = source.next_step(state, 1)
        assert step is not None
        ids = {(row["n"], row[ID]) for row in source.read(spark, step).collect()}
        assert ids == {(row["n"], row[ID]) for row in source.read_all(spark, state).collect()}
        assert sorted(n for n, _ in ids) == [n for n in range(count) if n != 5]
        assert len({each for _, each in ids}) == count - 1
        if name == "d":
            deltalake.DeltaTable(root).delete("n >= 10")
            assert source.read_all(spark, state).count() == 39  # as it was when the replay began
