"""`roquette run module:app` as a process: told to end while handlers work, nothing is lost and it ends in time."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from tests.interop import peers

from roquette import Client

PROGRAM = str(Path(sys.executable).parent / "roquette")
APP = """
import asyncio, time
import roquette

app = roquette.App(drain={drain})

@app.consumer("orders", group="workers", start_from=roquette.StartFrom.FIRST, concurrency=8)
async def work(name: str) -> None:
    print("begins", name, flush=True)
    await asyncio.sleep({seconds})
    print("ends", name, flush=True)

@app.consumer("fan-in", group="fans", start_from=roquette.StartFrom.FIRST)
async def fan_out(name: str, mq: roquette.Client) -> None:
    for number in range(300):
        await mq.send_nowait("fan-out", str(number))
        if number == 100:
            print("begins", name, flush=True)

@app.consumer("blocking", group="threads", start_from=roquette.StartFrom.FIRST, concurrency=2)
def block(name: str) -> None:
    print("begins", name, flush=True)
    time.sleep({seconds})
    print("ends", name, flush=True)
"""
COUNT = 40


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("app")
    ports = ("--namesrv-port", str(peers.free_port()), "--broker-port", "0")
    server = peers.Process([PROGRAM, "dev", *ports, "--store", str(folder / "store")], folder, {})
    try:
        line = server.line_with("ready ", 60)
        yield line.split("namesrv=")[1].split()[0]
    finally:
        server.stop()


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    """Of a test that failed nothing goes on, which would share the next one's messages."""
    yield
    for child in Running.started:
        child.kill()
    Running.started.clear()


class Running:
    """The application as a process, and the lines it has printed."""

    started: ClassVar[list[subprocess.Popen[str]]] = []

    def __init__(self, folder: Path, name_server: str, *words: str, **values: float | str) -> None:
        name = f"app_{len(list(folder.glob('app_*.py')))}"
        self.source = folder / f"{name}.py"
        known = {"drain": 30, "seconds": 1, "topic": "changes"}
        text = str(values.pop("text", APP)).format(**known | values)
        self.source.write_text(text)
        line = [PROGRAM, "run", f"{name}:app", "-n", name_server, *words]
        self.child = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder
        )
        self.started.append(self.child)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.lines.append(line.strip())

    def names(self, word: str) -> list[str]:
        return [line.split()[1] for line in self.lines if line.startswith(word + " ")]

    def wait(self, word: str, count: int = 1) -> None:
        self._until(lambda: len(self.names(word)) >= count)

    def wait_for(self, words: str) -> None:
        """Until a line has these words."""
        self._until(lambda: any(words in line for line in self.lines))

    def _until(self, met: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not met():
            assert time.monotonic() < end and self.child.poll() is None, self.lines
            time.sleep(0.02)

    def end(self, *, twice: bool = False) -> tuple[int, float]:
        """SIGTERM; the exit status, and seconds until it was there."""
        began = time.monotonic()
        self.child.send_signal(signal.SIGTERM)
        if twice:
            time.sleep(0.5)
            self.child.send_signal(signal.SIGTERM)
        try:
            status = self.child.wait(60)
        finally:
            self.child.kill()
        self._reader.join(5)
        return status, time.monotonic() - began


def send(name_server: str, topic: str, names: list[str]) -> None:
    async def run() -> None:
        async with Client(name_server) as mq:
            for name in names:
                await mq.send(topic, name)

    asyncio.run(run())


def test_sigterm_while_handlers_work_loses_nothing(name_server: str, tmp_path: Path) -> None:
    names = [f"{number}" for number in range(COUNT)]
    send(name_server, "orders", names)
    first = Running(tmp_path, name_server)
    first.wait("ends", 4)
    status, seconds = first.end()

    begun, ended = first.names("begins"), first.names("ends")
    assert status == 0, first.lines
    assert sorted(begun) == sorted(ended)  # what was at work came to its end
    assert len(ended) < COUNT, "it was told too late"
    assert seconds < 30 + 5

    second = Running(tmp_path, name_server, seconds=0.01)
    second.wait("ends", COUNT - len(ended))
    time.sleep(0.5)
    assert second.end()[0] == 0
    assert sorted(second.names("ends") + ended, key=int) == names  # each of them once


def test_sigterm_loses_nothing_that_a_handler_sent_without_waiting(
    name_server: str, tmp_path: Path
) -> None:
    send(name_server, "fan-in", ["some"])
    first = Running(tmp_path, name_server)
    first.wait("begins")
    assert first.end()[0] == 0, first.lines

    async def count() -> int:
        async with Client(name_server) as mq:
            return sum([await mq.max_offset(queue) for queue in await mq.queues("fan-out")])

    assert asyncio.run(count()) == 300


@pytest.mark.parametrize("topic", ["orders", "blocking"])
def test_handlers_that_take_too_long_are_ended_and_the_status_tells(
    topic: str, name_server: str, tmp_path: Path
) -> None:
    send(name_server, topic, ["long"])
    first = Running(tmp_path, name_server, "--drain", "1", seconds=300)
    first.wait("begins")
    status, seconds = first.end()

    assert status == 1, first.lines
    assert seconds < 1 + 5 + 2, first.lines  # 2: a process of a busy machine ends
    assert first.names("ends") == []

    second = Running(tmp_path, name_server, seconds=0.01)
    second.wait("ends")
    assert second.names("ends") == ["long"]
    assert second.end()[0] == 0


def test_a_second_signal_ends_at_once(name_server: str, tmp_path: Path) -> None:
    send(name_server, "orders", ["long"])
    first = Running(tmp_path, name_server, seconds=300)
    first.wait("begins")
    status, seconds = first.end(twice=True)

    assert status == 128 + signal.SIGTERM, first.lines
    assert seconds < 10
    second = Running(tmp_path, name_server, seconds=0.01)
    second.wait("ends")
    assert second.end()[0] == 0


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere:app", "there is no module nowhere"),
        ("json:app", "json:app is no roquette.App"),
        ("json", "is not module:name"),
    ],
)
def test_a_wrong_name_is_one_line(target: str, words: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [PROGRAM, "run", target],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )

    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and words in done.stderr
    assert done.stderr.count("\n") == 1


WORKERS = """
import os, threading, time
import roquette, roquette.sync

app = roquette.App(group="processes")

@app.consumer("{topic}")
def work(name: str, mq: roquette.sync.Client) -> None:
    mq.send("worked", f"{{name}} {{os.getpid()}} {version}")
    if name == "die" and not os.path.exists("died"):
        open("died", "x").close()
        os._exit(3)
    print(f"ends {{name}} in {{os.getpid()}} {version}\\n", end="", flush=True)
"""


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_workers_share_the_work_and_one_that_dies_is_started_again(
    name_server: str, tmp_path: Path
) -> None:
    port = peers.free_port()
    words = ("--workers", "2", "--health", f"127.0.0.1:{port}")
    # A topic of its own: what dies comes again, in another test's worker, too.
    keeper = Running(tmp_path, name_server, *words, text=WORKERS, topic="kills", version="1")
    keeper.wait("ready")
    assert ask(port, "/readyz") == (200, "ok\n")
    pids, end = set[str](), time.monotonic() + 60
    while len(pids) < 2:  # the second gets its share when the first one has given it up
        assert time.monotonic() < end, keeper.lines
        send(name_server, "kills", ["a", "b", "c", "d"])
        time.sleep(0.1)
        pids = {line.split()[3] for line in keeper.lines if line.startswith("ends")}

    send(name_server, "kills", ["die"])
    while ask(port, "/readyz")[0] == 200:
        assert time.monotonic() < end, keeper.lines
        time.sleep(0.01)
    while ask(port, "/readyz")[0] != 200:
        assert time.monotonic() < end, keeper.lines
        time.sleep(0.05)
    assert any("worker" in line and "ended with status 3" in line for line in keeper.lines)
    status, seconds = keeper.end()
    assert status == 0, keeper.lines
    assert seconds < 20


def test_a_changed_file_starts_the_application_anew(name_server: str, tmp_path: Path) -> None:
    keeper = Running(tmp_path, name_server, "--reload", text=WORKERS, version="first")
    keeper.wait("ready")
    good = keeper.source.read_text()
    keeper.source.write_text("this is no Python")
    keeper.wait_for("change a file")
    keeper.source.write_text(good.replace("first", "second"))
    send(name_server, "changes", ["reloaded"])
    keeper.wait("ends")
    assert any(line.endswith("second") for line in keeper.lines), keeper.lines
    assert keeper.end()[0] == 0, "\n".join(keeper.lines)


def test_a_worker_that_drains_is_not_asked_again(name_server: str, tmp_path: Path) -> None:
    """Files change twice while a handler is at work, and then all is to end: it comes to its end."""
    keeper = Running(tmp_path, name_server, "--reload", seconds=4)
    keeper.wait("ready")
    send(name_server, "orders", ["slow"])
    keeper.wait_for("begins slow")
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("")
        keeper.wait_for(f"starts anew changed={tmp_path / name}")
    status, _ = keeper.end()
    assert status == 0, keeper.lines
    assert "slow" in keeper.names("ends"), keeper.lines
    assert sorted(keeper.names("ends")) == sorted(keeper.names("begins")), keeper.lines


def test_workers_end_with_their_keeper_and_a_wrong_application_ends_it(
    name_server: str, tmp_path: Path
) -> None:
    keeper = Running(tmp_path, name_server, "--workers", "2", text=WORKERS, version="1")
    keeper.wait("ready")
    children = Path(f"/proc/{keeper.child.pid}/task/{keeper.child.pid}/children")
    workers = [int(word) for word in children.read_text().split()]
    assert len(workers) == 2
    keeper.child.kill()
    end = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < end, "workers outlive their keeper"
        time.sleep(0.05)

    wrong = Running(tmp_path, name_server, "--workers", "2", text="app = 1", version="1")
    assert wrong.child.wait(60) == 1
    wrong._reader.join(5)
    assert any("is no roquette.App" in line for line in wrong.lines), wrong.lines


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        ("", "INFO roquette"),
        ("import logging; logging.basicConfig(format='mine %(name)s', level=10)", "mine roquette"),
    ],
)
def test_the_application_logs_as_it_says(
    own: str, wanted: str, name_server: str, tmp_path: Path
) -> None:
    port = peers.free_port()
    words = ("--health", f"127.0.0.1:{port}")
    alone = Running(tmp_path, name_server, *words, text=own + "\n" + WORKERS, version="1")
    alone.wait("ready")
    assert ask(port, "/healthz") == (200, "ok\n")
    assert alone.end()[0] == 0, "\n".join(alone.lines)
    drains = [line for line in alone.lines if line.startswith("mine") or "drains" in line]
    assert any(wanted in line for line in drains), alone.lines
