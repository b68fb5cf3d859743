"""Faults at an embedded broker's port, and its death."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from roquette import StartFrom
from roquette.errors import ClientError, RequestTimeout
from roquette.message.message import ReceivedMessage
from roquette.wire.codes import RequestCode
from roquette_testing import EmbeddedBroker

FIRST = StartFrom.FIRST


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        yield started


def wait_for(condition: Callable[[], object], timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        threading.Event().wait(0.005)


def bodies(broker: EmbeddedBroker) -> list[bytes]:
    return sorted(message.body for message in broker.messages("orders"))


def test_a_send_whose_answer_is_lost_fails_and_is_stored(broker: EmbeddedBroker) -> None:
    with broker.sync_client(send_timeout=1) as mq:
        mq.send("orders", b"0")
        lost = broker.faults.drop("answers", of="send")
        with pytest.raises(RequestTimeout):
            mq.send("orders", b"1")
        assert lost.left == 0
        mq.send("orders", b"1")  # what its caller does then
        assert bodies(broker) == [b"0", b"1", b"1"]


def test_what_is_lost_for_good_is_said_in_time(broker: EmbeddedBroker) -> None:
    with broker.sync_client(send_timeout=0.3, send_attempts=1) as mq:
        mq.send("orders", b"0")
        broker.faults.drop("requests", of=int(RequestCode.SEND_MESSAGE_V2), count=100)
        with pytest.raises(RequestTimeout):
            mq.send("orders", b"1")
        broker.faults.heal()
        mq.send("orders", b"2")
        assert bodies(broker) == [b"0", b"2"]


def test_a_repeated_request_is_served_twice_and_answered_once(broker: EmbeddedBroker) -> None:
    with broker.sync_client() as mq:
        broker.faults.repeat("requests", of="send")
        broker.faults.repeat("answers", of="send", count=2)
        mq.send("orders", b"1")
        mq.send("orders", b"2")
        assert bodies(broker) == [b"1", b"1", b"2"]


def test_a_delayed_answer_comes_when_its_time_has_come(broker: EmbeddedBroker) -> None:
    with broker.sync_client(send_attempts=1, send_timeout=20) as mq:
        mq.send("orders", b"0")
        late = broker.faults.delay("answers", 3600, of="send")
        sent: list[object] = []
        sender = threading.Thread(target=lambda: sent.append(mq.send("orders", b"1")))
        sender.start()
        wait_for(lambda: late.left == 0)
        assert not sent
        broker.clock.advance(hours=1)
        sender.join(20)
        assert len(sent) == 1


def test_requests_change_places(broker: EmbeddedBroker) -> None:
    async def main() -> None:
        async with broker.client() as mq:
            await mq.send("orders", b"0")
            (queue, *_) = await mq.queues("orders")
            broker.faults.reorder("requests", of="send", count=3, seconds=20)
            sends = []
            for number in (b"1", b"2", b"3"):
                sends.append(asyncio.create_task(mq.send("orders", number, queue=queue)))
                await asyncio.sleep(0)
            await asyncio.gather(*sends)
            found = [m.body for m in broker.messages("orders") if m.queue == queue]
            assert found[-3:] == [b"3", b"2", b"1"]
            alone = broker.faults.reorder("requests", of="send", seconds=0.05)
            await mq.send("orders", b"4")
            assert alone.left == 1

    asyncio.run(main())


@pytest.mark.parametrize("side", ["requests", "answers", "both"])
def test_nothing_passes_a_partition_and_all_that_waited_comes_after_it(
    broker: EmbeddedBroker, side: str
) -> None:
    with broker.sync_client(send_attempts=1, send_timeout=0.3) as mq:
        mq.send("orders", b"0")
        broker.faults.partition(requests=side != "answers", answers=side != "requests")
        with pytest.raises(RequestTimeout):
            mq.send("orders", b"1")
        assert bodies(broker) == ([b"0", b"1"] if side == "answers" else [b"0"])
        with broker.sync_client(send_attempts=1, send_timeout=0.3) as other:
            with pytest.raises(ClientError):
                other.send("orders", b"2")
            broker.faults.heal()
            wait_for(lambda: {b"0", b"1", b"2"} <= set(bodies(broker)))
            mq.send("orders", b"3")
            other.send("orders", b"4")
        assert bodies(broker) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_lost_acknowledgement_lets_nothing_be_lost(broker: EmbeddedBroker) -> None:
    seen: list[bytes] = []
    with broker.sync_client() as mq:
        for number in range(5):
            mq.send("orders", b"%d" % number)
        broker.faults.drop("requests", of="acknowledge", count=2)
        mq.subscribe("orders", group="g", handler=lambda m: seen.append(m.body), start_from=FIRST)
        wait_for(lambda: set(seen) == {b"0", b"1", b"2", b"3", b"4"}, 40)


def test_wrong_words_are_refused(broker: EmbeddedBroker) -> None:
    with pytest.raises(ValueError, match="'sends' is not a kind of request: send, receive"):
        broker.faults.drop("requests", of="sends")
    with pytest.raises(ValueError, match="neither 'requests' nor 'answers'"):
        broker.faults.drop("both")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="count=0"):
        broker.faults.delay("answers", 1.0, count=0)


def test_a_killed_broker_keeps_what_it_had_acknowledged(broker: EmbeddedBroker) -> None:
    acknowledged: list[bytes] = []
    ended = threading.Event()
    seen: set[bytes] = set()

    def send() -> None:
        with broker.sync_client(send_attempts=1, send_timeout=0.5) as mq:
            number = 0
            while not ended.is_set():
                number += 1
                try:
                    mq.send("orders", b"%d" % number)
                except ClientError:
                    continue
                acknowledged.append(b"%d" % number)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for goal in (20, 60):
            wait_for(lambda goal=goal: len(acknowledged) >= goal)  # type: ignore[misc]
            broker.faults.kill()
            with pytest.raises(RuntimeError, match="killed"):
                broker.messages("orders")
            broker.faults.restart()
        wait_for(lambda: len(acknowledged) >= 90)
    finally:
        ended.set()
        sender.join(20)
    assert set(acknowledged) <= set(bodies(broker))
    assert broker.run(lambda: broker.broker.opened.abnormal), "the start found no orderly end"
    with broker.sync_client() as mq:
        mq.subscribe("orders", group="g", handler=lambda m: seen.add(m.body), start_from=FIRST)
        broker.assert_delivered("orders", group="g", timeout=20)
    assert set(acknowledged) <= seen


def test_assertions_wait_while_the_tests_own_loop_goes_on() -> None:
    async def main() -> None:
        async with EmbeddedBroker() as broker, broker.client() as mq:

            async def handle(message: ReceivedMessage) -> bool:
                await asyncio.sleep(0.01)
                return message.body != b"bad"

            await mq.send("orders", b"good")
            await mq.send("orders", b"bad")
            with pytest.raises(AssertionError, match="has not acknowledged 2 messages of orders"):
                await broker.assert_delivered_async("orders", group="g", timeout=0.02)
            await mq.subscribe(
                "orders", group="g", handler=handle, start_from=FIRST, max_reconsume_times=0
            )
            await broker.assert_delivered_async("orders", group="g", timeout=20)
            (letter,) = await broker.assert_dead_lettered_async("g", timeout=20)
            assert letter.body == b"bad"
            with pytest.raises(AssertionError, match="has 0 such dead letters, 1 are wanted"):
                await broker.assert_dead_lettered_async("g", body="other", timeout=0.01)

    asyncio.run(main())
