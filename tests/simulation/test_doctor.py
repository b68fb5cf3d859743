"""The doctor on whole clusters in virtual time: what is sick is found, and what is healthy for an hour gives no alarm."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from tests.simulation.test_closed_cluster import CLOSED, ROOT
from tests.simulation.ward import (
    APART_S,
    CONSUMERS,
    N1,
    N2,
    OPERATOR,
    SETTINGS,
    A,
    B,
    Ward,
    nurse,
    one,
)
from tests.typed import type_at, typed

from roquette.admin.doctor import examination
from roquette.admin.doctor.checks.diagnosis import diagnose
from roquette.admin.doctor.examination import examine, who_is_there
from roquette.admin.doctor.findings import Finding, Intent, Severity
from roquette.admin.drain import hide
from roquette.admin.facts import BrokerFacts, ClusterFacts
from roquette.admin.top import broker_rows, events
from roquette.admin.topics import delete_topic
from roquette.client import calls
from roquette.client.calls import Operation, ask_all
from roquette.client.operator_calls import put_group
from roquette.errors import BrokerError, ClientError
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette.wire.bodies import ConsumerConnection
from roquette.wire.bodies.tables import SubscriptionGroupConfig
from roquette.wire.codes import RequestCode
from roquette_testing.cluster import SimCluster, simulate
from roquette_testing.sim_loop import Thrower

T = TypeVar("T")

pytestmark = pytest.mark.simulation


async def cured(ward: Ward, finding: Finding, after_s: float = 1) -> None:
    """What its fix says, typed as it is printed: then it is gone, and nothing else has come."""
    done = await type_at(ward.mq, typed(finding.fix)[0])
    assert done.exit_code == 0, (finding.fix, done.output, done.exception)
    await asyncio.sleep(after_s)
    assert await ward.findings() == []


async def produce(ward: Ward) -> None:
    """Plain and delayed messages of three tags, and transactions."""
    producer = await ward.cluster.client("10.0.3.1", group="shop")
    producer.on_check("orders", lambda message: True)
    for number in itertools.count():
        delay = {"delay_level": 1 + number % 3} if number % 5 == 0 else {}
        await ward.mq.send("orders", b"x", tag="abc"[number % 3], **delay)
        if number % 20 == 0:
            async with producer.transaction("orders", b"y", tag="a"):
                await asyncio.sleep(0.5)
        await asyncio.sleep(0.5)


async def pop(ward: Ward) -> None:
    client = await ward.cluster.client("10.0.4.7")
    async for job in client.pop("orders", group="popping"):
        await job.ack()


async def come_and_go(ward: Ward) -> None:
    """A member of the group for two minutes, and none for two."""
    client = await ward.cluster.client("10.0.4.8")
    while True:
        words = {"group": "g", "handler": ward.got.append}
        consumer = await ward.cluster.run_on("10.0.4.8", client.subscribe("orders", **words))
        await asyncio.sleep(120)
        await consumer.close()
        await asyncio.sleep(120)


async def traffic(ward: Ward, minutes: int) -> None:
    """Sends and consumers of most kinds, and looks all the time."""
    failed: set[str] = set()

    def fails_once(message: ReceivedMessage) -> bool:
        if len(failed) % 10 == 0 and message.message_id not in failed:
            failed.add(message.message_id)
            return False
        failed.add(message.message_id)
        return True

    for ip in CONSUMERS:
        await ward.consumer(ip)
    await ward.consumer("10.0.4.3", group="tags", tag="a || b")
    await ward.consumer("10.0.4.4", group="orderly", orderly=True)
    await ward.consumer("10.0.4.5", group="everybody", model="broadcasting")
    await ward.consumer("10.0.4.6", fails_once, group="retries")
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(work(ward)) for work in (produce, pop, come_and_go)]
    alarms: list[Finding] = []
    for _ in range(minutes):
        alarms += await ward.findings(APART_S)
        await asyncio.sleep(20)
        alarms += await ward.findings()
    assert [task for task in tasks if task.done()] == []
    for task in tasks:
        task.cancel()
    assert alarms == []
    assert len(ward.got) > minutes * 40
    assert len(failed) > minutes * 40


def test_no_false_alarm_in_minutes_of_traffic() -> None:
    nurse(lambda ward: traffic(ward, 3))


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_no_false_alarm_in_an_hour_of_traffic() -> None:
    nurse(lambda ward: traffic(ward, 60))


def everywhere(
    names: Sequence[str], masters: Sequence[BrokerFacts]
) -> Operation[list[tuple[str, BrokerFacts, ConsumerConnection]]]:
    """Members of each group, which is asked at every broker that knows it."""
    places = [(name, broker) for name in names for broker in masters if name in broker.groups]
    asks = [(broker.address, calls.group_connections(name)) for name, broker in places]
    told = zip(places, (yield from ask_all(asks)), strict=True)
    return [(*place, answer.value) for place, answer in told if answer.value is not None]


def counting(operation: Operation[T], asked: Counter[int]) -> Operation[T]:
    answers: Any = None
    while True:
        try:
            asks = operation.send(answers)
        except StopIteration as end:
            return end.value
        asked.update(each.call.code for each in asks)
        answers = yield asks


@pytest.mark.parametrize("idle", [0, 20])
def test_members_are_found_as_by_asking_for_every_group_everywhere(
    idle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of groups with offsets, new ones, ones that broadcast, and those that leave no trace but their members."""

    async def scenario(ward: Ward) -> None:
        quiet = [f"quiet-{number}" for number in range(3)]
        configs = [SubscriptionGroupConfig(group_name=name, retry_queue_nums=0) for name in quiet]
        configs += [SubscriptionGroupConfig(group_name=f"idle-{n}") for n in range(idle)]
        asks = [(f"{ip}:10911", put_group(config)) for ip in (A, B) for config in configs]
        assert not [each.error for each in await ward.run(ask_all(asks)) if each.error]
        await ward.create("local", queues=2, broker="broker-a")
        await ward.send(20)
        await ward.consumer("10.0.4.1", group="g")
        await ward.consumer("10.0.4.2", group="everybody", model="broadcasting")
        await ward.consumer("10.0.4.3", group="here", topic="local")
        await ward.consumer("10.0.4.4", group=quiet[0], model="broadcasting")
        await ward.consumer("10.0.4.5", group=quiet[1], topic="local", model="broadcasting")
        for tag in ("a", "b"):  # a finding
            await ward.consumer(f"10.0.4.{ord(tag)}", group="differ", tag=tag)
        await asyncio.sleep(20)
        servers, clock = ward.mq.session.name_servers, ward.cluster.host(OPERATOR).clock
        asked: Counter[int] = Counter()
        facts = await ward.run(counting(examine(servers, clock), asked))
        monkeypatch.setattr(examination, "_online", everywhere)
        asked_all: Counter[int] = Counter()
        wanted = await ward.run(counting(examine(servers, clock), asked_all))

        def members(of: ClusterFacts) -> dict[str, Any]:
            return {
                group.group: (group.model, group.subscriptions, {
                    each.client_id: each.addresses for each in group.members
                })
                for group in of.groups
            }  # fmt: skip

        assert {"g", "everybody", "here", "differ", *quiet[:2]} == set(members(wanted))
        assert members(facts) == members(wanted) and facts.offline == wanted.offline
        assert [f.code for f in diagnose(wanted, None) if f.severity is not Severity.NOTE]
        assert diagnose(facts, None) == diagnose(wanted, None)
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        assert asked[code] <= 13 and asked_all[code] == 13 + 2 * idle

    nurse(scenario)


def test_an_advertised_address_that_is_nobodys() -> None:
    async def scenario(ward: Ward) -> None:
        await ward.cluster.add_broker("10.0.1.3", "broker-c", broker_ip1="10.0.9.9", **SETTINGS)
        finding = await one(ward, "RQ-D001")
        assert finding.subject == "broker broker-c"
        assert "10.0.9.9:10911" in finding.evidence

    nurse(scenario)


def test_a_frozen_broker_does_not_answer() -> None:
    async def scenario(ward: Ward) -> None:
        ward.cluster.pause(B, 600)
        assert (await one(ward, "RQ-D031")).subject == "broker broker-b"

    nurse(scenario)


def test_a_dead_name_server_is_told() -> None:
    async def scenario(ward: Ward) -> None:
        ward.cluster.kill(N2)
        assert (await one(ward, "RQ-D030")).subject == "name server 10.0.0.2:9876"

    nurse(scenario)


def test_a_broker_one_name_server_has_lost() -> None:
    async def scenario(ward: Ward) -> None:
        ward.cluster.partition(B, N2)
        await asyncio.sleep(130)
        finding = await one(ward, "RQ-D004", APART_S)
        assert finding.subject == "broker broker-b"
        assert "name server 10.0.0.2:9876" in finding.evidence
        assert finding.fix.startswith("open the way from 10.0.1.2:10911 to 10.0.0.2:9876")
        ward.cluster.heal()
        await asyncio.sleep(60)
        assert await ward.findings() == []

    nurse(scenario)


def test_a_broker_that_was_not_told_of_a_name_server_keeps_the_one_it_has() -> None:
    async def scenario(ward: Ward) -> None:
        words = {"name_servers": f"{N1}:9876", **SETTINGS}
        await ward.cluster.add_broker("10.0.1.3", "broker-c", **words)
        ask = calls.create_topic("orders", queues=4)
        await ward.mq.session.api.call("10.0.1.3:10911", ask)
        finding = await one(ward, "RQ-D004")
        assert "'namesrvAddr=10.0.0.1:9876;10.0.0.2:9876' --broker 10.0.1.3:10911" in finding.fix
        await cured(ward, finding)

    nurse(scenario)


def test_a_broker_that_nobody_took_back_is_told_and_stays_drained_over_a_restart() -> None:
    async def scenario(ward: Ward) -> None:
        await ward.run(hide(ward.mq.session.name_servers, "broker-b"))
        await ward.cluster.stop(B)
        await ward.cluster.restart(B)
        await asyncio.sleep(1)
        assert {queue.broker_name for queue in await ward.sent_to()} == {"broker-a"}
        assert ward.cluster.hosts[B].service.live.current.broker_permission == 4
        assert [row.drained for row in broker_rows(await ward.look())] == [False, True]
        (note,) = [f for f in await ward.findings(notes=True) if f.code == "RQ-D055"]
        assert note.evidence == "brokerPermission=4"
        assert "a drain's note" in note.cause
        await cured(ward, note)
        assert {queue.broker_name for queue in await ward.sent_to()} == {"broker-a", "broker-b"}

        await type_at(
            ward.mq,
            [
                "roquette",
                *["broker", "config", "set", "brokerPermission=4", "--broker", "broker-a"],
            ],
        )
        (note,) = [f for f in await ward.findings(notes=True) if f.code == "RQ-D055"]
        assert note.evidence == "brokerPermission=4"
        await cured(ward, note)
        assert all(f.code != "RQ-D055" for f in await ward.findings(notes=True))

    nurse(scenario)


def test_what_happens_is_told_as_events() -> None:
    async def scenario(ward: Ward) -> None:
        clock = ward.cluster.host(OPERATOR).clock
        looks = [await ward.run(who_is_there(ward.mq.session.name_servers, clock))]

        async def told() -> list[tuple[str, str]]:
            looks.append(await ward.run(who_is_there(ward.mq.session.name_servers, clock)))
            return [(each.subject, each.kind) for each in events(*looks[-2:])]

        assert await told() == []
        await ward.cluster.stop(B)
        gone = [("broker broker-b", "left"), ("broker broker-b", "is master no more")]
        assert sorted(await told()) == sorted(gone)
        await ward.cluster.restart(B)
        await asyncio.sleep(1)
        back = [("broker broker-b", "joined"), ("broker broker-b", "is master")]
        assert sorted(await told()) == sorted(back)
        ward.cluster.kill(N2)
        await asyncio.sleep(1)
        assert await told() == [("name server 10.0.0.2:9876", "is silent")]

    nurse(scenario)


def test_name_servers_that_disagree() -> None:
    async def scenario(ward: Ward) -> None:
        await ward.create("gone", queues=1)
        ask = calls.forget_topic("gone")
        await ward.mq.session.api.call(f"{N2}:9876", ask)
        finding = await one(ward, "RQ-D003")
        assert finding.subject == "topic gone"
        assert "10.0.0.2:9876 says nothing" in finding.evidence

    nurse(scenario)


def test_a_topic_on_one_broker_is_mended_in_a_way_back() -> None:
    from roquette.admin.doctor.findings import apply_remedies, remedies_of

    async def scenario(ward: Ward) -> None:
        await ward.create("half", queues=3, broker="broker-a")
        finding = await one(ward, "RQ-D005")
        assert finding.evidence == "on broker-a, not on broker-b"
        assert len(typed(finding.fix)) == 1
        (remedy,) = remedies_of([finding])
        assert await ward.run(apply_remedies([remedy])) == [""]
        await asyncio.sleep(1)
        assert await ward.findings() == []

    nurse(scenario)


def test_a_topic_that_came_back_with_its_broker() -> None:
    async def scenario(ward: Ward) -> None:
        await ward.send(16)
        await asyncio.sleep(5)
        ward.cluster.kill(B)
        await asyncio.sleep(150)  # until the name servers have dropped it
        await ward.run(delete_topic(ward.mq.session.name_servers, "orders"))
        await ward.cluster.restart(B)
        await asyncio.sleep(40)
        finding = await one(ward, "RQ-D006")
        assert finding.evidence.startswith("on broker-b, not on broker-a; last written 1")
        await cured(ward, finding)

    nurse(scenario)


def test_two_clients_with_one_id() -> None:
    async def scenario(ward: Ward) -> None:
        for ip in CONSUMERS:
            await ward.consumer(ip, client={"local_host": "172.17.0.2", "instance_name": "1"})
        await asyncio.sleep(60)
        found = await ward.findings(APART_S)
        assert {finding.code for finding in found} == {"RQ-D008"}
        assert {finding.severity for finding in found} == {Severity.ERROR}
        assert "2 connections at broker-a: 172.17.0.2:" in found[0].evidence

    nurse(scenario)


def test_members_that_subscribe_differently() -> None:
    async def scenario(ward: Ward) -> None:
        for ip, tags in zip(CONSUMERS, ("a", "b"), strict=True):
            await ward.consumer(ip, tag=tags)
        await asyncio.sleep(60)
        assert "orders: a" in (await one(ward, "RQ-D009")).evidence

    nurse(scenario)


def test_a_handler_that_never_returns_stalls_its_queues() -> None:
    async def scenario(ward: Ward) -> None:
        async def forever(message: ReceivedMessage) -> None:
            await asyncio.Event().wait()

        await ward.consumer(CONSUMERS[0], forever)
        await ward.send(16)
        await asyncio.sleep(10)
        finding = await one(ward, "RQ-D012", APART_S)
        assert finding.subject == "group g, topic orders"
        assert "16 messages wait" in finding.evidence

    nurse(scenario)


def test_lag_that_grows() -> None:
    async def scenario(ward: Ward) -> None:
        async def slow(message: ReceivedMessage) -> None:
            await asyncio.sleep(2)

        await ward.consumer(CONSUMERS[0], slow, concurrency=1)
        await ward.send(40)
        await asyncio.sleep(30)

        async def produce() -> None:
            while True:
                await ward.send(10)
                await asyncio.sleep(1)

        task = asyncio.get_running_loop().create_task(produce())
        assert "messages in 40 s" in (await one(ward, "RQ-D016", APART_S)).evidence
        task.cancel()

    nurse(scenario)


def test_dead_letters() -> None:
    async def scenario(ward: Ward) -> None:
        def fails(message: ReceivedMessage) -> bool:
            return False

        await ward.consumer(CONSUMERS[0], fails, max_reconsume_times=0)
        await ward.send(3)
        await asyncio.sleep(20)
        assert (await one(ward, "RQ-D017")).subject == "group g"

    nurse(scenario)


def test_a_filter_that_nothing_passes() -> None:
    async def scenario(ward: Ward) -> None:
        await ward.consumer(CONSUMERS[0], tag="a")
        await ward.send(400, tag="b")
        await asyncio.sleep(20)
        finding = await one(ward, "RQ-D014")
        assert "filter a: none of the newest 32 messages" in finding.evidence
        for queue in await ward.mq.queues("orders"):
            await ward.mq.send("orders", b"x", tag="a", queue=queue)
        assert await ward.findings() == []

    nurse(scenario)


def test_an_offset_beyond_the_end() -> None:
    async def scenario(ward: Ward) -> None:
        client = await ward.consumer(CONSUMERS[0])
        await ward.send(16)
        await asyncio.sleep(10)
        await ward.cluster.run_on(CONSUMERS[0], client.close())
        queue = MessageQueue("orders", "broker-a", 2)
        await ward.mq.session.api.call(f"{A}:10911", calls.commit("g", queue, 999))
        finding = await one(ward, "RQ-D015")
        assert "broker-a/2; the first is at 999" in finding.evidence
        await cured(ward, finding)

    nurse(scenario)


def test_a_clock_that_somebody_set() -> None:
    async def scenario(ward: Ward) -> None:
        ward.cluster.set_clock(B, 90_000)
        await asyncio.sleep(20)  # until its timers have caught up
        finding = await one(ward, "RQ-D026")
        assert finding.subject == "broker broker-b"
        ward.cluster.set_clock(B, 0)
        await asyncio.sleep(20)
        assert await ward.findings() == []
        ward.cluster.set_clock(OPERATOR, -30_000)
        assert (await one(ward, "RQ-D026")).subject == "this machine"

    nurse(scenario)


def test_limits_of_disk_apart() -> None:
    async def scenario(ward: Ward) -> None:
        finding = await one(ward, "RQ-D021")
        assert finding.subject == "cluster DefaultCluster, diskMaxUsedSpaceRatio"
        await cured(ward, finding)

    nurse(scenario, store_b={"disk_max_used_ratio": 90})


def test_no_name_server_at_all_is_an_error() -> None:
    async def scenario(ward: Ward) -> None:
        ward.cluster.kill(N1)
        ward.cluster.kill(N2)
        with pytest.raises(ClientError):
            await ward.look()

    nurse(scenario)


def test_a_consumer_that_stands_still() -> None:
    async def scenario(ward: Ward) -> None:
        for ip in CONSUMERS:
            await ward.consumer(ip)
        await asyncio.sleep(30)
        ward.cluster.pause(CONSUMERS[0], 60)
        finding = await one(ward, "RQ-D034")
        assert "connected from 10.0.4.1" in finding.evidence
        await asyncio.sleep(90)
        assert await ward.findings() == []

    nurse(scenario)


def test_a_closed_cluster_tells_its_operator_all_and_a_stranger_nothing() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.access = CLOSED
        ward = Ward(cluster)
        await ward.build(credentials=ROOT)
        assert await ward.findings() == []
        ward.mq = await cluster.client("10.0.2.9")
        with pytest.raises(BrokerError, match="username cannot be null"):
            await ward.look()

    simulate(main)


def test_a_container_address() -> None:
    async def scenario(ward: Ward) -> None:
        await ward.cluster.add_broker("10.0.1.3", "broker-c", broker_ip1="172.17.0.2", **SETTINGS)
        assert "advertised 172.17.0.2:10911" in (await one(ward, "RQ-D002")).evidence

    nurse(scenario)


def test_retries_of_a_group_nobody_knows() -> None:
    async def scenario(ward: Ward) -> None:
        await ward.mq.session.api.call(f"{A}:10911", calls.create_topic("%RETRY%gone", queues=1))
        finding = await one(ward, "RQ-D007")
        assert finding.subject == "topic %RETRY%gone"
        await cured(ward, finding)

    nurse(scenario)


def test_queues_that_nobody_takes() -> None:
    async def scenario(ward: Ward) -> None:
        def nothing(own: str, members: object, queues: object) -> list[MessageQueue]:
            return []

        await ward.consumer(CONSUMERS[0])
        await ward.consumer(CONSUMERS[1], strategy=nothing)
        await ward.send(16)
        await asyncio.sleep(30)
        finding = await one(ward, "RQ-D010", APART_S)
        assert "4 queues without a consumer among 2 members" in finding.evidence

    nurse(scenario)


def test_more_consumers_than_queues() -> None:
    async def scenario(ward: Ward) -> None:
        await ward.create("small", queues=1)
        for number in range(3):
            await ward.consumer(f"10.0.4.{number}", topic="small")
        await asyncio.sleep(30)
        found = {finding.code: finding for finding in await ward.findings(notes=True)}
        assert found["RQ-D011"].evidence == "3 members, 2 queues in its largest topic"
        assert found["RQ-D011"].severity is Severity.NOTE
        await cured(ward, found["RQ-D011"])
        await asyncio.sleep(60)
        assert "RQ-D011" not in {finding.code for finding in await ward.findings(notes=True)}

    nurse(scenario)


def test_queues_under_a_lock_of_somebody_who_is_gone() -> None:
    async def scenario(ward: Ward) -> None:
        queues = await ward.mq.queues("orders")

        async def hold() -> None:
            while True:
                for ip, name in ((A, "broker-a"), (B, "broker-b")):
                    mine = [queue for queue in queues if queue.broker_name == name]
                    await ward.mq.session.api.call(f"{ip}:10911", calls.lock("g", "ghost", mine))
                await asyncio.sleep(20)

        task = asyncio.get_running_loop().create_task(hold())
        await asyncio.sleep(1)
        await ward.consumer(CONSUMERS[0], orderly=True)
        await ward.send(16)
        await asyncio.sleep(30)
        finding = await one(ward, "RQ-D013", APART_S)
        assert "8 queues locked by somebody else" in finding.evidence
        task.cancel()

    nurse(scenario)


def test_a_full_disk_refuses_messages_and_keeps_delayed_ones_back() -> None:
    async def scenario(ward: Ward) -> None:
        queues = [q for q in await ward.mq.queues("orders") if q.broker_name == "broker-a"]
        for _ in range(5):
            await ward.mq.send("orders", b"x", queue=queues[0], delay_level=3)
        files = ward.cluster.hosts[A].files
        total, free = files.disk_usage("/store")
        files.set_capacity(total - free)
        await asyncio.sleep(60)
        found = {finding.code: finding for finding in await ward.findings()}
        assert found.keys() == {"RQ-D018", "RQ-D020", "RQ-D032"}
        assert "level 3: 5 messages are due and wait" in found["RQ-D018"].evidence
        files.set_capacity(total)
        await asyncio.sleep(60)
        assert await ward.findings() == []

    nurse(scenario)


def test_a_transaction_nobody_ends() -> None:
    async def scenario(ward: Ward) -> None:
        producer = await ward.cluster.client("10.0.3.1", group="shop")
        producer.on_check("orders", lambda message: None)
        await ward.cluster.run_on("10.0.3.1", producer.transaction("orders", b"x").__aenter__())
        await asyncio.sleep(60)
        assert await ward.findings() == []
        ward.cluster.kill("10.0.3.1")
        await asyncio.sleep(120)
        assert "was begun 18" in (await one(ward, "RQ-D019")).evidence

    nurse(scenario)


def test_what_the_cluster_is_to_be() -> None:
    async def scenario(ward: Ward) -> None:
        assert await ward.codes(Intent(none_lost=True)) == {"RQ-D023"}
        assert await ward.codes(Intent(production=True)) == {"RQ-D025"}
        await ward.cluster.add_broker("10.0.1.3", "broker-c")
        found = await ward.codes(Intent(production=True))
        assert found == {"RQ-D005", "RQ-D024", "RQ-D025"}

    nurse(scenario)


def test_somebody_who_speaks_something_else() -> None:
    async def scenario(ward: Ward) -> None:
        before = asyncio.get_running_loop().create_task(ward.findings(5))
        await asyncio.sleep(2)
        _, writer = await asyncio.open_connection(A, 10911)
        writer.write(b"EHLO mail.example.org\r\n")
        (finding,) = await before
        assert (finding.code, finding.subject) == ("RQ-D028", "broker broker-a")
        assert "1 connection in 5 s" in finding.evidence

    nurse(scenario)


def test_a_task_that_fails() -> None:
    thrower = Thrower()

    async def scenario(ward: Ward) -> None:
        looks = asyncio.get_running_loop().create_task(ward.findings(APART_S))
        await asyncio.sleep(2)
        thrower.choose(A, "delay-levels", 1)
        (finding,) = await looks
        assert (finding.code, finding.subject) == ("RQ-D029", "broker broker-a, task delay-levels")
        assert "1 failures" in finding.evidence

    nurse(scenario, thrower=thrower)
