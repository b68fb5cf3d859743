"""The pages of a port over HTTP/2, beside gRPC: the answers of HTTP/1.1, by the same handler."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.proxy.test_session import HOST, PORT, Client, libraries
from tests.proxy.toy_proxy import World
from tests.wire.http2_h2 import H2Connection

from roquette.base.clock import LoopClock, SystemClock
from roquette.remoting.http1 import HttpSession
from roquette.remoting.http_pages import HttpPages, StreamedPage
from roquette_testing.sim_loop import SimLoop, run

PIECE = b"rocketmq_x{} 1.0\n" * 1_000


def pages(begin: Callable[[], Iterator[bytes]], **more: bool) -> tuple[HttpPages, StreamedPage]:
    page = StreamedPage(kind="text/x", begin=begin)
    found = HttpPages(
        about="a port",
        check_readiness=lambda: "it stops",
        more={"/more": lambda: ("text/y", b"more")},
        streams={"/metrics": page},
        **{"anyone": True, "shown": True} | more,
    )
    return found, page


def scrape() -> Iterator[bytes]:
    return iter([b"", PIECE, b"", b"end\n"])


async def serve(
    scenario: Callable[[World, Client], Awaitable[None]],
    world: World,
    shown: HttpPages,
    library: str,
    window: int,
) -> None:
    loop, world.pages = asyncio.get_running_loop(), shown
    if library == "h2":
        world.sessions.connect = H2Connection
    host = HOST if isinstance(loop, SimLoop) else "127.0.0.1"
    listener = await loop.create_server(world.accept, host, PORT if host == HOST else 0)
    port = PORT if host == HOST else listener.sockets[0].getsockname()[1]
    _, client = await loop.create_connection(lambda: Client(window), host, port)
    await scenario(world, client)
    listener.close()
    await world.sessions.close()
    assert not world.dispatcher.limits.account.total


def go(
    scenario: Callable[[World, Client], Awaitable[None]],
    shown: HttpPages,
    library: str = "ngh2",
    window: int = 1 << 20,
) -> None:
    """In virtual time."""

    async def main(loop: SimLoop) -> None:
        await serve(scenario, World(loop, LoopClock(loop)), shown, library, window)

    run(main, 1)


def go_really(
    scenario: Callable[[World, Client], Awaitable[None]], shown: HttpPages, library: str
) -> None:
    """In real time, which goes on while a page is made without an end."""

    async def main() -> None:
        world = World(asyncio.get_running_loop(), SystemClock())
        await serve(scenario, world, shown, library, 1 << 20)

    asyncio.run(main())


def ask(client: Client, path: str, method: str = "GET", authority: str = "door:8081") -> int:
    fields = {":method": method, ":scheme": "http", ":path": path, ":authority": authority}
    head = tuple((name.encode(), value.encode()) for name, value in fields.items())
    stream: int = client.http.send_request(head, end_stream=True)
    client.write()
    return stream


async def over_http1(shown: HttpPages, method: str, path: str, host: str) -> tuple[int, str, bytes]:
    """Status, content type and body."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: HttpSession(shown, False, int), HOST, PORT + 1)
    reader, writer = await asyncio.open_connection(HOST, PORT + 1)
    writer.write(f"{method} {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    server.close()
    lines = head.decode().split("\r\n")
    kind = next(line for line in lines if line.startswith("Content-Type: "))
    return int(lines[0].split()[1]), kind.removeprefix("Content-Type: "), body


@libraries
@pytest.mark.parametrize(
    "own", [{}, {"shown": False}, {"anyone": False}], ids=["all", "near", "none"]
)
def test_the_answers_are_those_over_http1(library: str, own: dict[str, bool]) -> None:
    """Before: 404 and a word about gRPC, whatever the page."""
    shown, page = pages(scrape, **own)
    asked = [
        (method, path)
        for method in ("GET", "HEAD")
        for path in ("/", "/healthz", "/readyz", "/metrics?x=1", "/metrics", "/more", "/none")
    ]

    async def scenario(world: World, client: Client) -> None:
        for method, path in asked:
            wanted = await over_http1(shown, method, path, "door:8081")
            stream = ask(client, path, method)
            await asyncio.sleep(1)
            kind = client.kinds[stream].decode()
            body = client.heard.get(stream, b"")
            assert (int(client.http_status[stream]), kind, body) == wanted, (method, path)
            assert stream not in client.resets
        assert not page.running

    go(scenario, shown, library)


@libraries
def test_a_page_larger_than_the_window_arrives_whole(library: str) -> None:
    shown, page = pages(lambda: iter([PIECE] * 30))

    async def scenario(world: World, client: Client) -> None:
        stream = ask(client, "/metrics")
        await asyncio.sleep(5)
        assert client.heard[stream] == PIECE * 30
        assert not page.running and stream not in client.resets

    go(scenario, shown, library, window=20_000)


@libraries
def test_a_page_ends_with_who_asked_for_it(library: str) -> None:
    """Reset by the client, and with its connection; what was being made is given up."""
    ended: list[int] = []

    def for_ever() -> Iterator[bytes]:
        try:
            while True:
                yield b""
        finally:
            ended.append(1)

    shown, page = pages(for_ever)

    async def scenario(world: World, client: Client) -> None:
        first, _ = ask(client, "/metrics"), ask(client, "/metrics")
        await asyncio.sleep(0.1)
        assert page.running == 2
        third = ask(client, "/metrics")
        await asyncio.sleep(0.1)
        assert client.http_status[third] == b"503", "as many are sent as may be"
        client.cancel(first)
        await asyncio.sleep(0.1)
        assert page.running == 1
        client.transport.abort()
        await asyncio.sleep(0.1)
        assert not page.running and len(ended) == 2

    go_really(scenario, shown, library)


def fails() -> Iterator[bytes]:
    yield PIECE
    raise ValueError("a defect")


def never_ends() -> Iterator[bytes]:
    while True:
        yield b""


@libraries
@pytest.mark.parametrize("begin", [fails, never_ends])
def test_a_part_is_never_taken_for_all(
    library: str, begin: Callable[[], Iterator[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquette.remoting.http_pages.STREAM_S", 0.2)
    shown, page = pages(begin)

    async def scenario(world: World, client: Client) -> None:
        defects: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: defects.append(told))
        stream = ask(client, "/metrics")
        await asyncio.sleep(0.5)
        assert client.resets[stream] == 8
        assert not page.running
        assert len(defects) == (begin is fails)

    go_really(scenario, shown, library)


@libraries
def test_an_authority_that_is_none_is_a_bad_request(library: str) -> None:
    async def scenario(world: World, client: Client) -> None:
        stream = ask(client, "/", authority="[1:2")
        await asyncio.sleep(1)
        assert client.http_status[stream] == b"400"

    go(scenario, pages(scrape)[0], library)
