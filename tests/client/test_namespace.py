"""Namespaces: at the brokers each has names of its own, the application sees only its own."""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import timedelta

import pytest

from roquette.client import calls
from roquette.client.client import Client
from roquette.client.config import ClientConfig
from roquette.client.consumer_options import StartFrom
from roquette.client.core.namespace import Namespace
from roquette.client.interceptors import Handled, Sent
from roquette.errors import ConfigError, RouteNotFound
from roquette.message.message import Message, MessageQueue, ReceivedMessage
from roquette.wire.signature import Credentials, Signer, ext_fields, signed_content, signs
from roquette_testing.cluster import SimCluster, simulate

NAMESRV, BROKER = "10.0.0.1", "10.0.1.1"


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("orders", "red%orders"),
        ("%RETRY%billing", "%RETRY%red%billing"),
        ("%DLQ%billing", "%DLQ%red%billing"),
        ("redder%orders", "red%redder%orders"),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
    ],
)
def test_names_are_wrapped_as_by_java(name: str, wrapped: str) -> None:
    red = Namespace("red")
    assert red.wrap(name) == red.wrap(red.wrap(name)) == wrapped
    assert red.shown(wrapped) == red.shown(name) == name
    assert Namespace("blue").shown("red%orders") == "red%orders"
    assert Namespace("").wrap(name) == name


def test_what_is_no_namespace_is_refused() -> None:
    for wrong in ("a%b", "a b", "ü", "x" * 128):
        with pytest.raises(ConfigError, match="is not 1 to 127 of the characters"):
            ClientConfig(name_servers="a:1", namespace=wrong)
        with pytest.raises(ConfigError, match="is not 1 to 127 of the characters"):
            ClientConfig(name_servers="a:1", namespace_v2=wrong)
    with pytest.raises(ConfigError, match="exclude each other"):
        ClientConfig(name_servers="a:1", namespace="a", namespace_v2="b")


async def world(cluster: SimCluster) -> tuple[Client, Client]:
    """Two clients of different namespaces, each with a topic `orders`."""
    await cluster.add_namesrv(NAMESRV)
    await cluster.add_broker(BROKER, "broker-a", recall_message_enable=True)
    clients = []
    for number, name in enumerate(("red", "blue")):
        mq = await cluster.client(f"10.0.2.{number + 1}", namespace=name, group="shop")
        await mq.send("orders", f"{name} 0", key="k")
        clients.append(mq)
    return clients[0], clients[1]


class Seen:
    """An interceptor that notes names."""

    def __init__(self) -> None:
        self.names: set[tuple[str, str]] = set()

    def on_send(self, message: Message, group: str) -> Sent | None:
        self.names.add((message.topic, group))
        return None

    def on_receive(self, message: ReceivedMessage, group: str) -> Handled | None:
        self.names.add((message.topic, group))
        return None


def test_each_namespace_has_its_own_messages_and_sees_its_own_names() -> None:
    async def scenario(cluster: SimCluster) -> None:
        red, blue = await world(cluster)
        seen = Seen()
        red.intercept(seen)
        queues = await red.queues("orders")
        assert {queue.topic for queue in queues} == {"orders"}
        chosen: list[Sequence[MessageQueue]] = []

        def last(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
            chosen.append(queues)
            return queues[-1]

        receipt = await red.send("orders", b"red 1", selector=last)
        assert receipt.queue == queues[-1]
        assert list(chosen[0]) == queues
        receipts = await red.send_batch("orders", [b"red 2", b"red 3"], queue=queues[0])
        assert {each.queue for each in receipts} == {queues[0]}
        future = await red.send_nowait(Message("orders", b"red 4"), queue=queues[1])
        assert (await future).queue == queues[1]
        await red.send_oneway("orders", b"red 5")
        found: list[ReceivedMessage] = []

        async def handle(message: ReceivedMessage) -> None:
            found.append(message)

        consumer = await red.subscribe(
            "orders", group="billing", handler=handle, start_from=StartFrom.FIRST
        )
        while len(found) < 6:
            await asyncio.sleep(0.1)
        await consumer.close()
        assert sorted(message.body for message in found) == [b"red %d" % n for n in range(6)]
        assert {(m.topic, m.queue.topic, m.origin_topic) for m in found} == {("orders",) * 3}
        assert seen.names == {("orders", "shop"), ("orders", "billing")}

        (message,) = await blue.find("orders", "k")
        assert (message.topic, message.body) == ("orders", b"blue 0")
        assert (await blue.message_at(message.offset_message_id)).topic == "orders"
        assert await blue.max_offset(message.queue) == message.queue_offset + 1
        plain = await cluster.client("10.0.2.9")
        assert {queue.topic for queue in await plain.queues("red%orders")} == {"red%orders"}
        with pytest.raises(RouteNotFound):
            await plain.queues("orders")
        names = await plain.session.api.call(f"{BROKER}:10911", calls.topics_of_broker())
        assert {"red%orders", "blue%orders", "%RETRY%red%billing"} <= set(names)

    simulate(scenario)


def test_failed_messages_return_under_the_applications_names_and_end_among_its_dead_letters() -> (
    None
):
    async def scenario(cluster: SimCluster) -> None:
        red, _ = await world(cluster)
        tries: list[tuple[str, int]] = []

        async def handle(message: ReceivedMessage) -> bool:
            tries.append((message.topic, message.reconsume_times))
            return False

        await red.subscribe(
            "orders",
            group="billing",
            handler=handle,
            start_from=StartFrom.FIRST,
            max_reconsume_times=1,
            retry_levels=[1],
        )
        async with asyncio.timeout(120):
            async for dead in red.consume(
                "%DLQ%billing", group="undertaker", start_from=StartFrom.FIRST
            ):
                assert (dead.topic, dead.origin_topic) == ("%DLQ%billing", "orders")
                assert dead.body == b"red 0"
                break
        assert tries == [("orders", 0), ("orders", 1)]

    simulate(scenario)


def test_readers_pops_requests_and_delays_work_in_a_namespace() -> None:
    async def scenario(cluster: SimCluster) -> None:
        red, blue = await world(cluster)
        reader = red.reader(group="readers", start_from=StartFrom.FIRST)
        gained: list[MessageQueue] = []
        await reader.subscribe("orders", on_change=lambda new, lost: gained.extend(new))
        (message,) = await reader.poll(timeout=20)
        assert (message.body, message.topic, message.queue.topic) == (b"red 0", "orders", "orders")
        assert sorted(gained) == sorted(reader.assigned()) == await red.queues("orders")
        await reader.seek_to_end(message.queue)
        await reader.commit()
        assert await reader.committed(message.queue) == 1
        await reader.close()
        known = MessageQueue("red%orders", "broker-a", message.queue.queue_id)
        plain = await cluster.client("10.0.2.9")
        call = calls.committed_offset("red%readers", known)
        assert await plain.session.api.call(f"{BROKER}:10911", call) == 1

        async with red.pop("orders", group="poppers", start_from=StartFrom.FIRST) as jobs:
            async for job in jobs:
                assert (job.body, job.topic) == (b"red 0", "orders")
                await job.ack()
                break

        await blue.serve("sums", group="adders", handler=lambda m: m.topic.encode())
        with contextlib.suppress(Exception):
            await red.send("sums", b"the other namespace's")
        await blue.send("sums", b"the topic is there")
        await asyncio.sleep(30)
        assert (await blue.request("sums", b"1 1")).body == b"sums"

        receipt = await red.send("orders", b"later", deliver_at=timedelta(minutes=5))
        await red.recall(receipt)

    simulate(scenario)


def test_transactions_are_asked_for_in_their_namespace() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker(
            BROKER, "broker-a", transaction_time_out=1500, transaction_check_interval=1000
        )
        red = await cluster.client("10.0.2.1", namespace="red", group="shop")
        asked: list[tuple[str, bytes]] = []

        def check(message: ReceivedMessage) -> bool:
            asked.append((message.topic, message.body))
            return True

        red.on_check("orders", check)
        async with red.transaction("orders", b"said"):
            pass
        with contextlib.suppress(asyncio.CancelledError):
            async with red.transaction("orders", b"asked for"):
                raise asyncio.CancelledError
        bodies = set()
        async with asyncio.timeout(120):
            async for message in red.consume("orders", group="g", start_from=StartFrom.FIRST):
                bodies.add(message.body)
                if len(bodies) == 2:
                    break
        assert bodies == {b"said", b"asked for"}
        assert asked == [("orders", b"asked for")]

    simulate(scenario)


def test_the_second_kind_is_said_with_each_request_and_signed() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker(BROKER, "broker-a")
        mq = await cluster.client("10.0.2.1", namespace_v2="red")
        receipt = await mq.send("orders", b"x")
        assert receipt.queue.topic == "orders"
        assert await mq.max_offset(receipt.queue) == 1
        peer = mq.session.remoting.peer(mq.session.master_of(receipt.queue))
        assert peer is not None
        assert ext_fields(peer.wire.signer.sign(b'{"a":"1"}', b"")) == {
            "a": "1",
            "ns": "red",
            "nsd": "true",
        }

    simulate(scenario)
    assert ext_fields(Signer(None, "red").sign(b"", b"")) == {"ns": "red", "nsd": "true"}
    fields = ext_fields(Signer(Credentials("me", "secret"), "red").sign(b'{"a":"1"}', b"body"))
    assert fields["nsd"] == "true"
    assert signs(fields.pop("Signature"), b"secret", signed_content(fields, b"body"))
