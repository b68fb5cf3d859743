"""What curl and Prometheus get, which offer HTTP/2 and HTTP/1.1 over TLS, from servers as they are started."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

from tests.proxy.test_pages import ask
from tests.proxy.test_session import Client

from roquette.apps import running
from roquette.apps.broker import broker_settings, make_broker
from roquette.apps.namesrv import namesrv_settings, start_namesrv
from roquette.base.clock import SystemClock
from roquette.base.entropy import Entropy
from roquette.base.files import OsFiles
from roquette.broker.service import Broker

HOST = "127.0.0.1"


def offering(*protocols: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(protocols)
    return context


async def chosen(port: int, *protocols: str) -> tuple[str, bytes]:
    """What is spoken, and the answer to GET /metrics over HTTP/1.1 where that is it."""
    reader, writer = await asyncio.open_connection(HOST, port, ssl=offering(*protocols))
    spoken = writer.get_extra_info("ssl_object").selected_alpn_protocol()
    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n" if spoken == "http/1.1" else b"")
    answer = await reader.read() if spoken == "http/1.1" else b""
    writer.close()
    return spoken, answer


async def name_server(folder: Path) -> None:
    flags = {"bindAddress": HOST, "listenPort": "0", "kvConfigPath": str(folder / "kv.json")}
    server = await start_namesrv(namesrv_settings(running.sources_of(None, flags, {})))
    spoken, answer = await chosen(server.port, "h2", "http/1.1")
    assert spoken == "http/1.1", "HTTP/2 is not spoken here"
    assert answer.startswith(b"HTTP/1.1 200") and b"\nrocketmq_ready{" in answer
    assert (await chosen(server.port, "h2"))[0] == "h2", "gRPC's clients are told where to go"
    await server.stop()


async def broker(folder: Path) -> None:
    root = str(folder / "store")
    flags = {"bindAddress": HOST, "listenPort": "0", "storePathRootDir": root}
    flags |= {"mappedFileSizeCommitLog": str(1 << 20), "brokerIP1": HOST}
    settings = broker_settings(running.sources_of(None, flags, {}))
    world: Any = {"files": OsFiles(), "clock": SystemClock(), "entropy": Entropy()}
    made: Any = make_broker(settings.config, settings.store, settings.proxy, **world)
    assert isinstance(made, Broker)
    made.protection = settings.protection
    await made.start()
    port = made.core.address.port
    assert (await chosen(port, "h2", "http/1.1"))[0] == "h2"
    loop = asyncio.get_running_loop()
    context = offering("h2", "http/1.1")
    _, client = await loop.create_connection(Client, HOST, port, ssl=context)
    paths, here = ("/metrics", "/healthz", "/readyz", "/none"), f"{HOST}:{port}"
    streams = {path: ask(client, path, authority=here) for path in paths}
    elsewhere = ask(client, "/metrics", authority="evil.example")
    async with asyncio.timeout(60):
        while not all(stream in client.heard for stream in streams.values()):
            await asyncio.sleep(0.01)
        while b"process_start_time_seconds{}" not in client.heard[streams["/metrics"]]:
            await asyncio.sleep(0.01)
    found = {path: client.http_status[stream] for path, stream in streams.items()}
    assert found == {"/metrics": b"200", "/healthz": b"200", "/readyz": b"503", "/none": b"404"}
    assert client.heard[streams["/healthz"]] == b"ok\n"
    assert b"name server" in client.heard[streams["/readyz"]], "it has none"
    assert client.http_status[elsewhere] == b"403", "a browser's page of another name"
    client.transport.close()
    await made.stop()


def test_a_name_server_speaks_http1_with_who_can_choose(tmp_path: Path) -> None:
    """Before: HTTP/2 was chosen, and ended by GOAWAY."""
    asyncio.run(name_server(tmp_path))


def test_a_broker_shows_its_pages_over_http2(tmp_path: Path) -> None:
    """Before: 404."""
    asyncio.run(broker(tmp_path))
