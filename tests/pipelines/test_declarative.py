"""The project that `roquette pipeline init --declarative` writes, run by `spark-pipelines` against a broker of the test."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from examples.demo.flights import encode
from typer.testing import CliRunner, Result

from roquette.apps.main import app
from roquette.errors import ConfigError
from roquette_spark.local.jdk import spark_environment
from roquette_testing.embedded import EmbeddedBroker

RUN_TIMEOUT_S = 500


def flight(number: int) -> dict[str, Any]:
    """Every tenth is cancelled."""
    delay = None if number % 10 == 0 else number * 7 % 120
    return {
        "id": number,
        "carrier": ("UA", "AA", "B6")[number % 3],
        "tailnum": f"N{number % 5}",
        "distance": 100 + number,
        "dep_delay": delay,
    }


def init(*words: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", "init", *words])


def test_what_it_writes_and_refuses(tmp_path: Path) -> None:
    done = init("--declarative", str(tmp_path / "mine"))
    spec = (tmp_path / "mine" / "spark-pipeline.yml").read_text()

    assert "spark-pipelines --properties-file spark.conf run" in done.output
    assert f"storage: {tmp_path.as_uri()}/mine/storage\n" in spec
    assert sorted(path.name for path in (tmp_path / "mine" / "transformations").iterdir()) == [
        "bronze.py", "delayed.py", "gold.sql", "silver.sql",
    ]  # fmt: skip
    again, plain = init("--declarative", str(tmp_path / "mine")), init(str(tmp_path / "other"))
    assert isinstance(again.exception, ConfigError) and "is not empty" in str(again.exception)
    assert isinstance(plain.exception, ConfigError) and "--declarative" in str(plain.exception)
    assert not (tmp_path / "other").exists()


def run_project(folder: Path, namesrv: str) -> None:
    """`spark-pipelines run`, as init says it."""
    needed = spark_environment(os.environ)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # SPARK_TESTING: any free port instead of 15002, so that two of them can run at once.
    environ = {**os.environ, **needed, "PATH": path, "NAMESRV_ADDR": namesrv, "SPARK_TESTING": "1"}
    log = folder.with_name("told.log")
    with log.open("w") as file:
        process = subprocess.Popen(
            ["spark-pipelines", "--properties-file", "spark.conf", "run"],
            cwd=folder, env=environ, stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == 0, log.read_text()[-4000:]


def rows_of(folder: Path, table: str) -> list[dict[str, Any]]:
    """All rows of a table of the project's catalog."""
    files = sorted((folder / "spark-warehouse" / table).glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def check(folder: Path, flights: list[dict[str, Any]], broken: int) -> None:
    """Bronze has every message once, silver every flight once, gold the sums of all."""
    places = Counter((row["queue_id"], row["queue_offset"]) for row in rows_of(folder, "bronze"))
    assert (len(places), set(places.values())) == (len(flights) + broken, {1})
    assert sorted(row["id"] for row in rows_of(folder, "silver")) == [f["id"] for f in flights]
    gold = {row["carrier"]: row for row in rows_of(folder, "gold")}
    for carrier in ("UA", "AA", "B6"):
        own = [each for each in flights if each["carrier"] == carrier]
        delays = [each["dep_delay"] for each in own if each["dep_delay"] is not None]
        assert gold[carrier] == {
            "carrier": carrier,
            "flights": len(own),
            "cancelled": len(own) - len(delays),
            "miles": sum(each["distance"] for each in own),
            "mean_delay": round(sum(delays) / len(delays), 1),
        }


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("runs", [1, 2])
def test_runs_bring_every_flight_to_each_table_and_topic_once(runs: int, tmp_path: Path) -> None:
    folder = tmp_path / "flights"
    assert init("--declarative", str(folder)).exit_code == 0
    with (folder / "spark.conf").open("a") as file:  # soon started, and small
        file.write("spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC\n")
        file.write("spark.remote local[2]\nspark.sql.shuffle.partitions 2\n")
    with EmbeddedBroker() as broker, broker.sync_client() as mq:
        mq.send("flights-delayed", b"{}")  # the topic is there
        mq.send("flights", b"no flight")
        flights: list[dict[str, Any]] = []
        for turn in range(runs):
            more = [flight(number) for number in range(turn * 60, turn * 60 + 60)]
            for each in more:
                mq.send("flights", encode(each))
            flights += more
            run_project(folder, broker.name_servers)
            check(folder, flights, broken=1)

        sent = [message for message in broker.messages("flights-delayed") if message.body != b"{}"]
        late = [each for each in flights if (each["dep_delay"] or 0) >= 60]
        assert Counter(json.loads(m.body)["id"] for m in sent) == Counter(f["id"] for f in late)
        assert {(m.tag, json.loads(m.body)["carrier"]) for m in sent} == {
            (each["carrier"], each["carrier"]) for each in late
        }
