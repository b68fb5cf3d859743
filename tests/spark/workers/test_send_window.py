"""Which chunk leaves when: order of a queue, patience with busy brokers, bounds, rate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette.message.message import MessageQueue
from roquette_spark.workers.send_window import Chunk, SendWindow, WindowLimits, is_flow_control

Q0, Q1 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)


def chunk(queue: MessageQueue | None = None, row: int = 0, rows: int = 1) -> Chunk:
    return Chunk("T", queue, b"12345", "", batch=False, first_row=row, rows=rows)


def taken(window: SendWindow, now_ms: int = 0) -> list[int]:
    found = []
    while (one := window.take(now_ms)) is not None:
        found.append(one.first_row)
    return found


def test_chunks_of_one_queue_fly_one_at_a_time_and_others_beside_them() -> None:
    window = SendWindow(WindowLimits())
    chunks = [chunk(Q0, 0), chunk(Q0, 1), chunk(Q1, 2), chunk(None, 3), chunk(None, 4)]
    for one in chunks:
        window.offer(one)

    assert taken(window) == [0, 2, 3, 4]
    window.stored(chunks[0])
    assert taken(window) == [1]


def test_what_failed_comes_again_before_what_follows_it_in_its_queue() -> None:
    window = SendWindow(WindowLimits())
    first, second = chunk(Q0, 0), chunk(Q0, 1)
    window.offer(first)
    window.offer(second)
    assert window.take(0) is first

    assert window.failed(first, 0, busy=False, jitter=1.0)

    assert window.take(49) is None
    assert window.wake_ms(49) == 50
    assert window.take(50) is first
    window.stored(first)
    assert window.take(50) is second


def test_busy_answers_lengthen_the_pause_and_narrow_the_window_until_the_deadline() -> None:
    window = SendWindow(WindowLimits(max_in_flight=8, deadline_ms=10_000))
    one = chunk()
    window.offer(one)
    now_ms, pauses = 0, []
    while window.take(now_ms) is one and window.failed(one, now_ms, busy=True, jitter=1.0):
        due = window.wake_ms(now_ms)
        assert due is not None
        pauses.append(due - now_ms)
        now_ms = due

    assert pauses == [20, 40, 80, 160, 320, 640, 1280, 2000, 2000, 2000]
    assert one.attempts == 11
    assert window.allowed == 1


def test_a_burst_of_busy_answers_halves_the_window_once_and_answers_widen_it_again() -> None:
    window = SendWindow(WindowLimits(max_in_flight=8))
    chunks = [chunk(row=row) for row in range(8)]
    for one in chunks:
        window.offer(one)
    taken(window)

    for one in chunks[:4]:
        window.failed(one, 1000, busy=True, jitter=1.0)
    assert window.allowed == 4
    for one in chunks[4:]:
        window.stored(one)
    assert window.allowed == 5


def test_refusals_end_after_the_retries_and_lost_connections_at_the_deadline_only() -> None:
    limits = WindowLimits(retry_times=2, deadline_ms=60_000)
    window = SendWindow(limits)
    one = chunk()
    window.offer(one)
    now_ms = 0
    for _ in range(9):
        now_ms = window.wake_ms(now_ms) or now_ms
        assert window.take(now_ms) is one
        assert window.failed(one, now_ms, busy=False, jitter=0.0)

    answers = []
    for _ in range(3):
        now_ms = window.wake_ms(now_ms) or now_ms
        assert window.take(now_ms) is one
        answers.append(window.failed(one, now_ms, busy=False, refused=True, jitter=0.0))
    assert answers == [True, True, False]


def test_the_deadline_counts_from_the_first_attempt() -> None:
    window = SendWindow(WindowLimits(deadline_ms=100))
    one = chunk()
    window.offer(one)
    assert window.take(5_000) is one

    assert window.failed(one, 5_040, busy=True, jitter=1.0)
    assert window.take(5_060) is one
    assert not window.failed(one, 5_061, busy=True, jitter=1.0)


def test_the_window_is_full_by_count_or_by_bytes() -> None:
    by_count = SendWindow(WindowLimits(max_chunks=2))
    by_bytes = SendWindow(WindowLimits(max_bytes=10))
    chunks = [chunk(), chunk()]
    for window in (by_count, by_bytes):
        window.offer(chunks[0])
        assert not window.full
        window.offer(chunks[1])
        assert window.full
        window.take(0)
        window.stored(chunks[0])
        assert not window.full
        window.take(0)
        window.stored(chunks[1])
        assert window.idle


def test_the_rate_counts_messages_of_every_attempt() -> None:
    window = SendWindow(WindowLimits(rate=100))
    for row in range(3):
        window.offer(chunk(row=row, rows=10))

    first = window.take(0)
    assert first is not None
    assert window.take(99) is None
    assert window.wake_ms(1) == 100
    assert taken(window, 100) == [1]
    window.failed(first, 100, busy=True, jitter=0.0)
    assert taken(window, 200) == [2]
    assert taken(window, 299) == []
    assert taken(window, 300) == [0]


@given(
    st.lists(st.sampled_from([None, Q0, Q1]), min_size=1, max_size=30),
    st.lists(st.sampled_from(["store", "busy", "lost"]), max_size=200),
    st.integers(1, 5),
)
def test_whatever_fails_each_queue_gets_its_chunks_in_order_and_all_get_through(
    queues: list[MessageQueue | None], fates: list[str], in_flight: int
) -> None:
    window = SendWindow(WindowLimits(max_in_flight=in_flight, deadline_ms=10**9))
    chunks = [chunk(queue, row) for row, queue in enumerate(queues)]
    for one in chunks:
        window.offer(one)
    stored: list[Chunk] = []
    flying: list[Chunk] = []
    now_ms, fate = 0, iter(fates)
    while not window.idle:
        while (one := window.take(now_ms)) is not None:
            flying.append(one)
        assert len(flying) == window.in_flight <= in_flight
        ordered = [one.queue for one in flying if one.queue is not None]
        assert len(ordered) == len(set(ordered))
        if not flying:
            now_ms = window.wake_ms(now_ms) or now_ms
            continue
        one = flying.pop(now_ms % len(flying))
        match next(fate, "store"):
            case "store":
                window.stored(one)
                stored.append(one)
            case what:
                assert window.failed(one, now_ms, busy=what == "busy", jitter=0.5)
        now_ms += 1
    assert sorted(one.first_row for one in stored) == list(range(len(chunks)))
    for queue in (Q0, Q1):
        rows = [one.first_row for one in stored if one.queue == queue]
        assert rows == sorted(rows)


@pytest.mark.parametrize(
    ("code", "remark", "busy"),
    [
        (2, "[REJECTREQUEST]system busy, start flow control for a while", True),
        (2, None, True),
        (215, "", True),
        (1, "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period", True),
        (1, "TOO_MANY_REQUESTS", True),
        (1, "in-sync replicas not enough", False),
        (13, "the message is illegal", False),
    ],
)
def test_flow_control_is_known_by_code_and_by_text(code: int, remark: str, busy: bool) -> None:
    assert is_flow_control(code, remark) == busy
