"""What an archive's stream had to skip, and topics made anew below it, are told as what they are."""

import bisect
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.archive.local_streams import LocalSpark, LocalStream
from tests.spark.records import make_record

from roquette.base.clock import SystemClock
from roquette.base.files import OsFiles
from roquette.message.message import MessageQueue
from roquette.message.record import decode_record
from roquette.wire.codes import RequestCode
from roquette.wire.command import Command
from roquette.wire.header_codec import ext_dict
from roquette_spark.pipelines.archive import pipeline
from roquette_spark.pipelines.archive import topic as topic_module
from roquette_spark.pipelines.archive.options import ArchiveOptions
from roquette_spark.pipelines.archive.topic import TopicArchive
from roquette_spark.pipelines.kit.frame import Job, PipelineError, Progress, Result
from roquette_spark.pipelines.tables.table_place import CHECKPOINT

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]


def messages(queue: MessageQueue, start: int, end: int, later_ms: int = 0) -> list[bytes]:
    return [
        make_record(i, b"%d" % i, queue_id=queue.queue_id, later_ms=later_ms)
        for i in range(start, end)
    ]


class Timed(FakeCluster):
    """Finds offsets by store times."""

    def answer(self, command: Command) -> tuple[int, dict[str, str], bytes]:
        if command.code != RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            return super().answer(command)
        ext = ext_dict(command.ext)
        there = self.queues[MessageQueue(ext["topic"], "broker-a", int(ext["queueId"]))]
        times = [decode_record(each, 0, False).store_timestamp_ms for each in there]
        return 0, {"offset": str(bisect.bisect_left(times, int(ext["timestamp"])))}, b""


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with Timed({queue: messages(queue, 0, 10) for queue in QUEUES}) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def local_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "start_ranges", LocalStream)


class Before(Progress):
    """Something happens to the cluster after the run has looked at it, and before it reads."""

    def __init__(self, change: Callable[[], object]) -> None:
        self.change = change

    def step(self, text: str) -> None:
        if text.startswith("archiving"):
            self.change()


def archive(
    cluster: FakeCluster, folder: Path, change: Callable[[], object] = lambda: None, **more: Any
) -> tuple[Result, dict[str, Any]]:
    given: dict[str, Any] = {"topics": ("T",), "format": "raw", "compact": False, "group": "g"}
    options = ArchiveOptions(
        namesrv=cluster.address,
        to=str(folder / "lake"),
        source_option=("failOnDataLoss=false",),
        **(given | more),
    )
    job = Job(
        directory="",
        open_spark=LocalSpark,  # type: ignore[arg-type]
        clock=SystemClock(),
        files=OsFiles(),
        progress=Before(change),
    )
    result = pipeline.PIPELINE.run(options, job)
    return result, result.summary["topics"]["T"]


@pytest.mark.parametrize("tags", ["*", "A"])
def test_a_queue_lost_as_a_whole_is_not_zero_missing(
    cluster: FakeCluster, tmp_path: Path, tags: str
) -> None:
    """10 of 40 messages: one queue has nothing any more, the others have come since."""

    def expire() -> None:
        cluster.oldest = 10
        for queue in QUEUES[1:]:
            cluster.queues[queue] = messages(queue, 0, 20)

    lost, found = archive(cluster, tmp_path, expire, tags=tags)

    assert not lost.ok
    assert (found["skipped"], found["missing"]) == (40, 40 if tags == "*" else 0)
    assert "40 skipped (no broker had them any more)" in lost.last_line
    again, found = archive(cluster, tmp_path, tags=tags)  # it is known, and stays
    assert again.ok
    assert found["skipped"] == 40


@pytest.mark.parametrize("more", [{}, {"topics": (), "topics_pattern": "T"}], ids=["own", "shared"])
def test_a_topic_made_anew_is_another_life_and_no_copies(
    cluster: FakeCluster, tmp_path: Path, more: dict[str, Any]
) -> None:
    first, _ = archive(cluster, tmp_path, **more)
    assert first.ok
    for queue in QUEUES:
        cluster.queues[queue] = messages(queue, 0, 3, later_ms=1_000_000)

    anew, found = archive(cluster, tmp_path, **more)

    assert anew.ok
    assert (found["twice"], found["missing"], found["queues_made_anew"]) == (0, 0, 4)
    assert found["rows"] == 52
    assert "4 queues made anew since the table was begun" in anew.last_line
    for queue in QUEUES:
        cluster.queues[queue] += messages(queue, 3, 12, later_ms=2_000_000)
    after, found = archive(cluster, tmp_path, **more)
    assert (after.ok, found["twice"], found["missing"], found["rows"]) == (True, 0, 0, 88)


def test_a_store_that_lost_its_tail_is_told_when_it_grows_again(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    """The batch that notices has nothing to read; the next one begins where the tail was lost."""
    archive(cluster, tmp_path)
    for queue in QUEUES:
        cluster.queues[queue] = messages(queue, 0, 6)
    _, short = archive(cluster, tmp_path)
    assert (short["missing"], short["twice"]) == (0, 0)
    for queue in QUEUES:
        cluster.queues[queue] += messages(queue, 6, 13, later_ms=1_000_000)

    grown, found = archive(cluster, tmp_path)

    assert (grown.ok, found["missing"], found["twice"], found["rows"]) == (True, 0, 0, 40 + 28)


def test_the_ends_are_those_of_the_brokers(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream would believe itself; the check asks the brokers."""
    real = LocalStream._batch

    def one_batch(stream: LocalStream) -> bool:
        return not (stream.folder / "commits" / "0").exists() and real(stream)

    monkeypatch.setattr(LocalStream, "_batch", one_batch)
    short, found = archive(cluster, tmp_path, batch=8)
    assert (short.ok, found["behind"], found["missing"]) == (False, 32, 0)
    assert "32 not read" in short.last_line

    monkeypatch.setattr(LocalStream, "_batch", real)
    assert archive(cluster, tmp_path)[0].ok
    monkeypatch.setattr(LocalStream, "_batch", lambda stream: False)
    for queue in QUEUES:
        cluster.queues[queue] = messages(queue, 0, 10, later_ms=1_000_000)
    other, found = archive(cluster, tmp_path)
    assert (other.ok, found["other_ends"]) == (False, 4)
    assert "another last message in 4 queues" in other.last_line


# A checkpoint that is gone, and a table that knows what it has.


def checkpoint_of(folder: Path, more: dict[str, Any]) -> Path:
    owner = "_roquette.stream" if "topics_pattern" in more else "T"
    return folder / "lake" / owner / CHECKPOINT


@pytest.mark.parametrize("more", [{}, {"topics": (), "topics_pattern": "T"}], ids=["own", "shared"])
def test_a_lost_checkpoint_is_no_lost_table(
    cluster: FakeCluster, tmp_path: Path, more: dict[str, Any]
) -> None:
    archive(cluster, tmp_path, batch=15, **more)
    shutil.rmtree(checkpoint_of(tmp_path, more))
    for queue in QUEUES:
        cluster.queues[queue] += messages(queue, 10, 14)
    with pytest.raises(PipelineError, match=r"is gone.*restore it, give --from-certificate"):
        archive(cluster, tmp_path, **more)

    on, found = archive(cluster, tmp_path, from_certificate=True, batch=5, **more)

    assert (on.ok, found["rows"], found["missing"], found["twice"]) == (True, 56, 0, 0)
    for queue in QUEUES:
        cluster.queues[queue] += messages(queue, 14, 15)
    after, found = archive(cluster, tmp_path, **more)  # from now on as before
    assert (after.ok, found["rows"], found["missing"], found["twice"]) == (True, 60, 0, 0)
    places = DeltaTable(str(tmp_path / "lake" / "T")).to_pyarrow_table(
        columns=["queue_id", "queue_offset"]
    )
    assert sorted(map(tuple, (row.values() for row in places.to_pylist()))) == [
        (queue, offset) for queue in range(4) for offset in range(15)
    ]


def test_a_checkpoint_that_is_there_is_kept(cluster: FakeCluster, tmp_path: Path) -> None:
    archive(cluster, tmp_path)
    before = (checkpoint_of(tmp_path, {}) / "offsets" / "0").read_text()

    again, found = archive(cluster, tmp_path, from_certificate=True)

    assert (again.ok, found["rows"]) == (True, 40)
    assert (checkpoint_of(tmp_path, {}) / "offsets" / "0").read_text() == before


def test_nothing_goes_on_from_the_certificate_of_another_topic(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    archive(cluster, tmp_path)
    shutil.rmtree(checkpoint_of(tmp_path, {}))
    for queue in QUEUES:
        cluster.queues[queue] = messages(queue, 0, 12, later_ms=1_000_000)

    with pytest.raises(PipelineError, match="queue 0 has another message than the one with which"):
        archive(cluster, tmp_path, from_certificate=True)


def test_bad_messages_of_a_batch_that_never_came_are_there_once(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between quarantine and table, and then the checkpoint is gone."""
    fields = [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]
    schema = json.dumps({"type": "struct", "fields": fields})
    monkeypatch.setattr(topic_module, "schema_of_text", lambda text, pipeline: schema)
    bodies = [b'{"n": 1}', b"bad"] * 5
    for queue in QUEUES:
        cluster.queues[queue] = [
            make_record(i, body, queue_id=queue.queue_id) for i, body in enumerate(bodies)
        ]
    given: dict[str, Any] = {"format": "json", "schema": "n bigint", "batch": 20}
    real = TopicArchive.keep_aside

    def killed(archive: TopicArchive, files: Any, number: int) -> None:
        real(archive, files, number)
        if number == 1:
            raise PipelineError("killed")

    monkeypatch.setattr(TopicArchive, "keep_aside", killed)
    with pytest.raises(PipelineError, match="killed"):
        archive(cluster, tmp_path, **given)
    monkeypatch.setattr(TopicArchive, "keep_aside", real)
    shutil.rmtree(checkpoint_of(tmp_path, {}))

    on, found = archive(cluster, tmp_path, from_certificate=True, **given)

    assert (on.ok, found["rows"], found["quarantined"], found["twice"]) == (True, 20, 20, 0)
