"""Class H at the name server: each table is filled by requests to its bound and beyond. See tests/broker/test_bounds.py."""

import asyncio
import dataclasses
import json
import logging

import pytest

from roquette.base.bounds import Bound
from roquette.nameserver.floor.config import NAME, NameServerBounds
from roquette.wire.header_codec import encode_dict

from .test_service import Case, body_of, namesrv  # noqa: F401 - a fixture

ANOTHER = {"brokerName": "known", "brokerAddr": "10.0.9.9:10911"}


async def broker(case: Case, number: int):
    return await case.register(brokerName=f"b{number}", brokerAddr=f"10.1.0.{number}:10911")


async def cluster(case: Case, number: int):
    return await case.register(clusterName=f"c{number}")


async def one_topic(case: Case, number: int):
    names = (f"t{n}" for n in range(number + 1))
    return await case.register(body_of("T", "U", *names, counter=number))


async def by_operator(case: Case, number: int):
    route = {"queueDatas": [{"brokerName": "known", "readQueueNums": 1, "writeQueueNums": 1}]}
    return await case.call(217, json.dumps(route).encode(), topic=f"t{number}")


async def mapped(case: Case, number: int):
    info = {f"t{number}": {"topic": f"t{number}", "bname": "broker-a", "totalQueues": 1}}
    wrapper = {
        "topicConfigTable": {"T": {"topicName": "T"}, "U": {"topicName": "U"}},
        "topicQueueMappingInfoMap": info,
        "dataVersion": {"counter": number + 1, "stateVersion": 0, "timestamp": 0},
    }
    return await case.register(json.dumps({"topicConfigSerializeWrapper": wrapper}).encode())


async def watch(case: Case, number: int):
    topics = [f"w{n}" for n in range(number + 1)]
    return await case.call(13005, json.dumps({"topicList": topics}).encode())


async def key(case: Case, number: int):
    return await case.call(100, namespace="n", key=f"k{number:02}", value="v" * 7)


async def namespace(case: Case, number: int):
    return await case.call(100, namespace=f"n{number}", key="k", value="v")


async def put_and_delete(case: Case, number: int):
    reply = await namespace(case, number)
    await case.call(102, namespace=f"n{number}", key="k")
    return reply


def told(case: Case) -> int:
    return sum(map(len, case.server.core.routes._told.values()))


def kv_entries(case: Case) -> int:
    table = case.server.core.kv._table
    return len(table) + sum(map(len, table.values()))


def kv_size(case: Case) -> int:
    table = case.server.core.kv._table
    return sum(len(n) + sum(len(k) + len(v) for k, v in t.items()) for n, t in table.items())


def mappings(case: Case) -> int:
    return sum(map(len, case.server.core.routes._mappings.values()))


# bound, request, size of the table, what one request adds
FILLS = [
    ("brokers", broker, lambda c: len(c.server.core.routes.live), 1),
    ("brokers", cluster, lambda c: len(c.server.core.routes.live), 1),
    ("topics", one_topic, told, 1),
    ("topics", by_operator, told, 1),
    ("mappings", mapped, mappings, 1),
    ("watches", watch, lambda c: len(c.server.core.routes.watches), 1),
    ("kv_entries", key, kv_entries, 1),
    ("kv_entries", namespace, kv_entries, 2),
    ("kv_entries", put_and_delete, kv_entries, 1),
    ("kv_characters", key, kv_size, 10),
]


@pytest.mark.promise("Bounds", "a full table refuses new names in words and serves what it has")
@pytest.mark.parametrize(
    ("name", "fill", "size", "step"), FILLS, ids=[f"{f[0]}-{f[1].__name__}" for f in FILLS]
)
def test_a_full_table_refuses_in_words_and_serves_what_it_has(
    namesrv,  # noqa: F811
    name,
    fill,
    size,
    step,
    caplog,
):
    async def scenario(case: Case):
        assert (await case.register(**ANOTHER)).code == 0
        assert (await case.call(100, namespace="n", key="known", value="v")).code == 0
        assert (await mapped(case, 99)).code == 0
        await case.register()
        bound: Bound = getattr(case.server.core.bounds, name)
        before = size(case)
        bound.most = before + 10 * step
        replies = [await fill(case, number) for number in range(20)]
        assert size(case) <= before + 10 * step
        assert bound.refused >= 9
        words = f"there is no room for more {bound.what} than {bound.most}: "
        refused = [reply for reply in replies if words in (reply.remark or "")]
        in_words = name not in ("mappings",) and fill is not by_operator
        assert len(refused) >= 9 * in_words
        if name == "topics":  # the broker stays, with the topics there is room for
            assert {reply.code for reply in replies} == {0}
            assert (await case.route("t3")).code == 0
            assert (await case.route("t15")).code == 17
        elif in_words:
            assert {reply.code for reply in refused} == {1}
        assert (await case.register(**ANOTHER)).code == 0, "known names go on"
        assert (await case.call(100, namespace="n", key="known", value="w")).code == 0
        assert (await case.route("T")).code == 0
        with caplog.at_level(logging.WARNING):
            await asyncio.sleep(6)
        assert any(bound.words() in record.getMessage() for record in caplog.records)

    namesrv(scenario)


def test_every_bound_has_a_remedy_and_a_row():
    assert {fill[0] for fill in FILLS} == set(vars(NameServerBounds()))
    assert all(bound.remedy for bound in NameServerBounds().all())


def test_room_for_topics_is_a_setting_that_holds_at_once(namesrv):  # noqa: F811
    async def scenario(case: Case):
        core = case.server.core
        assert core.bounds.topics.most == 1_000_000
        core.change(dataclasses.replace(core.config, max_registered_topics=6_000_000))
        assert core.bounds.topics.most == 6_000_000
        assert "maxRegisteredTopics" in core.bounds.topics.words()

    namesrv(scenario)


def test_what_goes_makes_room(namesrv):  # noqa: F811
    async def scenario(case: Case):
        bounds = case.server.core.bounds
        bounds.topics.most, bounds.brokers.most = 3, 1
        bounds.kv_entries.most = 2
        for _ in range(5):
            assert (await case.register(body_of("A", "B", "C"))).code == 0
            assert (await case.register(**ANOTHER)).code == 1
            assert (await case.call(100, namespace="n", key="k", value="v")).code == 0
            assert (await case.call(100, namespace="n", key="l", value="v")).code == 1
            ext = {
                "brokerName": "broker-a", "brokerAddr": "10.0.1.1:10911", "clusterName": "c",
                "brokerId": 0,
            }  # fmt: skip
            fields = encode_dict({k: str(v) for k, v in ext.items()})
            await case.broker.invoke("10.0.0.1:9876", 104, fields)
            assert told(case) == 0
            await case.call(102, namespace="n", key="k")

    namesrv(scenario)


def test_long_names_have_no_place(namesrv):  # noqa: F811
    async def scenario(case: Case):
        long = "x" * (NAME + 1)
        for changes in ({"brokerName": long}, {"clusterName": long}, {"haServerAddr": long}):
            reply = await case.register(**changes)
            assert reply.code == 1
            assert f"more than {NAME}" in reply.remark
        reply = await case.register(body_of("T", long))
        assert reply.remark.startswith("1 topics are left out: ")
        assert told(case) == 1

    namesrv(scenario)
