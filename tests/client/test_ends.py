"""A client's end finishes what was accepted, and says of how many messages it does not know the end."""

import asyncio
import logging
from datetime import timedelta

import pytest
from tests.client.test_push_consumer import A, Inbox, small, until
from tests.client.test_trace import told

from roquette import App, Client, ConfigError, ReceivedMessage, RequestTimeout, StartFrom, sync
from roquette.client.receipt import SendReceipt
from roquette.client.under_way import UnderWay
from roquette_testing import EmbeddedBroker
from roquette_testing.cluster import SimCluster, simulate

SENDER = "10.0.2.8"


async def stored(mq: Client, topic: str = "orders") -> int:
    return sum([await mq.max_offset(queue) for queue in await mq.queues(topic)])


@pytest.mark.promise(
    "The client", "an end waits for what was accepted, and tells what has no answer"
)
def test_leaving_the_block_waits_for_what_was_sent() -> None:
    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        before = await stored(mq)
        async with await cluster.client(SENDER) as sender:
            futures = [await sender.send_nowait("orders", f"{n}") for n in range(900)]
        assert [f.result().status for f in futures] == ["SEND_OK"] * 900
        assert await stored(mq) == before + 900

    simulate(main)


def test_after_a_cut_connection_all_are_tried_again_before_the_end() -> None:
    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        async with await cluster.client(SENDER) as sender:
            await sender.send("orders", b"connected")
            futures = [await sender.send_nowait("orders", f"{n}") for n in range(200)]
            cluster.reset(SENDER)
        assert all(f.result().status == "SEND_OK" for f in futures)
        assert await stored(mq) >= 200

    simulate(main)


def test_senders_that_wait_for_a_place_get_theirs_before_the_end() -> None:
    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        before = await stored(mq)
        sender = await cluster.client(SENDER, max_in_flight=3)

        async def send(number: int) -> SendReceipt:
            return await (await sender.send_nowait("orders", f"{number}"))

        parked = [asyncio.ensure_future(send(number)) for number in range(50)]
        waited = [asyncio.ensure_future(sender.send("orders", f"{n}")) for n in range(10)]
        await asyncio.sleep(0)
        await sender.close()
        assert len(await asyncio.gather(*parked, *waited)) == 60
        assert await stored(mq) == before + 60

    simulate(main)


@pytest.mark.promise(
    "The client", "an end waits for what was accepted, and tells what has no answer"
)
@pytest.mark.parametrize("timeout", [0.5, timedelta(milliseconds=500), 0])
def test_what_has_no_answer_in_time_is_told_with_its_number(
    timeout: float | timedelta, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(cluster: SimCluster) -> None:
        await small(cluster)
        sender = await cluster.client(SENDER)
        await sender.send("orders", b"x")
        cluster.isolate(A)
        futures = [await sender.send_nowait("orders", b"x") for _ in range(7)]
        one_way = asyncio.ensure_future(sender.send("orders", b"waited for"))
        await asyncio.sleep(0)
        began = cluster.loop.time()
        closing = asyncio.ensure_future(sender.close(timeout=timeout))
        await until(lambda: sender.unsaid > 0)
        assert sender.unsaid == 8
        assert cluster.loop.time() - began < 0.6
        await closing
        outcomes = await asyncio.gather(*futures, one_way, return_exceptions=True)
        assert all(isinstance(outcome, Exception) for outcome in outcomes)

    with caplog.at_level(logging.ERROR, "roquette.client"):
        simulate(main)
    assert "closed before the end of 8 messages was known" in caplog.text


def test_flush_waits_for_what_was_sent_before_it_alone() -> None:
    async def main(cluster: SimCluster) -> None:
        await small(cluster)
        sender = await cluster.client(SENDER)
        futures = [await sender.send_nowait("orders", b"x") for _ in range(20)]

        async def go_on() -> None:
            while True:
                await sender.send_nowait("orders", b"more")
                await asyncio.sleep(0.0001)

        others = asyncio.ensure_future(go_on())
        await sender.flush()
        assert all(future.done() for future in futures)
        others.cancel()
        await sender.flush(timeout=timedelta(seconds=5))
        cluster.isolate(A)
        for _ in range(3):
            await sender.send_nowait("orders", b"x")
        for _ in range(2):
            with pytest.raises(RequestTimeout, match="the end of 3 messages is not known"):
                await sender.flush(timeout=0.2)
        cluster.heal()
        await sender.flush()
        for wrong in (-1, "3", True, float("nan")):
            with pytest.raises(ConfigError, match="timeout="):
                await sender.flush(timeout=wrong)  # type: ignore[arg-type]

    simulate(main)


def test_one_way_sends_have_come_to_their_broker_or_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        before = await stored(mq)
        sender = await cluster.client(SENDER)
        await sender.send("orders", b"x")
        cluster.network.set_delay(SENDER, A, 0.2, 0.4)
        for _ in range(50):
            await sender.send_oneway("orders", b"x" * 10_000)
        await sender.flush()
        assert await stored(mq) == before + 51
        for _ in range(5):
            await sender.send_oneway("orders", b"x")
        cluster.reset(SENDER)
        await asyncio.sleep(0)
        with pytest.raises(RequestTimeout, match="the end of 5 messages"):
            await sender.flush()
        await sender.flush()  # it is told once
        for _ in range(6):
            await sender.send_oneway("orders", b"x")
        await asyncio.sleep(60)  # heartbeats are answered
        cluster.reset(SENDER)
        await sender.flush()
        for _ in range(4):
            await sender.send_oneway("orders", b"x")
        cluster.isolate(A)
        await sender.close(timeout=1)

    with caplog.at_level(logging.ERROR, "roquette.client"):
        simulate(main)
    assert "closed before the end of 4 messages was known" in caplog.text


def test_handlers_at_work_may_send_while_the_client_closes() -> None:
    async def main(cluster: SimCluster) -> None:
        mq = await small(cluster)
        client = await cluster.client(SENDER)
        at_work = asyncio.Event()
        sent: list[SendReceipt] = []

        async def handler(message: ReceivedMessage) -> None:
            at_work.set()
            await asyncio.sleep(2)
            sent.append(await client.send("results", b"done"))
            await client.send_nowait("results", b"and more")

        await client.subscribe("orders", group="g", handler=handler, start_from=StartFrom.FIRST)
        await at_work.wait()
        await client.close()
        assert len(sent) == 1
        assert await stored(mq, "results") == 2
        again = Inbox()
        await mq.subscribe("orders", group="g", handler=again)
        await asyncio.sleep(30)
        assert again.messages == []

    simulate(main)


@pytest.mark.parametrize("dies", [False, True])
def test_trace_is_told_before_the_end_or_counted(
    dies: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(cluster: SimCluster) -> None:
        await small(cluster)
        client = await cluster.client(SENDER, trace=True, max_in_flight=2)
        for _ in range(300):  # some are on their way while the client closes
            await client.send("orders", b"x")
        if dies:
            await asyncio.sleep(5)
            for _ in range(3):
                await client.send("orders", b"x")
            cluster.isolate(A)
        await client.close()
        if not dies:
            records, _ = await told(cluster, "RMQ_SYS_TRACE_TOPIC")
            assert len([r for r in records if r[0] == "Pub"]) == 300

    with caplog.at_level(logging.ERROR, "roquette.client"):
        simulate(main)
    assert ("message trace lacks 3 records" in caplog.text) is dies


def test_the_blocking_twin_and_an_application_do_the_same() -> None:
    async def run(name_servers: str) -> None:
        app = App(name_servers)

        @app.consumer("in", group="g", start_from=StartFrom.FIRST)
        async def work(body: bytes, mq: Client) -> None:
            for number in range(200):
                await mq.send_nowait("out", f"{number}")
            done.set()

        done = asyncio.Event()
        async with app.serving():
            await done.wait()
        assert (app.unfinished, app.unsaid) == (0, 0)
        async with Client(name_servers) as mq:
            assert await stored(mq, "out") == 200

    with EmbeddedBroker() as broker:
        with sync.Client(broker.name_servers) as mq:
            mq.send("in", b"x")
            futures = [mq.send_nowait("orders", f"{n}") for n in range(300)]
            mq.flush(timeout=30)
            assert all(future.done() for future in futures)
            futures += [mq.send_nowait("orders", f"{n}") for n in range(300)]
        assert len([future.result(0) for future in futures]) == 600
        asyncio.run(run(broker.name_servers))


def test_lots_count_what_began_before() -> None:
    async def main() -> None:
        under_way = UnderWay()
        assert await under_way.wait(None) == 0
        old = under_way.lot
        old.begin()
        assert await under_way.wait(0.001) == 1
        with under_way.lot:
            old.end()
            assert await under_way.wait(0.001) == 1
        assert await under_way.wait(None) == 0

    asyncio.run(main())
