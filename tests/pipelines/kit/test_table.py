"""Tables and their logs without Spark: versions, batches, crashes, checkpoints."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.pipelines.tables import publish

from roquette.base.clock import SystemClock
from roquette.base.entropy import Entropy
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.table_files import (
    Commit,
    DataFile,
    TableCorrupt,
    TableFiles,
    partition_folder,
)
from roquette_spark.pipelines.tables.delta_table import open_table
from roquette_spark.pipelines.tables.table import Table, data_files, small_files
from roquette_spark.pipelines.tables.table_place import (
    ROWS_SETTING,
    STAGING,
    STREAM_SETTING,
    TOPIC_SETTING,
    Owner,
    own_names,
)


def column(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def schema_of(kind: Any, *more: dict[str, Any]) -> str:
    fields = [column("n", kind), column("dt", "date"), *more]
    return json.dumps({"type": "struct", "fields": fields})


SCHEMA, INTEGERS = schema_of("long"), schema_of("integer")
OWNER = Owner("archive", "T")
STREAM = "archive-1"
CHECKPOINT_EVERY = 50
SETTINGS = {STREAM_SETTING: STREAM, TOPIC_SETTING: "T", ROWS_SETTING: "{}"}


class SetClock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def new_table(path: Path, clock: SetClock, schema: str = SCHEMA) -> Table:
    table = open_table(str(path), clock=clock, entropy=Entropy(1))
    table.claim(OWNER)
    table.clean()
    if table.snapshot.version < 0:
        table.create(schema, ("dt",), SETTINGS)
    return table


def write_rows(
    table: Table, staging: str, rows: pa.Table, partition: str = "dt=2013-01-01/"
) -> None:
    """What a Spark job leaves: a file in its partition's folder."""
    folder = Path(table.files.root) / staging / partition
    folder.mkdir(parents=True)
    pq.write_table(rows, folder / "part-00000-x.c000.snappy.parquet")
    (folder.parent / "_SUCCESS").touch()


def stage(
    table: Table, numbers: range, day: str = "2013-01-01", kind: pa.DataType | None = None
) -> str:
    staging = table.new_staging()
    rows = pa.table({"n": pa.array(numbers, kind or pa.int64())})
    write_rows(table, staging, rows, f"dt={day}/")
    return staging


def add(
    table: Table,
    numbers: range,
    batch: int,
    day: str = "2013-01-01",
    kind: pa.DataType | None = None,
) -> None:
    adds = publish(table, stage(table, numbers, day, kind), f"batch-{batch:010}")
    table.commit(Commit(adds=adds, batch=(STREAM, batch)), "STREAMING UPDATE")


def without_stats(files: Mapping[str, DataFile]) -> dict[str, DataFile]:
    return {path: replace(file, stats="") for path, file in files.items()}


def numbers_in(path: Path) -> list[int]:
    return sorted(pa.table(deltalake.DeltaTable(path).scan(columns=["n"]))["n"].to_pylist())


def test_batches_count_once_they_are_committed(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    add(table, range(5), 0)
    publish(table, stage(table, range(5, 9)), "batch-0000000001")  # and killed here

    assert numbers_in(tmp_path) == list(range(5))
    table.close()
    again = new_table(tmp_path, clock)

    assert (again.done(STREAM), again.done("t"), again.snapshot.rows) == (0, -1, 5)
    assert data_files(again.files) == ["dt=2013-01-01/batch-0000000000-00000.parquet"]
    assert not (tmp_path / STAGING).exists()
    assert again.snapshot.settings == SETTINGS
    assert again.snapshot.partitioned_by == ("dt",)


def test_a_second_writer_is_kept_out(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)

    with pytest.raises(PipelineError, match="another process is writing to"):
        new_table(tmp_path, clock)
    table.close()
    new_table(tmp_path, clock).close()


def test_a_version_can_be_taken_once(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    other = open_table(str(tmp_path), clock=clock)  # as where locks are not possible
    other.commit(Commit(batch=(STREAM, 0)), "X")

    for batch in range(2):  # the loser does not go on with the next one either
        with pytest.raises(PipelineError, match="another process has written version 1"):
            add(table, range(3), batch)
    found = open_table(str(tmp_path))
    assert (found.snapshot.version, found.done(STREAM), found.snapshot.rows) == (1, 0, 0)
    assert data_files(table.files) == []  # nor has it left anything


def test_checkpoints_sum_the_log_up(tmp_path: Path, clock: SetClock) -> None:
    clock.ms = SystemClock().now_ms()  # delta-rs forgets by the system's
    table = new_table(tmp_path, clock)
    for batch in range(CHECKPOINT_EVERY + 5):
        add(table, range(batch, batch + 1), batch, f"2013-01-{batch % 3 + 1:02}")
        if batch == 3:
            removed = next(iter(table.snapshot.files.values()))
            table.commit(Commit(removes=[removed], info={"why": "old"}), "DELETE")
    expected = table.snapshot
    for version in range(CHECKPOINT_EVERY):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()

    found = open_table(str(tmp_path))

    assert without_stats(found.snapshot.files) == without_stats(expected.files)
    assert found.done(STREAM) == CHECKPOINT_EVERY + 4
    assert (found.snapshot.batches, found.snapshot.version) == (expected.batches, expected.version)
    assert json.loads(found.snapshot.schema) == json.loads(SCHEMA)
    assert (found.snapshot.settings, found.snapshot.table_id) == (SETTINGS, expected.table_id)
    assert found.snapshot.removed == expected.removed == {removed.path: clock.ms}
    assert found.last_info("why") is None  # its entry is gone


def test_what_a_commit_says_is_found_again(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    table.commit(Commit(batch=(STREAM, 0), info={"certificate": '{"v":1}', "rows": 3}), "X")
    table.commit(Commit(info={"rows": 4}), "X")

    for each in (table, open_table(str(tmp_path))):
        assert each.last_info("certificate") == '{"v":1}'
        assert (each.last_info("rows"), each.last_info("other")) == (4, None)


def test_a_batch_comes_once(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    add(table, range(3), 1)

    for batch in (0, 1):  # delta-rs takes both
        with pytest.raises(PipelineError, match=f"batch {batch} of {STREAM} is in .* already"):
            add(table, range(3), batch)
    assert numbers_in(tmp_path) == [0, 1, 2]


def test_a_commit_whose_answer_is_lost_counts(
    tmp_path: Path, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path, clock)
    adds = publish(table, stage(table, range(3)), "batch-0000000000")
    write = deltalake.DeltaTable.create_write_transaction

    def twice(*args: Any, **words: Any) -> None:  # as a store's client that sends its put again
        write(*args, **words)
        write(*args, **words)

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", twice)
    table.commit(Commit(adds=adds, batch=(STREAM, 0)), "X")
    monkeypatch.undo()
    add(table, range(3, 5), 1)

    assert numbers_in(tmp_path) == list(range(5))
    assert open_table(str(tmp_path)).snapshot.version == 2


def test_columns_come_and_widen(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock, INTEGERS)
    add(table, range(3), 0, kind=pa.int32())
    schema = schema_of(
        "long", column("m", {"type": "array", "elementType": "string", "containsNull": True})
    )

    table.widen(schema, {ROWS_SETTING: "new"})
    staging = table.new_staging()
    write_rows(table, staging, pa.table({"n": [1 << 40], "m": [["a"]]}))
    table.commit(Commit(adds=publish(table, staging, "batch-0000000001"), batch=(STREAM, 1)), "X")

    again = open_table(str(tmp_path))
    names = [each["name"] for each in json.loads(again.snapshot.schema)["fields"]]
    assert names == ["n", "dt", "m"]
    assert again.snapshot.settings == {**SETTINGS, ROWS_SETTING: "new"}
    rows = pa.table(
        deltalake.DeltaTable(tmp_path).scan()
    ).to_pylist()  # as docs/pipelines.md has it
    assert sorted((row["n"], row["m"] or []) for row in rows) == [
        (0, []),
        (1, []),
        (2, []),
        (1 << 40, ["a"]),
    ]
    assert again.done(STREAM) == 1


@pytest.mark.parametrize("kind", ["integer", "string", {"type": "struct", "fields": []}])
def test_a_column_does_not_become_narrower(tmp_path: Path, clock: SetClock, kind: Any) -> None:
    table = new_table(tmp_path, clock)

    with pytest.raises(ConfigError, match="become wider: n is int64, the table has"):
        table.widen(schema_of(kind), {ROWS_SETTING: "new"})
    assert open_table(str(tmp_path)).snapshot == table.snapshot


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        (pa.table({"n": pa.array([1], pa.int64())}), "n is int64, the table has int32"),
        (pa.table({"n": ["1"]}), "n is string"),
        (pa.table({"other": [1]}), "the table has no column other"),
    ],
)
def test_a_file_that_does_not_fit_never_counts(
    tmp_path: Path, clock: SetClock, rows: pa.Table, what: str
) -> None:
    table = new_table(tmp_path, clock, INTEGERS)
    staging = table.new_staging()
    write_rows(table, staging, rows)
    adds = publish(table, staging, "batch-0000000000")

    with pytest.raises(PipelineError, match=what):
        table.commit(Commit(adds=adds, batch=(STREAM, 0)), "X")
    assert open_table(str(tmp_path)).snapshot.version == 0


def test_a_hole_in_the_log_is_told(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    for batch in range(3):
        add(table, range(1), batch)
    (tmp_path / "_delta_log" / f"{2:020}.json").unlink()

    with pytest.raises(TableCorrupt, match=r"_delta_log is damaged or not of ours: .* gap"):
        open_table(str(tmp_path))


@pytest.mark.parametrize("line", [b'{"add": {"pa', b"\0\0"])
def test_an_entry_that_a_power_cut_has_torn_is_told(
    tmp_path: Path, clock: SetClock, line: bytes
) -> None:
    table = new_table(tmp_path, clock)
    add(table, range(3), 0)
    table.close()
    torn = tmp_path / "_delta_log" / f"{2:020}.json"
    torn.write_bytes(line)

    with pytest.raises(TableCorrupt, match=f"lost power while {torn} was written, remove it"):
        open_table(str(tmp_path))
    torn.unlink()
    assert open_table(str(tmp_path)).done(STREAM) == 0


def test_a_log_for_newer_readers_is_told(tmp_path: Path, clock: SetClock) -> None:
    new_table(tmp_path, clock).close()
    line = '{"protocol":{"minReaderVersion":3,"minWriterVersion":7}}'
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text(line)

    with pytest.raises(TableCorrupt, match="_delta_log is damaged or not of ours") as told:
        open_table(str(tmp_path))
    assert "\n" not in str(told.value) and "lost power" not in str(told.value)


def test_replaced_files_stay_for_readers_and_then_go(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    add(table, range(3), 0)
    old = list(table.snapshot.files.values())
    adds = publish(table, stage(table, range(3)), "compact-x")
    table.commit(Commit(adds=adds, removes=old, data_change=False), "OPTIMIZE")

    assert numbers_in(tmp_path) == [0, 1, 2]
    assert len(data_files(table.files)) == 2
    clock.ms += 59_000
    assert table.vacuum(keep_ms=60_000) == 0
    clock.ms += 1_000
    assert table.vacuum(keep_ms=60_000) == 1
    assert data_files(table.files) == [adds[0].path]
    assert numbers_in(tmp_path) == [0, 1, 2]
    assert table.vacuum(keep_ms=60_000) == 0


def test_files_are_small_by_partition_and_only_many_are_worth_it() -> None:
    def file(name: str, size: int, day: str) -> DataFile:
        return DataFile(f"dt={day}/{name}", size, 1, 0, (("dt", day),))

    files = [file("a", 10, "1"), file("b", 10, "1"), file("c", 90, "1"), file("d", 10, "2")]

    (found,) = small_files(files, target_bytes=100, at_least=2)

    assert found[0] == (("dt", "1"),)
    assert [each.path for each in found[1]] == ["dt=1/a", "dt=1/b"]
    assert small_files(files, target_bytes=100, at_least=3) == []


@pytest.mark.parametrize("day", ["a b ü%", None, "x/y=z:,@+#?&"])
def test_odd_values_of_partitions_survive_the_log(
    tmp_path: Path, clock: SetClock, day: str | None
) -> None:
    schema = json.dumps({"type": "struct", "fields": [column("n", "long"), column("k", "string")]})
    table = open_table(str(tmp_path / "a b#ü?"), clock=clock)
    table.create(schema, ("k",), SETTINGS)
    staging = table.new_staging()
    write_rows(table, staging, pa.table({"n": [1]}), partition_folder("k", day))
    (added,) = publish(table, staging, "batch-0000000000")

    table.commit(Commit(adds=[added]), "X")
    again = open_table(table.files.root)

    assert added.partition == (("k", day),)
    assert without_stats(again.snapshot.files) == {added.path: added}
    rows = deltalake.DeltaTable(Path(table.files.root).as_uri()).to_pyarrow_table().to_pydict()
    assert rows == {"n": [1], "k": [day]}


def test_statistics_go_into_the_log_and_come_back(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    stats = '{"numRecords":3,"minValues":{"n":0},"maxValues":{"n":2},"nullCount":{"n":0}}'
    (plain,) = publish(table, stage(table, range(3)), "batch-0000000000")
    table.commit(Commit(adds=[replace(plain, stats=stats)], batch=(STREAM, 0)), "X")

    (found,) = open_table(str(tmp_path)).snapshot.files.values()

    assert json.loads(found.stats) == json.loads(stats)
    dataset = deltalake.DeltaTable(tmp_path.as_uri()).to_pyarrow_dataset()
    assert list(dataset.get_fragments(filter=pc.field("n") > 2)) == []


def test_small_files_are_joined_by_partition(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock, INTEGERS)
    for batch in range(6):
        add(
            table,
            range(batch * 10, batch * 10 + 10),
            batch,
            f"2013-01-0{batch % 2 + 1}",
            pa.int32(),
        )
    table.widen(schema_of("long", column("m", "string")), {})

    done = table.compact(target_bytes=1 << 20, at_least=3)

    assert (done.partitions, done.files_before, done.files_after, done.rows) == (2, 6, 2, 60)
    assert len(table.snapshot.files) == 2 and len(data_files(table.files)) == 8
    for file in table.snapshot.files.values():
        assert own_names(("dt",)).fullmatch(file.path)
        assert pq.read_schema(tmp_path / file.path).field("n").type == pa.int64()
        assert json.loads(file.stats)["nullCount"]["m"] == 30
    again = open_table(str(tmp_path), clock=clock)
    assert without_stats(again.snapshot.files) == without_stats(table.snapshot.files)
    assert again.snapshot.removed == table.snapshot.removed
    assert numbers_in(tmp_path) == list(range(60))
    assert again.compact(target_bytes=1 << 20, at_least=2).partitions == 0


def test_a_compaction_that_misses_rows_changes_nothing(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    for batch in range(2):
        (file,) = publish(table, stage(table, range(3)), f"batch-{batch:010}")
        table.commit(Commit(adds=[replace(file, rows=4)], batch=(STREAM, batch)), "X")

    with pytest.raises(
        PipelineError, match="read 6 rows where the table has 8: nothing was changed"
    ):
        table.compact(target_bytes=1 << 20, at_least=2)
    assert len(data_files(table.files)) == 2
    assert open_table(str(tmp_path)).snapshot.version == 2


@pytest.mark.parametrize(
    ("path", "ours"),
    [
        ("dt=2013-01-01/batch-0000000001-00000.parquet", True),
        ("dt=__HIVE_DEFAULT_PARTITION__/compact-0a1b-00012.parquet", True),
        ("dt=x/part-00000.parquet", False),
        ("dt=x/part-00000-3740010d.c000.snappy.parquet", False),
        ("batch-0000000001-00000.parquet", False),
        ("old/dt=x/batch-0000000001-00000.parquet", False),
        ("dt=x/hour=1/batch-0000000001-00000.parquet", False),
        ("dt=x/batch-1-0.parquet", False),
        ("dt=x/compact-0000000012-0a1b_0-00000.parquet", True),
        ("snapshot-0000000001/dt=x/part-00000.parquet", True),
        ("snapshot-0000000001/part-00000.parquet", False),
    ],
)
def test_names_are_ours_only_where_we_put_them(path: str, ours: bool) -> None:
    assert (own_names(("dt",)).fullmatch(path) is not None) == ours


@pytest.mark.parametrize("kill", range(4))
def test_a_table_that_is_forgotten_leaves_others_files_and_may_be_killed(
    tmp_path: Path, clock: SetClock, monkeypatch: pytest.MonkeyPatch, kill: int
) -> None:
    table = new_table(tmp_path, clock)
    for count in range(2):
        table.commit(Commit(info={"count": count}), "CHECK")
    foreign = tmp_path / "_delta_log" / "notes.txt", tmp_path / "_delta_log" / "1.json"
    for path in foreign:
        path.write_text("of somebody else")
    left, remove = iter(range(kill)), TableFiles.remove

    def dies(files: TableFiles, path: str) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        remove(files, path)

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(TableFiles, "remove", dies)
        table.drop()
    table.close()

    if kill < 3:
        again = new_table(tmp_path, clock)
        assert again.snapshot.version == 2 - kill
        add(again, range(4), 0)
        assert numbers_in(tmp_path) == [0, 1, 2, 3]
    else:  # nothing is left that says whose it is
        with pytest.raises(ConfigError, match=r"is not empty \(there is 1.json, notes.txt\)"):
            new_table(tmp_path, clock)
    assert [path.read_text() for path in foreign] == ["of somebody else"] * 2


def test_a_link_out_of_the_table_is_left_alone(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path / "table", clock)
    table.close()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "batch-0000000001-00000.parquet").write_bytes(b"theirs")
    (tmp_path / "table/dt=2013-01-02").symlink_to(elsewhere)

    new_table(tmp_path / "table", clock).close()

    assert (elsewhere / "batch-0000000001-00000.parquet").read_bytes() == b"theirs"
