"""The client without `await`, against server processes of ours: what handlers may do, and ends at bad moments."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop import peers

import roquette
from roquette import StartFrom
from roquette.client import blocking_base
from roquette.errors import ClientClosed, ClientError
from roquette.message.message import ReceivedMessage
from roquette.sync import Client, Consumer

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
    leave: list[Consumer] = []
    bodies: list[bytes] = []

    def handler(message: ReceivedMessage) -> None:
        while not leave:
            time.sleep(0.01)  # subscribe returns while a handler is at work
        if message.body == b"1":
            if what == "leave":
                leave[0].close()
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


@pytest.mark.parametrize("concurrency", [1, 4])
def test_as_many_handlers_run_as_concurrency_says_and_the_client_goes_on_beside_them(
    name_server: str, concurrency: int
) -> None:
    inside: list[int] = []
    most: list[int] = []
    topic = f"serial-{concurrency}"
    enough, all_in, go_on = threading.Event(), threading.Event(), threading.Event()

    def handler(message: ReceivedMessage) -> None:
        inside.append(1)
        most.append(len(inside))
        if len(inside) == concurrency:
            all_in.set()
        go_on.wait(LIMIT_S)
        inside.pop()
        if message.body == b"exit":
            raise SystemExit  # as any other error: the message comes again, the others come
        if len(most) >= 4:
            enough.set()

    with Client(name_server) as mq:
        mq.send_batch(topic, [b"a", b"exit", b"b", b"c"])
        mq.subscribe(
            topic, group=topic, handler=handler, start_from=StartFrom.FIRST, concurrency=concurrency
        )
        wait_for(all_in)
        assert mq.send(topic, b"d").status == "SEND_OK"
        go_on.set()
        wait_for(enough)
    assert max(most) == concurrency


@pytest.mark.parametrize("started", [False, True])
def test_a_client_that_is_not_open_says_so(name_server: str, started: bool) -> None:
    mq = Client(name_server)
    if started:
        with mq:
            consumer = mq.subscribe("closed", group="closed", handler=lambda _: None)
        consumer.close()
        mq.close()
    calls: list[Callable[[], Any]] = [
        lambda: mq.send("closed", b"x"),
        lambda: mq.send_batch("closed", [b"x"]),
        lambda: mq.send_oneway("closed", b"x"),
        lambda: mq.queues("closed"),
        lambda: mq.subscribe("closed", group="g", handler=lambda _: None),
        lambda: next(iter(mq.consume("closed", group="g"))),
    ]
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
import signal, sys
import roquette.sync
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
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
        try:
            out, errors = child.communicate(timeout=LIMIT_S / 6)
        except subprocess.TimeoutExpired:
            # Python drops an interrupt that a weakref's callback gets: pressed again, as a user does
            child.send_signal(signal.SIGINT)
            out, errors = child.communicate(timeout=LIMIT_S)
    finally:
        child.kill()
    assert out == b""
    assert errors.rstrip().endswith(b"KeyboardInterrupt")
    assert child.returncode == -signal.SIGINT


def test_a_closed_client_begins_anew(name_server: str) -> None:
    mq = Client(name_server)
    for turn in range(3):
        with mq:
            assert mq.send("anew", f"{turn}").status == "SEND_OK"
            assert mq.start() is mq


def test_sends_are_pipelined_and_readers_pause(name_server: str) -> None:
    with Client(name_server) as mq:
        answers = [mq.send_nowait("piped", f"{number}") for number in range(100)]
        receipts = [answer.result(LIMIT_S) for answer in answers]
        assert all(receipt.status == "SEND_OK" for receipt in receipts)
        queue = receipts[0].queue
        reader = mq.reader(group="piped")
        reader.assign([queue])
        reader.pause(queue)
        assert reader.poll(timeout=0.2) == []
        reader.resume(queue)
        assert reader.poll(timeout=LIMIT_S)
        assert mq.offset_by_time(queue, 0) == 0
        assert reader.position(queue) > 0
        reader.close()
        reader.close()


def test_transactions_and_checks(name_server: str) -> None:
    with Client(name_server, group="shop") as mq:
        mq.on_check("traded", lambda message: True)
        with mq.transaction("traded", b"1") as tx:
            assert tx.message_id
        with pytest.raises(ZeroDivisionError), mq.transaction("traded", b"2"):
            raise ZeroDivisionError
        for message in mq.consume("traded", group="g", start_from=StartFrom.FIRST):
            assert message.body == b"1"
            break


def test_many_threads_send_by_one_client(name_server: str) -> None:
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(20):
                mq.send("threads", f"{number} {turn}")
        except BaseException as error:  # noqa: BLE001 - shown below
            failed.append(error)

    with Client(name_server) as mq:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        assert sum(mq.max_offset(queue) for queue in mq.queues("threads")) == 160
    assert not failed


FORKING = """
import os, sys
import roquette, roquette.sync
with roquette.sync.Client(sys.argv[1]) as mq:
    mq.send("forked", b"parent")
    child = os.fork()
    if child == 0:
        try:
            mq.send("forked", b"child")
        except roquette.ClientClosed as error:
            assert "make a client in the child" in str(error), error
            mq.close()
            with roquette.sync.Client(sys.argv[1]) as own:
                own.send("forked", b"own")
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    mq.send("forked", b"parent again")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told_and_makes_its_own(name_server: str) -> None:
    command = [sys.executable, "-c", FORKING, name_server]
    done = subprocess.run(command, timeout=LIMIT_S, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_unclosed_client_warns(name_server: str) -> None:
    mq = Client(name_server).start()
    ending = mq.close
    with pytest.warns(ResourceWarning, match="unclosed client"):
        mq.__del__()
    ending()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mq.__del__()


def test_wrong_words_are_errors_of_the_type_checker_and_of_python(name_server: str) -> None:
    with Client(name_server) as mq, pytest.raises(TypeError, match="kye"):
        mq.send("typed", b"x", kye="1")  # type: ignore[call-arg]


def test_jobs_are_popped(name_server: str) -> None:
    with Client(name_server) as mq:
        mq.send_batch("popped", [b"1", b"2"])
        done: list[bytes] = []
        with mq.pop("popped", group="p", start_from=StartFrom.FIRST, batch=1) as jobs:
            for job in jobs:
                assert job.expires_in > 0
                job.extend(90)
                done.append(job.body)
                job.ack()
                if len(done) == 2:
                    break
        assert sorted(done) == [b"1", b"2"]


def test_the_blocking_client_has_every_call() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(roquette.Client) - public(Client) == {"session"}


def test_requests_are_answered(name_server: str) -> None:
    with Client(name_server) as server, Client(name_server) as mq:
        mq.send("asked", b"a topic")
        server.serve("asked", group="answerers", handler=lambda m: m.body.upper())
        assert mq.request("asked", b"question", timeout=20).body == b"QUESTION"


def test_a_close_beside_another_threads_close_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    start = blocking_base.start_thread

    def slowly(name: str, work: Callable[[], None]) -> threading.Thread:
        begun.set()
        wait_for(go_on)
        return start(name, work)

    monkeypatch.setattr(blocking_base, "start_thread", slowly)
    mq = Client("127.0.0.1:1").start()
    first = threading.Thread(target=mq.close)
    first.start()
    wait_for(begun)
    ended: list[bool] = []

    def second() -> None:
        mq.close()
        ended.append(not mq._thread._thread.is_alive())

    other = threading.Thread(target=second)
    other.start()
    other.join(0.3)
    go_on.set()
    other.join(LIMIT_S)
    first.join(LIMIT_S)
    assert ended == [True], "it came back while the client was open"
