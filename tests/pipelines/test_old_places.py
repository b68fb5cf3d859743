"""Tables, replay states and checkpoints that commit 1b94d96 made go on: nothing is lost, nothing comes twice."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.old_places import add, old_queues, unpack
from tests.pipelines.tables import folder_files, log_files, places, rows

from roquette.base.clock import SystemClock
from roquette.base.files import OsFiles
from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive import pipeline as archive
from roquette_spark.pipelines.dlq.pipeline import AuditTable, with_letter
from roquette_spark.pipelines.kit.running import run_pipeline
from roquette_spark.pipelines.replay.pipeline import ReplayOptions, _identity
from roquette_spark.pipelines.replay.source import TopicSource, open_state
from roquette_spark.pipelines.state import pipeline as current_state
from roquette_spark.pipelines.state.bucket_files import BucketRules
from roquette_spark.pipelines.tables.delta_table import open_table

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # of a busy machine

Place = tuple[str, int, int]
COLUMNS = "topic string, broker_name string, queue_id int, queue_offset long, body binary"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(old_queues()) as cluster:
        yield cluster


def everything(cluster: FakeCluster, topic: str) -> list[Place]:
    return sorted(
        (queue.broker_name, queue.queue_id, i)
        for queue, records in cluster.queues.items()
        if queue.topic == topic
        for i in range(len(records))
    )


def stored(root: Path) -> list[Place]:
    """What table and quarantine have."""
    found = places(rows(log_files(root)))
    apart = Path(f"{root}.quarantine")
    return sorted(found + (places(rows(log_files(apart))) if apart.exists() else []))


@pytest.mark.promise(
    "Spark and pipelines", "tables, states and checkpoints of earlier versions go on"
)
@pytest.mark.parametrize(
    ("topic", "kind"), [("T", "json"), ("U", "raw"), pytest.param("A", "avro", id="A-avro")]
)
def test_an_old_archive_goes_on(
    spark: Any, cluster: FakeCluster, tmp_path: Path, topic: str, kind: str
) -> None:
    if kind == "avro":
        pytest.importorskip("fastavro")
    old = unpack("tables", tmp_path)
    before = stored(old / kind / topic)
    assert before == everything(cluster, topic)
    options = archive.ArchiveOptions(
        namesrv=cluster.address,
        topics=(topic,),
        to=str(old / kind),
        format=kind,
        report=str(tmp_path / "report"),
        schema=str(old / "schema.avsc") if kind == "avro" else "",
        small_files=2,  # old files, which lack columns, are joined with new ones
        keep_replaced_minutes=0,
    )
    late = b'{"n": 7.0, "v": 2, "late": [1.0]}'
    add(cluster.queues, topic, [avro_body(7) if kind == "avro" else late] * 3)

    result = run_pipeline(archive.PIPELINE, options)

    assert (result.ok, result.summary["new_rows"]) == (True, 6)
    assert stored(old / kind / topic) == everything(cluster, topic)
    if kind == "raw":
        return
    found = rows(log_files(old / kind / topic))
    new = [row for row in found if row["_queue_offset"] >= 40 - 10 * row["_queue_id"]]
    assert len(new) == 6
    assert {dict(row["_properties"])["colour"] for row in new} == {"blue"}
    assert {row["_properties"] for row in found if row not in new} == {None}
    if kind == "json":
        assert [row["late"] for row in new] == [[1.0]] * 6  # a column by now
        assert result.summary["topics"][topic]["columns_added"] == ["late"]
    again = run_pipeline(archive.PIPELINE, options)
    assert (again.ok, again.summary["new_rows"]) == (True, 0)


def avro_body(number: int) -> bytes:
    import fastavro

    out = io.BytesIO()
    schema = json.loads(
        '{"type":"record","name":"R","fields":[{"name":"n","type":"long"},'
        '{"name":"name","type":["null","string"]}]}'
    )
    fastavro.schemaless_writer(out, schema, {"n": number, "name": "x"})
    return out.getvalue()


def test_an_old_current_state_goes_on(
    spark: Any, cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current_state, "RULES", BucketRules(small_rows=10))
    root = unpack("tables", tmp_path) / "state/T"
    there = set(log_files(root))
    before = {row["n"]: row["name"] for row in rows(log_files(root))}
    assert len(before) + len(rows(log_files(Path(f"{root}.quarantine")))) == 70
    options = current_state.CurrentStateOptions(
        namesrv=cluster.address,
        topic="T",
        to=str(root),
        key=("n",),
        version="v",
        report=str(tmp_path / "report"),
    )
    add(cluster.queues, "T", [b'{"n": 1, "name": "changed", "v": 1000, "late": 1}', b"{"])

    result = run_pipeline(current_state.PIPELINE, options)

    assert result.summary["this_run"]["rows"] == 4
    found = {row["n"]: row["name"] for row in rows(log_files(root))}
    assert found == before | {1: "changed"}
    assert there < set(log_files(root))  # what it had is its one bucket, and stays
    found_late = [row.get("_rescued") for row in rows(log_files(root)) if row["n"] == 1]
    assert found_late == [None, '{"late":1}']
    assert result.summary["rows"] == len(before)
    assert result.summary["rescued"] == 2


@pytest.mark.promise(
    "Spark and pipelines", "tables, states and checkpoints of earlier versions go on"
)
@pytest.mark.parametrize("name", ["done", "killed", "two-topics", "begun-late"])
def test_an_old_checkpoint_goes_on(
    spark: Any, cluster: FakeCluster, tmp_path: Path, name: str
) -> None:
    root = unpack("streams", tmp_path) / name
    topics = {"two-topics": "T,U", "begun-late": "U"}.get(name, "T")
    for topic in topics.split(","):
        add(cluster.queues, topic, [b"new"] * 30)

    def write(frame: Any, number: int) -> None:
        frame.coalesce(1).write.mode("overwrite").parquet(str(root / f"out/batch={number}"))

    query = (
        spark.readStream.format("rocketmq")
        .options(namesrvAddr=cluster.address, subscribe=topics, maxOffsetsPerTrigger="25")
        .option("startingOffsets", "earliest")
        .schema(COLUMNS)
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(root / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    found = rows(folder_files(root / "out"))
    skipped = {("U", 0, i) for i in range(5)} | {("U", 1, i) for i in range(30)}
    wanted = [
        (queue.topic, queue.queue_id, i)
        for queue, records in cluster.queues.items()
        if queue.topic in topics.split(",")
        for i in range(len(records))
        if name != "begun-late" or (queue.topic, queue.queue_id, i) not in skipped
    ]
    assert sorted((r["topic"], r["queue_id"], r["queue_offset"]) for r in found) == sorted(wanted)


def test_an_old_replay_goes_on(cluster: FakeCluster, tmp_path: Path) -> None:
    root = unpack("states", tmp_path)
    path = root / "replay/replay.json"
    values = json.loads(path.read_text())
    values["options"]["namesrv"] = cluster.address  # it was another port
    path.write_text(json.dumps(values))
    options = ReplayOptions(
        topics=("T",), to_topic="T2", state=str(root / "replay"), namesrv=cluster.address
    )

    state = open_state(options.state, OsFiles(), _identity(options), 0)
    source = TopicSource(cluster.address, ("T",), "", "")
    state.begin(state.bounds, state.target_start)  # writes what it has read

    assert (state.fresh, state.rows, source.done(state), source.total(state)) == (False, 50, 50, 70)
    step = source.next_step(state, 1000)
    assert step is not None
    start, end = step.reads
    assert sum(end[q] - start[q] for q in end) == 20
    assert end == {MessageQueue("T", "broker-a", 0): 40, MessageQueue("T", "broker-a", 1): 30}


def test_an_old_audit_of_dead_letters_goes_on(spark: Any, tmp_path: Path) -> None:
    audit = AuditTable(spark, str(unpack("states", tmp_path) / "audit"), OsFiles(), SystemClock())

    assert audit.rows().count() == 8
    assert sorted(row.letter for row in audit.settled().collect()) == ["id0|m0", "id1|m1", "id2|m2"]
    assert sorted(row.id for row in audit.in_doubt().collect()) == ["id3", "id4"]
    columns = "id string, origin_msg_id string"
    places = with_letter(
        spark.createDataFrame([("id0", "m0"), ("id1", "of a topic anew")], columns)
    )
    assert [row.id for row in places.join(audit.settled(), "letter", "left_anti").collect()] == [
        "id1"
    ]


def test_old_tables_are_read_by_their_logs(tmp_path: Path) -> None:
    old = unpack("tables", tmp_path)

    for place in ("json/T", "json/T.quarantine", "raw/U", "avro/A", "state/T"):
        table = open_table(str(old / place))
        assert table.snapshot.version >= 1
        assert set(table.snapshot.files) == {
            str(path.relative_to(old / place)) for path in log_files(old / place)
        }
