"""Change events become the current row of each key."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from tests.client.fake_cluster import FakeCluster
from tests.pipelines.tables import folder_files, log_files, rows
from tests.spark.records import make_record

from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.pipelines.kit.frame import PipelineError, Result
from roquette_spark.pipelines.kit.running import run_pipeline
from roquette_spark.pipelines.kit.stream import TableHealth
from roquette_spark.pipelines.kit.table_files import Commit
from roquette_spark.pipelines.state import pipeline
from roquette_spark.pipelines.state.bucket_files import BucketRules
from roquette_spark.pipelines.state.change_rows import Bucket, hashes_of, key_of
from roquette_spark.pipelines.state.pipeline import (
    PIPELINE,
    POINTER,
    CurrentState,
    CurrentStateOptions,
    StateView,
)
from roquette_spark.pipelines.tables.delta_table import DeltaTable
from roquette_spark.values.offsets import QueueRange

pytestmark = pytest.mark.spark

Q0, Q1 = (MessageQueue("T", "broker-a", queue_id) for queue_id in range(2))


class Changes:
    """A topic of changes that grows."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._queues = cluster.queues

    def add(self, queue: MessageQueue, *bodies: dict[str, Any] | bytes) -> None:
        records = self._queues[queue]
        for each in bodies:
            body = each if isinstance(each, bytes) else json.dumps(each).encode()
            records.append(make_record(len(records), body, queue_id=queue.queue_id))


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster({Q0: [], Q1: []}) as cluster:
        yield cluster


@pytest.fixture
def changes(cluster: FakeCluster) -> Changes:
    return Changes(cluster)


@pytest.fixture
def options(cluster: FakeCluster, tmp_path: Path) -> CurrentStateOptions:
    return CurrentStateOptions(
        namesrv=cluster.address,
        topic="T",
        to=str(tmp_path / "state"),
        report=str(tmp_path / "report"),
        key=("id",),
        version="v",
        delete_when="op = 'd'",
        schema="id int, v long, op string, name string",
    )


def run(options: CurrentStateOptions, **more: Any) -> Result:
    return run_pipeline(PIPELINE, replace(options, **more))


def now(root: Path) -> dict[int, str]:
    """id -> name of the rows that are not deleted, by the pointer and by the log alike."""
    by_log = log_files(root)
    folder = json.loads((root / POINTER).read_text())["snapshot"]
    by_pointer = [file for file in folder_files(root) if file.is_relative_to(root / folder)]
    assert sorted(by_log) == by_pointer
    live = [file for file in by_log if file.parent.name == "deleted=false"]
    return {row["id"]: row["name"] for row in rows(live)}


def test_the_newest_version_wins_in_whatever_order_changes_come(
    spark: Any, changes: Changes, options: CurrentStateOptions, tmp_path: Path
) -> None:
    changes.add(
        Q0,
        {"id": 1, "v": 1, "op": "c", "name": "one"},
        {"id": 2, "v": 5, "op": "u", "name": "two, late"},
        {"id": 3, "v": 1, "op": "c", "name": "three"},
    )
    changes.add(Q1, {"id": 2, "v": 4, "op": "c", "name": "two, early"})
    run(options)
    assert now(tmp_path / "state") == {1: "one", 2: "two, late", 3: "three"}

    changes.add(
        Q1,
        {"id": 1, "v": 3, "op": "u", "name": "one, newer"},
        {"id": 1, "v": 2, "op": "u", "name": "one, older"},
        {"id": 3, "v": 9, "op": "d", "name": None},
    )
    run(options)
    assert now(tmp_path / "state") == {1: "one, newer", 2: "two, late"}

    changes.add(Q0, {"id": 3, "v": 8, "op": "u", "name": "from before it was deleted"})
    result = run(options)
    assert now(tmp_path / "state") == {1: "one, newer", 2: "two, late"}
    assert (result.summary["rows"], result.summary["deleted_remembered"]) == (2, 1)

    changes.add(Q0, {"id": 3, "v": 10, "op": "c", "name": "again"})
    result = run(options)
    assert now(tmp_path / "state") == {1: "one, newer", 2: "two, late", 3: "again"}
    assert (result.ok, result.summary["version"]) == (True, 4)


def test_a_batch_that_is_done_again_changes_nothing(
    spark: Any,
    cluster: FakeCluster,
    changes: Changes,
    options: CurrentStateOptions,
    tmp_path: Path,
) -> None:
    changes.add(Q0, *({"id": i % 7, "v": i, "op": "u", "name": f"n{i}"} for i in range(50)))
    run(options, batch=20, group="state")
    assert cluster.committed == {("state", "T", 0): 50, ("state", "T", 1): 0}
    before, files = now(tmp_path / "state"), log_files(tmp_path / "state")
    for name in ("2", ".2.crc"):
        (tmp_path / "state/_roquette/checkpoint/commits" / name).unlink()
    (tmp_path / "state" / POINTER).write_text("killed before this was written")

    run(options)

    assert before == {i % 7: f"n{i}" for i in range(43, 50)}
    assert (now(tmp_path / "state"), log_files(tmp_path / "state")) == (before, files)


@pytest.mark.parametrize("version", ["v", "v + 1"], ids=["read by tasks", "read by Spark"])
def test_what_has_no_key_or_cannot_be_read_is_kept_apart(
    spark: Any, changes: Changes, options: CurrentStateOptions, tmp_path: Path, version: str
) -> None:
    changes.add(Q0, {"id": 1, "v": 1, "name": "one"}, {"v": 2, "name": "nobody"}, b"no json")

    result = run(options, version=version)

    assert (result.ok, result.status) == (True, 3)
    assert "2 messages of this run went to the quarantine" in result.last_line
    assert (run(options, version=version).status, result.summary["quarantined_now"]) == (0, 2)
    apart = rows(folder_files(tmp_path / "state.quarantine"))
    assert {row["error"] for row in apart} == {
        "a column of the key is null",
        "the body is no JSON object",
    }
    assert now(tmp_path / "state") == {1: "one"}
    assert result.summary["quarantined"] == 2


def test_debeziums_envelope_is_understood(
    spark: Any, changes: Changes, options: CurrentStateOptions, tmp_path: Path
) -> None:
    def event(op: str, at: int, before: Any, after: Any) -> dict[str, Any]:
        return {"payload": {"op": op, "ts_ms": at, "before": before, "after": after}}

    one, other = {"id": 1, "name": "one"}, {"id": 1, "name": "other"}
    two = {"id": 2, "name": "two"}
    changes.add(Q0, event("c", 1, None, one), event("u", 3, one, other), event("c", 2, None, two))
    changes.add(Q0, event("d", 4, two, None), b"")

    result = run(options, envelope="debezium", version="", delete_when="", schema="")

    assert now(tmp_path / "state") == {1: "other"}
    assert result.summary["quarantined"] == 0


def test_without_a_version_the_time_of_storing_decides(
    spark: Any, changes: Changes, options: CurrentStateOptions, tmp_path: Path
) -> None:
    changes.add(Q0, {"id": 1, "name": "first"}, {"id": 1, "name": "second"})

    run(options, version="", delete_when="")

    assert now(tmp_path / "state") == {1: "second"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"key": ("nr",)}, "--key nr is no column of the body; those are: id, v, op, name"),
        ({"version": "when"}, "--version 'when' or --delete-when \"op = 'd'\" cannot be used: "),
        ({"envelope": "debezium"}, "bodies have no after, before, ts_ms: that is not Debezium's"),
    ],
)
def test_wrong_options_are_told_in_one_line(
    spark: Any, changes: Changes, options: CurrentStateOptions, more: dict[str, Any], message: str
) -> None:
    changes.add(Q0, {"id": 1, "v": 1, "name": "one"})

    with pytest.raises(ConfigError) as error:
        run(options, **more)

    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_old_deletions_are_forgotten(
    spark: Any, changes: Changes, options: CurrentStateOptions, tmp_path: Path
) -> None:
    changes.add(Q0, {"id": 1, "v": 1, "op": "d"}, {"id": 2, "v": 1, "op": "c", "name": "two"})
    run(options)
    changes.add(Q0, {"id": 2, "v": 2, "op": "u", "name": "two"})

    result = run(options, keep_deleted_days=0.0)

    assert (result.summary["rows"], result.summary["deleted_remembered"]) == (1, 0)


def viewed(spark: Any, root: Path) -> dict[int, str]:
    """id -> name, by the views of three engines, which agree."""
    import duckdb

    from roquette_spark.pipelines.tables.delta_table import open_table
    from roquette_spark.pipelines.tables.table_source import open_frame

    table = open_table(str(root))
    view = StateView.of_schema(table.files.root, table.snapshot.schema, ["id"])
    assert (root / "_view/duckdb.sql").read_text() == view.files()["duckdb.sql"]
    with duckdb.connect() as connection:
        connection.register("source", deltalake.DeltaTable(str(root)).to_pyarrow_dataset())
        by_duckdb = connection.sql(view.duckdb("source")).to_arrow_table().to_pylist()
    given: dict[str, Any] = {}
    exec((root / "_view/polars.py").read_text(), given)
    by_polars = given["current_state"].collect().to_dicts()
    open_frame(spark, table).createOrReplaceTempView("state_source")
    by_spark = [row.asDict() for row in spark.sql(view.spark("state_source")).collect()]
    found = [
        sorted((row["id"], row["name"], row["_version"], row["_queue_offset"]) for row in rows)
        for rows in (by_duckdb, by_polars, by_spark)
    ]
    assert found[0] == found[1] == found[2]
    return {row[0]: row[1] for row in found[0]}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a few rows are kept as large ones are."""
    monkeypatch.setattr(pipeline, "RULES", BucketRules(small_rows=10, bucket_rows=40))


def killed_before_spark_knew(root: Path, batch: int) -> None:
    """The state of a kill between a batch's commit in the table and Spark's note of it."""
    for name in (str(batch), f".{batch}.crc"):
        (root / "_roquette/checkpoint/commits" / name).unlink()


def test_a_batch_costs_what_it_changes_and_views_have_one_row_per_key(
    spark: Any, changes: Changes, options: CurrentStateOptions, tmp_path: Path, small: None
) -> None:
    root = tmp_path / "state"
    changes.add(Q0, *({"id": i, "v": 1, "op": "c", "name": f"n{i}"} for i in range(100)))
    first = run(options)
    assert (first.summary["buckets_rewritten"], first.summary["rows"]) == (1, 100)
    base, expected = set(log_files(root)), {i: f"n{i}" for i in range(100)}

    changes.add(Q1, {"id": 3, "v": 2, "op": "u", "name": "new"}, {"id": 4, "v": 2, "op": "d"})
    changes.add(Q0, {"id": 5, "v": 0, "op": "u", "name": "late"})
    result = run(options)

    expected = {**expected, 3: "new"}
    del expected[4]
    assert viewed(spark, root) == expected
    assert base < set(log_files(root))
    summary = result.summary
    assert (summary["rows"], summary["deleted_remembered"], summary["keys_twice"]) == (99, 1, 0)
    assert summary["buckets_rewritten"] == 0
    # Whoever knows no view still reads the first version, although files were replaced and deleted since.
    assert (
        summary["current"] == first.summary["current"] == json.loads((root / POINTER).read_text())
    )

    files = log_files(root)
    killed_before_spark_knew(root, 1)
    for left in ("deleted=false/batch", "snapshot-0000000001/deleted=false/part"):
        name = "-b0of1_killed-00000.parquet"
        path = root / f"{left}-0000000001{name}" if "batch" in left else root / f"{left}{name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"left over")
    (root / POINTER).write_text("killed before this was written")
    run(options)
    assert (viewed(spark, root), log_files(root)) == (expected, files)
    assert not list(root.rglob("*killed*"))
    pointed = json.loads((root / POINTER).read_text())
    assert pointed == summary["current"]
    by_version = deltalake.DeltaTable(str(root), version=pointed["version"]).to_pyarrow_table()
    assert sorted(by_version.column("id").to_pylist()) == list(range(100))

    ids = pa.table({"id": range(100)})
    mine = ids.filter(Bucket(4, 1).has(hashes_of(key_of(ids, ["id"])))).column("id").to_pylist()
    changes.add(Q0, *({"id": i, "v": 3, "op": "u", "name": "x"} for i in mine))
    result = run(options, keep_replaced_minutes=0)
    assert result.summary["buckets_rewritten"] == 1
    assert viewed(spark, root) == {**expected, **dict.fromkeys(mine, "x")}
    assert base - set(log_files(root)) and base <= set(folder_files(root))
    assert result.summary["current"] == summary["current"]


def test_a_version_can_be_one_folder_in_each_batch(
    spark: Any,
    changes: Changes,
    options: CurrentStateOptions,
    tmp_path: Path,
    small: None,
) -> None:
    changes.add(Q0, *({"id": i, "v": 1, "op": "c", "name": f"n{i}"} for i in range(50)))
    options = replace(options, compact_every=1)
    run(options)
    changes.add(Q0, {"id": 3, "v": 2, "op": "u", "name": "new"})

    result = run(options)

    assert now(tmp_path / "state") == {**{i: f"n{i}" for i in range(50)}, 3: "new"}
    assert result.summary["current"]["snapshot"] == "snapshot-0000000001"


def test_a_wider_schema_is_taken_and_another_one_is_refused(
    spark: Any, changes: Changes, options: CurrentStateOptions, tmp_path: Path
) -> None:
    """Before, a --schema other than the table's was ignored without a word."""
    changes.add(Q0, {"id": 1, "v": 1, "op": "c", "name": "one"})
    run(options)
    wider = "id int, v long, op string, name string, more string"

    changes.add(Q0, {"id": 1, "v": 2, "op": "c", "name": "uno", "more": "x"})
    run(options, schema=wider)

    found = pa.table(deltalake.DeltaTable(tmp_path / "state").scan(columns=["id", "more"]))
    assert found.to_pylist() == [{"id": 1, "more": "x"}]
    changes.add(Q0, {"id": 2, "v": 1, "op": "c", "name": "two", "more": "y"})
    run(options, schema="")  # as it is kept
    assert now(tmp_path / "state") == {1: "uno", 2: "two"}
    for schema in ("id int, v long, op string, name int, more string", options.schema):
        with pytest.raises(ConfigError, match=r"has the columns id integer, .* does not keep each"):
            run(options, schema=schema)


EITHER = pytest.mark.parametrize("version", ["v", "v + 1"], ids=["read by tasks", "read by Spark"])


@EITHER
def test_a_batch_may_be_set_aside_and_come_back(
    spark: Any, changes: Changes, options: CurrentStateOptions, tmp_path: Path, version: str
) -> None:
    changes.add(Q0, *({"id": n % 4, "v": n, "op": "u", "name": f"n{n}"} for n in range(8)))
    given = {"batch": 4, "version": version}

    result = run(options, set_aside=1, **given)

    assert now(tmp_path / "state") == {n: f"n{n}" for n in range(4)}
    assert result.summary["reasons"] == {"an operator has set its batch aside": 4}
    before = folder_files(tmp_path / "state/snapshot-0000000000")
    changes.add(Q0, {"id": 3, "v": 9, "op": "u", "name": "newest"})
    result = run(options, from_quarantine=True, **given)
    assert (result.summary["quarantined"], result.summary["from_quarantine"]) == (0, 4)
    assert (result.status, result.summary["keys_twice"]) == (0, 0)
    assert now(tmp_path / "state") == {0: "n4", 1: "n5", 2: "n6", 3: "newest"}
    assert folder_files(tmp_path / "state/snapshot-0000000000") == before
    assert not (tmp_path / "state/_roquette/mended").exists()


@pytest.mark.parametrize(
    ("version", "killed"),
    [
        ("v", "before its commit"),
        ("v + 1", "between two commits"),
        pytest.param("v", "", marks=pytest.mark.long),
        pytest.param("v", "between two commits", marks=pytest.mark.long),
        pytest.param("v + 1", "", marks=pytest.mark.long),
        pytest.param("v + 1", "before its commit", marks=pytest.mark.long),
    ],
)
def test_what_can_be_read_after_a_mend_leaves_the_quarantine(
    spark: Any,
    changes: Changes,
    options: CurrentStateOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    killed: str,
) -> None:
    bodies = [{"id": n, "v": n, "op": "u", "name": f"n{n}"} for n in range(3)]
    changes.add(Q0, *bodies, b"no json", {"v": 2, "name": "nobody"})
    options = replace(options, version=version)
    first = run(options, set_aside=0)
    assert (first.summary["rows"], first.summary["quarantined"]) == (0, 5)

    if killed:
        with monkeypatch.context() as broken:

            def die(*_: Any, **__: Any) -> None:
                raise PipelineError("killed")

            step = {"before its commit": "_apply", "between two commits": "leave_quarantine"}[
                killed
            ]
            original = CurrentState.leave_quarantine
            calls: list[int] = []

            def once(self: CurrentState, *some: Any) -> None:  # the first call is that of the start
                calls.append(1)
                (original if len(calls) == 1 else die)(self, *some)

            broken.setattr(CurrentState, step, die if step == "_apply" else once)
            with pytest.raises(PipelineError, match="killed"):
                run(options, from_quarantine=True)
    # What was committed is finished without being asked.
    result = run(options, from_quarantine=killed != "between two commits")

    summary = result.summary
    assert (summary["rows"], summary["quarantined"], summary["from_quarantine"]) == (3, 2, 3)
    assert (summary["keys_twice"], result.ok, result.status) == (0, True, 0)
    assert viewed(spark, tmp_path / "state") == {n: f"n{n}" for n in range(3)}
    again = run(options, from_quarantine=True).summary
    assert (again["rows"], again["quarantined"], again["from_quarantine"]) == (3, 2, 0)


@pytest.mark.parametrize(("limit", "stops"), [("1", True), ("2", False), ("30%", True), ("40%", False)])  # fmt: skip
def test_too_many_bad_messages_end_the_run_before_their_batch(
    spark: Any, changes: Changes, options: CurrentStateOptions, tmp_path: Path, limit: str, stops: bool
) -> None:  # fmt: skip
    changes.add(Q0, *({"id": n, "v": 1} for n in range(3)), b"no json", {"v": 2})

    if stops:
        words = f"batch 0 of T: 2 of 5 messages of this run are bad, more than --max-bad {limit} "
        with pytest.raises(PipelineError, match=re.escape(words)):
            run(options, max_bad=limit)
        assert not log_files(tmp_path / "state") and not folder_files(tmp_path / "state.quarantine")
        result = run(options)
    else:
        result = run(options, max_bad=limit)
    assert (result.summary["rows"], result.summary["quarantined"]) == (3, 2)


def test_lag_batch_and_quarantine_are_told(
    spark: Any, changes: Changes, options: CurrentStateOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="--metrics-listen is for --follow"):
        run(options, metrics_listen="127.0.0.1:0")
    changes.add(Q0, *({"id": n, "v": 1} for n in range(5)), b"no json")
    told: list[TableHealth] = []
    plain = CurrentState._apply_ranges

    def watched(self: CurrentState, ranges: list[QueueRange], number: int) -> None:
        told.extend(self.health())
        plain(self, ranges, number)
        told.extend(self.health())

    monkeypatch.setattr(CurrentState, "_apply_ranges", watched)
    run(options, batch=3)
    assert told == [
        TableHealth("T", lag=6, batch=-1, rows=0, bad=0),
        TableHealth("T", lag=3, batch=0, rows=3, bad=0),
        TableHealth("T", lag=3, batch=0, rows=3, bad=0),
        TableHealth("T", lag=0, batch=1, rows=6, bad=1),
    ]


@pytest.mark.parametrize(
    ("other", "goes_on"),
    [
        ("optimize", True),
        pytest.param("vacuum", True, marks=pytest.mark.long),
        ("append", True),
        ("delete", False),
        pytest.param("columns", False, marks=pytest.mark.long),
    ],
)
def test_what_takes_no_rows_out_does_not_end_a_run(
    spark: Any,
    changes: Changes,
    options: CurrentStateOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small: None,
    other: str,
    goes_on: bool,
) -> None:
    """Before, any commit of another engine between reading and writing a batch ended the run."""
    root = tmp_path / "state"
    changes.add(Q0, *({"id": n, "v": 1, "op": "u", "name": f"n{n}"} for n in range(100)))
    run(options)
    changes.add(Q0, *({"id": n, "v": 2, "op": "u", "name": "x"} for n in range(60)))
    run(options, rewrite_share=0.9)
    changes.add(Q0, *({"id": n, "v": 3, "op": "u", "name": "y"} for n in range(30, 90)))
    late = {"id": 95, "v": 7, "op": "u", "name": "from another"}

    def act(*_: Any) -> None:
        table = deltalake.DeltaTable(root)
        before = table.version()
        if other == "optimize":
            assert table.optimize.compact()["numFilesRemoved"] > 1
        elif other == "vacuum":
            stray = root / "deleted=false/stray.parquet"
            stray.write_bytes(b"of a writer that was killed long ago")
            os.utime(stray, (0, 0))
            table.vacuum(retention_hours=1000, dry_run=False, full=True)
            assert not stray.exists()
        elif other == "append":
            rows = table.to_pyarrow_table().slice(0, 1).to_pylist()
            more = pa.Table.from_pylist(
                [{**rows[0], **late, "_version": 7}], pa.schema(table.schema())
            )
            deltalake.write_deltalake(table, more, mode="append")
        elif other == "delete":
            table.delete("id = 5")
        else:
            table.alter.add_columns([deltalake.Field("more", "string")])
        assert deltalake.DeltaTable(root).version() > before

    with monkeypatch.context() as between:

        def write(self: DeltaTable, commit: Commit, operation: str) -> None:
            if operation == "MERGE" and not acted:
                acted.append(operation)
                act()
            plain(self, commit, operation)

        acted: list[str] = []
        plain = DeltaTable.write
        between.setattr(DeltaTable, "write", write)
        if not goes_on:
            with pytest.raises(PipelineError, match=r"another program has changed .* start again"):
                run(options)
        else:
            run(options)
    assert acted
    result = run(options)
    wanted = {n: "y" if 30 <= n < 90 else "x" if n < 60 else f"n{n}" for n in range(100)}
    if other == "append":
        wanted[95] = late["name"]
    if other == "delete":
        del wanted[5]
    assert viewed(spark, root) == wanted
    assert (result.ok, result.summary["keys_twice"]) == (True, 0)
