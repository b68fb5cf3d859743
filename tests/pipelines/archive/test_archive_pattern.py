"""Many topics by one stream: which a pattern takes, a table each, commits one after another, topics that come later."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.archive.local_streams import LocalSpark, LocalStream
from tests.pipelines.kit.test_health import page
from tests.pipelines.tables import log_files, places, rows
from tests.spark.records import make_record

from roquette.base.clock import SystemClock
from roquette.base.files import OsFiles
from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive import pipeline
from roquette_spark.pipelines.archive import pipeline as archive
from roquette_spark.pipelines.archive import topic as topic_module
from roquette_spark.pipelines.archive.pipeline import PIPELINE, ArchiveOptions, choose_topics
from roquette_spark.pipelines.archive.topic import TopicArchive
from roquette_spark.pipelines.kit.frame import Job, PipelineError, Progress, Result
from roquette_spark.pipelines.kit.running import run_pipeline
from roquette_spark.pipelines.kit.table_files import Commit
from roquette_spark.pipelines.tables.table import Table

pytestmark = pytest.mark.spark


def fill(cluster: FakeCluster, topic: str, count: int) -> None:
    """So many messages more in the topic's queue; 0 makes the topic."""
    queue = MessageQueue(topic, "broker-a", 0)
    there = cluster.queues.setdefault(queue, [])
    for offset in range(len(there), len(there) + count):
        body = json.dumps({"n": offset, "of": topic}).encode()
        there.append(make_record(offset, body, topic=topic, queue_id=0))


def fill_words(cluster: FakeCluster, topic: str, count: int) -> None:
    """Messages that are no JSON."""
    there = cluster.queues.setdefault(MessageQueue(topic, "broker-a", 0), [])
    for _ in range(count):
        there.append(make_record(len(there), b"words", topic=topic, queue_id=0))


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster({}) as cluster:
        for topic, count in (("a-1", 30), ("a-2", 20), ("a-3", 0), ("b-1", 5)):
            fill(cluster, topic, count)
        for topic in ("%DLQ%a-g", "%RETRY%a-g", "rmq_sys_a-x"):
            fill(cluster, topic, 1)
        yield cluster


@pytest.fixture
def options(cluster: FakeCluster, tmp_path: Path) -> ArchiveOptions:
    return ArchiveOptions(
        namesrv=cluster.address,
        topics_pattern="a-.*",
        to=str(tmp_path / "lake"),
        report=str(tmp_path / "report"),
        format="raw",
        compact=False,
    )


def run(options: ArchiveOptions, progress: Progress | None = None, **more: Any) -> Result:
    """In this process, without a JVM."""
    job = Job(
        directory="",
        open_spark=LocalSpark,  # type: ignore[arg-type]
        clock=SystemClock(),
        files=OsFiles(),
        progress=progress or Progress(),
    )
    if isinstance(progress, Coming):
        progress.stop = job.stop
    return PIPELINE.run(replace(options, **more), job)


@pytest.fixture(autouse=True)
def local_streams(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams without a JVM, except for tests that have a session."""
    if "spark" not in request.fixturenames:
        monkeypatch.setattr(pipeline, "start_ranges", LocalStream)


def archived(tmp_path: Path, topic: str) -> list[int]:
    """Offsets of a topic's table, whose bodies are the topic's own."""
    found = rows(log_files(tmp_path / "lake" / topic))
    assert {json.loads(row["body"])["of"] for row in found} == {topic}
    return [offset for _, _, offset in places(found)]


class Coming(Progress):
    """Makes a topic once the first are archived, and asks to stop once that is."""

    stop: threading.Event

    def __init__(self, cluster: FakeCluster, first: int = 50) -> None:
        self.cluster = cluster
        self.first = first
        self.said: list[str] = []
        self.pages = self.metrics = ""

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        if done >= self.first and MessageQueue("a-new", "broker-a", 0) not in self.cluster.queues:
            fill(self.cluster, "a-new", 7)
        if done < self.first + 7 or self.stop.is_set():
            return
        if not self.pages or page(self.port, "/readyz")[0] == 200:
            if self.pages:
                self.metrics = page(self.port, "/metrics")[1]
            self.stop.set()

    @property
    def port(self) -> int:
        return int(self.pages.rpartition(":")[2])

    def say(self, text: str) -> None:
        self.said.append(text)
        if "/healthz" in text:
            self.pages = text


@pytest.mark.parametrize(
    ("pattern", "topics", "taken"),
    [
        ("a-.*", (), {"a-1", "a-2", "a-3"}),
        ("a", ("b-1",), None),
        (".*-1", (), {"a-1", "b-1"}),
        (".*", (), {"a-1", "a-2", "a-3", "b-1"}),
        ("%DLQ%.*|b-.*", (), {"b-1", "%DLQ%a-g"}),
        (".*a-g|%RETRY%.*", (), {"%RETRY%a-g"}),
    ],
)
def test_a_pattern_takes_whole_names(
    options: ArchiveOptions, pattern: str, topics: tuple[str, ...], taken: set[str] | None
) -> None:
    chosen = replace(options, topics_pattern=pattern, topics=topics)
    if taken is None:
        with pytest.raises(ConfigError, match=r"no topic at .* matches --topics-pattern a$"):
            choose_topics(chosen)
        return

    assert set(choose_topics(chosen).shared) == taken


def test_what_is_not_taken_is_told_and_named_topics_have_streams_of_their_own(
    options: ArchiveOptions,
) -> None:
    named = ("%DLQ%a-g", "rmq_sys_a-x", "a-1")

    found = choose_topics(replace(options, topics_pattern=".*", topics=named[:1]))
    both = choose_topics(replace(options, topics=named))

    assert found.notes == (
        "matched by --topics-pattern: a-1, a-2, a-3, b-1",
        "not taken (the pattern does not say %RETRY%): %RETRY%a-g",
        "not taken (topics of the system are taken by --topics only): rmq_sys_a-x",
    )
    # A table that is new goes to the stream of the pattern, though it is named, too.
    assert (both.own, both.shared) == (named[:2], ("a-1", "a-2", "a-3"))
    with pytest.raises(ConfigError, match=r"--topics-pattern a\( is no regular expression"):
        choose_topics(replace(options, topics_pattern="a("))
    with pytest.raises(ConfigError, match="--topics is required"):
        PIPELINE.plan(replace(options, topics_pattern=""))


def test_many_topics_share_a_stream_and_later_ones_come_to_it(
    cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    result = run(options)

    assert (result.ok, result.summary["new_rows"]) == (True, 50)
    assert set(result.summary["topics"]) == {"a-1", "a-2"}  # a-3 has no message yet
    assert not list((tmp_path / "lake").glob("a-*/_roquette/checkpoint"))
    assert (
        len(list((tmp_path / "lake/_roquette.stream/_roquette/checkpoint/commits").glob("[0-9]")))
        == 1
    )
    fill(cluster, "a-3", 4)
    fill(cluster, "a-4", 6)
    fill(cluster, "a-1", 1)
    again = run(options, topics_pattern="a-[34]")  # the stream keeps what it has begun

    assert (again.ok, again.summary["new_rows"]) == (True, 11)
    assert [archived(tmp_path, f"a-{n}") for n in range(1, 5)] == [
        list(range(count)) for count in (31, 20, 4, 6)
    ]
    assert sum(each["missing"] + each["twice"] for each in again.summary["topics"].values()) == 0
    # Named alone, the topic still goes with the folder's stream; without its position nobody goes on.
    fill(cluster, "a-2", 2)
    assert run(options, topics_pattern="", topics=("a-2",)).summary["new_rows"] == 2
    (tmp_path / "lake/_roquette.stream").rename(tmp_path / "away")
    with pytest.raises(PipelineError, match="checkpoint is gone, so nobody knows where to go on"):
        run(options)


def test_an_end_between_the_commits_of_two_tables_loses_and_doubles_nothing(
    options: ArchiveOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit = TopicArchive.commit
    done: list[str] = []

    def dies(self: TopicArchive, *words: Any) -> None:
        if done:
            raise PipelineError("killed between two commits")
        commit(self, *words)
        done.append(self.topic)

    monkeypatch.setattr(TopicArchive, "commit", dies)
    with pytest.raises(PipelineError, match="killed between two commits"):
        run(options)
    monkeypatch.setattr(TopicArchive, "commit", commit)
    assert len(done) == 1

    result = run(options)

    assert (result.ok, result.summary["rows"]) == (True, 50)
    for topic, count in (("a-1", 30), ("a-2", 20)):
        found = places(rows(log_files(tmp_path / "lake" / topic)))
        assert found == [("broker-a", 0, offset) for offset in range(count)]


def test_ends_before_and_after_any_commit_lose_and_double_nothing(
    cluster: FakeCluster,
    options: ArchiveOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit = Table.commit
    left = 0

    def dies(self: Table, given: Commit, operation: str) -> int:
        nonlocal left
        left -= 1
        if left == 0:
            raise PipelineError("killed before a commit")
        version = commit(self, given, operation)
        if left == 1 and given.batch is not None:
            raise PipelineError("killed after a commit")
        return version

    monkeypatch.setattr(Table, "commit", dies)
    ends = 0
    for number in range(60):
        left = 1 + number % 5
        with contextlib.suppress(PipelineError):
            run(options, batch=15, check=False)
            break
        ends += 1
        if number < 4:  # topics come and grow meanwhile
            fill(cluster, f"a-{1 + number % 5}", 3)
    monkeypatch.setattr(Table, "commit", commit)
    result = run(options)

    assert ends > 4
    assert result.ok
    for number in range(1, 5):
        wanted = len(cluster.queues[MessageQueue(f"a-{number}", "broker-a", 0)])
        assert archived(tmp_path, f"a-{number}") == list(range(wanted))
    assert sum(each["missing"] + each["twice"] for each in result.summary["topics"].values()) == 0


def test_a_topic_comes_to_the_stream_while_it_runs(
    cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    progress = Coming(cluster)
    result = run(options, progress, follow=True, interval_s=1, metrics_listen="127.0.0.1:0")

    assert (result.ok, result.summary["new_rows"]) == (True, 57)
    assert archived(tmp_path, "a-new") == list(range(7))
    shown = [line for line in progress.metrics.splitlines() if 'topic="a-1"' in line]
    assert [line.partition("{")[0].removeprefix("roquette_pipeline_") for line in shown] == [
        "lag_messages",
        "last_batch",
        "quarantined_messages",
        "unmet_rows_total",
        "rows_total",
        "last_commit_age_seconds",
    ]
    with pytest.raises(ConfigError, match="--metrics-listen is for --follow"):
        run(options, metrics_listen="127.0.0.1:0")


def test_rows_are_in_order_within_files_also_after_these_are_joined(
    cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    # A body begins with {"n": OFFSET, so that their order as bytes is not that of the offsets.
    ordered = {"sort_by": ("body", "queue_offset"), "batch": 8}
    root = tmp_path / "lake/a-1"
    run(options, **ordered)
    files = log_files(root)

    assert len(files) > 2
    assert all(_is_ordered(file) for file in files)
    run(options, **ordered, compact=True, small_files=2)
    [joined] = log_files(root)
    assert _is_ordered(joined)
    wanted = [json.dumps({"n": n, "of": "a-1"}).encode() for n in range(30)]
    table = DeltaTable(str(root)).to_pyarrow_dataset()
    assert sorted(table.to_table(["body"])["body"].to_pylist()) == sorted(wanted)
    query = "SELECT count(*), min(queue_offset), max(queue_offset) FROM archived"
    assert duckdb.from_arrow(table).query("archived", query).fetchall() == [(30, 0, 29)]
    for name, message in (("nonsense", "has no such column"), ("keys", "have no order")):
        with pytest.raises(ConfigError, match=f"--sort-by {name}: .* {message}"):
            run(options, sort_by=(name,))


def _is_ordered(file: Path) -> bool:
    bodies = [row["body"] for row in rows([file])]
    return bodies == sorted(bodies)


def test_tables_of_iceberg_share_a_stream_and_are_in_order(
    cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    given = {"table_format": "iceberg", "sort_by": ("body",), "small_files": 2, "batch": 15}
    run(options, **given)
    fill(cluster, "a-1", 5)
    assert run(options, **given, compact=True).ok

    catalog_file = tmp_path / "lake/a-1/_roquette/catalog.db"
    catalog = load_catalog("roquette", type="sql", uri=f"sqlite:///{catalog_file}")
    [name] = catalog.list_tables("roquette")
    table = catalog.load_table(name)
    bodies = table.scan().to_arrow()["body"].to_pylist()
    assert len(table.inspect.files()) == 1
    assert bodies == sorted(json.dumps({"n": n, "of": "a-1"}).encode() for n in range(35))


def test_json_topics_share_a_stream_of_spark(
    spark: Any, cluster: FakeCluster, options: ArchiveOptions, tmp_path: Path
) -> None:
    following = replace(
        options,
        format="json",
        follow=True,
        interval_s=1,
        source_option=("partitionDiscoveryIntervalMs=0",),
    )
    fill_words(cluster, "a-3", 4)
    progress = Coming(cluster, first=54)

    def watched(given: ArchiveOptions, job: Job) -> Result:
        progress.stop = job.stop
        return archive.run(given, job)

    result = run_pipeline(replace(PIPELINE, run=watched), following, progress=progress)

    assert (result.ok, result.summary["new_rows"]) == (True, 61)
    assert result.summary["topics"]["a-3"]["quarantined"] == 4
    assert any("in the sample of topic a-3 is a JSON object" in line for line in progress.said)
    for topic, count in (("a-1", 30), ("a-2", 20), ("a-new", 7)):
        found = rows(log_files(tmp_path / "lake" / topic))
        assert sorted((row["of"], row["n"]) for row in found) == [(topic, n) for n in range(count)]


@pytest.fixture
def no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sample of every topic has none; reading one takes a JVM."""
    monkeypatch.setattr(topic_module, "read_sample", lambda *given, rows: [b"[]"])


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@pytest.mark.parametrize("evolution", ["add", "fixed", "fail"])
def test_a_topic_without_objects_is_quarantined_and_stops_no_other(
    cluster: FakeCluster,
    options: ArchiveOptions,
    tmp_path: Path,
    no_objects: None,
    evolution: str,
    table_format: str,
) -> None:
    for topic in ("a-1", "a-2"):
        cluster.queues[MessageQueue(topic, "broker-a", 0)].clear()
        fill_words(cluster, topic, 3)
    given = {"format": "json", "schema_evolution": evolution, "table_format": table_format}
    first = run(options, **given).summary
    assert (first["rows"], first["quarantined"]) == (0, 6)

    fill_words(cluster, "a-1", 1)
    fill(cluster, "a-2", 5)
    if evolution == "fail":
        with pytest.raises(PipelineError, match="of a-2 has fields without a column: n, of"):
            run(options, **given)
        given["schema_evolution"] = "fixed"
    found = run(options, **given)
    topics = found.summary["topics"]
    assert found.ok
    assert [topics[name]["quarantined"] for name in ("a-1", "a-2")] == [4, 3]
    assert topics["a-2"]["rows"] == 5
    assert topics["a-2"]["columns_added"] == (["n", "of"] if evolution == "add" else [])
    assert topics["a-2"]["rescued_fields"] == ({} if evolution == "add" else {"n": 5, "of": 5})


def test_a_topic_with_a_stream_of_its_own_needs_objects_to_begin(
    options: ArchiveOptions, no_objects: None
) -> None:
    with pytest.raises(PipelineError, match="is a JSON object: use --format raw"):
        run(options, topics=("b-1",), topics_pattern="", format="json")
