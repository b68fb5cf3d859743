"""A table in buckets, without Spark: random changes of all kinds against a dict, by the views of three engines."""

import contextlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.table_files import Commit, DataFile, Snapshot, TableFiles
from roquette_spark.pipelines.state.bucket_files import (
    BucketRules,
    Changed,
    ChangeWork,
    change_share,
    change_table,
    count_bucket,
)
from roquette_spark.pipelines.state.change_rows import (
    Bucket,
    BucketFiles,
    buckets_of,
    hashes_of,
    key_of,
    newest,
)
from roquette_spark.pipelines.state.pipeline import Pointer, StateView, newest_stored, remove_strays
from roquette_spark.pipelines.tables.delta_table import open_table

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    {
        "id": pa.int32(),
        "part": pa.string(),
        "name": pa.string(),
        "_store_timestamp": pa.timestamp("us", "UTC"),
        "_broker_name": pa.string(),
        "_queue_id": pa.int32(),
        "_queue_offset": pa.int64(),
        "_version": pa.float64(),
        "deleted": pa.bool_(),
    }
)
RULES = BucketRules(share=0.5, small_rows=20, most_files=4, bucket_rows=100)
Row = dict[str, Any]


@dataclass
class State:
    """The files of a table, as its log would have them."""

    root: Path
    key: tuple[str, ...] = ("id", "part")
    rules: BucketRules = RULES
    schema: pa.Schema = SCHEMA
    files: dict[str, DataFile] = field(default_factory=dict)
    batch: int = 0
    changed: Changed = field(default_factory=Changed)

    def work(self, **more: Any) -> ChangeWork:
        plain = ChangeWork(self.batch, str(self.root), self.schema, self.key, (), self.rules)
        return replace(plain, **more)

    def apply(self, rows: Sequence[Row], *, tasks: int = 2, **more: Any) -> Changed:
        return self.apply_table(pa.Table.from_pylist(list(rows), SCHEMA), tasks=tasks, **more)

    def apply_table(self, rows: pa.Table, *, tasks: int = 2, **more: Any) -> Changed:
        (self.root / "_roquette").mkdir(parents=True, exist_ok=True)
        staged = f"_roquette/{self.batch}.arrow"
        with pa.ipc.new_file(self.root / staged, rows.schema) as file:
            file.write_table(rows)
        buckets = buckets_of(self.files.values())
        found = Changed()
        for at in range(tasks):
            found.add(change_share(self.work(staged=(staged,), **more), buckets[at::tasks]))
        assert found.rows == len(rows)
        for file in found.removes:
            del self.files[file.path]
        for file in found.adds:
            assert file.path not in self.files
            self.files[file.path] = file
        self.batch += 1
        return found

    def dataset(self) -> Any:
        """The live files with their partitions' values, as readers of the log have them."""
        parts = []
        for file in self.files.values():
            rows = pq.ParquetFile(self.root / file.path).read()
            assert rows.num_rows == file.rows
            deleted = dict(file.partition)["deleted"] == "true"
            parts.append(rows.append_column("deleted", pa.repeat(pa.scalar(deleted), len(rows))))
        return pa.concat_tables([self.schema.empty_table(), *parts])


def view(state: State) -> StateView:
    return StateView(str(state.root), tuple(state.schema.names), state.key)


def by_duckdb(state: State) -> list[Row]:
    changes = state.dataset()
    with duckdb.connect() as connection:
        connection.register("source", changes)
        return connection.sql(view(state).duckdb("source")).to_arrow_table().to_pylist()


def by_polars(state: State) -> list[Row]:
    given: dict[str, Any] = {"pl": pl, "source": pl.from_arrow(state.dataset()).lazy()}
    exec(view(state).polars("source"), given)
    return given["current_state"].collect().to_arrow().to_pylist()


class Oracle:
    """What one row per key is, of all changes that ever were."""

    def __init__(self) -> None:
        self.changes: dict[Any, list[Row]] = {}

    def apply(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.changes.setdefault((row["id"], row["part"]), []).append(row)

    def newest(self) -> list[Row]:
        return [newest_of(rows) for rows in self.changes.values()]

    def live(self) -> list[Row]:
        return [
            {name: value for name, value in row.items() if name != "deleted"}
            for row in self.newest()
            if not row["deleted"]
        ]


def newest_of(changes: Sequence[Row]) -> Row:
    """The later one of two: of the highest version, and of those without one the last."""
    versioned = [row for row in changes if row["_version"] is not None]
    candidates = [row for row in changes if row["_version"] is None]
    if versioned:
        highest = max(row["_version"] for row in versioned)
        candidates += [row for row in versioned if row["_version"] == highest]
    return max(candidates, key=place)


def place(row: Row) -> tuple[Any, ...]:
    return row["_store_timestamp"], row["_broker_name"], row["_queue_id"], row["_queue_offset"]


def plain(rows: Sequence[Row]) -> list[Row]:
    """Without the versions: a change that has none gets one when its bucket is rewritten."""

    def comparable(value: Any) -> Any:
        return value.astimezone(UTC) if isinstance(value, datetime) else value

    found = [
        {name: comparable(value) for name, value in row.items() if name != "_version"}
        for row in rows
    ]
    return sorted(found, key=lambda row: (row["id"], row["part"]))


def some_changes(chance: random.Random, count: int, offset: int, keys: int) -> list[Row]:
    return [
        {
            "id": chance.randrange(keys),
            "part": chance.choice(["a", "b:", ""]),
            "name": f"n{offset + n}",
            "_store_timestamp": NOON + timedelta(seconds=(offset + n) // 3),
            "_broker_name": chance.choice(["x", "y"]),
            "_queue_id": n % 2,
            "_queue_offset": offset + n,
            "_version": chance.choice([None, *(float(v) for v in range(6)), float(offset + n)]),
            "deleted": chance.random() < 0.2,
        }
        for n in range(count)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_random_batches_are_one_row_per_key_in_every_view(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    state, oracle = State(tmp_path), Oracle()
    sent: list[Row] = []
    whole = joined = split = changes_left = 0
    for batch in range(14):
        rows = some_changes(chance, chance.choice([0, 3, 30, 200]), len(sent), 150)
        late = chance.sample(sent, min(len(sent), 20)) if batch % 3 == 2 else []
        done = state.apply([*rows, *late], whole=batch == 9)
        sent += rows
        oracle.apply(rows)
        whole += done.rewritten
        joined += done.joined
        buckets = buckets_of(state.files.values())
        split = max(split, len(buckets))
        changes_left += sum(each.change_rows for each in buckets)
        wanted = plain(oracle.live())
        assert plain(by_duckdb(state)) == wanted
        assert plain(by_polars(state)) == wanted
        counts = [count_bucket(state.work(), each) for each in buckets]
        assert sum(each.live for each in counts) == len(wanted)
        assert sum(each.deleted for each in counts) == len(oracle.changes) - len(wanted)
        assert not any(each.twice for each in counts)
    assert whole and split >= 4 and changes_left


@pytest.mark.parametrize("rewriting", [False, True], ids=["changes", "bases"])
@pytest.mark.parametrize(
    ("batches", "name"),
    [
        ([[5.0], [None]], "None"),  # a deletion without a version of its own
        ([[5.0, None]], "None"),
        ([[5.0], [3.0, None]], "None"),
        ([[5.0], [None], [4.0]], "None"),
        ([[5.0, None], [4.0]], "None"),
        ([[5.0], [None], [6.0]], "6.0"),
        ([[5.0], [None, 6.0, 4.0]], "6.0"),
        ([[5.0], [None, 4.0]], "None"),
        ([[None], [4.0]], "4.0"),
        ([[None], [4.0], [3.0, None, 2.0], [4.0]], "4.0"),
        ([[None], [None, 1.0], [None]], "None"),
    ],
)  # fmt: skip
def test_a_change_without_a_version_is_newer_than_all_before_it(
    tmp_path: Path, batches: list[list[float | None]], name: str, rewriting: bool
) -> None:
    state, sent = State(tmp_path, key=("id",)), 0
    if not rewriting:
        state.apply([row(n + 10) for n in range(400)])
    for versions in batches:
        some = [
            {**row(1), "_version": v, "_queue_offset": sent + n, "name": str(v)}
            for n, v in enumerate(versions)
        ]
        sent += len(some)
        state.apply(some)

    for by in (by_duckdb, by_polars):
        assert [found["name"] for found in by(state) if found["id"] == 1] == [name]
    state.apply([], whole=True)
    assert [found["name"] for found in by_duckdb(state) if found["id"] == 1] == [name]
    assert sum(count_bucket(state.work(), b).live for b in buckets_of(state.files.values())) == len(by_duckdb(state))  # fmt: skip


def test_few_changes_of_a_large_table_rewrite_nothing(tmp_path: Path) -> None:
    state = State(tmp_path, key=("id",))
    state.apply([row(n) for n in range(400)])
    base = set(state.files)

    found = [state.apply([row(n, version=batch)]) for batch in range(1, 7) for n in [7 * batch]]

    assert [each.rewritten for each in found] == [0] * 6
    assert base <= set(state.files)
    assert all(each.removes == [] or each.joined for each in found)


def test_many_files_of_changes_become_one(tmp_path: Path) -> None:
    state = State(tmp_path, key=("id",))
    state.apply([row(n) for n in range(60)])

    found = [state.apply([row(1, version=batch)]) for batch in range(1, 6)]

    assert [(each.joined, len(each.removes)) for each in found] == [(0, 0)] * 4 + [(1, 4)]
    assert [file.rows for file in found[-1].adds] == [1]


def test_a_bucket_with_many_changes_is_rewritten_alone(tmp_path: Path) -> None:
    state = State(tmp_path, key=("id",))
    state.apply([row(n) for n in range(400)])
    buckets = buckets_of(state.files.values())
    assert len(buckets) == 4
    ids = pa.table({"id": pa.array(range(400), pa.int32())})
    mine = (
        ids.filter(buckets[2].bucket.has(hashes_of(key_of(ids, ["id"])))).column("id").to_pylist()
    )

    found = state.apply([row(n, version=5) for n in mine])

    assert (found.rewritten, {file.path for file in found.removes}) == (
        1,
        {file.path for file in buckets[2].base},
    )


def test_deletions_are_forgotten_when_their_bucket_is_rewritten(tmp_path: Path) -> None:
    state = State(tmp_path, key=("id",))
    state.apply([row(1, deleted=True), *(row(n) for n in range(2, 5))])
    state.apply([row(3, version=2)], forget_before=NOON + timedelta(hours=1))

    assert sorted(state.dataset().column("id").to_pylist()) == [2, 3, 4]


def test_readers_without_a_view_are_led_to_a_version_that_is_one_folder(tmp_path: Path) -> None:
    state = State(tmp_path, key=("id",))
    state.apply([row(n) for n in range(50)])
    first = Pointer.of_files(1, list(state.files.values()))
    state.apply([row(1, version=9)])
    between = Pointer.of_files(2, list(state.files.values()))
    state.apply([row(2, deleted=True, version=9)], whole=True)
    last = Pointer.of_files(3, list(state.files.values()))

    assert first == Pointer(1, "snapshot-0000000000", 50)
    assert between is None
    assert last == Pointer(3, "snapshot-0000000002", 49)
    found = ds.dataset(tmp_path / last.snapshot / "deleted=false").to_table()
    assert found.num_rows == 49
    assert {r["_version"] for r in found.to_pylist() if r["id"] == 1} == {9.0}


def test_the_newest_change_of_a_table_is_known_by_its_files(tmp_path: Path) -> None:
    state = State(tmp_path, key=("id",))
    state.apply([row(n) for n in range(5)])
    assert newest_stored(Snapshot(files=state.files)) == NOON
    assert newest_stored(Snapshot()) is None


def row(number: int, *, version: float = 1.0, deleted: bool = False) -> Row:
    return {
        "id": number, "part": "p", "name": f"{number}@{version}", "_store_timestamp": NOON, "_broker_name": "b",
        "_queue_id": 0, "_queue_offset": 1000 * int(version) + number, "_version": version, "deleted": deleted,
    }  # fmt: skip


@pytest.mark.parametrize(
    "versions",
    [
        [None, float("-inf"), -1.0, 2.0, float("inf"), float("nan")],
        [None, {"a": None, "b": 9}, {"a": 1, "b": None}, {"a": 1, "b": 2}],
        [None, "", "A", "a", "é"],
    ],
)
def test_versions_are_ordered_as_spark_orders_them(versions: list[Any]) -> None:
    rows = [
        {**row(1), "_version": version, "name": str(n), "_queue_offset": n}
        for n, version in enumerate(versions)
    ]
    for at in range(len(rows)):
        some = pa.Table.from_pylist([*rows[: at + 1]][::-1])
        names = newest(some, ["id"]).column("name").to_pylist()
        assert set(names) == {"0", str(at)}  # the one without a version counts where all are known


def test_a_version_without_an_order_is_an_error_in_words() -> None:
    some = pa.Table.from_pylist([{**row(1), "_version": [1]}, {**row(1), "_version": [2]}])
    with pytest.raises(ConfigError, match=r"--version is of type list<.*which has no order"):
        newest(some, ["id"])


def test_keys_of_several_columns_are_told_apart() -> None:
    rows = pa.table({"a": ["a", "ab", "1:a", "1"], "b": ["bc", "c", "1:", "a1:"]})
    assert len(set(key_of(rows, ["a", "b"]).to_pylist())) == 4


def test_a_key_stays_in_its_bucket_for_ever() -> None:
    """These numbers are in the names of files: they must not change."""
    numbers = key_of(pa.table({"k": pa.array([0, 1, -1], pa.int16())}), ["k"])
    wide = key_of(pa.table({"k": pa.array([0, 1, -1])}), ["k"])
    texts = key_of(pa.table({"k": ["", "a", "users/1"]}), ["k"])
    assert hashes_of(numbers).tolist() == hashes_of(wide).tolist() == NUMBER_HASHES
    assert hashes_of(texts).tolist() == TEXT_HASHES
    sliced = key_of(pa.table({"k": ["x", "", "a", "users/1"]}).slice(1), ["k"])
    assert hashes_of(sliced).tolist() == TEXT_HASHES


NUMBER_HASHES = [16294208416658607535, 10451216379200822465, 16490336266968443936]
TEXT_HASHES = [16294208416658607535, 15874169703858053892, 10925747366598132926]


def test_keys_are_spread_evenly() -> None:
    for keys in (pa.table({"k": range(8000)}), pa.table({"k": [f"user-{n}" for n in range(8000)]})):
        buckets = hashes_of(key_of(keys, ["k"])) & np.uint64(7)
        assert np.bincount(buckets.astype(int), minlength=8).min() > 850


def test_buckets_have_every_key_once_even_where_one_has_no_files() -> None:
    def file(bucket: Bucket) -> DataFile:
        return DataFile(f"snapshot-0000000001/deleted=false/part-{bucket}_x-00000.parquet", 1, 1, 0)

    found = [each.bucket for each in buckets_of([file(Bucket(4, 1)), file(Bucket(2, 0))])]

    assert found == [Bucket(2, 0), Bucket(4, 1), Bucket(4, 3)]
    hashes = np.arange(64, dtype=np.uint64)
    counted = sum(np.asarray(each.has(hashes)).astype(int) for each in found)
    assert counted.tolist() == [1] * 64
    assert pc.sum(Bucket().has(hashes)).as_py() == 64


def test_files_that_another_program_has_joined_are_one_bucket(tmp_path: Path) -> None:
    state, oracle = State(tmp_path), Oracle()
    chance = random.Random(1)
    for batch in range(3):
        rows = some_changes(chance, 200, 200 * batch, 150)
        state.apply(rows)
        oracle.apply(rows)
    first = min(file for file in state.files if "deleted=false" in file)
    joined = "deleted=false/part-00001-1b0d.parquet"
    (tmp_path / "deleted=false").mkdir(exist_ok=True)
    (tmp_path / first).rename(tmp_path / joined)
    state.files[joined] = replace(state.files.pop(first), path=joined)
    assert len(buckets_of(state.files.values())) == 1

    late = some_changes(chance, 30, 600, 150)
    state.apply(late, whole=True)

    oracle.apply(late)
    assert plain(by_duckdb(state)) == plain(oracle.live())
    assert len(buckets_of(state.files.values())) == 4


def test_readers_of_a_folder_are_not_shown_what_failed_tasks_left(tmp_path: Path) -> None:
    table = open_table(str(tmp_path))
    spark_schema = [("id", "integer"), ("name", "string"), ("deleted", "boolean")]
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in spark_schema
    ]
    table.create(json.dumps({"type": "struct", "fields": fields}), ["deleted"], {})
    names = [f"snapshot-0000000000/deleted=false/part-b0of1_{x}-00000.parquet" for x in "ab"]
    for name in (*names, "snapshot-0000000000/others.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "name": ["x"]}), tmp_path / name)
    size = (tmp_path / names[0]).stat().st_size
    table.commit(Commit([DataFile(names[0], size, 1, 0, (("deleted", "false"),))]), "MERGE")

    remove_strays(table, "snapshot-0000000000")
    remove_strays(table, "")

    left = sorted(path.name for path in tmp_path.glob("snapshot-*/**/*.parquet"))
    assert left == ["others.parquet", "part-b0of1_a-00000.parquet"]


def test_a_task_that_fails_leaves_no_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(tmp_path, key=("id",))
    state.apply([row(n) for n in range(30)])
    lost = next(iter(state.files))
    TableFiles(str(tmp_path)).remove(lost)

    with pytest.raises(FileNotFoundError):
        state.apply([row(n, version=2) for n in range(30)])

    assert not list(tmp_path.glob("snapshot-0000000001/**/*.parquet"))


class NoSpark:
    """A session whose tasks are counted, and run here."""

    defaultParallelism = 2

    def __init__(self) -> None:
        self.tasks = 0
        self._shares: list[Any] = []

    @property
    def sparkContext(self) -> "NoSpark":
        return self

    def parallelize(self, shares: list[Any], count: int) -> "NoSpark":
        self.tasks += count
        self._shares = shares
        return self

    def map(self, task: Any) -> "NoSpark":
        self._shares = [task(share) for share in self._shares]
        return self

    def collect(self) -> list[Any]:
        return self._shares


def light(tmp_path: Path, sizes: Sequence[int], staged: int = 10, **more: Any) -> bool:
    """Whether the driver does a batch of so many rows by itself; `sizes`: of the bases of two buckets of 100 rows."""
    rows = [row(n) for n in range(staged)]
    (tmp_path / "_roquette").mkdir(exist_ok=True)
    with pa.ipc.new_file(tmp_path / "_roquette/x.arrow", SCHEMA) as file:
        file.write_table(pa.Table.from_pylist(rows, SCHEMA))
    buckets = [
        BucketFiles(
            bucket, (DataFile(f"snapshot-0000000000/part-{bucket}_x.parquet", size, 100, 0, ()),)
        )
        for bucket, size in zip(Bucket().split(2), sizes, strict=True)
    ]
    plain = ChangeWork(3, str(tmp_path), SCHEMA, ("id", "part"), ("_roquette/x.arrow",), RULES)
    work, spark = replace(plain, **more), NoSpark()
    with contextlib.suppress(FileNotFoundError):  # the bases are not there
        change_table(spark, work, buckets, staged)  # type: ignore[arg-type]
    return not spark.tasks


LARGE = 9 << 20


def test_only_what_reads_little_is_done_without_a_job(tmp_path: Path) -> None:
    assert light(tmp_path, [LARGE, LARGE])  # none of them is read
    assert light(tmp_path, [1000, 1000], staged=60)  # both are rewritten
    assert not light(tmp_path, [LARGE, 1000], staged=60)
    assert not light(tmp_path, [LARGE, LARGE], whole=True)
    assert not light(tmp_path, [LARGE, LARGE], rules=replace(RULES, small_rows=101))
    work = ChangeWork(3, str(tmp_path), SCHEMA, ("id",), (), RULES)
    many = [f"_roquette/x.{kind}" for kind in ("arrow", "parquet")]
    for path in many:
        (tmp_path / path).write_bytes(bytes(LARGE))
    for path, expected in zip(many, (True, False), strict=True):
        work = replace(work, staged=(path,))
        spark = NoSpark()
        with contextlib.suppress(pa.ArrowInvalid):
            change_table(spark, work, [BucketFiles(Bucket())], 1)  # type: ignore[arg-type]
        assert (spark.tasks == 0) == expected
