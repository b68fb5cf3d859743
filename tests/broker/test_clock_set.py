"""The wall clock is set, forward and back: what waits a while waits that while, by steady time."""

import asyncio
import json
from typing import Any

import pytest
from tests.broker.pop_frames import ack, pop, pop_ext, popped
from tests.broker.test_timers import stored as records
from tests.broker.test_transactions import HALF, LOST, checks, prepare, register, stored

from roquette.broker.floor.clock import MAX_STEPS, StoredTimes
from roquette.broker.floor.tables.bounds import LEASE_MS

HOUR_MS = 3_600_000
JUMPS = [-2 * HOUR_MS, -700, HOUR_MS, 100 * 24 * HOUR_MS]
both_ways = pytest.mark.parametrize("jump_ms", JUMPS)


# How old a record is


def test_a_record_is_as_old_as_it_is_whatever_was_done_to_the_clock() -> None:
    times = StoredTimes(1_000_000, 50)
    times.begin(100)
    times.note(1_000_010 - 2 * HOUR_MS, 60, 200)  # back
    times.note(1_000_030 + HOUR_MS, 80, 300)  # forward

    assert times.moment(1_000_005, 150, 90) == 55
    assert times.moment(1_000_015 - 2 * HOUR_MS, 250, 90) == 65
    assert times.moment(1_000_035 + HOUR_MS, 350, 90) == 85


def test_what_a_former_life_left_is_as_old_as_stored_but_never_of_the_future() -> None:
    times = StoredTimes(1_000_000, 50)
    times.begin(100)

    assert times.moment(990_000, 99, 60) == 50 - 10_000
    assert times.moment(9_990_000, 99, 60) == 50


def test_a_time_read_just_before_the_clock_was_set_means_that_moment() -> None:
    times = StoredTimes(1_000_000, 50)
    times.note(1_000_010 - HOUR_MS, 60, 200)
    assert times.moment(1_000_009, 200, 70) == 60
    times.note(1_000_020 + HOUR_MS, 70, 300)
    assert times.moment(1_000_019 - HOUR_MS, 300, 75) == 70


def test_a_clock_that_was_set_ahead_by_less_than_a_step_makes_nothing_due_at_once() -> None:
    """What was stored in these milliseconds counted as old as the broker's life: a second's delay took none."""
    times = StoredTimes(1_000_000, 50)
    assert times.moment(1_050_028, 200, 50_050) == 50_050


def test_the_settings_kept_are_bounded() -> None:
    times = StoredTimes(0, 0)
    for number in range(1, 3 * MAX_STEPS):
        times.note(number * HOUR_MS, number, number * 10)

    newest = 3 * MAX_STEPS - 1
    assert times.moment(newest * HOUR_MS, newest * 10, newest) == newest
    assert times.moment(HOUR_MS, 10, newest) <= newest


# The broker


@pytest.mark.promise("Time", "a clock that is set moves no duration")
@both_ways
def test_a_delay_level_waits_its_delay(run_broker: Any, jump_ms: int) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        await client.produce(properties={"UNIQ_KEY": "before", "DELAY": "3"})  # 10 s
        await asyncio.sleep(4)
        case.clock.offset_ms += jump_ms
        await client.produce(properties={"UNIQ_KEY": "after", "DELAY": "3"})
        await asyncio.sleep(5.5)
        assert records(case.broker.store, "T", 0) == []
        await asyncio.sleep(1)
        assert len(records(case.broker.store, "T", 0)) == 1
        await asyncio.sleep(3)
        assert len(records(case.broker.store, "T", 0)) == 1
        await asyncio.sleep(1)
        assert len(records(case.broker.store, "T", 0)) == 2

    run_broker(scenario)


CHECKED = {"transaction_time_out": 6_000, "transaction_check_interval": 1_000}


@pytest.mark.promise("Time", "a clock that is set moves no duration")
@both_ways
def test_a_half_message_is_checked_when_its_time_is_over_and_not_discarded(
    run_broker: Any, jump_ms: int
) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        await register(client)
        await prepare(case, client)
        await asyncio.sleep(3)
        case.clock.offset_ms += jump_ms
        await asyncio.sleep(2.5)
        assert await checks(client) == []
        await asyncio.sleep(3)
        assert len(await checks(client)) >= 1
        await prepare(
            case, client, "k2", g=case.clock.now_ms() - jump_ms
        )  # a producer whose clock is right
        await asyncio.sleep(7)
        assert "k2" in {case.ext(check)["msgId"] for check in await checks(client)}
        assert await stored(client, LOST) == []
        assert case.broker.store.max_offset(HALF, 0) > 2

    run_broker(scenario, broker=CHECKED, store={"file_reserved_hours": 1})


@pytest.mark.promise("Time", "a clock that is set moves no duration")
@both_ways
def test_messages_popped_are_invisible_for_their_time(run_broker: Any, jump_ms: int) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        await client.produce(body=b"1")
        assert len(await pop(case, client)) == 1
        await asyncio.sleep(4)
        case.clock.offset_ms += jump_ms
        await asyncio.sleep(5.5)
        assert await pop(case, client) == []
        await asyncio.sleep(4)  # and the grace
        [again] = await pop(case, client)
        assert again.body == b"1"
        assert (await ack(client, again)).code == 0

    run_broker(scenario)


@both_ways
def test_an_orderly_pop_locks_its_queue_for_its_time(run_broker: Any, jump_ms: int) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        await client.produce(body=b"1")
        assert len(await pop(case, client, order="true")) == 1
        await asyncio.sleep(4)
        case.clock.offset_ms += jump_ms
        await asyncio.sleep(5.5)
        assert await pop(case, client, order="true") == []
        await asyncio.sleep(1)
        [message] = await pop(case, client, order="true")
        changed = message.ack_ext(invisibleTime=20_000)
        assert (await client.call(200053, changed)).code == 0
        case.clock.offset_ms -= jump_ms
        await asyncio.sleep(15)
        assert await pop(case, client, order="true") == []
        await asyncio.sleep(6)
        assert len(await pop(case, client, order="true")) == 1

    run_broker(scenario)


@pytest.mark.parametrize("ahead_ms", JUMPS)
def test_a_client_whose_clock_is_wrong_pops_and_waits_as_long_as_it_asks(
    run_broker: Any, ahead_ms: int
) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        await client.produce(body=b"0")
        assert len(await pop(case, client)) == 1
        began = case.loop.time()
        ext = pop_ext(case.clock.now_ms() + ahead_ms, pollTime=5_000)
        assert popped(await client.call(200050, ext)) == []
        assert 4.8 <= case.loop.time() - began <= 5.3

    run_broker(scenario)


@both_ways
def test_a_held_pull_is_answered_at_its_end(run_broker: Any, jump_ms: int) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        await client.produce(body=b"0")
        began = case.loop.time()
        case.loop.call_later(3, lambda: setattr(case.clock, "offset_ms", jump_ms))
        reply = await client.pull("T", 0, queueOffset=1, suspendTimeoutMillis=10_000, sysFlag=6)
        assert reply.code == 19
        assert 9.8 <= case.loop.time() - began <= 10.4

    run_broker(scenario)


@both_ways
def test_a_queue_lock_lives_its_lease(run_broker: Any, jump_ms: int) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        await client.produce(body=b"0")

        async def lock(client_id: str) -> list[Any]:
            queue = {"topic": "T", "brokerName": "broker-a", "queueId": 0}
            body = {"consumerGroup": "g", "clientId": client_id, "mqSet": [queue]}
            reply = await client.call(41, {}, json.dumps(body).encode())
            found: list[Any] = json.loads(reply.body)["lockOKMQSet"]
            return found

        assert len(await lock("a")) == 1
        await asyncio.sleep(20)
        case.clock.offset_ms += jump_ms
        await asyncio.sleep(LEASE_MS / 1000 - 21)
        assert await lock("b") == []
        await asyncio.sleep(2)
        assert len(await lock("b")) == 1

    run_broker(scenario)


@both_ways
def test_a_client_lives_by_its_heartbeats(run_broker: Any, jump_ms: int) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        await register(client)
        await asyncio.sleep(60)
        case.clock.offset_ms += jump_ms
        await asyncio.sleep(50)
        assert case.broker.tables.producers.groups() == ["pg"]
        await asyncio.sleep(30)
        assert case.broker.tables.producers.groups() == []

    run_broker(scenario)


@pytest.mark.promise("Time", "a timer message comes at its wall time")
@both_ways
def test_a_timer_message_comes_at_its_wall_time(run_broker: Any, jump_ms: int) -> None:
    """That one is promised in wall time: it follows the clock."""

    async def scenario(case: Any) -> None:
        client = await case.client()
        due_ms = case.clock.now_ms() + 10_000
        named = {"UNIQ_KEY": "a", "TIMER_DELIVER_MS": str(due_ms)}
        assert (await client.produce(properties=named)).code == 0
        await asyncio.sleep(4)
        case.clock.offset_ms += jump_ms
        later_ms = case.clock.now_ms() + 10_000
        named = {"UNIQ_KEY": "b", "TIMER_DELIVER_MS": str(later_ms)}
        assert (await client.produce(properties=named)).code == 0
        await asyncio.sleep(9)
        first = records(case.broker.store, "T", 0)
        assert len(first) == (1 if jump_ms > -5_000 else 0)
        await asyncio.sleep(2)
        assert len(records(case.broker.store, "T", 0)) == len(first) + 1
        if jump_ms < -5_000:
            case.clock.offset_ms -= jump_ms
            await asyncio.sleep(2)
            assert len(records(case.broker.store, "T", 0)) == 2

    run_broker(scenario)
