"""`replay` between real servers: re-shard, filter, stop and go on, tables, migration to and from Apache's."""

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as f
from tests.spark.places import Place
from tests.spark.sink.test_sink_jobs import read, rows_of, sink

from roquette.base.clock import SystemClock
from roquette.base.files import OsFiles
from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.frame import Job, Progress, Result
from roquette_spark.pipelines.replay import pipeline as replay_target
from roquette_spark.pipelines.replay import source as replay_source
from roquette_spark.pipelines.replay.pipeline import PIPELINE, ReplayOptions, plan
from roquette_spark.pipelines.replay.source import TableSource, open_state
from roquette_spark.values.options import SPARK_ID

pytestmark = pytest.mark.spark


class StopsAfter(Progress):
    """Asks the run to end after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.job: Job | None = None

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        self.left -= 1
        if self.left == 0 and self.job is not None:
            self.job.stop.set()


def job_of(spark: Any, folder: Path, progress: Any = None) -> Job:
    return Job(
        directory=str(folder),
        open_spark=lambda: spark,
        clock=SystemClock(),
        files=OsFiles(),
        progress=progress or Progress(),
        stop=threading.Event(),
    )


def replay(spark: Any, folder: Path, **given: Any) -> Result:
    options = ReplayOptions(state=str(folder / "state"), **given)
    return PIPELINE.run(options, job_of(spark, folder))


def fill(spark: Any, place: Place, topic: str, queues: int, count: int) -> None:
    place.create(topic, queues)
    sink(rows_of(spark, count).write, place, topic).mode("append").save()
    place.settle(topic, count)


def orders(spark: Any, place: Place, topic: str) -> dict[str, list[int]]:
    """The numbers of each key in the order of its queue; a key lies in one queue."""
    rows = read(spark, place, topic).collect()
    queues: dict[str, set[int]] = {}
    found: dict[str, list[int]] = {}
    for row in sorted(rows, key=lambda row: (row.queue_id, row.queue_offset)):
        queues.setdefault(row.key, set()).add(row.queue_id)
        found.setdefault(row.key, []).append(int(row.properties["n"]))
    assert all(len(each) == 1 for each in queues.values())
    return found


def test_more_queues_keep_each_keys_order_and_the_report_says_so(
    spark: Any, roquette: Place, tmp_path: Path
) -> None:
    fill(spark, roquette, "small", 2, 3000)

    result = replay(
        spark, tmp_path, namesrv=roquette.address, topics=("small",), to_topic="large", queues=8,
        step=1000,
    )  # fmt: skip

    assert result.ok, result.last_line
    check = result.summary["check"]
    assert (check["wanted"], check["found"], check["copies"], check["inversions"]) == (
        3000,
        3000,
        0,
        0,
    )
    assert check["wanted_sum"] == check["found_sum"] != 0
    assert orders(spark, roquette, "large") == orders(spark, roquette, "small")
    assert len(check["by_queue"]) > 2


def test_messages_of_a_group_stay_a_group(spark: Any, roquette: Place, tmp_path: Path) -> None:
    """A producer's shard key is the column message_group, and no property that a sink would refuse."""
    roquette.create("grouped", 2)
    frame = rows_of(spark, 600).withColumn("message_group", f.expr("concat('group ', key)"))
    sink(frame.write, roquette, "grouped").mode("append").save()
    roquette.settle("grouped", 600)

    result = replay(
        spark, tmp_path, namesrv=roquette.address, topics=("grouped",), to_topic="regrouped",
        queues=8,
    )  # fmt: skip

    assert result.ok, result.last_line
    rows = read(spark, roquette, "regrouped").collect()
    assert len(rows) == 600
    assert {row.message_group for row in rows} == {f"group key-{n}" for n in range(10)}
    assert {name for row in rows for name in row.properties} == {"n", SPARK_ID}
    assert orders(spark, roquette, "regrouped") == orders(spark, roquette, "grouped")


def test_a_replay_that_was_stopped_goes_on_and_counts_what_came_twice(
    spark: Any, roquette: Place, tmp_path: Path
) -> None:
    fill(spark, roquette, "from", 4, 2000)
    roquette.create("to", 4)
    stopping = StopsAfter(2)
    stopping.job = job_of(spark, tmp_path, stopping)
    options = ReplayOptions(
        namesrv=roquette.address, topics=("from",), to_topic="to", step=500,
        state=str(tmp_path / "state"),
    )  # fmt: skip

    first = PIPELINE.run(options, stopping.job)
    assert (first.summary["complete"], first.summary["check"]) == (False, None)
    assert 900 <= first.summary["sent"] <= 1100
    state = tmp_path / "state" / "replay.json"
    values = json.loads(state.read_text())
    del values["done"], values["rows"]  # as after a crash before the first step was noted
    state.write_text(json.dumps(values))
    sink(rows_of(spark, 100).write, roquette, "from").mode("append").save()  # after the beginning

    second = PIPELINE.run(options, job_of(spark, tmp_path))

    assert second.ok, second.last_line
    check = second.summary["check"]
    assert (check["wanted"], check["found"]) == (2000, 2000)
    assert check["copies"] == first.summary["sent"]
    assert read(spark, roquette, "to").count() == 2000 + first.summary["sent"]


def test_what_is_missing_or_changed_is_found(
    spark: Any, roquette: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_target, "_READABLE_TRIES", 5)  # three will never be readable
    fill(spark, roquette, "whole", 2, 100)
    roquette.create("part", 2)
    options: dict[str, Any] = {
        "namesrv": roquette.address,
        "topics": ("whole",),
        "to_topic": "part",
    }
    assert replay(spark, tmp_path, **options).ok
    state = tmp_path / "state" / "replay.json"
    values = json.loads(state.read_text())
    ends = values["target_start"]["offsets"]["part"]["broker-a"]
    ends["0"] += 3  # as if the first three had never come
    state.write_text(json.dumps(values))

    result = replay(spark, tmp_path, **options)

    assert not result.ok
    assert result.summary["check"]["found"] == 97
    assert len(result.summary["check"]["missing"]) == 3
    assert "DIFFERENT" in result.last_line


def test_a_condition_and_a_time_choose_messages(
    spark: Any, roquette: Place, tmp_path: Path
) -> None:
    fill(spark, roquette, "mixed", 2, 300)
    roquette.create("chosen", 2)

    result = replay(
        spark, tmp_path, namesrv=roquette.address, topics=("mixed",), to_topic="chosen",
        where="tags = 'A' AND CAST(body AS STRING) LIKE '%1'", since="2020-01-01T00:00:00Z", rate=100_000,
    )  # fmt: skip

    assert result.ok
    numbers = [int(row.properties["n"]) for row in read(spark, roquette, "chosen").collect()]
    assert sorted(numbers) == [n for n in range(300) if n % 3 == 0 and str(n).endswith("1")]


def test_a_table_is_sent_in_order_of_each_key(spark: Any, roquette: Place, tmp_path: Path) -> None:
    roquette.create("restored", 4)
    table = str(tmp_path / "table")
    frame = rows_of(spark, 1000, 4).selectExpr("*", "int(properties['n']) AS seq")
    frame.orderBy("body").write.parquet(table)  # any order

    result = replay(
        spark, tmp_path, namesrv=roquette.address, table=table, to_topic="restored",
        order_by=("seq",), where="seq < 900",
    )  # fmt: skip

    assert result.ok, result.last_line
    found = orders(spark, roquette, "restored")
    assert found == {f"key-{k}": list(range(k, 900, 10)) for k in range(10)}
    assert result.summary["check"]["wanted"] == 900


def test_steps_of_a_table_keep_each_keys_order_whatever_its_files_are_called(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of `archive` whose older rows were joined, in two files that reach into each other."""
    monkeypatch.setattr(replay_source, "_BYTES_A_STEP", 1)
    (tmp_path / "lake").mkdir()
    for name, numbers in (
        ("batch-9", [35, *range(40, 60)]),
        ("compact-8", [*range(35), *range(36, 40)]),
    ):
        rows = {
            "key": [f"k{n % 7}" for n in numbers],
            "body": [b"%d" % n for n in numbers],
            "_queue_offset": numbers,
            "_store_timestamp": pa.array(
                [n * 1_000_000 for n in numbers], pa.timestamp("us", "UTC")
            ),
        }
        pq.write_table(pa.table(rows), tmp_path / "lake" / f"{name}.parquet")
    order = ("store_timestamp", "queue_offset")
    source = TableSource(str(tmp_path / "lake"), order, ())
    state = open_state(str(tmp_path / "state"), OsFiles(), {}, 1)
    state.begin(source.bounds(), {})

    sent: dict[str, list[int]] = {}
    steps = 0
    while (step := source.next_step(state, 1)) is not None:
        for row in source.read(spark, step).collect():
            sent.setdefault(row.key, []).append(int(row.body))
        state.advance(step.after, 1)
        steps += 1

    assert steps == 2
    assert sorted(n for numbers in sent.values() for n in numbers) == list(range(60))
    assert all(numbers == sorted(numbers) for numbers in sent.values())


def test_a_plan_counts_and_refuses(spark: Any, roquette: Place, tmp_path: Path) -> None:
    fill(spark, roquette, "counted", 3, 50)
    options: dict[str, Any] = {"namesrv": roquette.address, "topics": ("counted",), "state": "s"}

    found = plan(ReplayOptions(to_topic="fresh", queues=5, **options))
    assert "50 messages in 3 queues" in found.reads[0]
    assert "made with 5 queues" in found.writes[0]
    with pytest.raises(ConfigError, match=r"topic fresh does not exist.*--queues"):
        plan(ReplayOptions(to_topic="fresh", **options))
    roquette.create("other", 2)
    with pytest.raises(ConfigError, match="topic other has 2 queues on broker-a, not 7"):
        plan(ReplayOptions(to_topic="other", queues=7, **options))


@pytest.mark.interop
def test_a_topic_moves_to_apaches_cluster_and_back(
    spark: Any, roquette: Place, apache: Place, tmp_path: Path
) -> None:
    fill(spark, roquette, "moving", 4, 2000)
    (tmp_path / "there").mkdir()
    (tmp_path / "back").mkdir()

    there = replay(
        spark, tmp_path / "there", namesrv=roquette.address, topics=("moving",),
        to_namesrv=apache.address, queues=6,
    )  # fmt: skip
    back = replay(
        spark, tmp_path / "back", namesrv=apache.address, topics=("moving",),
        to_namesrv=roquette.address, to_topic="moved", queues=4,
    )  # fmt: skip

    assert there.ok, there.last_line
    assert back.ok, back.last_line
    assert orders(spark, apache, "moving") == orders(spark, roquette, "moving")
    assert orders(spark, roquette, "moved") == orders(spark, roquette, "moving")
    (row,) = read(spark, roquette, "moved").limit(1).collect()
    assert row.properties[SPARK_ID].startswith(back.summary["ids"])
