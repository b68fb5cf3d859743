"""A range is read whole, in order, or an error says what is missing."""

import zlib

import pytest
from tests.spark.records import ListReader, make_record, struct_of

from roquette.client.calls import PullFilter
from roquette.errors import RouteNotFound
from roquette.message.message import MessageQueue
from roquette_spark.source.batch_reader import exact_tags, read_batches
from roquette_spark.values.errors import SourceError
from roquette_spark.values.offsets import DataLoss, QueueRange
from roquette_spark.values.options import ReadOptions
from roquette_spark.values.schema import arrow_schema

QUEUE = MessageQueue("T", "broker-a", 3)
SCHEMA = arrow_schema(struct_of("queue_offset", "tags"))


def options(**changed: object) -> ReadOptions:
    return ReadOptions(namesrv_addr="x", topics=("T",), **({"batch_rows": 5} | changed))  # type: ignore[arg-type]


def reader(count: int, **changed: int) -> ListReader:
    records = [make_record(i, properties={"TAGS": "AB"[i % 2]}) for i in range(count)]
    return ListReader({QUEUE: records}, **changed)


def read(source: ListReader, start: int, end: int, **changed: object) -> list[int]:
    batches = read_batches(source, [QueueRange(QUEUE, start, end)], options(**changed), SCHEMA)
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def test_a_range_is_read_whole_and_no_further() -> None:
    assert read(reader(40), 4, 31) == list(range(4, 31))


def test_batches_are_capped_by_rows_and_bytes() -> None:
    source = reader(30)
    work = QueueRange(QUEUE, 0, 30)

    by_rows = [b.num_rows for b in read_batches(source, [work], options(batch_rows=6), SCHEMA)]
    by_bytes = [
        b.num_rows
        for b in read_batches(source, [work], options(batch_rows=99, batch_bytes=1), SCHEMA)
    ]

    assert by_rows == [6] * 5
    assert by_bytes == [3] * 10


def test_bodies_that_grow_when_decompressed_are_capped_too() -> None:
    records = [make_record(i, zlib.compress(b"x" * 5000), sys_flag=1) for i in range(10)]
    source = ListReader({QUEUE: records}, per_pull=10)
    schema = arrow_schema(struct_of("queue_offset", "body", "msg_id", "store_host"))
    work = QueueRange(QUEUE, 0, 10)

    batches = list(read_batches(source, [work], options(batch_rows=10, batch_bytes=10_000), schema))

    assert [b.num_rows for b in batches] == [2] * 5
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["queue_offset"] for row in rows] == list(range(10))
    assert {row["body"] for row in rows} == {b"x" * 5000}
    assert rows[7]["msg_id"] == f"7F00000100002A9F{7000:016X}"
    assert {row["store_host"] for row in rows} == {"127.0.0.1:10911"}


def test_few_records_of_many_queues_are_decoded_together() -> None:
    queues = [MessageQueue("T", broker, number) for broker in "ab" for number in range(5)]
    source = ListReader(
        {
            queue: [
                make_record(i, b"%s-%d" % (queue.broker_name.encode(), i), queue_id=queue.queue_id)
                for i in range(9)
            ]
            for queue in queues
        },
        per_pull=9,  # more than the ranges hold: the rest is left out
    )
    schema = arrow_schema(struct_of("broker_name", "queue_id", "queue_offset", "body", "msg_id"))
    works = [QueueRange(queue, 2, 5) for queue in queues]

    batches = list(read_batches(source, works, options(batch_rows=100), schema))
    single = [b for work in works for b in read_batches(source, [work], options(), schema)]
    small = list(read_batches(source, works, options(batch_rows=7), schema))

    assert [batch.num_rows for batch in batches] == [15, 15]
    assert [batch.num_rows for batch in small] == [9, 6, 9, 6]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows == [row for batch in single for row in batch.to_pylist()]
    assert [(row["broker_name"], row["queue_id"], row["queue_offset"]) for row in rows] == [
        (queue.broker_name, queue.queue_id, i) for queue in queues for i in (2, 3, 4)
    ]
    assert rows[-1]["body"] == b"b-4"


def test_a_hole_in_one_of_many_ranges_names_it() -> None:
    other = MessageQueue("T", "broker-a", 4)
    whole = [make_record(i) for i in range(6)]
    source = ListReader({QUEUE: whole, other: [*whole[:2], whole[3], *whole[3:]]}, per_pull=9)
    works = [QueueRange(QUEUE, 0, 6), QueueRange(other, 0, 6)]

    with pytest.raises(DataLoss, match=r"T broker-a queue 4 .* the first hole is at 2"):
        list(read_batches(source, works, options(batch_rows=100), SCHEMA))


def test_tags_leave_rows_out_without_alarm() -> None:
    source = reader(10)

    assert read(source, 0, 10, tags="B") == [1, 3, 5, 7, 9]
    assert set(source.wanted) == {PullFilter("B", "TAG")}


@pytest.mark.parametrize("all_of_them", [False, True])
def test_rocketmqs_own_properties_are_left_out_unless_asked_for(all_of_them: bool) -> None:
    stored = {"KEYS": "k", "__SHARDINGKEY": "g", "mine": "1", "UNIQ_KEY": "U"}
    source = ListReader({QUEUE: [make_record(0, properties=stored)]})
    schema = arrow_schema(struct_of("properties", "message_group"))
    wanted = options(include_system_properties=all_of_them)

    (batch,) = read_batches(source, [QueueRange(QUEUE, 0, 1)], wanted, schema)

    (row,) = batch.to_pylist()
    assert dict(row["properties"]) == (stored if all_of_them else {"mine": "1"})
    assert row["message_group"] == "g"


def test_sql_goes_to_the_broker_and_holes_are_no_alarm() -> None:
    source = reader(10)
    source.records[QUEUE][4] = b""

    assert read(source, 0, 10, filter_sql="a > 5") == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert set(source.wanted) == {PullFilter("a > 5", "SQL92")}


def test_what_retention_took_is_an_error() -> None:
    with pytest.raises(
        DataLoss,
        match=r"T broker-a queue 3 .reading 2 to 9.: offsets 2 to 6 are gone, the oldest is 6; failOn",
    ):
        read(reader(10, oldest=6), 2, 9)


def test_what_retention_took_is_an_error_for_filtered_reads_too() -> None:
    with pytest.raises(DataLoss, match="offsets 2 to 6 are gone"):
        read(reader(10, oldest=6), 2, 9, tags="A")


def test_or_is_skipped_when_allowed() -> None:
    assert read(reader(10, oldest=6), 2, 9, fail_on_data_loss=False) == [6, 7, 8]
    assert read(reader(10, oldest=9), 2, 9, fail_on_data_loss=False) == []


def test_an_end_beyond_the_queue_is_an_error_or_cut() -> None:
    with pytest.raises(DataLoss, match="cannot be read at offset 10: the broker has 0 to 10"):
        read(reader(10), 0, 12)
    assert read(reader(10), 0, 12, fail_on_data_loss=False) == list(range(10))


def test_an_end_beyond_a_replica_is_an_error_in_any_case() -> None:
    source = reader(10)
    source.replicas = {QUEUE}

    with pytest.raises(
        SourceError, match="the master of broker-a is away and its replica has 0 to 10"
    ):
        read(source, 0, 12, fail_on_data_loss=False)


def test_a_queue_that_goes_while_it_is_read_is_an_error_in_any_case() -> None:
    source = reader(10)

    def lose_it() -> list[int]:
        work, schema = QueueRange(QUEUE, 0, 10), arrow_schema(struct_of("queue_offset"))
        given = options(fail_on_data_loss=False, batch_rows=3)
        found = []
        for batch in read_batches(source, [work], given, schema):
            found += batch.column(0).to_pylist()
            source.records.clear()
        return found

    with pytest.raises(RouteNotFound):
        lose_it()


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
