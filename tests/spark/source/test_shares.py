"""Which messages to read, as text and as the work of tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette.message.message import MessageQueue
from roquette_spark.values.offsets import QueueRange, decode_ranges, encode_ranges, share_ranges


def some(*sizes: int, topic: str = "T") -> list[QueueRange]:
    return [
        QueueRange(MessageQueue(topic, "b", number), 10 * number, 10 * number + size)
        for number, size in enumerate(sizes)
    ]


def offsets(ranges: "list[QueueRange] | tuple[QueueRange, ...]") -> list[tuple[int, int]]:
    return [(each.queue.queue_id, n) for each in ranges for n in range(each.start, each.end)]


@given(
    st.lists(st.integers(0, 50), max_size=8),
    st.integers(1, 6),
    st.integers(1, 40),
)
def test_tasks_have_each_message_once_in_order_and_even_shares(
    sizes: list[int], tasks: int, least: int
) -> None:
    ranges, total = some(*sizes), sum(sizes)

    shared = share_ranges(ranges, tasks=tasks, least=least)

    assert [place for task in shared for place in offsets(task)] == offsets(ranges)
    assert len(shared) <= tasks
    counts = [len(offsets(task)) for task in shared]
    assert not counts or max(counts) - min(counts) <= 1
    assert len(shared) <= 1 or min(counts) >= min(least, total // len(shared))
    assert share_ranges(ranges[::-1], tasks=tasks, least=least) == shared


@pytest.mark.parametrize("tasks, expected", [(1, [60]), (2, [30, 30]), (4, [20, 20, 20])])
def test_a_task_is_worth_a_number_of_messages(tasks: int, expected: list[int]) -> None:
    shared = share_ranges(some(50, 0, 10), tasks=tasks, least=20)

    assert [len(offsets(task)) for task in shared] == expected


def test_ranges_travel_as_text() -> None:
    ranges = some(3, 4) + some(1, topic="%RETRY%g")

    assert decode_ranges(encode_ranges(ranges)) == ranges
