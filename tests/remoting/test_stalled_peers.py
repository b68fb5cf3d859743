"""Peers that do not go on: with a frame, or with their answers. And what all of them together may hold."""

import asyncio
import itertools
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquette.errors import ConnectError, RemoteProtocolError
from roquette.remoting.account import JOIN_BELOW, PeerLimits
from roquette.wire.connection import MAX_REMARK, WireConnection
from roquette_testing.sim_loop import SimLoop

Run = Callable[..., SimLoop]
MIB = 1 << 20


def request(code: int, body: bytes = b"", opaque: int = 0) -> bytes:
    """One request's frame."""
    head = b'{"code":%d,"opaque":%d}' % (code, opaque)
    return struct.pack(">ii", 4 + len(head) + len(body), len(head)) + head + body


async def until_closed(raw: Any, seconds: float) -> bool:
    """Whether the server ends the connection in time."""
    try:
        async with asyncio.timeout(seconds):
            await raw.receive()
    except (EOFError, ConnectionError):
        return True
    except TimeoutError:
        return False
    raise AssertionError("an answer to half a request")


# How much of the frame arrives at once, and how many bytes come every so many seconds after that.
DRIPS = [
    (1, 1, 10.0), (3, 1, 10.0), (4, 1, 10.0), (8, 1, 10.0), (100, 1, 10.0), (15 * MIB, 1, 10.0),
    (0, 1, 1.0), (4, 1, 29.0), (15 * MIB, 500, 1.0), (200, 0, 1.0), (15 * MIB, 0, 1.0),
]  # fmt: skip


@pytest.mark.promise(
    "Peers", "a peer that drips or reads nothing is cut; slow readers are left alone"
)
@pytest.mark.parametrize(("first", "drop", "every_s"), DRIPS)
def test_a_frame_that_drips_is_cut(bench: Run, first: int, drop: int, every_s: float) -> None:
    async def scenario(case: Any) -> None:
        raw = await case.raw()
        frame = request(case.echo, bytes(15 * MIB + 100_000))
        raw.writer.write(frame[:first])
        end = asyncio.ensure_future(until_closed(raw, 200))
        for number in range(200):
            if end.done():
                break
            at = first + number * drop
            raw.writer.write(frame[at : at + drop])
            await asyncio.sleep(every_s)
        assert await end
        assert case.loop.time() < 100, "within two looks"
        assert not case.server.peers
        limits = case.dispatcher.limits
        assert len(limits.frames) == limits.frames.total == 0

    bench(scenario)


@pytest.mark.parametrize("rate", [1_500, 20_000, 400_000])
def test_a_frame_over_a_slow_line_arrives(bench: Run, rate: int) -> None:
    async def scenario(case: Any) -> None:
        raw = await case.raw()
        frame = request(case.echo, bytes(min(rate * 150, 15 * MIB)))
        for at in range(0, len(frame), rate):
            raw.writer.write(frame[at : at + rate])
            await asyncio.sleep(1)
        assert len((await raw.receive()).body) == min(rate * 150, 15 * MIB)
        assert case.dispatcher.limits.frames.total == 0

    bench(scenario)


def test_a_server_whose_answer_drips_is_left(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            frame = request(1, bytes(1000))
            for at in range(len(frame)):
                writer.write(frame[at : at + 1])
                await asyncio.sleep(10)

        await asyncio.start_server(drip, "10.0.0.5", 1)
        client = case.client()
        with pytest.raises(ConnectError):
            await client.invoke("10.0.0.5:1", case.echo, timeout_ms=500_000)
        assert 30 <= case.loop.time() < 70
        await client.close()

    bench(scenario)


def test_a_server_that_reads_nothing_is_left(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        async def stare(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()
            await asyncio.sleep(900)

        await asyncio.start_server(stare, "10.0.0.5", 1)
        client = case.client()
        with pytest.raises(ConnectError):
            await client.invoke("10.0.0.5:1", case.echo, b"", bytes(MIB), timeout_ms=500_000)
        assert 120 <= case.loop.time() < 250
        await client.close()

    bench(scenario)


@pytest.mark.promise(
    "Peers", "a peer that drips or reads nothing is cut; slow readers are left alone"
)
@pytest.mark.parametrize("asks", [3, 200])
def test_a_peer_that_reads_no_answer_is_cut_whatever_it_sends(bench: Run, asks: int) -> None:
    async def scenario(case: Any) -> None:
        raw = await case.raw()
        raw.writer.transport.pause_reading()
        for _ in range(asks):
            raw.send(case.big)
        for _ in range(30):
            raw.send(case.echo, b"alive")
            await asyncio.sleep(10)
        assert not case.server.peers, "cut, and not only asked to close"
        assert case.dispatcher.limits.unsent.total == 0

    bench(scenario, reply_size=50_000)


def test_an_idle_peer_that_reads_nothing_is_gone_too(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        raw = await case.raw()
        raw.writer.transport.pause_reading()
        raw.send(case.big)
        await asyncio.sleep(140)
        assert not case.server.peers

    bench(scenario, reply_size=500_000)


@pytest.mark.promise(
    "Peers", "a peer that drips or reads nothing is cut; slow readers are left alone"
)
def test_slow_readers_and_those_who_wait_are_left_alone(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        slow, holder = await case.raw(), await case.raw()
        for _ in range(100):
            slow.send(case.big)
        holder.send(case.held)
        data, size = b"", 100 * 100_000
        while len(data) < size:
            data += await slow.reader.read(200_000)  # StreamReader stops to read above 128 kB
            await asyncio.sleep(10)
            holder.send(case.echo)
        assert case.loop.time() > 300
        assert len(case.server.peers) == 2
        (reply, *_) = slow.wire.receive_data(data)
        assert len(reply.body) == 100_000

    bench(scenario, reply_size=50_000)


@pytest.mark.parametrize("count", [1, 20, 60])
def test_half_frames_have_one_bound_and_small_frames_pass(bench: Run, count: int) -> None:
    async def scenario(case: Any) -> None:
        limit = 10_000_000
        case.dispatcher.limits.frames.limit = limit
        hoarders = [await case.raw() for _ in range(count)]
        frames = [request(case.echo, bytes(1_500_000), opaque) for opaque in range(count)]
        good = await case.raw()
        small = request(case.echo, bytes(15_000), 7)
        for hoarder, frame in zip(hoarders, frames, strict=True):
            hoarder.writer.write(frame[:-1])
            good.writer.write(small[:9_000])
            await asyncio.sleep(0.2)
            assert case.dispatcher.limits.frames.total <= limit
            good.writer.write(small[9_000:])
            assert len((await good.receive()).body) == 15_000

        held = sum(peer.wire.held for peer in case.server.peers.values())
        assert held <= limit
        answers = []
        for hoarder, frame in zip(hoarders, frames, strict=True):
            hoarder.writer.write(frame[-1:])
            answers.append(await hoarder.receive())
            assert answers[-1].opaque == len(answers) - 1
            hoarder.send(case.echo, b"again")
            assert (await hoarder.receive()).body == b"again", "the connection goes on"
        refused = [a for a in answers if a.code == 2 and "no memory" in (a.remark or "")]
        done = [a for a in answers if a.code == 0 and len(a.body) == 1_500_000]
        assert len(refused) + len(done) == count
        assert len(done) >= min(count, 5), "those that came last have room"
        assert case.dispatcher.limits.frames.total == len(case.dispatcher.limits.frames) == 0

    bench(scenario)


def test_half_a_huge_header_is_cut_when_there_is_no_room(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        case.dispatcher.limits.frames.limit = MIB
        raw = await case.raw()
        raw.writer.write(struct.pack(">ii", 8 * MIB, 7 * MIB) + b"{" * (2 * MIB))
        assert await until_closed(raw, 5)

    bench(scenario)


@pytest.mark.parametrize("size", [40_000, 400_000])
def test_answers_that_nobody_takes_have_one_bound(bench: Run, size: int) -> None:
    async def scenario(case: Any) -> None:
        limit = 10 * MIB
        case.dispatcher.limits.unsent.limit = limit
        for _ in range(30):
            raw = await case.raw()
            raw.writer.transport.pause_reading()
            for _ in range(1_000_000 // size):
                raw.send(case.big)
            await asyncio.sleep(0.1)
            waiting = sum(p.transport.get_write_buffer_size() for p in case.server.peers.values())
            assert waiting <= limit
        assert 3 <= len(case.server.peers) < 30
        reader = await case.raw()
        reader.send(case.big)
        assert len((await reader.receive()).body) == 2 * size

    bench(scenario, reply_size=size)


@pytest.mark.parametrize(("size", "counted"), [(JOIN_BELOW - 1, 0), (JOIN_BELOW, JOIN_BELOW)])
def test_an_answer_is_counted_from_the_size_on_that_is_written_in_pieces(
    bench: Run, size: int, counted: int
) -> None:
    async def scenario(case: Any) -> None:
        raw = await case.raw()
        raw.send(case.echo)
        around = len(await raw.reader.read(1_000))  # of an answer without a body
        raw.writer.transport.pause_reading()
        raw.send(case.echo, bytes(size - around))
        await asyncio.sleep(0.1)
        assert case.dispatcher.limits.unsent.total == counted

    bench(scenario)


# A malformed frame takes nothing with it

BAD = [
    b"\xff\xff\xff\xff" + bytes(20),
    b"\x7f\xff\xff\xff",
    b"\x00\x00\x00\x03abc",
    struct.pack(">ii", 12, 8) + b"notjson!",
    struct.pack(">ii", 6, 200) + b"ab",
    struct.pack(">ii", 6, 7 << 24 | 2) + b"{}",
    b"GET / HTTP/1.1\r\n\r\n",
]


@settings(max_examples=300, deadline=None)
@given(
    bodies=st.lists(st.binary(max_size=40), max_size=8),
    bad=st.sampled_from(BAD),
    after=st.lists(st.binary(max_size=40), max_size=3),
    cuts=st.lists(st.integers(0, 700), max_size=6),
)
def test_what_comes_before_a_malformed_frame_is_read(
    bodies: list[bytes], bad: bytes, after: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(request(1, body) for body in bodies) + bad
    data += b"".join(request(1, body) for body in after)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    wire, found, error = WireConnection(), [], None
    for start, end in itertools.pairwise(edges):
        try:
            found += wire.receive_data(data[start:end])
            error = wire.broken
        except RemoteProtocolError as raised:
            error = raised
        if error is not None:
            break
    assert error is not None
    assert [command.body for command in found] == bodies


KINDS = ["echo", "refuse", "crash", "task", "oneway"]


@pytest.mark.promise("Peers", "requests before a malformed frame are answered")
@pytest.mark.parametrize("seed", range(60))
def test_requests_before_a_malformed_frame_are_answered(bench: Run, seed: int) -> None:
    async def scenario(case: Any) -> None:
        rng = random.Random(seed)
        kinds = [rng.choice(KINDS) for _ in range(rng.randrange(1, 12))]
        wire, data, wanted = WireConnection(), b"", []
        for kind in kinds:
            code = case.echo if kind == "oneway" else getattr(case, kind)
            opaque = wire.send_request(code, b"", kind.encode(), kind == "oneway")
            if kind != "oneway":
                wanted.append(opaque)
        data = b"".join(wire.data_to_send()) + rng.choice(BAD) + bytes(rng.randrange(100_000))
        raw = await case.raw()
        while data:
            size = rng.choice([1, 5, 40, 300, len(data)])
            raw.writer.write(data[:size])
            data = data[size:]
            if rng.random() < 0.2:
                await asyncio.sleep(rng.choice([0, 0.001, 0.1]))
        answers = [(await raw.receive()).opaque for _ in wanted]
        assert sorted(answers) == wanted
        assert await until_closed(raw, 1)
        raw.writer.close()
        await asyncio.sleep(0.1)
        assert not case.server.peers

    bench(scenario, seed)


def test_a_remark_is_bounded() -> None:
    ours = WireConnection()
    ours.send_reply(1, 1, "topic \n" + "x" * 1_000_000, b"", b"")
    (found,) = WireConnection().receive_data(b"".join(ours.data_to_send()))
    assert found.remark is not None
    assert len(found.remark) < MAX_REMARK + 50
    assert found.remark.endswith("... (1000007 characters)")


def test_defaults_leave_room_for_some_of_the_largest_frames() -> None:
    limits = PeerLimits()
    assert limits.frames.limit >= 4 * 16 * MIB
    assert limits.unsent.limit >= 4 * 16 * MIB


def test_a_processor_without_memory_refuses_in_words(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        raw = await case.raw()
        for _ in range(20):
            raw.send(case.hungry)
            answer = await raw.receive()
            assert answer.code == 2
            assert "no memory" in (answer.remark or "")
        raw.send(case.echo, b"fine")
        assert (await raw.receive()).body == b"fine"

    bench(scenario)
