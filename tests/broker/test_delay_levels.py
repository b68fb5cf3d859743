"""Delay levels: their setting, clocks that leap, and crashes between a delivery and the note of it."""

import asyncio
from typing import Any

import pytest
from tests.broker.test_timers import stored

from roquette.broker.timers.feature import DelayFeature
from roquette.errors import ConfigError
from roquette.message.record_layout import Draft
from roquette.store.reput import parse_delay_levels
from roquette_testing.cluster import SimCluster, simulate

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


def test_units_are_apaches() -> None:
    assert parse_delay_levels("1s 2m 3h 4d") == [SECOND, 2 * MINUTE, 3 * HOUR, 4 * DAY]


@pytest.mark.parametrize("text", ["", "  ", "5", "s", "-1s", "1.5s", "1w", "1s five", "１s"])
def test_what_is_no_delay_is_said_so(text: str) -> None:
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        parse_delay_levels(text)


def test_levels_are_as_configured_and_the_last_one_is_the_most(run_broker: Any) -> None:
    async def scenario(case: Any) -> None:
        client = await case.client()
        sent = case.clock.now_ms()
        for queue, level in enumerate((1, 2, 99)):
            named = {"UNIQ_KEY": f"K{level}", "DELAY": str(level)}
            assert (await client.produce(properties=named, e=queue)).code == 0
        await asyncio.sleep(400)
        for queue, delay_ms in enumerate((2000, 180_000, 180_000)):
            (record,) = stored(case.broker.store, "T", queue)
            assert delay_ms <= record.store_timestamp_ms - sent <= delay_ms + 500

    run_broker(scenario, store={"delay_levels": "2s 3m"})


async def _delayed(cluster: SimCluster, count: int) -> Any:
    """A broker, and `count` messages of level 1 sent to it one after the other."""
    broker = await cluster.add_broker("10.0.1.1", name_servers="")

    async def send() -> None:
        for number in range(count):
            draft = Draft("T", 0, b"", b"%d" % number, 0, bytes(8))
            named = {"UNIQ_KEY": f"K{number}", "DELAY": "1"}
            broker.core.writer.put(draft, named, cluster.clock.now_ms())
            await asyncio.sleep(0.1)

    await cluster.run_on("10.0.1.1", send())
    return broker


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_crash_after_deliveries_doubles_nothing(power_loss: bool) -> None:
    async def scenario(cluster: SimCluster) -> None:
        broker = await _delayed(cluster, 30)  # all are sent within 3 s, many are delivered by then
        if power_loss:
            await cluster.run_on(
                "10.0.1.1", broker.core.log_sync.on_disk(broker.store.max_physical_offset)
            )
        before = len(stored(broker.store, "T"))
        assert 10 < before < 30
        cluster.kill("10.0.1.1", power_loss=power_loss)
        broker = await cluster.restart("10.0.1.1")
        assert len(stored(broker.store, "T")) >= before
        await asyncio.sleep(5)
        bodies = [record.body for record in stored(broker.store, "T")]
        assert bodies == [b"%d" % number for number in range(30)]

    simulate(scenario, seed=5)


def test_progress_is_kept_over_a_clean_stop() -> None:
    async def scenario(cluster: SimCluster) -> None:
        broker = await _delayed(cluster, 20)
        await asyncio.sleep(5)
        await cluster.stop("10.0.1.1")
        broker = await cluster.restart("10.0.1.1")
        assert broker.feature(DelayFeature).levels.progress() == {1: (20, 20)}
        await asyncio.sleep(5)
        assert len(stored(broker.store, "T")) == 20

    simulate(scenario, seed=6)


def test_timers_and_levels_over_many_crashes_of_a_whole_broker() -> None:
    async def scenario(cluster: SimCluster) -> None:
        broker = await cluster.add_broker("10.0.1.1", name_servers="")
        acked: set[bytes] = set()

        async def send(life: int) -> None:
            for number in range(25):
                body = b"%d-%d" % (life, number)
                kind = {"DELAY": "1"} if number % 3 else {"TIMER_DELAY_MS": str(300 * number)}
                draft = Draft("T", 0, b"", body, 0, bytes(8))
                named = {"UNIQ_KEY": body.decode(), **kind}
                done = broker.core.writer.put(draft, named, cluster.clock.now_ms())
                if await broker.core.log_sync.on_disk(done.end_offset):
                    acked.add(body)
                await asyncio.sleep(0.05)

        for life in range(8):
            await cluster.run_on("10.0.1.1", send(life))
            await asyncio.sleep(0.37 * life)
            cluster.kill("10.0.1.1", power_loss=life % 2 == 0)
            broker = await cluster.restart("10.0.1.1")
        await asyncio.sleep(15)
        bodies = [record.body for record in stored(broker.store, "T")]
        assert len(bodies) == len(set(bodies))
        assert acked <= set(bodies)
        assert len(acked) == 200

    simulate(scenario, seed=7)
