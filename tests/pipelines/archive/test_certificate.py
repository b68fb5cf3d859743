"""What an archive has of each queue, counted batch by batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquette.errors import ConfigError
from roquette.message.message import MessageQueue
from roquette_spark.pipelines.archive.report import (
    Certificate,
    QueueRecord,
    decode_certificate,
)
from roquette_spark.pipelines.kit.topics import PlannedEnd
from roquette_spark.values.offsets import QueueRange

A0 = ("a", 0)


def span(start: int, end: int, queue_id: int = 0) -> QueueRange:
    return QueueRange(MessageQueue("T", "a", queue_id), start, end)


def after(
    *batches: tuple[list[QueueRange], dict[tuple[str, int], int]], every: bool = True
) -> Certificate:
    found = Certificate()
    for ranges, rows in batches:
        found = found.with_batch(ranges, rows, {}, every=every)
    return found


def test_batches_that_are_whole_make_a_certificate_without_holes() -> None:
    found = after(([span(5, 10)], {A0: 5}), ([span(10, 12), span(0, 3, 1)], {A0: 2, ("a", 1): 3}))

    assert found.queues == {A0: QueueRecord(5, 12, 7), ("a", 1): QueueRecord(0, 3, 3)}
    assert (found.rows, found.missing, found.twice) == (10, 0, 0)
    assert decode_certificate(found.encode()) == found


@pytest.mark.parametrize(
    "ranges, rows, missing, twice",
    [
        ([span(10, 20)], 9, 1, 0),  # a task wrote less than it was to read
        ([span(10, 20)], 11, 0, 1),
        ([span(13, 20)], 7, 3, 0),  # the stream went over offsets
        ([span(5, 20)], 15, 0, 5),  # it went back
        ([span(10, 15), span(15, 20)], 10, 0, 0),  # two tasks of one queue
    ],
)
def test_what_is_missing_or_twice_is_counted_and_stays(
    ranges: list[QueueRange], rows: int, missing: int, twice: int
) -> None:
    found = after(([span(0, 10)], {A0: 10}), (ranges, {A0: rows}), ([span(20, 30)], {A0: 10}))

    assert (found.missing, found.twice, found.queues[A0].end) == (missing, twice, 30)


def test_a_hole_is_not_filled_by_a_row_too_many_elsewhere() -> None:
    found = after(([span(0, 10)], {A0: 8}), ([span(10, 20)], {A0: 12}))

    assert (found.missing, found.twice) == (2, 2)


def test_where_the_table_began_counts_from_the_first_batch_on() -> None:
    found = Certificate().with_batch([span(4, 10)], {A0: 6}, {A0: 1}, every=True)

    assert found.queues[A0] == QueueRecord(1, 10, 6, missing=3, skipped=3)


def test_with_tags_fewer_rows_than_offsets_are_no_holes() -> None:
    found = after(([span(0, 10)], {A0: 3}), ([span(10, 20)], {}), every=False)

    assert found.queues[A0] == QueueRecord(0, 20, 3)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 9)), max_size=20))
def test_whole_batches_never_leave_a_hole(batches: list[tuple[int, int]]) -> None:
    ends, found = [0, 0], Certificate()
    for queue_id, count in batches:
        start = ends[queue_id]
        ends[queue_id] += count
        ranges = [span(start, start + count, queue_id)]
        found = found.with_batch(ranges, {("a", queue_id): count}, {}, every=True)

    assert (found.missing, found.twice, found.rows) == (0, 0, sum(ends))
    assert decode_certificate(found.encode()) == found


def test_a_topic_made_anew_begins_another_record() -> None:
    first = Certificate().with_batch(
        [span(0, 10)], {A0: 8}, {}, every=True, planned={A0: PlannedEnd(10, "1.5")}
    )
    anew = {A0: PlannedEnd(4, "9.0", anew=0), ("a", 1): PlannedEnd(7)}

    found = first.with_batch([span(0, 4)], {A0: 4}, {("a", 1): 2}, every=True, planned=anew)

    assert found.queues[A0] == QueueRecord(0, 4, 4, seen="9.0")
    assert found.former == ((A0, QueueRecord(0, 10, 8, missing=2, seen="1.5")),)
    assert found.queues["a", 1] == QueueRecord(2, 7, missing=5, skipped=5)  # nothing of it was read
    assert (found.rows, found.missing, found.twice, found.skipped) == (12, 7, 0, 5)
    assert decode_certificate(found.encode()) == found


def test_a_scan_keeps_what_rows_do_not_tell() -> None:
    kept = Certificate(
        {
            A0: QueueRecord(0, 10, 6, missing=4, skipped=4, seen="1.5"),
            ("a", 1): QueueRecord(0, 3, 3, seen="2.5"),
        }
    )
    scanned = Certificate({A0: QueueRecord(0, 10, 5, missing=5), ("a", 1): QueueRecord(0, 2, 2)})

    assert scanned.remembering(kept).queues == {
        A0: QueueRecord(0, 10, 5, missing=5, skipped=4, seen="1.5"),
        ("a", 1): QueueRecord(0, 2, 2),
    }


def test_a_certificate_of_an_earlier_version_is_read() -> None:
    found = decode_certificate('{"v":1,"queues":{"a":{"0":[5,12,7,0,0]}}}')

    assert found == Certificate({A0: QueueRecord(5, 12, 7)})


def test_a_newer_certificate_is_refused() -> None:
    with pytest.raises(ConfigError, match="newer version"):
        decode_certificate('{"v": 2, "queues": {}}')
