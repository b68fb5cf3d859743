"""Tables and their logs without Spark: versions, batches, crashes, checkpoints."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roquette.base.entropy import Entropy
from roquette.pipelines.kit.frame import PipelineError
from roquette.pipelines.kit.table import (
    CHECKPOINT_EVERY,
    STAGING,
    Table,
    live_files,
    open_table,
    read_snapshot,
)
from roquette.pipelines.kit.table_data import data_files, small_files
from roquette.pipelines.kit.table_files import TableFiles
from roquette.pipelines.kit.table_log import encode_commit, replay
from roquette.pipelines.kit.table_place import (
    ROWS_SETTING,
    STREAM_SETTING,
    TOPIC_SETTING,
    Owner,
    own_names,
)
from roquette.pipelines.kit.table_values import (
    Commit,
    DataFile,
    Snapshot,
    TableCorrupt,
    partition_of,
)

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "n", "type": "long", "nullable": True, "metadata": {}},
            {"name": "dt", "type": "date", "nullable": True, "metadata": {}},
        ],
    }
)
OWNER = Owner("archive", "T")
SETTINGS = {STREAM_SETTING: "archive-1", TOPIC_SETTING: "T", ROWS_SETTING: "{}"}


class SetClock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def new_table(path: Path, clock: SetClock) -> Table:
    table = open_table(str(path), clock=clock, entropy=Entropy(1))
    table.claim(OWNER)
    table.clean()
    if table.snapshot.version < 0:
        table.create(SCHEMA, ("dt",), SETTINGS)
    return table


def stage(table: Table, numbers: range, day: str = "2013-01-01") -> str:
    """What a Spark job leaves: a file in its partition's folder."""
    staging = table.new_staging()
    folder = Path(table.files.root) / staging / f"dt={day}"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"n": list(numbers)}), folder / "part-00000-x.c000.snappy.parquet")
    (folder.parent / "_SUCCESS").touch()
    return staging


def add(table: Table, numbers: range, batch: int, day: str = "2013-01-01") -> None:
    adds = table.publish(stage(table, numbers, day), f"batch-{batch:010}")
    table.commit(Commit(adds=adds, batch=("s", batch)), "STREAMING UPDATE")


def numbers_in(path: Path) -> list[int]:
    return sorted(n for file in live_files(str(path)) for n in pq.read_table(file)["n"].to_pylist())


def test_batches_count_once_they_are_committed(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    add(table, range(5), 0)
    table.publish(stage(table, range(5, 9)), "batch-0000000001")  # and killed here

    assert numbers_in(tmp_path) == list(range(5))
    table.close()
    again = new_table(tmp_path, clock)

    assert (again.done("s"), again.done("t"), again.snapshot.rows) == (0, -1, 5)
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
    other.commit(Commit(batch=("other", 0)), "X")

    with pytest.raises(PipelineError, match="another process has written version 1"):
        add(table, range(3), 0)
    assert read_snapshot(table.files).batches == {"other": 0}


def test_checkpoints_sum_the_log_up(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    for batch in range(CHECKPOINT_EVERY + 5):
        add(table, range(batch, batch + 1), batch, f"2013-01-{batch % 3 + 1:02}")
    removed = next(iter(table.snapshot.files.values()))
    table.commit(Commit(removes=[removed]), "DELETE")
    expected = table.snapshot
    for version in range(CHECKPOINT_EVERY):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()

    found = read_snapshot(TableFiles(str(tmp_path)))

    assert found.files == expected.files
    assert (found.batches, found.version) == ({"s": CHECKPOINT_EVERY + 4}, expected.version)
    assert (found.schema, found.settings, found.table_id) == (SCHEMA, SETTINGS, expected.table_id)
    assert list(found.removed) == [removed.path]


def test_a_hole_in_the_log_is_told(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    for batch in range(3):
        add(table, range(1), batch)
    (tmp_path / "_delta_log" / f"{2:020}.json").unlink()

    with pytest.raises(TableCorrupt, match="version 2 is missing"):
        read_snapshot(table.files)


@pytest.mark.parametrize(
    "line", [b'{"add": {"pa', b'{"protocol":{"minReaderVersion":3,"minWriterVersion":7}}']
)
def test_an_entry_that_cannot_be_read_is_told(line: bytes) -> None:
    with pytest.raises(TableCorrupt):
        replay(Snapshot(), 0, line)


def test_replaced_files_stay_for_readers_and_then_go(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path, clock)
    add(table, range(3), 0)
    old = list(table.snapshot.files.values())
    adds = table.publish(stage(table, range(3)), "compact-x")
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


def test_paths_with_odd_values_survive_the_log() -> None:
    path = "key=a%20b ü%25/part.parquet"
    added = DataFile(path, 1, 2, 3, partition_of(path), '{"numRecords": 2}')

    data = encode_commit(Commit(adds=[added]), operation="WRITE", now_ms=1)

    assert replay(Snapshot(), 0, data).files == {path: added}
    assert added.partition == (("key", "a b ü%"),)
    assert partition_of("dt=__HIVE_DEFAULT_PARTITION__/x") == (("dt", None),)


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
        ("snapshot-0000000001/dt=x/part-00000.parquet", True),
        ("snapshot-0000000001/part-00000.parquet", False),
    ],
)
def test_names_are_ours_only_where_we_put_them(path: str, ours: bool) -> None:
    assert (own_names(("dt",)).fullmatch(path) is not None) == ours


def test_a_link_out_of_the_table_is_left_alone(tmp_path: Path, clock: SetClock) -> None:
    table = new_table(tmp_path / "table", clock)
    table.close()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "batch-0000000001-00000.parquet").write_bytes(b"theirs")
    (tmp_path / "table/dt=2013-01-02").symlink_to(elsewhere)

    new_table(tmp_path / "table", clock).close()

    assert (elsewhere / "batch-0000000001-00000.parquet").read_bytes() == b"theirs"
