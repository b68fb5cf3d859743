"""Sending against brokers that fail: retries, time limits, routes, compression."""

import asyncio
import contextlib
from collections import Counter
from typing import Any

import pytest

from roquette.client.client import Client
from roquette.client.config import ClientConfig
from roquette.client.producer import SendReceipt
from roquette.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    ConfigError,
    ConnectError,
    MessageIllegal,
    NotDurable,
    NotSent,
    RequestTimeout,
    RouteNotFound,
)
from roquette.message.compression import Compression
from roquette.message.message import Message, MessageQueue, ReceivedMessage
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.command import Command
from roquette_testing.cluster import SimCluster, simulate

NAMESRV = "10.0.0.1"
A, B = "10.0.1.1", "10.0.1.2"
CLIENT = "10.0.2.1"


async def pair(cluster: SimCluster, topic: str = "orders") -> Client:
    """Two brokers that both have the topic, and a client that knows its route."""
    await cluster.add_namesrv(NAMESRV)
    await cluster.add_broker(A, "broker-a")
    await cluster.add_broker(B, "broker-b")
    mq = await cluster.client(CLIENT)
    await mq.session.route("TBW102")
    for name in ("broker-a", "broker-b"):
        await mq.send(topic, b"seed", queue=MessageQueue(topic, name, 0))
    route = await mq.session.route(topic, fresh=True)
    assert {queue.broker_name for queue in route.publish} == {"broker-a", "broker-b"}
    return mq


async def read(mq: Client, topic: str) -> list[ReceivedMessage]:
    puller = mq.reader(group="reader")
    found: list[ReceivedMessage] = []
    ends = {queue: await mq.max_offset(queue) for queue in await mq.queues(topic)}
    for queue in ends:
        puller.seek(queue, 0)
    while any(puller.position(queue) < end for queue, end in ends.items()):
        found += await puller.poll(timeout=5)
    await puller.close()
    return found


def test_a_dead_broker_costs_a_retry_not_a_message() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await pair(cluster)
        cluster.kill(A)
        receipts = [await mq.send("orders", f"{n}") for n in range(20)]
        assert {r.queue.broker_name for r in receipts} == {"broker-b"}
        futures = [await mq.send_nowait("orders", f"{n}") for n in range(20)]
        receipts = await asyncio.gather(*futures)
        assert {r.queue.broker_name for r in receipts} == {"broker-b"}

    simulate(scenario)


def test_pipelined_sends_survive_the_loss_of_their_broker() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await pair(cluster)
        futures = [await mq.send_nowait("orders", f"{n}") for n in range(100)]
        cluster.kill(A)
        receipts = await asyncio.gather(*futures)
        assert len(receipts) == 100
        found = Counter(m.body for m in await read_from(mq, "broker-b"))
        kept = [r for r in receipts if r.queue.broker_name == "broker-b"]
        assert len(kept) >= 50
        assert sum(found.values()) >= len(kept)

    async def read_from(mq: Client, broker: str) -> list[ReceivedMessage]:
        puller = mq.reader(group="reader")
        queues = [q for q in await mq.queues("orders") if q.broker_name == broker]
        found: list[ReceivedMessage] = []
        ends = {queue: await mq.max_offset(queue) for queue in queues}
        for queue in queues:
            puller.seek(queue, 0)
        while any(puller.position(queue) < end for queue, end in ends.items()):
            found += await puller.poll(timeout=5)
        return found

    simulate(scenario)


@pytest.mark.parametrize("orderly_stop", [False, True])
@pytest.mark.parametrize("brokers", [1, 2])
def test_a_restart_of_two_seconds_is_no_error(brokers: int, orderly_stop: bool) -> None:
    async def scenario(cluster: SimCluster) -> None:
        if brokers == 2:
            mq = await pair(cluster)
        else:
            await cluster.add_namesrv(NAMESRV)
            await cluster.add_broker(A, "broker-a")
            mq = await cluster.client(CLIENT, group="shop")
            await mq.send("orders", b"seed")
        queue = MessageQueue("orders", "broker-a", 0)
        calls: list[asyncio.Future[Any]] = []
        for _ in range(3):  # before it ends, while it is away, and just before it is back
            calls += [
                asyncio.ensure_future(mq.send("orders", b"x")),
                asyncio.ensure_future(mq.send("orders", b"x", queue=queue)),
                asyncio.ensure_future(mq.send_batch("orders", [b"x", b"y"])),
                *[await mq.send_nowait("orders", b"x", queue=queue) for _ in range(20)],
            ]
            if len(calls) == 23:
                await asyncio.sleep(0)
                if orderly_stop:
                    await cluster.stop(A)
                else:
                    cluster.kill(A)
            await asyncio.sleep(0.95)
        await asyncio.sleep(2 - 3 * 0.95 + 0.9)
        await cluster.restart(A)
        assert len(await asyncio.gather(*calls)) == 69

    simulate(scenario)


@pytest.mark.parametrize("attempts", [3, 1])
def test_a_broker_that_is_away_is_tried_again_and_again_within_the_time(attempts: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker(A, "broker-a")
        mq = await cluster.client(CLIENT, send_attempts=attempts)
        await mq.send("orders", b"seed")
        cluster.kill(A)
        tried: list[float] = []
        real = mq.session.remoting.connect

        async def counted(address: str) -> Any:
            tried.append(cluster.loop.time())
            return await real(address)

        mq.session.remoting.connect = counted  # type: ignore[method-assign]
        began = cluster.loop.time()
        with pytest.raises(ConnectError):
            await mq.send("orders", b"x", timeout=2.0)
        took, sends = cluster.loop.time() - began, len(tried)
        if attempts == 1:
            assert took < 0.1
        else:
            assert 1.9 < took < 2.2
            assert 5 < sends < 30

    simulate(scenario)


def test_a_name_server_that_comes_two_seconds_later_is_no_error() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await cluster.client("10.0.2.2", name_servers=f"{NAMESRV}:9876")
        sending = asyncio.ensure_future(mq.send("orders", b"x"))
        await asyncio.sleep(2)
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker(A, "broker-a")
        assert (await sending).status == "SEND_OK"

    simulate(scenario)


def test_a_chosen_queue_is_never_replaced() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await pair(cluster)
        queue = next(q for q in await mq.queues("orders") if q.broker_name == "broker-a")
        cluster.kill(A)
        with pytest.raises(ClientError):
            await mq.send("orders", b"x", queue=queue)

    simulate(scenario)


def test_the_time_limit_covers_all_attempts() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await pair(cluster)
        cluster.isolate(A)
        cluster.isolate(B)
        started = cluster.loop.time()
        with pytest.raises((RequestTimeout, ConnectError)):
            await mq.send("orders", b"x", timeout=0.7)
        assert 0.6 < cluster.loop.time() - started < 1.2

    simulate(scenario)


def test_refusals_that_would_repeat_are_not_retried() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await pair(cluster)
        queue = (await mq.queues("orders"))[0]
        with pytest.raises(BrokerError, match="illegal") as caught:
            await mq.send("orders", b"x", queue=type(queue)("orders", queue.broker_name, 99))
        assert not caught.value.retriable

    simulate(scenario)


@pytest.mark.parametrize(
    "message",
    [
        Message("", b"x"),
        Message("a b", b"x"),
        Message("t" * 128, b"x"),
        Message("orders", b""),
        Message("orders", bytes(4 * 1024 * 1024 + 1)),
        Message("orders", b"x", properties={"a\x01": "b"}),
        Message("orders", b"x", properties={"a": "b\x02"}),
        Message("orders", b"x", properties={"big": "y" * 40_000}),
    ],
)
def test_illegal_messages_never_leave(message: Message) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await cluster.client(CLIENT, name_servers="10.0.0.9:9876")
        with pytest.raises(MessageIllegal):
            await mq.send(message)
        with pytest.raises(MessageIllegal):
            await mq.send_nowait(message)
        with pytest.raises(MessageIllegal):
            await mq.send_batch(message.topic, [message])

    simulate(scenario)


def test_without_auto_creation_the_topic_is_missed_by_name() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker(A, "broker-a", auto_create_topic_enable=False)
        mq = await cluster.client(CLIENT)
        with pytest.raises(RouteNotFound, match="orders"):
            await mq.send("orders", b"x")

    simulate(scenario)


def test_sends_spread_evenly_over_all_queues() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await pair(cluster)
        route = await mq.session.route("orders")
        receipts = [await mq.send("orders", b"x") for _ in range(3 * len(route.publish))]
        assert set(Counter(r.queue for r in receipts).values()) == {3}

    simulate(scenario)


def test_sends_spread_evenly_also_before_all_brokers_are_connected() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await pair(cluster)
        mq = await cluster.client("10.0.2.2")
        route = await mq.session.route("orders")
        await mq.session.remoting.connect(route.addresses["broker-a"][0])
        futures = [await mq.send_nowait("orders", b"x") for _ in range(24)]
        receipts = await asyncio.gather(*futures)
        assert set(Counter(r.queue for r in receipts).values()) == {3}

    simulate(scenario)


@pytest.mark.parametrize("what", ["route", "connection"])
def test_what_waits_is_not_overtaken(what: str) -> None:
    async def scenario(cluster: SimCluster) -> None:
        first = await pair(cluster)
        queue = (await first.session.route("orders")).publish[0]
        mq = await cluster.client("10.0.2.2")
        if what == "connection":
            await mq.session.route("orders")

        async def send() -> "list[asyncio.Future[SendReceipt]]":
            return [await mq.send_nowait("orders", f"{n}", queue=queue) for n in range(20)]

        async def send_when_it_is_there() -> "list[asyncio.Future[SendReceipt]]":
            route = await mq.session.route("orders")
            if what == "connection":
                await mq.session.remoting.connect(route.addresses["broker-a"][0])
            return await send()

        later = asyncio.ensure_future(send_when_it_is_there())
        await asyncio.sleep(0)  # it will be the first to hear of it
        futures = [*await send(), *await later]
        offsets = [receipt.queue_offset for receipt in await asyncio.gather(*futures)]
        assert offsets == list(range(offsets[0], offsets[0] + 40))

    simulate(scenario)


def test_what_a_selector_raises_reaches_its_caller_and_no_slot_is_lost() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await pair(cluster)
        mq = await cluster.client("10.0.2.2", max_in_flight=2)
        for _ in range(5):
            with pytest.raises(ZeroDivisionError):
                await (
                    await mq.send_nowait("orders", b"x", selector=lambda queues, _: queues[1 // 0])
                )
        assert (await (await mq.send_nowait("orders", b"x"))).status == "SEND_OK"

    simulate(scenario)


def test_sends_that_wait_for_a_connection_end_with_the_client() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await pair(cluster)
        mq = await cluster.client("10.0.2.2", max_in_flight=20)
        await mq.session.route("orders")
        cluster.isolate(A)
        cluster.isolate(B)
        futures = [await mq.send_nowait("orders", f"{n}") for n in range(20)]
        await asyncio.sleep(0)
        await mq.close(timeout=0)
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {ClientClosed}

    simulate(scenario)


@pytest.mark.parametrize("kind", list(Compression))
def test_large_bodies_travel_compressed_and_arrive_whole(kind: Compression) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker(A, "broker-a")
        mq = await cluster.client(CLIENT, compression=kind)
        body = b"abcdefgh" * 20_000
        await mq.send("orders", body)
        await mq.send("orders", b"z" * 4096)
        found = await read(mq, "orders")
        assert sorted(len(m.body) for m in found) == [4096, 160_000]
        assert {m.body for m in found} == {body, b"z" * 4096}
        assert all(m.store_size < 10_000 for m in found)

    simulate(scenario)


def test_messages_in_flight_are_bounded() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker(A, "broker-a")
        mq = await cluster.client(CLIENT, max_in_flight=5)
        await mq.send("orders", b"x")
        futures = []
        for n in range(50):
            futures.append(await mq.send_nowait("orders", f"{n}"))
            assert sum(not f.done() for f in futures) <= 5
        assert len(await asyncio.gather(*futures)) == 50

    simulate(scenario)


def test_bytes_in_flight_are_bounded() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker(A, "broker-a")
        mq = await cluster.client(CLIENT, max_bytes_in_flight=3_000)
        await mq.send("orders", b"x")
        futures = []
        for _ in range(20):
            futures.append(await mq.send_nowait("orders", b"x" * 1_000))
            assert sum(not f.done() for f in futures) <= 3
        futures.append(await mq.send_nowait("orders", b"x" * 4_000))
        assert sum(not f.done() for f in futures) == 1
        assert len(await asyncio.gather(*futures)) == 21

    simulate(scenario)


def test_pipelined_sends_to_one_queue_keep_their_order() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await pair(cluster)
        futures = [await mq.send_nowait("orders", f"{n}", shard_key="k") for n in range(200)]
        receipts = await asyncio.gather(*futures)
        offsets = [r.queue_offset for r in receipts]
        assert offsets == list(range(offsets[0], offsets[0] + 200))

    simulate(scenario)


def test_batches_give_every_message_its_receipt() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker(A, "broker-a")
        mq = await cluster.client(CLIENT)
        messages = [Message("orders", f"{n}".encode(), tag=f"t{n % 3}") for n in range(30)]
        receipts = await mq.send_batch("orders", messages)
        found = {m.message_id: m for m in await read(mq, "orders")}
        assert len(found) == 30
        for receipt, message in zip(receipts, messages, strict=True):
            stored = found[receipt.message_id]
            assert (stored.body, stored.tag) == (message.body, message.tag)
            assert stored.queue_offset == receipt.queue_offset
            assert stored.offset_message_id == receipt.offset_message_id
        assert await mq.send_batch("orders", []) == []

    simulate(scenario)


def keyed(number: int) -> Message:
    """The number's message: of six keys, or of none."""
    key = f"k{number % 7}" if number % 7 else None
    return Message("orders", b"%d" % number, shard_key=key)


@pytest.mark.parametrize("route", ["known", "comes later"])
def test_a_batch_is_split_by_the_queues_of_its_keys(route: str) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await pair(cluster)
        homes = {
            key: (await mq.send("orders", b"x", shard_key=key)).queue
            for key in (f"k{n}" for n in range(1, 7))
        }
        sends: list[str] = []
        real = mq.session.remoting.invoke

        async def counted(address: str, code: int, *rest: Any, **settings: Any) -> Command:
            sends.extend(["batch"] * (code == RequestCode.SEND_BATCH_MESSAGE))
            return await real(address, code, *rest, **settings)

        mq.session.remoting.invoke = counted  # type: ignore[method-assign]
        if route == "comes later":
            mq._sender._queues_now = lambda *rest: asyncio.sleep(0, ())  # type: ignore[method-assign]
        messages = [keyed(number) for number in range(40)]
        receipts = await mq.send_batch("orders", messages)
        assert len(sends) == len(set(homes.values())) + 1 > 3, "one request for each queue"
        found = {m.message_id: m for m in await read(mq, "orders")}
        for receipt, message in zip(receipts, messages, strict=True):
            stored = found[receipt.message_id]
            assert (stored.body, stored.queue) == (message.body, receipt.queue)
            assert stored.queue_offset == receipt.queue_offset
            assert receipt.queue == homes.get(message.shard_key or "", receipt.queue)
        (queue, *_) = await mq.queues("orders")
        assert {r.queue for r in await mq.send_batch("orders", messages, queue=queue)} == {queue}

    simulate(scenario)


def test_what_one_queue_refuses_of_a_batch_the_others_have_and_no_key_gets_out_of_order() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await pair(cluster)
        real = mq.session.remoting.invoke
        refused: list[str] = []

        async def some(address: str, code: int, *rest: Any, **settings: Any) -> Command:
            if code == RequestCode.SEND_BATCH_MESSAGE and not refused:
                refused.append(address)
                raise BrokerError(13, "no")
            return await real(address, code, *rest, **settings)

        mq.session.remoting.invoke = some  # type: ignore[method-assign]
        homes = {n: (await mq.send("orders", b"x", shard_key=f"k{n}")).queue for n in (1, 2, 3)}
        size = b"x" * 600_000  # two make two parts
        messages = [Message("orders", size, shard_key=f"k{n}") for n in (1, 2, 1, 2)]
        assert homes[1] != homes[2]
        with pytest.raises(BrokerError) as failed:
            await mq.send_batch("orders", messages)
        kinds = [type(each) for each in failed.value.outcomes]
        assert kinds == [BrokerError, SendReceipt, NotSent, SendReceipt]
        assert [each.queue for each in failed.value.receipts] == [homes[2]] * 2  # type: ignore[attr-defined]

    simulate(scenario)


@pytest.mark.parametrize("wanted", [True, False])
def test_another_broker_is_tried_when_one_did_not_store_safely(wanted: bool) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await pair(cluster)
        mq = await cluster.client(
            "10.0.2.2", group="shop", retry_another_broker_when_not_store_ok=wanted
        )
        real, unsafe = mq.session.remoting.invoke, {f"{A}:10911"}
        sends: list[str] = []

        async def no_slave(address: str, code: int, *rest: Any, **settings: Any) -> Command:
            answer = await real(address, code, *rest, **settings)
            if code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
                sends.append(address)
                if address in unsafe:
                    answer.code = ResponseCode.SLAVE_NOT_AVAILABLE
            return answer

        mq.session.remoting.invoke = no_slave  # type: ignore[method-assign]
        receipts = [await mq.send("orders", b"x") for _ in range(8)]
        receipts += await mq.send_batch("orders", [b"x", b"y"])
        receipts += await mq.send_batch("orders", [b"x", b"y"])
        assert ({r.status for r in receipts} == {"SEND_OK"}) is wanted
        assert (len(sends) > 10) is wanted
        sends.clear()
        with contextlib.suppress(NotDurable):
            async with mq.transaction("orders", b"half"):
                pass
        assert len(sends) == 1, "half messages are not sent twice"
        unsafe.add(f"{B}:10911")
        sends.clear()
        receipt = await mq.send("orders", b"x")
        assert receipt.status == "SLAVE_NOT_AVAILABLE", "stored, as well as it can be"
        assert len(sends) == (3 if wanted else 1)
        cluster.kill(B)
        assert (await mq.send("orders", b"x")).status == "SLAVE_NOT_AVAILABLE"
        queue = MessageQueue("orders", "broker-a", 0)
        sends.clear()
        assert (await mq.send("orders", b"x", queue=queue)).queue == queue
        assert len(sends) == 1

    simulate(scenario)


@pytest.mark.parametrize("detects", [True, False])
def test_a_broker_that_did_not_answer_is_left_alone_until_a_probe_is_answered(
    detects: bool,
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await pair(cluster)
        mq = await cluster.client(
            "10.0.2.2", latency_fault_tolerance=True, detect_isolated_brokers=detects
        )
        await mq.session.route("orders")
        real, tried = mq.session.remoting.invoke, list[str]()

        async def counted(address: str, code: int, *rest: Any, **settings: Any) -> Command:
            if code == RequestCode.SEND_MESSAGE_V2:
                tried.append(address)
            return await real(address, code, *rest, **settings)

        mq.session.remoting.invoke = counted  # type: ignore[method-assign]
        cluster.partition("10.0.2.2", A)
        while f"{A}:10911" not in tried:
            with contextlib.suppress(ClientError):
                await mq.send("orders", b"x")
        await asyncio.sleep(60)
        tried.clear()
        for _ in range(4):
            with contextlib.suppress(ClientError):
                await mq.send("orders", b"x")
        assert (f"{A}:10911" not in tried) is detects
        cluster.heal()
        await asyncio.sleep(30)
        receipts = [await mq.send("orders", b"x") for _ in range(16)]
        assert {r.queue.broker_name for r in receipts} == {"broker-a", "broker-b"}

    simulate(scenario)


def test_a_detector_needs_what_it_works_for() -> None:
    with pytest.raises(ConfigError, match="unless latency_fault_tolerance=True"):
        ClientConfig(name_servers="a:1", detect_isolated_brokers=True)


def test_slow_brokers_are_left_alone_when_asked_for() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await pair(cluster)
        mq = await cluster.client("10.0.2.2", latency_fault_tolerance=True)
        cluster.network.set_delay("10.0.2.2", A, 0.4, 0.5)
        for _ in range(8):
            await mq.send("orders", b"x")
        receipts = [await mq.send("orders", b"x") for _ in range(8)]
        assert {r.queue.broker_name for r in receipts} == {"broker-b"}

    simulate(scenario)
