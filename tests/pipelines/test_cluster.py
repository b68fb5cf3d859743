"""The same pipeline on a real standalone cluster of two workers that have nothing of ours installed."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.processes import (
    SHORT_LIFE,
    SHORT_LIVED_JVM,
    PipelineProcess,
    children,
    command,
    kill,
    wait_until,
)
from tests.pipelines.standalone import Standalone, bare_python, standalone
from tests.pipelines.tables import folder_files, places, rows
from tests.spark.records import make_record

from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive.pipeline import PIPELINE, ArchiveOptions
from roquette_spark.pipelines.kit.running import run_pipeline

pytestmark = pytest.mark.spark

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(4)]
COUNT = 150  # messages in each
SCHEMA = "queue int, n int, text string"


def body(queue_id: int, offset: int) -> bytes:
    return json.dumps({"queue": queue_id, "n": offset, "text": "x" * (offset % 90)}).encode()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.fixture
def topic() -> Iterator[FakeCluster]:
    queues = {
        queue: [
            make_record(i, body(queue.queue_id, i), queue_id=queue.queue_id) for i in range(COUNT)
        ]
        for queue in QUEUES
    }
    with FakeCluster(queues, per_pull=100) as topic:
        yield topic


def archive(folder: Path, topic: FakeCluster, master: str, python: Path) -> PipelineProcess:
    """On the cluster, in eight batches."""
    folder.mkdir(exist_ok=True)
    words = ["archive", "-n", topic.address, "--topics", "T", "--to", str(folder / "lake")]
    words += ["--report", str(folder / "report"), "--batch", "75", "--master", master]
    words += ["--schema", SCHEMA, "--no-compact", "--spark-conf", SHORT_LIFE]
    words += ["--source-option", "minRecordsPerPartition=0"]  # work for both workers
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": SHORT_LIVED_JVM,
    }
    for key, value in conf.items():
        words += ["--spark-conf", f"{key}={value}"]
    environ = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python)}
    return PipelineProcess(words, folder / "log", environ)


def archive_here(folder: Path, topic: FakeCluster) -> None:
    """In this process and its Spark, in one batch."""
    options = ArchiveOptions(
        namesrv=topic.address,
        topics=("T",),
        to=str(folder / "lake"),
        report=str(folder / "report"),
        schema=SCHEMA,
        compact=False,
    )
    assert run_pipeline(PIPELINE, options).ok


def finish(process: PipelineProcess) -> None:
    try:
        assert process.wait(400) == 0, process.log.read_text()[-4000:]
    finally:
        process.kill_group()


def content(folder: Path) -> list[tuple[int, int, str]]:
    found = rows(folder_files(folder / "lake/T"))
    return sorted((row["queue"], row["n"], row["text"]) for row in found)


@pytest.mark.timeout(900)
def test_two_workers_with_nothing_of_ours_give_the_same_table_though_an_executor_dies(
    spark: Any, cluster: Standalone, topic: FakeCluster, tmp_path: Path
) -> None:
    python = bare_python(tmp_path)
    there = archive(tmp_path / "there", topic, cluster.address, python)
    log = tmp_path / "there/lake/T/_delta_log"

    def executors() -> list[int]:
        workers = cluster.worker_pids()
        return [p for w in workers for p in children(w) if command(p) == "java"]

    def under_way() -> bool:
        return len(list(log.glob("*.json"))) > 3 and len(executors()) == 2

    assert wait_until(lambda: there.ended() or under_way(), 300)
    assert not there.ended(), there.log.read_text()[-4000:]
    running = executors()
    killed = kill(running[0])
    finish(there)
    archive_here(tmp_path / "here", topic)

    assert (killed, len(running)) == (True, 2)
    assert content(tmp_path / "there") == content(tmp_path / "here")
    expected = [("broker-a", q.queue_id, i) for q in QUEUES for i in range(COUNT)]
    assert places(rows(folder_files(tmp_path / "there/lake/T"))) == expected
    summary = json.loads((tmp_path / "there/report/summary.json").read_text())
    assert summary["result"]["topics"]["T"]["missing"] == 0


def test_the_bare_python_has_libraries_but_not_roquette(tmp_path: Path) -> None:
    import subprocess

    code = "import pyarrow, msgspec; import importlib.util as u; print(u.find_spec('roquette'))"
    done = subprocess.run(
        [bare_python(tmp_path), "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
    )

    assert (done.stdout.strip(), done.returncode) == ("None", 0), done.stderr + sys.version
