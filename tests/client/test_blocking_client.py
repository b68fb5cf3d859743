"""The client without `await`, against server processes of ours: what handlers may do, and ends at bad moments."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop import peers

from roquette import StartFrom
from roquette.errors import ClientClosed, ClientError
from roquette.message.message import ReceivedMessage
from roquette.sync import Client

LIMIT_S = 60  # machines are slow when everything runs at once


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("blocking")
    program = str(Path(sys.executable).parent / "roquette")
    ports = ("--namesrv-port", str(peers.free_port()), "--broker-port", str(peers.free_port()))
    server = peers.Process([program, "dev", *ports, "--store", str(folder / "store")], folder, {})
    try:
        line = server.line_with("ready ", 30)
        yield line.split("namesrv=")[1].split()[0]
    finally:
        server.stop()


def wait_for(event: threading.Event) -> None:
    assert event.wait(LIMIT_S), "waited in vain"


@pytest.mark.parametrize("what", ["leave", "close", "close in a thread", "send"])
def test_a_handler_may_use_its_own_client(name_server: str, what: str) -> None:
    handled, topic, group = threading.Event(), f"own-{len(what)}", f"g-{len(what)}"
    leave: list[Callable[[], None]] = []
    bodies: list[bytes] = []

    def handler(message: ReceivedMessage) -> None:
        while not leave:
            time.sleep(0.01)  # subscribe returns while a handler is at work
        if message.body == b"1":
            if what == "leave":
                leave[0]()
            elif what == "send":
                mq.send(topic, b"2")
            elif what == "close":
                mq.close()
            else:
                threading.Thread(target=mq.close).start()
        bodies.append(message.body)
        if message.body == (b"2" if what == "send" else b"1"):
            handled.set()

    with Client(name_server) as mq:
        mq.send(topic, b"1")
        leave.append(mq.subscribe(topic, group=group, handler=handler, start_from=StartFrom.FIRST))
        wait_for(handled)
    mq.close()

    again: list[bytes] = []
    with Client(name_server) as other:  # what was handled is not repeated
        other.subscribe(
            topic, group=group, handler=lambda m: again.append(m.body), start_from=StartFrom.FIRST
        )
        other.send(topic, b"last")
        end = time.monotonic() + LIMIT_S
        while b"last" not in again and time.monotonic() < end:
            time.sleep(0.01)
    assert again == [b"last"]


def test_handlers_run_one_after_the_other_and_the_client_goes_on_beside_them(
    name_server: str,
) -> None:
    inside: list[int] = []
    most: list[int] = []
    enough, go_on = threading.Event(), threading.Event()

    def handler(message: ReceivedMessage) -> None:
        inside.append(1)
        most.append(len(inside))
        go_on.wait(LIMIT_S)
        inside.pop()
        if message.body == b"exit":
            raise SystemExit  # as any other error: the message comes again, the others come
        if len(most) >= 4:
            enough.set()

    with Client(name_server) as mq:
        mq.send_batch("serial", [b"a", b"exit", b"b", b"c"])
        mq.subscribe(
            "serial", group="serial", handler=handler, start_from=StartFrom.FIRST, concurrency=4
        )
        assert mq.send("serial", b"d").status == "SEND_OK"
        go_on.set()
        wait_for(enough)
    assert max(most) == 1


@pytest.mark.parametrize("started", [False, True])
def test_a_client_that_is_not_open_says_so(name_server: str, started: bool) -> None:
    mq = Client(name_server)
    if started:
        with mq:
            leave = mq.subscribe("closed", group="closed", handler=lambda _: None)
        leave()
        mq.close()
    calls: list[Callable[[], Any]] = [
        lambda: mq.send("closed", b"x"),
        lambda: mq.send_batch("closed", [b"x"]),
        lambda: mq.send_oneway("closed", b"x"),
        lambda: mq.queues("closed"),
        lambda: mq.subscribe("closed", group="g", handler=lambda _: None),
        lambda: next(mq.consume("closed", group="g")),
    ]
    if started:
        calls.append(mq.start)
    for call in calls:
        with pytest.raises(ClientClosed, match="closed"):
            call()


@pytest.mark.parametrize("whom", ["another thread", "the loop"])
def test_an_iteration_ends_when_the_client_closes(name_server: str, whom: str) -> None:
    got: list[bytes] = []
    with Client(name_server) as mq:
        mq.send("iterated", b"1")
        for message in mq.consume("iterated", group=f"i-{len(whom)}", start_from=StartFrom.FIRST):
            got.append(message.body)
            if whom == "the loop":
                with pytest.raises(ClientError):
                    mq.close()
                    mq.send("iterated", b"2")
                break
            threading.Timer(0.3, mq.close).start()
    assert got == [b"1"]


INTERRUPTED = """
import sys, threading
import roquette.sync
with roquette.sync.Client(sys.argv[1]) as mq:
    mq.send("interrupted", b"1")
    def handler(message):
        print("handled", flush=True)
    mq.subscribe("interrupted", group="interrupted", handler=handler, start_from=roquette.StartFrom.FIRST)
    for message in mq.consume("interrupted-too", group="other"):
        print("never")
"""


def test_ctrl_c_ends_a_program_that_waits(name_server: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, name_server],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"handled\n"
        child.send_signal(signal.SIGINT)
        out, errors = child.communicate(timeout=LIMIT_S)
    finally:
        child.kill()
    assert out == b""
    assert errors.rstrip().endswith(b"KeyboardInterrupt")
    assert child.returncode == -signal.SIGINT
