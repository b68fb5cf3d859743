"""Pulls, as frames: found, held, woken, expired, moved offsets, and each refusal."""

import asyncio

import pytest

from roquette.broker.pulling.feature import PullFeature
from roquette.message.record import decode_records
from roquette.store.format.config import FlushDiskType

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


def test_a_pull_returns_the_records_as_stored(run_broker):
    async def scenario(case):
        client = await case.client()
        for n in range(3):
            await client.produce(body=b"m%d" % n)
        reply = await client.pull(offset=1)

        assert (reply.code, reply.remark) == (0, "FOUND")
        assert [r.body for r in decode_records(reply.body, True)] == [b"m1", b"m2"]
        assert case.ext(reply) == {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": "3",
            "minOffset": "0",
            "maxOffset": "3",
            "offsetDelta": "0",
            "topicSysFlag": "0",
            "groupSysFlag": "0",
        }

    run_broker(scenario)


def test_cold_records_are_read_beside_the_loop_and_limited_to_8(run_broker):
    async def scenario(case):
        client = await case.client()
        for n in range(10):
            await client.produce(body=b"m%d" % n)
        reply = await client.pull()

        assert reply.code == 0
        assert [r.body for r in decode_records(reply.body)] == [b"m%d" % n for n in range(8)]

    run_broker(scenario, store={"memory_ratio": 0})


def test_tags_filter_by_hash(run_broker):
    async def scenario(case):
        client = await case.client()
        for tag in ("A", "B", "C", "A"):
            await client.produce(body=tag.encode(), properties={"TAGS": tag, "UNIQ_KEY": "u"})
        some = await client.pull(subscription="A || C")
        none = await client.pull(subscription="X")

        assert [r.body for r in decode_records(some.body)] == [b"A", b"C", b"A"]
        assert (none.code, none.remark) == (20, "NO_MATCHED_MESSAGE")
        assert case.ext(none)["nextBeginOffset"] == "4"

    run_broker(scenario)


@pytest.mark.parametrize(
    "queue_id, offset, code, status, following",
    [
        (0, 2, 19, "OFFSET_OVERFLOW_ONE", "2"),
        (0, 9, 21, "OFFSET_OVERFLOW_BADLY", "2"),
        (0, -1, 21, "OFFSET_TOO_SMALL", "0"),
        (1, 0, 19, "NO_MATCHED_LOGIC_QUEUE", "0"),
        (1, 5, 21, "NO_MATCHED_LOGIC_QUEUE", "0"),
    ],
)
def test_offsets_beside_the_queue(run_broker, queue_id, offset, code, status, following):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        await client.produce()
        reply = await client.pull(queue_id=queue_id, offset=offset)

        assert (reply.code, reply.remark) == (code, status)
        assert case.ext(reply)["nextBeginOffset"] == following

    run_broker(scenario)


def test_a_held_pull_is_woken_by_a_matching_message_only(run_broker):
    async def scenario(case):
        client = await case.client()
        other = await case.client()
        await other.produce()
        started = case.loop.time()
        waiting = asyncio.ensure_future(client.pull(offset=1, sysFlag=6, subscription="A"))
        await asyncio.sleep(1)
        assert len(case.broker.feature(PullFeature).holds) == 1
        await other.produce(properties={"TAGS": "B", "UNIQ_KEY": "u"})
        await asyncio.sleep(1)
        assert not waiting.done()
        await other.produce(properties={"TAGS": "A", "UNIQ_KEY": "u"})
        reply = await waiting

        assert reply.code == 0
        assert [r.queue_offset for r in decode_records(reply.body)] == [2]
        assert case.loop.time() - started < 2.1
        assert len(case.broker.feature(PullFeature).holds) == 0

    run_broker(scenario)


def test_under_sync_flush_a_held_pull_is_woken_after_the_sync(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce(body=b"first")
        reader = await case.client()
        waiting = asyncio.ensure_future(reader.pull(offset=1, sysFlag=6, subscription="*"))
        await asyncio.sleep(0.1)
        sent = await client.produce(body=b"second", properties={"WAIT": "false", "UNIQ_KEY": "u"})
        reply = await waiting

        assert (sent.code, reply.code) == (0, 0)
        assert [r.body for r in decode_records(reply.body)] == [b"second"]
        assert case.broker.store.synced_offset == case.broker.store.max_physical_offset

    run_broker(scenario, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH})


def test_a_held_pull_expires_when_it_said(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        started = case.loop.time()
        reply = await client.pull(offset=1, sysFlag=6, suspendTimeoutMillis=4000)

        assert reply.code == 19
        assert 3.9 < case.loop.time() - started < 4.3

    run_broker(scenario)


def test_a_reader_whose_tags_match_nothing_is_sent_on_within_5_s(run_broker):
    async def scenario(case):
        client = await case.client()
        other = await case.client()
        await other.produce()
        waiting = asyncio.ensure_future(client.pull(offset=1, sysFlag=6, subscription="A"))
        await asyncio.sleep(0.1)
        await other.produce()
        reply = await waiting

        assert reply.code == 20
        assert case.ext(reply)["nextBeginOffset"] == "2"

    run_broker(scenario)


def test_without_long_polling_a_pull_is_held_a_second(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        started = case.loop.time()
        await client.pull(offset=1, sysFlag=6)

        assert 0.9 < case.loop.time() - started < 1.3

    run_broker(scenario, broker={"long_polling_enable": False})


def test_a_full_hold_table_answers_at_once(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        reply = await client.pull(offset=1, sysFlag=6)

        assert reply.code == 19

    run_broker(scenario, broker={"max_held_pulls": 0})


def test_a_pull_carries_a_commit(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        await client.pull(sysFlag=5, commitOffset=1)
        reply = await client.call(14, {"consumerGroup": "g", "topic": "T", "queueId": 0})

        assert case.ext(reply) == {"offset": "1"}
        assert case.broker.tables.offsets.query_pull("g", "T", 0) == 0

    run_broker(scenario)


def test_lite_pull_is_served_until_it_is_switched_off(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        served = await client.call(361, case.pull_ext())
        case.broker.live.update({"litePullMessageEnable": "false"})
        refused = await client.call(361, case.pull_ext())

        assert served.code == 0
        assert (refused.code, refused.remark) == (
            16,
            "the broker[10.0.0.1] for lite pull consumer is forbidden",
        )

    run_broker(scenario)


@pytest.mark.parametrize(
    "fields, code, text, kind",
    [
        ({"topic": "X"}, 17, "topic[X] not exist, apply first please! " + FAQ, None),
        ({"queueId": 4}, 29, "queueId[4] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[", None),
        ({"queueId": -1}, 29, "queueId[-1] is illegal", None),
        ({"consumerGroup": "a b"}, 26, "subscription group [a b] does not exist, " + FAQ, None),
        ({"consumerGroup": "off"}, 16, "subscription group no permission, off", "2"),
        ({"topic": "W"}, 16, "the topic[W] pulling message is forbidden", "3"),
        ({"sysFlag": 0}, 24, "the consumer's group info not exist" + FAQ, None),
        ({"subscription": "||"}, 23, "parse the consumer's subscription failed", None),
        ({"expressionType": "SQL92", "subscription": "a >"}, 23, "parse the consumer's subscription failed", None),
        ({"expressionType": "SQL92", "subscription": ""}, 23, "parse the consumer's subscription failed", None),
        ({"expressionType": "XPATH", "subscription": "a"}, 23, "parse the consumer's subscription failed", None),
    ],
)  # fmt: skip
def test_refusals(run_broker, fields, code, text, kind):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        await client.produce("W")
        config = case.broker.tables.topics.find("W").to_config()
        config.perm = 2
        case.broker.tables.topics.put(config, 0)
        group = case.broker.tables.groups.find("off", 0)
        group.consume_enable = False
        reply = await client.call(11, case.pull_ext() | fields)

        assert reply.code == code
        assert text in reply.remark
        assert case.ext(reply).get("forbiddenType") == kind

    run_broker(scenario)


def test_a_broker_that_may_not_be_read_refuses(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        case.broker.live.update({"brokerPermission": "2"})
        reply = await client.pull()

        assert (reply.code, reply.remark) == (
            16,
            "the broker[10.0.0.1] pulling message is forbidden",
        )

    run_broker(scenario)


def heartbeat(topic="T", expression="*", version=5, model="CLUSTERING"):
    from roquette.wire.json_body import encode_body

    codes = [65] if expression == "A" else []
    return encode_body(
        {
            "clientID": "c1",
            "producerDataSet": [],
            "consumerDataSet": [
                {
                    "groupName": "g",
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": model,
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "unitMode": False,
                    "subscriptionDataSet": [
                        {
                            "topic": topic,
                            "subString": expression,
                            "tagsSet": [expression],
                            "codeSet": codes,
                            "subVersion": version,
                            "expressionType": "TAG",
                        }
                    ],
                }
            ],
        }
    )


def test_without_the_subscription_bit_the_heartbeat_counts(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce(properties={"TAGS": "A", "UNIQ_KEY": "u"})
        await client.produce(properties={"TAGS": "B", "UNIQ_KEY": "u"})
        await client.call(34, {}, heartbeat(expression="A"))
        found = await client.pull(sysFlag=0, subVersion=5)
        newer = await client.pull(sysFlag=0, subVersion=6)
        other = await client.pull("BenchmarkTest", sysFlag=0)

        assert [r.queue_offset for r in decode_records(found.body)] == [0]
        assert (newer.code, newer.remark) == (25, "the consumer's subscription not latest")
        assert (other.code, other.remark) == (24, "the consumer's subscription not exist" + FAQ)

    run_broker(scenario)


def test_broadcasting_may_be_forbidden_to_a_group(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        await client.call(34, {}, heartbeat(model="BROADCASTING"))
        case.broker.tables.groups.find("g", 0).consume_broadcast_enable = False
        reply = await client.pull(sysFlag=0)

        assert (reply.code, case.ext(reply)["forbiddenType"]) == (16, "4")
        assert reply.remark == "the consumer group[g] can not consume by broadcast way"

    run_broker(scenario)


def test_a_topic_may_be_forbidden_to_a_group(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        await client.call(34, {}, heartbeat())
        case.broker.tables.groups.set_forbidden("g", "T", 4, 0)
        reply = await client.pull(sysFlag=0)

        assert (reply.code, case.ext(reply)["forbiddenType"]) == (16, "5")
        assert reply.remark == "the consumer group[g] is forbidden for topic[T]"

    run_broker(scenario)


def test_stopping_answers_held_pulls(run_broker):
    replies = []

    async def scenario(case):
        client = await case.client()
        await client.produce()
        replies.append(asyncio.ensure_future(client.pull(offset=1, sysFlag=6)))
        await asyncio.sleep(1)

    run_broker(scenario, seed=2)  # with others the end may come before the answer

    assert replies[0].result().code == 19
