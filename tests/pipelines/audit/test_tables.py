"""`audit --table` beside a table that `archive` made: whole, with files gone, with rows twice; and tables without a log."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.tables import folder_files, log_files, places
from tests.spark.records import make_record

from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive.pipeline import PIPELINE as ARCHIVE
from roquette_spark.pipelines.archive.pipeline import ArchiveOptions
from roquette_spark.pipelines.audit import frames as ask
from roquette_spark.pipelines.audit.pipeline import lost_files, read_rows
from roquette_spark.pipelines.kit.running import run_pipeline

pytestmark = pytest.mark.spark

BAD = {7, 8, 95}
COUNT = 200


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    bodies = [b"no JSON" if n in BAD else b'{"n": %d}' % n for n in range(COUNT)]
    records = [make_record(n, body) for n, body in enumerate(bodies)]
    queues = {MessageQueue("T", "broker-a", number): [] for number in range(3)}
    with FakeCluster({**queues, MessageQueue("T", "broker-a", 3): records}) as cluster:
        yield cluster


def checks(spark: Any, address: str, path: Path) -> dict[str, ask.AuditCheck]:
    given = {"namesrvAddr": address, "subscribe": "T", "includeSystemProperties": "true"}
    messages = spark.read.format("rocketmq").schema(ask.COLUMNS).options(**given).load()
    rows = read_rows(spark, str(path))
    slim = ask.slim(messages, "uniq_key", "", "")
    found = [*ask.against_table("T", slim, rows.frame, most=COUNT), lost_files("T", rows, COUNT)]
    return {check.name: check for check in found}


def test_a_table_of_archive(spark: Any, cluster: FakeCluster, tmp_path: Path) -> None:
    options = ArchiveOptions(
        namesrv=cluster.address, topics=("T",), to=str(tmp_path), schema="n int", batch=60
    )
    run_pipeline(ARCHIVE, options, directory=str(tmp_path / "report"))
    table = tmp_path / "T"
    files = log_files(table)
    assert len(files) > 1

    whole = checks(spark, cluster.address, table)
    assert [(name, check.exceptions) for name, check in whole.items()] == [
        ("table_missing", 0), ("table_twice", 0), ("table_extra", 0), ("table_files", 0)
    ]  # fmt: skip
    assert whole["table_missing"].looked_at == COUNT  # those in the quarantine, too

    gone = places(pq.ParquetFile(files[0]).read().to_pylist())
    files[0].unlink()
    rows = pq.ParquetFile(files[1]).read()
    pq.write_table(pa.concat_tables([rows, rows.slice(1, 2)]), files[1])
    damaged = checks(spark, cluster.address, table)
    assert places_of(damaged["table_missing"]) == gone
    assert places_of(damaged["table_twice"]) == places(rows.slice(1, 2).to_pylist())
    assert damaged["table_extra"].ok
    (lost,) = damaged["table_files"].examples
    assert lost == {"topic": "T", "file": str(files[0]), "rows": len(gone)}

    for file in folder_files(table):
        file.unlink()
    empty = checks(spark, cluster.address, table)
    assert empty["table_missing"].exceptions == COUNT - len(BAD)
    assert empty["table_files"].exceptions == len(files)


def places_of(check: ask.AuditCheck) -> list[tuple[str, int, int]]:
    rows = [{name: row[name] for name in ask.PLACE} for row in check.examples]
    assert len(rows) == check.exceptions
    return places(rows)


def test_a_table_without_a_log(spark: Any, cluster: FakeCluster, tmp_path: Path) -> None:
    rows = [{"broker_name": "broker-a", "queue_id": 3, "queue_offset": n} for n in range(1, COUNT)]
    (tmp_path / "own").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "own" / "part-0.parquet")

    found = checks(spark, cluster.address, tmp_path / "own")

    assert found["table_missing"].exceptions == 1
    assert (found["table_files"].ok, found["table_files"].skipped) == (True, "the table has no log")
    with pytest.raises(ConfigError, match="audit: there is no table"):
        read_rows(spark, str(tmp_path / "nothing"))
