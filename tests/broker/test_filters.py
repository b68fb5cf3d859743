"""SQL92 subscriptions in the broker: pulls that bring a selector, heartbeats that register one, held pulls."""

import asyncio
import json

import pytest

from roquette.broker.floor.tables.filters import (
    SQL_CHARACTERS,
    SQL_EXPRESSIONS,
    RetryPredicate,
    SubscriptionFilters,
)
from roquette.broker.pulling.feature import PullFeature
from roquette.errors import ExpressionError
from roquette.message.record import decode_records
from roquette.store.queue_read import MATCH_ALL

NO_SQL = "The broker does not support consumer to filter message by SQL92"
SQL = {"expressionType": "SQL92"}


async def fill(client, count=10, topic="T", **more):
    """Messages 0, 1, ... of queue 0, each with its number as property n."""
    for number in range(count):
        named = {"n": str(number), "UNIQ_KEY": f"u{number}"}
        await client.produce(topic, body=b"%d" % number, properties=named, **more)


def bodies(reply):
    return [record.body for record in decode_records(reply.body)]


def heartbeat(expression, *, kind="SQL92", version=1, topic="T", class_filter=False):
    subscription = {
        "topic": topic, "subString": expression, "tagsSet": [], "codeSet": [],
        "subVersion": version, "expressionType": kind, "classFilterMode": class_filter,
    }  # fmt: skip
    group = {
        "groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription],
    }  # fmt: skip
    return json.dumps({"clientID": "c1", "consumerDataSet": [group]}).encode()


def test_a_pull_brings_its_selector(run_broker):
    async def scenario(case):
        client = await case.client()
        await fill(client)
        reply = await client.pull(subscription="n BETWEEN 3 AND 5 OR n = '9'", **SQL)

        assert reply.code == 0
        assert bodies(reply) == [b"3", b"4", b"5", b"9"]
        assert case.ext(reply)["nextBeginOffset"] == "10"

    run_broker(scenario)


def test_at_most_the_asked_number_comes_and_the_next_pull_goes_on_behind_it(run_broker):
    async def scenario(case):
        client = await case.client()
        await fill(client)
        first = await client.pull(subscription="n > 2", maxMsgNums=2, **SQL)
        offset = int(case.ext(first)["nextBeginOffset"])
        second = await client.pull(offset=offset, subscription="n > 2", maxMsgNums=2, **SQL)

        assert bodies(first) == [b"3", b"4"]
        assert offset == 5
        assert bodies(second) == [b"5", b"6"]

    run_broker(scenario)


def test_nothing_matching_sends_the_reader_on(run_broker):
    async def scenario(case):
        client = await case.client()
        await fill(client)
        reply = await client.pull(subscription="n > 100", **SQL)

        assert (reply.code, reply.remark) == (20, "NO_MATCHED_MESSAGE")
        assert case.ext(reply)["nextBeginOffset"] == "10"

    run_broker(scenario)


def test_a_property_that_is_no_number_is_not_wanted_and_breaks_nothing(run_broker):
    async def scenario(case):
        client = await case.client()
        for value in ("5", "five", "7"):
            await client.produce(properties={"n": value}, body=value.encode())
        reply = await client.pull(subscription="n > 1", **SQL)

        assert bodies(reply) == [b"5", b"7"]

    run_broker(scenario)


def test_a_heartbeat_registers_the_selector_for_pulls_without_one(run_broker):
    async def scenario(case):
        client = await case.client()
        await fill(client)
        await client.call(34, {}, heartbeat("n IN ('1', '2')"))
        reply = await client.pull(sysFlag=0, subscription="", subVersion=1, **SQL)
        late = await client.pull(sysFlag=0, subVersion=2, **SQL)
        await client.call(34, {}, heartbeat("n = 7", version=2))
        changed = await client.pull(sysFlag=0, subVersion=2, **SQL)

        assert bodies(reply) == [b"1", b"2"]
        assert (late.code, late.remark) == (25, "the consumer's subscription not latest")
        assert bodies(changed) == [b"7"]

    run_broker(scenario)


def test_a_heartbeat_with_a_wrong_selector_is_taken_and_its_pulls_are_told(run_broker):
    async def scenario(case):
        client = await case.client()
        await fill(client, 2)
        beat = await client.call(34, {}, heartbeat("n >"))
        reply = await client.pull(sysFlag=0, subVersion=1, **SQL)
        members = await client.call(38, {"consumerGroup": "g"})

        assert beat.code == 0
        assert members.code == 0
        assert (reply.code, reply.remark) == (
            27, "The broker's consumer filter data is not exist!Your expression may be wrong!",
        )  # fmt: skip

    run_broker(scenario)


def test_a_class_filter_lets_everything_through(run_broker):
    async def scenario(case):
        client = await case.client()
        await fill(client, 3)
        await client.call(34, {}, heartbeat("org.example.Filter", kind="TAG", class_filter=True))
        registered = await client.pull(sysFlag=0, subVersion=1)
        flagged = await client.pull(sysFlag=4 | 8, subscription="nothing")

        assert len(bodies(registered)) == 3
        assert len(bodies(flagged)) == 3

    run_broker(scenario)


def test_the_property_filter_can_be_switched_off(run_broker):
    async def scenario(case):
        client = await case.client()
        await fill(client, 2)
        await client.call(34, {}, heartbeat("n = 1"))
        brought = await client.pull(subscription="n = 1", **SQL)
        registered = await client.pull(sysFlag=0, subVersion=1, **SQL)
        tags = await client.pull(subscription="*")

        assert (brought.code, brought.remark) == (1, NO_SQL)
        assert (registered.code, registered.remark) == (1, NO_SQL)
        assert tags.code == 0

    run_broker(scenario, broker={"enable_property_filter": False})


def test_a_held_pull_wakes_for_a_message_its_selector_wants_and_for_no_other(run_broker):
    async def scenario(case):
        consumer, producer = await case.client(), await case.client()
        await fill(producer, 1)
        consumer.send(11, case.pull_ext(offset=1, sysFlag=4 | 2, subscription="n = 3", **SQL))
        await asyncio.sleep(0.01)
        await producer.produce(properties={"n": "2"}, body=b"2")
        await asyncio.sleep(0.01)
        held = len(case.broker.feature(PullFeature).holds)
        before = case.clock.now_ms()
        await producer.produce(properties={"n": "3"}, body=b"3")
        reply = await consumer.receive()

        assert held == 1
        assert bodies(reply) == [b"3"]
        assert case.clock.now_ms() - before < 100

    run_broker(scenario)


def test_a_held_pull_whose_selector_matches_nothing_is_sent_on_within_5_s(run_broker):
    async def scenario(case):
        consumer, producer = await case.client(), await case.client()
        await fill(producer, 1)
        consumer.send(11, case.pull_ext(offset=1, sysFlag=6, subscription="n = 'x'", **SQL))
        await asyncio.sleep(0.01)
        await fill(producer, 5)
        before = case.clock.now_ms()
        reply = await consumer.receive()

        assert reply.code == 20
        assert case.ext(reply)["nextBeginOffset"] == "6"
        assert case.clock.now_ms() - before <= 5_000

    run_broker(scenario)


def test_the_work_of_one_pull_is_bounded_by_units_and_by_cost(run_broker):
    async def scenario(case):
        client = await case.client()
        await fill(client, 900)
        units = await client.pull(subscription="n < 0", **SQL)
        costly = " OR ".join(f"n = 'x{number}'" for number in range(400))
        cost = await client.pull(subscription=costly, **SQL)
        end = int(case.ext(cost)["nextBeginOffset"])

        assert (units.code, case.ext(units)["nextBeginOffset"]) == (20, "801")
        assert cost.code == 20
        assert 0 < end < 801

    run_broker(scenario)


def test_records_far_back_are_judged_beside_the_loop(run_broker):
    async def scenario(case):
        client = await case.client()
        await fill(client, 20)
        await client.produce(properties={"n": "3"}, body=b"x" * 5000)
        case.broker.store._reader._hot_bytes = 1  # everything is far back
        reply = await client.pull(subscription="n >= 3 AND n <= 5", **SQL)
        none = await client.pull(subscription="n < 0", **SQL)

        assert bodies(reply)[:3] == [b"3", b"4", b"5"]
        assert len(bodies(reply)[3]) == 5000
        assert case.ext(reply)["nextBeginOffset"] == "21"
        assert none.code == 20

    run_broker(scenario)


@pytest.mark.parametrize("ask, wanted", [(True, [b"1"]), (False, [])])
def test_retry_topics_are_filtered_by_the_selector_of_the_topic_before(run_broker, ask, wanted):
    async def scenario(case):
        client = await case.client()
        beat = json.loads(heartbeat("n = 1"))
        retry = dict(beat["consumerDataSet"][0]["subscriptionDataSet"][0])
        retry |= {"topic": "%RETRY%g", "subString": "n = 'never'"}
        beat["consumerDataSet"][0]["subscriptionDataSet"].append(retry)
        await client.call(34, {}, json.dumps(beat).encode())
        for number in ("1", "2"):
            named = {"n": number, "RETRY_TOPIC": "T"}
            await client.produce("%RETRY%g", properties=named, body=number.encode(), d=1)
        reply = await client.pull("%RETRY%g", sysFlag=0, subVersion=1, **SQL)

        assert bodies(reply) == wanted

    run_broker(scenario, broker={"filter_support_retry": ask})


def check(expression, kind="SQL92"):
    data = {"topic": "T", "subString": expression, "expressionType": kind, "subVersion": 1}
    return json.dumps({"clientId": "c1", "group": "g", "subscriptionData": data}).encode()


def test_a_client_may_ask_whether_its_selector_is_one(run_broker):
    async def scenario(case):
        client = await case.client()
        fine = await client.call(46, {}, check("a IN ('x') AND b > 5"))
        tags = await client.call(46, {}, check("||", "TAG"))
        empty = await client.call(46, {})
        wrong = await client.call(46, {}, check("a AND 5"))
        number = await client.call(46, {}, check("a > 'x'"))
        case.broker.live.update({"enablePropertyFilter": "false"})
        refused = await client.call(46, {}, check("a = 1"))

        assert (fine.code, tags.code, empty.code) == (0, 0, 0)
        assert wrong.code == number.code == 23
        assert "will not result in a boolean value" in wrong.remark
        assert "'x' cannot be compared by >" in number.remark
        assert (refused.code, refused.remark) == (1, NO_SQL)

    run_broker(scenario)


def test_what_a_group_subscribes_to_can_be_asked(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.call(34, {}, heartbeat("n = 1"))
        known = await client.call(345, {"group": "g", "topic": "T"})
        nothing = await client.call(345, {"group": "nobody", "topic": "T"})

        found = json.loads(known.body)
        assert (found["group"], found["topic"]) == ("g", "T")
        assert found["subscriptionData"]["subString"] == "n = 1"
        assert found["subscriptionData"]["expressionType"] == "SQL92"
        assert json.loads(nothing.body).get("subscriptionData") is None

    run_broker(scenario)


def test_equal_expressions_share_one_filter():
    filters = SubscriptionFilters()

    assert filters.build("a = 1", "SQL92") is filters.build("a = 1", "SQL92")
    assert filters.build("A || B", "TAG") is filters.build("A || B", None)
    assert filters.build("*", None) is MATCH_ALL
    assert filters.build(None, "TAG") is MATCH_ALL


def test_what_is_wrong_is_told_each_time():
    filters = SubscriptionFilters()

    for _ in range(2):
        with pytest.raises(ExpressionError, match="the end at column 4"):
            filters.build("a =", "SQL92")


def test_the_kept_selectors_are_bounded_in_number_and_size():
    filters = SubscriptionFilters()
    for number in range(SQL_EXPRESSIONS + 10):
        filters.build(f"a = {number}", "SQL92")
    count = len(filters._sql)
    for number in range(100):
        filters.build(f"a = '{number:016000}'", "SQL92")

    assert count == SQL_EXPRESSIONS
    assert sum(map(len, filters._sql)) == filters._characters <= SQL_CHARACTERS


def test_long_tag_expressions_are_not_kept():
    filters = SubscriptionFilters()
    long = " || ".join(f"tag{number}" for number in range(1_000))

    assert len(filters.build(long, None).codes) == 1_000
    assert filters._tags == {}


def test_a_retried_message_of_a_topic_without_selector_passes():
    filters = SubscriptionFilters()
    known = {("g", "T"): filters.build("n = 1", "SQL92"), ("g", "U"): MATCH_ALL}
    predicate = RetryPredicate(lambda group, topic: known.get((group, topic)), "g")

    assert predicate.matches(b"RETRY_TOPIC\x01T\x02n\x011\x02")
    assert not predicate.matches(b"RETRY_TOPIC\x01T\x02n\x012\x02")
    assert predicate.matches(b"RETRY_TOPIC\x01U\x02n\x012\x02")
    assert predicate.matches(b"RETRY_TOPIC\x01V\x02")
    assert predicate.matches(b"")
