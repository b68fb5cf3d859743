"""The blocking reader against a server of our own over loopback."""

import threading
from collections.abc import Iterator

import pytest
from tests.client.fake_cluster import FakeCluster

from roquette.client.calls import PullFilter
from roquette.errors import BrokerError, ConnectError, RequestTimeout, RouteNotFound
from roquette.message.message import MessageQueue
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette_spark.workers.reader import BlockingReader, ReaderConfig

Q0, Q1 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    records = [b"%04d" % i for i in range(1000)]
    with FakeCluster({Q0: records, Q1: []}) as cluster:
        yield cluster


@pytest.fixture
def reader(cluster: FakeCluster) -> Iterator[BlockingReader]:
    reader = BlockingReader(
        ReaderConfig(namesrv_addr=f"127.0.0.1:1;{cluster.address}", group="g", timeout_ms=5000)
    )
    yield reader
    reader.close()


def scanned(reader: BlockingReader, start: int, end: int, tags: str = "*") -> bytes:
    pulls = reader.scan(Q0, start, end, PullFilter(tags))
    return b"".join(pulled.records for pulled in pulls)


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
        BlockingReader(ReaderConfig(namesrv_addr="127.0.0.1:1", group="g")).queues("T")


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
    for pulled in reader.scan(Q0, 0, 500):
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

    pulled = reader.pull(Q0, 3, 32)

    assert pulled == (b"", 40, 40, 1000, True, 0, False)


def test_a_broken_connection_is_made_anew_and_nothing_is_lost(
    reader: BlockingReader, cluster: FakeCluster
) -> None:
    cluster.hang_up_after = 12

    assert scanned(reader, 0, 900) == numbers(0, 900)


def test_a_scan_left_early_leaves_no_old_answers_behind(reader: BlockingReader) -> None:
    for _ in zip(range(3), reader.scan(Q0, 0, 900), strict=False):
        pass

    assert reader.max_offset(Q0) == 1000
    assert scanned(reader, 10, 20) == numbers(10, 20)


def test_a_refusal_carries_the_brokers_code(reader: BlockingReader, cluster: FakeCluster) -> None:
    reader.queues("T")
    cluster.answer = lambda command: (23, {}, b"")  # type: ignore[method-assign]

    with pytest.raises(BrokerError) as caught:
        reader.pull(Q0, 0, 1)

    assert (caught.value.code, caught.value.address) == (23, cluster.address)


def test_many_bounds_are_asked_side_by_side(reader: BlockingReader, cluster: FakeCluster) -> None:
    cluster.oldest = 5
    queues = reader.queues("T")
    before = len(cluster.requests)

    assert reader.max_offsets(queues) == {Q0: 1000, Q1: 0}
    assert reader.min_offsets(queues) == {Q0: 5, Q1: 5}
    assert reader.max_offsets([]) == {}
    assert len(cluster.requests) - before == 4


def test_bounds_that_failed_are_asked_again(reader: BlockingReader, cluster: FakeCluster) -> None:
    queues = reader.queues("T")
    cluster.refusals = [ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_BUSY]
    assert reader.max_offsets(queues) == {Q0: 1000, Q1: 0}

    cluster.hang_up_after = len(cluster.requests)
    assert reader.max_offsets(queues) == {Q0: 1000, Q1: 0}


def test_a_queue_without_files_of_an_old_broker_starts_at_0(
    reader: BlockingReader, cluster: FakeCluster
) -> None:
    cluster.oldest = -1

    assert (reader.min_offset(Q1), reader.min_offsets([Q0])) == (0, {Q0: 0})


def test_topics_of_the_name_server(reader: BlockingReader) -> None:
    assert reader.topics() == ["T"]


def test_offsets_of_a_group(reader: BlockingReader, cluster: FakeCluster) -> None:
    assert reader.committed_offset(Q0) is None

    reader.commit_offsets({Q0: 7, Q1: 0})

    assert cluster.committed == {("g", "T", 0): 7, ("g", "T", 1): 0}
    assert (reader.committed_offset(Q0), reader.committed_offset(Q1)) == (7, 0)


def test_other_queues_are_committed_when_the_first_one_is_stored(
    reader: BlockingReader, cluster: FakeCluster
) -> None:
    """A first commit that is refused is repeated by itself: see `two_waves`."""
    reader.queues("T")
    cluster.refusals = [ResponseCode.SYSTEM_BUSY]

    reader.commit_offsets({Q0: 7, Q1: 9})

    commits = [ext for code, ext in cluster.requests if code == RequestCode.UPDATE_CONSUMER_OFFSET]
    assert len(commits) == 3
    assert [ext["queueId"] for ext in commits[:2]] == [commits[0]["queueId"]] * 2
    assert cluster.committed == {("g", "T", 0): 7, ("g", "T", 1): 9}


def test_a_group_that_the_broker_never_saw_is_made_known_by_a_pull(
    reader: BlockingReader, cluster: FakeCluster
) -> None:
    reader.queues("T")
    unknown = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    cluster.refusals = [unknown] * 2  # with those of the other queues, and by itself
    reader.commit_offsets({Q0: 7})
    assert cluster.committed == {("g", "T", 0): 7}
    assert RequestCode.PULL_MESSAGE in [code for code, _ in cluster.requests]

    cluster.refusals = [unknown] * 3
    with pytest.raises(BrokerError):
        reader.commit_offsets({Q0: 8})


def test_a_busy_broker_is_asked_again_a_bounded_number_of_times(cluster: FakeCluster) -> None:
    reader = BlockingReader(
        ReaderConfig(namesrv_addr=cluster.address, group="g", retries=2, retry_interval_ms=1)
    )
    reader.queues("T")

    cluster.refusals = [ResponseCode.SYSTEM_BUSY] * 2
    assert reader.pull(Q0, 0, 1).next_offset == 1

    # A retry asks for the route, too.
    cluster.refusals = [ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_BUSY] + [2] * 20
    with pytest.raises(BrokerError) as caught:
        reader.pull(Q0, 0, 1)
    assert caught.value.code == ResponseCode.SYSTEM_BUSY
    reader.close()


def test_a_storm_of_refusals_within_a_scan_loses_and_repeats_nothing(
    reader: BlockingReader, cluster: FakeCluster
) -> None:
    found = []
    for number, pulled in enumerate(reader.scan(Q0, 0, 900)):
        found.append(pulled.records)
        if number % 5 == 4:
            cluster.refusals = [ResponseCode.SYSTEM_BUSY]

    assert b"".join(found) == numbers(0, 900)


def test_sql_goes_with_its_kind(reader: BlockingReader, cluster: FakeCluster) -> None:
    reader.pull(Q0, 0, 1, PullFilter("a > 5", "SQL92"))

    pull = cluster.requests[-1][1]
    assert (pull["subscription"], pull["expressionType"]) == ("a > 5", "SQL92")


def test_a_replica_answers_while_the_master_is_away(cluster: FakeCluster) -> None:
    queues = cluster.queues
    with FakeCluster(queues) as names, FakeCluster(queues) as master:
        names.addresses = {0: master.address, 2: cluster.address}
        reader = BlockingReader(
            ReaderConfig(
                namesrv_addr=names.address, group="g", timeout_ms=2000, retry_interval_ms=1
            )
        )
        assert reader.max_offset(Q0) == 1000
        assert not reader.from_replica(Q0)
        assert not cluster.requests

        master.down = True
        assert scanned(reader, 0, 900) == numbers(0, 900)
        assert reader.from_replica(Q0)
        assert reader.max_offsets([Q0, Q1]) == {Q0: 1000, Q1: 0}
        asked = len(master.requests)
        reader.max_offset(Q0)
        assert len(master.requests) == asked  # it is not tried again at once

        cluster.down, master.down = True, False
        assert reader.max_offset(Q0) == 1000
        assert not reader.from_replica(Q0)
        reader.close()


def test_a_connection_that_grew_stale_sends_nobody_to_a_replica(cluster: FakeCluster) -> None:
    with FakeCluster(cluster.queues) as names, FakeCluster(cluster.queues) as master:
        names.addresses = {0: master.address, 1: cluster.address}
        reader = BlockingReader(
            ReaderConfig(namesrv_addr=names.address, group="g", retry_interval_ms=1)
        )
        reader.max_offset(Q0)

        master.hang_up_after = len(master.requests)
        assert reader.max_offset(Q0) == 1000
        master.hang_up_after = len(master.requests)
        assert reader.max_offsets([Q0, Q1]) == {Q0: 1000, Q1: 0}

        assert not reader.from_replica(Q0)
        assert not cluster.requests
        reader.close()


def test_nobody_answers_for_a_broker(cluster: FakeCluster) -> None:
    with FakeCluster(cluster.queues) as names:
        names.addresses = {0: "127.0.0.1:1", 1: cluster.address}
        cluster.down = True
        reader = BlockingReader(
            ReaderConfig(namesrv_addr=names.address, group="g", timeout_ms=500, retry_interval_ms=1)
        )

        with pytest.raises((ConnectError, RequestTimeout)):
            reader.max_offset(Q0)
        reader.close()


@pytest.mark.parametrize(
    "code",
    [RequestCode.GET_MAX_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET],
    ids=["ends", "commits"],
)
def test_brokers_are_asked_side_by_side(code: RequestCode) -> None:
    here, there = MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)
    asked_there = threading.Event()

    class Waiting(FakeCluster):
        def answer(self, command: Command) -> tuple[int, dict[str, str], bytes]:
            if command.code == code:
                assert asked_there.wait(60), "the other broker was not asked meanwhile"
            return super().answer(command)

    class Other(FakeCluster):
        def answer(self, command: Command) -> tuple[int, dict[str, str], bytes]:
            asked_there.set()
            return super().answer(command)

    with Waiting({here: [b"0000"], there: []}) as a, Other({there: []}) as b:
        a.elsewhere = {"b": b.address}
        reader = BlockingReader(ReaderConfig(namesrv_addr=a.address, group="g", timeout_ms=5000))

        if code == RequestCode.GET_MAX_OFFSET:
            assert reader.max_offsets([here, there]) == {here: 1, there: 0}
        else:
            reader.commit_offsets({here: 1, there: 0})
        reader.close()

    assert a.connections == 1, "no answer came within the limit"


def test_connections_are_kept_and_made_anew_after_a_restart() -> None:
    with FakeCluster({Q0: [b"%04d" % i for i in range(3)]}) as cluster:
        reader = BlockingReader(
            ReaderConfig(namesrv_addr=cluster.address, group="g", timeout_ms=5000)
        )
        for _ in range(5):
            assert reader.max_offsets([Q0]) == {Q0: 3}
            assert reader.pull(Q0, 0, 3).next_offset == 3
        kept = cluster.connections
        for _ in range(2):
            cluster.hang_up()
            assert reader.max_offsets([Q0]) == {Q0: 3}
            cluster.hang_up()
            assert reader.pull(Q0, 0, 3).next_offset == 3
        reader.close()

    assert (kept, cluster.connections) == (1, 5)
