"""Delta Lake's own reader (delta-rs) sees our tables: the real peer of the log we write."""

import os
from pathlib import Path

import pytest
from tests.pipelines.kit.test_table import SetClock, add, new_table, stage

from roquette.pipelines.kit.table import CHECKPOINT_EVERY
from roquette.pipelines.kit.table_values import Commit

deltalake = pytest.importorskip("deltalake")


@pytest.mark.parametrize("cut", [False, True], ids=["whole log", "log cut behind the checkpoint"])
def test_delta_reads_batches_compaction_and_checkpoints(tmp_path: Path, cut: bool) -> None:
    table = new_table(tmp_path, SetClock())
    for batch in range(CHECKPOINT_EVERY + 3):
        add(table, range(batch * 10, batch * 10 + 10), batch, f"2013-01-{batch % 3 + 1:02}")
    first = [
        file for file in table.snapshot.files.values() if ("dt", "2013-01-01") in file.partition
    ]
    numbers = [
        n for batch in range(0, CHECKPOINT_EVERY + 3, 3) for n in range(batch * 10, batch * 10 + 10)
    ]
    adds = table.publish(stage(table, range(len(numbers))), "compact-x")
    table.commit(Commit(adds=adds, removes=first, data_change=False), "OPTIMIZE")
    table.close()
    if cut:
        for version in range(CHECKPOINT_EVERY):
            os.remove(tmp_path / "_delta_log" / f"{version:020}.json")

    found = deltalake.DeltaTable(str(tmp_path))

    rows = found.to_pyarrow_table()
    assert (found.version(), rows.num_rows) == (CHECKPOINT_EVERY + 4, 10 * (CHECKPOINT_EVERY + 3))
    assert found.transaction_version("s") == CHECKPOINT_EVERY + 2
    assert found.metadata().partition_columns == ["dt"]
    others = [n for n in range(10 * (CHECKPOINT_EVERY + 3)) if n // 10 % 3]
    assert sorted(rows["n"].to_pylist()) == sorted([*others, *range(len(numbers))])
    assert {str(day) for day in rows["dt"].to_pylist()} == {
        "2013-01-01",
        "2013-01-02",
        "2013-01-03",
    }
