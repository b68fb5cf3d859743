"""What TLS costs a server on uvloop: user and system CPU per frame of its thread, and of a plain one.

`.venv/bin/python benchmarks/tls.py`: ours (`TlsStream` behind the door), the loop's own TLS, plain. A client in another process asks with so many
frames in one write, one write a turn.
"""

import asyncio
import json
import multiprocessing
import ssl
import sys
import tempfile
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import uvloop

from roquette.base.clock import SystemClock
from roquette.base.lifecycle import Tasks
from roquette.remoting.dispatcher import Dispatcher, LaneLimits
from roquette.remoting.pem import Authority
from roquette.remoting.request import Reply, Row
from roquette.remoting.server import Server
from roquette.remoting.tls import ServerTls, TlsMode
from roquette.wire.connection import WireConnection

KINDS = ("plain", "permissive", "ours", "loop")
SHAPES = [(1, 128, 0), (32, 128, 0), (1, 128, 65_536), (1, 65_536, 0), (1, 128, 4 << 20)]


def contexts(directory: Path) -> tuple[Path, Path]:
    """Make a pair; returns its files."""
    pair = Authority("benchmark", SystemClock().now_ms(), 1).server(["127.0.0.1"])
    files = directory / "server.pem", directory / "server.key"
    files[0].write_bytes(pair["cert"])
    files[1].write_bytes(pair["key"])
    return files


def serve(kind: str, files: tuple[Path, Path], pipe: Pipe) -> None:
    """Answer until the pipe says the end; each word on it asks for the CPU time so far."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)

        async def give() -> ssl.SSLContext:
            return context

        bodies: dict[int, bytes] = {}

        def answer(job: object, header: None, body: bytes) -> Reply:
            size = int.from_bytes(body[:4], "big")
            return Reply(b"", bodies.setdefault(size, bytes(size)))

        row = Row(1, answer, None, 0)
        dispatcher = Dispatcher([row], [LaneLimits("all", 10_000)], SystemClock(), loop, Tasks())
        server = Server(dispatcher, SystemClock())
        if kind == "loop":
            listener = await loop.create_server(server._new_protocol, "127.0.0.1", 0, ssl=context)
            port = listener.sockets[0].getsockname()[1]
        else:
            mode = TlsMode.ENFORCING if kind == "ours" else TlsMode.PERMISSIVE
            port = await server.start(
                "127.0.0.1", 0, None if kind == "plain" else ServerTls(mode, give)
            )
        pipe.send(port)
        ended = asyncio.Event()

        def asked() -> None:
            if pipe.recv():
                pipe.send(time.process_time_ns())
            else:
                ended.set()

        loop.add_reader(pipe.fileno(), asked)
        await ended.wait()

    uvloop.run(main())


async def ask(port: int, secure: bool, shape: tuple[int, int, int], seconds: float) -> int:
    """Ask for so long; returns how many frames were answered."""
    at_once, size, answer = shape
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context if secure else None, limit=1 << 20
    )
    wire, done = WireConnection(), 0
    body = answer.to_bytes(4, "big") + bytes(size - 4)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for _ in range(at_once):
            wire.send_request(1, b"", body, False)
        writer.write(b"".join(wire.data_to_send()))
        got = 0
        while got < at_once:
            got += len(wire.receive_data(await reader.read(1 << 20)))
        done += got
    writer.close()
    return done


def measure(kind: str, files: tuple[Path, Path], seconds: float) -> dict[str, float]:
    """Microseconds of the server's CPU per frame, by shape."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(kind, files, there))
    server.start()
    port = here.recv()
    found: dict[str, float] = {}
    for shape in SHAPES:
        secure = kind in ("ours", "loop")
        uvloop.run(ask(port, secure, shape, 0.3))
        here.send(True)
        began = here.recv()
        frames = uvloop.run(ask(port, secure, shape, seconds))
        here.send(True)
        name = f"{shape[0]} x {shape[1]} B, answers {shape[2]} B"
        found[name] = round((here.recv() - began) / frames / 1000, 2)
    here.send(False)
    server.join()
    return found


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.5
    with tempfile.TemporaryDirectory() as directory:
        files = contexts(Path(directory))
        print(json.dumps({kind: measure(kind, files, seconds) for kind in KINDS}, indent=1))


if __name__ == "__main__":
    main()
