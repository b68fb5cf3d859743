"""kill -9 of the driver at random moments of a stream into a topic: with the helper, nothing is lost or twice."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.spark.places import Place, environment
from tests.spark.sink.test_sink_jobs import read, sink

from roquette_spark.sink.duplicates import remove_duplicates
from roquette_spark.source.queues import queue_bounds

pytestmark = [pytest.mark.spark, pytest.mark.crash]


def start(place: Place, topics: tuple[str, str], folder: Path) -> subprocess.Popen[str]:
    script = Path(__file__).with_name("killed_stream.py")
    words = [place.address, *topics, str(folder / "checkpoint")]
    return subprocess.Popen(
        [sys.executable, str(script), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # driver, JVM and workers: one group, ours to kill
        cwd=folder,
        env=environment(),
    )


def kill(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def stored(place: Place, topic: str) -> int:
    return sum(queue_bounds(place.address, [topic])[1].values())


def by_key(rows: list[Any]) -> dict[str, list[bytes]]:
    """The bodies of each key in the order of their queue."""
    found: dict[str, list[bytes]] = {}
    for row in sorted(rows, key=lambda row: (row.queue_id, row.queue_offset)):
        found.setdefault(row.key, []).append(bytes(row.body))
    return found


def check_kills(
    spark: Any, place: Place, folder: Path, kills: int, count: int, *, longest_s: float = 2.0
) -> None:
    """Kill the driver `kills` times, let it end once, compare the two topics."""
    draw = random.Random(kills)
    topics = place.create(f"kills-{kills}-origin", 4), place.create(f"kills-{kills}-target", 4)
    first, second = topics
    rows = spark.range(0, count, 1, 2).selectExpr(
        "string(id) AS body", "concat('k', id % 9) AS key"
    )
    sink(rows.write, place, first).mode("append").save()
    done = 0
    while done < kills:
        before = stored(place, second)
        process = start(place, topics, folder)
        while stored(place, second) == before and process.poll() is None:
            time.sleep(0.02)
        time.sleep(draw.uniform(0.0, longest_s))  # it is sending now
        if process.poll() is not None:  # it was faster: more to do
            assert process.returncode == 0
            sink(rows.write, place, first).mode("append").save()
            count += rows.count()
            continue
        kill(process)
        done += 1
    process = start(place, topics, folder)
    try:
        assert process.stdout is not None
        assert [line.strip() for line in process.stdout] == ["started", "done"]
    finally:
        kill(process)

    origin, target = read(spark, place, first), read(spark, place, second)
    once = by_key(remove_duplicates(target).collect())
    assert once == by_key(origin.collect())  # each message, once, and each key in its order
    assert sum(len(bodies) for bodies in once.values()) == count
    print(
        f"{done} kills: {count} messages, {stored(place, second) - count} stored twice, 0 after the helper"
    )


@pytest.mark.promise("Spark and pipelines", "repetitions of a killed write are found by id")
@pytest.mark.timeout(900)
def test_two_kills_of_the_driver(spark: Any, roquette: Place, tmp_path: Path) -> None:
    check_kills(spark, roquette, tmp_path, 2, 4_000)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_fifty_kills_of_the_driver(spark: Any, roquette: Place, tmp_path: Path) -> None:
    check_kills(spark, roquette, tmp_path, 50, 200_000)
