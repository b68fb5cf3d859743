"""Spark Connect: a real server, started by PySpark, and the source and sink over it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipelines.processes import SHORT_LIVED_JVM
from tests.spark.places import Place, environment, publish, stored

from roquette import Message
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.running import open_session

pytestmark = pytest.mark.spark
for module in ("grpc_status", "google.rpc", "zstandard"):
    pytest.importorskip(module, reason='needs the extra "spark-connect"')

COUNT = 200


@pytest.mark.timeout(300)
def test_reads_writes_and_streams(roquette: Place, tmp_path: Path) -> None:
    topics = [roquette.create(f"connect-{name}", 2) for name in ("from", "copy", "stream-copy")]
    messages = [Message(topics[0], b"%d" % n, keys=(f"k{n % 9}",)) for n in range(COUNT)]
    sent = sorted(
        [receipt.queue.queue_id, receipt.queue_offset, str(number), f"k{number % 9}"]
        for number, receipt in enumerate(publish(roquette.address, messages))
    )

    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_jobs", roquette.address, *topics, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=Path(__file__).parents[2],
        env=environment() | {"SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": SHORT_LIVED_JVM},
    )

    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["session"].startswith("pyspark.sql.connect")
    assert found["read"] == found["stream"] == sent
    assert found["narrow"] == 3
    assert "rocketmq: unknown option subscrib; did you mean subscribe?" in found["wrong"]
    assert "give --master local[*]" in found["pipelines"]
    for topic in topics[1:]:
        lanes = stored(roquette.broker.address, topic, 2).values()
        assert sorted(int(r.body) for lane in lanes for r in lane) == list(range(COUNT))


def test_a_pipeline_refuses_the_address_of_a_connect_server(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Spark Connect has no means: give --master"):
        open_session("x", "sc://127.0.0.1:1", (), str(tmp_path / "log"))
