"""Six hours of mixed load in virtual time: what broker, name server and client keep does not grow."""

import gc
import sys

import pytest
from tests.simulation.mixed_load import LOOKS, SETTINGS, MixedLoad, grown

from roquette_testing.cluster import SimCluster, simulate

pytestmark = pytest.mark.simulation


def soaked(hours: float) -> MixedLoad:
    """A run of it. `blocks` are the allocator's, of the whole process; files are the broker's; `cyclic` are objects that
    the collector found, which is off: what is done with and keeps itself alive."""
    loads: list[MixedLoad] = []

    async def scenario(cluster: SimCluster) -> None:
        await cluster.add_namesrv("10.0.0.1")
        await cluster.add_broker("10.0.1.1", store=SETTINGS)
        mq = await cluster.client("10.0.2.1", group="soak")
        files = cluster.hosts["10.0.1.1"].files

        def look() -> dict[str, float]:
            held = {"cyclic": gc.collect(), "blocks": sys.getallocatedblocks()}
            return held | {"files": len(files.snapshot()[0]), "bytes": files.used}

        loads.append(MixedLoad(mq, hours * 3600, 2.0, look))
        await loads[0].run()

    gc.disable()
    try:
        simulate(scenario, 1)
    finally:
        gc.enable()
    return loads[0]


def test_a_quarter_of_an_hour_is_consumed_and_looked_at() -> None:
    load = soaked(0.25)
    assert load.sent > 1_500
    assert len(load.looks) == LOOKS
    assert max(look["cyclic"] for look in load.looks[1:]) < 100, load.looks


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_six_hours_cost_no_more_at_their_end() -> None:
    load = soaked(6.0)
    more = grown(load.looks)
    assert load.sent > 40_000
    assert more["cyclic"] < 100, load.looks
    assert more["blocks"] < 20_000, load.looks  # of 64 bytes or so each
    assert more["files"] <= 4, load.looks
    assert more["bytes"] <= 4 << 20, load.looks
    assert more["send_ms"] < 10, load.looks
