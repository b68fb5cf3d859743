"""Every row of the limits runs in its smallest form; nothing is timed here."""

from pathlib import Path

import pytest
import uvloop
from benchmarks.limits import QUICK, ROWS, measure

# A figure of each row that cannot be 0 when it did its work.
WORKED = {
    "topics": "topics.json",
    "namesrv": "registration of a broker",
    "connections": "gRPC: sends beside them: p99",
    "groups": "consumerOffset.json",
    "rebalance": "notes of changes that this took",
    "store": "files of the log deleted",
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_does_its_work(row: str, tmp_path: Path) -> None:
    figures = uvloop.run(measure(row, QUICK, str(tmp_path)))
    found = {figure.what: figure.value for figure in figures}
    assert found[WORKED[row]] > 0
    assert [what for what in found if "loop" in what]
    assert not list(tmp_path.iterdir())
