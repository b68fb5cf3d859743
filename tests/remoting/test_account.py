"""The account of kept bytes: shares, who is read when, and that everything comes back."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from roquette.remoting.account import LITTLE, WAITING, MemoryAccount, PeerLimits
from roquette.remoting.dispatcher import LaneLimits
from roquette.remoting.request import ANSWERS, BYTES, TASKS, Peer
from roquette.wire.command import Command

MIB = 1 << 20


class Line:
    """A transport that notes whether it is read."""

    def __init__(self) -> None:
        self.read = True

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        assert self.read
        self.read = False

    def resume_reading(self) -> None:
        assert not self.read
        self.read = True


def peer(number: int = 1) -> Any:
    line: Any = Line()
    return Peer(SimpleNamespace(), line, number, b"", f"10.0.0.{number}:1")  # type: ignore[arg-type]


def test_a_peer_that_keeps_a_quarter_is_read_again_from_half_of_that() -> None:
    account, one = MemoryAccount(64 * MIB), peer()
    account.take(one, 16 * MIB)
    assert one.transport.read
    account.take(one, 1)
    assert not one.transport.read
    account.give(one, 8 * MIB)
    assert not one.transport.read
    account.give(one, 1)
    assert one.transport.read
    account.give(one, 8 * MIB)
    assert account.total == account.holders == one.kept == 0


def test_a_peer_holds_much_from_one_byte_beyond_little_on_and_no_longer() -> None:
    account, one = MemoryAccount(64 * MIB), peer()
    for size, holders in ((LITTLE, 0), (1, 1), (-1, 0), (-LITTLE, 0), (LITTLE + 1, 1)):
        (account.take if size > 0 else account.give)(one, abs(size))
        assert account.holders == holders
    account.give(one, LITTLE + 1)
    assert account.total == account.holders == 0


@pytest.mark.promise(
    "Security", "all that is kept for a connection is counted and bounded, whoever keeps it"
)
def test_where_all_keep_too_much_each_has_its_share_and_little_is_always_read() -> None:
    account = MemoryAccount(64 * MIB)
    hoarders = [peer(number) for number in range(4)]
    for one in hoarders:
        account.take(one, 16 * MIB)
    modest, small = peer(5), peer(6)
    account.take(modest, 4 * MIB)
    assert modest.transport.read, "below its share of a fifth"
    account.take(small, LITTLE)
    assert small.transport.read
    account.take(hoarders[0], 1)
    assert not hoarders[0].transport.read
    account.take(modest, 10 * MIB)
    assert not modest.transport.read, "above it"
    for one in hoarders[1:]:
        account.give(one, 16 * MIB)
    assert not modest.transport.read
    account.look(modest)
    assert not modest.transport.read, "more than half of a quarter"
    account.give(modest, 6 * MIB)
    assert modest.transport.read


def test_a_peer_is_read_when_no_reason_is_left() -> None:
    one = peer()
    for why in (ANSWERS, TASKS, BYTES, BYTES):
        one.stop_reading(why)
    for why in (BYTES, ANSWERS, BYTES):
        one.read_on(why)
        assert not one.transport.read
    one.read_on(TASKS)
    assert one.transport.read


def test_tables_of_unfinished_things_draw_from_it() -> None:
    limits, one, draw = PeerLimits(kept_bytes=64 * MIB), peer(), random.Random(1)
    for _ in range(1_000):
        for table in (limits.frames, limits.unsent):
            if draw.random() < 0.2:
                table.end(one)
            elif draw.random() < 0.5 or one not in table._entries:
                table.begin(one, 0.0)
            else:
                table.resize(table._entries[one], draw.randrange(20 * MIB))
        assert limits.account.total == limits.frames.total + limits.unsent.total == one.kept
    limits.frames.end(one)
    limits.unsent.end(one)
    limits.account.look(one)
    assert one.transport.read and limits.account.total == 0


def test_requests_that_wait_stop_the_reading_and_all_are_answered(bench: Any) -> None:
    """A connection with more at work than it may keep: the rest stays with its sender until there is room."""

    async def scenario(case: Any) -> None:
        account = case.dispatcher.limits.account
        account.most = 4 * 20 * MIB
        client = await case.raw()
        most = 0

        async def send() -> None:
            for number in range(60):
                client.send(case.task, bytes(MIB) + b"%d" % number)
                await client.writer.drain()

        async def look() -> None:
            nonlocal most
            while True:
                most = max(most, account.total)
                await asyncio.sleep(0.001)

        async with asyncio.TaskGroup() as group:
            looking = group.create_task(look())
            group.create_task(send())
            for _ in range(60):
                assert (await client.receive()).code == 0
            looking.cancel()
        assert 20 * MIB < most < 25 * MIB, "some frames more than may be"
        await asyncio.sleep(6)
        assert account.total == account.holders == 0

    bench(scenario)


@pytest.mark.parametrize("kind", ["held", "later"])
def test_of_what_waits_only_what_is_needed_is_kept(bench: Any, kind: str) -> None:
    async def scenario(case: Any) -> None:
        account = case.dispatcher.limits.account
        client = await case.raw()
        client.send(getattr(case, kind), bytes(5 * MIB), b'{"a":"b"}')
        await asyncio.sleep(1)
        kept = len(case.parked[0][1].reply.body) if kind == "later" else 2 * len(b'{"a":"b"}')
        assert account.total == WAITING + kept
        job = case.parked[0][0] if kind == "later" else case.hold.job
        assert job.command.body == b"" and len(job.command.ext) == 2
        if kind == "later":
            assert case.parked[0][1].size == 5 * MIB
            case.dispatcher.answer(*[case.parked[0][0], case.parked[0][1].reply])
        else:
            case.dispatcher.rerun(case.hold.job, may_hold=True)  # and once more
            assert account.total == WAITING + kept
            case.dispatcher.rerun(case.hold.job, may_hold=False)
        assert (await client.receive()).code == 0
        assert account.total == 0 or kind == "later"  # its large answer is on its way
        await asyncio.sleep(6)
        assert account.total == 0

    bench(scenario)


@pytest.mark.parametrize("end", ["lost", "cancelled", "taken up"])
def test_requests_that_wait_until_answers_are_read_are_counted(bench: Any, end: str) -> None:
    async def scenario(case: Any) -> None:
        account = case.dispatcher.limits.account
        client = await case.raw()
        client.send(case.echo, b"first")
        assert (await client.receive()).body == b"first"
        (found,) = case.server.peers.values()
        case.dispatcher.pause(found)
        for _ in range(3):
            client.send(case.echo, bytes(MIB))
        await asyncio.sleep(1)
        assert account.total == sum(job.kept for job in found.parked) > 3 * MIB
        if end == "lost":
            client.writer.transport.abort()
            await asyncio.sleep(1)
        elif end == "cancelled":
            for job in found.parked:
                case.dispatcher.cancel(job)
        else:
            case.dispatcher.resume(found)
            for _ in range(3):
                assert len((await client.receive()).body) == MIB
        await asyncio.sleep(6)
        assert account.total == 0

    bench(scenario)


def test_what_a_lane_has_left_over_from_a_turn_is_counted(bench: Any) -> None:
    async def scenario(case: Any) -> None:
        account = case.dispatcher.limits.account
        client = await case.raw()
        client.send(case.echo)
        await client.receive()
        (found,) = case.server.peers.values()
        asked = [Command(code=case.echo, opaque=n, flag=2, body=bytes(MIB)) for n in range(7)]
        case.dispatcher.receive(found, asked)
        kept = []
        for _ in range(6):
            kept.append(account.total // MIB)
            await asyncio.sleep(0)
        assert kept[:5] == [0, 5, 3, 1, 0]
        assert account.total == account.holders == 0

    bench(scenario, lanes=[LaneLimits("all", 100, budget=2)])
