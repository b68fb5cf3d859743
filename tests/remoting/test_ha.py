"""Replication connections in virtual time: silence, signs of life, limits."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from roquette.base.clock import LoopClock
from roquette.errors import ConnectError, RemoteProtocolError
from roquette.remoting.ha import MOST_UNSENT, HaConnection, HaDoor, Silence, call_master
from roquette_testing.sim_loop import SimLoop, run

HOST, PORT = "10.0.0.254", 10912


class Side:
    """Keeps what it is told; `mute` gives no sign of life."""

    def __init__(self, connection: HaConnection, mute: bool = False) -> None:
        self.connection = connection
        self.mute = mute
        self.heard = b""
        self.ended = False
        self.rooms = 0

    def received(self, data: bytes) -> None:
        self.heard += data
        if b"nonsense" in self.heard:
            raise RemoteProtocolError("that is nonsense")

    def room(self) -> None:
        self.rooms += 1

    def sign(self) -> None:
        if not self.mute:
            self.connection.send([b"."])

    def lost(self) -> None:
        self.ended = True


def with_door(
    body: Callable[[LoopClock, list[Side]], Coroutine[object, object, None]],
    most: int = 64,
    mute: bool = False,
) -> None:
    async def main(loop: SimLoop) -> None:
        clock = LoopClock(loop, 1_700_000_000_000)
        sides: list[Side] = []

        def side(connection: HaConnection) -> Side:
            sides.append(Side(connection, mute))
            return sides[-1]

        door = HaDoor(side, Silence(5_000, 20_000), clock, most=most)
        await door.open(HOST, PORT)
        await body(clock, sides)
        await door.close()
        await asyncio.sleep(1)
        assert all(one.ended for one in sides)

    run(main, 1)


async def call(clock: LoopClock, number: int = 1) -> Side:
    made: list[Side] = []

    def side(connection: HaConnection) -> Side:
        made.append(Side(connection))
        return made[-1]

    await call_master(f"{HOST}:{PORT}", side, clock, number=number)
    return made[0]


def test_a_door_gives_a_sign_of_life_after_four_seconds_and_ends_what_is_silent_for_twenty() -> (
    None
):
    async def body(clock: LoopClock, sides: list[Side]) -> None:
        ours = await call(clock)
        await asyncio.sleep(3.5)
        assert ours.heard == b""
        await asyncio.sleep(2)
        assert ours.heard == b"."
        await asyncio.sleep(13)
        assert len(ours.heard) == 4 and not ours.ended
        await asyncio.sleep(4)
        assert ours.ended and sides[0].ended

    with_door(body)


def test_a_caller_that_looks_ends_what_is_silent() -> None:
    async def body(clock: LoopClock, sides: list[Side]) -> None:
        ours = await call(clock)
        silence = Silence(5_000, 10_000)
        for _ in range(12):
            await asyncio.sleep(1)
            ours.connection.look(silence)
        await asyncio.sleep(0.1)
        assert ours.ended and sides[0].heard == b".."

    with_door(body, mute=True)


def test_a_door_takes_so_many_and_a_place_is_free_again_after_an_end() -> None:
    async def body(clock: LoopClock, sides: list[Side]) -> None:
        ours = [await call(clock, number) for number in range(3)]
        await asyncio.sleep(1)
        assert [one.ended for one in ours] == [False, False, True] and len(sides) == 2
        ours[0].connection.leave()
        await asyncio.sleep(1)
        again = await call(clock)
        await asyncio.sleep(1)
        assert not again.ended and sides[0].ended

    with_door(body, most=2)


def test_wrong_bytes_end_a_connection_with_words(caplog: pytest.LogCaptureFixture) -> None:
    async def body(clock: LoopClock, sides: list[Side]) -> None:
        ours = await call(clock)
        ours.connection.send([b"non", b"sense"])
        await asyncio.sleep(1)
        assert ours.ended and sides[0].ended

    with_door(body)
    assert "that is nonsense" in caplog.text


def test_what_is_not_taken_fills_a_connection_and_there_is_room_again() -> None:
    async def body(clock: LoopClock, sides: list[Side]) -> None:
        ours = await call(clock)
        sides[0].connection._transport.pause_reading()
        for _ in range(MOST_UNSENT // 100_000 + 3):
            ours.connection.send([bytes(100_000)])
        await asyncio.sleep(1)
        assert ours.connection.full and not ours.rooms
        sides[0].connection._transport.resume_reading()
        await asyncio.sleep(1)
        assert not ours.connection.full and ours.rooms == 1

    with_door(body)


def test_nobody_there_is_told() -> None:
    async def body(clock: LoopClock, sides: list[Side]) -> None:
        with pytest.raises(ConnectError, match=f"connect to {HOST}:1 failed"):
            await call_master(f"{HOST}:1", Side, clock)

    with_door(body)
