"""Files that say what a cluster should be: read, compared, carried out; nothing is lost, and twice is once."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.client.test_push_consumer import NAMESRV, A, B

from roquette.admin.apply import (
    Effect,
    PlanStep,
    There,
    WantedCluster,
    carry_out,
    plan,
    read_wanted,
    unknown,
    what_is_there,
)
from roquette.client.calls import ask
from roquette.client.operator_calls import put_group
from roquette.errors import ConfigError
from roquette.message.names import PREDEFINED_GROUPS
from roquette.wire.bodies.tables import (
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
    TopicConfig,
)
from roquette_testing.cluster import SimCluster, simulate


def wanted(text: str) -> WantedCluster:
    return read_wanted(text.encode(), "cluster.yaml")


def there(
    topic: TopicConfig | None = None,
    group: SubscriptionGroupConfig | None = None,
    **settings: str,
) -> There:
    return There(
        "broker-a",
        "DefaultCluster",
        "10.0.0.1:10911",
        {topic.topic_name: topic} if topic else {},
        {group.group_name: group} if group else {},
        settings,
    )


def only(text: str, place: There) -> PlanStep:
    (step,) = plan(wanted(text), [place])
    return step


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topics: [a]", "line 1: topics must be a mapping"),
        ("topic:\n  a: {}", "line 1: the file has no topic; known are brokers, groups, topics"),
        ("topics:\n  a:\n    queue: 8", "line 3: topic a has no queue; known are"),
        ("topics:\n  a:\n    queues: 0", "line 3: queues is 0, not a number from 1"),
        ("topics:\n  a:\n    queues: many", "line 3: queues is many, not a number"),
        ("topics:\n  a:\n    queues: [8]", "queues is"),
        ("topics:\n  a:\n    queues: 8\n    read_queues: 9", "not both"),
        ("topics:\n  a:\n    perm: RX", "line 3: perm is RX, not one of RW, R, W, NONE"),
        ("topics:\n  a:\n    order: maybe", "order is maybe, not one of true, false"),
        ("topics:\n  'a b': {}", "line 2: "),
        ("groups:\n  g:\n    retries: -2", "retries is -2"),
        ("groups:\n  'g g': {}", "line 2"),
        (
            "groups:\n  g:\n    retry: 2",
            "line 3: a group has no setting retry; did you mean retries?",
        ),
        ("groups:\n  g:\n    groupName: h", "line 3: a group has no setting groupName"),
        (
            "groups:\n  g:\n    retries: 2\n    retryMaxTimes: 3",
            "line 4: group g has retryMaxTimes",
        ),
        (
            "groups:\n  g:\n    consumeEnable: maybe",
            "line 3: consumeEnable is maybe: Expected `bool`",
        ),
        ("groups:\n  g:\n    consumeTimeoutMinute: 4e9", "consumeTimeoutMinute is 4e9"),
        ("groups:\n  g:\n    groupRetryPolicy: {type: OFTEN}", "type is CUSTOMIZED or EXPONENTIAL"),
        ("groups:\n  g:\n    groupRetryPolicy: {typ: CUSTOMIZED}", "it has customizedRetryPolicy"),
        ("groups:\n  g:\n    attributes: {a: [1]}", "a of attributes of group g must be one value"),
        ("brokers:\n  b:\n    x: [1]", "x of broker b must be one value"),
        ("topics: *x", "line 1"),
        ("\x00", "cluster.yaml"),
    ],
)
def test_wrong_files_are_refused_with_their_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        wanted(text)
    assert said in str(error.value) and "cluster.yaml" in str(error.value)


def test_an_empty_file_wants_nothing() -> None:
    assert plan(wanted(""), [there(TopicConfig("orders", 8, 8))]) == []


@pytest.mark.parametrize(
    ("words", "effect", "how"),
    [
        ("queues: 16", Effect.SAFE, ""),
        ("write_queues: 4", Effect.SAFE, ""),
        ("queues: 4", Effect.LOSSY, "roquette topic resize orders --queues 4 --wait"),
        ("write_queues: 16", Effect.LOSSY, "read by nobody"),
        ("perm: R", Effect.REFUSES, "senders are refused"),
        ("perm: W", Effect.REFUSES, "consumers get nothing"),
        ("perm: NONE", Effect.REFUSES, "senders are refused and consumers get nothing"),
        ("order: true", Effect.SAFE, ""),
    ],
)
def test_each_change_of_a_topic_says_what_it_does(words: str, effect: Effect, how: str) -> None:
    step = only(f"topics:\n  orders:\n    {words}", there(TopicConfig("orders", 8, 8)))
    assert (step.kind, step.effect) == ("topic", effect)
    assert how in step.how
    assert (step.topic is None) == (effect is Effect.LOSSY)


@pytest.mark.parametrize(
    ("words", "effect", "how"),
    [
        ("retries: 20", Effect.SAFE, ""),
        ("retries: 3", Effect.SAFE, "dead letters at their next failure"),
        ("consume: false", Effect.REFUSES, "members are refused"),
        ("broadcast: false", Effect.REFUSES, "broadcast are refused"),
    ],
)
def test_each_change_of_a_group_says_what_it_does(words: str, effect: Effect, how: str) -> None:
    place = there(group=SubscriptionGroupConfig(group_name="g"))
    step = only(f"groups:\n  g:\n    {words}", place)
    assert (step.kind, step.effect) == ("group", effect)
    assert how in step.how


def test_a_change_of_a_group_takes_what_was_said() -> None:
    before = SubscriptionGroupConfig(
        group_name="g",
        retry_max_times=7,
        consume_message_orderly=True,
        attributes={"priority.factor": "50", "lite.bind.topic": "t"},
    )
    policy = '{"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 9}}'
    text = f"""
groups:
  g:
    consumeTimeoutMinute: 30
    notifyConsumerIdsChangedEnable: false
    groupRetryPolicy: {policy}
    attributes: {{priority.factor: 20, lite.bind.topic: "", roquette.commit.backward: REFUSE}}
"""
    step = only(text, there(group=before))
    after = step.group
    assert after is not None
    assert after == msgspec.structs.replace(
        before,
        consume_timeout_minute=30,
        notify_consumer_ids_changed_enable=False,
        group_retry_policy=GroupRetryPolicy(
            type="EXPONENTIAL", exponential_retry_policy=ExponentialRetryPolicy(initial=9)
        ),
        attributes={"priority.factor": "20", "roquette.commit.backward": "REFUSE"},
    )
    assert step.attributes == {
        "priority.factor": "20",
        "lite.bind.topic": "",
        "roquette.commit.backward": "REFUSE",
    }
    assert "consumeTimeoutMinute=15" in step.now and "consumeTimeoutMinute=30" in step.wanted
    assert "lite.bind.topic=t" in step.now and "priority.factor=20" in step.wanted
    assert "retryMaxTimes" not in step.now + step.wanted, "what stays is not shown"
    assert plan(wanted(text), [there(group=after)]) == []


def test_settings_of_all_brokers_and_of_one() -> None:
    text = "brokers:\n  '*': {a: 1, b: 2}\n  broker-a: {b: 3}\n  broker-z: {c: 4}"
    steps = plan(wanted(text), [there(a="1", b="2")])
    assert [(step.subject, step.now, step.wanted) for step in steps] == [("b", "2", "3")]
    assert unknown(wanted(text), [there()]) == ["broker broker-z"]
    assert unknown(wanted("topics:\n  t: {cluster: other}"), [there()]) == ["cluster other"]


def test_what_is_not_in_the_file_is_drift_and_stays() -> None:
    place = there(TopicConfig("stray"), SubscriptionGroupConfig(group_name="lost"))
    place.topics.update({name: TopicConfig(name) for name in ("%RETRY%g", "broker-a", "TBW102")})
    steps = plan(wanted("topics:\n  orders: {}\ngroups:\n  g: {}"), [place])
    assert [(s.kind, s.subject) for s in steps if s.effect is Effect.DRIFT] == [
        ("topic", "stray"),
        ("group", "lost"),
    ]
    place.groups.update(
        {name: SubscriptionGroupConfig(group_name=name) for name in PREDEFINED_GROUPS}
    )
    assert plan(wanted("topics:\n  orders: {}\ngroups:\n  g: {}"), [place]) == steps, (
        "brokers have these from their start"
    )
    assert "roquette topic delete stray" in steps[-2].how
    assert (
        plan(wanted("groups:\n  lost: {}"), [place]) == []
    )  # a file without topics says nothing of them


FILE = """
topics:
  orders: {queues: 16}
  fresh: {queues: 2}
groups:
  g: {retries: 3}
brokers:
  "*": {fileReservedTime: 99}
  broker-b: {fileReservedTime: 98}
"""


def test_a_cluster_becomes_what_the_file_says_and_twice_is_once() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv(NAMESRV)
        for ip, name in ((A, "broker-a"), (B, "broker-b")):
            await cluster.add_broker(ip, name)
        mq = await cluster.client("10.0.2.1")
        await mq.send("orders", b"1")
        await asyncio.sleep(40)
        run: Any = mq.session.run
        kept = SubscriptionGroupConfig(group_name="g", consume_message_orderly=True)
        for ip in (A, B):
            put = put_group(kept, attributes={"priority.factor": "50"})
            await run(ask(f"{ip}:10911", put))
        steps = plan(wanted(FILE), await run(what_is_there(wanted(FILE))))
        done = await run(carry_out(steps, refuses=False))
        assert [row.error for row in done] == [""] * len(done)
        assert {(row.kind, row.subject) for row in done} == {
            ("setting", "fileReservedTime"),
            ("topic", "orders"),
            ("topic", "fresh"),
            ("group", "g"),
        }
        now = await run(what_is_there(wanted(FILE)))
        assert [place.settings["fileReservedTime"] for place in now] == ["99", "98"]
        assert all(place.topics["orders"].read_queue_nums == 16 for place in now)
        changed = msgspec.structs.replace(
            kept, retry_max_times=3, attributes={"priority.factor": "50"}
        )
        assert [place.groups["g"] for place in now] == [changed] * 2
        assert [s for s in plan(wanted(FILE), now) if s.effect is not Effect.DRIFT] == []

        less = plan(wanted("topics:\n  orders: {queues: 4}\n  fresh: {perm: R}"), now)
        assert await run(carry_out(less, refuses=False)) == []
        done = await run(carry_out(less, refuses=True))
        assert [(row.subject, row.error) for row in done] == [("fresh", "")] * 2

        wrong = plan(wanted("brokers:\n  '*': {fileReservedTime: never}"), now)
        assert all(row.error for row in await run(carry_out(wrong, refuses=False)))

        text = "groups:\n  g: {attributes: {priority.factor: '', no.such: 1}}"
        (row, _) = await run(carry_out(plan(wanted(text), now), refuses=False))
        assert "unsupported key: no.such" in row.error
        text = "groups:\n  g: {attributes: {priority.factor: '', roquette.commit.backward: REFUSE}}"
        await run(carry_out(plan(wanted(text), now), refuses=False))
        now = await run(what_is_there(wanted(FILE)))
        assert [place.groups["g"].attributes for place in now] == [
            {"roquette.commit.backward": "REFUSE"}
        ] * 2

    simulate(scenario)
