"""An archive in an object store, without Hadoop's jars: files and log by pyarrow and delta-rs, the position on a disk."""

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

pytestmark = [pytest.mark.spark, pytest.mark.long]  # quick: chaos strikes the same

BODIES = [b'{"n": %d}' % n for n in range(200)]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    queue = MessageQueue("T", "broker-a", 0)
    records = [make_record(i, body, {"KEYS": "k"}, queue_id=0) for i, body in enumerate(BODIES)]
    with FakeCluster({queue: records}) as cluster:
        yield cluster


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with serving(request.param) as server:
        for name, value in server.environ().items():
            monkeypatch.setenv(name, value)
        assert wait_until(lambda: TableFiles("s3://plain").exists(""), 30)
        yield "s3://plain/lake"


def archive(cluster: FakeCluster, store: str, folder: Path) -> None:
    """In a process of its own: workers have the environment that it began with."""
    words = ["archive", "-n", cluster.address, "--topics", "T", "--to", store, "--batch", "120"]
    words += ["--checkpoints", str(folder / "positions")]
    words += ["--report", str(folder / "report")]
    process = PipelineProcess(words, folder / "log", {"SPARK_LOCAL_IP": "127.0.0.1"})
    try:
        assert process.wait(200) == 0, process.log.read_text()[-4000:]
    finally:
        process.kill_group()


def test_a_topic_goes_to_an_object_store(cluster: FakeCluster, store: str, tmp_path: Path) -> None:
    archive(cluster, store, tmp_path)

    rows = DeltaTable(f"{store}/T").to_pyarrow_table().to_pydict()
    assert sorted(rows["n"]) == sorted(rows["_queue_offset"]) == list(range(200))
    (place,) = (tmp_path / "positions").iterdir()
    assert (place / "_roquette/checkpoint/offsets").is_dir()
