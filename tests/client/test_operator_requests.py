"""What a consumer answers operators: where it is, going on elsewhere, one message directly; handlers that hang."""

import asyncio
from typing import Any

from tests.client.test_push_consumer import A, Inbox, small, until

from roquette import Client, StartFrom
from roquette.client.consumer import Consumer
from roquette.client.push_consumer import PushConsumer
from roquette.message.message import ReceivedMessage
from roquette.wire.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ResetOffsetBody,
)
from roquette.wire.codes import RequestCode
from roquette.wire.command import Command
from roquette.wire.header_codec import encode_dict
from roquette.wire.json_body import decode_body
from roquette_testing.cluster import SimCluster, simulate


async def ask(who: Consumer | Client, code: RequestCode, **fields: Any) -> Command:
    """An operator's request to the broker."""
    ext = encode_dict({key: str(value) for key, value in fields.items()})
    session = who.session if isinstance(who, Client) else who._joined().session
    address = next(a for a in session.broker_addresses() if a.startswith(A))
    return await session.remoting.invoke(address, code, ext, b"", timeout_ms=30_000)


def test_the_broker_is_told_where_a_consumer_is() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        inbox = Inbox()
        kept = await mq.subscribe("orders", group="g", handler=inbox, start_from=StartFrom.FIRST)
        await until(lambda: len(inbox.messages) == 1)
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        reply = await ask(kept, code, topic="orders", group="g")
        (table,) = decode_body(GetConsumerStatusBody, reply.body).consumer_table.values()

        assert sum(table.values()) == 1
        assert len(table) == 4

    simulate(scenario, 1)


def test_a_reset_through_the_client_brings_everything_again() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster, use_server_side_reset_offset=False)
        inbox = Inbox()
        kept = await mq.subscribe("orders", group="g", handler=inbox, start_from=StartFrom.FIRST)
        for n in range(1, 8):
            await mq.send("orders", f"{n}")
        await until(lambda: len(inbox.messages) == 8)
        await kept._joined().persist()
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        reply = await ask(kept, code, topic="orders", group="g", timestamp=0, isForce="true")
        assert reply.code == 0, reply.remark
        assert len(decode_body(ResetOffsetBody, reply.body).offset_table) == 4
        await until(lambda: len(inbox.messages) == 16)
        assert sorted(inbox.bodies()) == sorted([b"%d" % n for n in range(8)] * 2)

    simulate(scenario, 1)


def test_an_orderly_consumer_ends_its_message_before_it_goes_back() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster, use_server_side_reset_offset=False)
        seen: list[bytes] = []
        at_work = 0

        async def handler(message: ReceivedMessage) -> None:
            nonlocal at_work
            at_work += 1
            assert at_work == 1
            await asyncio.sleep(5)
            at_work -= 1
            seen.append(message.body)

        kept = await mq.subscribe(
            "orders", group="g", handler=handler, start_from=StartFrom.FIRST, orderly=True
        )
        await until(lambda: at_work == 1)
        await kept._joined().persist()
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        await ask(kept, code, topic="orders", group="g", timestamp=0, isForce="true")
        await until(lambda: len(seen) == 2)
        assert seen == [b"0", b"0"]

    simulate(scenario, 1)


def test_a_server_side_reset_reaches_a_waiting_consumer_at_once() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        inbox = Inbox()
        kept = await mq.subscribe("orders", group="g", handler=inbox, start_from=StartFrom.FIRST)
        await until(lambda: len(inbox.messages) == 1)
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        await ask(kept, code, topic="orders", group="g", timestamp=0, isForce="true")
        assert await until(lambda: len(inbox.messages) == 2) < 2

    simulate(scenario, 1)


def test_one_message_is_consumed_directly() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        taken: list[ReceivedMessage] = []
        outcome: list[Any] = [None]

        def handler(message: ReceivedMessage) -> Any:
            taken.append(message)
            if isinstance(outcome[0], Exception):
                raise outcome[0]
            return outcome[0]

        kept = await mq.subscribe("orders", group="g", handler=handler, start_from=StartFrom.FIRST)
        await until(lambda: len(taken) == 1)
        fields = {
            "consumerGroup": "g",
            "clientId": kept._joined().session.client_id,
            "topic": "orders",
        }
        fields["msgId"] = taken[0].offset_message_id
        results = []
        for wanted in (None, False, ValueError("no")):
            outcome[0] = wanted
            reply = await ask(kept, RequestCode.CONSUME_MESSAGE_DIRECTLY, **fields)
            results.append(decode_body(ConsumeMessageDirectlyResult, reply.body))

        assert [r.consume_result for r in results] == [
            "CR_SUCCESS",
            "CR_LATER",
            "CR_THROW_EXCEPTION",
        ]
        assert results[2].remark == "ValueError('no')"
        assert [m.body for m in taken] == [b"0"] * 4

    simulate(scenario, 1)


def test_one_message_is_consumed_directly_by_who_iterates() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        stream = mq.consume("orders", group="g", start_from=StartFrom.FIRST)
        first = await anext(stream)
        fields = {"consumerGroup": "g", "clientId": mq.session.client_id, "topic": "orders"}
        told = await ask(mq, RequestCode.GET_CONSUMER_RUNNING_INFO, **fields)
        shown = decode_body(ConsumerRunningInfo, told.body).properties
        assert shown["PROP_THREADPOOL_CORE_SIZE"] == "1"
        fields["msgId"] = first.offset_message_id
        results = []
        for decide in ("ack", "retry", "close"):
            asked = asyncio.create_task(ask(mq, RequestCode.CONSUME_MESSAGE_DIRECTLY, **fields))
            again = await anext(stream)
            assert (again.body, again is first) == (b"0", False)
            await getattr(stream if decide == "close" else again, decide)()
            found = decode_body(ConsumeMessageDirectlyResult, (await asked).body)
            results.append(found.consume_result)

        assert results == ["CR_SUCCESS", "CR_LATER", "CR_LATER"]

    simulate(scenario, 1)


def test_operators_see_the_message_that_who_iterates_is_at_work_on() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)

        async def iterate() -> None:
            async for _ in mq.consume("orders", group="g", start_from=StartFrom.FIRST):
                await asyncio.sleep(100)

        iterating = asyncio.create_task(iterate())
        await asyncio.sleep(10)
        fields = {"consumerGroup": "g", "clientId": mq.session.client_id, "jstackEnable": "true"}
        reply = await ask(mq, RequestCode.GET_CONSUMER_RUNNING_INFO, **fields)
        head, *lines = (decode_body(ConsumerRunningInfo, reply.body).jstack or "").splitlines()

        assert head.startswith("handler of g message=")
        assert any(line.endswith("iterate") for line in lines)
        await asyncio.sleep(100)
        reply = await ask(mq, RequestCode.GET_CONSUMER_RUNNING_INFO, **fields)
        assert decode_body(ConsumerRunningInfo, reply.body).jstack == ""
        iterating.cancel()

    simulate(scenario, 1)


def test_a_handler_that_hangs_lets_its_message_come_to_another() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        taken: list[ReceivedMessage] = []

        async def handler(message: ReceivedMessage) -> None:
            taken.append(message)
            if len(taken) == 1:
                await asyncio.sleep(10_000)

        client = await cluster.client("10.0.3.1", consume_timeout=120)
        await client.subscribe("orders", group="g", handler=handler, start_from=StartFrom.FIRST)
        await mq.send("orders", b"1")
        waited = await until(lambda: len(taken) == 3, 400)

        assert 120 < waited < 240
        assert taken[2].body == taken[0].body
        assert taken[2].reconsume_times == 1

    simulate(scenario, 1)


def test_operators_see_where_each_handler_waits() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        hangs = asyncio.Event()

        async def deep_in_the_database() -> None:
            await hangs.wait()

        async def handler(message: ReceivedMessage) -> None:
            await deep_in_the_database()

        kept = await mq.subscribe("orders", group="g", handler=handler, start_from=StartFrom.FIRST)
        await mq.send("orders", b"1")
        await asyncio.sleep(12)
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        fields = {"consumerGroup": "g", "clientId": mq.session.client_id}
        reply = await ask(kept, code, **fields, jstackEnable="true")
        jstack = decode_body(ConsumerRunningInfo, reply.body).jstack or ""
        lines = jstack.splitlines()
        heads = [line for line in lines if line.startswith("handler of g message=")]
        assert len(heads) == 2
        assert all("queue=orders@" in head and " age=1" in head for head in heads)
        assert heads == sorted(heads, key=lambda head: -float(head.split(" age=")[1].rstrip("s")))
        assert sum(line.endswith("deep_in_the_database") for line in lines) == 2
        assert any("test_operator_requests.py:" in line for line in lines)
        without = await ask(kept, code, **fields, jstackEnable="false")
        assert decode_body(ConsumerRunningInfo, without.body).jstack is None
        hangs.set()
        await asyncio.sleep(1)
        assert kept._joined()._handler.stacks() == ""

    simulate(scenario, 1)


def test_operators_see_how_fast_each_topic_is_consumed() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)

        async def handler(message: ReceivedMessage) -> bool:
            await asyncio.sleep(0.1)
            return message.body != b"bad" or message.reconsume_times > 0

        kept = await mq.subscribe("orders", group="g", handler=handler, start_from=StartFrom.FIRST)
        for n in range(40):
            await mq.send("orders", b"bad" if n % 4 == 0 else b"good")
            await asyncio.sleep(1)
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        fields = {"consumerGroup": "g", "clientId": mq.session.client_id}
        reply = await ask(kept, code, **fields, jstackEnable="false")
        rates = decode_body(ConsumerRunningInfo, reply.body).status_table
        orders, retries = rates["orders"], rates["%RETRY%g"]
        assert orders.consume_failed_msgs == 10
        assert 0.2 < orders.consume_failed_tps < 0.3
        assert 0.7 < orders.consume_ok_tps < 0.8
        assert 0.9 < orders.pull_tps < 1.1
        assert orders.pull_rt > 0
        assert 99 <= orders.consume_rt < 120
        assert retries.consume_failed_msgs == 0
        assert retries.consume_ok_tps > 0

        await asyncio.sleep(80)
        reply = await ask(kept, code, **fields, jstackEnable="false")
        later = decode_body(ConsumerRunningInfo, reply.body).status_table["orders"]
        assert (later.consume_ok_tps, later.pull_tps) == (0, 0)  # of a minute
        assert later.consume_failed_msgs == 10  # of an hour
        assert later.consume_rt > 99

    simulate(scenario, 1)


def test_who_iterates_is_counted_as_well() -> None:
    async def scenario(cluster: SimCluster) -> None:
        mq = await small(cluster)
        for _ in range(3):
            await mq.send("orders", b"1")
        seen = 0
        async with mq.consume("orders", group="g", start_from=StartFrom.FIRST) as stream:
            async for _ in stream:
                seen += 1
                await asyncio.sleep(2)
                if seen == 4:
                    break
            (kept,) = mq.session._consumers.values()
            assert isinstance(kept, PushConsumer)
            kept._sample()
            rates = kept._rates.status("orders")
            assert 1_900 < rates.consume_rt < 2_100
            assert rates.consume_ok_tps > 0

    simulate(scenario, 1)
