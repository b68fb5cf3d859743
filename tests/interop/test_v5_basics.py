"""gRPC itself at our ports: grpc-go under load, deadlines and cancels; and the quickstart of Apache's Python client."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.clients import built_by_go
from tests.interop.peers import START_TIMEOUT_S, Process, claimed, free_port, start_namesrv
from tests.interop.peers import start_roquette_broker as start_broker
from tests.interop.proxies import Door
from tests.interop.test_v5 import make_group, make_topic
from tests.interop.v5.peers import HERE, python_peer

pytestmark = [pytest.mark.interop]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A broker of ours with a topic for it."""
    folder = tmp_path_factory.mktemp("v5-basics")
    namesrv = start_namesrv("roquette", folder / "namesrv")
    broker = start_broker(folder / "broker", namesrv.address)
    door = Door(broker, broker.address)
    make_topic(door, "T_basics", "NORMAL")
    make_topic(door, "T_basics_empty", "NORMAL")
    make_group(door, "G_basics")
    yield door
    broker.discard()
    namesrv.discard()


@pytest.mark.parametrize("seconds", [4, pytest.param(60, marks=pytest.mark.long)])
def test_grpc_go_keeps_its_connections(made: Door, seconds: int) -> None:
    program = built_by_go("basics5", HERE / "basics", "grpc-go")
    run = [str(program), made.grpc, str(seconds)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=seconds + 100, check=False)
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["failures"] == 0, said
    assert said["calls"] > 100 * seconds and said["dialled"] == said["connections"], said
    # A deadline that no poll fits in is refused in words, at once.
    assert (said["deadline"], said["cancel"]) == ("EOF", "Canceled"), said
    assert said["deadlineMs"] < 300 <= said["cancelMs"], said


def serving(port: int) -> str | None:
    """What is at a port that is no test's, if anything."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return None
    return f"127.0.0.1:{port}"


def test_the_python_quickstart_runs_at_dev(tmp_path: Path) -> None:
    port = str(8081 if claimed(8081) and serving(8081) is None else free_port())
    program = Path(sys.executable).parent / "roquette"
    others = ("--namesrv-port", "0", "--broker-port", "0")  # which `dev` would have beside it
    command = [str(program), "dev", *others, "--grpc-port", port]
    dev = Process(command, tmp_path / "dev", {"NAMESRV_ADDR": ""})
    try:
        dev.line_with("ready ", START_TIMEOUT_S)
        client = Process(
            [
                str(python_peer()),
                str(HERE / "python" / "quickstart.py"),
                f"127.0.0.1:{port}",
                "Fresh",
            ],
            tmp_path / "client",
            {"HOME": str(tmp_path), "PYTHONPATH": ""},
        )
        try:
            for word in ("sent 10", "received 10", "pushed 10"):
                assert client.line(60) == word
            assert client.popen.wait(60) == 0, client.tail()
        finally:
            client.stop()
    finally:
        assert dev.stop() == 0, dev.tail()
