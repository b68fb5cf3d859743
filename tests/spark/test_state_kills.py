"""kill -9 of the driver under streams with state: transformWithState's totals and windows go on as if nothing had been."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.processes import wait_until
from tests.spark.places import Place, environment, publish

from roquette import Message

pytestmark = [pytest.mark.spark, pytest.mark.crash]
ROOT = Path(__file__).parents[2]
CUSTOMERS = 7
APART_S = 10  # an order and the next one
A_BATCH = 80  # of killed_states.py


class Orders:
    """Orders of seven customers, one behind the other; and what must come of them."""

    def __init__(self, place: Place, topic: str) -> None:
        self._place, self._topic = place, topic
        self.count = 0

    def add(self, count: int) -> None:
        """More of them, one after the other."""
        numbers = range(self.count, self.count + count)
        self.count += count
        publish(
            self._place.address,
            [Message(self._topic, json.dumps(order(n)).encode()) for n in numbers],
        )

    def totals(self) -> dict[str, tuple[int, float]]:
        """Orders and amounts of each customer."""
        found: dict[str, tuple[int, float]] = {}
        for number in range(self.count):
            customer = f"c{number % CUSTOMERS}"
            count, amount = found.get(customer, (0, 0.0))
            found[customer] = (count + 1, amount + number)
        return found

    def windows(self, before: int) -> dict[tuple[int, str], tuple[int, float]]:
        """The same by windows of five minutes that have ended before a second."""
        found: dict[tuple[int, str], tuple[int, float]] = {}
        for number in range(self.count):
            place = (number * APART_S // 300, f"c{number % CUSTOMERS}")
            if (place[0] + 1) * 300 <= before:
                count, amount = found.get(place, (0, 0.0))
                found[place] = (count + 1, amount + number)
        return found


def order(number: int) -> dict[str, Any]:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(number * APART_S))
    return {"id": number, "customer": f"c{number % CUSTOMERS}", "amount": number, "at": at}


def commits(folder: Path) -> int:
    """Batches that are done, of both streams."""
    return len(list(folder.glob("*-checkpoint/commits/[0-9]*")))


def table(folder: Path, columns: str) -> list[tuple[Any, ...]]:
    """The rows of the files that Spark's sink says are there."""
    import duckdb

    live: set[str] = set()
    entries = [path for path in (folder / "_spark_metadata").iterdir() if path.name[0] != "."]
    newest = max((int(p.stem) for p in entries if p.suffix == ".compact"), default=-1)
    for path in entries:
        compacted = path.suffix == ".compact"
        if int(path.stem) > newest or (compacted and int(path.stem) == newest):
            lines = path.read_text().splitlines()[1:]
            live |= {json.loads(line)["path"].removeprefix("file://") for line in lines}
    return duckdb.read_parquet(sorted(live)).project(columns).fetchall()


def start(place: Place, topic: str, folder: Path) -> "subprocess.Popen[bytes]":
    log = (folder / "log").open("ab")
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.killed_states", place.address, topic, str(folder)],
        stdout=log,
        stderr=log,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        cwd=ROOT,
        env=environment() | {"SPARK_LOCAL_IP": "127.0.0.1"},
    )


def check_kills(place: Place, topic: str, folder: Path, kills: int) -> None:
    """Kill the driver, or all it has started, at random moments; then let it end."""
    draw = random.Random(kills)
    orders = Orders(place, place.create(topic, 1))  # in one queue: event times come in order
    done, processes = 0, []
    try:
        while done < kills:
            orders.add(3 * A_BATCH)
            before = commits(folder)
            processes.append(process := start(place, topic, folder))
            moved = lambda: commits(folder) > before or process.poll() is not None  # noqa: B023, E731
            assert wait_until(moved, 120), (folder / "log").read_text()[-3000:]
            time.sleep(draw.uniform(0, 2))
            if process.poll() is None:
                done += 1
                end(process, everything=draw.random() < 0.5)
        orders.add(3 * A_BATCH)
        processes.append(process := start(place, topic, folder))
        assert process.wait(300) == 0, (folder / "log").read_text()[-3000:]
    finally:
        for process in processes:
            end(process, everything=True)

    totals = table(folder / "totals", "customer, orders, amount")
    assert len(set(totals)) == len(totals)  # no batch's rows are there twice
    newest: dict[str, tuple[int, float]] = {}
    for customer, count, amount in sorted(totals):
        newest[customer] = (count, amount)
    assert newest == orders.totals()
    windows = table(folder / "windows", "epoch(start)::bigint, customer, orders, amount")
    found = {(start // 300, customer): (n, amount) for start, customer, n, amount in windows}
    assert len(found) == len(windows)
    # Windows that ended ten minutes and a batch before the last order are there, and only whole ones.
    wanted = orders.windows(orders.count * APART_S)
    assert found.items() <= wanted.items()
    closed = orders.windows((orders.count - A_BATCH) * APART_S - 600)
    assert closed and set(found) >= set(closed)


def end(process: "subprocess.Popen[bytes]", *, everything: bool) -> None:
    if everything:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


@pytest.mark.timeout(600)
def test_a_kill_under_state(roquette: Place, tmp_path: Path) -> None:
    check_kills(roquette, "state-kills", tmp_path, 1)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_ten_kills_under_state(roquette: Place, tmp_path: Path) -> None:
    check_kills(roquette, "more-state-kills", tmp_path, 10)
