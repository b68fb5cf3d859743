"""The newest messages of a topic: pages in the order of their times, filters, cursors and bounds."""

import asyncio
import random

import pytest

from roquette.admin import newest as module
from roquette.admin.newest import (
    NewestPage,
    cursor_of,
    filter_of,
    newest,
    parse_before,
    parse_queue,
)
from roquette.admin.topics import create_topic
from roquette.client.calls import EVERYTHING, PullFilter
from roquette.client.client import Client
from roquette.errors import ClientError, ConfigError, RouteNotFound
from roquette.message.message import MessageQueue
from roquette_testing.cluster import SimCluster, simulate

NAME_SERVER, A, B, CLIENT = "10.0.0.1", "10.0.1.1", "10.0.1.2", "10.0.2.1"


async def filled(cluster: SimCluster, count: int) -> tuple[Client, list[bytes]]:
    """A topic with four queues on two brokers, one of them busy; and its bodies, the newest first."""
    await cluster.add_namesrv(NAME_SERVER)
    await cluster.add_broker(A, "broker-a")
    await cluster.add_broker(B, "broker-b")
    mq = await cluster.client(CLIENT)
    await mq.session.run(create_topic(mq.session.name_servers, "orders", queues=2))
    await asyncio.sleep(1)
    queues = await mq.queues("orders")
    chance = random.Random(7)
    for number in range(count):
        queue = queues[0] if chance.random() < 0.7 else chance.choice(queues)
        tag = ("Aa", "BB", "rare")[2 if number % 50 == 3 else number % 2]  # Aa and BB: one hash
        properties = {"amount": str(number)}
        await mq.send("orders", b"%d" % number, tag=tag, queue=queue, properties=properties)
        await asyncio.sleep(0.01)
    return mq, [b"%d" % number for number in reversed(range(count))]


async def pages(
    mq: Client, most: int, wanted: PullFilter = EVERYTHING, **options: object
) -> list[NewestPage]:
    """Page by page to the first message."""
    found = [await mq.session.run(newest("orders", most, wanted, **options))]  # type: ignore[arg-type]
    while found[-1].more:
        cursor = parse_before(cursor_of(found[-1].before), "orders", 0)
        found.append(await mq.session.run(newest("orders", most, wanted, cursor)))
        assert len(found) < 200
    return found


def bodies(found: list[NewestPage]) -> list[bytes]:
    return [message.body for page in found for message in page.messages]


def test_pages_are_in_the_order_of_times_and_read_little_more_than_they_show() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq, sent = await filled(cluster, 300)
        found = await pages(mq, 40)
        assert bodies(found) == sent
        assert [len(page.messages) for page in found] == [40] * 7 + [20]
        assert max(page.read for page in found) <= 40 + 4 * 32
        place = parse_before("-3", "orders", 0)
        page = await mq.session.run(newest("orders", 5, before=place))
        assert len(page.messages) == 5 and page.messages[0].body != sent[0]
        at_ms = page.messages[0].store_timestamp_ms
        older = parse_before(f"@{at_ms}", "orders", 0)
        page = await mq.session.run(newest("orders", 5, before=older))
        assert max(m.store_timestamp_ms for m in page.messages) < at_ms
        one = MessageQueue("orders", "broker-b", 1)
        page = await mq.session.run(newest("orders", 500, queue=one))
        assert {m.queue for m in page.messages} == {one} and not page.more
        offsets = [m.queue_offset for m in page.messages]
        assert offsets == sorted(offsets, reverse=True) and offsets[-1] == 0

    simulate(scenario)


def test_filters_are_exact_and_the_cursor_leaves_nothing_out() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq, sent = await filled(cluster, 300)
        odd = [body for body in sent if int(body) % 2 and int(body) % 50 != 3]
        assert bodies(await pages(mq, 40, filter_of("BB", ""))) == odd
        rare = [body for body in sent if int(body) % 50 == 3]
        assert bodies(await pages(mq, 40, filter_of("rare || none", ""))) == rare
        big = [body for body in sent if int(body) > 290]
        (page,) = await pages(mq, 40, filter_of("*", "amount > 290"))
        assert [m.body for m in page.messages] == big and page.read == 300
        with pytest.raises(ConfigError, match="not both"):
            filter_of("a", "amount > 1")
        with pytest.raises(ClientError):
            await mq.session.run(newest("orders", 4, PullFilter("amount >", "SQL92")))

    simulate(scenario)


def test_bounds_end_a_page_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq, sent = await filled(cluster, 300)
        monkeypatch.setattr(module, "MOST_BYTES", 50)
        found = await pages(mq, 40)
        assert bodies(found) == sent and len(found) > 8
        monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
        monkeypatch.setattr(module, "MOST_READ", 20)
        found = await pages(mq, 2, filter_of("rare", ""))
        assert max(page.read for page in found) <= 2 * (20 + 2)
        assert sorted(bodies(found)) == sorted(b for b in sent if int(b) % 50 == 3)
        assert any(not page.messages and page.more for page in found)

    simulate(scenario)


def test_a_broker_that_is_silent_is_named_and_what_is_wrong_is_told() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq, _ = await filled(cluster, 30)
        run = mq.session.run
        with pytest.raises(RouteNotFound):
            await run(newest("nowhere", 4))
        with pytest.raises(ConfigError, match="has no queue broker-a:9"):
            await run(newest("orders", 4, queue=MessageQueue("orders", "broker-a", 9)))
        cluster.partition(CLIENT, B)
        page = await run(newest("orders", 100))
        assert {m.queue.broker_name for m in page.messages} == {"broker-a"}
        assert [each.startswith("broker-b: ") for each in page.errors] == [True]
        cluster.partition(CLIENT, A)
        with pytest.raises(ClientError):
            await run(newest("orders", 4))

    simulate(scenario)


@pytest.mark.parametrize("text", ["a:b:c", "broker-a:1", "broker-a:x:3", ":1:3", "a:1:2,", "soon"])
def test_a_place_that_is_none_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="is no"):
        parse_before(text, "orders", 0)
    with pytest.raises(ConfigError, match="say BROKER:NUMBER"):
        parse_queue("broker-a", "orders")
