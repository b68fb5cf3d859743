"""The door: the first bytes of a connection say what it speaks, however they arrive."""

import asyncio
from typing import Any

import pytest

from roquette.base.clock import SystemClock
from roquette.base.lifecycle import Tasks
from roquette.remoting.dispatcher import Dispatcher
from roquette.remoting.door import Speaks
from roquette.remoting.lanes import LaneLimits
from roquette.remoting.outcomes import Reply
from roquette.remoting.request import Row
from roquette.remoting.server import Server
from roquette.wire.connection import Connection

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


async def served() -> tuple[Server, int, list[Other]]:
    made: list[Other] = []
    row = Row(1, lambda job, header, body: Reply(b"", body), None, 0)
    clock, loop = SystemClock(), asyncio.get_running_loop()
    dispatcher = Dispatcher([row], [LaneLimits("all", 10)], clock, loop, Tasks())
    server = Server(dispatcher, clock)
    speaks = Speaks(http2=lambda number, on_made, on_lost: Other(made))
    return server, await server.start("127.0.0.1", 0, None, speaks), made


@pytest.mark.parametrize("pieces", [1, 2, 3, len(PREFACE)])
def test_http2_is_let_in_as_such_however_it_arrives(pieces: int) -> None:
    asyncio.run(http2_is_let_in_as_such_however_it_arrives(pieces))


async def http2_is_let_in_as_such_however_it_arrives(pieces: int) -> None:
    server, port, made = await served()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for at in range(0, len(PREFACE), step := -(-len(PREFACE) // pieces)):
        writer.write(PREFACE[at : at + step])
        await writer.drain()
        await asyncio.sleep(0.002)
    assert await reader.readexactly(5) == b"http2"
    assert made[0].got == PREFACE
    writer.close()
    await server.stop()


@pytest.mark.parametrize("step", [1, 2, 3, 1000])
def test_the_remoting_protocol_is_let_in_however_it_arrives(step: int) -> None:
    asyncio.run(the_remoting_protocol_is_let_in_however_it_arrives(step))


async def the_remoting_protocol_is_let_in_however_it_arrives(step: int) -> None:
    server, port, made = await served()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    wire = Connection()
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
