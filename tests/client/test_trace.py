"""Message trace in virtual time: the records, their batches, and that nothing waits for them."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from roquette import BrokerError, Client, ConfigError, Message, ReceivedMessage
from roquette.client.trace import WAITING, MessageTrace, batches, encoded
from roquette_testing.cluster import SimCluster, simulate

A, NAMESRV = "10.0.1.1", "10.0.0.1"


def scene(topic: str | None, case: Callable[[Client, SimCluster], Awaitable[None]]) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker(A, "broker-a")
        mq = await cluster.client("10.0.2.1", trace=True, trace_topic=topic)
        await case(mq, cluster)

    simulate(scenario, seed=1)


async def told(cluster: SimCluster, topic: str) -> tuple[list[list[str]], list[ReceivedMessage]]:
    """The records in a topic, as fields, and the messages they came in."""
    reader_of = await cluster.client("10.0.2.9")
    reader = reader_of.reader(group="reader")
    messages: list[ReceivedMessage] = []
    for queue in await reader_of.queues(topic):
        end = await reader_of.max_offset(queue)
        reader.seek(queue, 0)
        while reader.position(queue) < end:
            messages += await reader.poll(timeout=1.0)
    lines = "".join(m.body.decode() for m in messages).split("\x02")
    return [line.split("\x01") for line in lines if line], messages


@pytest.mark.parametrize("topic", [None, "my_trace"])
def test_sends_and_handled_messages_are_told_to_the_topic(topic: str | None) -> None:
    async def case(mq: Client, cluster: SimCluster) -> None:
        outcomes: list[int] = []

        async def handle(message: ReceivedMessage) -> bool:
            if message.body != b"four":
                return True
            outcomes.append(1)
            await asyncio.sleep(0.25)
            if len(outcomes) == 1:
                raise ValueError
            return len(outcomes) != 2

        await mq.send("orders", b"first")
        consumer = await mq.subscribe("orders", group="g", handler=handle)
        sent = await mq.send("orders", b"four", key=["k1", "k2"], tag="new")
        while len(outcomes) < 3:
            await asyncio.sleep(1)
        await mq.send_batch("orders", [Message("orders", b"x"), Message("orders", b"y")])
        late = await mq.send("orders", b"later", delay_level=3)
        await consumer.close()
        await mq.close()
        records, messages = await told(cluster, topic or "RMQ_SYS_TRACE_TOPIC")
        ours = [r for r in records if sent.message_id in r]
        (pub,) = [r for r in ours if r[0] == "Pub"]
        assert pub[0] == "Pub" and pub[2:10] == [
            "DefaultRegion",
            "DEFAULT_PRODUCER",
            "orders",
            sent.message_id,
            "new",
            "k1 k2",
            f"{A}:10911",
            "4",
        ]
        assert pub[11:] == ["0", sent.offset_message_id, "true"]
        befores = [r for r in ours if r[0] == "SubBefore"]
        afters = [r for r in ours if r[0] == "SubAfter"]
        assert [r[3] for r in befores] == ["g"] * 3
        assert sorted((r[6], r[7]) for r in befores) == [(str(n), "k1 k2") for n in range(3)]
        befores.sort(key=lambda r: int(r[6]))
        afters.sort(key=lambda r: [b[4] for b in befores].index(r[1]))
        assert [(r[1], r[4], r[6], r[8]) for r in afters] == [
            (befores[0][4], "false", "2", "g"),  # Apache's EXCEPTION
            (befores[1][4], "false", "4", "g"),  # FAILED
            (befores[2][4], "true", "0", "g"),
        ]
        assert all(int(r[3]) >= 250 for r in afters)
        assert [r[11] for r in records if late.message_id in r] == ["3"]
        assert len([r for r in records if r[0] == "Pub"]) == 5
        for message in messages:
            assert 1 <= message.body.count(b"\x02") <= 20
        assert any({"k1", "k2", sent.message_id} <= set(m.keys) for m in messages)

    scene(topic, case)


def test_ends_of_transactions_and_recalls_are_told() -> None:
    async def case(first: Client, cluster: SimCluster) -> None:
        await first.send("orders", b"0")
        mq = await cluster.client("10.0.2.2", group="shop", trace=True)
        mq.on_check("orders", lambda message: message.keys == ("yes",))
        ids = []
        for key in ("committed", "rolled", "yes", "no"):
            with contextlib.suppress(ZeroDivisionError, asyncio.CancelledError):
                async with mq.transaction("orders", b"x", key=key, tag="t") as tx:
                    ids.append(tx.message_id)
                    if key == "rolled":
                        raise ZeroDivisionError
                    if key != "committed":
                        raise asyncio.CancelledError
        later = await mq.send("orders", b"later", deliver_at=timedelta(hours=1))
        with pytest.raises(BrokerError):  # recallMessageEnable is off
            await mq.recall(later)
        await asyncio.sleep(300)
        await mq.close()
        records, _ = await told(cluster, "RMQ_SYS_TRACE_TOPIC")
        ends = {r[7]: r for r in records if r[0] == "EndTransaction"}
        assert [ends[key][5] for key in ("committed", "rolled", "yes", "no")] == ids
        assert ends["committed"][2:5] + ends["committed"][6:7] + ends["committed"][8:] == [
            *("DefaultRegion", "shop", "orders", "t", f"{A}:10911", "2", ids[0]),
            *("COMMIT_MESSAGE", "false"),
        ]
        said = [ends[key][11:] for key in ("rolled", "yes", "no")]
        assert said == [
            ["ROLLBACK_MESSAGE", "false"],
            ["COMMIT_MESSAGE", "true"],
            ["ROLLBACK_MESSAGE", "true"],
        ]
        assert {r[11] for r in records if r[0] == "Pub" and r[5] in ids} == {"1"}
        (recall,) = [r for r in records if r[0] == "Recall"]
        assert recall[2:] == ["DefaultRegion", "shop", "orders", later.message_id, "false"]

    scene(None, case)


def test_a_broker_that_takes_no_trace_harms_no_send() -> None:
    async def case(mq: Client, cluster: SimCluster) -> None:
        loop = asyncio.get_running_loop()
        await mq.send("orders", b"1")

        async def never(*_: object, **__: object) -> object:
            raise OSError("an error nobody expects")

        trace = mq._trace
        assert trace._producer is not None
        trace._producer.send_nowait = never  # type: ignore[method-assign, assignment]
        began = loop.time()
        for _ in range(WAITING + 100):
            await mq.send_nowait("orders", b"x")
        await asyncio.sleep(0.5)
        assert loop.time() - began < 20
        assert len(trace._waiting) <= WAITING
        await mq.close()
        assert trace.dropped == WAITING + 101

    scene(None, case)


def test_batches_are_bounded_and_have_the_keys_of_their_records() -> None:
    waiting = deque(
        (("Pub", n, None, True), f"id{n}", "a b" if n == 3 else "null") for n in range(45)
    )
    found = list(batches(waiting))

    assert [text.count("\x02") for text, _ in found] == [20, 20, 5]
    assert found[0][1] == {f"id{n}" for n in range(20)} | {"a", "b"}
    assert found[0][0].startswith(encoded(("Pub", 0, None, True)))
    assert encoded(("Pub", 0, None, True)) == "Pub\x010\x01null\x01true\x02"
    long = deque((("Pub", "x" * 100_000), "id", "k" * 9_000) for _ in range(4))
    assert [len(text) < 300_000 for text, _ in batches(long)] == [True, True]


def test_a_trace_that_nobody_begins_tells_nothing_and_a_wrong_topic_is_told() -> None:
    trace = MessageTrace()
    assert trace.on_send(Message("orders", b"1"), "g") is None
    with pytest.raises(ConfigError, match="trace_topic='a b'"):
        Client("a:1", trace=True, trace_topic="a b")
    with pytest.raises(ConfigError, match="without effect"):
        Client("a:1", trace_topic="a")
    assert not Client("a:1")._interceptors
