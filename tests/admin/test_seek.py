"""Places in queues and groups that go on elsewhere, planned and done, online and not."""

import asyncio
from datetime import UTC, datetime

import pytest
from tests.client.test_push_consumer import NAMESRV, A, B, Inbox, committed, until

from roquette import StartFrom
from roquette.admin.seek import (
    QueuePlace,
    SeekPlan,
    apply_seek,
    parse_place,
    plan_seek,
    require_done,
)
from roquette.client.client import Client
from roquette.client.operator_calls import put_group
from roquette.errors import ClientError, ConfigError
from roquette.message.message import MessageQueue
from roquette.wire.bodies import SubscriptionGroupConfig
from roquette_testing.cluster import SimCluster, simulate

NOW_MS = 1_790_000_000_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("first", QueuePlace("start", 0)),
        ("earliest", QueuePlace("start", 0)),
        ("last", QueuePlace("end", 0)),
        ("latest", QueuePlace("end", 0)),
        ("120", QueuePlace("offset", 120)),
        ("-10", QueuePlace("end", -10)),
        ("+100", QueuePlace("start", 100)),
        ("@-1h", QueuePlace("time", NOW_MS - 3_600_000)),
        ("@-90m", QueuePlace("time", NOW_MS - 5_400_000)),
        ("@-250ms", QueuePlace("time", NOW_MS - 250)),
        ("@-99999d", QueuePlace("time", 0)),
        ("@1789999999999", QueuePlace("time", 1_789_999_999_999)),
        (
            "@2026-09-01T10:00Z",
            QueuePlace("time", int(datetime(2026, 9, 1, 10, tzinfo=UTC).timestamp() * 1000)),
        ),
        ("@2026-09-01T10:00", QueuePlace("time", int(datetime(2026, 9, 1, 10).timestamp() * 1000))),
    ],
)
def test_words_name_places(text: str, place: QueuePlace) -> None:
    assert parse_place(text, NOW_MS) == place


@pytest.mark.parametrize(
    "text",
    ["", "x", "1.5", "--1", "+", "-", "@", "@-1", "@-1w", "@yesterday", "9" * 30, "@" + "9" * 30],
)
def test_other_words_are_refused_with_what_to_say(text: str) -> None:
    with pytest.raises(ConfigError, match="say"):
        parse_place(text, NOW_MS)


def test_places_stay_inside_their_queue() -> None:
    for place, wanted in (
        (QueuePlace("start", 0), 10),
        (QueuePlace("start", 100), 20),
        (QueuePlace("end", 0), 20),
        (QueuePlace("end", -3), 17),
        (QueuePlace("end", -99), 10),
        (QueuePlace("offset", 15), 15),
        (QueuePlace("offset", 5), 10),
        (QueuePlace("offset", 50), 20),
    ):
        assert place.at(10, 20) == wanted


async def two_brokers(cluster: SimCluster) -> Client:
    """Ten messages in queue 0 and five in queue 1 of each broker."""
    await cluster.add_namesrv(NAMESRV)
    for ip, name in ((A, "broker-a"), (B, "broker-b")):
        await cluster.add_broker(ip, name)
    mq = await cluster.client("10.0.2.1")
    await mq.send("orders", b"first", queue=MessageQueue("orders", "broker-a", 0))
    await until(lambda: mq.session.known_route("orders") is not None)
    for name in ("broker-a", "broker-b"):
        for number in range(10 - (name == "broker-a")):
            await mq.send("orders", b"%d" % number, queue=MessageQueue("orders", name, 0))
        for number in range(5):
            await mq.send("orders", b"%d" % number, queue=MessageQueue("orders", name, 1))
    return mq


def changes(plan: SeekPlan) -> dict[tuple[str, int], tuple[int, int, int]]:
    return {
        (row.broker, row.queue): (row.committed, row.target, row.delta)
        for row in plan.rows
        if row.end
    }


def test_a_group_without_members_goes_on_where_the_plan_says() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await two_brokers(cluster)
        inbox = Inbox()
        consumer = await mq.subscribe(
            "orders", group="g", handler=inbox, start_from=StartFrom.FIRST
        )
        await until(lambda: len(inbox.messages) == 30)
        await consumer.close()
        run = mq.session.run
        plan = await run(plan_seek("g", "orders", parse_place("-3", 0)))
        assert changes(plan) == {
            ("broker-a", 0): (10, 7, -3),
            ("broker-a", 1): (5, 2, -3),
            ("broker-b", 0): (10, 7, -3),
            ("broker-b", 1): (5, 2, -3),
        }
        assert not any(row.online for row in plan.rows)
        assert await committed(mq, MessageQueue("orders", "broker-a", 0)) == 10  # only planned
        require_done(await run(apply_seek(plan)))
        assert await committed(mq, MessageQueue("orders", "broker-a", 0)) == 7
        one = await run(plan_seek("g", "orders", parse_place("4", 0), queue=1))
        assert changes(one) == {("broker-a", 1): (2, 4, 2), ("broker-b", 1): (2, 4, 2)}
        require_done(await run(apply_seek(one)))
        again = Inbox()
        await mq.subscribe("orders", group="g", handler=again, start_from=StartFrom.FIRST)
        await until(lambda: len(again.messages) == 3 + 3 + 1 + 1)
        await asyncio.sleep(30)
        assert len(again.messages) == 8

    simulate(scenario)


def test_a_group_goes_on_where_another_one_is() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await two_brokers(cluster)
        run = mq.session.run
        for name in ("g", "copy"):
            for ip in (A, B):
                await mq.session.api.call(
                    f"{ip}:10911", put_group(SubscriptionGroupConfig(group_name=name))
                )
        for queue, place in ((0, "4"), (1, "-3")):
            require_done(
                await run(
                    apply_seek(await run(plan_seek("g", "orders", parse_place(place, 0), queue)))
                )
            )
        plan = await run(plan_seek("copy", "orders", QueuePlace("group", 0, "g")))
        wanted = {(broker, 0): 4 for broker in ("broker-a", "broker-b")}
        wanted |= {(broker, 1): 2 for broker in ("broker-a", "broker-b")}
        assert {key: target for key, (_, target, _) in changes(plan).items()} == wanted
        require_done(await run(apply_seek(plan)))
        again = await run(plan_seek("copy", "orders", QueuePlace("group", 0, "g")))
        assert {place[:2] for place in changes(again).values()} == {(4, 4), (2, 2)}
        with pytest.raises(ConfigError, match="group nobody has no offset there"):
            await run(plan_seek("copy", "orders", QueuePlace("group", 0, "nobody")))

    simulate(scenario)


def test_members_that_are_online_go_on_where_the_plan_says() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await two_brokers(cluster)
        inbox = Inbox()
        await mq.subscribe("orders", group="g", handler=inbox, start_from=StartFrom.FIRST)
        await until(lambda: len(inbox.messages) == 30)
        await asyncio.sleep(10)
        plan = await mq.session.run(plan_seek("g", "orders", parse_place("first", 0)))
        assert all(row.online for row in plan.rows)
        require_done(await mq.session.run(apply_seek(plan)))
        await until(lambda: len(inbox.messages) == 60)
        await asyncio.sleep(60)
        assert len(inbox.messages) == 60

    simulate(scenario)


def test_a_time_and_a_group_that_has_no_offset_yet() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await two_brokers(cluster)
        await asyncio.sleep(100)
        now_ms = mq.session.clock.now_ms()
        await mq.send("orders", b"late", queue=MessageQueue("orders", "broker-b", 1))
        plan = await mq.session.run(plan_seek("new", "orders", parse_place("@-50s", now_ms)))
        assert changes(plan) == {
            ("broker-a", 0): (-1, 10, 0),
            ("broker-a", 1): (-1, 5, 0),
            ("broker-b", 0): (-1, 10, 0),
            ("broker-b", 1): (-1, 5, 0),
        }

    simulate(scenario)


def test_what_cannot_be_planned_or_done_is_said() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await two_brokers(cluster)
        run = mq.session.run
        for topic, queue, said in (
            ("absent", None, "no broker has topic absent"),
            ("orders", 99, "queue 99 of topic"),
        ):
            with pytest.raises(ConfigError, match=said):
                await run(plan_seek("g", topic, QueuePlace("start", 0), queue))
        plan = await run(plan_seek("g", "orders", QueuePlace("start", 0)))
        with pytest.raises(ClientError, match=r"8 of 8 queues .* Group g not exist"):
            require_done(await run(apply_seek(plan)))
        inbox = Inbox()
        consumer = await mq.subscribe("orders", group="g", handler=inbox)
        await consumer.close()
        cluster.isolate(B)
        with pytest.raises(ClientError):
            await run(plan_seek("g", "orders", QueuePlace("start", 0)))
        with pytest.raises(ClientError, match="queues were not changed: broker-b"):
            require_done(await run(apply_seek(plan)))

    simulate(scenario)
