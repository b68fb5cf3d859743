"""A range is read whole, in order, or an error says what is missing."""

import pytest
from tests.spark.records import ListReader, make_record, struct_of

from roquette.message.message import MessageQueue
from roquette.spark.batches import exact_tags, read_batches
from roquette.spark.offsets import DataLoss, QueueRange
from roquette.spark.options import ReadOptions
from roquette.spark.schema import arrow_schema

QUEUE = MessageQueue("T", "broker-a", 3)
SCHEMA = arrow_schema(struct_of("queue_offset", "tags"))


def options(**changed: object) -> ReadOptions:
    return ReadOptions(namesrv_addr="x", topics=("T",), **({"batch_rows": 5} | changed))  # type: ignore[arg-type]


def reader(count: int, **changed: int) -> ListReader:
    records = [make_record(i, properties={"TAGS": "AB"[i % 2]}) for i in range(count)]
    return ListReader({QUEUE: records}, **changed)


def read(source: ListReader, start: int, end: int, **changed: object) -> list[int]:
    batches = read_batches(source, QueueRange(QUEUE, start, end), options(**changed), SCHEMA)
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def test_a_range_is_read_whole_and_no_further() -> None:
    assert read(reader(40), 4, 31) == list(range(4, 31))


def test_batches_are_capped_by_rows_and_bytes() -> None:
    source = reader(30)
    work = QueueRange(QUEUE, 0, 30)

    by_rows = [b.num_rows for b in read_batches(source, work, options(batch_rows=6), SCHEMA)]
    by_bytes = [
        b.num_rows
        for b in read_batches(source, work, options(batch_rows=99, batch_bytes=1), SCHEMA)
    ]

    assert by_rows == [6] * 5
    assert by_bytes == [3] * 10


def test_tags_leave_rows_out_without_alarm() -> None:
    assert read(reader(10), 0, 10, tags="B") == [1, 3, 5, 7, 9]


def test_what_retention_took_is_an_error() -> None:
    with pytest.raises(
        DataLoss,
        match="T broker-a queue 3 cannot be read at offset 2 of 2 to 9: the broker has 6 to 10",
    ):
        read(reader(10, oldest=6), 2, 9)


def test_or_is_skipped_when_allowed() -> None:
    assert read(reader(10, oldest=6), 2, 9, fail_on_data_loss=False) == [6, 7, 8]


def test_an_end_beyond_the_queue_is_an_error_or_cut() -> None:
    with pytest.raises(DataLoss, match="at offset 10 of 0 to 12"):
        read(reader(10), 0, 12)
    assert read(reader(10), 0, 12, fail_on_data_loss=False) == list(range(10))


def test_a_hole_is_an_error() -> None:
    source = reader(10)
    source.records[QUEUE][4] = b""

    with pytest.raises(DataLoss, match="first hole is at 4"):
        read(source, 0, 10, batch_rows=100)
    assert read(source, 0, 10, fail_on_data_loss=False) == [0, 1, 2, 3, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("expression", "tags"), [("*", []), ("", []), ("A", ["A"]), ("A || B||C ", ["A", "B", "C"])]
)
def test_tag_expressions(expression: str, tags: list[str]) -> None:
    assert exact_tags(expression) == tags
