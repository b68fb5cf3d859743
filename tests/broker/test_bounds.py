"""Class H: each table of a broker whose keys peers choose is filled by requests to its bound and beyond.

`FILLS` has a row for each bound of `BrokerBounds`; one without a row fails. A row's request is sent with new names until the bound
is reached, and ten times more: these are refused in words, the table does not grow, and the first names go on.
"""

import asyncio
import itertools
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from roquette.base import executor
from roquette.base.bounds import Bound
from roquette.base.lifecycle import Tasks
from roquette.broker.floor.config_files import ConfigFiles, Saver
from roquette.broker.floor.feature import encode_rows
from roquette.broker.floor.table_files import TablePersistence
from roquette.broker.floor.tables.bounds import NAME, BoundSettings, BrokerBounds
from roquette.broker.pop.assignment import AssignmentFeature
from roquette.broker.pop.feature import PopFeature
from roquette.broker.timers.feature import TimerFeature
from roquette.wire.bodies import TopicConfig, TopicConfigSerializeWrapper
from roquette.wire.json_body import decode_body
from roquette_testing.faulty_files import FaultyFiles
from roquette_testing.sim_loop import run

from .pop_frames import pop_ext

BEYOND = 10
COUNTED_ONLY = ("pulled", "counted", "timer_topics")  # what is shown; nothing is refused for it


def body(value: Any) -> bytes:
    return json.dumps(value).encode()


def beat(client_id: str, *, producers=(), consumers=(), topic="T") -> bytes:
    return body(
        {
            "clientID": client_id,
            "producerDataSet": [{"groupName": name} for name in producers],
            "consumerDataSet": [
                {
                    "groupName": name,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1}],
                }
                for name in consumers
            ],
        }
    )


async def pull(case, client, number):
    return await client.pull("T", 0, 99, consumerGroup=f"g{number}", sysFlag=4)


async def pull_found(case, client, number):
    return await client.pull("T", 0, 0, consumerGroup=f"g{number}")


async def send(case, client, number):
    return await client.produce(f"t{number}")


async def send_later(case, client, number):
    named = {"TIMER_DELAY_SEC": "100"}
    reply = await client.produce(f"t{number}", properties=named)
    await asyncio.sleep(1)  # it is on its way into the wheel then
    return reply


async def consumer_beat(case, client, number):
    return await client.call(34, {}, beat("c", consumers=[f"g{number}"]))


async def producer_beat(case, client, number):
    return await client.call(34, {}, beat("c", producers=[f"g{number}"]))


async def commit(case, client, number):
    await client.pull("T", 0, 99, consumerGroup=f"g{number}", sysFlag=4)  # makes the group
    ext = {"consumerGroup": f"g{number}", "topic": "T", "queueId": 0, "commitOffset": 1}
    return await client.call(15, ext)


async def forbid(case, client, number):
    return await client.call(353, {"group": f"g{number}", "topic": "T", "readable": "false"})


async def set_mode(case, client, number):
    mode = {"topic": "T", "consumerGroup": f"g{number}", "mode": "POP"}
    return await client.call(401, {}, body(mode))


async def pop_in_order(case, client, number):
    ext = pop_ext(case.clock.now_ms(), consumerGroup=f"g{number}", order="true", queueId=0)
    return await client.call(200050, ext)


async def lock(case, client, number):
    queue = {"topic": "T", "brokerName": "broker-a", "queueId": number}
    request = {"consumerGroup": "g", "clientId": "c", "mqSet": [queue]}
    return await client.call(41, {}, body(request))


async def set_threshold(case, client, number):
    return await client.call(2001, {}, f"g{number}=100\n".encode())


async def delete(case, client, number):
    await client.produce(f"t{number}")
    return await client.call(215, {"topic": f"t{number}"})


def timer_topics(case) -> dict[str, Any]:
    return case.broker.feature(TimerFeature).timer.metrics.to_wrapper(0).timing_count


def retry_topics(case) -> int:
    return sum(t.name.startswith(("%RETRY%", "%DLQ%")) for t in case.broker.tables.topics.all())


def pairs_of(table: dict[str, dict[Any, Any]]) -> int:
    return sum(map(len, table.values()))


Fill = Callable[[Any, Any, int], Awaitable[Any]]
FILLS: dict[str, tuple[Fill, Callable[[Any], int]]] = {
    "groups": (pull, lambda c: len(c.broker.tables.groups.all())),
    "topics": (send, lambda c: len(c.broker.tables.topics.all()) - retry_topics(c)),
    "retry_topics": (consumer_beat, retry_topics),
    "offsets": (commit, lambda c: pairs_of(c.broker.tables.offsets._offsets)),
    "pulled": (pull, lambda c: len(c.broker.tables.offsets.pulled_pairs())),
    "forbidden": (forbid, lambda c: pairs_of(c.broker.tables.groups._forbidden)),
    "modes": (set_mode, lambda c: pairs_of(c.broker.feature(AssignmentFeature).modes._modes)),
    "orderly": (pop_in_order, lambda c: pairs_of(c.broker.feature(PopFeature).pop.orders._table)),
    "producers": (producer_beat, lambda c: len(c.broker.tables.producers)),
    "consumers": (consumer_beat, lambda c: len(c.broker.tables.consumers)),
    "locks": (lock, lambda c: pairs_of(c.broker.tables.locks._locks)),
    "thresholds": (set_threshold, lambda c: len(c.broker.tables.cold_reads.thresholds)),
    "counted": (pull_found, lambda c: len(c.broker.core.stats.group_gets)),
    "timer_topics": (send_later, lambda c: len(timer_topics(c))),
    "deleted": (delete, lambda c: len(c.broker.feature(TablePersistence).deleted._ends)),
}


def bounds_by_name() -> Iterator[tuple[str, Bound]]:
    for name, bound in vars(BrokerBounds(BoundSettings)).items():
        if isinstance(bound, Bound):
            yield name, bound


@pytest.mark.promise("Bounds", "a full table refuses new names in words and serves what it has")
@pytest.mark.parametrize("name", [name for name, _ in bounds_by_name()])
def test_a_full_table_refuses_in_words_and_serves_what_it_has(run_broker, name, caplog):
    fill, size = FILLS[name]

    async def scenario(case):
        client = await case.client()
        await client.produce("T")
        bound: Bound = getattr(case.broker.live.bounds, name)
        before = size(case)
        bound.most = before + 10
        replies = [await fill(case, client, number) for number in range(10 + BEYOND)]
        assert size(case) == before + 10
        for reply in replies[:10]:
            assert "no room" not in (reply.remark or ""), reply.remark
        assert bound.refused >= BEYOND
        for number, reply in enumerate(replies[10:], 10):
            if name in COUNTED_ONLY:
                assert reply.code == replies[0].code
                continue
            assert f"there is no room for more {bound.what} than {bound.most}: " in reply.remark
            if name not in ("producers", "consumers", "retry_topics"):  # in a heartbeat's remark
                assert reply.code in (1, 2, 17, 26), number
        if name != "deleted":  # known names go on, in the full table
            for number in (0, 9):
                again = await fill(case, client, number)
                assert again.code in (replies[number].code, 210 if name == "orderly" else 0)
                assert "no room" not in (again.remark or "")
        shown = json.loads((await client.call(28, {})).body)["table"]["refusedNames"]
        assert f"{bound.what.replace(' ', '_')}={bound.refused}" in shown.split()
        with caplog.at_level(logging.WARNING):
            await asyncio.sleep(11)
        lines = [r.getMessage() for r in caplog.records if bound.words() in r.getMessage()]
        assert len(lines) == 1
        assert size(case) <= before + 10

    run_broker(scenario, store={"timer_wheel_enable": True})


def test_every_bound_has_a_remedy_and_a_row():
    rows = dict(bounds_by_name())
    assert rows.keys() == FILLS.keys()
    for name, bound in rows.items():
        assert bound.remedy, name
        assert 10_000 <= bound.most <= 1_000_000, name


# The other ways to a new group, topic or offset, with the table full.


async def send_back(case, client, number):
    offset = int(case.ext(await client.produce("T"))["msgId"][-16:], 16)
    return await client.call(36, {"offset": offset, "group": f"g{number}", "delayLevel": 0})


async def retry_send(case, client, number):
    return await client.produce(f"%RETRY%g{number}", c="")


async def pop(case, client, number):
    return await client.call(
        200050, pop_ext(case.clock.now_ms(), consumerGroup=f"g{number}", queueId=0)
    )


async def pull_and_commit(case, client, number):
    return await client.pull("T", 0, 1, consumerGroup=f"g{number}", sysFlag=5, commitOffset=1)


async def made_elsewhere(case, client, number):
    ext = {
        "topic": f"t{number}", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1,
        "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        "autoCreated": "true",
    }  # fmt: skip
    return await client.call(17, ext)


async def make_topic(case, client, number):
    ext = {
        "topic": f"t{number}", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1,
        "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    return await client.call(17, ext)


async def make_topics(case, client, number):
    one = {"topicName": f"t{number}", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    return await client.call(18, {}, body({"topicConfigList": [one]}))


async def make_group(case, client, number):
    return await client.call(200, {}, body({"groupName": f"g{number}"}))


async def make_groups(case, client, number):
    return await client.call(225, {}, body({"groupConfigList": [{"groupName": f"g{number}"}]}))


async def reset(case, client, number):
    ext = {
        "topic": "T", "group": f"g{number}", "queueId": 0, "offset": 1, "timestamp": -1,
        "isForce": "true",
    }  # fmt: skip
    return await client.call(222, ext)


async def clone(case, client, number):
    ext = {"srcGroup": "source", "destGroup": f"x{number}", "topic": "T", "offline": "true"}
    return await client.call(314, ext)


WAYS = [
    ("groups", pull, False),
    ("groups", consumer_beat, False),
    ("groups", send_back, False),
    ("groups", pop, False),
    ("groups", set_mode, False),
    ("groups", make_group, True),
    ("groups", make_groups, True),
    ("topics", send, False),
    ("topics", made_elsewhere, False),
    ("topics", make_topic, True),
    ("topics", make_topics, True),
    ("retry_topics", consumer_beat, False),
    ("retry_topics", send_back, False),
    ("retry_topics", retry_send, False),
    ("offsets", commit, False),
    ("offsets", pull_and_commit, False),
    ("offsets", pop, False),
    ("offsets", pop_in_order, False),
    ("offsets", reset, True),
    ("offsets", clone, True),
]


@pytest.mark.parametrize(
    ("name", "way", "operators"), WAYS, ids=[f"{name}-{way.__name__}" for name, way, _ in WAYS]
)
def test_each_way_to_a_new_name_meets_the_bound(run_broker, name, way, operators):
    """Clients' ways end at the bound, operators' at twice as many."""
    _, size = FILLS[name]

    async def scenario(case):
        client = await case.client()
        await client.produce("T")
        for number in range(40 if way is reset else 0):
            await client.call(200, {}, body({"groupName": f"g{number}"}))
        await client.call(200, {}, body({"groupName": "source"}))
        source = {"consumerGroup": "source", "topic": "T", "queueId": 0, "commitOffset": 1}
        assert (await client.call(15, source)).code == 0
        bound: Bound = getattr(case.broker.live.bounds, name)
        bound.most = size(case) + 3
        most = bound.most * (2 if operators else 1)
        refused = 0
        for number in range(most - size(case) + BEYOND):
            reply = await way(case, client, number)
            if "no room" in (reply.remark or ""):
                refused += 1
                assert size(case) == most
        assert refused == BEYOND
        assert (await client.produce("T")).code == 0
        assert (await client.pull(consumerGroup="source")).code == 0
        assert (await client.call(15, source | {"commitOffset": 2})).code == 0

    run_broker(scenario)


# What a stranger's table does to the rest.


def test_a_connection_has_its_own_bound_and_long_names_no_place(run_broker):
    async def scenario(case):
        client, other = await case.client(), await case.client()
        for table, kind in (
            (case.broker.tables.producers, "producers"),
            (case.broker.tables.consumers, "consumers"),
        ):
            table.of_peer = 5
            names = [f"{kind}{number}" for number in range(8)]
            reply = await client.call(34, {}, beat("c", **{kind: names}))
            assert reply.code == 0
            assert reply.remark.startswith("3 groups are not registered; ")
            assert len(table) == 5
            reply = await other.call(34, {}, beat("c2", **{kind: names[5:]}))
            assert (reply.code, reply.remark, len(table)) == (0, None, 8)
        await client.call(34, {}, beat("x" * (NAME + 1), producers=["p"], consumers=["g"]))
        long = {"topic": "T" * (NAME + 1), "brokerName": "b", "queueId": 0}
        request = {"consumerGroup": "g", "clientId": "c", "mqSet": [long]}
        reply = await client.call(41, {}, body(request))
        assert json.loads(reply.body or b"{}").get("lockOKMQSet", []) == []
        assert (len(case.broker.tables.producers), len(case.broker.tables.consumers)) == (8, 8)
        assert len(case.broker.tables.locks) == 0
        client.writer.close()
        other.writer.close()
        await asyncio.sleep(1)
        assert len(case.broker.tables.producers) == len(case.broker.tables.consumers) == 0

    run_broker(scenario)


def test_a_known_group_goes_on_with_its_other_queues_in_a_full_table(run_broker):
    async def scenario(case):
        client = await case.client()
        await client.produce("T")
        bound = case.broker.live.bounds.offsets
        await commit(case, client, 0)
        bound.most = 2
        await commit(case, client, 1)
        ext = {"consumerGroup": "g0", "topic": "T", "commitOffset": 1}
        codes = [(await client.call(15, ext | {"queueId": q})).code for q in range(6)]
        assert codes == [0, 0, 0, 2, 2, 2]
        assert (await commit(case, client, 2)).code == 2
        await client.call(207, {"groupName": "g1", "cleanOffset": "true"})
        await client.call(207, {"groupName": "g0", "cleanOffset": "true"})
        assert (await commit(case, client, 2)).code == 0

    run_broker(scenario)


def test_a_popped_message_comes_back_though_no_topic_can_be_made(run_broker):
    """What the broker owes is delivered: POP's retry topics are made in the full table."""

    async def scenario(case):
        client = await case.client()
        await client.produce("T", body=b"again")
        await pop(case, client, 0)
        case.broker.live.bounds.retry_topics.most = retry_topics(case) or 1
        while retry_topics(case) < case.broker.live.bounds.retry_topics.most:
            await client.produce("%RETRY%g0", c="")
        await asyncio.sleep(30)
        ext = pop_ext(case.clock.now_ms(), consumerGroup="g0")
        assert b"again" in (await client.call(200050, ext)).body

    run_broker(scenario)


def test_new_groups_write_their_file_once_a_second(run_broker, monkeypatch):
    """Nobody waits for a group that a client made; what operators say is written before it is answered."""
    written: list[str] = []
    write = ConfigFiles.write

    def note(self, name, data):
        written.append(name)
        write(self, name, data)

    monkeypatch.setattr(ConfigFiles, "write", note)

    async def scenario(case):
        client = await case.client()
        await client.produce("T")
        began = case.loop.time()
        for number in range(200):
            await pull(case, client, number)
            await asyncio.sleep(0.02)
            assert len(case.broker.tasks) < 60
        passed = case.loop.time() - began
        assert 3 <= written.count("subscriptionGroup.json") <= passed + 1
        await asyncio.sleep(1.1)
        files = written.count("subscriptionGroup.json")
        text = case.broker.core.files.load("subscriptionGroup.json", dict)
        assert "g199" in text["subscriptionGroupTable"]
        assert (await make_group(case, client, 900)).code == 0
        assert written.count("subscriptionGroup.json") == files + 1
        for number in range(300):  # topics at once: few tasks, few files
            client.send(310, case.send_ext(f"t{number}", properties={}), b"x")
        await asyncio.sleep(1)
        assert written.count("topics.json") < 30
        assert len(case.broker.tasks) < 60

    run_broker(scenario)


def test_a_great_file_is_followed_by_a_pause():
    """0.2 s for each MB; what changes meanwhile goes with the next, and there is one task."""

    async def main(loop):
        saved, size = [], 2_000_000

        class Files:
            async def encode_beside(self, name, value):
                return bytes([value]) * size

            def write(self, name, data):
                saved.append((loop.time(), data[0]))

        state = {"n": 0}
        saver = Saver(Files(), "x", lambda: state["n"], frozen=True)
        tasks = Tasks()
        for number in range(100):
            state["n"] = number
            saver.soon(tasks)
            await asyncio.sleep(0.05)
            assert len(tasks) <= 1
        await asyncio.sleep(1)
        assert 8 <= len(saved) <= 14
        assert saved[-1][1] == 99
        assert all(b[0] - a[0] >= 0.39 for a, b in itertools.pairwise(saved))
        assert not saver.dirty
        assert len(tasks) == 0
        state["n"], before = 7, loop.time()
        saver.mark()
        await saver.confirm()  # who waits does so as long as the write took, about
        assert loop.time() - before < 0.2
        assert saved[-1][1] == 7
        size = 40_000_000
        state["n"] = 8
        saver.mark()
        await saver.confirm()
        before = loop.time()
        saver.mark()
        await saver.confirm()  # but for a second at most
        assert 0.9 < loop.time() - before < 1.1

    run(main, 1)


def test_a_great_table_is_encoded_a_few_rows_at_a_time(monkeypatch):
    """Beside the loop, which waits for the interpreter as long as one call of a worker thread computes."""
    submit, calls = executor.submit, []

    def counted(call, *args):
        calls.append(0)
        return submit(call, *args)

    class Rows(dict):
        def items(self):
            for pair in super().items():
                calls[-1] += 1
                yield pair

    monkeypatch.setattr(executor, "submit", counted)
    topics = {f"t{n}": TopicConfig(f"t{n}") for n in range(2_000)}

    async def main(loop):
        files = ConfigFiles(FaultyFiles(), "/config")
        saver = Saver(
            files, "topics.json", lambda: TopicConfigSerializeWrapper(Rows(topics)), frozen=True
        )
        saver.mark()
        await saver.save()
        rows = sum(calls)
        assert 0 < max(calls) < 200
        found = files.load("topics.json", TopicConfigSerializeWrapper)
        assert found.topic_config_table == topics
        assert rows == len(topics)
        calls.clear()
        answer = await encode_rows(TopicConfigSerializeWrapper(Rows(topics)), len(topics))
        assert decode_body(TopicConfigSerializeWrapper, answer).topic_config_table == topics
        assert (0 < max(calls) < 300, sum(calls)) == (True, len(topics))

    run(main, 1)


def test_hashes_of_keys_that_are_kept_have_a_bound(run_broker):
    async def scenario(case):
        client = await case.client()
        for number in range(300):
            for tag in (f"tag-{number}", f"{number}-" + "x" * 5_000):
                reply = await client.produce("T", properties={"TAGS": tag, "WAIT": "false"})
                assert reply.code == 0
        keys = case.broker.store._queues.topics["T"].keys
        assert len(keys._known) <= 64
        found = await client.pull("T", 0, 0, subscription="0-" + "x" * 5_000)
        assert (found.code, found.body.count(b"0-xxxx")) == (0, 1)

    run_broker(scenario)


def test_a_lost_connection_rebalances_its_groups_though_one_is_deleted_and_the_table_full(
    run_broker,
):
    async def scenario(case):
        client, other = await case.client(), await case.client()
        names = ["a", "b", "c"]
        await client.call(34, {}, beat("c1", consumers=names))
        await other.call(34, {}, beat("c2", consumers=names))
        await client.call(207, {"groupName": "a"})
        case.broker.live.bounds.groups.most = len(case.broker.tables.groups.all())
        await asyncio.sleep(1)
        other.unread.clear()
        client.writer.close()
        await asyncio.sleep(1)
        other.send(38, {"consumerGroup": "b"})
        told = []
        while (command := await other.receive()).code == 40:
            told.append(case.ext(command)["consumerGroup"])
        assert told[-3:] == names
        assert case.broker.tables.groups.known("a") is None

    run_broker(scenario)
