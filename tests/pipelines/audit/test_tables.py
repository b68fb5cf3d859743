"""`audit --table` beside a table that `archive` made: whole, with files gone, with rows twice; and tables without a log."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.archive.local_streams import LocalSpark, LocalStream
from tests.pipelines.tables import folder_files, log_files, places
from tests.spark.places import Place, publish
from tests.spark.records import make_record

from roquette import Client, Message
from roquette.admin.topics import delete_topic
from roquette.base.clock import SystemClock
from roquette.base.files import OsFiles
from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive import pipeline as archive_pipeline
from roquette_spark.pipelines.archive.pipeline import PIPELINE as ARCHIVE
from roquette_spark.pipelines.archive.pipeline import ArchiveOptions
from roquette_spark.pipelines.audit import frames as ask
from roquette_spark.pipelines.audit.pipeline import PIPELINE as AUDIT
from roquette_spark.pipelines.audit.pipeline import (
    AuditOptions,
    lost_files,
    read_rows,
    skipped_offsets,
)
from roquette_spark.pipelines.kit.frame import Job
from roquette_spark.pipelines.kit.running import run_pipeline
from roquette_spark.source.queues import queue_bounds

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
    given["failOnDataLoss"] = "false"
    messages = spark.read.format("rocketmq").schema(ask.COLUMNS).options(**given).load()
    rows = read_rows(spark, str(path))
    slim = ask.slim(messages, "uniq_key", "", "")
    ends = {(q.broker_name, q.queue_id): end for q, end in queue_bounds(address, ["T"])[1].items()}
    compared, _ = ask.against_table("T", slim, rows.frame, COUNT, ends)
    found = [*compared, skipped_offsets("T", rows, COUNT), lost_files("T", rows, COUNT)]
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
        ("table_missing", 0), ("table_twice", 0), ("table_other", 0), ("table_extra", 0), ("table_skipped", 0),
        ("table_files", 0)
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


def local_archive(namesrv: str, topic: str, folder: Path, *words: str) -> Path:
    """A table of the topic, without a JVM."""
    options = ArchiveOptions(
        namesrv=namesrv, topics=(topic,), to=str(folder), format="raw", source_option=words
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive_pipeline, "start_ranges", LocalStream)
        ARCHIVE.run(options, job_of(LocalSpark(), folder / "report"))
    return folder / topic


def job_of(spark: Any, folder: Path) -> Job:
    folder.mkdir(parents=True, exist_ok=True)
    return Job(
        directory=str(folder), open_spark=lambda: spark, clock=SystemClock(), files=OsFiles()
    )


def audited(spark: Any, roquette: Place, topic: str, table: Path) -> dict[str, Any]:
    """The certificate, checks by name."""
    options = AuditOptions(
        namesrv=roquette.address, topics=(topic,), table=(f"{topic}={table}",), transactions=False
    )
    result = AUDIT.run(options, job_of(spark, table.parent / "audit"))
    found = dict(result.summary)
    found["checks"] = {check["name"]: check["exceptions"] for check in found["checks"]}
    assert result.ok == (found["verdict"] == "certified")
    return found


def test_a_table_of_a_deleted_topic_is_no_proof_of_another_of_its_name(
    spark: Any, roquette: Place, tmp_path: Path
) -> None:
    topic = roquette.create("audit-lives", 2)
    publish(roquette.address, [Message(topic, b"old %d" % n) for n in range(30)])
    table = local_archive(roquette.address, topic, tmp_path)
    good = audited(spark, roquette, topic, table)
    assert good["verdict"] == "certified"
    assert good["proofs"][topic] == {
        "rows": 30,
        "proven": 30,
        "unproven": 0,
        "skipped": 0,
        "queues_made_anew": 0,
    }
    assert [each["max_offset"] for each in good["ends"]] == [
        row["last_offset"] + 1 for row in good["queues"]
    ]

    async def delete() -> None:
        async with Client(roquette.address, group="TOOLS") as mq:
            await mq.session.run(delete_topic(mq.session.name_servers, topic))

    asyncio.run(delete())
    roquette.create(topic, 2)
    publish(roquette.address, [Message(topic, b"new %d" % n) for n in range(12)])
    bad = audited(spark, roquette, topic, table)

    assert bad["verdict"] == "exceptions"
    assert bad["checks"]["table_missing"] == 0
    assert (bad["checks"]["table_other"], bad["checks"]["table_extra"]) == (12, 18)
    first = [[row["first_message"] for row in each["queues"]] for each in (good, bad)]
    assert set(first[0]).isdisjoint(first[1])


def test_what_the_stream_into_a_table_skipped_is_an_exception(
    spark: Any, cluster: FakeCluster, tmp_path: Path
) -> None:
    local_archive(cluster.address, "T", tmp_path)
    cluster.queues[MessageQueue("T", "broker-a", 3)] += [
        make_record(n, b"{}") for n in range(COUNT, COUNT + 40)
    ]
    cluster.oldest = COUNT + 10
    table = local_archive(cluster.address, "T", tmp_path, "failOnDataLoss=false")

    found = checks(spark, cluster.address, table)

    assert found["table_missing"].ok
    assert found["table_skipped"].exceptions == 10
    assert found["table_skipped"].examples == [
        {"topic": "T", "broker_name": "broker-a", "queue_id": 3, "skipped": 10}
    ]


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
