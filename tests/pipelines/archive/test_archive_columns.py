"""Topics of one stream without the columns that options name: theirs is a table with nulls, and no other topic suffers."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.archive.local_streams import LocalSpark, LocalStream
from tests.pipelines.fake_registry import fake_registry
from tests.pipelines.rows.test_registry_rows import avro
from tests.spark.records import make_record

from roquette.base.clock import SystemClock
from roquette.base.files import OsFiles
from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive import pipeline
from roquette_spark.pipelines.archive import topic as topic_module
from roquette_spark.pipelines.archive.pipeline import PIPELINE, ArchiveOptions
from roquette_spark.pipelines.archive.topic import with_places
from roquette_spark.pipelines.kit.frame import Job, Progress, Result
from roquette_spark.pipelines.kit.message_rows import RowForm

GOOD = [
    {"region": "north", "day": "2026-01-02", "n": 2},
    {"region": "south", "day": "2026-01-03", "n": 1},
]
BARE = [{"n": 4}, {"n": 3}]
ODD = [{"region": {"code": 1}, "n": [7]}]


class Topics(FakeCluster):
    """Remembers the bodies, so that columns are inferred from them without a JVM."""

    def __init__(self) -> None:
        super().__init__({})
        self.bodies: dict[str, list[dict[str, Any]]] = {}

    def fill(self, topic: str, bodies: list[dict[str, Any]]) -> None:
        """These messages more in the topic's queue."""
        self.bodies.setdefault(topic, []).extend(bodies)
        self.fill_raw(topic, [json.dumps(body).encode() for body in bodies])

    def fill_raw(self, topic: str, bodies: list[bytes]) -> None:
        """Messages with these bytes."""
        there = self.queues.setdefault(MessageQueue(topic, "broker-a", 0), [])
        for body in bodies:
            there.append(make_record(len(there), body, topic=topic, queue_id=0))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Topics]:
    with Topics() as cluster:

        def sample(spark: Any, options: Any, topic: str, *given: Any, rows: int) -> list[bytes]:
            return [json.dumps(body).encode() for body in cluster.bodies[topic]]

        monkeypatch.setattr(pipeline, "start_ranges", LocalStream)
        monkeypatch.setattr(topic_module, "read_sample", sample)
        yield cluster


class Said(Progress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def options(cluster: Topics, tmp_path: Path) -> ArchiveOptions:
    return ArchiveOptions(
        namesrv=cluster.address,
        topics_pattern="t-.*",
        to=str(tmp_path / "lake"),
        report=str(tmp_path / "report"),
    )


def run(options: ArchiveOptions, said: Said | None = None, **more: Any) -> Result:
    job = Job(
        directory="",
        open_spark=LocalSpark,  # type: ignore[arg-type]
        clock=SystemClock(),
        files=OsFiles(),
        progress=said or Said(),
    )
    return PIPELINE.run(replace(options, **more), job)


def table(tmp_path: Path, topic: str) -> DeltaTable:
    return DeltaTable(str(tmp_path / "lake" / topic))


LAYOUTS: list[dict[str, Any]] = [
    {"partition": "region"},
    {"day_of": "day"},
    {"day_of": "day", "partition": "hour"},
    {"sort_by": ("region", "n")},
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_topic_without_the_column_stops_no_other(
    cluster: Topics,
    options: ArchiveOptions,
    tmp_path: Path,
    layout: dict[str, Any],
    table_format: str,
) -> None:
    cluster.fill("t-good", GOOD)
    cluster.fill("t-bare", BARE)
    given, said = {**layout, "table_format": table_format}, Said()

    first = run(options, said, **given)
    cluster.fill("t-late", BARE)
    cluster.fill("t-odd", ODD)
    cluster.fill("t-bare", GOOD)
    second = run(options, said, **given)

    assert first.ok and second.ok
    topics = second.summary["topics"]
    names = ("t-good", "t-bare", "t-late", "t-odd")
    assert [topics[name]["rows"] for name in names] == [2, 4, 2, 1]
    assert sum(topics[name]["quarantined"] for name in names) == 0
    assert topics["t-good"]["lacks"] == [] and topics["t-late"]["lacks"]
    assert any("topic t-bare has no column for" in line for line in said.lines)


def test_what_comes_to_the_column_later_is_there(
    cluster: Topics, options: ArchiveOptions, tmp_path: Path
) -> None:
    cluster.fill("t-good", GOOD)
    cluster.fill("t-bare", BARE)
    run(options, partition="region", sort_by=("n",))
    cluster.fill("t-bare", [{"n": 6, "region": "east"}, {"n": 5, "region": "east"}])
    cluster.fill("t-bare", [{"n": 7, "region": 8}])
    found = run(options, partition="region", sort_by=("n",)).summary["topics"]["t-bare"]

    rows = table(tmp_path, "t-bare").to_pyarrow_table(columns=["n", "region"]).to_pylist()
    assert sorted((row["n"], row["region"]) for row in rows) == [
        (3, None),
        (4, None),
        (5, "east"),
        (6, "east"),
        (7, "8"),
    ]
    assert (found["lacks"], found["rescued"], found["missing"]) == ([], 0, 0)


def test_a_column_to_sort_by_is_used_from_when_it_is_there(
    cluster: Topics, options: ArchiveOptions, tmp_path: Path
) -> None:
    cluster.fill("t-good", GOOD)
    cluster.fill("t-bare", [{"other": 1}])
    run(options, sort_by=("n",), compact=False)
    cluster.fill("t-bare", BARE * 2)
    run(options, sort_by=("n",), compact=False)

    newest = max(table(tmp_path, "t-bare").file_uris())
    found = [row["n"] for row in pq.read_table(newest).to_pylist()]
    assert found == [3, 3, 4, 4]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_column_that_no_topic_has_is_a_mistake_and_the_next_run_may_have_another(
    cluster: Topics, options: ArchiveOptions, tmp_path: Path, layout: dict[str, Any]
) -> None:
    cluster.fill("t-bare", BARE)
    cluster.fill("t-more", BARE)
    with pytest.raises(ConfigError, match="no topic of the stream has a column for it"):
        run(options, **layout)

    found = run(options, partition="n").summary
    assert (found["rows"], found["quarantined"]) == (4, 0)
    assert "region" not in table(tmp_path, "t-bare").schema().to_arrow().names


def test_a_schema_that_is_given_must_have_the_columns(
    cluster: Topics, options: ArchiveOptions
) -> None:
    cluster.fill("t-good", GOOD)
    with pytest.raises(ConfigError, match="--partition region"):
        run(options, schema='{"type":"struct","fields":[]}', partition="region")


def test_only_what_does_not_fit_becomes_text() -> None:
    def body(**columns: Any) -> str:
        fields = [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in columns.items()
        ]
        return json.dumps({"type": "struct", "fields": fields})

    struct = {"type": "struct", "fields": []}
    for form, lacks in (
        (RowForm("json", body(r="long"), partition="r"), []),
        (RowForm("json", body(r="double"), partition="r"), ["--partition r"]),
        (RowForm("json", body(r=struct), partition="r"), ["--partition r"]),
        (RowForm("json", body(R="long"), partition="r"), ["--partition r"]),
        (RowForm("json", body(), partition="_queue_id"), []),
        (RowForm("json", body(), partition="hour"), []),
        (RowForm("json", body(d="date"), day_of="d"), []),
        (RowForm("json", body(d="date"), day_of="d", partition="hour"), ["--day-of d"]),
        (RowForm("json", body(), day_of="d", partition="d"), ["--partition d"]),
        (RowForm("json", body(), day_of="d", partition="r"), ["--day-of d", "--partition r"]),
    ):
        found, said = with_places(form)
        assert said == lacks
        fields = {each["name"]: each["type"] for each in json.loads(found.body_schema)["fields"]}
        assert all(fields[option.split()[1]] == "string" for option in said)
        assert len({name.lower() for name in fields}) == len(fields)


def test_schemas_of_a_registry_may_lack_it_too(
    cluster: Topics, options: ArchiveOptions, tmp_path: Path
) -> None:
    def record(**fields: str) -> dict[str, Any]:
        found = [{"name": name, "type": kind} for name, kind in fields.items()]
        return {"type": "record", "name": "R", "fields": found}

    good, bare, later = (
        record(n="int", region="string"),
        record(n="int"),
        record(n="int", region="int"),
    )
    with fake_registry() as fake:
        for topic, number, schema in (("t-good", 1, good), ("t-bare", 2, bare)):
            fake.register(f"{topic}-value", number, schema)
        cluster.fill_raw("t-good", [avro(good, 1, {"n": 1, "region": "north"})])
        cluster.fill_raw("t-bare", [avro(bare, 2, {"n": 2})])
        given = {"format": "registry", "registry": fake.url, "partition": "region"}
        run(options, **given)
        fake.register("t-bare-value", 3, later)
        cluster.fill_raw("t-bare", [avro(later, 3, {"n": 3, "region": 4})])
        found = run(options, **given).summary

    rows = table(tmp_path, "t-bare").to_pyarrow_table(columns=["n", "region"]).to_pylist()
    assert sorted((row["n"], row["region"]) for row in rows) == [(2, None), (3, "4")]
    assert (found["rows"], found["quarantined"], found["rescued"]) == (3, 0, 0)
