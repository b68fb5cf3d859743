"""The little HTTP of a port: its pages, whom it answers, and its bounds."""

import asyncio
import http.client
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from roquette.remoting.address import host_name
from roquette.remoting.http1 import MOST_HEAD, HttpRefused, HttpSession, read_request
from roquette.remoting.http_pages import HttpPages, StreamedPage
from roquette_testing.sim_loop import SimLoop, run

PAGES = HttpPages(about="a port", more={"/metrics": lambda: ("text/x", b"1 2 3")})
HOST, PORT = "10.0.0.1", 8080


async def serve(
    pages: HttpPages = PAGES, local: bool = True, host: str = HOST, port: int = PORT
) -> tuple[asyncio.AbstractServer, list[int]]:
    gone: list[int] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: HttpSession(pages, local, lambda: gone.append(1)), host, port
    )
    return server, gone


async def ask(text: bytes, step: int = 10_000) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, PORT)
    for at in range(0, len(text), step):
        writer.write(text[at : at + step])
        await asyncio.sleep(0.001)
    answer = await reader.read()
    writer.close()
    return answer


def simulated(scenario: Callable[[], Any], **options: Any) -> None:
    async def main(loop: SimLoop) -> None:
        server, gone = await serve(**options)
        await scenario()
        await asyncio.sleep(20)
        assert gone
        server.close()

    run(main, 1)


@pytest.mark.promise(
    "Security",
    "HTTP: GET and HEAD alone, 16 KiB, 10 s; this machine alone unless the settings say more, by its address, its name or `localhost` as `Host`",
)
@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET / HTTP/1.1", 200, b"a port\n"),
        (b"HEAD / HTTP/1.1", 200, b""),
        (b"GET /healthz?now HTTP/1.1", 200, b"ok\n"),
        (b"GET /readyz HTTP/1.0", 200, b"ok\n"),
        (b"GET /metrics HTTP/1.1", 200, b"1 2 3"),
        (
            b"GET /favicon.ico HTTP/1.1",
            404,
            b"no such page; there are / /healthz /readyz /metrics\n",
        ),
        (b"POST / HTTP/1.1", 405, b"only GET and HEAD are answered here\n"),
        (b"GET / HTTP/3", 505, b"HTTP/1.1 is spoken here\n"),
        (b"GET /", 400, b"this is no request line of HTTP/1.1\n"),
    ],
)
def test_pages(request_line: bytes, status: int, body: bytes, step: int) -> None:
    async def scenario() -> None:
        answer = await ask(
            request_line + b"\r\nHost: localhost:8080\r\nConnection: close\r\n\r\n", step
        )
        head, _, rest = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert rest == body

    simulated(scenario)


@pytest.mark.promise(
    "Security",
    "HTTP: GET and HEAD alone, 16 KiB, 10 s; this machine alone unless the settings say more, by its address, its name or `localhost` as `Host`",
)
def test_others_than_this_machine_are_refused_unless_anyone_may() -> None:
    async def refused() -> None:
        assert b"403" in await ask(b"GET / HTTP/1.0\r\n\r\n")

    async def answered() -> None:
        assert b"200" in await ask(b"GET / HTTP/1.0\r\n\r\n")

    simulated(refused, local=False)
    simulated(answered, local=False, pages=HttpPages(about="a port", anyone=True))


def test_a_server_that_is_not_ready_says_why() -> None:
    async def scenario() -> None:
        answer = await ask(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503")
        assert answer.endswith(b"it stops\n")

    simulated(scenario, pages=HttpPages(about="a port", check_readiness=lambda: "it stops"))


def streamed(count: int, size: int = 3) -> tuple[HttpPages, StreamedPage]:
    """A page /s of so many pieces."""
    page = StreamedPage(kind="text/x", begin=lambda: (b"x" * size for _ in range(count)))
    return HttpPages(about="a port", streams={"/s": page}), page


def unchunked(answer: bytes) -> bytes:
    """The body of an answer in chunks, which are whole."""
    found, rest = b"", answer.partition(b"\r\n\r\n")[2]
    while True:
        size, _, rest = rest.partition(b"\r\n")
        data, rest = rest[: int(size, 16)], rest[int(size, 16) :]
        assert rest.startswith(b"\r\n")
        found, rest = found + data, rest[2:]
        if not data:
            return found


def test_a_streamed_page_comes_in_chunks_or_ends_the_connection() -> None:
    pages, page = streamed(10)

    async def scenario() -> None:
        one = await ask(b"GET /s HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert unchunked(one) == b"x" * 30
        old = await ask(b"GET /s HTTP/1.0\r\n\r\n")
        assert old.partition(b"\r\n\r\n")[2] == b"x" * 30
        head = await ask(b"HEAD /s HTTP/1.0\r\n\r\n")
        assert head.endswith(b"\r\n\r\n")
        two = await ask(b"GET /s HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert two.endswith(b"a port\n")
        assert page.running == 0

    simulated(scenario, pages=pages)


def test_others_run_between_two_pieces_and_who_does_not_read_holds_nothing_up() -> None:
    made = 0

    def pieces() -> Iterator[bytes]:
        nonlocal made
        for _ in range(1_000):
            made += 1
            yield b"x" * 10_000

    page = StreamedPage(kind="text/x", begin=pieces)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        _, writer = await asyncio.open_connection(HOST, PORT, limit=1_000)
        writer.write(b"GET /s HTTP/1.1\r\n\r\n")
        while made == 0:
            await asyncio.sleep(0.001)
        seen = []
        for _ in range(20):
            seen.append(made)
            step = loop.create_future()
            loop.call_soon(step.set_result, None)
            await step
        assert all(later - before <= 2 for before, later in pairwise(seen))
        await asyncio.sleep(1)
        assert made < 500  # it waits for the peer
        assert page.running == 1
        await asyncio.sleep(40)
        assert page.running == 0  # and not for ever
        writer.close()

    simulated(scenario, pages=HttpPages(about="a port", streams={"/s": page}))


def test_so_many_streams_at_the_same_time_and_no_more() -> None:
    pages, page = streamed(1_000, 10_000)

    async def scenario() -> None:
        open_ones = []
        for _ in range(2):
            _, writer = await asyncio.open_connection(HOST, PORT, limit=1_000)
            writer.write(b"GET /s HTTP/1.1\r\n\r\n")
            open_ones.append(writer)
        await asyncio.sleep(1)
        assert b" 503 " in await ask(b"GET /s HTTP/1.0\r\n\r\n")
        for writer in open_ones:
            writer.close()
        await asyncio.sleep(1)
        assert page.running == 0

    simulated(scenario, pages=pages)


@pytest.mark.promise(
    "Security",
    "`/metrics` is for this machine, or the port of `metricsListen`, which silent connections do not take away",
)
def test_a_streamed_page_names_topics_so_others_get_it_by_a_setting_of_its_own() -> None:
    pages, _ = streamed(1)

    async def refused() -> None:
        assert b" 403 " in await ask(b"GET /s HTTP/1.0\r\n\r\n")
        assert b" 200 " in await ask(b"GET /healthz HTTP/1.0\r\n\r\n")

    async def answered() -> None:
        assert b" 200 " in await ask(b"GET /s HTTP/1.0\r\n\r\n")

    simulated(refused, local=False, pages=replace(pages, anyone=True))
    simulated(answered, local=False, pages=replace(pages, anyone=True, shown=True))


def test_a_page_whose_making_fails_is_cut_and_never_taken_for_whole() -> None:
    def pieces() -> Iterator[bytes]:
        yield b"a part"
        raise ValueError("a defect")

    page = StreamedPage(kind="text/x", begin=pieces)

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        with pytest.raises(ConnectionError):
            await ask(b"GET /s HTTP/1.1\r\n\r\n")
        assert page.running == 0

    simulated(scenario, pages=HttpPages(about="a port", streams={"/s": page}))


@pytest.mark.promise(
    "Security",
    "HTTP: GET and HEAD alone, 16 KiB, 10 s; this machine alone unless the settings say more, by its address, its name or `localhost` as `Host`",
)
def test_a_head_that_is_too_long_or_does_not_come_ends_the_connection() -> None:
    async def scenario() -> None:
        assert b" 431 " in await ask(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * MOST_HEAD)
        began = asyncio.get_running_loop().time()
        with pytest.raises(ConnectionError):
            await ask(b"GET / HTTP/1.1\r\n")
        assert asyncio.get_running_loop().time() - began < 11

    simulated(scenario)


def test_a_body_is_read_past_and_the_answer_arrives() -> None:
    async def scenario() -> None:
        text = b"POST / HTTP/1.1\r\nContent-Length: 60000\r\n\r\n" + b"x" * 60_000
        assert b" 405 " in await ask(text)

    simulated(scenario)


def test_pythons_own_client_keeps_its_connection() -> None:
    found: list[tuple[int, bytes]] = []

    def client(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for method, path in (("GET", "/"), ("HEAD", "/"), ("GET", "/x"), ("PUT", "/")):
            body = b"body" if method == "PUT" else None
            connection.request(method, path, body)
            answer = connection.getresponse()
            found.append((answer.status, answer.read()))
        connection.close()

    async def main() -> None:
        server, _ = await serve(host="127.0.0.1", port=0)
        port: int = server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        thread = threading.Thread(target=client, args=(port,))
        thread.start()
        await asyncio.get_running_loop().run_in_executor(None, thread.join)
        server.close()

    asyncio.run(main())
    assert [status for status, _ in found] == [200, 200, 404, 405]
    assert found[0][1] == b"a port\n"


def fuzz(seed: int, count: int) -> None:
    chance = random.Random(seed)
    whole = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    for _ in range(count):
        size = len(whole) if chance.random() < 0.7 else chance.randrange(1, len(whole))
        data = bytearray(whole[:size])
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            found = read_request(bytes(data))
        except HttpRefused:
            continue
        assert found is None or found[1] <= len(data)


def test_any_bytes() -> None:
    fuzz(1, 5_000)


@pytest.mark.long
def test_many_bytes() -> None:
    fuzz(2, 150_000)


@pytest.mark.promise(
    "Security",
    "HTTP: GET and HEAD alone, 16 KiB, 10 s; this machine alone unless the settings say more, by its address, its name or `localhost` as `Host`",
)
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("", 200), ("localhost", 200), ("LOCALHOST:9876", 200), ("127.0.0.1:80", 200), ("[::1]:80", 200),
        (host_name(), 200), ("evil.example", 403), ("evil.example:8080", 403), ("localhost.evil.example", 403),
        ("[::1", 400),
    ],
)  # fmt: skip
def test_a_name_that_leads_here_is_not_this_machine(host: str, status: int) -> None:
    """A page of evil.example in a browser here would read the answers, once its name has the address 127.0.0.1."""
    said = f"Host: {host}\r\n" if host else ""

    async def scenario() -> None:
        answer = await ask(f"GET /metrics HTTP/1.1\r\n{said}Connection: close\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer

    simulated(scenario)


def test_where_everybody_is_answered_any_name_is() -> None:
    async def scenario() -> None:
        answer = await ask(b"GET / HTTP/1.1\r\nHost: lb.example\r\nConnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 "), answer

    simulated(scenario, pages=replace(PAGES, anyone=True))
