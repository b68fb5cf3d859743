"""`roquette bench`: what it counts, when it ends, what it says."""

import json

import pytest
from tests.cli.conftest import Roquette

from roquette.admin.bench import BenchRow, Latencies, Meter, figures
from roquette.errors import RouteNotFound


class Times:
    now = cpu = 0.0


def meter(count: int = 0, duration_s: float = 0.0, rate: float = 0.0) -> tuple[Meter, Times]:
    times = Times()
    return Meter(count, duration_s, rate, lambda: times.now, lambda: times.cpu), times


def test_percentiles_are_within_two_percent() -> None:
    found = Latencies()
    for ms in range(1, 1001):
        found.add(ms / 1000)

    assert 500_000 <= found.percentile(0.5) <= 512_000
    assert 990_000 <= found.percentile(0.99) <= 1_000_000
    assert found.percentile(1) == 1_000_000
    assert Latencies().percentile(0.5) == -1


def test_a_count_ends_it() -> None:
    found, _ = meter(count=5)

    assert [found.take(3), found.take(3), found.take(3)] == [3, 2, 0]
    assert found.left_s() == 0


def test_a_duration_ends_it() -> None:
    found, times = meter(duration_s=2)
    times.now = 1.5
    assert (found.take(9), found.left_s()) == (9, 0.5)
    times.now = 2
    assert (found.take(), found.left_s()) == (0, 0)


def test_a_rate_spreads_what_is_begun() -> None:
    found, times = meter(count=100, rate=10)
    found.take(5)
    times.now = 0.2
    assert found.pause_s() == pytest.approx(0.3)


def test_the_result_has_rates_and_cpu_until_the_last_message() -> None:
    found, times = meter(count=100)
    found.take(100)
    times.now, times.cpu = 2.0, 0.5
    found.done(100, 100_000)
    times.now = 50.0
    found.stop(ValueError("the broker is gone"))

    row = found.result("pub", "t", 1)

    assert (row.messages, row.seconds, row.rate, row.mb_per_s) == (100, 2.0, 50.0, 0.05)
    assert (row.cpu_s_per_100k, row.error) == (500.0, "the broker is gone")
    assert [each.value for each in figures(row)][-1] == "the broker is gone"


def row_of(text: str) -> BenchRow:
    [found] = json.loads(text)
    return BenchRow(**found)


def test_messages_are_sent_and_read_back(roquette: Roquette) -> None:
    refused = roquette("bench", "pub", "loads", "-c", "10")
    assert isinstance(refused.exception, RouteNotFound)
    assert "--create" in str(refused.exception)

    sent = roquette("bench", "pub", "loads", "--create", "-c", "300", "--size", "50", "-o", "json")
    batches = roquette("bench", "pub", "loads", "-c", "100", "--batch", "30", "--clients", "2", "-o", "json")  # fmt: skip
    read = row_of(roquette("bench", "sub", "loads", "-o", "json").stdout)
    member = row_of(roquette("bench", "sub", "loads", "-g", "g", "-c", "400", "-o", "json").stdout)

    assert (row_of(sent.stdout).messages, row_of(sent.stdout).bytes) == (300, 15_000)
    assert row_of(sent.stdout).latency_p50_us > 0
    assert (row_of(batches.stdout).messages, row_of(batches.stdout).clients) == (100, 2)
    assert read.messages == member.messages == 400
    assert (read.error, member.error) == ("", "")


def test_a_table_for_people_and_limits_that_must_be_said(roquette: Roquette) -> None:
    shown = roquette("bench", "pub", "loads", "--create", "--duration", "0.3", "--rate", "100")
    endless = roquette("bench", "sub", "loads", "--follow")

    assert shown.exit_code == 0
    assert "latency p99" in shown.stdout
    assert "say --count or --duration" in str(endless.exception)
