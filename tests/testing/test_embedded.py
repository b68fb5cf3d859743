"""The embedded broker: real clients, a clock that jumps, faults, assertions."""

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from roquette import StartFrom
from roquette.errors import ClientError, RequestTimeout, RouteNotFound
from roquette.message.message import ReceivedMessage
from roquette_testing import EmbeddedBroker

FIRST = StartFrom.FIRST


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        yield started


def wait_for(condition: object, timeout: float = 20.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        threading.Event().wait(0.005)


def test_messages_are_sent_seen_and_consumed(broker: EmbeddedBroker) -> None:
    seen: list[bytes] = []
    with broker.sync_client() as mq:
        receipt = mq.send("orders", b"one", key="k", tag="t")
        (message,) = broker.messages("orders")
        assert (message.body, message.keys, message.tag) == (b"one", ("k",), "t")
        assert message.message_id == receipt.message_id
        assert broker.messages("nothing") == []
        assert broker.unconsumed("orders", "g") == 1
        with pytest.raises(
            AssertionError, match="group g has not acknowledged 1 messages of orders"
        ):
            broker.assert_delivered("orders", group="g", timeout=0.05)

        def handle(found: ReceivedMessage) -> None:
            seen.append(found.body)

        mq.subscribe("orders", group="g", handler=handle, start_from=FIRST)
        broker.assert_delivered("orders", group="g", timeout=20)
    assert seen == [b"one"]


def test_three_hours_pass_at_once_and_nobody_loses_his_connection(broker: EmbeddedBroker) -> None:
    seen: list[bytes] = []
    with broker.sync_client() as mq:
        mq.send("orders", b"now")
        mq.subscribe("orders", group="g", handler=lambda m: seen.append(m.body), start_from=FIRST)
        mq.send("orders", b"later", deliver_at=timedelta(hours=3))
        mq.send("orders", b"level", delay_level=18)  # two hours
        wait_for(lambda: seen == [b"now"])
        before = broker.clock.now()
        broker.clock.advance(hours=1, minutes=59)
        broker.clock.advance(timedelta(minutes=2))
        wait_for(lambda: seen == [b"now", b"level"])
        broker.clock.advance(seconds=3600)
        wait_for(lambda: seen == [b"now", b"level", b"later"])
        assert timedelta(hours=3) <= broker.clock.now() - before < timedelta(hours=3, minutes=5)
        mq.send("orders", b"still here")
        wait_for(lambda: seen[-1] == b"still here")
        assert broker.run(lambda: broker.broker.tables.consumers.find("g")) is not None
    with pytest.raises(ValueError, match="does not go back"):
        broker.clock.advance(hours=-1)


def test_retries_come_at_once_and_dead_letters_are_found(broker: EmbeddedBroker) -> None:
    tries: list[int] = []

    def fail(message: ReceivedMessage) -> bool:
        tries.append(message.reconsume_times)
        return False

    with broker.sync_client() as mq:
        mq.send("orders", b"bad")
        mq.subscribe("orders", group="g", handler=fail, start_from=FIRST, max_reconsume_times=2)
        for count in (1, 2, 3):
            wait_for(lambda count=count: len(tries) == count)
            delayed = min(count, 2)  # the third failure makes it a dead letter
            wait_for(lambda n=delayed: len(broker.messages("SCHEDULE_TOPIC_XXXX")) == n)
            wait_for(lambda n=count: broker.unconsumed("orders", "g") == int(n < 3))
            broker.clock.advance(minutes=5)
        (letter,) = broker.assert_dead_lettered("g", body=b"bad", timeout=20)
        assert letter.origin_topic == "orders"
        assert tries == [0, 1, 2]
        with pytest.raises(AssertionError, match="has 0 such dead letters, 1 are wanted"):
            broker.assert_dead_lettered("g", body="other", timeout=0.01)


def test_what_is_on_its_way_is_not_delivered(broker: EmbeddedBroker) -> None:
    healed = threading.Event()

    def handle(message: ReceivedMessage) -> bool:
        return healed.is_set()

    with broker.sync_client() as mq:
        mq.send("orders", b"fails")
        mq.send("orders", b"level", delay_level=17)
        mq.send("orders", b"timed", deliver_at=timedelta(hours=1))
        mq.send("others", b"of no interest", delay_level=17)
        mq.subscribe("orders", group="g", handler=handle, start_from=FIRST)
        wait_for(lambda: len(broker.messages("SCHEDULE_TOPIC_XXXX")) == 3)
        wait_for(lambda: broker.unconsumed("orders", "g") == 3)
        with pytest.raises(
            AssertionError, match="group g has not acknowledged 3 messages of orders"
        ):
            broker.assert_delivered("orders", group="g", timeout=0.3)
        healed.set()
        broker.clock.advance(hours=2)
        broker.assert_delivered("orders", group="g", timeout=20)


def test_what_is_of_another_topic_or_recalled_is_not_on_its_way() -> None:
    """A group's retries of all its topics lie in one."""

    def handle(message: ReceivedMessage) -> bool:
        return message.topic == "orders"

    with EmbeddedBroker() as broker, broker.sync_client() as mq:
        mq.send("orders", b"1")
        mq.send("others", b"fails")
        gone = [mq.send("orders", b"recalled", deliver_at=timedelta(hours=1)) for _ in range(2)]
        mq.subscribe({"orders": "*", "others": "*"}, group="g", handler=handle, start_from=FIRST)
        wait_for(lambda: len(broker.messages("SCHEDULE_TOPIC_XXXX")) == 1)
        wait_for(lambda: broker.unconsumed("others", "g") == 1)
        wait_for(lambda: broker.unconsumed("orders", "g") == 2)
        for _ in range(2):
            mq.recall(gone[0])
        wait_for(lambda: broker.unconsumed("orders", "g") == 1)
        mq.recall(gone[1])
        broker.assert_delivered("orders", group="g", timeout=20)
        with pytest.raises(AssertionError, match="has not acknowledged 1 messages of others"):
            broker.assert_delivered("others", group="g", timeout=0.05)


@pytest.mark.parametrize("orderly", [False, True])
def test_what_is_popped_and_not_acknowledged_is_not_delivered(
    broker: EmbeddedBroker, orderly: bool
) -> None:
    with broker.sync_client() as mq:
        for body in (b"1", b"2", b"3"):
            mq.send("orders", body, shard_key="k")
        with mq.pop("orders", group="g", start_from=FIRST, orderly=orderly, invisible=600) as jobs:
            for _, job in zip(range(2), jobs, strict=False):
                job.ack()
            wait_for(lambda: broker.unconsumed("orders", "g") == 1)
            with pytest.raises(AssertionError, match="has not acknowledged 1 messages"):
                broker.assert_delivered("orders", group="g", timeout=0.3)
            for job in jobs:
                job.ack()
                break
            broker.assert_delivered("orders", group="g", timeout=20)


def test_names_that_nobody_knows_are_not_delivered(broker: EmbeddedBroker) -> None:
    with broker.sync_client() as mq:
        mq.send("orders", b"1")
        mq.subscribe("orders", group="billing", handler=lambda m: None, start_from=FIRST)
        broker.assert_delivered("orders", group="billing", timeout=20)
    with pytest.raises(AssertionError, match="there is no topic order: orders"):
        broker.assert_delivered("order", group="billing", timeout=0.05)
    with pytest.raises(LookupError, match="there is no topic order"):
        broker.unconsumed("order", "billing")
    with pytest.raises(AssertionError, match="has not acknowledged 1 messages"):
        broker.assert_delivered("orders", group="biling", timeout=0.05)


def test_a_stopped_broker_comes_back_with_its_messages(broker: EmbeddedBroker) -> None:
    with broker.sync_client(send_attempts=1, send_timeout=0.5) as mq:
        mq.send("orders", b"before")
        broker.faults.stop()
        with pytest.raises(ClientError):
            mq.send("orders", b"lost")
        broker.faults.restart()
        wait_for(lambda: sends(mq))
        bodies = [message.body for message in broker.messages("orders")]
        assert b"before" in bodies
        assert b"after" in bodies


def sends(mq: object) -> bool:
    try:
        mq.send("orders", b"after")  # type: ignore[attr-defined]
    except ClientError:
        return False
    return True


def test_connections_break_and_messages_come_twice(broker: EmbeddedBroker) -> None:
    seen: list[str] = []
    with broker.sync_client() as mq:
        mq.send("orders", b"1")
        mq.subscribe(
            "orders", group="g", handler=lambda m: seen.append(m.message_id), start_from=FIRST
        )
        wait_for(lambda: len(seen) == 1)
        broker.faults.disconnect()
        broker.faults.duplicate(broker.messages("orders")[0])
        wait_for(lambda: len(seen) == 2)
        assert seen[0] == seen[1]
        broker.faults.freeze(0.2)
        began = time.monotonic()
        mq.send("orders", b"2")
        assert time.monotonic() - began > 0.1
        with pytest.raises(ValueError, match="not 0 to 60"):
            broker.faults.freeze(61)


def test_an_asynchronous_test_uses_it_too() -> None:
    async def main() -> None:
        async with (
            EmbeddedBroker(auto_create_topic_enable=False) as broker,
            broker.client(send_attempts=1) as mq,
        ):
            with pytest.raises(RouteNotFound):
                await mq.send("orders", b"x")

    asyncio.run(main())


def test_two_live_side_by_side_and_end_twice() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        with one.sync_client() as mq:
            mq.send("orders", b"x")
        assert len(one.messages("orders")) == 1
        assert other.messages("orders") == []
        assert one.name_servers != other.name_servers
    one.stop()
    with pytest.raises(RuntimeError, match="not started"):
        EmbeddedBroker().messages("orders")


def test_it_lives_on_a_network_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: object, **more: object) -> None:
        raise AssertionError("a socket is bound or connected")

    seen: list[bytes] = []
    with (
        EmbeddedBroker(network="memory") as broker,
        broker.sync_client(send_timeout=0.5) as mq,
    ):
        monkeypatch.setattr("asyncio.base_events.BaseEventLoop.create_connection", refuse)
        monkeypatch.setattr("asyncio.base_events.BaseEventLoop.create_server", refuse)
        mq.send("orders", b"x" * 3_000_000)
        mq.subscribe("orders", group="g", handler=lambda m: seen.append(m.body), start_from=FIRST)
        mq.send("orders", b"later", deliver_at=timedelta(hours=3))
        broker.clock.advance(hours=3)
        wait_for(lambda: len(seen) == 2)
        broker.faults.drop("requests", of="send")
        with pytest.raises(RequestTimeout):
            mq.send("orders", b"lost")
        broker.faults.kill()
        with pytest.raises(ClientError):
            mq.send("orders", b"lost")
        broker.faults.restart()
        wait_for(lambda: sends(mq))
        broker.faults.disconnect()
        mq.send("orders", b"more")
        broker.assert_delivered("orders", group="g", timeout=20)
        assert {m.body for m in broker.messages("orders")} == set(seen)
    with pytest.raises(ValueError, match="network='udp'"):
        EmbeddedBroker(network="udp")  # type: ignore[arg-type]


def test_two_in_memory_and_a_test_on_asyncio() -> None:
    async def main() -> None:
        async with (
            EmbeddedBroker(network="memory") as one,
            EmbeddedBroker(network="memory") as other,
            one.client() as mq,
            other.client() as mine,
        ):
            await asyncio.gather(*(mq.send("orders", b"%d" % n) for n in range(50)))
            await mine.send("orders", b"alone")
            assert len(one.messages("orders")) == 50
            assert [m.body for m in other.messages("orders")] == [b"alone"]
            found = set()
            async for message in mq.consume("orders", group="g", start_from=FIRST):
                found.add(message.body)
                if len(found) == 50:
                    break

    asyncio.run(main())
