"""Spark 4.1 with Delta's own library reads what we write: rows, values, and the view of current-state. Downloads both on first use."""

import json
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_cluster import FakeCluster
from tests.interop.peers import class_path
from tests.pipelines.archive.local_streams import QUEUE, LocalStream, fill
from tests.pipelines.archive.test_archive_partition import SCHEMA, value
from tests.pipelines.archive.test_archive_pattern import run
from tests.pipelines.kit.older_spark import PYTHON, require_spark
from tests.pipelines.kit.test_delta_readers import (
    Rows,
    by_arrow,
    check_kinds,
    check_life,
    plain_rows,
)
from tests.pipelines.old_places import unpack
from tests.pipelines.processes import PipelineProcess
from tests.spark.records import make_record

from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive import pipeline as stream
from roquette_spark.pipelines.archive.options import ArchiveOptions

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

PROGRAM = Path(__file__).with_name("delta_spark.py")


class Spark:
    """A session that answers queries."""

    def __init__(self, jars: str, log: Path) -> None:
        self._log = log
        with log.open("wb") as stream:
            self._child = subprocess.Popen(
                [PYTHON, str(PROGRAM), jars.replace(os.pathsep, ",")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                env={"PATH": "/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"},
            )

    def ask(self, query: str) -> Rows:
        """Its rows, with Python's values."""
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(" ".join(query.split()) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        assert line, self._log.read_text()[-3000:]
        found = json.loads(line)
        assert isinstance(found, list), found
        return [tuple(value_of(value) for value in row) for row in found]

    def read(self, root: Path) -> Rows:
        """All of a table."""
        return self.ask(f"SELECT * FROM delta.`{root}`")

    def end(self) -> None:
        """Its process with it."""
        self._child.kill()
        self._child.wait()


def value_of(shown: Any) -> Any:
    """What delta_spark.py has shown."""
    if isinstance(shown, list):
        return [value_of(each) for each in shown]
    if not isinstance(shown, dict):
        return shown
    ((kind, text),) = shown.items()
    return {
        "time": lambda: datetime.fromisoformat(text).replace(tzinfo=UTC),
        "day": lambda: date.fromisoformat(text),
        "decimal": lambda: Decimal(text),
        "bytes": lambda: bytes.fromhex(text),
        "row": lambda: {name: value_of(each) for name, each in text.items()},
        "map": lambda: {key: value_of(each) for key, each in text},
    }[kind]()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    require_spark()
    session = Spark(class_path("delta_spark"), tmp_path_factory.mktemp("spark") / "log")
    yield session
    session.end()


def test_spark_agrees_after_evolution_widening_compaction_and_expiry(
    spark: Spark, tmp_path: Path
) -> None:
    check_life(tmp_path, spark.read)


def test_spark_agrees_on_all_kinds_of_columns(spark: Spark, tmp_path: Path) -> None:
    check_kinds(tmp_path, spark.read)


@pytest.mark.parametrize("name", ["json/T", "json/T.quarantine", "raw/U", "avro/A"])
def test_spark_agrees_on_tables_of_1b94d96(spark: Spark, tmp_path: Path, name: str) -> None:
    root = unpack("tables", tmp_path) / name

    assert plain_rows(spark.read(root)) == plain_rows(by_arrow(root))


def test_spark_agrees_on_an_archive_by_a_column_and_on_its_quarantine(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "start_ranges", LocalStream)
    with FakeCluster({}) as cluster:
        fill(cluster, map(value, range(45)))
        bad = [b"", b"{", b"\xff", b"[1]", b'{"word": "' + b"x" * 300 + b'"}']
        for body in bad:
            cluster.queues[QUEUE].append(make_record(len(cluster.queues[QUEUE]), body, queue_id=0))
        given = ArchiveOptions(
            namesrv=cluster.address,
            topics=("t",),
            to=str(tmp_path / "lake"),
            report=str(tmp_path / "report"),
            schema=SCHEMA,
            partition="word",
            batch=15,
            small_files=3,
        )
        summary = run(given).summary
    assert (summary["rows"], summary["quarantined"]) == (45, len(bad))

    for name in ("t", "t.quarantine"):
        root = tmp_path / "lake" / name
        assert plain_rows(spark.read(root)) == plain_rows(by_arrow(root))


def test_the_view_of_current_state_has_one_row_a_key(spark: Spark, tmp_path: Path) -> None:
    """Of a table in buckets that no batch has rewritten since: base and changes lie side by side."""
    queue = MessageQueue("T", "broker-a", 0)
    changes = [(n % 12_000, n, "ud"[n % 7 == 0]) for n in range(14_000)]
    bodies = [json.dumps({"id": i, "v": v, "op": op}).encode() for i, v, op in changes]
    records = [make_record(n, body, {}, queue_id=0) for n, body in enumerate(bodies)]
    with FakeCluster({queue: records}, per_pull=1000) as cluster:
        words = [
            "current-state",
            "-n",
            cluster.address,
            "--topic",
            "T",
            "--to",
            str(tmp_path / "state"),
        ]
        words += ["--key", "id", "--version", "v", "--delete-when", "op = 'd'", "--batch", "12500"]
        words += ["--compact-every", "0", "--report", str(tmp_path / "report")]
        process = PipelineProcess(words, tmp_path / "log")
        try:
            assert process.wait(200) == 0, process.log.read_text()[-4000:]
        finally:
            process.kill_group()
    newest = {i: (v, op) for i, v, op in changes}
    stored = spark.ask(f"SELECT count(*) FROM delta.`{tmp_path}/state`")

    spark.ask((tmp_path / "state/_view/spark.sql").read_text().rstrip().rstrip(";"))
    rows = spark.ask("SELECT id, v FROM current_state")

    assert stored[0][0] > len(newest)  # what the view has to choose from
    assert sorted(rows) == sorted((i, v) for i, (v, op) in newest.items() if op == "u")
