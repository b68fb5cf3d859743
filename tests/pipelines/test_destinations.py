"""No pipeline touches what it did not write: every destination, with every mistake, byte for byte."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.old_places import old_queues, unpack
from tests.spark.records import make_record

from roquette.errors import RoquetteError
from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive import pipeline as archive
from roquette_spark.pipelines.dlq import pipeline as dlq
from roquette_spark.pipelines.kit import running
from roquette_spark.pipelines.kit.frame import Pipeline, PipelineOptions
from roquette_spark.pipelines.kit.running import run_pipeline
from roquette_spark.pipelines.replay import pipeline as replay
from roquette_spark.pipelines.state import pipeline as current_state
from roquette_spark.pipelines.traffic import pipeline as traffic

SCHEMA = "n long, name string, v long"
MISTAKES = ("key", "topic", "format", "name server", "none")
FOREIGN = (
    "sales.parquet",
    "dt=2020-01-01/part-00000-1.c000.snappy.parquet",
    "sub/dt=2020-01-01/batch-0000000000-00000.parquet",
    "sub/_delta_log/readme.txt",
    ".hidden",
)
CALLED_AS_OURS = (
    "dt=2020-01-01/batch-0000000000-00000.parquet",
    "snapshot-0000000001/deleted=false/part-00000.parquet",
    "CURRENT",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    queues = old_queues()
    for topic in ("other", "%DLQ%g"):
        queue = MessageQueue(topic, "broker-a", 0)
        queues[queue] = [make_record(0, b"{}", topic=topic, queue_id=0)]
    with FakeCluster(queues) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of topic T (json, state), U (raw), A (avro) that 1b94d96 has made."""
    return unpack("tables", tmp_path_factory.mktemp("old"))


def foreign(root: Path, names: tuple[str, ...] = FOREIGN + CALLED_AS_OURS) -> None:
    """Files of other programs."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".parquet"):
            pq.write_table(pa.table({"theirs": [1, 2, 3]}), root / name)
        else:
            (root / name).write_text("theirs")


def delta(root: Path) -> None:
    """Another program's Delta table: one version, one file."""
    (root / "_delta_log").mkdir(parents=True)
    pq.write_table(pa.table({"x": [1]}), root / "part-0.parquet")
    lines = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "x", "schemaString": "{}", "partitionColumns": [], "format": {}}},
        {"add": {"path": "part-0.parquet", "size": 1, "modificationTime": 1, "dataChange": True}},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (root / "_delta_log" / f"{0:020}.json").write_text(text)


def old_table(name: str) -> Callable[[Path, Path], None]:
    def put(root: Path, tables: Path) -> None:
        shutil.copytree(tables / name, root)
        foreign(root, FOREIGN)

    return put


def nested(root: Path, tables: Path) -> None:
    for name in ("json/T", "state/T"):
        shutil.copytree(tables / name, root / name)


def in_link(make: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
    def put(root: Path, tables: Path) -> None:
        make(root.parent / "linked", tables)
        root.symlink_to(root.parent / "linked")

    return put


def dangling(root: Path, tables: Path) -> None:
    root.symlink_to(root.parent / "nowhere")


DESTINATIONS: dict[str, Callable[[Path, Path], None]] = {
    "foreign": lambda root, tables: foreign(root),
    "delta": lambda root, tables: delta(root),
    "damaged log": lambda root, tables: (foreign(root / "_delta_log"), None)[1],
    "archive of T": old_table("json/T"),
    "quarantine of T": old_table("json/T.quarantine"),
    "archive of U": old_table("raw/U"),
    "state of T": old_table("state/T"),
    "empty": lambda root, tables: root.mkdir(),
    "missing": lambda root, tables: None,
    "file": lambda root, tables: (root.write_text("theirs"), None)[1],
    "link to foreign": in_link(lambda root, tables: foreign(root)),
    "link to empty": in_link(lambda root, tables: root.mkdir()),
    "dangling link": dangling,
    "nested": nested,
}
NEW = {"empty", "missing", "link to empty"}  # where a table may be begun
OWN = {"archive": "archive of T", "state": "state of T"}  # where it goes on


def contents(root: Path) -> dict[str, str]:
    """Every file's digest, and where links lead."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"link {path.readlink()}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def refusal(work: Callable[[], object]) -> str:
    """What it said when it refused; "" when it ran."""
    try:
        work()
    except RoquetteError as error:
        text = str(error)
        assert text
        assert "\n" not in text
        assert "Traceback" not in text
        return text
    return ""


def table_pipeline(
    name: str, mistake: str, common: dict[str, Any], to: Path
) -> tuple[Pipeline[Any], PipelineOptions]:
    topic = "nothing" if mistake == "topic" else "T"
    if name == "archive":
        return archive.PIPELINE, archive.ArchiveOptions(
            topics=(topic,),
            to=str(to.parent),
            schema=SCHEMA,
            day_of="nowhere" if mistake == "key" else "store_timestamp",
            format="avro" if mistake == "format" else "json",
            check=False,
            compact=False,
            **common,
        )
    return current_state.PIPELINE, current_state.CurrentStateOptions(
        topic=topic,
        to=str(to),
        key=("wrong",) if mistake == "key" else ("n",),
        version="nothing(" if mistake == "format" else "v",
        schema=SCHEMA,
        **common,
    )


@pytest.mark.promise("Spark and pipelines", "a pipeline leaves what is not its own")
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("place", DESTINATIONS)
@pytest.mark.parametrize("name", ["archive", "state"])
def test_tables_leave_what_is_not_theirs(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    cluster: FakeCluster,
    tables: Path,
    tmp_path: Path,
    name: str,
    place: str,
    mistake: str,
) -> None:
    to = tmp_path / "lake/T"
    to.parent.mkdir()
    DESTINATIONS[place](to, tables)
    foreign(Path(f"{to.parent}/beside"))
    before = contents(tmp_path)
    namesrv = "127.0.0.1:1" if mistake == "name server" else cluster.address
    common = {"namesrv": namesrv, "report": str(tmp_path / "report")}
    pipeline, options = table_pipeline(name, mistake, common, to)

    dry = refusal(lambda: pipeline.plan(options))
    assert contents(tmp_path) == before
    if dry or mistake in ("topic", "name server"):
        monkeypatch.setattr(running, "open_session", None)  # refused before Spark starts
    else:
        request.getfixturevalue("spark")
    said = refusal(lambda: run_pipeline(pipeline, options))

    after = contents(tmp_path)
    mine = place == OWN[name]
    assert bool(said) == (mistake != "none" or not (mine or place in NEW)), said
    assert said.startswith(dry)
    if mine:
        theirs = {path for path in before if path.endswith(FOREIGN)}
        before = {path: before[path] for path in theirs | {p for p in before if "beside" in p}}
        assert len(before) > len(FOREIGN)
    assert before.items() <= after.items()
    if said and not mine:  # a place of its own is all that may have been made
        new = {path for path in after.keys() - before.keys() if not path.startswith("report")}
        assert all("/_roquette/" in path for path in new), new
        assert place in NEW or not new


@pytest.mark.promise("Spark and pipelines", "a pipeline leaves what is not its own")
@pytest.mark.parametrize("place", DESTINATIONS)
@pytest.mark.parametrize("mistake", ["name server", "none"])
@pytest.mark.parametrize("name", ["replay", "dlq", "report", "routes"])
def test_other_destinations_are_left_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
    cluster: FakeCluster,
    tables: Path,
    tmp_path: Path,
    name: str,
    place: str,
    mistake: str,
) -> None:
    monkeypatch.setattr(running, "open_session", None)
    to = tmp_path / "to"
    DESTINATIONS[place](to, tables)
    before = contents(tmp_path)
    common: dict[str, Any] = {
        "namesrv": "127.0.0.1:1" if mistake == "name server" else cluster.address,
        "report": str(to if name == "report" else tmp_path / "report"),
    }
    options: dict[str, Any] = {
        "replay": (
            replay.PIPELINE,
            replay.ReplayOptions(topics=("T",), to_topic="other", state=str(to), **common),
        ),
        "dlq": (
            dlq.PIPELINE,
            dlq.DlqOptions(groups=("nobody",), send=True, audit=str(to), **common),
        ),
        "report": (archive.PIPELINE, archive.ArchiveOptions(topics=("no",), to="x", **common)),
        "routes": (
            traffic.PIPELINE,
            traffic.TrafficOptions(
                topics=("T",), routes=str(to), snapshots=1, messages=False, lag=False, **common
            ),
        ),
    }
    pipeline, given = options[name]

    for work in (lambda: pipeline.plan(given), lambda: run_pipeline(pipeline, given)):
        refusal(work)

    assert before.items() <= contents(tmp_path).items()
