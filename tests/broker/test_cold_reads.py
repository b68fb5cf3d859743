"""Cold reads are limited by group: who waits, who is refused, what operators see and set (2001 to 2004)."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.test_setting_effects import beat, change

from roquette.base.bounds import unbounded
from roquette.broker.floor.tables.cold_reads import ADAPTIVE, ColdReads
from roquette.message.record import decode_records
from roquette_testing.embedded import ManualClock

SET, REMOVE, SHOW, READ_MODE = 2001, 2002, 2003, 2004
BUSY, ERROR = 2, 1
ALL_COLD = {"coldDataFlowControlEnable": "true", "accessMessageInMemoryHotRatio": 0}
HELD_BACK = "This consumer group is reading cold data. It has been flow control"


async def shown(client: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await client.call(SHOW, {})).body)
    return found


async def begin(case: Any, kind: str = "CONSUME_PASSIVELY") -> Any:
    """Four messages, and a consumer of group g."""
    client = await case.client()
    for number in range(4):
        await client.produce(body=b"m%d" % number)
    group = beat().replace(b"CONSUME_PASSIVELY", kind.encode())
    assert (await client.call(34, {}, group)).code == 0
    return client


def test_a_push_group_that_read_enough_is_refused_until_the_next_interval(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await begin(case)
        await change(client, cgColdReadThreshold=1, **ALL_COLD)
        first = await client.pull()
        assert (first.code, len(decode_records(first.body))) == (0, 4)
        refused = await client.pull()
        assert (refused.code, refused.remark) == (BUSY, HELD_BACK)
        found = await shown(client)
        reader = found["runtimeTable"]["g"]
        assert reader["coldAcc"] == found["globalAcc"] == len(first.body)
        assert reader["createTimeMills"] == reader["lastColdReadTimeMills"]
        await asyncio.sleep(5.1)
        assert (await client.pull()).code == 0
        assert (await client.pull(consumerGroup="other")).code == 0
        await change(client, globalColdReadThreshold=1, cgColdReadThreshold=1 << 20)
        assert (await client.pull()).code == BUSY, "all groups together have read too much"
        await change(client, coldDataFlowControlEnable="false")
        assert (await client.pull()).code == 0

    run_broker(scenario)


@pytest.mark.parametrize("kind", ["CONSUME_ACTIVELY", ""])
def test_a_pull_consumer_waits_and_gets_one_message(run_broker: Any, kind: str) -> None:
    async def scenario(case: Any) -> None:
        client = await begin(case, kind or "CONSUME_ACTIVELY")
        group = "g" if kind else "of-nobody"
        await change(client, cgColdReadThreshold=1, **ALL_COLD)
        await client.pull(consumerGroup=group)
        before = case.clock.now_ms()
        reply = await client.pull(consumerGroup=group)
        assert [record.body for record in decode_records(reply.body)] == [b"m0"]
        assert 3_000 <= case.clock.now_ms() - before < 3_300

    run_broker(scenario)


def test_the_hot_end_of_the_log_and_the_systems_groups_are_not_limited(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await begin(case)
        await change(client, cgColdReadThreshold=1, coldDataFlowControlEnable="true")
        for _ in range(3):
            assert (await client.pull()).code == 0
        assert (await shown(client))["runtimeTable"] == {}
        await change(client, **ALL_COLD)
        for _ in range(3):
            assert (await client.pull(consumerGroup="TOOLS_CONSUMER")).code == 0
        assert (await shown(client))["globalAcc"] == 0

    run_broker(scenario)


def test_nothing_read_is_shown_in_apaches_bytes(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        reply = await (await case.client()).call(SHOW, {})
        assert reply.body == (
            b'{"runtimeTable":{},"configTable":{},"cgColdReadThreshold":3145728,'
            b'"globalColdReadThreshold":104857600,"globalAcc":0}'
        )

    run_broker(scenario)


def test_an_operator_sets_and_removes_thresholds(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await begin(case)
        await change(client, cgColdReadThreshold=1, **ALL_COLD)
        reply = await client.call(SET, {}, b"g=4096\nh=-1\nwrong=1x\nlong=99999999999999999999\n")
        assert reply.code == 0
        found = await shown(client)
        assert found["configTable"] == {"g": 4096, "h": -1}
        assert found["cgColdReadThreshold"] == 1
        assert found["globalColdReadThreshold"] == 104_857_600
        assert [(await client.pull()).code for _ in range(2)] == [0, 0], "4096 bytes are not read"
        assert [(await client.call(REMOVE, {}, b"g")).code for _ in range(2)] == [0, 0]
        assert (await client.pull()).code == BUSY
        assert (await client.call(SET, {}, b"\xff")).code == ERROR

    run_broker(scenario)


def test_the_log_is_read_ahead_or_not(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await begin(case)
        log = case.broker.store._log
        for mode, ahead in (("1", False), ("0", True)):
            reply = await client.call(READ_MODE, {"READ_AHEAD_MODE": mode})
            assert (reply.code, reply.remark) == (
                0,
                f"set commitlog readahead mode success, mode: {mode}",
            )
            assert log.read_ahead is ahead
            text = (await client.call(26, {})).body.decode()
            assert f"dataReadAheadEnable={str(ahead).lower()}\n" in text
            assert (await client.pull()).code == 0
        wrong = [await client.call(READ_MODE, ext) for ext in ({"READ_AHEAD_MODE": "2"}, {})]
        assert [(reply.code, reply.remark) for reply in wrong] == [
            (ERROR, "set commitlog readahead mode param value error"),
            (ERROR, "set commitlog readahead mode failed"),
        ]
        assert log.read_ahead

    run_broker(scenario)


def test_nothing_of_pops_records_has_to_be_moved(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        assert (await (await case.client()).call(200056, {})).code == 0

    run_broker(scenario)


# The table, by itself


def settings(**more: Any) -> Any:
    usual = {
        "cg_cold_read_threshold": 100,
        "global_cold_read_threshold": 1000,
        "cold_ctr_strategy_enable": True,
        "use_pid_cold_ctr_strategy": False,
    }
    return SimpleNamespace(**usual | more)


def test_who_stops_reading_is_forgotten_after_a_minute() -> None:
    clock = ManualClock()
    cold = ColdReads(clock, unbounded())
    cold.count("g", 5)
    clock.advance(59_999)
    cold.end_interval(settings())
    assert cold.readers["g"].read == 0
    clock.advance(1)
    cold.end_interval(settings())
    assert not cold.readers


def test_the_brokers_own_thresholds_rise_and_fall() -> None:
    cold = ColdReads(ManualClock(), unbounded())
    for size, threshold in ((99, 100), (100, 150), (150, 225), (1001, 180), (1001, 144)):
        cold.count("g", size)
        cold.end_interval(settings())
        assert cold.threshold("g", settings()) == threshold
    for _ in range(5):
        cold.count("g", 1001)
        cold.end_interval(settings())
    assert cold.threshold("g", settings()) == 100, "never below the common one"
    cold.set_threshold("g", 7)
    assert cold.threshold("g", settings()) == 7
    cold.end_interval(settings(cold_ctr_strategy_enable=False))
    assert cold.thresholds == {"g": 7}


def test_with_memory_they_follow_ten_intervals() -> None:
    pid = settings(use_pid_cold_ctr_strategy=True)
    cold = ColdReads(ManualClock(), unbounded())
    for _ in range(9):
        cold.count("g", 200)
        cold.end_interval(pid)
        assert cold.thresholds == {}
    cold.count("g", 200)
    cold.end_interval(pid)
    assert cold.thresholds == {f"g{ADAPTIVE}": 150}, "less was read than is expected"
    for _ in range(10):
        cold.count("g", 5000)
        cold.end_interval(pid)
    assert cold.thresholds == {f"g{ADAPTIVE}": 100}
