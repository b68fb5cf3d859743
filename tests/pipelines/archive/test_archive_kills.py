"""kill -9 of an archive's driver, its JVM and its workers at random moments: the table equals the topic."""

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.chaos.strikes import DONE
from tests.pipelines.processes import SHORT_LIFE, PipelineProcess, command, kill, wait_until
from tests.pipelines.tables import folder_files, log_files, places, rows
from tests.spark.records import make_record

from roquette.message.message import MessageQueue

pytestmark = pytest.mark.spark

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(3)]
START_S = 200


def body(queue_id: int, offset: int) -> bytes:
    if (queue_id * 7 + offset) % 41 == 0:
        return b"bad %d %d" % (queue_id, offset)
    return json.dumps({"queue": queue_id, "n": offset, "text": "x" * (offset % 50)}).encode()


def grow(cluster: FakeCluster, count: int) -> None:
    """`count` more messages in each queue."""
    for queue in QUEUES:
        records = cluster.queues[queue]
        records += [
            make_record(i, body(queue.queue_id, i), queue_id=queue.queue_id)
            for i in range(len(records), len(records) + count)
        ]


class Killer:
    """Starts the pipeline again and again, and kills a part of it each time."""

    def __init__(self, folder: Path, cluster: FakeCluster, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.cluster = cluster
        self.killed: Counter[str] = Counter()
        self.runs: list[PipelineProcess] = []
        self.jvms: list[int] = []

    def start(self, batch: int) -> PipelineProcess:
        words = ["archive", "-n", self.cluster.address, "--topics", "T"]
        words += ["--to", str(self.folder / "lake"), "--report", str(self.folder / "report")]
        words += ["--batch", str(batch), "--master", "local[2]", "--spark-conf", SHORT_LIFE]
        words += ["--schema", "queue int, n int, text string", "--small-files", "6"]
        words += ["--keep-replaced-minutes", "0"]
        # One task a batch or one a queue, and often otherwise than before the kill.
        words += ["--source-option", f"minRecordsPerPartition={self.random.choice((0, 500))}"]
        process = PipelineProcess(words, self.folder / "log")
        self.runs.append(process)
        return process

    def versions(self) -> int:
        return len(list((self.folder / "lake/T/_delta_log").glob("*.json")))

    def kill_once(self, victim: str, batch: int) -> None:
        process = self.start(batch)
        before = self.versions()
        if (
            victim != "group" and self.random.random() < 0.15
        ):  # anywhere, also before the first batch
            time.sleep(self.random.uniform(0, 8))
        else:
            started = lambda: process.ended() or self.versions() > max(before, 1)  # noqa: E731
            assert wait_until(started, START_S), process.log.read_text()[-3000:]
            time.sleep(self.random.uniform(0, 2) if victim != "group" else 0)
        if not process.ended() and self._kill(victim, process):
            self.killed[victim] += 1
        if victim == "worker":  # its task is tried again, or the run fails: both are right
            enough = self.versions() + 2
            goes_on = lambda: process.ended() or self.versions() >= enough  # noqa: E731
            assert wait_until(goes_on, START_S), process.log.read_text()[-3000:]
        if victim == "group":
            self._check_end(process)
        process.child.poll()
        if victim == "driver" and self.random.random() < 0.5:
            return  # the orphaned JVM may live on for a moment beside the next run
        process.kill_group()

    def _check_end(self, process: PipelineProcess) -> None:
        """SIGTERM to the process group is as SIGTERM to the pipeline alone: it ends at its next step, well."""
        assert process.wait(START_S) in DONE, process.log.read_text()[-3000:]
        summary = json.loads((self.folder / "report" / "summary.json").read_text())
        assert summary["ok"]
        assert summary["stopped"] or not self.killed["group"]

    def _kill(self, victim: str, process: PipelineProcess) -> bool:
        if (jvm := process.jvm()) is not None:
            self.jvms.append(jvm)
        if victim == "group":
            os.killpg(process.child.pid, signal.SIGTERM)
            return True
        if victim == "driver":
            process.child.kill()
            process.wait(10)
            return True
        if victim == "jvm":
            if not kill(process.jvm()):
                return False
            process.wait(START_S)
            return True
        workers = process.workers()
        return kill(self.random.choice(workers)) if workers else False

    def orphans(self) -> list[int]:
        """JVMs that live on; each ends when its Python has."""
        return [pid for pid in self.jvms if command(pid) == "java"]

    def end(self) -> None:
        for process in self.runs:
            process.kill_group()


def check(folder: Path, count: int) -> None:
    """Table and quarantine are the topic: by the log, and as plain folders."""
    lake = folder / "lake"
    expected = [("broker-a", q.queue_id, i) for q in QUEUES for i in range(count)]
    for find in (log_files, folder_files):
        good, bad = rows(find(lake / "T")), rows(find(lake / "T.quarantine"))
        assert sorted(places(good) + places(bad)) == expected, find.__name__
        for row in good:
            wanted = json.loads(body(row["_queue_id"], row["_queue_offset"]))
            assert {name: row[name] for name in wanted} == wanted
        for row in bad:
            assert row["body"] == body(row["queue_id"], row["queue_offset"])


def run_kills(folder: Path, victims: list[str], seed: int, per_round: int, batch: int) -> Killer:
    with FakeCluster({queue: [] for queue in QUEUES}, per_pull=200) as cluster:
        killer = Killer(folder, cluster, seed)
        try:
            for victim in victims:
                grow(cluster, per_round)
                killer.kill_once(victim, batch)
            last = killer.start(10_000)
            assert last.wait(2 * START_S) in DONE, last.log.read_text()[-3000:]
            assert wait_until(lambda: not killer.orphans(), 60)
        finally:
            killer.end()
        check(folder, per_round * len(victims))
    return killer


@pytest.mark.promise("Spark and pipelines", "each message is in a table once, whatever is killed")
@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_hundred_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    rounds = random.Random(7)
    victims = [rounds.choice(["driver", "driver", "jvm", "worker"]) for _ in range(125)]

    # Some batches a round: what is left for the next one stays small.
    killer = run_kills(tmp_path, victims, seed=7, per_round=150, batch=300)

    print(f"killed: {dict(killer.killed)}")
    assert killer.killed.total() >= 100
