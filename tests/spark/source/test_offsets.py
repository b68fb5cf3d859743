"""Offsets have one text, limits are shared fairly, ranges are cut without a gap."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.values.offsets import (
    QueueRange,
    decode_offsets,
    encode_offsets,
    group_ranges,
    offsets_json,
    share_limit,
    split_ranges,
)

busy_machine = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

queues = st.builds(
    MessageQueue, st.sampled_from(["T", "U"]), st.sampled_from(["a", "b"]), st.integers(0, 12)
)
offset_maps = st.dictionaries(queues, st.integers(0, 1000), max_size=8)


def test_the_text_is_canonical() -> None:
    offsets = {
        MessageQueue("T", "b", 0): 1,
        MessageQueue("T", "a", 10): 3,
        MessageQueue("T", "a", 9): 2,
    }

    text = offsets_json(offsets)

    assert text == '{"v":1,"offsets":{"T":{"a":{"9":2,"10":3},"b":{"0":1}}}}'


@given(offset_maps)
@busy_machine
def test_offsets_survive_their_text(offsets: dict[MessageQueue, int]) -> None:
    shuffled = dict(reversed(offsets.items()))

    assert json.dumps(encode_offsets(offsets)) == json.dumps(encode_offsets(shuffled))
    assert decode_offsets(json.loads(json.dumps(encode_offsets(offsets)))) == offsets


def test_foreign_offsets_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"not offsets of ours.*checkpointLocation of its own"):
        decode_offsets({"v": 2, "offsets": {}})


@given(offset_maps, st.dictionaries(queues, st.integers(0, 500), max_size=8), st.integers(1, 2000))
@busy_machine
def test_a_limit_is_used_up_and_shared(
    start: dict[MessageQueue, int], lags: dict[MessageQueue, int], limit: int
) -> None:
    end = {queue: offset + lags.get(queue, 0) for queue, offset in start.items()}

    found = share_limit(start, end, limit)

    moved = {queue: found[queue] - start[queue] for queue in start}
    assert sum(moved.values()) == min(limit, sum(end.values()) - sum(start.values()))
    assert all(0 <= moved[queue] <= end[queue] - start[queue] for queue in start)
    waiting = [queue for queue in start if end[queue] > start[queue]]
    if len(waiting) <= limit:
        assert all(moved[queue] for queue in waiting)  # a small queue does not starve


ranges = st.builds(
    lambda q, s, n: QueueRange(q, s, s + n), queues, st.integers(0, 1000), st.integers(0, 300)
)


@given(
    st.lists(ranges, max_size=6), st.none() | st.integers(1, 20), st.none() | st.integers(1, 100)
)
@busy_machine
def test_cut_ranges_cover_the_same_offsets(
    given_ranges: list[QueueRange], min_partitions: int | None, max_records: int | None
) -> None:
    found = split_ranges(given_ranges, min_partitions=min_partitions, max_records=max_records)

    def offsets(of: list[QueueRange]) -> list[tuple[MessageQueue, int]]:
        return [(r.queue, offset) for r in of for offset in range(r.start, r.end)]

    assert offsets(found) == offsets(given_ranges)
    assert all(r.start < r.end for r in found)
    assert max_records is None or all(r.end - r.start <= max_records for r in found)
    assert min_partitions is None or len(found) >= min(min_partitions, len(offsets(found)))


@given(
    st.lists(ranges.filter(lambda r: r.end > r.start), max_size=90, unique=True),
    st.integers(0, 400),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 500),
)
@busy_machine
def test_small_ranges_share_a_task_within_all_limits(
    given_ranges: list[QueueRange], least: int, min_partitions: int | None, max_records: int | None
) -> None:
    def size(task: Sequence[QueueRange]) -> int:
        return sum(r.end - r.start for r in task)

    found = group_ranges(
        given_ranges, least=least, min_partitions=min_partitions, max_records=max_records
    )

    assert sorted(r for task in found for r in task) == sorted(given_ranges)
    assert found == group_ranges(
        given_ranges[::-1], least=least, min_partitions=min_partitions, max_records=max_records
    )
    assert all(1 <= len(task) <= 64 for task in found)
    assert all(
        len(task) == 1 or size(task[:-1]) < least for task in found
    )  # none goes on once full
    assert max_records is None or all(len(t) == 1 or size(t) <= max_records for t in found)
    assert len(found) >= min(min_partitions or 1, len(given_ranges))


def test_ranges_of_few_messages_are_one_task_and_big_ones_one_each() -> None:
    def queue(number: int, size: int) -> QueueRange:
        return QueueRange(MessageQueue("T", "a", number), 5, 5 + size)

    tiny = [queue(number, 1) for number in range(10)]
    big = [queue(number, 500) for number in range(10, 12)]

    assert group_ranges([*big, *tiny], least=500) == [tuple(tiny), (big[0],), (big[1],)]
    assert group_ranges([*big, *tiny], least=4) == [
        tuple(tiny[:4]), tuple(tiny[4:8]), tuple(tiny[8:]), (big[0],), (big[1],)
    ]  # fmt: skip
    assert len(group_ranges(tiny, least=500, min_partitions=3)) == 4
    assert group_ranges(tiny, least=0) == [(each,) for each in tiny]
