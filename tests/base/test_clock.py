"""Wall time, and the simulation's idea of it."""

import asyncio

from roquette.base.clock import LoopClock, SystemClock
from roquette.base.entropy import Entropy
from roquette_testing.sim_loop import SimLoop, run


def test_the_systems_clock_tells_milliseconds_of_this_century() -> None:
    now = SystemClock().now_ms()
    assert 1_700_000_000_000 < now < 4_100_000_000_000
    assert SystemClock().now_ms() >= now


def test_a_loop_clock_follows_its_loop() -> None:
    async def main(loop: SimLoop) -> None:
        clock = LoopClock(loop, 5_000)
        assert clock.now_ms() == 5_000
        await asyncio.sleep(1.5)
        assert clock.now_ms() == 6_500

    run(main)


def test_seeded_entropy_repeats() -> None:
    def draw(seed: int | None) -> tuple[int, str, bytes, int]:
        entropy = Entropy(seed, process_id=7)
        return entropy.below(1_000_000), entropy.token(), entropy.bytes(8), entropy.process_id

    assert draw(1) == draw(1) != draw(2)
    assert draw(None) != draw(None)
    assert Entropy().process_id > 0
