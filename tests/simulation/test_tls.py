"""Servers and clients over TLS in virtual time: connections cut at random, slow and silent peers, contexts that change.

What TLS says is random, so that a seed gives the same faults but not the same fingerprint.
"""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.remoting.conftest import ADDRESS, BIG, ECHO, HOST, PORT, TASK, Bench
from tests.remoting.test_ha import Side
from tests.remoting.tls_world import calling, client_context, server_context, serving

from roquette.base.clock import LoopClock
from roquette.base.logs import RateLimited
from roquette.errors import ClientError, ConfigError, ConnectError
from roquette.remoting.client import RemotingClient
from roquette.remoting.door import AT_ONCE, Lobby
from roquette.remoting.ha import HaConnection, HaDoor, Silence, call_master
from roquette.remoting.security import Security
from roquette.remoting.server import ConnectionBound
from roquette.remoting.tls import ServerTls, TlsMode, connect, log
from roquette.wire.connection import WireConnection
from roquette_testing.sim_loop import SimLoop, run

pytestmark = pytest.mark.simulation

SERVER, CLIENT = server_context(), client_context()
ASKS = server_context(asks=True)
MIB = 1 << 20

Scenario = Callable[[Bench], Coroutine[Any, Any, None]]


def world(scenario: Scenario, tls: ServerTls | None, seed: int = 1, **options: Any) -> None:
    """Run a scenario against a server with TLS; in the end nothing of any connection is left."""

    async def main(loop: SimLoop) -> None:
        bound = ConnectionBound(options.pop("most", 100))
        case = Bench(loop, bound=bound, **options)
        await case.server.start(HOST, PORT, tls)
        await scenario(case)
        await asyncio.sleep(300)
        assert not case.server.peers and not len(case.server._lobby) and not bound.open
        await case.server.stop()
        await case.tasks.stop()

    run(main, seed)


def caller(case: Bench, host: str = "10.0.0.2", context: ssl.SSLContext = CLIENT) -> RemotingClient:
    return case.client(local_host=host, security=Security(tls=calling(context)))


class Inside(asyncio.Protocol):
    """A peer that speaks frames inside TLS by hand."""

    def __init__(self, reads: bool = True) -> None:
        self.reads = reads
        self.got = 0
        self.lost = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if not self.reads:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.got += len(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True


@pytest.mark.parametrize("part", range(4))
def test_connections_cut_at_random(part: int) -> None:
    for seed in range(part * 50, part * 50 + 50):
        world(_cuts, serving(SERVER, TlsMode.ENFORCING), seed)


async def _cuts(case: Bench) -> None:
    loop, rnd = case.loop, case.loop.random
    clients = [caller(case, f"10.0.0.{n}") for n in (2, 3)]
    done = False

    async def cut() -> None:
        while not done:
            await asyncio.sleep(rnd.uniform(0, 0.015))
            host = rnd.choice((HOST, "10.0.0.2", "10.0.0.3"))
            if rnd.random() < 0.2:
                loop.network.isolate(host)
                await asyncio.sleep(rnd.uniform(0, 0.5))
                loop.network.heal()
            loop.network.reset(host)

    async def ask(client: RemotingClient) -> None:
        for number in range(12):
            body = b"%d" % number * rnd.choice((1, 100, 30_000))
            try:
                answer = await client.invoke(ADDRESS, ECHO, b"", body)
            except ClientError:
                continue
            assert answer.body == body

    cutting = loop.create_task(cut())
    await asyncio.gather(*(ask(client) for client in clients))
    done = True
    await cutting
    loop.network.heal()
    await asyncio.sleep(1)
    for client in clients:
        assert (await client.invoke(ADDRESS, ECHO, b"", b"after all")).body == b"after all"
        await client.close()


def test_contexts_that_change_under_load_fail_no_request() -> None:
    contexts = [server_context() for _ in range(3)]
    given: list[ssl.SSLContext] = []

    async def context() -> ssl.SSLContext:
        await asyncio.sleep(0.003)
        given.append(contexts[len(given) % 3])
        return given[-1]

    async def scenario(case: Bench) -> None:
        steady = caller(case)

        async def ask(client: RemotingClient, times: int) -> None:
            for number in range(times):
                assert (await client.invoke(ADDRESS, ECHO, b"", b"%d" % number)).code == 0
            await client.close()

        fresh = [caller(case, f"10.0.1.{n}") for n in range(1, 41)]
        await asyncio.gather(ask(steady, 200), *(ask(each, 3) for each in fresh))
        assert len(given) == 41

    world(scenario, ServerTls(TlsMode.PERMISSIVE, context))


def test_requests_wait_for_a_context_that_is_made_late() -> None:
    async def context() -> ssl.SSLContext:
        await asyncio.sleep(2)
        return SERVER

    async def scenario(case: Bench) -> None:
        client = caller(case)
        assert (await client.invoke(ADDRESS, ECHO, b"", b"x", timeout_ms=5_000)).body == b"x"
        plain = case.client(local_host="10.0.0.3")
        assert (await plain.invoke(ADDRESS, TASK, b"", b"y")).body == b"y"
        await client.close()
        await plain.close()

    world(scenario, ServerTls(TlsMode.PERMISSIVE, context))


def test_without_a_certificate_there_is_an_error_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def context() -> ssl.SSLContext:
        raise ConfigError("set tls.server.certPath")

    async def scenario(case: Bench) -> None:
        client, began = caller(case), case.loop.time()
        with pytest.raises(ConnectError, match="handshake"):
            await client.invoke(ADDRESS, ECHO)
        assert case.loop.time() - began < 1
        await client.close()

    world(scenario, ServerTls(TlsMode.PERMISSIVE, context))
    assert "set tls.server.certPath" in caplog.text


@pytest.mark.parametrize("kind", ["silent", "slow", "half"])
def test_peers_that_do_not_go_on_are_ended(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Silent ones when they are idle, others when their handshake takes too long."""

    async def scenario(case: Bench) -> None:
        bio = ssl.MemoryBIO()
        hello = CLIENT.wrap_bio(ssl.MemoryBIO(), bio, server_hostname=HOST)
        with pytest.raises(ssl.SSLWantReadError):
            hello.do_handshake()
        said = bio.read()
        reader, writer = await asyncio.open_connection(HOST, PORT)
        began = case.loop.time()
        if kind == "half":
            writer.write(said)
        for byte in said[:100] if kind == "slow" else b"":
            writer.write(bytes((byte,)))
            await asyncio.sleep(0.5)
            if reader.at_eof() or reader.exception() is not None:
                break
        if kind == "silent":
            await asyncio.sleep(0.1)
            assert len(case.server._lobby) == 1
        async with asyncio.timeout(200):
            while not reader.at_eof() and reader.exception() is None:
                await asyncio.sleep(0.1)
        took = case.loop.time() - began
        assert took < 11 if kind != "silent" else 100 < took < 140

    world(scenario, serving(SERVER))
    assert ("TLS handshake is not over after 10 s" in caplog.text) == (kind != "silent")


def test_silent_connections_count_as_connections(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(case: Bench) -> None:
        silent = [await asyncio.open_connection(HOST, PORT) for _ in range(3)]
        client = caller(case)
        assert (await client.invoke(ADDRESS, ECHO)).code == 0
        with pytest.raises(ConnectionError):  # the one that is silent longest made room
            await silent[0][0].read()
        assert not silent[1][0].at_eof()
        await client.close()

    world(scenario, serving(SERVER), most=3)
    assert "3 are open, the most there may be" in caplog.text


def test_answers_for_a_peer_that_does_not_read_stay_bounded() -> None:
    """As they are without TLS: requests wait unprocessed, their answers do not exist."""
    waiting: dict[bool, int] = {}

    async def scenario(case: Bench, secure: bool) -> None:
        inside = Inside(reads=False)
        noise = RateLimited(log, case.clock)
        tls = calling(CLIENT) if secure else None
        await connect(lambda: inside, HOST, PORT, tls, noise)
        await asyncio.sleep(1)
        wire = WireConnection()
        for _ in range(20):
            wire.send_request(BIG, b"", b"", False)
            inside.transport.writelines(wire.data_to_send())
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        (peer,) = case.server.peers.values()
        waiting[secure] = peer.transport.get_write_buffer_size()
        inside.transport.resume_reading()
        await asyncio.sleep(5)
        assert inside.got > 20 * 4 * MIB
        inside.transport.close()

    for secure in (False, True):
        world(
            lambda case, secure=secure: scenario(case, secure), serving(SERVER), reply_size=2 * MIB
        )
    assert 3 * MIB < waiting[False] < 9 * MIB
    assert waiting[True] < waiting[False] + MIB


def test_both_ends_close_at_once() -> None:
    async def scenario(case: Bench) -> None:
        client = caller(case)
        await client.invoke(ADDRESS, ECHO)
        await asyncio.gather(client.close(), case.server.stop())
        await asyncio.sleep(1)
        assert len(case.lost) == 1

    for seed in range(20):
        world(scenario, serving(SERVER), seed)


def test_clients_that_come_at_once_begin_few_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    real = Lobby._next_turn

    def count(lobby: Lobby) -> None:
        begun.append(lobby._begun)
        real(lobby)

    monkeypatch.setattr(Lobby, "_next_turn", count)

    async def scenario(case: Bench) -> None:
        case.loop.network.delay_s = (0.001, 0.001)
        clients = [caller(case, f"10.0.1.{n}") for n in range(1, 61)]
        await asyncio.gather(*(each.invoke(ADDRESS, ECHO) for each in clients))
        for each in clients:
            await each.close()

    world(scenario, serving(SERVER))
    assert sum(begun) == 60 and max(begun) == AT_ONCE


def test_a_client_that_has_to_show_a_certificate_hears_it_at_once() -> None:
    """In TLS 1.3 its own handshake was over by then."""

    async def scenario(case: Bench) -> None:
        client, began = caller(case), case.loop.time()
        with pytest.raises(ConnectError, match="it asks for a client certificate"):
            await client.invoke(ADDRESS, ECHO)
        assert case.loop.time() - began < 1
        await client.close()

    for seed in range(20):
        world(scenario, serving(ASKS), seed)


def test_replication_goes_over_tls_and_only_so_if_it_must() -> None:
    async def main(loop: SimLoop) -> None:
        clock = LoopClock(loop, 1_700_000_000_000)
        sides: list[Side] = []

        def side(connection: HaConnection) -> Side:
            sides.append(Side(connection))
            return sides[-1]

        door = HaDoor(side, Silence(5_000, 20_000), clock, tls=serving(SERVER, TlsMode.ENFORCING))
        await door.open("10.0.0.254", 10912)
        address = "10.0.0.254:10912"
        ours = await call_master(address, side, clock, tls=calling(CLIENT))
        data = bytes(range(256)) * 20_000
        ours.send([data[:10], data[10:3_000_000], data[3_000_000:]])
        await asyncio.sleep(1)
        assert sides[1].heard == data
        await call_master(address, side, clock)
        sides[2].connection.send([b"plain"])
        await asyncio.sleep(1)
        assert sides[2].ended and len(sides) == 3
        with pytest.raises(ConnectError, match="its certificate is refused"):
            await call_master(address, side, clock, tls=calling(ssl.create_default_context()))
        await door.close()
        await asyncio.sleep(1)
        assert all(each.ended for each in sides)

    run(main, 1)
