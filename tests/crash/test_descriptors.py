"""Real servers with few descriptors: more queues than descriptors, more connections than there is room for."""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.real_servers import (
    MAIN,
    RawConnection,
    ServerProcess,
    broker_arguments,
    pull_fields,
    send_fields,
    server,
)

from roquette.base.descriptors import LEAST

SHM = Path("/dev/shm")


@pytest.fixture
def quick_disk() -> Iterator[Path]:
    """A directory whose syncs cost nothing, where there is such a disk."""
    with tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None) as path:
        yield Path(path)


def limited(count: int) -> list[str]:
    """A command line in front of which runs with so many descriptors."""
    return ["sh", "-c", f'ulimit -n {count}; exec "$@"', "sh"]


def told(process: ServerProcess, text: str, timeout_s: float = 20.0) -> bool:
    """Does the log say so, or soon?"""
    end = time.monotonic() + timeout_s
    while not any(text in line for line in list(process.lines)):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def fill(peer: RawConnection, queues: int, body: bytes = b"x") -> list[str]:
    """A message for each of so many queues, 16 to a topic; returns the remarks of those refused."""
    refused = []
    for number in range(queues):
        fields = send_fields(f"many{number // 16}", number % 16) | {"d": 16}
        head, _ = peer.call(310, fields, body)
        if head["code"] != 0:
            refused.append(head["remark"])
    return refused


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_more_queues_than_descriptors(quick_disk: Path, flush: str) -> None:
    settings = {
        "flushDiskType": flush, "mappedFileSizeConsumeQueue": 4000, "defaultTopicQueueNums": 16,
        "maxIndexNum": 100_000,
    }  # fmt: skip
    arguments = broker_arguments(quick_disk, settings)
    with server(arguments, limited(64)) as broker, RawConnection(broker.address) as peer:
        assert fill(peer, 320) == []
        assert fill(peer, 320, b"y") == []
    with server(arguments, limited(64)) as broker, RawConnection(broker.address) as peer:  # killed
        assert fill(peer, 320, b"z") == []
        for number in range(0, 320, 7):
            head, body = peer.call(11, pull_fields(f"many{number // 16}", number % 16, 0))
            assert (head["code"], head["extFields"]["maxOffset"]) == (0, "3")
            assert body
        assert peer.call(215, {"topic": "many0"})[0]["code"] == 0  # DELETE_TOPIC_IN_BROKER
        broker.child.terminate()
        assert broker.child.wait(60) == 0
        assert not any("failed" in line or "disk is full" in line for line in broker.lines)
    fsck = [*limited(64), *MAIN, "store", "fsck", str(quick_disk)]
    done = subprocess.run(fsck, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def connect(address: tuple[str, int], count: int) -> list[RawConnection]:
    """Idle connections; those refused are among them."""
    return [RawConnection(address) for _ in range(count)]


@pytest.mark.promise("Bounds", "queues keep no descriptors; connections leave room for the store")
def test_idle_connections_stop_no_sends(quick_disk: Path) -> None:
    settings = {"mappedFileSizeConsumeQueue": 4000, "defaultTopicQueueNums": 16}
    arguments = broker_arguments(quick_disk, settings)
    with server(arguments, limited(200)) as broker, RawConnection(broker.address) as peer:
        assert fill(peer, 8) == []
        idle = connect(broker.address, 260)
        assert told(broker, "connection refused")
        line = next(line for line in broker.lines if "connection refused" in line)
        assert re.search(r"\d+ are open, the most there may be: .*ulimit -n", line)
        assert fill(peer, 200) == []
        assert broker.open_sockets() < 150
        for one in idle:
            one.close()
        for _ in range(100):  # it may not yet have seen them go
            with RawConnection(broker.address) as late:
                try:
                    assert fill(late, 1) == []
                    break
                except (EOFError, ConnectionError):
                    time.sleep(0.1)
        else:
            pytest.fail("no connection is accepted any more")
        assert not any("disk is full" in line or "Traceback" in line for line in broker.lines)


def test_idle_connections_at_a_name_server(tmp_path: Path) -> None:
    arguments = ["namesrv", "--listen", "127.0.0.1:0", "--set", f"kvConfigPath={tmp_path}/kv.json"]
    put = {"namespace": "n", "key": "k", "value": "v"}
    with server(arguments, limited(100)) as namesrv, RawConnection(namesrv.address) as peer:
        assert peer.call(100, put)[0]["code"] == 0  # who has said something stays
        idle = connect(namesrv.address, 130)
        assert told(namesrv, "connection refused")
        assert peer.call(100, put)[0]["code"] == 0
        for one in idle:
            one.close()
        assert peer.call(100, put)[0]["code"] == 0


def test_a_name_server_starts_with_few_descriptors_or_says_how_many_it_needs(
    tmp_path: Path,
) -> None:
    arguments = [
        "namesrv", "--listen", "127.0.0.1:0", "--controller", "embedded",
        "--set", f"kvConfigPath={tmp_path}/kv.json", "--set", f"controllerStorePath={tmp_path}",
        "--set", "metricsListen=127.0.0.1:0", "--set", "tls.server.mode=permissive",
    ]  # fmt: skip
    put = {"namespace": "n", "key": "k", "value": "v"}
    with server(arguments, limited(LEAST)) as namesrv, RawConnection(namesrv.address) as peer:
        assert peer.call(100, put)[0]["code"] == 0
    command = [*limited(LEAST - 1), *MAIN, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"{LEAST - 1} open files are too few: a server needs {LEAST} (ulimit -n" in done.stderr


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_no_descriptor_for_a_connection(loop: str) -> None:
    """Whoever takes the process's descriptors, the server accepts again when there are some."""
    done = subprocess.run(
        [sys.executable, "-c", EXHAUSTED, loop],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("no connection accepted") <= 2


EXHAUSTED = """
import asyncio, os, resource, socket, sys
import uvloop
from roquette.apps.running import tell_shortage
from roquette.base.clock import SystemClock
from roquette.base.lifecycle import Tasks
from roquette.base.logs import RateLimited
from roquette.base.log_settings import LogSettings, configure
from roquette.apps import running
from roquette.remoting.dispatcher import Dispatcher, LaneLimits
from roquette.remoting.request import Row
from roquette.remoting.request import Reply
from roquette.remoting.server import ConnectionBound, Server
from roquette.wire.connection import WireConnection

async def main():
    configure(LogSettings())
    loop, clock = asyncio.get_running_loop(), SystemClock()
    loop.set_exception_handler(tell_shortage(RateLimited(running.log, clock)))
    row = Row(1, lambda ctx, header, body: Reply(b"", [body]), None, 0)
    server = Server(Dispatcher([row], [LaneLimits("all", 100)], clock, loop, Tasks()), clock)
    port = await server.start("127.0.0.1", 0)
    ready = [socket.socket() for _ in range(4)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    taken = []
    while True:
        try:
            taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            break
    for one in ready[:3]:
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
    await asyncio.sleep(0.5)
    assert not server.peers
    for fd in taken:
        os.close(fd)
    last = ready[3]
    last.setblocking(False)
    await loop.sock_connect(last, ("127.0.0.1", port))
    wire = WireConnection()
    wire.send_request(1, b"", b"hello", False)
    await loop.sock_sendall(last, b"".join(wire.data_to_send()))
    async with asyncio.timeout(20):
        assert (await loop.sock_recv(last, 1000)).endswith(b"hello")
    sys.stderr.flush()
    os._exit(0)

(uvloop.run if sys.argv[1] == "uvloop" else asyncio.run)(main())
"""


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_client_without_descriptors(tmp_path: Path, loop: str) -> None:
    arguments = ["namesrv", "--listen", "127.0.0.1:0", "--set", f"kvConfigPath={tmp_path}/kv.json"]
    with server(arguments) as namesrv:
        address = f"127.0.0.1:{namesrv.address[1]}"
        command = [sys.executable, "-c", CLIENT, loop, address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr


CLIENT = """
import asyncio, os, resource, sys
import uvloop
from roquette.base.clock import SystemClock
from roquette.errors import ConnectError
from roquette.remoting.client import RemotingClient

async def main():
    client = RemotingClient(SystemClock())
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    taken = []
    while True:
        try:
            taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            break
    for _ in range(3):
        try:
            await client.invoke(sys.argv[2], 318)
            sys.exit("connected without a descriptor")
        except ConnectError as error:
            assert "Too many open files" in str(error), error
    for fd in taken:
        os.close(fd)
    assert (await client.invoke(sys.argv[2], 318)).code == 0
    await client.close()

(uvloop.run if sys.argv[1] == "uvloop" else asyncio.run)(main())
"""
