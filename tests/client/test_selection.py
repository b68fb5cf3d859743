"""What a consumer wants of a topic: tags and expressions, at the broker and again at the client."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

import roquette
from roquette import sql
from roquette.client.arguments import as_subscriptions
from roquette.client.consumer_options import matcher, subscription
from roquette.errors import ConfigError
from roquette.message.message import Message, ReceivedMessage
from roquette_testing.cluster import SimCluster, simulate

NAMESRV, BROKER, CLIENT = "10.0.0.1", "10.0.1.1", "10.0.2.1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("t", {"tag": "price > 3"}), r"pass filter=roquette.sql\('price > 3'\)"),
        (("t", {"tag": "a=b"}), "is an expression"),
        (("t", {"tag": "x is not null"}), "is an expression"),
        (("t", {"tag": "a", "filter": sql("a > 3")}), "exclude each other"),
        (("t", {"filter": "a > 3"}), "not made by roquette.sql"),
        (({"t": "a"}, {"tag": "b"}), "have their tags or filters in it"),
        (({"t": 3}, {}), "are no str"),
        (("t", {"tag": "ab||" * 5_000}), "has 20000 characters, 16384 are allowed"),
    ],
)
def test_a_wrong_selection_says_what_is_wrong(arguments: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        as_subscriptions(*arguments)


@pytest.mark.parametrize("tags", ["*", "", "a || b", "order-and-more", "Ünï cödé"])
def test_tags_that_are_tags_pass(tags: str) -> None:
    assert as_subscriptions("t", {"tag": tags}) == {"t": tags}


def test_what_is_no_expression_is_refused_where_it_is_written() -> None:
    with pytest.raises(ConfigError, match="'a >' is no SQL92 expression: "):
        sql("a >")
    with pytest.raises(ConfigError, match="takes a text"):
        sql(3)  # type: ignore[arg-type]


def test_a_selection_as_brokers_want_it() -> None:
    wanted = subscription("t", sql("a > 3"), 7)
    assert (wanted.expression_type, wanted.sub_string, wanted.sub_version) == ("SQL92", "a > 3", 7)
    assert not wanted.tags_set
    tagged = subscription("t", "a || b", 7)
    assert (tagged.expression_type, tagged.tags_set) == ("TAG", ["a", "b"])
    assert matcher(subscription("t", "*", 7)) is None


@pytest.mark.simulation
def test_only_matching_messages_come_to_every_kind_of_consumer() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker(BROKER, "broker-a", enable_property_filter=True)
        mq = await cluster.client(CLIENT)
        for number in range(10):
            await mq.send(
                "stock", f"{number}", tag=f"t{number % 2}", properties={"left": f"{number}"}
            )
        await mq.send("stock", b"none")
        wanted = sql("left >= 3 AND TAGS = 't1'")

        reader = mq.reader(group="reader", filter=wanted)
        for queue in await mq.queues("stock"):
            reader.seek(queue, 0)
        read: list[bytes] = []
        while messages := await reader.poll(timeout=1.0):
            read += [message.body for message in messages]
        assert sorted(read) == [b"3", b"5", b"7", b"9"]

        seen: list[bytes] = []
        async with mq.consume({"stock": wanted}, group="g", start_from=0) as stream:
            async for message in stream:
                seen.append(message.body)
                if len(seen) == 4:
                    break
        assert sorted(seen) == [b"3", b"5", b"7", b"9"]

    simulate(scenario)


@pytest.mark.simulation
def test_what_a_broker_lets_pass_is_tested_again() -> None:
    """Brokers whose filter is off, or that know another subscription of the group, send more than is wanted."""

    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker(BROKER, "broker-a", enable_property_filter=True)
        mq = await cluster.client(CLIENT)
        await mq.send("stock", b"low", properties={"left": "1"})
        await mq.send("stock", b"high", properties={"left": "9"})
        seen: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            seen.append(message.body)

        consumer = await mq.subscribe(
            "stock", group="g", handler=handle, filter=sql("left > 3"), start_from=0
        )
        broad = subscription("stock", "*", cluster.clock.now_ms() + 1)
        consumer._joined()._pulls._subscriptions["stock"] = broad  # type: ignore[index]
        await mq.send("stock", b"lower", properties={"left": "0"})
        await mq.send("stock", b"higher", properties={"left": "10"})
        await asyncio.sleep(5)
        assert sorted(seen) == [b"high", b"higher"]

    simulate(scenario)


@pytest.mark.simulation
def test_a_message_says_when_it_came_and_a_dead_letter_where_it_comes_from() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker(BROKER, "broker-a")
        mq = await cluster.client(CLIENT)
        receipt = await mq.send(Message("orders", b"bad", shard_key="k"))
        group = "g"
        failed: list[ReceivedMessage] = []

        async def handle(message: ReceivedMessage) -> bool:
            failed.append(message)
            return False

        await mq.subscribe(
            "orders", group=group, handler=handle, start_from=0, max_reconsume_times=1
        )
        await asyncio.sleep(60)
        first, again = failed
        assert first.shard_key == "k"
        assert first.origin_topic == again.origin_topic == "orders"
        assert (
            abs(first.stored_at - datetime.fromtimestamp(1_700_000_000, UTC)).total_seconds() < 60
        )
        assert first.born_at.tzinfo is UTC

        async with mq.consume(
            "%DLQ%g", group="undertaker", start_from=roquette.StartFrom.FIRST
        ) as dead:
            async for letter in dead:
                assert letter.topic == "%DLQ%g"
                assert letter.origin_topic == "orders"
                assert letter.message_id == receipt.message_id
                break

    simulate(scenario)


@pytest.mark.simulation
def test_a_reader_pauses_and_seeks() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        await cluster.add_broker(BROKER, "broker-a")
        mq = await cluster.client(CLIENT)
        receipts = [await mq.send("orders", f"{number}") for number in range(8)]
        one, other = sorted({receipt.queue for receipt in receipts})[:2]
        reader = mq.reader(group="reader")
        assert await reader.committed(one) is None
        await reader.assign([one, other])
        reader.pause(one)
        got = []
        while messages := await reader.poll(timeout=1.0):
            got += messages
        assert {message.queue for message in got} == {other}
        reader.resume(one)
        assert {message.queue for message in await reader.poll(timeout=1.0)} == {one}
        await reader.commit()
        assert await reader.committed(one) == await mq.max_offset(one)

        await reader.seek_to_begin(one)
        assert (await reader.poll(timeout=1.0))[0].queue_offset == 0
        await reader.seek_to_end(one)
        assert await reader.poll(timeout=1.0) == []
        await reader.seek_to_time(one, datetime.fromtimestamp(0, UTC))
        reader.pause(one)
        assert await reader.poll(timeout=1.0) == []
        await reader.seek_to_begin(one)  # what was fetched before is thrown away
        reader.resume(one)
        assert len(await reader.poll(timeout=1.0)) == await mq.max_offset(one)

    simulate(scenario)
