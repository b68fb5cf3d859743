"""What consumers return: retries with growing delays, then the dead-letter topic; and the delay levels."""

import asyncio

import pytest

from roquette.broker.timers.feature import DelayFeature
from roquette.message.properties import decode_properties
from roquette.message.record import decode_records

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


async def records(client, topic, queue_id=0, offset=0):
    return decode_records((await client.pull(topic, queue_id, offset)).body)


def back_ext(offset, level=0, **more):
    return {"offset": offset, "group": "g", "delayLevel": level, "originTopic": "T"} | more


def test_a_returned_message_comes_back_on_the_retry_topic_after_10_s(run_broker):
    async def scenario(case):
        client = await case.client()
        sent = await client.produce(properties={"UNIQ_KEY": "u", "TAGS": "A"})
        [record] = await records(client, "T")
        started = case.loop.time()
        reply = await client.call(36, back_ext(record.physical_offset))
        waiting = await client.pull("%RETRY%g", sysFlag=6)
        [again] = decode_records(waiting.body)
        named = decode_properties(again.properties)

        assert reply.code == 0
        assert 10 <= case.loop.time() - started < 11
        assert again.topic == "%RETRY%g"
        assert again.reconsume_times == 1
        assert again.body == record.body
        assert again.born_timestamp_ms == record.born_timestamp_ms
        assert named["RETRY_TOPIC"] == "T"
        assert named["ORIGIN_MESSAGE_ID"] == case.ext(sent)["msgId"]
        assert named["REAL_TOPIC"] == "%RETRY%g"
        assert "DELAY" not in named
        assert named["WAIT"] == "false"

    run_broker(scenario)


def test_the_second_return_waits_30_s_and_keeps_the_first_id(run_broker):
    async def scenario(case):
        client = await case.client()
        sent = await client.produce()
        [record] = await records(client, "T")
        await client.call(36, back_ext(record.physical_offset))
        [again] = decode_records((await client.pull("%RETRY%g", sysFlag=6)).body)
        started = case.loop.time()
        await client.call(36, back_ext(again.physical_offset))
        reply = await client.pull("%RETRY%g", offset=1, sysFlag=6, suspendTimeoutMillis=60_000)
        [third] = decode_records(reply.body)

        assert 30 <= case.loop.time() - started < 31
        assert third.reconsume_times == 2
        assert decode_properties(third.properties)["ORIGIN_MESSAGE_ID"] == case.ext(sent)["msgId"]

    run_broker(scenario)


@pytest.mark.parametrize("fields", [{"level": -1}, {"maxReconsumeTimes": 0}])
def test_without_tries_left_it_is_a_dead_letter_at_once(run_broker, fields):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        [record] = await records(client, "T")
        await client.call(36, back_ext(record.physical_offset, **fields))
        [dead] = await records(client, "%DLQ%g")
        topic = case.broker.tables.topics.find("%DLQ%g")

        assert dead.body == record.body
        assert (topic.read_queues, topic.write_queues, topic.perm) == (1, 1, 6)

    run_broker(scenario)


def test_refusals(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        nowhere = await client.call(36, back_ext(10**9))
        case.broker.live.update({"autoCreateSubscriptionGroup": "false"})
        unknown = await client.call(36, back_ext(0, group="x"))
        case.broker.live.update({"brokerPermission": "4"})
        closed = await client.call(36, back_ext(0))

        assert (nowhere.code, nowhere.remark) == (1, "look message by offset failed, 1000000000")
        assert (unknown.code, unknown.remark) == (26, f"subscription group not exist, x {FAQ}")
        assert (closed.code, closed.remark) == (
            16,
            "the broker[10.0.0.1] sending message is forbidden",
        )

    run_broker(scenario)


def test_a_group_without_retry_queues_drops_what_it_returns(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        case.broker.tables.groups.find("g", 0).retry_queue_nums = 0
        reply = await client.call(36, back_ext(0))

        assert reply.code == 0
        assert case.broker.tables.topics.find("%RETRY%g") is None

    run_broker(scenario)


def test_delay_levels_deliver_on_time_and_in_order(run_broker):
    async def scenario(case):
        client = await case.client()
        reader = await case.client()
        await client.produce()
        started = case.loop.time()
        for level in (2, 1, 1, 99):
            reply = await client.produce(
                body=b"level %d" % level, properties={"DELAY": str(level), "UNIQ_KEY": "u"}
            )
            assert reply.code == 0
        first = await reader.pull(offset=1, sysFlag=6)
        first_at = case.loop.time() - started
        await asyncio.sleep(6)
        found = await records(reader, "T", 0, 1)

        assert 1 <= first_at < 1.5
        assert first.code == 0
        assert [r.body for r in found] == [b"level 1", b"level 1", b"level 2"]
        assert case.broker.feature(DelayFeature).levels.progress() == {
            1: (2, 2),
            2: (1, 1),
            18: (0, 1),
        }

    run_broker(scenario)


def test_delay_progress_survives_a_restart(run_broker):
    async def first(case):
        client = await case.client()
        await client.produce(body=b"done", properties={"DELAY": "1", "UNIQ_KEY": "u"})
        await client.produce(body=b"waits", properties={"DELAY": "3", "UNIQ_KEY": "u"})
        await asyncio.sleep(3)

    async def second(case):
        client = await case.client()
        assert [r.body for r in await records(client, "T")] == [b"done"]
        await asyncio.sleep(11)
        assert [r.body for r in await records(client, "T")] == [b"done", b"waits"]

    run_broker(first)
    run_broker(second)
