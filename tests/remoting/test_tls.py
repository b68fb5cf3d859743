"""TLS over the machine's loopback, on asyncio's loop and on uvloop's; Python's own TLS at the other end."""

import asyncio
import shutil
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from tests.remoting.tls_world import authority, calling, client_context, server_context, serving

from roquette.base.clock import SystemClock
from roquette.base.lifecycle import Tasks
from roquette.errors import ConnectError
from roquette.remoting.client import RemotingClient
from roquette.remoting.dispatcher import Dispatcher, LaneLimits
from roquette.remoting.request import Reply, Row
from roquette.remoting.security import Security
from roquette.remoting.server import Server
from roquette.remoting.tls import ClientTls, ServerTls, TlsMode
from roquette.wire.connection import WireConnection

Run = Callable[[Coroutine[Any, Any, None]], None]
LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


async def serve(tls: ServerTls | None) -> tuple[Server, str]:
    row = Row(1, lambda ctx, header, body: Reply(b"", [body, body]), None, 0)
    loop = asyncio.get_running_loop()
    dispatcher = Dispatcher([row], [LaneLimits("all", 10_000)], SystemClock(), loop, Tasks())
    server = Server(dispatcher, SystemClock())
    return server, f"127.0.0.1:{await server.start('127.0.0.1', 0, tls)}"


def caller(tls: ClientTls | None) -> RemotingClient:
    return RemotingClient(SystemClock(), security=Security(tls=tls))


@LOOPS
@pytest.mark.parametrize("twelve", [False, True], ids=["1.3", "1.2"])
def test_an_exchange_of_small_and_large_frames(run: Run, twelve: bool) -> None:
    async def exchange() -> None:
        server, address = await serve(serving(mode=TlsMode.ENFORCING))
        client = caller(calling(client_context(twelve=twelve)))
        large = bytes(range(256)) * 12_000
        answers = await asyncio.gather(
            *(client.invoke(address, 1, b"", b"%d" % i, timeout_ms=60_000) for i in range(500)),
            *(client.invoke(address, 1, b"", large, timeout_ms=60_000) for _ in range(5)),
        )
        assert [a.body for a in answers[:500]] == [b"%d" % i * 2 for i in range(500)]
        assert all(a.body == large * 2 for a in answers[500:])
        (peer,) = server.peers.values()
        assert peer.transport.get_extra_info("cipher")[1] == ("TLSv1.2" if twelve else "TLSv1.3")
        await client.close()
        async with asyncio.timeout(60):
            while server.peers:
                await asyncio.sleep(0.001)
        await server.stop()

    run(exchange())


@LOOPS
def test_a_permissive_port_takes_both(run: Run) -> None:
    async def exchange() -> None:
        server, address = await serve(serving())
        for client in (caller(None), caller(calling())):
            assert (await client.invoke(address, 1, b"", b"x", timeout_ms=60_000)).body == b"xx"
            await client.close()
        await server.stop()

    run(exchange())


@pytest.mark.promise(
    "Security",
    "what cannot be read on the way, is no certificate of the authority, or shows none where one is demanded, ends the connection",
)
@LOOPS
def test_an_enforcing_port_closes_what_is_plain(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def exchange() -> None:
        server, address = await serve(serving(mode=TlsMode.ENFORCING))
        client = caller(None)
        with pytest.raises(ConnectError, match="lost"):
            await client.invoke(address, 1, timeout_ms=60_000)
        await client.close()
        await server.stop()

    run(exchange())
    assert "it does not begin with TLS" in caplog.text


@LOOPS
def test_pythons_own_tls_at_the_other_end(run: Run) -> None:
    async def ours_serves() -> None:
        server, address = await serve(serving())
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(address.split(":")[1]), ssl=client_context()
        )
        wire = WireConnection()
        for _ in range(3):
            wire.send_request(1, b"", b"x" * 100_000, False)
            writer.writelines(wire.data_to_send())
        answers: list[Any] = []
        while len(answers) < 3:
            answers += wire.receive_data(await reader.read(65_536))
        assert [len(each.body) for each in answers] == [200_000] * 3
        await server.stop()
        assert await reader.read() == b""  # the end of TLS, not a cut
        writer.close()

    async def ours_calls() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            wire = WireConnection()
            while data := await reader.read(65_536):
                for command in wire.receive_data(data):
                    wire.send_reply(command.opaque, 0, None, b"", command.body)
                writer.writelines(wire.data_to_send())
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server_context())
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = caller(calling())
        body = b"y" * 300_000
        assert (await client.invoke(address, 1, b"", body, timeout_ms=60_000)).body == body
        await client.close()
        server.close()

    run(ours_serves())
    run(ours_calls())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl here")
@LOOPS
@pytest.mark.parametrize("version", ["-tls1_3", "-tls1_2", "-tls1_1"])
def test_openssl_at_the_other_end(run: Run, version: str) -> None:
    async def exchange() -> None:
        server, address = await serve(serving())
        options = ["-quiet", "-verify_return_error", "-CAfile", str(authority().cert), version]
        process = await asyncio.create_subprocess_exec(
            *("openssl", "s_client", "-connect", address, *options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdin and process.stdout
        wire, body, got = WireConnection(), b"Q" + bytes(200_000), []
        wire.send_request(1, b"", body, False)
        process.stdin.writelines(wire.data_to_send())
        while not got and (data := await process.stdout.read(65_536)):
            got = wire.receive_data(data)
        assert [each.body for each in got] == ([] if version == "-tls1_1" else [body * 2])
        await server.stop()
        await process.wait()

    run(exchange())


async def _refused(tls: ServerTls | None, context: ssl.SSLContext) -> str:
    server, address = await serve(tls)
    client = caller(calling(context))
    with pytest.raises(ConnectError) as found:
        await client.invoke(address, 1, timeout_ms=60_000)
    await client.close()
    await asyncio.sleep(0.01)
    await server.stop()
    return str(found.value)


OLD = "it ended the connection: our certificate has expired"
REFUSALS = [
    ("stranger", "", "its certificate is refused: unable to get local issuer", "does not trust"),
    ("other host", "", "its certificate is refused: IP address mismatch", "does not accept"),
    ("expired", "", "its certificate is refused: certificate has expired", OLD),
    ("asks", "", "it asks for a client certificate", "it shows no certificate, and has to"),
    ("asks", "strange client", "does not trust the authority of our", "is refused: unable to get"),
    ("none", "", "it closed the connection in the handshake", "TLS is not enabled on this port"),
]


@pytest.mark.promise(
    "Security",
    "what cannot be read on the way, is no certificate of the authority, or shows none where one is demanded, ends the connection",
)
@LOOPS
@pytest.mark.parametrize("kind,own,words,logged", REFUSALS, ids=lambda value: str(value)[:12])
@pytest.mark.parametrize("twelve", [False, True], ids=["1.3", "1.2"])
def test_a_refusal_says_why_at_both_ends(
    run: Run,
    kind: str,
    own: str,
    words: str,
    logged: str,
    twelve: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    context = server_context(asks=True) if kind == "asks" else None
    context = context or (server_context(kind) if kind != "none" else None)
    tls = serving(context) if context else None
    found: list[str] = []

    async def main() -> None:
        found.append(await _refused(tls, client_context(own, twelve=twelve)))

    run(main())
    assert words in found[0]
    assert logged in caplog.text
