"""Lists of topics and groups, permissions, deletion that leaves nothing, clean-ups, counters."""

import json

import pytest

from roquette.broker.floor.item_stats import DAY, HOUR, MINUTE, Item, ItemStats
from roquette.broker.operation.consume_stats import StatsFeature
from roquette.broker.pulling.feature import PullFeature
from roquette.wire.bodies import BrokerStatsData, GroupForbidden, ProducerTableInfo
from roquette.wire.json_body import decode_body

TOPIC = {
    "defaultTopic": "TBW102",
    "readQueueNums": 2,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
}


async def config_of(client, topic):
    return json.loads((await client.call(351, {"topic": topic})).body)


def test_a_topic_is_made_with_attributes_and_the_same_again_changes_nothing(run_broker):
    async def scenario(case):
        client = await case.client()
        fields = TOPIC | {"topic": "T", "attributes": "+message.type=FIFO"}
        assert (await client.call(17, fields)).code == 0
        version = case.broker.tables.topics.data_version
        assert (await client.call(17, fields)).code == 0
        assert (await client.call(17, TOPIC | {"topic": "T"})).code == 0
        found = await config_of(client, "T")

        assert found["attributes"] == {"message.type": "FIFO"}
        assert case.broker.tables.topics.data_version == version

    run_broker(scenario)


@pytest.mark.parametrize(
    "fields, code, text",
    [
        ({"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
        ({"attributes": "+color=red"}, 1, "unsupported key: color"),
        ({"attributes": "color=red"}, 1, "add/alter attribute format is wrong: color"),
        ({"topic": "DefaultCluster"}, 29, "The topic[DefaultCluster] is conflict with system"),
        ({"topic": "broker-a"}, 29, "The topic[broker-a] is conflict with system topic."),
        (
            {"topicFilterType": "X"},
            1,
            "No enum constant org.apache.rocketmq.common.TopicFilterType",
        ),
    ],
)
def test_topics_that_are_refused(run_broker, fields, code, text):
    async def scenario(case):
        client = await case.client()
        reply = await client.call(17, TOPIC | {"topic": "T"} | fields)

        assert reply.code == code
        assert reply.remark.startswith(text)
        assert case.broker.tables.topics.find("T") is None

    run_broker(scenario)


def test_mixed_is_allowed_where_it_is_switched_on(run_broker):
    async def scenario(case):
        client = await case.client()
        fields = TOPIC | {"topic": "T", "attributes": "+message.type=MIXED"}
        assert (await client.call(17, fields)).code == 0

    run_broker(scenario, broker={"enable_mixed_message_type": True})


def test_lists_are_taken_whole_or_not_at_all(run_broker):
    async def scenario(case):
        client = await case.client()
        good = [{"topicName": "A"}, {"topicName": "B", "attributes": {"+message.type": "DELAY"}}]
        bad = [{"topicName": "C"}, {"topicName": "no/path"}]
        made = await client.call(18, {}, json.dumps({"topicConfigList": good}).encode())
        refused = await client.call(18, {}, json.dumps({"topicConfigList": bad}).encode())
        groups = [{"groupName": "g1"}, {"groupName": "g2", "retryMaxTimes": 3}]
        grouped = await client.call(225, {}, json.dumps({"groupConfigList": groups}).encode())
        wrong = [{"groupName": "g3"}, {"groupName": "g4", "attributes": {"+x": "y"}}]
        ungrouped = await client.call(225, {}, json.dumps({"groupConfigList": wrong}).encode())

        assert made.code == grouped.code == 0
        assert (await config_of(client, "B"))["attributes"] == {"message.type": "DELAY"}
        assert refused.code == 29 and case.broker.tables.topics.find("C") is None
        assert case.broker.tables.groups.known("g2").retry_max_times == 3
        assert (ungrouped.code, ungrouped.remark) == (1, "unsupported key: x")
        assert case.broker.tables.groups.known("g3") is None

    run_broker(scenario)


def test_a_group_is_forbidden_to_read_a_topic_and_allowed_again(run_broker):
    async def scenario(case):
        client = await case.client()
        asked = await client.call(353, {"group": "g", "topic": "T"})
        forbidden = await client.call(353, {"group": "g", "topic": "T", "readable": "false"})
        await client.call(353, {"group": "g", "topic": "U", "readable": "false"})
        allowed = await client.call(353, {"group": "g", "topic": "T", "readable": "true"})
        other = await client.call(353, {"group": "g", "topic": "U"})
        wrong = await client.call(353, {"group": "a/b", "topic": "U", "readable": "false"})

        found = [
            decode_body(GroupForbidden, reply.body).readable
            for reply in (asked, forbidden, allowed, other)
        ]
        assert found == [True, False, True, False]
        assert wrong.code == 29

    run_broker(scenario)


def test_a_deleted_topic_leaves_nothing_behind(run_broker, tmp_path):
    async def scenario(case):
        client, reader = await case.client(), await case.client()
        broker = case.broker
        await client.produce()
        broker.tables.groups.find("g", 0)
        await client.call(15, {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 1})
        await client.call(353, {"group": "g", "topic": "T", "readable": "false"})
        await client.call(222, {"topic": "T", "group": "g", "timestamp": -1, "isForce": "true"})
        for name in ("%RETRY%g_T", "%RETRY%g+T", "%RETRY%h_T"):
            broker.tables.topics.ensure(name, queues=1, perm=6, now_ms=0)
        await client.pull()
        await broker.feature(StatsFeature)._sample_items()
        assert broker.core.items.find("TOPIC_PUT_NUMS", "T") is not None
        held = reader.send(11, case.pull_ext("T", 0, 1, sysFlag=6, consumerGroup="h"))
        assert (await client.call(30, {"topic": "T", "queueId": 0})).code == 0
        assert len(broker.feature(PullFeature).holds) == 1
        assert (await client.call(215, {"topic": "T"})).code == 0
        answer = await reader.receive()

        assert (answer.opaque, answer.code) == (held, 17)
        assert {t.name for t in broker.tables.topics.all()} & {
            "T",
            "%RETRY%g_T",
            "%RETRY%g+T",
        } == set()
        assert broker.tables.topics.find("%RETRY%h_T") is not None
        assert broker.tables.offsets.keys() == [] and broker.tables.offsets.pending_resets == 0
        assert broker.tables.groups.to_wrapper().forbidden_table == {}
        assert broker.core.items.find("TOPIC_PUT_NUMS", "T") is None
        assert broker.core.stats.group_gets == {}
        assert "T" not in broker.store.topics()
        text = (tmp_path / "store/config/consumerOffset.json").read_text()
        assert "T@g" not in text
        await client.produce()
        assert case.ext(await client.call(30, {"topic": "T", "queueId": 0})) == {"offset": "1"}

    run_broker(scenario)


def test_a_groups_own_retry_topic_is_not_taken_for_one_of_pop(run_broker):
    async def scenario(case):
        client, broker = await case.client(), case.broker
        await client.produce()
        broker.tables.groups.find("g", 0)
        broker.tables.groups.find("g_T", 0)
        broker.tables.topics.ensure("%RETRY%g_T", queues=1, perm=6, now_ms=0)
        await client.call(15, {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 1})
        await client.call(215, {"topic": "T"})

        assert broker.tables.topics.find("%RETRY%g_T") is not None

    run_broker(scenario)


def test_a_deleted_group_keeps_its_offsets_unless_they_are_wiped(run_broker):
    async def scenario(case):
        client, broker = await case.client(), case.broker
        await client.produce()
        commit = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 1}
        for clean, left in (("false", 1), ("true", -1)):
            broker.tables.groups.find("g", 0)
            await client.call(15, commit)
            assert (await client.call(207, {"groupName": "g", "cleanOffset": clean})).code == 0
            assert broker.tables.groups.known("g") is None
            assert broker.tables.offsets.query("g", "T", 0) == left

    run_broker(scenario)


def test_clean_ups_and_lists(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce()
        beat = {"clientID": "p1", "producerDataSet": [{"groupName": "pg"}], "consumerDataSet": []}
        await client.call(34, {}, json.dumps(beat).encode())
        case.broker.tables.topics._topics.pop("T")
        codes = [(await client.call(code, {})).code for code in (306, 316, 329)]
        topics = json.loads((await client.call(305, {})).body)["topicList"]
        producers = decode_body(ProducerTableInfo, (await client.call(328, {})).body).data

        assert codes == [0, 0, 0]
        assert case.broker.store.topics() == []
        assert {"TBW102", "DefaultCluster", "broker-a", "SCHEDULE_TOPIC_XXXX"} <= set(topics)
        assert [p.client_id for p in producers["pg"]] == ["p1"]

    run_broker(scenario)


def test_counters_of_the_last_minute(run_broker):
    async def scenario(case):
        client = await case.client()
        for _ in range(6):
            await client.produce()
        await client.pull()
        await case.broker.feature(StatsFeature)._sample_items()
        puts = await client.call(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"})
        sizes = await client.call(315, {"statsName": "TOPIC_PUT_SIZE", "statsKey": "T"})
        gets = await client.call(315, {"statsName": "GROUP_GET_NUMS", "statsKey": "T@g"})
        queue = await client.call(315, {"statsName": "QUEUE_PUT_NUMS", "statsKey": "T@0"})
        whole = await client.call(
            315, {"statsName": "BROKER_PUT_NUMS", "statsKey": "DefaultCluster"}
        )
        none = await client.call(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "X"})

        minutes = [
            decode_body(BrokerStatsData, reply.body).stats_minute
            for reply in (puts, sizes, gets, queue, whole)
        ]
        assert [minute.sum for minute in minutes[2:]] == [6, 6, 6]
        assert (minutes[0].sum, minutes[0].avgpt) == (6, 1.0)
        assert minutes[1].avgpt == case.broker.store.max_physical_offset / 6
        assert minutes[2].avgpt == 6.0
        assert (none.code, none.remark) == (1, "The stats <TOPIC_PUT_NUMS> <X> not exist")

    run_broker(scenario)


def test_figures_are_those_of_each_span() -> None:
    item = Item()
    item.sample(MINUTE, 10_000)
    for step in range(2, 12):
        item.value += 100
        item.times += 1
        item.sample(MINUTE, step * 10_000)
    minute = item.figures(MINUTE)
    assert (minute.sum, minute.tps, minute.avgpt) == (600, 10.0, 100.0)
    assert (item.figures(HOUR).sum, item.figures(HOUR).tps) == (0, 0.0)


def test_an_idle_counter_is_counted_from_where_it_stopped() -> None:
    item = Item()
    item.value = 5
    for step in range(1, 20):
        item.sample(MINUTE, step * 10_000)
    assert item.figures(MINUTE).sum == 0
    item.value = 15
    item.sample(MINUTE, 1_000_000)
    assert (item.figures(MINUTE).sum, item.figures(MINUTE).tps) == (10, 1.0)


def test_counters_are_bounded_and_forgotten_after_an_idle_day() -> None:
    stats = ItemStats(capacity=2)
    for key in ("a", "b", "c"):
        stats.add("SNDBCK_PUT_NUMS", key)
    assert len(stats) == 2 and stats.find("SNDBCK_PUT_NUMS", "c") is None
    for step in range(30):
        assert list(stats.sample_steps(1 + step * 3_600_000))
        stats.add("SNDBCK_PUT_NUMS", "b")
    assert stats.find("SNDBCK_PUT_NUMS", "a") is None
    day = stats.find("SNDBCK_PUT_NUMS", "b")
    assert day is not None and day.stats_day is not None and day.stats_day.sum == 24
    assert DAY == 2


def test_messages_sent_back_are_counted_by_topic_and_group(run_broker):
    async def scenario(case):
        client = await case.client()
        sent = case.ext(await client.produce())
        case.broker.tables.groups.find("g", 0)
        back = {"offset": int(sent["msgId"][16:], 16), "group": "g", "delayLevel": 0}
        assert (await client.call(36, back)).code == 0
        await case.broker.feature(StatsFeature)._sample_items()
        counted = await client.call(315, {"statsName": "SNDBCK_PUT_NUMS", "statsKey": "T@g"})

        assert decode_body(BrokerStatsData, counted.body).stats_minute.sum == 1

    run_broker(scenario)
