"""What an archive's stream had to skip, and topics made anew below it, are told as what they are."""

import bisect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
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
from roquette_spark.pipelines.archive.options import ArchiveOptions
from roquette_spark.pipelines.kit.frame import Job, Quiet, Result

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


class Before(Quiet):
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
