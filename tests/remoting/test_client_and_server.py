"""Connections: opened, shared, lost, slow, silent, refused; what is in flight then."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from roquette.errors import ClientClosed, ConnectError, RequestTimeout, TooManyRequests
from roquette.remoting.client import split_address
from roquette.remoting.request import PendingTable
from roquette.remoting.server import ConnectionBound
from roquette.remoting.transport import host_of

Run = Callable[..., Any]


def test_callers_share_one_connection(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        client = case.client()
        calls = [client.invoke(case.address, case.echo, b"", b"%d" % i) for i in range(10)]
        answers = await asyncio.gather(*calls)
        assert [a.body for a in answers] == [b"%d" % i for i in range(10)]
        assert len(case.server.peers) == 1

    bench(scenario)


def test_nobody_there(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        client = case.client()
        with pytest.raises(ConnectError, match=r"connect to 10\.0\.0\.9:1 failed"):
            await client.invoke("10.0.0.9:1", case.echo)
        with pytest.raises(ConnectError, match="not an address"):
            await client.invoke("nonsense", case.echo)

    bench(scenario)


def test_connecting_into_a_partition_gives_up(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        case.loop.network.isolate(case.host)
        client = case.client(connect_timeout_s=2)
        with pytest.raises(ConnectError):
            await client.invoke(case.address, case.echo, timeout_ms=10_000)
        assert case.loop.time() == pytest.approx(2, abs=0.1)
        with pytest.raises(RequestTimeout):
            await client.invoke(case.address, case.echo, timeout_ms=500)
        assert case.loop.time() == pytest.approx(2.5, abs=0.1)

    bench(scenario)


def test_no_answer_in_time(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        client = case.client()
        with pytest.raises(RequestTimeout):
            await client.invoke(case.address, case.silent, timeout_ms=700)
        assert case.loop.time() == pytest.approx(0.75, abs=0.1)
        peer = client.peer(case.address)
        assert peer is not None
        assert len(peer.pending) == 0

    bench(scenario)


def test_a_late_answer_is_dropped(bench: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(case: Any) -> None:
        client = case.client()
        with pytest.raises(RequestTimeout):
            await client.invoke(case.address, case.task, timeout_ms=500)
        await asyncio.sleep(2)
        assert (await client.invoke(case.address, case.echo, b"", b"next")).body == b"next"

    with caplog.at_level(logging.WARNING, "roquette"):
        bench(scenario)
    assert "answer without a request" in caplog.text


def test_a_lost_connection_fails_what_is_in_flight_and_the_next_call_reconnects(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        lost: list[str] = []
        client = case.client(on_lost=lost.append)
        call = case.loop.create_task(client.invoke(case.address, case.silent, timeout_ms=10_000))
        await asyncio.sleep(0.1)
        case.loop.network.reset(case.host)
        with pytest.raises(ConnectError, match="was lost"):
            await call
        assert case.loop.time() < 1
        assert lost == [case.address]
        assert len(case.lost) == 1
        assert case.server.peers == {}

        assert (await client.invoke(case.address, case.echo, b"", b"again")).body == b"again"

    bench(scenario)


def test_a_cancelled_call_leaves_the_connection_alone(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        client = case.client()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await client.invoke(case.address, case.task, timeout_ms=3000)
        await asyncio.sleep(2)
        assert (await client.invoke(case.address, case.echo, b"", b"x")).body == b"x"
        assert len(case.server.peers) == 1

    bench(scenario)


def test_oneway_and_drop(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        client = case.client()
        await client.oneway(case.address, case.echo, b"", b"one")
        await asyncio.sleep(0.1)
        assert case.seen == [b"one"]
        client.drop(case.address)
        assert client.peer(case.address) is None, "a closing connection is not used"
        assert (await client.invoke(case.address, case.echo, b"", b"two")).body == b"two"

    bench(scenario)


def test_a_closed_client(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        client = case.client()
        call = case.loop.create_task(client.invoke(case.address, case.silent, timeout_ms=9_000))
        await asyncio.sleep(0.1)
        await client.close()
        with pytest.raises(ConnectError):
            await call
        with pytest.raises(ClientClosed):
            await client.invoke(case.address, case.echo)
        await asyncio.sleep(0.1)
        assert case.server.peers == {}

    bench(scenario)


def test_idle_connections_are_closed_and_busy_ones_are_not(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        idle, busy = await case.raw(), await case.raw()
        for _ in range(10):
            await asyncio.sleep(5)
            busy.send(case.echo, b"x")
            await busy.receive()
        assert len(case.server.peers) == 1
        with pytest.raises(EOFError):
            await idle.receive()

    bench(scenario, idle_s=20.0)


def test_the_client_closes_what_it_does_not_use(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        client = case.client()
        await client.invoke(case.address, case.echo)
        await asyncio.sleep(110)
        assert case.server.peers
        await asyncio.sleep(30)
        assert case.server.peers == {}

    bench(scenario, idle_s=1_000.0)


def test_too_many_connections_are_refused(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        first, second = await case.raw(), await case.raw()
        third = await case.raw()
        with pytest.raises((EOFError, ConnectionError)):
            third.send(case.echo)
            await third.receive()
        first.send(case.echo, b"still")
        assert (await first.receive()).body == b"still"
        assert second is not None

    bench(scenario, bound=ConnectionBound(2))


@pytest.mark.parametrize(
    ("garbage", "hint"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "an HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "a TLS handshake"),
        (b"\xff" * 64, "outside"),
        (b"\x00\x00\x00\x0c\x00\x00\x00\x08notjson!", "header is not a command"),
        (b"\x00\x00\x00\x06\x00\x00\x00\xffab", "header is longer"),
        (b"\x00\x00\x00\x06\x07\x00\x00\x02{}", "serialize type 7"),
    ],
)
def test_garbage_closes_the_connection_and_disturbs_nobody(
    bench: Run, garbage: bytes, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(case: Any) -> None:
        client = case.client()
        bad = await case.raw()
        bad.writer.write(garbage)
        with pytest.raises((EOFError, ConnectionError)):
            await bad.receive()
        assert (await client.invoke(case.address, case.echo, b"", b"fine")).body == b"fine"

    with caplog.at_level(logging.WARNING, "roquette"):
        bench(scenario)
    assert hint in caplog.text


def test_half_a_frame_waits_until_the_connection_is_idle(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        raw = await case.raw()
        raw.writer.write(b"\x00\x00\x00\x40\x00\x00")
        with pytest.raises(EOFError):
            await raw.receive()
        assert case.loop.time() > 20

    bench(scenario, idle_s=20.0)


def test_a_client_that_does_not_read_is_not_read_from(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        raw = await case.raw()
        raw.writer.transport.pause_reading()
        for _ in range(200):
            raw.send(case.big)
            await asyncio.sleep(0.01)

        peer = next(iter(case.server.peers.values()))
        backlog = peer.transport.get_write_buffer_size()
        assert not peer.transport.is_reading()
        assert 1 << 20 < backlog < 2 << 20, "bounded, whatever more is asked for"

        raw.writer.transport.resume_reading()
        assert len([await raw.receive() for _ in range(200)]) == 200
        assert peer.transport.is_reading()

    bench(scenario, reply_size=50_000)


def test_a_client_reads_even_while_it_cannot_write(bench: Run) -> None:
    """If both ends waited for the other to read first, neither would ever go on."""

    async def scenario(case: Any) -> None:
        client = case.client()
        body = bytes(400_000)
        calls = [client.invoke(case.address, case.echo, b"", body) for _ in range(60)]
        answers = await asyncio.gather(*calls)
        assert all(len(a.body) == len(body) for a in answers)

    bench(scenario)


def test_stop_closes_listener_and_connections(bench: Run) -> None:
    async def scenario(case: Any) -> None:
        raw = await case.raw()
        await case.server.stop()
        with pytest.raises(EOFError):
            await raw.receive()
        with pytest.raises(ConnectionRefusedError):
            await case.raw()

    bench(scenario)


def test_pending_is_bounded() -> None:
    loop = asyncio.new_event_loop()
    table = PendingTable(capacity=2)
    for opaque in range(2):
        table.check()
        table.add(opaque, loop.create_future(), 1.0)
    with pytest.raises(TooManyRequests):
        table.check()
    loop.close()


def test_addresses() -> None:
    assert split_address("10.0.0.1:80") == ("10.0.0.1", 80)
    assert split_address("[::1]:80") == ("::1", 80)
    assert host_of("10.0.0.1", 10911) == b"\x0a\x00\x00\x01\x00\x00\x2a\x9f"
    assert host_of("::ffff:10.0.0.1", 1) == b"\x0a\x00\x00\x01\x00\x00\x00\x01"
    assert len(host_of("fe80::1%eth0", 1)) == 20
    for bad in ("", "host", "host:", ":80", "host:0", "host:65536", "host:x"):
        with pytest.raises(ConnectError):
            split_address(bad)
