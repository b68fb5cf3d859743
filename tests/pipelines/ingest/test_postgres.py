"""PostgreSQL -> topic -> tables -> queries, each step killed: at the end each table has what PostgreSQL has."""

import pickle
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.ingest.postgres import COLUMNS, RandomPostgres, running, values
from tests.pipelines.processes import SHORT_LIFE, PipelineProcess, wait_until
from tests.spark.places import Place
from typer.testing import CliRunner

from roquette.apps.main import app
from roquette_spark.pipelines.kit.topics import known_topics

pytestmark = pytest.mark.spark
LONG_S = 240
AGAIN_MS = 6000  # Debezium asks again for a slot that is not free


class Way:
    """The steps of the way, as commands of one folder."""

    def __init__(self, database: RandomPostgres, address: str, folder: Path, seed: int) -> None:
        self.database, self._address, self.folder = database, address, folder
        self._random = random.Random(seed)
        self._properties = folder / "shop.properties"
        self._slot = f"slot_{seed}"
        own = f"topic.prefix=shop{seed}\nslot.retry.delay.ms={AGAIN_MS}\n"
        self._properties.write_text(database.properties(self._slot) + own)
        self._topic = f"shop{seed}-public-orders"  # of the servers that all tests here share

    def words(self, step: str) -> list[str]:
        """The command of one step."""
        from_topic = ["archive", "--topics", self._topic, "--format", "connect", "--batch", "40"]
        words = {
            "ingest": ["ingest", "--debezium", str(self._properties), "--idle", "4s"],
            "delta": [*from_topic, "--to", str(self.folder / "delta")],
            "iceberg": [*from_topic, "--to", str(self.folder / "iceberg"), "--table-format", "iceberg"],
            "state": ["current-state", "--topic", self._topic, "--to", str(self.folder / "state"), "--key", "id", "--envelope",
                      "debezium", "--version", "source.lsn", "--batch", "40"],
        }[step]  # fmt: skip
        spark = [] if step == "ingest" else ["--master", "local[1]", "--spark-conf", SHORT_LIFE]
        return [
            *words,
            "-n",
            self._address,
            "--report",
            str(self.folder / f"report-{step}"),
            *spark,
        ]

    def start(self, step: str) -> PipelineProcess:
        """A run of one step."""
        return PipelineProcess(self.words(step), self.folder / f"{step}.log")

    def marks(self, step: str) -> tuple[int, ...]:
        """Of what a step has done: more of them when it has done something."""
        if step == "ingest":
            path = Path(f"{self._properties}.offsets")
            return (path.stat().st_mtime_ns,) if path.exists() else ()
        logs = {
            "delta": f"delta/{self._topic}/_delta_log",
            "iceberg": f"iceberg/{self._topic}/metadata",
            "state": "state/_delta_log",
        }
        return tuple(range(len(list((self.folder / logs[step]).glob("*.json")))))

    def kill(self, *steps: str) -> dict[str, bool]:
        """kill -9 of each, side by side, somewhere in its work; False for one that had ended by itself."""
        before = {step: self.marks(step) for step in steps}
        processes, struck = {step: self.start(step) for step in steps}, {}
        for step, process in processes.items():
            wait_until(lambda p=process, s=step: p.ended() or self.marks(s) != before[s], LONG_S)
            time.sleep(self._random.uniform(0, 0.5))
            struck[step] = not process.ended()
            process.kill_group()
        return struck

    def finish(self, step: str) -> None:
        """A run to its end."""
        self._end(step, self.start(step))

    def finish_ingest_when_free(self) -> None:
        """A run to its end that finds its slot in another reader's hands, for longer than it has to be quiet."""
        log = self.folder / "report-ingest" / "debezium.log"
        log.unlink()
        words = f"waiting for {AGAIN_MS} ms"
        with self.database.reader(self._slot):
            process = self.start("ingest")
            waits = wait_until(
                lambda: process.ended() or (log.exists() and words in log.read_text()), LONG_S
            )
            early = process.ended()
        self._end("ingest", process)
        assert waits and not early

    def _end(self, step: str, process: PipelineProcess) -> None:
        try:
            status = process.wait(LONG_S)
        finally:
            process.kill_group()
        log = self.folder / f"{step}.log"
        assert status == 0, log.read_text()[-3000:]

    def query(self, step: str, *, killed: bool = False) -> dict[int, dict[str, Any]]:
        """The newest row of each key, by DuckDB in a process of its own."""
        path = self.folder / step if step == "state" else self.folder / step / self._topic
        words = [sys.executable, "-m", "tests.pipelines.ingest.query", step, str(path)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            if killed:
                time.sleep(self._random.uniform(0, 1))
                process.kill()
                return {}
            found = pickle.loads(process.stdout.read())  # noqa: S301 - our own process wrote it
        return {row["id"]: row for row in found}

    def check(self) -> None:
        """Every table against the database."""
        wanted = self.database.rows()
        for step in ("delta", "iceberg", "state"):
            found = self.query(step)
            assert found.keys() == wanted.keys(), step
            for key, row in wanted.items():
                assert values({name: found[key][name] for name in COLUMNS}) == row, (step, key)


def test_all_that_postgres_has_comes_to_the_tables_through_kills(
    spark: Any, place: Place, tmp_path: Path
) -> None:
    with running(1) as database:
        way = Way(database, place.address, tmp_path, 1)
        database.change(100)
        way.finish("ingest")
        database.change(60)
        way.kill("ingest")
        database.change(20)
        way.finish_ingest_when_free()
        assert not [name for name in known_topics(place.address, "ingest") if "heartbeat" in name]
        way.kill("state")  # the other two: in the long form, and by tests/pipelines/chaos
        for step in ("delta", "iceberg", "state"):  # in the session that is there: JVMs are dear
            done = CliRunner().invoke(app, ["pipeline", *way.words(step)])
            assert done.exit_code == 0, done.output
        way.query("state", killed=True)
        way.check()


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_twenty_kills_of_each_step(place: Place, tmp_path: Path) -> None:
    with running(2) as database:
        way = Way(database, place.address, tmp_path, 2)
        struck = dict.fromkeys(("ingest", "delta", "iceberg", "state"), 0)
        rounds = 0
        database.change(80)
        way.finish("ingest")
        while min(struck.values()) < 20:
            rounds += 1
            assert rounds < 60, struck
            database.change(80)
            for step in struck:
                struck[step] += way.kill(step)[step]
            way.query("state", killed=True)
            if rounds % 5 == 0:
                for step in struck:
                    way.finish(step)
                way.check()
        for step in struck:
            way.finish(step)
        way.check()
        print(f"{struck}, {rounds} rounds, {len(database.rows())} rows")
