"""Tables by hours and by the values of a column, in both formats, as other readers see them; without a JVM."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.archive.local_streams import QUEUE, LocalStream, fill, small_batches
from tests.pipelines.archive.test_archive_pattern import run
from tests.pipelines.processes import wait_until
from tests.pipelines.seaweed import LAKE
from tests.pipelines.stores import serving
from tests.spark.records import make_record

from roquette.errors import ConfigError
from roquette_spark.pipelines.archive import pipeline
from roquette_spark.pipelines.archive.options import ArchiveOptions, table_root
from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.message_rows import RowForm
from roquette_spark.pipelines.kit.table_files import TableFiles
from roquette_spark.pipelines.rows import tasks
from roquette_spark.pipelines.rows.decoder import possible_columns

pytestmark = pytest.mark.spark

WORDS = ["a b", "ü/ö", "100%=x", "", None, "plain", "it's", "..", "01"]


def column(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


COLUMNS = [("n", "long"), ("word", "string"), ("yes", "boolean"), ("born", "date"), ("at", "string"), ("part", "double")]  # fmt: skip
SCHEMA = json.dumps({"type": "struct", "fields": [column(*each) for each in COLUMNS]})


def value(n: int) -> dict[str, Any]:
    return {
        "n": n,
        "word": WORDS[n % len(WORDS)],
        "yes": None if n % 3 == 2 else bool(n % 3),
        "born": f"1970-01-0{n % 2 + 1}",
        "at": f"2026-11-2{n % 2}T0{n % 5}:30:00+02:00",
        "part": n / 2,
    }


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster({}) as cluster:
        fill(cluster, map(value, range(45)))
        yield cluster


@pytest.fixture(
    params=[
        "delta",
        "iceberg",
        *(
            pytest.param(f"{each} in a store", marks=pytest.mark.long)
            for each in ("delta", "iceberg")
        ),
    ]
)
def options(
    request: pytest.FixtureRequest,
    cluster: FakeCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[ArchiveOptions]:
    monkeypatch.setattr(pipeline, "start_ranges", LocalStream)
    table_format, *in_store = request.param.split(" ", 1)
    given = small_batches(cluster, tmp_path, table_format=table_format, schema=SCHEMA)
    if not in_store:
        yield given
        return
    with serving("seaweed") as server:
        for name, value in server.environ().items():
            monkeypatch.setenv(name, value)
        assert wait_until(lambda: TableFiles("s3://plain").exists(""), 30)
        given = replace(given, to="s3://plain/lake", checkpoints=str(tmp_path / "positions"))
        if table_format == "iceberg":
            lake = f"s3://{LAKE}"
            given = replace(given, to=f"{lake}/roquette", catalog=server.catalog, warehouse=lake)
        yield given


def table(options: ArchiveOptions) -> Any:
    root = table_root(options, "t")
    if options.table_format == "delta":
        return DeltaTable(root if "://" in root else Path(root).as_uri())
    if options.catalog:
        found: Any = options.tables().open(root)
        return found._table
    uri = f"sqlite:///{root}/_roquette/catalog.db"
    return load_catalog("roquette", type="sql", uri=uri).load_table("roquette.t")


def by_own(options: ArchiveOptions) -> pa.Table:
    found = table(options)
    return found.to_pyarrow_table() if options.table_format == "delta" else found.scan().to_arrow()


def by_polars(options: ArchiveOptions) -> pa.Table:
    found = table(options)
    if options.table_format == "delta":
        return polars.scan_delta(found.table_uri).collect().to_arrow()
    return polars.scan_iceberg(found).collect().to_arrow()


def by_duckdb(options: ArchiveOptions) -> pa.Table:
    found = table(options)
    with duckdb.connect() as connection:
        if options.table_format == "delta":
            connection.register("t", found.to_pyarrow_dataset())
        else:
            found.scan().to_duckdb("t", connection)
        return connection.sql("SELECT * FROM t").to_arrow_table()


READERS: list[Callable[[ArchiveOptions], pa.Table]] = [by_own, by_polars, by_duckdb]
NAMES = ("n", "word", "yes", "born", "at", "part")


def seen(options: ArchiveOptions, *more: str) -> list[list[tuple[Any, ...]]]:
    """By each reader: values of all rows, by n."""
    found = []
    for read in READERS:
        rows = read(options)
        columns = [rows.column(name).to_pylist() for name in (*NAMES, *more)]
        found.append(sorted(zip(*columns, strict=True), key=lambda row: row[0]))
    return found


def expected(count: int, *, emptied: bool = False) -> list[tuple[Any, ...]]:
    rows = []
    for n in range(count):
        each = value(n)
        if emptied:
            each["word"] = each["word"] or None
        day = date.fromisoformat(each["born"])
        rows.append((n, each["word"], each["yes"], day, each["at"], each["part"]))
    return rows


def folders(options: ArchiveOptions, name: str = "t") -> Counter[str]:
    files = options.tables().open(table_root(options, name)).files
    paths = [each.path for each in files.list_tree()]
    found = [path.rpartition("/")[0] for path in paths if path.endswith(".parquet")]
    return Counter(each for each in found if "=" in each)


@pytest.mark.parametrize("name", ["word", "yes", "born", "_queue_id"])
def test_a_table_by_a_column_is_read_right_after_compaction_and_evolution(
    options: ArchiveOptions, cluster: FakeCluster, name: str
) -> None:
    result = run(options, partition=name, sort_by=("part",))

    summary = result.summary["topics"]["t"]
    assert (summary["rows"], summary["missing"], summary["twice"]) == (45, 0, 0)
    assert seen(options) == [expected(45, emptied=name == "word")] * 3
    there = folders(options)
    assert all(each.startswith(f"{name}=") for each in there)
    if name in ("yes", "_queue_id"):  # the others have too few files
        assert summary["files_joined"] >= 3
        assert set(there.values()) == {1}

    fill(cluster, map(value, range(45, 60)), late=1)
    cluster.queues[QUEUE].append(make_record(60, b"bad", queue_id=0))
    summary = run(options, partition=name).summary["topics"]["t"]
    assert (summary["missing"], summary["twice"], summary["quarantined"]) == (0, 0, 1)
    late = [None] * 45 + [1] * 15
    wide = [(*row, n) for row, n in zip(expected(60, emptied=name == "word"), late, strict=True)]
    assert seen(options, "late") == [wide] * 3
    assert folders(options, "t.quarantine") == {"dt=2023-11-14": 1}


def test_a_table_by_hours_has_them_in_utc(options: ArchiveOptions, cluster: FakeCluster) -> None:
    cluster.queues[QUEUE].append(make_record(45, b'{"n":45,"hour":7}', queue_id=0))
    summary = run(options, partition="hour", day_of="at").summary["topics"]["t"]

    assert (summary["rows"], summary["missing"], summary["twice"]) == (46, 0, 0)
    assert summary["rescued_fields"] == {"hour": 1}  # the name is ours
    for rows in seen(options, "dt", "hour"):
        found = {(str(row[-2]), row[-1]) for row in rows[:45]}
        local = {(n % 2, n % 5) for n in range(45)}
        assert found == {
            (f"2026-11-{20 + day - (hour < 2)}", (hour - 2) % 24) for day, hour in local
        }
        assert rows[45][-2:] == (None, None)
    assert "dt=2026-11-20/hour=0" in folders(options)
    if options.table_format == "iceberg":
        assert table(options).scan("hour = 0 and dt = '2026-11-20'").to_arrow().num_rows == 5


def test_a_table_keeps_its_partitions(options: ArchiveOptions) -> None:
    run(options, partition="yes")

    with pytest.raises(
        ConfigError, match=r"begun with .*--partition yes, .*: give the same, or another"
    ):
        run(options)
    assert run(options, partition="yes").summary["new_rows"] == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"partition": "part"}, "this column has no values for folders; .* the columns n, word,"),
        ({"partition": "nobody"}, "this column is not there"),
        ({"partition": "dt"}, "that is --partition day"),
        ({"partition": "hour", "day_of": "born"}, "column born of topic t has no hours"),
        ({"partition": "word", "sort_by": ("word",)}, "has no such column"),
    ],
)
def test_what_cannot_partition_is_said_before_anything_is_made(
    options: ArchiveOptions, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        run(replace(options, **more))
    assert not folders(options)


def test_too_many_values_stop_the_batch_and_nothing_counts(
    options: ArchiveOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        monkeypatch.context() as few,
        pytest.raises(PipelineError, match="more than 5 values of n in one batch"),
    ):
        few.setattr(tasks, "MOST_VALUES", 5)
        run(options, partition="n")
    assert folders(options) == {}
    assert run(options, partition="n").summary["rows"] == 45


def test_versions_that_are_kept_are_read_right_after_compaction(
    options: ArchiveOptions, cluster: FakeCluster
) -> None:
    run(options, partition="yes", keep_versions=4)
    fill(cluster, map(value, range(45, 60)))
    run(options, partition="yes", keep_versions=4)

    counts = [len(numbers) for numbers in versions(options)[-4:]]
    assert len(counts) == 4
    assert counts == sorted(counts)
    assert counts[-1] == 60
    there = sum(folders(options).values())

    fill(cluster, map(value, range(60, 65)))
    run(options, partition="yes")  # says nothing of versions
    assert len(versions(options)[-1]) == 65
    assert sum(folders(options).values()) < there


def versions(options: ArchiveOptions) -> list[list[int]]:
    """The newest four: the numbers that are read at each of them, the newest last."""
    found = table(options)
    if options.table_format == "delta":
        last = found.version()
        at = [DeltaTable(found.table_uri, version=last - back) for back in (3, 2, 1, 0)]
        arrow = [each.to_pyarrow_table() if _readable(each) else None for each in at]
    else:
        ordered = sorted(found.snapshots(), key=lambda each: each.sequence_number)[-4:]
        arrow = [found.scan(snapshot_id=each.snapshot_id).to_arrow() for each in ordered]
    return [sorted(each["n"].to_pylist()) for each in arrow if each is not None]


def _readable(found: DeltaTable) -> bool:
    files = TableFiles(found.table_uri.removeprefix("file://").rstrip("/"))
    there = {each.path for each in files.list_tree()}
    return there >= {
        unquote(path) for path in pa.table(found.get_add_actions())["path"].to_pylist()
    }


def test_fields_that_cannot_be_columns_are_left_to_the_rescued_ones() -> None:
    found = [column(name, "long") for name in ("n", "dt", "N", "a b", "hour", "_queue_id", "m")]
    schema = json.dumps({"type": "struct", "fields": found})

    def names(partition: str) -> list[str]:
        takes = RowForm("json", partition=partition).takes
        return [each["name"] for each in json.loads(possible_columns(schema, takes))["fields"]]

    assert names("day") == ["n", "hour", "m"]
    assert names("hour") == ["n", "m"]
