"""The door: the first bytes of a connection say what it speaks, however they arrive."""

import asyncio
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from ipaddress import ip_network
from typing import Any

import pytest
from tests.remoting.tls_world import client_context, serving

from roquette.base.clock import LoopClock, SystemClock
from roquette.base.lifecycle import Tasks
from roquette.base.logs import RateLimited
from roquette.remoting.dispatcher import Dispatcher, LaneLimits
from roquette.remoting.door import (
    TLS_ONLY,
    UNKNOWN,
    ConnectionKind,
    Door,
    Lobby,
    PortProtocols,
    is_local,
    kind_of,
)
from roquette.remoting.http_pages import HttpPages
from roquette.remoting.request import Reply, Row
from roquette.remoting.server import ConnectionBound, Server
from roquette.remoting.tls import ServerTls, TlsMode
from roquette.wire.connection import WireConnection
from roquette_testing.embedded import ManualClock
from roquette_testing.sim_loop import SimLoop, run

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Other(asyncio.Protocol):
    """What speaks HTTP/2 here: keeps what it gets, and says so."""

    def __init__(self, made: Any) -> None:
        self.got = b""
        made.append(self)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data
        if self.got == PREFACE:
            self.transport.write(b"http2")


async def served(
    tls: ServerTls | None = None, load: Callable[[], Awaitable[object] | None] = lambda: None
) -> tuple[Server, int, list[Other]]:
    made: list[Other] = []
    row = Row(1, lambda job, header, body: Reply(b"", body), None, 0)
    clock, loop = SystemClock(), asyncio.get_running_loop()
    dispatcher = Dispatcher([row], [LaneLimits("all", 10)], clock, loop, Tasks())
    server = Server(dispatcher, clock)
    protocols = PortProtocols(
        http2=lambda number, on_made, on_lost, pages: Other(made),
        load=load,
        pages=HttpPages(about="a port"),
    )
    return server, await server.start("127.0.0.1", 0, tls, protocols), made


@pytest.mark.parametrize("pieces", [1, 2, 3, len(PREFACE)])
@pytest.mark.parametrize("late", [False, True], ids=["there", "loaded first"])
def test_http2_is_let_in_as_such_however_it_arrives(pieces: int, late: bool) -> None:
    asyncio.run(http2_is_let_in_as_such_however_it_arrives(pieces, late))


async def http2_is_let_in_as_such_however_it_arrives(pieces: int, late: bool) -> None:
    server, port, made = await served(load=lambda: asyncio.sleep(0.02) if late else None)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for at in range(0, len(PREFACE), step := -(-len(PREFACE) // pieces)):
        writer.write(PREFACE[at : at + step])
        await writer.drain()
        await asyncio.sleep(0.002)
    assert await reader.readexactly(5) == b"http2"
    assert made[0].got == PREFACE
    writer.close()
    await server.stop()


@pytest.mark.parametrize("by", ["client", "port"])
def test_who_is_gone_before_http2_is_loaded_leaves_nothing_open(by: str) -> None:
    asyncio.run(who_is_gone_before_http2_is_loaded_leaves_nothing_open(by))


async def who_is_gone_before_http2_is_loaded_leaves_nothing_open(by: str) -> None:
    loaded = asyncio.Event()
    server, port, made = await served(load=loaded.wait)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(PREFACE)
    await asyncio.sleep(0.05)
    assert not made
    if by == "port":
        await server.stop()
        assert await reader.read() == b""
    writer.transport.abort()
    await asyncio.sleep(0.05)
    loaded.set()
    await asyncio.sleep(0.05)
    assert not made or made[0].transport.is_closing()
    await server.stop()


@pytest.mark.parametrize("step", [1, 2, 3, 1000])
def test_the_remoting_protocol_is_let_in_however_it_arrives(step: int) -> None:
    asyncio.run(the_remoting_protocol_is_let_in_however_it_arrives(step))


async def the_remoting_protocol_is_let_in_however_it_arrives(step: int) -> None:
    server, port, made = await served()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    wire = WireConnection()
    wire.send_request(1, b"", b"hello", False)
    frame = b"".join(wire.data_to_send())
    for at in range(0, len(frame), step):
        writer.write(frame[at : at + step])
        await writer.drain()
    found: list[Any] = []
    while not found:
        found = wire.receive_data(await reader.read(1000))
    assert found[0].body == b"hello"
    assert not made
    writer.close()
    await server.stop()


HOST, PORT = "10.0.0.1", 10911
PROXY = b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 10911\r\n"


def frame(body: bytes = b"hello") -> bytes:
    wire = WireConnection()
    wire.send_request(1, b"", body, False)
    return b"".join(wire.data_to_send())


class World:
    """A server in virtual time, and raw peers."""

    def __init__(
        self, loop: SimLoop, tls: ServerTls | None, bound: int = 100, **protocols: Any
    ) -> None:
        self.made: list[Other] = []
        self.seen: list[str] = []

        def echo(job: Any, header: None, body: bytes) -> Reply:
            self.seen.append(job.peer.remote)
            return Reply(b"", body)

        clock = LoopClock(loop)
        dispatcher = Dispatcher(
            [Row(1, echo, None, 0)], [LaneLimits("all", 10)], clock, loop, Tasks()
        )
        self.server = Server(dispatcher, clock, bound=ConnectionBound(bound))
        self.tls = tls
        self.protocols = PortProtocols(
            **{"pages": HttpPages(about="a port", anyone=True)}
            | {"http2": lambda number, made, lost, pages: Other(self.made)}
            | {"trusted": (ip_network("10.0.0.0/8"),)}
            | protocols
        )

    async def send(self, data: bytes, step: int = 10_000, inside: bool = False) -> bytes:
        """What comes back until the end, or until it is an answer of the remoting protocol or of HTTP/2."""
        context = client_context() if inside else None
        reader, writer = await asyncio.open_connection(
            HOST, PORT, ssl=context, server_hostname=HOST if inside else None
        )
        for at in range(0, len(data), step):
            writer.write(data[at : at + step])
            await asyncio.sleep(0.01)
        got = b""
        try:
            while (more := await reader.read(10_000)) and got != b"http2":
                got += more
                if got[:1] == b"\0" and got.endswith(b"hello"):
                    break
                if got == b"http2":
                    break
        except ConnectionError:
            got += b"reset"
        writer.close()
        return got


def world(
    scenario: Callable[[World], Coroutine[Any, Any, None]],
    tls: ServerTls | None = None,
    seed: int = 1,
    **options: Any,
) -> None:
    async def main(loop: SimLoop) -> None:
        it = World(loop, tls, **options)
        await it.server.start(HOST, PORT, tls, it.protocols)
        await scenario(it)
        await it.server.stop()

    run(main, seed)


KINDS = [
    (frame(), b"hello", "remoting"),
    (PREFACE, b"http2", "HTTP/2"),
    (b"GET / HTTP/1.0\r\n\r\n", b"a port\n", "HTTP/1"),
    (b"OPTIONS / HTTP/1.0\r\n\r\n", b"only GET", "HTTP/1, another method"),
    (PROXY + frame(), b"hello", "PROXY, remoting"),
    (PROXY + PREFACE, b"http2", "PROXY, HTTP/2"),
    (PROXY + b"GET / HTTP/1.0\r\n\r\n", b"a port\n", "PROXY, HTTP/1"),
    (PROXY + PROXY + frame(), UNKNOWN, "PROXY, twice"),
    (b"hello world", UNKNOWN, "words"),
    (b"\x16\x03\x01\x02\x00", b"TLS is disabled", "TLS, which is not there"),
    (b"PROST", UNKNOWN, "nearly PROXY"),
    (b"\xff" * 100_000, UNKNOWN, "much"),
]


@pytest.mark.promise(
    "Security",
    "what is none of the protocols gets a line and is closed; the first word has 10 s; of too many silent ones the first go",
)
@pytest.mark.parametrize("step", [1, 2, 5, 200_000])
@pytest.mark.parametrize(("data", "answer"), [k[:2] for k in KINDS], ids=[k[2] for k in KINDS])
def test_each_kind_is_told_however_it_arrives(data: bytes, answer: bytes, step: int) -> None:
    async def scenario(it: World) -> None:
        got = await it.send(data[: 1000 * step], step)
        assert answer in got or (len(data) > 65_536 and got.endswith(b"reset"))
        if PROXY in data and it.seen:
            assert it.seen == ["192.0.2.7:4711"]

    world(scenario)


@pytest.mark.parametrize("data", [frame(), PREFACE, b"GET / HTTP/1.0\r\n\r\n", b"hello world"])
def test_each_kind_is_told_inside_tls(data: bytes) -> None:
    """Python's own TLS at the other end: its loop must be a real one."""

    async def main() -> None:
        server, port, made = await served(serving())
        for step in (1, 1000):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=client_context(), server_hostname="127.0.0.1"
            )
            for at in range(0, len(data), step):
                writer.write(data[at : at + step])
                await writer.drain()
            async with asyncio.timeout(60):
                got = await reader.read(200)
            assert got == b"http2" or b"hello" in got or b"a port" in got or got == UNKNOWN
            writer.close()
        await server.stop()
        assert bool(made) == (data == PREFACE)

    asyncio.run(main())


def test_grpc_in_java_and_go_gets_the_protocol_it_asks_for() -> None:
    async def main() -> None:
        server, port, _ = await served(serving())
        context = client_context()
        context.set_alpn_protocols(["h2"])
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="127.0.0.1"
        )
        inner: ssl.SSLObject = writer.get_extra_info("ssl_object")
        writer.close()
        await server.stop()
        assert inner.selected_alpn_protocol() in (None, "h2")

    asyncio.run(main())


@pytest.mark.promise(
    "Security",
    "what is none of the protocols gets a line and is closed; the first word has 10 s; of too many silent ones the first go",
)
def test_silence_is_allowed_before_the_first_byte_and_not_after_it() -> None:
    """Apache's Java client opens connections to all name servers ahead, and says nothing on most of them."""

    async def scenario(it: World) -> None:
        reader, writer = await asyncio.open_connection(HOST, PORT)
        await asyncio.sleep(100)
        writer.write(frame())
        assert (await reader.read(1000)).endswith(b"hello")
        writer.close()
        for first in (b"P", b"PROXY TCP4 ", b"GE"):
            began = asyncio.get_running_loop().time()
            assert await it.send(first) == UNKNOWN
            assert 9 < asyncio.get_running_loop().time() - began < 12

    world(scenario)


@pytest.mark.promise(
    "Security",
    "what is none of the protocols gets a line and is closed; the first word has 10 s; of too many silent ones the first go",
)
def test_when_there_are_too_many_who_is_silent_longest_goes_first() -> None:
    async def scenario(it: World) -> None:
        silent = [await asyncio.open_connection(HOST, PORT) for _ in range(5)]
        await asyncio.sleep(1)
        assert (await it.send(frame())).endswith(b"hello")
        with pytest.raises(ConnectionError):
            await silent[0][0].read()
        silent[4][1].write(frame())
        assert (await silent[4][0].read(1000)).endswith(b"hello")
        assert it.server.refusals()["connections"] == 1
        for _, writer in silent:
            writer.close()

    world(scenario, bound=5)


def test_connections_are_counted_once_and_let_go() -> None:
    async def scenario(it: World) -> None:
        for data, _, _ in KINDS * 3:
            await it.send(data[:1000])
        await asyncio.sleep(10)
        assert not it.server.peers
        assert (
            it.server._bound.open == len(it.server._lobby) == 0
        )  # the toy of HTTP/2 is not counted

    world(scenario)


@pytest.mark.promise(
    "Security", "an address in a PROXY header is believed of whom `proxyProtocolTrusted` names"
)
def test_a_proxy_header_is_believed_of_trusted_addresses_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(it: World) -> None:
        assert b"proxyProtocolTrusted" in await it.send(PROXY + frame(), 3)
        assert not it.seen

    world(scenario, trusted=())
    assert "proxyProtocolTrusted" in caplog.text


def test_an_enforcing_port_tells_whom_it_can() -> None:
    async def scenario(it: World) -> None:
        assert await it.send(b"GET / HTTP/1.0\r\n\r\n") == TLS_ONLY
        assert await it.send(frame()) == b"reset"
        assert await it.send(PROXY + frame()) == b"reset"

    world(scenario, serving(mode=TlsMode.ENFORCING))


def test_what_is_refused_is_counted_by_why() -> None:
    async def scenario(it: World) -> None:
        await it.send(b"\x16\x03\x01\x00\x05hello")  # no handshake
        await it.send(b"\xff" * 9)
        await it.send(frame())
        _, gone = await asyncio.open_connection(HOST, PORT)
        gone.transport.abort()  # without a word: no handshake has failed
        await asyncio.sleep(1)
        counts = {"busy": 0, "unsupported": 0, "tls": 1, "connections": 0}
        assert it.server.refusals() == counts | {"protocol": it.server._limits.strangers}
        assert it.server._limits.strangers > 0

    world(scenario, serving())


def test_a_port_without_grpc_says_where_to_go() -> None:
    async def scenario(it: World) -> None:
        got = await it.send(PREFACE)
        assert got[3] == 4
        assert got[9 + 3] == 7
        assert b"broker" in got

    world(scenario, http2=None)


def test_what_is_local() -> None:
    assert is_local("127.0.0.1")
    assert is_local("::1")
    assert is_local("::ffff:127.0.0.1")
    assert not is_local("10.0.0.1")
    assert not is_local("")


# Fuzz: a door of its own, without a server.


class _Pipe(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.2", 4711)})
        self.protocol: Any = None
        self.written = b""
        self.ended = False

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def write(self, data: Any) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        self.written += b"".join(list_of_data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def get_write_buffer_size(self) -> int:
        return 0

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return 0, 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    def get_protocol(self) -> Any:
        return self.protocol

    def pause_reading(self) -> None:
        return

    def resume_reading(self) -> None:
        return

    def is_reading(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.ended = True

    abort = close


class _Kept(asyncio.Protocol):
    def __init__(self) -> None:
        self.got = b""

    def data_received(self, data: bytes) -> None:
        self.got += data


async def fuzz(seed: int, count: int) -> None:
    """Mutated beginnings in random pieces: nothing is lost on the way in, no error leaves the door, all is counted."""
    chance = random.Random(seed)
    counted = 0
    kinds: list[ConnectionKind] = []

    def inner(kind: ConnectionKind) -> _Kept:
        kinds.append(kind)
        return _Kept()

    def admit(remote: str) -> bool:
        nonlocal counted
        counted += 1
        return True

    def release() -> None:
        nonlocal counted
        counted -= 1

    noise = RateLimited(logging.getLogger("none"), ManualClock())
    lobby = Lobby(admit, release, noise, 120)
    protocols = PortProtocols(
        http2=lambda number, made, lost, pages: _Kept(),
        pages=HttpPages(about="x"),
        trusted=(ip_network("10.0.0.0/8"),),
    )
    for _ in range(count):
        data = bytearray(chance.choice(KINDS[:-1])[0] + chance.randbytes(chance.randrange(8)))
        for _ in range(chance.randrange(3)):
            data[chance.randrange(min(len(data), 60))] = chance.randrange(256)
        pipe = _Pipe()
        door = pipe.protocol = Door(None, inner, lobby, protocols)
        door.connection_made(pipe)
        at = 0
        while at < len(data) and not pipe.ended:
            step = chance.choice((1, 2, 3, 30, 1000))
            pipe.protocol.data_received(bytes(data[at : at + step]))
            at += step
        if isinstance(pipe.protocol, _Kept):
            found = kind_of(pipe.protocol.got)
            assert found is kinds.pop()
            assert data.endswith(pipe.protocol.got)
        elif pipe.protocol is door:
            assert len(data) < 5000
        pipe.protocol.connection_lost(None)
        assert counted == 0
        assert not kinds


def test_any_bytes() -> None:
    asyncio.run(fuzz(1, 3_000))


@pytest.mark.long
def test_many_bytes() -> None:
    asyncio.run(fuzz(2, 150_000))


def test_who_comes_after_the_port_was_closed_is_cut_off() -> None:
    """The loop makes a connection some turns after the system accepted it. One that was made behind the end of its server
    would stay open, and nobody would ever answer it: a broker that changes its role goes on in the same process."""

    async def case() -> None:
        noise = RateLimited(logging.getLogger("test"), SystemClock())
        lobby = Lobby(lambda remote: True, lambda: None, noise, 120)
        await lobby.close()
        door = Door(None, lambda kind: asyncio.Protocol(), lobby)
        transport = Late()
        door.connection_made(transport)
        assert transport.aborted and not len(lobby)

    asyncio.run(case())


class Late(asyncio.Transport):
    """A connection that does nothing."""

    aborted = False

    def abort(self) -> None:
        self.aborted = True
