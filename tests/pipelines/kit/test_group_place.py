"""A pipeline is a group: what its tables have is what `group lag` says, and what resize and drain wait for."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.archive.local_streams import LocalSpark, LocalStream
from tests.spark.places import Place, publish
from tests.spark.records import make_record

from roquette import Client, Message
from roquette.admin.drain import left_on
from roquette.admin.groups import group_lag
from roquette.admin.resize import places_of, prove
from roquette.base.clock import SystemClock
from roquette.base.files import OsFiles
from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette.message.names import pipeline_of_group
from roquette.wire.codes import RequestCode
from roquette_spark.pipelines.archive import pipeline
from roquette_spark.pipelines.archive.options import ArchiveOptions
from roquette_spark.pipelines.kit.frame import Job, load_options
from roquette_spark.pipelines.kit.topics import group_of

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(2)]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    there = {
        q: [make_record(i, b"{}", topic="orders", queue_id=q.queue_id) for i in range(10)]
        for q in QUEUES
    }
    with FakeCluster(there) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def local_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "start_ranges", LocalStream)


def archive(namesrv: str, folder: Path, **more: Any) -> None:
    """A run without a JVM."""
    given: dict[str, Any] = {"topics": ("orders",), "format": "raw", "compact": False} | more
    options = ArchiveOptions(namesrv=namesrv, to=str(folder / "lake"), **given)
    job = Job(
        directory="",
        open_spark=LocalSpark,  # type: ignore[arg-type]
        clock=SystemClock(),
        files=OsFiles(),
    )
    assert pipeline.PIPELINE.run(options, job).ok


def places(cluster: FakeCluster, group: str) -> dict[int, int]:
    return {queue: at for (name, _, queue), at in cluster.committed.items() if name == group}


@pytest.mark.parametrize(
    "more", [{}, {"topics": (), "topics_pattern": "ord.*"}], ids=["own stream", "shared stream"]
)
def test_each_batch_moves_the_group(
    cluster: FakeCluster, tmp_path: Path, more: dict[str, Any]
) -> None:
    options = ArchiveOptions(topics=("orders",), to="x")
    group = group_of(options, "archive", str(tmp_path / "lake"))
    assert group.startswith("archive-lake-") and len(group) == 21
    assert pipeline_of_group(group) == "archive", "the doctor knows it"

    archive(cluster.address, tmp_path, batch=6, **more)
    assert places(cluster, group) == {0: 10, 1: 10}
    commit = RequestCode.UPDATE_CONSUMER_OFFSET
    moves = [fields["commitOffset"] for code, fields in cluster.requests if code == commit]
    assert len(moves) > 4 and moves[-1] == "10"

    cluster.queues[QUEUES[1]].append(make_record(10, b"{}", topic="orders", queue_id=1))
    archive(cluster.address, tmp_path, **more)
    assert places(cluster, group) == {0: 10, 1: 11}


def test_a_run_says_what_the_one_before_could_not(cluster: FakeCluster, tmp_path: Path) -> None:
    archive(cluster.address, tmp_path, group="lake")
    cluster.committed.clear()

    archive(cluster.address, tmp_path, group="lake")

    assert places(cluster, "lake") == {0: 10, 1: 10}


def test_the_name_of_the_group_is_the_options_or_the_sources(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    archive(cluster.address, tmp_path / "a", group="mine")
    archive(cluster.address, tmp_path / "b", source_option=("Group=theirs",))

    assert {group for group, _, _ in cluster.committed} == {"mine", "theirs"}
    with pytest.raises(ConfigError, match="--group"):
        load_options(
            ArchiveOptions, {"topics": ["t"], "to": "x", "group": "a b"}, {}, where="archive"
        )


def test_a_group_that_cannot_be_told_stops_nothing(
    cluster: FakeCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refuse: Callable[..., Any] = lambda *_: (16, {}, b"")  # noqa: E731 (no permission)
    monkeypatch.setattr(cluster, "_group_offset", refuse)

    archive(cluster.address, tmp_path, group="lake")

    assert "offsets were not committed group=lake" in caplog.text


@pytest.mark.spark
@pytest.mark.interop
def test_lag_resize_and_drain_see_what_an_archive_has_still_to_read(
    roquette: Place, tmp_path: Path
) -> None:
    topic = roquette.create("lake-orders", 4)
    publish(roquette.address, [Message(topic, b"%d" % n) for n in range(40)])

    async def seen() -> tuple[int, dict[str, int], set[bool]]:
        async with Client(roquette.address, group="TOOLS") as mq:
            run = mq.session.run
            lag = sum(row.lag for row in await run(group_lag("lake")) if row.topic == topic)
            left = await run(left_on("broker-a"))
            rows: dict[str, int] = {}
            for row in left.rows:
                if row.topic == topic:
                    rows[row.group] = rows.get(row.group, 0) + row.count
            (place,) = await run(places_of(topic))
            proofs = await run(prove(place, 2))
            return lag, rows, {row.proven for row in proofs if row.group == "lake"}

    archive(roquette.address, tmp_path, topics=(topic,), group="lake")
    assert asyncio.run(seen()) == (0, {}, {True})
    publish(roquette.address, [Message(topic, b"%d" % n) for n in range(40)])
    assert asyncio.run(seen()) == (40, {"lake": 40}, {False})
    archive(roquette.address, tmp_path, topics=(topic,), group="lake")
    assert asyncio.run(seen()) == (0, {}, {True})
