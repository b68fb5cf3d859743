"""What a client tells of its connections, routes, queues and full windows."""

import threading

from tests.client.test_push_consumer import NAMESRV, A, B, Inbox, mine, small, until

from roquette import Event, EventKind, MessageQueue, StartFrom
from roquette_testing.cluster import SimCluster, simulate
from roquette_testing.embedded import EmbeddedBroker


def test_connections_routes_and_shares_are_told_of() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client("10.0.3.1")
        told: list[Event] = []

        def broken(event: Event) -> None:
            raise ValueError("a listener harms nothing")

        mq.on_event(broken)
        mq.on_event(told.append)
        assert not mq.is_connected
        consumer = await mq.subscribe(
            "orders", group="g", handler=Inbox(), start_from=StartFrom.FIRST
        )
        await until(lambda: len(mine(consumer)) == 4)
        assert mq.is_connected
        opened = {event.address for event in told if event.kind is EventKind.CONNECTED}
        assert opened == {f"{NAMESRV}:9876", f"{A}:10911"}
        last = [event for event in told if event.kind is EventKind.REBALANCED][-1]
        assert last.group == "g"
        assert {q.queue_id for q in last.queues if q.topic == "orders"} == {0, 1, 2, 3}

        told.clear()
        other = await cluster.client("10.0.3.2")
        await other.subscribe("orders", group="g", handler=Inbox())
        await until(lambda: len(mine(consumer)) == 2)
        (share,) = [event for event in told if event.kind is EventKind.REBALANCED]
        assert sum(queue.topic == "orders" for queue in share.queues) == 2

        told.clear()
        cluster.kill(A)
        await until(lambda: Event(EventKind.DISCONNECTED, f"{A}:10911") in told)
        await mq.close()
        assert not mq.is_connected

    simulate(scenario)


def test_a_changed_route_is_told_once_and_neither_the_first_nor_the_same() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client("10.0.3.1")
        told: list[Event] = []
        mq.on_event(lambda event: told.append(event) if event.topic else None)
        await mq.send("orders", b"0")
        for _ in range(2):
            await mq.session.route("orders", fresh=True)
        assert told == []

        await cluster.add_broker(B, "broker-b")
        other = await cluster.client("10.0.3.2")
        await other.session.route("TBW102")
        await other.send("orders", b"1", queue=MessageQueue("orders", "broker-b", 0))
        await until(lambda: told != [])
        assert {queue.broker_name for queue in await mq.queues("orders")} == {
            "broker-a",
            "broker-b",
        }
        await mq.session.route("orders", fresh=True)
        assert told == [Event(EventKind.ROUTE_CHANGED, topic="orders")]

    simulate(scenario)


def test_who_waits_for_a_place_is_told_of_once() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await small(cluster)
        mq = await cluster.client("10.0.3.1", max_in_flight=2)
        told: list[Event] = []
        mq.on_event(told.append)
        await mq.send("orders", b"0")
        for number in range(3):
            await mq.send_nowait("orders", b"%d" % number)
        await mq.flush()
        assert [e.topic for e in told if e.kind is EventKind.BLOCKED] == ["orders"]

    simulate(scenario)


def test_the_blocking_twin_tells_the_same() -> None:
    with EmbeddedBroker() as broker, broker.sync_client() as mq:
        told: list[Event] = []
        seen = threading.Event()
        mq.on_event(lambda event: (told.append(event), seen.set()))
        assert not mq.is_connected
        mq.send("orders", b"1")
        assert seen.wait(30) and mq.is_connected
        assert told[0].kind is EventKind.CONNECTED
        mq.close()
        assert not mq.is_connected
