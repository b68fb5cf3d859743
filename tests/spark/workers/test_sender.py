"""Pipelined sends to brokers that refuse, fall silent, hang up or die: nothing is lost, no key changes its order."""

import pytest
from tests.client.sink_cluster import HANG_UP, SILENCE, STORE_AND_HANG_UP, SinkCluster

from roquette.errors import RouteNotFound
from roquette.message.message import MessageQueue
from roquette.message.record import encode_batch
from roquette_spark.workers.send_window import Chunk, WindowLimits
from roquette_spark.workers.sender import BlockingSender, NotStored, SenderConfig


def sender_of(cluster: SinkCluster, *, timeout_ms: int = 10_000, **limits: int) -> BlockingSender:
    config = SenderConfig(
        namesrv_addr=cluster.address,
        send_timeout_ms=timeout_ms,
        limits=WindowLimits(**{"deadline_ms": 5_000, **limits}),
    )
    sender = BlockingSender(config)
    sender.begin()
    return sender


def single(number: int, queue: MessageQueue | None = None, topic: str = "T") -> Chunk:
    body = b"%d" % number
    return Chunk(topic, queue, body, "K\x01v\x02", batch=False, first_row=number, rows=1, flag=7)


def first_seen(bodies: list[bytes]) -> list[int]:
    """What a consumer sees that takes each message once."""
    return [int(body) for body in dict.fromkeys(bodies)]


def test_messages_and_batches_arrive_with_flag_and_properties() -> None:
    with SinkCluster({"T": {"a": 2}}) as cluster:
        sender = sender_of(cluster)
        queue = MessageQueue("T", "a", 1)
        batch = encode_batch([(1, b"x", b"P\x01q\x02"), (2, b"y", b"")])
        sender.offer(single(0, queue))
        sender.offer(Chunk("T", queue, batch, "WAIT\x01true\x02", batch=True, first_row=1, rows=2))

        counts = sender.finish()

        one, two, three = cluster.stored["T", "a", 1]
        assert (one.body, one.flag, one.properties) == (b"0", 7, {"K": "v"})
        assert (two.body, two.flag, two.properties) == (b"x", 1, {"P": "q", "WAIT": "true"})
        assert (three.body, three.flag, three.batch_of) == (b"y", 2, 2)
        assert (counts.rows, counts.requests, counts.failures) == (3, 2, 0)


def test_a_storm_of_busy_answers_delays_but_loses_nothing() -> None:
    with SinkCluster({"T": {"a": 4}}) as cluster:
        cluster.verdict = lambda broker, number, ext: (
            (2, "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while")
            if number % 3
            else None
        )
        sender = sender_of(cluster)
        for number in range(12):
            sender.offer(single(number, MessageQueue("T", "a", number % 4)))

        counts = sender.finish()

        for queue_id in range(4):
            found = [int(one.body) for one in cluster.stored["T", "a", queue_id]]
            assert found == list(range(queue_id, 12, 4))  # in order, and once each
        assert counts.rows == 12
        assert counts.busy == counts.requests - 12 > 0


def test_busy_until_the_deadline_is_an_error_that_names_the_rows_and_the_answer() -> None:
    with SinkCluster({"T": {"a": 1}}) as cluster:
        cluster.verdict = lambda broker, number, ext: (2, "[PCBUSY_CLEAN_QUEUE]broker busy")
        sender = sender_of(cluster, deadline_ms=150)
        sender.offer(single(41))

        with pytest.raises(
            NotStored,
            match=r"1 messages to T, the first from row 41, not stored after \d+ .*PCBUSY",
        ):
            sender.finish()
        assert cluster.bodies() == []


def test_an_answer_that_cannot_change_ends_it_at_once() -> None:
    with SinkCluster({"T": {"a": 1}}) as cluster:
        cluster.verdict = lambda broker, number, ext: (13, "the message is illegal")
        sender = sender_of(cluster)

        with pytest.raises(NotStored, match=r"after 1 attempts.*the message is illegal"):
            sender.offer(single(0))
            sender.finish()


def test_a_connection_that_breaks_in_the_middle_keeps_the_order_of_each_queue() -> None:
    with SinkCluster({"T": {"a": 3}}) as cluster:
        fates = {7: HANG_UP, 20: STORE_AND_HANG_UP, 33: HANG_UP}
        cluster.verdict = lambda broker, number, ext: (
            (fates.pop(number), "") if number in fates else None
        )
        sender = sender_of(cluster)
        for number in range(90):
            sender.offer(single(number, MessageQueue("T", "a", number % 3)))
        sender.finish()

        for queue_id in range(3):
            bodies = [one.body for one in cluster.stored["T", "a", queue_id]]
            assert first_seen(bodies) == list(range(queue_id, 90, 3))
        assert len(cluster.bodies()) > 90  # what was stored before the connection broke came again
        assert not fates


def test_a_failed_message_without_a_queue_goes_to_another_broker() -> None:
    with SinkCluster({"T": {"a": 2, "b": 2}}) as cluster:
        cluster.verdict = lambda broker, number, ext: (14, "full") if broker == "a" else None
        sender = sender_of(cluster)
        for number in range(20):
            sender.offer(single(number))
        sender.finish()

        assert sorted(int(body) for body in cluster.bodies()) == list(range(20))
        assert {key[1] for key in cluster.stored} == {"b"}


def test_a_silent_broker_is_given_up_after_the_timeout_and_asked_again() -> None:
    with SinkCluster({"T": {"a": 1}}) as cluster:
        cluster.verdict = lambda broker, number, ext: (SILENCE, "") if number < 2 else None
        sender = sender_of(cluster, timeout_ms=80)
        sender.offer(single(0))

        counts = sender.finish()

        assert counts.rows == 1
        assert counts.failures >= 2


def test_stored_but_not_flushed_counts_unless_the_answer_must_be_ok() -> None:
    with SinkCluster({"T": {"a": 1}}) as cluster:
        cluster.verdict = lambda broker, number, ext: (12, "") if number < 2 else None
        easy = sender_of(cluster)
        easy.offer(single(0))
        assert (easy.finish().rows, easy.counts.weak) == (1, 1)

        config = SenderConfig(namesrv_addr=cluster.address, require_send_ok=True)
        strict = BlockingSender(config)
        strict.begin()
        strict.offer(single(1))
        assert (strict.finish().rows, strict.counts.requests) == (1, 2)


def test_a_topic_nobody_knows_is_an_error_at_once_unless_it_may_be_created() -> None:
    with SinkCluster({"TBW102": {"a": 8}}) as cluster:
        with pytest.raises(RouteNotFound):
            sender_of(cluster).queues("T")
        sender = BlockingSender(
            SenderConfig(namesrv_addr=cluster.address, auto_create_topics=True, default_queues=4)
        )
        sender.begin()

        assert len(sender.queues("T")) == 4
        sender.offer(single(0))
        assert sender.finish().rows == 1


def test_what_an_earlier_task_left_behind_is_forgotten() -> None:
    with SinkCluster({"T": {"a": 1}}) as cluster:
        cluster.verdict = lambda broker, number, ext: (13, "no") if number == 2 else None
        sender = sender_of(cluster, max_in_flight=2)
        with pytest.raises(NotStored):
            for number in range(50):
                sender.offer(single(number, MessageQueue("T", "a", 0)))
            sender.finish()

        sender.begin()
        for number in range(100, 110):
            sender.offer(single(number, MessageQueue("T", "a", 0)))

        assert sender.finish().rows == 10
        assert [int(body) for body in cluster.bodies()] == [0, 1, *range(100, 110)]


def test_the_window_bounds_what_flies() -> None:
    with SinkCluster({"T": {"a": 8}}) as cluster:
        cluster.verdict = lambda broker, number, ext: (SILENCE, "")
        sender = sender_of(cluster, timeout_ms=150, max_in_flight=3, max_chunks=5, deadline_ms=100)

        with pytest.raises(NotStored):
            for number in range(100):
                sender.offer(single(number))

        assert len(cluster.sends) == 3


def test_the_rate_limit_is_kept() -> None:
    with SinkCluster({"T": {"a": 4}}) as cluster:
        from roquette.base.clock import SystemClock

        clock = SystemClock()
        sender = sender_of(cluster, rate=500)
        begin_ms = clock.now_ms()
        for number in range(100):
            sender.offer(single(number))
        sender.finish()

        assert clock.now_ms() - begin_ms >= 190
