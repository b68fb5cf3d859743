"""maxBytesPerTrigger: whole backlogs that fit, shares by sampled sizes, and never a standstill."""

from tests.spark.records import ListReader, make_record

from roquette.message.message import MessageQueue
from roquette_spark.source.stream_reader import limit_bytes

A0, A1 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)


def records(count: int, size: int) -> list[bytes]:
    return [make_record(i, b"x" * size) for i in range(count)]


def test_a_backlog_that_fits_is_taken_whole() -> None:
    cluster = ListReader({A0: records(50, 100)}, per_pull=32)

    assert limit_bytes(cluster, {A0: 0}, {A0: 50}, 1 << 20) == {A0: 50}


def test_queues_share_by_bytes_not_by_messages() -> None:
    cluster = ListReader({A0: records(1000, 909), A1: records(1000, 9)}, per_pull=32)
    size = len(make_record(0, b"x" * 909)) * 1000 + len(make_record(0, b"x" * 9)) * 1000

    found = limit_bytes(cluster, {A0: 0, A1: 0}, {A0: 1000, A1: 1000}, size // 10)

    assert found == {A0: 100, A1: 100}
    moved = sum(len(r) for q, end in found.items() for r in cluster.records[q][:end])
    assert moved <= size // 10


def test_a_small_queue_does_not_starve_beside_a_large_one() -> None:
    queues = {MessageQueue("T", "a", number): records(1, 9) for number in range(1, 30)}
    cluster = ListReader({A0: records(100_000, 900), **queues}, per_pull=32)
    begin = dict.fromkeys(cluster.records, 0)
    end = {queue: len(there) for queue, there in cluster.records.items()}

    found = limit_bytes(cluster, begin, end, 100_000)

    assert {queue: found[queue] for queue in queues} == dict.fromkeys(queues, 1)
    moved = sum(len(r) for q, end in found.items() for r in cluster.records[q][:end])
    assert 95_000 <= moved <= 105_000


def test_where_not_one_message_of_each_queue_fits_each_moves_by_one() -> None:
    queues = {MessageQueue("T", "a", number): records(5, 900) for number in range(9)}
    cluster = ListReader(queues, per_pull=32)

    found = limit_bytes(cluster, dict.fromkeys(queues, 1), dict.fromkeys(queues, 5), 3000)

    assert found == dict.fromkeys(queues, 2)


def test_queues_without_lag_stay_where_they_are() -> None:
    cluster = ListReader({A0: records(1000, 900), A1: records(5, 9)}, per_pull=32)

    found = limit_bytes(cluster, {A0: 0, A1: 5}, {A0: 1000, A1: 5}, 100_000)

    assert found[A1] == 5
    assert 90 <= found[A0] <= 110


def test_a_message_larger_than_the_limit_moves_alone() -> None:
    cluster = ListReader({A0: records(3, 5000)}, per_pull=32)

    assert limit_bytes(cluster, {A0: 1}, {A0: 3}, 10) == {A0: 2}


def test_a_backlog_that_went_meanwhile_is_no_reason_to_stop() -> None:
    cluster = ListReader({A0: records(100, 50)}, oldest=100, per_pull=32)

    assert limit_bytes(cluster, {A0: 0}, {A0: 100}, 10)[A0] > 0
