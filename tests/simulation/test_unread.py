"""What is not read: one number for all who tell it; queues, groups and dead letters that nobody looks at. Each sickness
is found, and gone when what the doctor says was typed."""

import asyncio
import json
import shlex
from typing import Any

import pytest
from tests.exposition import read_exposition
from tests.simulation.ward import CONSUMERS, A, B, Ward, nurse, one
from tests.typed import commands_of, done, type_at

from roquette.admin.drain import left_on
from roquette.admin.resize import places_of, prove
from roquette.broker.operation.metrics import MetricsFeature
from roquette.client import calls
from roquette.errors import ConfigError
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette_testing.embedded import still_to_come

pytestmark = pytest.mark.simulation


async def numbers(ward: Ward, topic: str = "orders") -> set[tuple[int, int, int]]:
    """(write, read, perm) of a topic, on all brokers."""
    configs = [place.config for place in await ward.run(places_of(topic))]
    return {(each.write_queue_nums, each.read_queue_nums, each.perm) for each in configs}


async def given_by_apache(ward: Ward, queues: int) -> None:
    """As `mqadmin updateTopic -r 2 -w 2` does it: at once."""
    for ip in (A, B):
        call = calls.create_topic("orders", queues=queues)
        await ward.mq.session.api.call(f"{ip}:10911", call)
    await asyncio.sleep(1)


async def spread(ward: Ward, count: int) -> None:
    """So many messages to each of the eight queues of both brokers."""
    for queue in await ward.mq.queues("orders"):
        for number in range(count):
            await ward.mq.send("orders", b"%d" % number, queue=queue)


async def go_away(ward: Ward) -> None:
    """A consumer reads two messages of each queue, and its process is gone."""
    await ward.consumer(CONSUMERS[0])
    await spread(ward, 2)
    await asyncio.sleep(20)
    await ward.cluster.run_on(CONSUMERS[0], ward.cluster.hosts[CONSUMERS[0]].service.close())
    assert len(ward.got) == 16


def test_a_change_of_a_topic_takes_only_what_was_said() -> None:
    async def scenario(ward: Ward) -> None:
        await done(ward.mq, "roquette topic create wide --queues 16")
        await done(ward.mq, "roquette topic create wide --perm 4")
        assert await numbers(ward, "wide") == {(16, 16, 4)}
        await done(ward.mq, "roquette topic create wide")
        assert await numbers(ward, "wide") == {(16, 16, 4)}
        await done(ward.mq, "roquette topic create wide --perm 6 --queues 20")
        assert await numbers(ward, "wide") == {(20, 20, 6)}
        refused = await type_at(ward.mq, shlex.split("roquette topic create wide --queues 8"))
        assert isinstance(refused.exception, ConfigError)
        (cure,) = commands_of(str(refused.exception))
        assert cure.startswith("roquette topic resize wide --queues 8 --wait")
        assert await numbers(ward, "wide") == {(20, 20, 6)}
        await done(ward.mq, "roquette topic create sorted --queues 2 --order")
        await done(ward.mq, "roquette topic create sorted --perm 6")
        assert {place.config.order for place in await ward.run(places_of("sorted"))} == {True}
        refused = await type_at(ward.mq, shlex.split("roquette topic create sorted --queues 4"))
        await done(ward.mq, commands_of(str(refused.exception))[0])
        assert await numbers(ward, "sorted") == {(4, 4, 6)}
        await done(ward.mq, "roquette topic resize wide --queues 8 --wait --settle 0")
        assert await numbers(ward, "wide") == {(8, 8, 6)}
        for words, wanted in (("=PRIORITY", {"message.type": "PRIORITY"}), ("=", {})):
            await done(ward.mq, f"roquette topic create wide --attribute message.type{words}")
            places = await ward.run(places_of("wide"))
            assert [place.config.attributes for place in places] == [wanted] * len(places)
        assert await numbers(ward, "wide") == {(8, 8, 6)}
        refused = await type_at(
            ward.mq, shlex.split("roquette topic create wide --attribute message.type")
        )
        assert "message.type is not of the form KEY=VALUE" in str(refused.exception)

    nurse(scenario)


def test_a_topic_comes_to_a_new_broker_as_it_is_on_the_others() -> None:
    async def scenario(ward: Ward) -> None:
        await done(ward.mq, "roquette topic create half --queues 3 --perm 4 --broker broker-a")
        finding = await one(ward, "RQ-D005")
        for command in commands_of(finding.fix):
            await done(ward.mq, command)
        await asyncio.sleep(1)
        assert await numbers(ward, "half") == {(3, 3, 4)}
        assert await ward.findings() == []

    nurse(scenario)


async def told(ward: Ward) -> dict[str, int]:
    """How many messages wait for the group, by each who tells it."""
    told: dict[str, int] = {}
    lag = json.loads(await done(ward.mq, "roquette group lag g -o json"))
    told["group lag"] = sum(row["lag"] for row in lag if row["topic"] == "orders")
    (row,) = json.loads(await done(ward.mq, "roquette group list -o json"))
    told["group list"] = row["lag"]
    facts = await ward.look()
    told["doctor"] = sum(at.lag for at in facts.positions() if at.queue.topic == "orders")
    left = [await ward.run(left_on(name)) for name in ("broker-a", "broker-b")]
    told["drain"] = sum(row.count for each in left for row in each.rows if row.topic == "orders")
    told["metrics"] = told["test kit"] = told["resize"] = 0
    for ip in (A, B):
        broker = ward.cluster.hosts[ip].service
        text = b"".join(broker.feature(MetricsFeature)._scrape()).decode()
        for name in ("rocketmq_consumer_lag_messages", "rocketmq_message_accumulation"):
            told[name] = told.get(name, 0) + sum(
                int(sample.value)
                for sample in read_exposition(text)
                if sample.name == name
                and sample.labels["topic"] == "orders"
                and "g" in (sample.labels.get("group"), sample.labels.get("consumer_group"))
            )
        told["test kit"] += still_to_come(broker, "orders", "g")
    del told["metrics"]
    for place in await ward.run(places_of("orders")):
        told["resize"] += sum(row.unread for row in await ward.run(prove(place, 0)))
    return told


def test_queues_that_nobody_reads() -> None:
    async def scenario(ward: Ward) -> None:
        await go_away(ward)
        await spread(ward, 10)
        assert set((await told(ward)).values()) == {80}
        await given_by_apache(ward, 2)
        found = await told(ward)
        assert found.pop("resize") == 40, "of the queues that there are"
        assert set(found.values()) == {80}, found
        await ward.consumer("10.0.4.7")
        await asyncio.sleep(40)
        assert len(ward.got) == 16 + 40
        assert set((await told(ward)).values()) == {40, 0}
        finding = await one(ward, "RQ-D047")
        assert finding.evidence.startswith(
            "40 messages wait in queues that nobody reads: broker-a/2"
        )
        again, fewer = commands_of(finding.fix)
        await done(ward.mq, again)
        await asyncio.sleep(60)
        assert len(ward.got) == 16 + 80
        assert await ward.findings() == []
        await done(ward.mq, fewer, "--settle", "1")
        assert await numbers(ward) == {(2, 2, 6)}
        assert set((await told(ward)).values()) == {0}
        assert await ward.findings() == []

    nurse(scenario)


UNTIMED: dict[str, Any] = {"timer_wheel_enable": False}
"""Its wheel would turn for as long as a clock was moved on."""


def later(ward: Ward, minutes: int) -> None:
    """Every clock says so: what was sent before is so old."""
    for ip in ward.cluster.hosts:
        ward.cluster.set_clock(ip, minutes * 60_000)


@pytest.mark.parametrize("cure", [0, 1])
def test_a_group_whose_processes_are_gone(cure: int) -> None:
    async def scenario(ward: Ward) -> None:
        await go_away(ward)
        assert await ward.findings() == [], "it has read everything"
        await spread(ward, 62)
        later(ward, 9)
        assert await ward.findings() == [], "it may be on its way"
        later(ward, 11)
        finding = await one(ward, "RQ-D048")
        assert finding.subject == "group g, topic orders"
        assert finding.evidence.startswith("496 messages wait in 8 queues, the first for 11 min ")
        assert [f.code for f in await ward.findings(10)] == ["RQ-D048"]
        await done(ward.mq, commands_of(finding.fix)[cure])
        await asyncio.sleep(1)
        assert await ward.findings() == []

    nurse(scenario, store_a=UNTIMED, store_b=UNTIMED)


def test_somebody_who_reads_and_is_no_member_is_not_away() -> None:
    async def scenario(ward: Ward) -> None:
        await go_away(ward)
        await spread(ward, 8)
        later(ward, 20)
        looks = asyncio.get_running_loop().create_task(ward.findings(20))
        await asyncio.sleep(10)  # a job in Spark commits a part
        await ward.mq.session.api.call(
            f"{A}:10911", calls.commit("g", MessageQueue("orders", "broker-a", 0), 5)
        )
        assert await looks == []
        assert [finding.code for finding in await ward.findings()] == ["RQ-D048"]

    nurse(scenario, store_a=UNTIMED, store_b=UNTIMED)


PIPELINE = "archive-lake-1a2b3c4d"


async def commit_all(ward: Ward, group: str = PIPELINE) -> None:
    """A run of a pipeline that has caught up: it is no member."""
    ends = {queue: at for b in (await ward.look()).masters() for queue, at in b.queues.items()}
    for queue in await ward.mq.queues("orders"):
        address = f"{A if queue.broker_name == 'broker-a' else B}:10911"
        place = ends[queue].max_offset
        pull = calls.pull(group, queue, place, 1)  # so a broker learns of a group
        for call in (pull, calls.commit(group, queue, place)):
            await ward.mq.session.api.call(address, call)


def test_a_group_of_a_pipeline_has_no_members() -> None:
    async def scenario(ward: Ward) -> None:
        await spread(ward, 2)
        await commit_all(ward)
        assert await ward.findings() == [], "it has read everything"
        looks = asyncio.get_running_loop().create_task(ward.findings(20))
        await asyncio.sleep(10)
        await spread(ward, 62)
        assert await looks == [], "it is between two batches"
        later(ward, 23 * 60)
        assert await ward.findings() == [], "it runs once a day"
        (row,) = json.loads(await done(ward.mq, "roquette group list -o json"))
        assert (row["group"], row["members"], row["lag"]) == (PIPELINE, 0, 496)
        refused = await type_at(ward.mq, ["roquette", "group", "show", PIPELINE])
        assert f"'roquette group lag {PIPELINE}'" in str(refused.exception)
        lag = await done(ward.mq, f"roquette group lag {PIPELINE} -o json")
        assert [row["lag"] for row in json.loads(lag)] == [62] * 8

        later(ward, 27 * 60)
        finding = await one(ward, "RQ-D048")
        assert finding.subject == f"group {PIPELINE}, topic orders"
        assert finding.evidence.startswith(
            "496 messages wait in 8 queues, the first for 27 h 0 min"
        )
        assert finding.cause.startswith(
            "by its name a pipeline (archive) commits to it, and no run"
        )
        await commit_all(ward)
        assert await ward.findings() == []
        await spread(ward, 1)
        later(ward, 60 * 60)
        await done(ward.mq, commands_of((await one(ward, "RQ-D048")).fix)[-1], "--yes")
        await asyncio.sleep(1)
        assert await ward.findings() == []

    nurse(scenario, store_a=UNTIMED, store_b=UNTIMED)


def test_a_pipeline_that_is_too_slow_is_told_so() -> None:
    async def scenario(ward: Ward) -> None:
        await spread(ward, 2)
        await commit_all(ward)
        looks = asyncio.get_running_loop().create_task(ward.findings(20))
        await asyncio.sleep(10)
        await spread(ward, 1)
        await commit_all(ward)
        await spread(ward, 62)
        (finding,) = await looks
        assert finding.code == "RQ-D016" and "larger batches" in finding.fix

    nurse(scenario, store_a=UNTIMED, store_b=UNTIMED)


SHORT: dict[str, Any] = UNTIMED | {"file_reserved_hours": 12, "file_reserved_bytes": 2 << 20}


@pytest.mark.parametrize("cure", [0, 1])
def test_a_group_that_is_away_for_longer_than_messages_are_kept(cure: int) -> None:
    async def scenario(ward: Ward) -> None:
        await go_away(ward)
        await spread(ward, 1)
        later(ward, 500)
        found = {finding.code: finding for finding in await ward.findings()}
        assert found.keys() == {"RQ-D048", "RQ-D050"}
        assert (
            "for 8 h 20 min, and may be deleted in 3 h 39 min (fileReservedTime=12)"
            in found["RQ-D050"].evidence
        )
        for finding in [f for f in await ward.findings() if f.code == "RQ-D050"]:
            keep, look = commands_of(finding.fix)
            assert look == "roquette group show g"
            await done(ward.mq, keep)
        assert [finding.code for finding in await ward.findings()] == ["RQ-D048"]
        await ward.send(1_800, body=b"x" * 4_000)
        await asyncio.sleep(90)  # until queues are synced, and files deleted
        found = {finding.code: finding for finding in await ward.findings()}
        lost = int(found["RQ-D049"].evidence.split()[0])
        assert 400 < lost < 1_800
        assert sum(counted(ward).values()) == lost
        await done(ward.mq, commands_of(found["RQ-D049"].fix)[cure])
        assert "RQ-D049" not in {finding.code for finding in await ward.findings()}

    nurse(scenario, store_a=SHORT, store_b=SHORT)


def counted(ward: Ward) -> dict[str, float]:
    """By group: messages that retention took unread, as metrics tell."""
    found: dict[str, float] = {}
    for ip in (A, B):
        text = b"".join(ward.cluster.hosts[ip].service.feature(MetricsFeature)._scrape()).decode()
        for sample in read_exposition(text):
            if sample.name == "rocketmq_deleted_unread_messages_total":
                group = sample.labels["consumer_group"]
                found[group] = found.get(group, 0) + sample.value
    return found


@pytest.mark.parametrize("cure", [0, 1, 2])
def test_dead_letters_of_an_hour_ago(cure: int) -> None:
    async def scenario(ward: Ward) -> None:
        def fails(message: ReceivedMessage) -> bool:
            return False

        assert "no group has dead letters" in await done(ward.mq, "roquette dlq ls")
        await ward.consumer(CONSUMERS[0], fails, max_reconsume_times=0)
        await ward.send(30)
        await asyncio.sleep(10)
        later(ward, 60)
        finding = await one(ward, "RQ-D051")
        assert (
            finding.evidence == "30 dead letters that nobody has read; the last came 1 h 0 min ago"
        )
        (row,) = json.loads(await done(ward.mq, "roquette dlq ls -o json"))
        assert (row["group"], row["messages"]) == ("g", 30)
        await ward.cluster.run_on(CONSUMERS[0], ward.cluster.hosts[CONSUMERS[0]].service.close())
        await done(ward.mq, commands_of(finding.fix)[cure])
        await asyncio.sleep(1)
        later(ward, 120)
        assert [f for f in await ward.findings() if f.code == "RQ-D051"] == []

    nurse(scenario, store_a=UNTIMED, store_b=UNTIMED)


def test_what_nobody_has_seen_is_told_again() -> None:
    async def scenario(ward: Ward) -> None:
        def fails(message: ReceivedMessage) -> bool:
            return False

        await ward.consumer(CONSUMERS[0], fails, max_reconsume_times=0)
        await ward.send(8)
        await asyncio.sleep(10)
        await done(ward.mq, "roquette dlq ls g --seen")
        await ward.send(3)
        await asyncio.sleep(10)
        later(ward, 60)
        assert (await one(ward, "RQ-D051")).evidence.startswith("3 dead letters")
        await done(ward.mq, "roquette dlq ls g --most 1 --seen")  # no place goes back
        assert int((await one(ward, "RQ-D051")).evidence.split()[0]) <= 3

    nurse(scenario, store_a=UNTIMED, store_b=UNTIMED)


def test_lists_ask_for_what_they_show_and_say_what_they_left_out() -> None:
    async def scenario(ward: Ward) -> None:
        for name in ("bills", "mails"):
            await ward.create(name, queues=1)
        await ward.consumer(CONSUMERS[0], group="first")
        await ward.consumer(CONSUMERS[1], group="second")
        await ward.send(5)
        await asyncio.sleep(10)
        assert [row["topic"] for row in json.loads((await type_at(ward.mq, shlex.split("roquette topic list -o json"))).stdout)] == [
            "bills", "mails", "orders",
        ]  # fmt: skip
        some = await type_at(
            ward.mq, shlex.split("roquette topic list --limit 1 --like ORD -o json")
        )
        (row,) = json.loads(some.stdout)
        assert (row["brokers"], row["read_queues"], row["messages"]) == (2, 8, 5)
        assert some.stderr == ""
        some = await type_at(ward.mq, shlex.split("roquette topic list --limit 1"))
        assert some.stderr.startswith("2 more topics: --like WORD chooses, --limit N shows more")
        some = await type_at(ward.mq, shlex.split("roquette group list --limit 1 -o json"))
        assert [row["group"] for row in json.loads(some.stdout)] == ["first"]
        assert some.stderr.startswith("1 more groups:")
        some = await type_at(ward.mq, shlex.split("roquette client ls --like second -o json"))
        assert {(row["kind"], row["group"]) for row in json.loads(some.stdout)} == {
            ("consumer", "second")
        }
        assert some.stderr == ""
        some = await type_at(ward.mq, shlex.split("roquette client ls --limit 1 -o json"))
        assert "more groups" in some.stderr
        assert (await type_at(ward.mq, shlex.split("roquette dlq ls --seen"))).exit_code != 0

    nurse(scenario)
