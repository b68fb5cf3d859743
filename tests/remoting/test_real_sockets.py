"""The same server and client over the machine's loopback, on asyncio's loop and on uvloop's."""

import asyncio
import functools
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from roquette.base.clock import SystemClock
from roquette.base.lifecycle import Tasks
from roquette.errors import ConnectError
from roquette.remoting.address import open_connection
from roquette.remoting.client import RemotingClient
from roquette.remoting.dispatcher import Dispatcher, LaneLimits
from roquette.remoting.request import Reply, Row
from roquette.remoting.server import Server
from roquette_spark.workers.connection import BlockingConnection


async def exchange() -> None:
    clock = SystemClock()
    lost: list[str] = []
    row = Row(1, lambda ctx, header, body: Reply(b"", [body, body]), None, 0)
    dispatcher = Dispatcher(
        [row], [LaneLimits("all", 10_000)], clock, asyncio.get_running_loop(), Tasks()
    )
    server = Server(dispatcher, clock)
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    client = RemotingClient(clock, on_lost=lost.append)

    large = bytes(3_000_000)
    answers = await asyncio.gather(
        *(client.invoke(address, 1, b"", b"%d" % i) for i in range(500)),
        *(client.invoke(address, 1, b"", large) for _ in range(5)),
    )

    assert [a.body for a in answers[:500]] == [b"%d" % i * 2 for i in range(500)]
    assert all(a.body == large * 2 for a in answers[500:])
    assert len(server.peers) == 1
    assert next(iter(server.peers.values())).remote.startswith("127.0.0.1:")
    await server.stop()
    async with asyncio.timeout(60):
        while not lost:
            await asyncio.sleep(0)
    with pytest.raises(ConnectError):
        await client.invoke(address, 1)
    await client.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_an_exchange(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    run(exchange())


def free_place() -> tuple[str, int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host, port = free.getsockname()
        return host, port


def test_a_port_that_is_connected_with_itself_is_one_where_nobody_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sender that came back again and again while its broker was down got no answer any more once it was up."""
    here = free_place()
    with pytest.raises(ConnectionRefusedError, match="nobody listens"):
        asyncio.run(open_connection(asyncio.Protocol, *here, local_addr=here))

    here, connect = free_place(), socket.create_connection
    with_itself = functools.partial(connect, source_address=here)
    monkeypatch.setattr(socket, "create_connection", with_itself)
    with pytest.raises(ConnectError, match="nobody listens"):
        BlockingConnection(f"127.0.0.1:{here[1]}", timeout_ms=1_000)
