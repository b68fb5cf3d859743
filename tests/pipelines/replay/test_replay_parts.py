"""Parts of `replay` and `dlq` without Spark: steps, state, times, options."""

import itertools
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.fake_cluster import FakeCluster
from tests.spark.records import make_record

from roquette.base.files import OsFiles
from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.pipelines.dlq.pipeline import DlqOptions
from roquette_spark.pipelines.dlq.pipeline import plan as plan_dlq
from roquette_spark.pipelines.replay import source as replay_source
from roquette_spark.pipelines.replay.pipeline import ReplayOptions
from roquette_spark.pipelines.replay.pipeline import plan as plan_replay
from roquette_spark.pipelines.replay.source import (
    ReplayState,
    TableSource,
    TableStep,
    TopicSource,
    open_state,
    time_ms,
)
from roquette_spark.values.offsets import DataLoss, Offsets, decode_offsets, encode_offsets

QUEUES = [MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)]


def state_of(start: Offsets, end: Offsets) -> ReplayState:
    bounds = {"start": encode_offsets(start), "end": encode_offsets(end)}
    return ReplayState("", OsFiles(), {"id": "x", "bounds": bounds})


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=3, max_size=3),
    st.integers(1, 40),
)
def test_steps_cover_every_queue_once_and_end(spans: list[tuple[int, int]], size: int) -> None:
    start = {queue: low for queue, (low, _) in zip(QUEUES, spans, strict=True)}
    end = {queue: low + more for queue, (low, more) in zip(QUEUES, spans, strict=True)}
    state = state_of(start, end)
    source = TopicSource("ns", ["T"], "", "")
    here = start
    for _ in range(200):
        step = source.next_step(state, size)
        if step is None:
            break
        before, after = step.reads
        assert before == here
        assert 0 < sum(after[q] - before[q] for q in here) <= size
        here = after
        state._values["done"] = step.after
    assert here == end == decode_offsets(state.done.get("offsets", encode_offsets(start)))
    assert source.done(state) == source.total(state)


@pytest.mark.parametrize("count", [0, 6, 10, 15])
def test_a_topic_made_anew_is_not_replayed_on(tmp_path: Path, count: int) -> None:
    queue = MessageQueue("T", "broker-a", 0)

    def messages(count: int, later_ms: int = 0) -> list[bytes]:
        return [make_record(i, queue_id=0, later_ms=later_ms) for i in range(count)]

    with FakeCluster({queue: messages(10)}) as cluster:
        source = TopicSource(cluster.address, ["T"], "", "")
        state = open_state(str(tmp_path / "state"), OsFiles(), {}, 1)
        state.begin(source.bounds(), {})
        again = open_state(str(tmp_path / "state"), OsFiles(), {}, 2)
        source.check(again)
        cluster.queues[queue] = messages(12)
        source.check(again)

        cluster.queues[queue] = messages(count, later_ms=1000)
        if count < 10:  # reading tells that the topic is too short
            source.check(again)
        else:
            with pytest.raises(DataLoss, match=r"was made anew .* with another --state"):
                source.check(again)


def test_state_goes_on_where_it_was_and_refuses_another_replay(tmp_path: Path) -> None:
    where, files = str(tmp_path / "state"), OsFiles()
    state = open_state(where, files, {"topics": ["T"], "where": ""}, 1)
    assert state.fresh
    state.begin({"files": [["a", 1]]}, {"T": {}})
    state.advance({"files": 1}, 7)

    again = open_state(where, files, {"topics": ["T"], "where": ""}, 2)

    assert not again.fresh
    assert (again.done, again.rows, again.prefix) == ({"files": 1}, 7, state.prefix)
    with pytest.raises(ConfigError, match=r"belongs to a replay with --where '', not 'x'"):
        open_state(where, files, {"topics": ["T"], "where": "x"}, 3)
    (tmp_path / "state" / "replay.json").write_text("{")
    with pytest.raises(ConfigError, match="damaged"):
        open_state(where, files, {}, 4)


def test_files_are_taken_in_order_of_their_names_and_hidden_ones_left(tmp_path: Path) -> None:
    for name in (
        "day=2/b.parquet",
        "day=1/a.parquet",
        "_spark_metadata/x.parquet",
        "day=1/.t.parquet",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"n": [1]}), path)
    source = TableSource(str(tmp_path), ("m",), ())
    bounds = source.bounds()
    size = (tmp_path / "day=1" / "a.parquet").stat().st_size
    assert bounds == {"files": [["day=1/a.parquet", size], ["day=2/b.parquet", size]]}

    bounds["files"] = [["one", 200 << 20], ["two", 100 << 20], ["three", 1]]
    state = ReplayState("", OsFiles(), {"id": "x", "bounds": bounds})
    step = source.next_step(state, 1)
    assert step is not None
    assert (step.reads, step.after) == (TableStep(["one"]), {"files": 1})
    state._values["done"] = step.after
    step = source.next_step(state, 1)
    assert step is not None
    assert step.reads == TableStep(["two", "three"])
    state._values["done"] = step.after
    assert source.next_step(state, 1) is None
    with pytest.raises(ConfigError, match="no Parquet files"):
        TableSource(str(tmp_path / "nowhere"), (), ()).bounds()


def steps_of(source: TableSource) -> list[TableStep]:
    state = ReplayState("", OsFiles(), {"id": "x", "bounds": source.bounds()})
    found = []
    while (step := source.next_step(state, 1)) is not None:
        found.append(step.reads)
        state._values["done"] = step.after
    assert source.done(state) == source.total(state)
    return found


def taken(folder: Path, step: TableStep) -> list[int | None]:
    """Values of a step's rows, as its condition says."""
    values = [v for name in step.files for v in pq.read_table(folder / name)["at"].to_pylist()]

    def within(value: int | None) -> bool:
        if value is None:
            return step.first is None
        after = step.first is None or value >= step.first
        return after and (step.end is None or value < step.end)

    return [value for value in values if within(value)]


@given(
    st.lists(
        st.lists(st.none() | st.integers(0, 40), min_size=1, max_size=6), min_size=1, max_size=8
    )
)
@settings(max_examples=300, deadline=None)
def test_steps_over_a_table_go_forward_in_its_order(files: list[list[int | None]]) -> None:
    """Whatever files hold, and whatever they are called: each row once, no value after a larger one of an earlier step."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_source, "_BYTES_A_STEP", 1)
        for number, values in enumerate(files):
            table = pa.table({"at": pa.array(values, pa.int64())})
            pq.write_table(table, f"{name}/{number}.parquet")
        steps = steps_of(TableSource(name, ("at",), ()))
        found = [taken(Path(name), step) for step in steps]

    lots = [[-1 if value is None else value for value in each] for each in found]
    assert sorted(v for lot in lots for v in lot) == sorted(
        -1 if v is None else v for values in files for v in values
    )
    for before, after in itertools.pairwise(lots):
        assert not before or not after or max(before) < min(after)
    lows = {-1 if None in values else min(v for v in values if v is not None) for values in files}
    assert len(steps) == len(lows)  # a step is as small as these files allow


def test_joined_files_of_older_rows_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `archive` names them: a table beyond 256 MB sent the newer batch first."""
    monkeypatch.setattr(replay_source, "_BYTES_A_STEP", 1000)
    minute = datetime(2026, 1, 1, tzinfo=UTC)
    for name, begin in (("batch-0000000009-a-00000", 50), ("compact-0000000008-a-00000", 0)):
        at = [minute + timedelta(seconds=begin + n) for n in range(50)]
        table = pa.table({"_store_timestamp": pa.array(at, pa.timestamp("us", "UTC"))})
        pq.write_table(table, tmp_path / f"{name}.parquet")

    steps = steps_of(TableSource(str(tmp_path), ("store_timestamp", "queue_offset"), ()))

    assert [step.files for step in steps] == [
        ["compact-0000000008-a-00000.parquet"],
        ["batch-0000000009-a-00000.parquet"],
    ]
    assert steps[0].end == steps[1].first == int(minute.timestamp() + 50) * 1_000_000


@pytest.mark.parametrize("column", ["text", "made"])
def test_an_order_that_no_footer_tells_is_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    monkeypatch.setattr(replay_source, "_BYTES_A_STEP", 1)
    for name in "abc":
        pq.write_table(pa.table({"text": [name], "n": [1]}), tmp_path / f"{name}.parquet")

    (step,) = steps_of(TableSource(str(tmp_path), (column,), ("made=n + 1",)))

    assert step == TableStep(["a.parquet", "b.parquet", "c.parquet"], column)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("", None),
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000),
    ],
)
def test_times(text: str, ms: int | None) -> None:
    assert time_ms(text, "--since") == ms


def test_a_time_that_is_none() -> None:
    with pytest.raises(ConfigError, match="--since must be such as"):
        time_ms("yesterday", "--since")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "either --topics or --table"),
        ({"topics": ("A",), "table": "t"}, "either --topics or --table"),
        ({"topics": ("A",)}, "replayed into itself"),
        ({"topics": ("A", "B"), "to_topic": "B"}, "replayed into itself"),
        ({"table": "t"}, "--table needs --to-topic"),
        ({"table": "t", "to_topic": "B", "since": "1"}, "--since and --until are for topics"),
    ],
)
def test_replays_that_make_no_sense(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        plan_replay(ReplayOptions(state="s", **given))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"by": ("colour",)}, "--by colour is none of: group, origin_topic"),
        ({"by": ()}, "--by is empty"),
        ({"send": True}, "--send needs --audit"),
    ],
)
def test_triages_that_make_no_sense(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        plan_dlq(DlqOptions(**given))
