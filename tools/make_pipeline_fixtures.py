"""Make tests/fixtures/1b94d96/pipelines-*.tar.gz: tables, replay states and Spark checkpoints as that commit writes them.

    git worktree add --detach OLD 1b94d96
    PYTHONPATH=OLD/src:OLD python tools/make_pipeline_fixtures.py tests/fixtures/1b94d96

`pipelines.json` is the book: the messages that were there and what each table has of them.
"""

import io
import json
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from roquette.pipelines.archive import pipeline as archive
from roquette.pipelines.dlq.audit_table import AuditTable
from roquette.pipelines.kit.running import run_pipeline
from roquette.pipelines.replay.pipeline import ReplayOptions, _identity
from roquette.pipelines.replay.source import TopicSource
from roquette.pipelines.replay.state import open_state
from roquette.pipelines.state import pipeline as current_state
from roquette.spark.local.jdk import spark_session
from tests.client.fake_cluster import FakeCluster
from tests.spark.records import make_record

from roquette.base.clock import SystemClock
from roquette.base.files import OsFiles
from roquette.message.message import MessageQueue

AVRO = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "n", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}
Message = dict[str, Any]


def messages() -> dict[str, list[Message]]:
    """What each queue has, by "topic/broker/queue": body as hex, properties."""
    import fastavro

    def json_body(n: int) -> bytes:
        if n % 17 == 0:
            return b'{"n": "no number"}'
        return json.dumps({"n": n, "name": f"name {n}", "op": "u", "v": n}).encode()

    def avro_body(n: int) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, AVRO, {"n": n, "name": f"name {n}"})
        return b"\xff" if n % 17 == 0 else out.getvalue()

    found: dict[str, list[Message]] = {}
    for topic, body in (("T", json_body), ("U", json_body), ("A", avro_body)):
        for queue in range(2):
            found[f"{topic}/broker-a/{queue}"] = [
                {
                    "body": body(100 * queue + i + 1).hex(),
                    "properties": {"KEYS": f"k{i}", "TAGS": "a", "colour": "red"},
                }
                for i in range(40 - 10 * queue)
            ]
    return found


def queues_of(book: dict[str, list[Message]]) -> dict[MessageQueue, list[bytes]]:
    """The book's messages as records for a FakeCluster."""
    found = {}
    for place, each in book.items():
        topic, broker, queue = place.split("/")
        found[MessageQueue(topic, broker, int(queue))] = [
            make_record(
                i,
                bytes.fromhex(one["body"]),
                one["properties"],
                topic=topic,
                queue_id=int(queue),
            )
            for i, one in enumerate(each)
        ]
    return found


def tables(root: Path, namesrv: str) -> None:
    """Archives of each format, and a current state."""
    avsc = root / "schema.avsc"
    avsc.write_text(json.dumps(AVRO))
    common: dict[str, Any] = {"namesrv": namesrv, "report": str(root / "report"), "batch": 25}
    schema = "n long, name string, v long"
    for topic, kind, given in (("T", "json", schema), ("U", "raw", ""), ("A", "avro", str(avsc))):
        options = archive.ArchiveOptions(
            topics=(topic,), to=str(root / kind), format=kind, schema=given, compact=False, **common
        )
        assert run_pipeline(archive.PIPELINE, options).ok
    state = current_state.CurrentStateOptions(
        topic="T", to=str(root / "state/T"), key=("n",), version="v", schema=schema, **common
    )
    assert run_pipeline(current_state.PIPELINE, state).ok


def streams(root: Path, namesrv: str, spark: Any) -> None:
    """Checkpoints: all batches done; killed within the second one; two topics; queues given by number."""
    for name, topics, dies, more in (
        ("done", "T", None, {}),
        ("killed", "T", 1, {}),
        ("two-topics", "T,U", None, {}),
        ("begun-late", "U", None, {"startingOffsets": '{"U":{"broker-a":{"0":5,"1":-1}}}'}),
    ):

        def write(frame: Any, number: int, dies: int | None = dies, name: str = name) -> None:
            if number == dies:
                raise RuntimeError("killed here")
            out = str(root / name / f"out/batch={number}")
            frame.coalesce(1).write.mode("overwrite").parquet(out)

        query = (
            spark.readStream.format("rocketmq")
            .options(namesrvAddr=namesrv, subscribe=topics, maxOffsetsPerTrigger="25")
            .options(**({"startingOffsets": "earliest"} | more))
            .schema(
                "topic string, broker_name string, queue_id int, queue_offset long, body binary"
            )
            .load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(root / name / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        while query.isActive:
            time.sleep(0.1)
        assert (query.exception() is None) == (dies is None)


def states(root: Path, namesrv: str, spark: Any) -> None:
    """A replay two steps on its way, and an audit table of dead letters."""
    options = ReplayOptions(
        topics=("T",), to_topic="T2", state=str(root / "replay"), namesrv=namesrv
    )
    state = open_state(options.state, OsFiles(), _identity(options), 1_700_000_000_000)
    source = TopicSource(namesrv, ("T",), "", "")
    state.begin(source.bounds(), {"v": 1, "offsets": {"T2": {"broker-a": {"0": 0, "1": 0}}}})
    for _ in range(2):
        step = source.next_step(state, 25)
        assert step is not None
        state.advance(step.after, 25)
    audit = AuditTable(spark, str(root / "audit"), OsFiles(), SystemClock())
    columns = "id string, group string, origin_topic string, origin_msg_id string, target string"
    letters = spark.createDataFrame([(f"id{i}", "g", "T", f"m{i}", "T") for i in range(5)], columns)
    audit.append(letters, "planned")
    audit.append(letters.where("id < 'id3'"), "sent")


def main(out: Path) -> None:
    """Make all of it."""
    out.mkdir(parents=True, exist_ok=True)
    book = messages()
    spark = spark_session("fixtures", 2)
    with FakeCluster(queues_of(book)) as cluster, tempfile.TemporaryDirectory() as folder:
        for name, make in (
            ("tables", lambda at: tables(at, cluster.address)),
            ("streams", lambda at: streams(at, cluster.address, spark)),
            ("states", lambda at: states(at, cluster.address, spark)),
        ):
            root = Path(folder) / name
            root.mkdir()
            make(root)
            with tarfile.open(out / f"pipelines-{name}.tar.gz", "w:gz") as archive_file:
                for path in sorted(root.iterdir()):
                    if path.name != "report":
                        archive_file.add(path, path.name)
    spark.stop()
    (out / "pipelines.json").write_text(json.dumps({"messages": book}, indent=0) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
