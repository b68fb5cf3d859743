"""The project of docs/howto/orchestration.md, run by dbt over a table that `archive` writes."""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_cluster import FakeCluster
from tests.interop.peers import ROOT, failure, made
from tests.spark.records import make_record

from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive.pipeline import PIPELINE, ArchiveOptions
from roquette_spark.pipelines.kit.running import run_pipeline

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

QUEUE = MessageQueue("orders", "broker-a", 0)
READ = """import sys, json, duckdb
with duckdb.connect(sys.argv[1], read_only=True) as found:
    rows = found.execute("SELECT shop, orders, turnover FROM by_shop").fetchall()
with open(sys.argv[2], "w") as file:
    json.dump(rows, file)
"""


def order(number: int) -> dict[str, Any]:
    return {"id": number, "shop": f"s{number % 7}", "price": number / 4}


def records(orders: list[dict[str, Any]], start: int = 0) -> list[bytes]:
    return [
        make_record(start + place, json.dumps(each).encode(), topic="orders", queue_id=0)
        for place, each in enumerate(orders)
    ]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster({QUEUE: records([order(n) for n in range(300)])}) as cluster:
        yield cluster


def project(folder: Path, lake: Path) -> None:
    """The documented files, where the documented table is `lake`'s."""
    text = (ROOT / "docs/howto/orchestration.md").read_text().partition("## dbt")[2]
    blocks = re.findall(r"^```\w+\n(?:#|--) (\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    for name, content in blocks:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content.replace("/lake/", f"{lake}/"))


class Dbt:
    """A project, and the environment that runs it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        make = (sys.executable, str(ROOT / "tools" / "environment.py"), "make", "dbt")
        where = made("dbt", [ROOT / "locks" / "dbt.txt"], (*make, "--venv", "env"))
        self._programs = where / "env" / "bin"

    def build(self) -> str:
        """What `dbt build` said if it failed, else "". It sends nobody anything."""
        words = [str(self._programs / "dbt"), "--no-version-check", "build"]
        return failure(*words, folder=self._folder, DBT_SEND_ANONYMOUS_USAGE_STATS="false")

    def rows(self) -> dict[str, tuple[int, float]]:
        """Orders and turnover by shop."""
        to = self._folder / "rows.json"
        python = str(self._programs / "python")
        assert not failure(python, "-c", READ, str(self._folder / "shop.duckdb"), str(to))
        return {shop: (orders, turnover) for shop, orders, turnover in json.loads(to.read_text())}


def expected(orders: list[dict[str, Any]]) -> dict[str, tuple[int, float]]:
    counts: Counter[str] = Counter(each["shop"] for each in orders)
    return {
        shop: (count, sum(each["price"] for each in orders if each["shop"] == shop))
        for shop, count in counts.items()
    }


def test_a_model_over_a_table_of_archive(spark: Any, cluster: FakeCluster, tmp_path: Path) -> None:
    lake, folder = tmp_path / "lake", tmp_path / "project"
    options = ArchiveOptions(
        namesrv=cluster.address, topics=("orders",), to=str(lake), report=str(tmp_path / "report")
    )
    project(folder, lake)
    dbt = Dbt(folder)
    orders = [order(n) for n in range(300)]

    assert "No such file" in dbt.build()  # there is no table yet
    assert run_pipeline(PIPELINE, options).ok
    assert not dbt.build()
    assert dbt.rows() == expected(orders)

    more = [order(n) for n in range(300, 450)]
    cluster.queues[QUEUE] += records(more, 300)
    assert run_pipeline(PIPELINE, options).ok
    assert not dbt.build()
    assert dbt.rows() == expected(orders + more)

    cluster.queues[QUEUE] += records([{"id": 450, "price": 1.0}], 450)  # of no shop
    assert run_pipeline(PIPELINE, options).ok
    assert "not_null_by_shop_shop" in dbt.build()
