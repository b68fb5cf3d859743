"""Runs of records of one size, found together, end where a plain walk by sizes ends."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from roquette.message.record_layout import SMALLEST_RECORD
from roquette_spark.source.columns import leading_records


def plain_run(data: bytes, stop: int) -> tuple[list[int], int]:
    starts, position = [], 0
    while position < min(stop, len(data) - SMALLEST_RECORD + 1):
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        if size < SMALLEST_RECORD or position + size > len(data):
            break
        starts.append(position)
        position += size
    return starts, position


def sized(*runs: tuple[int, int]) -> bytes:
    """Runs of (size, count); a size smaller than a record's is given to as many bytes as a record has."""
    return b"".join(
        (size.to_bytes(4, "big", signed=True) + bytes(max(size, SMALLEST_RECORD) - 4)) * count
        for size, count in runs
    )


sizes = st.sampled_from([91, 92, 100, 300]) | st.integers(-2, 400)
counts = st.integers(1, 12) | st.sampled_from([63, 64, 65, 73, 400])


@given(st.lists(st.tuples(sizes, counts), max_size=8), st.integers(0, 40_000), st.integers(0, 400))
@settings(deadline=None, max_examples=200)
@example([(91, 9), (92, 9), (91, 9)] * 5, 40_000, 0)  # runs too short to be worth a look
@example([(100, 400)], 35_050, 0)  # a stop within a run, and within a record
def test_a_run_equals_a_plain_walk(runs: list[tuple[int, int]], stop: int, cut: int) -> None:
    data = sized(*runs)
    data = data[: max(0, len(data) - cut)]

    starts, end = leading_records(data, stop)

    assert (starts.tolist(), end) == plain_run(data, stop)
    assert starts.dtype == "int64"


@pytest.mark.parametrize("count", [8, 9, 10, 72, 73, 74, 1000])
def test_a_record_of_another_size_within_a_run_is_seen(count: int) -> None:
    data = sized((100, count), (101, 1), (100, count), (7, 1), (100, 20))

    starts, end = leading_records(data, len(data))

    assert len(starts) == 2 * count + 1
    assert end == 200 * count + 101
