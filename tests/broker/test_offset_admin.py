"""Reset, clone, correction of offsets, and what else operators ask about progress."""

import json

import pytest

from roquette.broker.floor.tables.offsets import LONG_MAX, OffsetTable
from roquette.broker.pulling.feature import PullFeature
from roquette.wire.bodies import (
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    ConsumeStatsList,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    ResetOffsetBody,
)
from roquette.wire.json_body import decode_body

GROUP = {"consumerGroup": "g", "topic": "T", "queueId": 0}
RESET = {"topic": "T", "group": "g", "timestamp": 0, "isForce": "true"}


async def filled(case, count=3):
    client = await case.client()
    for _ in range(count):
        assert (await client.produce()).code == 0
    case.broker.tables.groups.find("g", 0)
    return client


def offsets_of(reply):
    table = decode_body(ResetOffsetBody, reply.body).offset_table
    return {queue.queue_id: offset for queue, offset in table.items()}


def test_a_reset_meets_the_next_pull_and_commits_before_it_change_nothing(run_broker):
    async def scenario(case):
        client = await filled(case)
        await client.call(15, GROUP | {"commitOffset": 3})
        reset = await client.call(222, RESET | {"queueId": 0, "offset": 1})
        commit = await client.call(15, GROUP | {"commitOffset": 3})
        asked = await client.call(14, GROUP)
        first = await client.pull(offset=3, sysFlag=5, commitOffset=3)
        after = await client.call(14, GROUP)
        second = await client.pull(offset=1)
        late = await client.call(15, GROUP | {"commitOffset": 3})

        assert (reset.code, offsets_of(reset)) == (0, {0: 1})
        assert (commit.code, commit.remark) == (0, "Offset has been previously reset")
        assert case.ext(asked) == {"offset": "1"}
        assert (first.code, first.remark) == (21, "OFFSET_RESET")
        answered = case.ext(first)
        assert answered["nextBeginOffset"] == "1"
        assert (answered["minOffset"], answered["maxOffset"]) == ("0", "3")
        assert case.ext(after) == {"offset": "1"}
        assert second.code == 0
        assert (late.code, late.remark) == (0, None)
        assert case.broker.tables.offsets.pending_resets == 0

    run_broker(scenario)


def test_a_reset_wakes_the_groups_held_pull_and_no_other(run_broker):
    async def scenario(case):
        client, other, admin = await filled(case), await case.client(), await case.client()
        held = client.send(11, case.pull_ext("T", 0, 3, sysFlag=6))
        other.send(11, case.pull_ext("T", 0, 3, sysFlag=6, consumerGroup="h"))
        began = case.loop.time()
        await admin.call(15, GROUP | {"commitOffset": 3})
        await admin.call(222, RESET | {"timestamp": 1})
        answer = await client.receive()

        assert (answer.opaque, answer.code) == (held, 21)
        assert case.loop.time() - began < 1
        assert len(case.broker.feature(PullFeature).holds) == 1

    run_broker(scenario)


def test_a_reset_by_time_covers_every_queue_and_a_negative_time_is_the_end(run_broker):
    async def scenario(case):
        client = await filled(case)
        end = await client.call(222, RESET | {"timestamp": -1})
        begin = await client.call(222, RESET | {"timestamp": 0})

        assert offsets_of(end) == {0: 3, 1: 0, 2: 0, 3: 0}
        assert offsets_of(begin) == {0: 0, 1: 0, 2: 0, 3: 0}

    run_broker(scenario)


@pytest.mark.parametrize(
    "fields, code, text",
    [
        ({"topic": "X"}, 17, "Topic X does not exist"),
        ({"group": "nobody"}, 26, "Group nobody does not exist"),
        ({"queueId": 0, "offset": 5}, 1, "Target offset 5 not in consume queue range [0-3]"),
        ({"queueId": 70_000}, 1, "QueueId is 70000, topic is T"),
    ],
)
def test_resets_that_are_refused_change_nothing(run_broker, fields, code, text):
    async def scenario(case):
        client = await filled(case)
        reply = await client.call(222, RESET | fields)

        assert (reply.code, reply.remark) == (code, text)
        assert case.broker.tables.offsets.pending_resets == 0

    run_broker(scenario)


def test_a_reset_nobody_took_survives_a_restart(run_broker):
    async def first(case):
        client = await filled(case)
        await client.call(15, GROUP | {"commitOffset": 3})
        await client.call(222, RESET | {"queueId": 0, "offset": 2})

    async def second(case):
        client = await case.client()
        ignored = await client.call(15, GROUP | {"commitOffset": 3})
        assert ignored.remark == "Offset has been previously reset"
        pull = await client.pull(offset=3)
        assert (pull.code, case.ext(pull)["nextBeginOffset"]) == (21, "2")

    run_broker(first)
    run_broker(second)


def heartbeat(group="g", client_id="c1", topic="T", **more):
    data = {
        "clientID": client_id,
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1}],
            }
        ],
    }
    return json.dumps(data | more).encode()


def test_with_the_old_way_the_clients_are_told(run_broker):
    async def scenario(case):
        member, admin = await filled(case), await case.client()
        unknown = await admin.call(222, RESET)
        for queue_id in range(4):
            await admin.call(15, GROUP | {"queueId": queue_id, "commitOffset": 2})
        offline = await admin.call(222, RESET)
        await member.call(34, {}, heartbeat())
        told = await admin.call(222, RESET)
        while (push := await member.receive()).code != 220:
            assert push.code == 40

        assert (unknown.code, unknown.remark) == (1, "THe consumer group <g> not exist")
        assert (offline.code, offline.remark) == (
            206,
            "Consumer not online, so can not reset offset, Group: g Topic: T Timestamp: 0",
        )
        assert offsets_of(told) == {0: 0, 1: 0, 2: 0, 3: 0}
        assert push.code == 220
        assert case.ext(push)["timestamp"] == "0"
        assert offsets_of(push) == offsets_of(told)
        assert case.broker.tables.offsets.query("g", "T", 0) == 2

    run_broker(scenario, broker={"use_server_side_reset_offset": False})


def test_clone_gives_the_target_the_sources_offsets(run_broker):
    async def scenario(case):
        client = await filled(case)
        await client.call(15, GROUP | {"commitOffset": 2})
        one = await client.call(314, {"srcGroup": "g", "destGroup": "h", "topic": "T"})
        every = await client.call(314, {"srcGroup": "g", "destGroup": "i", "offline": "true"})
        none = await client.call(314, {"srcGroup": "g", "destGroup": "j", "topic": "X"})

        assert one.code == every.code == none.code == 0
        table = case.broker.tables.offsets
        assert [table.query(name, "T", 0) for name in "hij"] == [2, 2, -1]

    run_broker(scenario)


def test_clone_leaves_out_what_the_source_does_not_subscribe(run_broker):
    async def scenario(case):
        client = await filled(case)
        await client.call(15, GROUP | {"commitOffset": 2})
        await client.call(34, {}, heartbeat(topic="other"))
        await client.call(314, {"srcGroup": "g", "destGroup": "h"})
        await client.call(314, {"srcGroup": "g", "destGroup": "i", "offline": "true"})

        table = case.broker.tables.offsets
        assert [table.query(name, "T", 0) for name in "hi"] == [-1, 2]

    run_broker(scenario)


def test_correction_is_the_slowest_group_and_nothing_where_the_compared_one_is_slower():
    table = OffsetTable(0)
    table.commit("a", "T", 0, 5)
    table.commit("a", "T", 1, 5)
    table.commit("b", "T", 0, 3)
    table.commit("c", "T", 0, 1)
    table.commit("d", "T", 1, 2)

    assert table.least_of_groups("T", [], lambda q: 2) == {0: 3, 1: 2}
    assert table.least_of_groups("T", ["b", "c", "d"], lambda q: 0) == {0: 5, 1: 5}


def test_correction_by_request(run_broker):
    async def scenario(case):
        client = await filled(case)
        await client.call(15, GROUP | {"commitOffset": 1})
        await client.call(15, GROUP | {"consumerGroup": "h", "commitOffset": 3})
        case.broker.tables.groups.find("h", 0)
        await client.call(15, GROUP | {"consumerGroup": "h", "commitOffset": 3})
        behind = await client.call(308, {"compareGroup": "h", "topic": "T"})
        slowest = await client.call(308, {"compareGroup": "g", "topic": "T", "filterGroups": "g"})

        assert json.loads(behind.body) == {"correctionOffsets": {"0": 1}}
        assert json.loads(slowest.body) == {"correctionOffsets": {"0": LONG_MAX}}
        assert case.broker.tables.offsets.query("g", "T", 0) == 1

    run_broker(scenario)


def test_everything_for_a_replica(run_broker):
    async def scenario(case):
        client = await filled(case)
        await client.call(15, GROUP | {"commitOffset": 1})
        await client.call(222, RESET | {"queueId": 0, "offset": 2})
        offsets = await client.call(43, {})
        delays = await client.call(45, {})

        wrapper = decode_body(ConsumerOffsetSerializeWrapper, offsets.body)
        assert wrapper.offset_table == {"T@g": {0: 2}}
        assert b"reset" not in offsets.body
        assert b'"T@g":{0:2}' in offsets.body
        assert delays.code == 0 and b'"offsetTable":' in delays.body

    run_broker(scenario)


def test_backward_commits_are_counted_and_refused_on_the_groups_wish(run_broker):
    async def scenario(case):
        client = await filled(case)
        await client.call(15, GROUP | {"commitOffset": 3})
        accepted = await client.call(15, GROUP | {"commitOffset": 2})
        wish = {"groupName": "g", "attributes": {"+roquette.commit.backward": "REFUSE"}}
        made = await client.call(200, {}, json.dumps(wish).encode())
        refused = await client.call(15, GROUP | {"commitOffset": 1})
        await client.pull(offset=3, sysFlag=5, commitOffset=1)
        asked = await client.call(14, GROUP)
        reset = await client.call(222, RESET | {"queueId": 0, "offset": 0})
        table = json.loads((await client.call(28, {})).body)["table"]

        assert accepted.code == made.code == reset.code == 0
        assert refused.code == 29
        assert "offset 1 is behind the committed one" in refused.remark
        assert "stays at 2" in refused.remark
        assert case.ext(asked) == {"offset": "2"}
        assert (table["offsetRegressions"], table["offsetRegressionsRefused"]) == ("1", "2")
        assert case.broker.tables.offsets.query("g", "T", 0) == 0

    run_broker(scenario)


def test_consume_stats_of_a_group_and_of_all(run_broker):
    async def scenario(case):
        client = await filled(case)
        await client.call(15, GROUP | {"commitOffset": 2})
        await client.pull(offset=2)
        one = await client.call(208, {"consumerGroup": "g"})
        listed = await client.call(208, {"consumerGroup": "nobody", "topicList": "T;X"})
        every = await client.call(317, {"isOrder": "false"})
        ordered = await client.call(317, {"isOrder": "true"})

        table = decode_body(ConsumeStats, one.body).offset_table
        at = {queue.queue_id: w for queue, w in table.items()}[0]
        assert (at.broker_offset, at.consumer_offset, at.pull_offset) == (3, 2, 2)
        assert at.last_timestamp > 0
        assert len(table) == 4
        assert len(decode_body(ConsumeStats, listed.body).offset_table) == 4
        whole = decode_body(ConsumeStatsList, every.body)
        (rows,) = [row["g"] for row in whole.consume_stats_list if "g" in row]
        assert len(rows) == 1 and whole.total_diff == 1
        assert whole.broker_addr == "10.0.0.1:10911"
        none = decode_body(ConsumeStatsList, ordered.body)
        assert {"g": []} in [dict(row) for row in none.consume_stats_list]

    run_broker(scenario)


def test_an_online_groups_statistics_show_what_it_subscribes(run_broker):
    async def scenario(case):
        client = await filled(case)
        await client.call(15, GROUP | {"commitOffset": 2})
        await client.call(34, {}, heartbeat(topic="other"))
        unsubscribed = await client.call(208, {"consumerGroup": "g", "topic": "T"})
        listed = await client.call(208, {"consumerGroup": "g", "topicList": "T"})

        assert not decode_body(ConsumeStats, unsubscribed.body).offset_table
        assert len(decode_body(ConsumeStats, listed.body).offset_table) == 4

    run_broker(scenario)


def test_time_spans_and_units_of_a_queue(run_broker):
    async def scenario(case):
        client = await client_with_times(case)
        await client.call(15, GROUP | {"commitOffset": 2})
        spans = await client.call(303, {"topic": "T", "group": "g"})
        units = await client.call(321, {"topic": "T", "queueId": 0, "index": 1, "count": 5})
        named = {"topic": "T", "queueId": 0, "index": 0, "count": 1, "consumerGroup": "g"}
        offline = await client.call(321, named)
        beyond = await client.call(321, named | {"index": 3})
        missing = await client.call(321, named | {"queueId": 9})
        unknown = await client.call(303, {"topic": "X", "group": "g"})

        first = decode_body(QueryConsumeTimeSpanBody, spans.body).consume_time_span_set[0]
        assert 2000 <= first.max_time_stamp - first.min_time_stamp < 2100
        assert 1000 <= first.consume_time_stamp - first.min_time_stamp < 1100
        assert first.delay_time >= 0
        body = decode_body(QueryConsumeQueueResponseBody, units.body)
        assert (body.min_queue_index, body.max_queue_index) == (0, 3)
        assert [unit.physic_size for unit in body.queue_data or []] == [
            (body.queue_data or [])[0].physic_size
        ] * 2
        text = decode_body(QueryConsumeQueueResponseBody, offline.body).filter_data
        assert text == "g@T is not online!"
        assert (beyond.code, beyond.remark) == (0, "Index 3 of 0@T is not exist!")
        assert (missing.code, missing.remark) == (1, "9@T is not exist!")
        assert (unknown.code, unknown.remark) == (17, "topic[X] not exist")

    async def client_with_times(case):
        client = await case.client()
        for _ in range(3):
            await client.produce()
            case.loop.stall(1.0)
        case.broker.tables.groups.find("g", 0)
        return client

    run_broker(scenario)


def test_slow_readers_lose_their_right_only_where_that_is_switched_on(run_broker):
    async def scenario(case):
        client = await filled(case, 4)
        await client.pull(offset=0)
        case.broker.feature(PullFeature)._disable_slow_readers()
        assert case.broker.tables.groups.known("g").consume_enable
        for key, value in (
            ("disableConsumeIfConsumerReadSlowly", "true"),
            ("consumerFallbehindThreshold", "100"),
        ):
            assert (await client.call(25, {}, f"{key}={value}".encode())).code == 0
        case.broker.feature(PullFeature)._disable_slow_readers()
        refused = await client.pull(offset=0)

        assert not case.broker.tables.groups.known("g").consume_enable
        assert (refused.code, refused.remark) == (16, "subscription group no permission, g")
        assert case.ext(refused) == {"forbiddenType": "2"}

    run_broker(scenario)
