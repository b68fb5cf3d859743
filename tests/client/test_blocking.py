"""The blocking reader against a server of our own over loopback."""

from collections.abc import Iterator

import pytest
from tests.client.fake_cluster import FakeCluster

from roquette.client.blocking import BlockingReader
from roquette.errors import BrokerError, ConnectError, RouteNotFound
from roquette.message.message import MessageQueue
from roquette.wire.codes import RequestCode

Q0, Q1 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    records = [b"%04d" % i for i in range(1000)]
    with FakeCluster({Q0: records, Q1: []}) as cluster:
        yield cluster


@pytest.fixture
def reader(cluster: FakeCluster) -> Iterator[BlockingReader]:
    reader = BlockingReader(f"127.0.0.1:1;{cluster.address}", group="g", timeout_ms=5000)
    yield reader
    reader.close()


def scanned(reader: BlockingReader, start: int, end: int, tags: str = "*") -> bytes:
    return b"".join(pulled.records for pulled in reader.scan(Q0, start, end, tags))


def numbers(start: int, end: int) -> bytes:
    return b"".join(b"%04d" % i for i in range(start, end))


def test_queues_and_their_bounds(reader: BlockingReader, cluster: FakeCluster) -> None:
    cluster.oldest = 5

    assert reader.queues("T") == [Q0, Q1]
    assert (reader.min_offset(Q0), reader.max_offset(Q0), reader.offset_by_time(Q0, 7)) == (
        5,
        1000,
        7,
    )


def test_a_topic_nobody_knows(reader: BlockingReader) -> None:
    with pytest.raises(RouteNotFound, match="No route info of this topic: nope"):
        reader.queues("nope")


def test_no_name_server_answers() -> None:
    with pytest.raises(ConnectError, match=r"connect to 127\.0\.0\.1:1 failed"):
        BlockingReader("127.0.0.1:1", group="g").queues("T")


def test_a_scan_reads_exactly_its_range_ahead_of_the_answers(
    reader: BlockingReader, cluster: FakeCluster
) -> None:
    assert scanned(reader, 3, 777) == numbers(3, 777)

    pulls = [ext for code, ext in cluster.requests if code == RequestCode.PULL_MESSAGE]
    assert len(pulls) == 25  # 774 messages, 32 at a time
    assert pulls[0]["maxMsgNums"] == "774"
    assert {ext["maxMsgNums"] for ext in pulls[1:]} == {"32", "6"}
    assert pulls[1]["subscription"] == "*"


def test_a_broker_that_gives_less_than_foretold_is_followed(
    reader: BlockingReader, cluster: FakeCluster
) -> None:
    found = []
    for pulled in reader.scan(Q0, 0, 500, "*"):
        found.append(pulled.records)
        cluster.per_pull = 32 if len(found) % 3 else 7

    assert b"".join(found) == numbers(0, 500)


def test_filtered_pulls_go_one_by_one(reader: BlockingReader) -> None:
    assert scanned(reader, 0, 100, "A||B") == numbers(0, 100)


def test_a_scan_beyond_the_end_stops_without_progress(reader: BlockingReader) -> None:
    assert scanned(reader, 990, 1100) == numbers(990, 1000)


def test_a_pull_before_the_oldest_tells_where_to_go_on(
    reader: BlockingReader, cluster: FakeCluster
) -> None:
    cluster.oldest = 40

    pulled = reader.pull(Q0, 3, 32, "*")

    assert pulled == (b"", 40, 40, 1000)


def test_a_broken_connection_is_made_anew_and_nothing_is_lost(
    reader: BlockingReader, cluster: FakeCluster
) -> None:
    cluster.hang_up_after = 12

    assert scanned(reader, 0, 900) == numbers(0, 900)


def test_a_scan_left_early_leaves_no_old_answers_behind(reader: BlockingReader) -> None:
    for _ in zip(range(3), reader.scan(Q0, 0, 900, "*"), strict=False):
        pass

    assert reader.max_offset(Q0) == 1000
    assert scanned(reader, 10, 20) == numbers(10, 20)


def test_a_refusal_carries_the_brokers_code(reader: BlockingReader, cluster: FakeCluster) -> None:
    reader.queues("T")
    cluster.answer = lambda command: (16, {}, b"")  # type: ignore[method-assign]

    with pytest.raises(BrokerError) as caught:
        reader.pull(Q0, 0, 1, "*")

    assert (caught.value.code, caught.value.address) == (16, cluster.address)
