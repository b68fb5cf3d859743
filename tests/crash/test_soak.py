"""An hour of mixed load on real servers: memory, descriptors and latencies of the broker stay as they are."""

import asyncio
import os
from pathlib import Path

import pytest
from tests.real_servers import ServerProcess, broker_arguments, server
from tests.simulation.mixed_load import LOOKS, MixedLoad, grown

from roquette import Client

pytestmark = pytest.mark.crash


async def soaked(folder: Path, seconds: float) -> MixedLoad:
    """A run of it."""
    kept = {"fileReservedBytes": 8 << 20}
    place = ["namesrv", "--listen", "127.0.0.1:0", "--set", f"kvConfigPath={folder}/kv.json"]
    with server(place) as names:
        address = "{}:{}".format(*names.address)
        arguments = [*broker_arguments(folder / "store", kept), "-n", address]
        with server(arguments) as broker:
            async with Client(address, group="soak") as mq:
                load = MixedLoad(mq, seconds, 0.05, lambda: figures(broker))
                await load.run()
                return load


def figures(broker: ServerProcess) -> dict[str, float]:
    """Of its process."""
    descriptors = len(os.listdir(f"/proc/{broker.child.pid}/fd"))
    return {"mib": broker.anonymous_memory() / (1 << 20), "descriptors": descriptors}


def test_a_few_seconds_are_consumed_and_looked_at(tmp_path: Path) -> None:
    load = asyncio.run(soaked(tmp_path, 3.0))
    assert load.sent > 20
    assert len(load.looks) == LOOKS


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_an_hour_costs_no_more_at_its_end(tmp_path: Path) -> None:
    load = asyncio.run(soaked(tmp_path, 3_600.0))
    more = grown(load.looks)
    assert load.sent > 100_000
    assert more["mib"] < 5, load.looks
    assert more["descriptors"] <= 4, load.looks
    assert more["send_ms"] < 50, load.looks  # neighbours on the machine come and go
