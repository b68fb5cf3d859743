"""A current state in an object store, without Hadoop's jars."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.processes import PipelineProcess, wait_until
from tests.pipelines.stores import STORES, serving
from tests.spark.records import make_record

from roquette.message.message import MessageQueue
from roquette_spark.pipelines.kit.table_files import TableFiles

pytestmark = [pytest.mark.spark, pytest.mark.long]

QUEUE = MessageQueue("T", "broker-a", 0)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with serving(request.param) as server:
        for name, value in server.environ().items():
            monkeypatch.setenv(name, value)
        assert wait_until(lambda: TableFiles("s3://plain").exists(""), 30)
        yield "s3://plain/state"


def test_changes_go_to_an_object_store(store: str, tmp_path: Path) -> None:
    bodies = [b'{"id": %d, "v": %d}' % (n % 50, n) for n in range(200)]
    records = [make_record(i, body, {}, queue_id=0) for i, body in enumerate([*bodies, b"x"])]
    with FakeCluster({QUEUE: records}) as cluster:
        words = ["current-state", "-n", cluster.address, "--topic", "T", "--to", store]
        words += ["--key", "id", "--version", "v", "--batch", "120"]
        words += ["--checkpoints", str(tmp_path / "positions")]
        words += ["--report", str(tmp_path / "report")]
        process = PipelineProcess(words, tmp_path / "log", {"SPARK_LOCAL_IP": "127.0.0.1"})
        try:
            assert process.wait(200) == 0, process.log.read_text()[-4000:]
        finally:
            process.kill_group()

    rows = DeltaTable(store).to_pyarrow_table().to_pydict()
    assert dict(zip(rows["id"], rows["v"], strict=True)) == {n % 50: n for n in range(150, 200)}
    assert len(rows["id"]) == 50
    assert DeltaTable(f"{store}.quarantine").to_pyarrow_table().num_rows == 1
    files = TableFiles(store)
    assert b"delta_scan" in files.read("_view/duckdb.sql") and b"snapshot-" in files.read("CURRENT")
