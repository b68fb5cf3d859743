"""Delta tables in an object store, where there is no lock: one writer wins, the other has touched nothing."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import date

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.pipelines.faulty_store import LOSE, PASS, REFUSE, door
from tests.pipelines.kit.test_table import OWNER, SCHEMA, SETTINGS, STREAM, SetClock, schema_of
from tests.pipelines.processes import wait_until
from tests.pipelines.seaweed import S3Server
from tests.pipelines.stores import STORES, serving

from roquette.base.clock import SystemClock
from roquette.base.entropy import Entropy
from roquette_spark.pipelines.kit.frame import PipelineError
from roquette_spark.pipelines.kit.table_files import Commit, DataFile, TableFiles
from roquette_spark.pipelines.rows.parquet_files import ParquetFiles
from roquette_spark.pipelines.tables.delta_table import open_table
from roquette_spark.pipelines.tables.table import Table

ARROW = pa.schema([("n", pa.int64()), ("dt", pa.date32())])


@pytest.fixture(scope="module", params=STORES)
def server(request: pytest.FixtureRequest) -> Iterator[S3Server]:
    with serving(request.param) as found:
        yield found


@pytest.fixture
def root(server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    for name, value in server.environ().items():
        monkeypatch.setenv(name, value)
    assert wait_until(lambda: TableFiles("s3://plain").exists(""), 30)
    return f"s3://plain/lake/{abs(hash(request.node.name))}"


def opened(root: str, seed: int) -> Table:
    clock = SetClock()
    clock.ms = SystemClock().now_ms()
    return open_table(root, clock=clock, entropy=Entropy(seed))


def started(root: str, seed: int = 1) -> Table:
    table = opened(root, seed)
    table.claim(OWNER)
    table.clean()
    if table.snapshot.version < 0:
        table.create(SCHEMA, ("dt",), SETTINGS)
    return table


def written(table: Table, batch: int, who: str) -> list[DataFile]:
    """What tasks of a batch leave: one row a day, three days."""
    files = ParquetFiles(table.files, f"batch-{batch:010}-{who}", ARROW, ("dt",))
    days = [date(2013, 1, day) for day in (1, 2, 3)]
    files.write(pa.table({"n": [batch * 3 + i for i in range(3)], "dt": days}, schema=ARROW))
    return files.close()


def commit(table: Table, batch: int, adds: list[DataFile]) -> None:
    table.commit(Commit(adds=adds, batch=(STREAM, batch)), "STREAMING UPDATE")


def numbers(root: str) -> list[int]:
    """By delta-rs alone."""
    return sorted(DeltaTable(root).to_pyarrow_table()["n"].to_pylist())


def names(table: Table) -> set[str]:
    found = {file.path for file in table.files.list_tree()}
    return {path for path in found if path.endswith(".parquet") and not path.startswith("_")}


def test_of_two_writers_of_a_batch_one_wins_and_the_other_leaves_nothing(root: str) -> None:
    one, other = started(root), started(root, 2)
    first, second = written(one, 0, "one"), written(other, 0, "other")

    commit(one, 0, first)
    with pytest.raises(PipelineError, match="another process has written version 1 of s3://"):
        commit(other, 0, second)

    assert names(one) == {file.path for file in first}
    assert numbers(root) == [0, 1, 2]
    with pytest.raises(PipelineError, match="another process has written version 1"):
        commit(other, 1, written(other, 1, "other"))
    commit(one, 1, written(one, 1, "one"))
    assert numbers(root) == list(range(6))


def test_a_second_start_touches_nothing_of_a_running_writer(root: str) -> None:
    running = started(root)
    commit(running, 0, written(running, 0, "one"))
    under_way = written(running, 1, "one")
    staging = running.new_staging()
    running.files.write(f"{staging}/part.parquet", b"rows")
    dead = written(running, 0, "killed")

    started(root, 2).close()

    there = names(running)
    assert {file.path for file in under_way} <= there
    assert not there & {file.path for file in dead}  # batch 0 is done: they can never count
    assert running.files.exists(staging)
    commit(running, 1, under_way)
    started(root, 3).close()
    assert not running.files.exists(staging)  # it was for version 2
    assert numbers(root) == list(range(6))


def test_a_store_that_refuses_is_an_error_that_says_why(root: str) -> None:
    table = opened(root.replace("plain", "absent"), 1)

    with pytest.raises(PipelineError, match=r"absent.* cannot be created: .*NoSuchBucket") as told:
        table.create(SCHEMA, ("dt",), SETTINGS)
    assert "\n" not in str(told.value) and "\x1b" not in str(told.value)


def test_of_two_that_create_a_table_one_wins(root: str) -> None:
    one, other = opened(root, 1), opened(root, 2)
    one.create(SCHEMA, ("dt",), SETTINGS)

    with pytest.raises(PipelineError, match="cannot be created"):
        other.create(SCHEMA, ("dt",), {**SETTINGS, "roquette.stream": "archive-2"})
    assert opened(root, 3).snapshot.settings == SETTINGS


def test_a_table_without_rows_is_begun_anew_by_one(root: str) -> None:
    before = started(root)
    later = opened(root, 2)
    later.claim(OWNER)
    later.drop()
    later.create(schema_of("long"), ("dt",), {**SETTINGS, "roquette.stream": "archive-2"})

    adds = written(before, 0, "one")
    with pytest.raises(PipelineError, match="another process has written version 1"):
        commit(before, 0, adds)
    found = opened(root, 3)
    assert found.snapshot.settings["roquette.stream"] == "archive-2"
    assert (found.snapshot.rows, names(found)) == (0, set())


def test_many_writers_at_once_give_each_batch_once(root: str) -> None:
    started(root).close()
    won: list[int] = []

    def write(seed: int) -> None:
        while True:
            table = opened(root, seed)
            batch = table.done(STREAM) + 1
            if batch == 5:
                return
            try:
                commit(table, batch, written(table, batch, f"w{seed}"))
            except PipelineError:
                continue
            won.append(batch)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(won) == list(range(5))
    assert numbers(root) == list(range(15))
    table = opened(root, 9)
    assert names(table) == set(table.snapshot.files)


def test_compaction_that_is_behind_changes_nothing_and_leaves_nothing(root: str) -> None:
    table = started(root)
    for batch in range(3):
        commit(table, batch, written(table, batch, "one"))
    behind = opened(root, 2)
    commit(table, 3, written(table, 3, "one"))
    before = names(table)

    with pytest.raises(PipelineError, match="another process has written version 4"):
        behind.compact(target_bytes=1 << 20, at_least=2)
    assert names(table) == before
    assert table.compact(target_bytes=1 << 20, at_least=2).files_after == 3
    assert numbers(root) == list(range(12))
    assert table.vacuum(keep_ms=0) == 12
    assert names(table) == set(table.snapshot.files)
    assert numbers(root) == list(range(12))


STEPS = ("staging", "written", "committed", "compacted")


def run_killed(root: str, step: str) -> None:
    """A writer that kills itself; it does one batch and joins files."""

    def at(here: str) -> None:
        if here == step:
            os.kill(os.getpid(), signal.SIGKILL)

    table = started(root, os.getpid())
    batch = table.done(STREAM) + 1
    table.files.write(f"{table.new_staging()}/part.parquet", b"rows")
    at("staging")
    adds = written(table, batch, f"p{os.getpid()}")
    at("written")
    commit(table, batch, adds)
    at("committed")
    real = table.commit
    table.commit = lambda *args: (at("compacted"), real(*args))[1]  # type: ignore[method-assign]
    table.compact(target_bytes=1 << 20, at_least=2)


def test_a_writer_that_is_killed_at_any_step_loses_nothing_and_repeats_nothing(root: str) -> None:
    table = started(root)
    commit(table, 0, written(table, 0, "one"))
    for step in STEPS:
        code = f"from tests.pipelines.kit.test_delta_store import run_killed; run_killed({root!r}, {step!r})"
        done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()

    run_killed(root, "")

    assert numbers(root) == list(range(3 * 4))  # killed behind its commit twice, and ended once
    table = started(root, 9)
    assert names(table) == {*table.snapshot.files, *table.snapshot.removed}


def do_batches(root: str, count: int) -> int:
    """As a pipeline that is started again whenever it fails; returns how often it failed."""
    failures = 0
    for seed in range(100):
        try:
            table = started(root, seed)
            for batch in range(table.done(STREAM) + 1, count):
                commit(table, batch, written(table, batch, f"s{seed}"))
            table.compact(target_bytes=1 << 20, at_least=2)
            return failures
        except (PipelineError, OSError):
            failures += 1
    raise AssertionError("it never ends")


def test_answers_of_commits_that_are_lost_lose_nothing(
    server: S3Server, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: set[str] = set()

    def judge(method: str, path: str) -> str:
        if method == "PUT" and path.endswith(".json") and path not in lost:
            lost.add(path)
            return LOSE
        return PASS

    with door(server.s3, judge) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        do_batches(root, 2)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.s3)

    assert len(lost) >= 4
    assert numbers(root) == list(range(6))
    table = started(root, 200)
    assert names(table) == {*table.snapshot.files, *table.snapshot.removed}


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("nth", [2, 3, 7])
@pytest.mark.parametrize("how", [REFUSE, LOSE])
def test_a_store_that_fails_each_nth_call(
    server: S3Server, root: str, monkeypatch: pytest.MonkeyPatch, nth: int, how: str
) -> None:
    calls = 0

    def judge(method: str, path: str) -> str:
        nonlocal calls
        calls += 1
        return how if calls % nth == 0 else PASS

    with door(server.s3, judge) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        do_batches(root, 2)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.s3)

    assert calls > 30
    assert numbers(root) == list(range(6))
    table = started(root, 200)
    assert set(table.snapshot.files) <= names(table)
