"""Where the position of a table's stream is, and whether a table is yet to be begun; without Spark."""

from pathlib import Path

from tests.pipelines.kit.test_table import STREAM, SetClock, new_table

from roquette_spark.pipelines.kit.table_files import Commit, TableFiles
from roquette_spark.pipelines.tables.delta_table import open_table
from roquette_spark.pipelines.tables.streamed_table import is_fresh, position_files
from roquette_spark.pipelines.tables.table_place import CHECKPOINT

OFFSETS = b'v1\n{}\n{"v": 1, "offsets": {"T": {"broker-a": {"0": 3}}}}'


def test_each_table_has_a_place_of_its_own_for_its_position(tmp_path: Path) -> None:
    roots = [tmp_path / "a/T", tmp_path / "b/T", tmp_path / "a/U"]
    tables = [TableFiles(str(root)) for root in roots]

    assert [position_files(table) for table in tables] == tables
    places = {position_files(table, str(tmp_path / "positions")).root for table in tables}
    assert len(places) == 3
    assert {Path(place).parent for place in places} == {tmp_path / "positions"}
    again = TableFiles(str(roots[0]))
    assert position_files(again, str(tmp_path / "positions")).root in places


def test_a_table_is_fresh_until_its_stream_has_planned_or_done_a_batch(tmp_path: Path) -> None:
    table = new_table(tmp_path / "T", SetClock())
    positions = position_files(table.files, str(tmp_path / "positions"))
    assert is_fresh(open_table(str(tmp_path / "absent")), positions, "T")
    assert is_fresh(table, positions, "T")

    positions.write(f"{CHECKPOINT}/offsets/0", OFFSETS)
    assert not is_fresh(table, positions, "T")
    assert is_fresh(table, positions, "U")
    assert is_fresh(table, table.files, "T")
    assert is_fresh(open_table(str(tmp_path / "absent")), positions, "T")  # of a table that is gone
    table.commit(Commit(batch=(STREAM, 0)), "X")
    assert not is_fresh(table, table.files, "T")
