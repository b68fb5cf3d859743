"""`python -m benchmarks.testkit`: what the test kit costs: a start, a hundred small tests, a retry, three hours.

Wall seconds on this machine, the median of the repeats; the fixtures' part is pytest's own run of a hundred tests.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.table import Table

import roquette
from roquette_testing import EmbeddedBroker

SMALL = """
import pytest


@pytest.mark.parametrize("number", range(100))
def test_it(roquette_client, roquette_broker, roquette_topic, number):
    roquette_client.send(roquette_topic, b"x")
    assert roquette_broker.messages(roquette_topic)[0].body == b"x"
"""
FIRST = roquette.StartFrom.FIRST


def start() -> float:
    """Until an embedded broker is ready."""
    began = time.perf_counter()
    with EmbeddedBroker():
        return time.perf_counter() - began


def hundred() -> float:
    """A hundred tests, in pytest's words; its own start is in it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_small.py").write_text(SMALL)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder]
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - began


def waits(send: Callable[[roquette.sync.Client], object], fail: bool, hours: float) -> float:
    """A test of its own: send, consume, let time pass, until the handler has been called as it should."""
    calls: list[int] = []
    done = threading.Event()

    def handle(message: roquette.ReceivedMessage) -> bool:
        calls.append(message.reconsume_times)
        if not fail or len(calls) == 2:
            done.set()
            return True
        return False

    began = time.perf_counter()
    with EmbeddedBroker() as broker, broker.sync_client() as mq:
        send(mq)
        mq.subscribe("orders", group="g", handler=handle, start_from=FIRST)
        while not done.wait(0.002):
            if not fail or (calls and broker.messages("SCHEDULE_TOPIC_XXXX")):
                broker.clock.advance(hours=hours)
        return time.perf_counter() - began


ROWS: dict[str, tuple[Callable[[], float], str]] = {
    "ready": (start, "0.15 s"),
    "100 small tests": (hundred, "8 s"),
    "a retry": (lambda: waits(lambda mq: mq.send("orders", b"x"), True, 0.01), "0.2 s"),
    "three hours": (
        lambda: waits(
            lambda mq: mq.send("orders", b"x", deliver_at=timedelta(hours=3)), False, 3.0
        ),
        "0.2 s",
    ),
}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    table = Table("row", "seconds", "least", "most", "limit")
    for name, (measure, limit) in ROWS.items():
        found = [measure() for _ in range(repeats)]
        figures = (statistics.median(found), min(found), max(found))
        table.add_row(name, *(f"{figure:.3f}" for figure in figures), limit)
    Console().print(table)


if __name__ == "__main__":
    main()
