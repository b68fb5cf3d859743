"""A Spark job with credentials: they reach the servers, and nothing that people or files are shown has them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_cluster import FakeCluster
from tests.spark.records import make_record

from roquette.message.message import MessageQueue

pytestmark = pytest.mark.spark

SECRET = "hunter2-geheim"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    records = [make_record(i, b"body", {}) for i in range(50)]
    with FakeCluster({MessageQueue("T", "broker-a", 0): records}) as cluster:
        yield cluster


def test_a_job_at_a_closed_cluster_shows_its_secrets_nowhere(
    spark: Any, cluster: FakeCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = {
        "namesrvAddr": cluster.address,
        "subscribe": "T",
        "accessKey": "alice",
        "secretKey": SECRET,
        "securityToken": SECRET + "-token",
    }
    frame = spark.read.format("rocketmq").options(**given).load()
    assert frame.count() == 50
    shown = [repr(frame), str(frame.schema)]
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        frame.explain(mode)
    plan = frame._jdf.queryExecution()
    shown += [plan.toString(), plan.stringWithStats(), plan.logical().toString()]

    spark.sql("DROP TABLE IF EXISTS closed")
    words = ", ".join(f"{name} '{text}'" for name, text in given.items())
    spark.sql(f"CREATE TABLE closed USING rocketmq OPTIONS ({words})")
    try:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW open_view USING rocketmq OPTIONS ({words})")
        assert spark.table("open_view").count() == 50
        for statement in (
            "DESCRIBE TABLE EXTENDED closed",
            "SHOW CREATE TABLE closed",
            "EXPLAIN EXTENDED SELECT * FROM open_view",
        ):
            shown += [str(row) for row in spark.sql(statement).collect()]
    finally:
        spark.sql("DROP TABLE IF EXISTS closed")

    stream = spark.readStream.format("rocketmq").options(**given | {"startingOffsets": "earliest"})
    query = (
        stream.load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(90)
    assert query.lastProgress["numInputRows"] == 50
    shown += [str(query.lastProgress), query._jsq.toString()]
    files = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert files
    shown += [path.read_bytes().decode("latin-1") for path in files]
    shown += list(capfd.readouterr())

    assert [text for text in shown if SECRET in text] == []
