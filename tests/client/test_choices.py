"""Which queue a message goes to, which brokers are left alone, and what is tried again."""

import pytest

from roquette.client.core.route_cache import (
    LatencyTable,
    RoundRobin,
    broker_error,
    by_key,
    may_retry,
)
from roquette.errors import ClientClosed, ClientError, ConnectError, RequestTimeout, RouteNotFound
from roquette.message.message import MessageQueue

QUEUES = [MessageQueue("t", name, number) for name in "ab" for number in range(2)]


def test_round_robin_visits_every_queue_equally() -> None:
    turn = RoundRobin(7)

    seen = [turn.pick(QUEUES) for _ in range(8)]

    assert sorted(seen) == sorted(QUEUES * 2)


def test_a_retry_avoids_the_broker_that_failed() -> None:
    turn = RoundRobin()

    assert {turn.pick(QUEUES, "a").broker_name for _ in range(10)} == {"b"}


def test_with_one_broker_left_a_retry_goes_to_it_again() -> None:
    only_a = QUEUES[:2]
    turn = RoundRobin()

    assert {turn.pick(only_a, "a") for _ in range(4)} == set(only_a)


def test_messages_of_one_key_share_a_queue() -> None:
    assert by_key(QUEUES, "order-1") == by_key(QUEUES, "order-1")
    assert len({by_key(QUEUES, f"order-{n}") for n in range(100)}) == len(QUEUES)


def test_a_key_goes_where_java_sends_it() -> None:
    # "polygenelubricants".hashCode() is Integer.MIN_VALUE: Java takes the remainder first, then abs.
    assert by_key(QUEUES[:3], "polygenelubricants") == QUEUES[2]
    assert by_key(QUEUES, "a") == QUEUES[97 % 4]
    assert by_key(QUEUES, "hello") == QUEUES[99162322 % 4]


@pytest.mark.parametrize(
    ("latency_ms", "pause_ms"),
    [(99, 0), (550, 2_000), (1_799, 2_000), (1_800, 5_000), (3_000, 6_000), (20_000, 30_000)],
)
def test_slow_brokers_are_avoided_for_a_while(latency_ms: int, pause_ms: int) -> None:
    table = LatencyTable()
    table.record("a", latency_ms, 1_000)

    assert table.available(["a", "b"], 1_000 + pause_ms) == ["a", "b"]
    if pause_ms:
        assert table.available(["a", "b"], 1_000 + pause_ms - 1) == ["b"]


def test_a_failure_counts_as_ten_seconds() -> None:
    table = LatencyTable()
    table.record("a", 1, 0, failed=True)

    assert table.available(["a", "b"], 9_999) == ["b"]
    assert table.available(["a", "b"], 10_000) == ["a", "b"]


def test_what_did_not_answer_is_avoided_until_it_is_reached() -> None:
    table = LatencyTable(isolates=True)
    table.record("a", 1, 0, failed=True)
    table.record("b", 5_000, 0)

    assert table.isolated() == ["a"]
    assert table.available(["a", "b"], 1) == ["b"], "rather slow than isolated"
    assert table.available(["a"], 1) == ["a"]
    assert table.available(["a", "b"], 1_000_000) == ["b"]
    table.reached("a")
    assert table.available(["a", "b"], 1_000_000) == ["a", "b"]
    table.record("a", 1, 0, failed=True)
    table.record("a", 1, 0)
    assert table.isolated() == [], "it answered a send"


def test_when_all_are_slow_none_is_avoided() -> None:
    table = LatencyTable()
    table.record("a", 5_000, 0)

    assert table.available(["a"], 1) == ["a"]


@pytest.mark.parametrize("code", [17, 14, 1, 2, 16, 204, 205, 1500])
def test_answers_that_another_broker_may_answer_better(code: int) -> None:
    assert broker_error(code, "", "x").retriable


@pytest.mark.parametrize("code", [13, 26, 29, 3, 215])
def test_answers_that_stay_the_same_elsewhere(code: int) -> None:
    assert not broker_error(code, "", "x").retriable


@pytest.mark.parametrize("code", [17, 16])
def test_answers_that_ask_for_a_fresh_route(code: int) -> None:
    assert broker_error(code, None, "x").stale_route


@pytest.mark.parametrize(
    ("error", "attempt", "left_ms", "expected"),
    [
        (ConnectError("x"), 1, 100, True),
        (RequestTimeout("x"), 2, 100, True),
        (ConnectError("x"), 3, 100, False),
        (ConnectError("x"), 1, 0, False),
        (ClientClosed("x"), 1, 100, False),
        (RouteNotFound("t"), 1, 100, False),
        (broker_error(13, "illegal", "x"), 1, 100, False),
    ],
)
def test_attempts_end(error: ClientError, attempt: int, left_ms: int, expected: bool) -> None:
    assert may_retry(error, attempt, 3, left_ms) is expected
