"""Whole clusters with kills, partitions and resets: nothing acknowledged is lost, and every run repeats."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulation.chaos import Chaos

from roquette.store.format.config import FlushDiskType
from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("seed", range(1, 9))
def test_kills_partitions_and_resets_lose_nothing(seed: int) -> None:
    simulate(Chaos(), seed)


@pytest.mark.parametrize("seed", range(101, 109))
def test_power_losses_take_nothing_that_was_acknowledged_with_synchronous_flush(seed: int) -> None:
    simulate(Chaos(power_loss=True), seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_many_seeds(seed: int) -> None:
    simulate(Chaos(power_loss=seed % 2 == 0, faults=30), seed)


def test_the_same_seed_is_the_same_run() -> None:
    first, again, other = (simulate(Chaos(faults=6), seed) for seed in (5, 5, 6))
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()
    assert first.events > 3_000


def test_the_same_seed_is_the_same_run_in_every_process() -> None:
    code = (
        "from roquette_testing.cluster import simulate\n"
        "from tests.simulation.chaos import Chaos\n"
        "print(simulate(Chaos(power_loss=True, faults=6), 7).fingerprint())"
    )
    seen = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert seen[0] == seen[1] != ""


def test_a_stop_waits_for_syncs_that_begin_one_after_the_other() -> None:
    """The compiled form took it for granted that none runs when one has ended: TypeError."""

    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv("10.0.0.1")
        store = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
        broker = await cluster.add_broker("10.0.1.1", store=store)
        mq = await cluster.client("10.0.2.1")
        await mq.send("T", b"0")
        cluster.slow_disk("10.0.1.1", 0.5)
        sends = [asyncio.create_task(mq.send("T", b"1"))]
        await asyncio.sleep(0.1)
        rest = asyncio.create_task(cluster.run_on("10.0.1.1", broker.core.log_sync.finish()))
        sends.append(asyncio.create_task(mq.send("T", b"2")))
        await rest
        assert [(await send).status for send in sends] == ["SEND_OK"] * 2

    simulate(scenario)
