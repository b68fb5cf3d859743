"""The command as a process of its own, with what people and shells do to it: an error is a line, never a traceback."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROQUETTE = [sys.executable, "-m", "roquette.apps.entry"]
NOT_UTF8 = b"caf\xe9 \xff\x00\x01"


def run(
    words: list[str], namesrv: str = "", **settings: object
) -> "subprocess.CompletedProcess[bytes]":
    environment = {**os.environ, "NAMESRV_ADDR": namesrv}
    return subprocess.run(
        [*ROQUETTE, *words],
        env=environment,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
        **{"stdout": subprocess.PIPE, **settings},  # type: ignore[call-overload]
    )


def one_line(done: "subprocess.CompletedProcess[bytes]") -> str:
    text = done.stderr.decode()
    assert "Traceback" not in text, text
    assert len(text.splitlines()) == 1, text
    return text


def test_bodies_are_bytes_from_argument_and_input_to_output(namesrv: str, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(NOT_UTF8 + b"file\n")
    assert run(["produce", "bytes", "--file", str(path)], namesrv).returncode == 0
    assert run(["produce", "bytes"], namesrv, input=NOT_UTF8 + b"in\n").returncode == 0
    argument = b"caf\xe9 argument"
    assert run(["produce", "bytes", os.fsdecode(argument)], namesrv).returncode == 0

    printed = run(["consume", "bytes"], namesrv).stdout.splitlines()
    assert sorted(printed) == sorted([NOT_UTF8 + b"file", NOT_UTF8 + b"in", argument])

    import base64

    lines = [
        json.loads(line)
        for line in run(["consume", "bytes", "--json"], namesrv).stdout.splitlines()
    ]
    assert sorted(base64.b64decode(line["body_base64"]) for line in lines) == sorted(printed)
    assert not any("body" in line for line in lines)


def test_an_empty_message_is_refused_before_anything_is_sent(namesrv: str) -> None:
    done = run(["produce", "nothing", "a", ""], namesrv)

    assert done.returncode == 1
    assert "no empty messages: nothing was sent" in one_line(done)
    assert b"nothing" not in run(["topic", "list"], namesrv).stdout.split()


@pytest.mark.promise("Refusals", "a command line with wrong input is one line and a status")
def test_an_error_among_the_lines_says_how_many_were_sent(namesrv: str) -> None:
    lines = b"a\nb\n" + b"x" * 5_000_000 + b"\nc\n"
    done = run(["produce", "partly"], namesrv, input=lines)

    assert done.returncode == 1
    assert "is 5000000 (2 other messages were sent)" in one_line(done)


def test_a_closed_input(namesrv: str) -> None:
    done = run(["produce", "closed"], namesrv, preexec_fn=lambda: os.close(0))

    assert done.returncode == 1
    assert "standard input is closed" in one_line(done)


def test_empty_lines_are_counted(namesrv: str) -> None:
    done = run(["produce", "some"], namesrv, input=b"a\n\n\nb\n")

    assert done.stderr.decode().splitlines() == [
        "2 empty lines left out: RocketMQ has no empty messages",
        "sent 2 messages to some",
    ]


@pytest.mark.promise("Refusals", "a command line with wrong input is one line and a status")
@pytest.mark.parametrize(
    "words",
    [["topic", "list", "-o", "json"], ["consume", "full"], ["cluster"], ["--help"]],
    ids=" ".join,
)
def test_a_full_disk_behind_the_output(namesrv: str, words: list[str]) -> None:
    run(["produce", "full", "x"], namesrv)
    with open("/dev/full", "w") as full:
        done = run(words, namesrv, stdout=full)

    assert done.returncode == 1
    assert "No space left on device" in done.stderr.decode().splitlines()[0]
    assert "Traceback" not in done.stderr.decode()


def test_a_closed_output_and_a_reader_that_left(namesrv: str) -> None:
    run(["produce", "closed", "x"], namesrv)
    for ending in (">&-", "| true"):
        line = f"exec {' '.join(ROQUETTE)} consume closed {ending}"
        if ending == "| true":
            line = line.removeprefix("exec ")
        done = subprocess.run(
            ["sh", "-c", line],
            env={**os.environ, "NAMESRV_ADDR": namesrv},
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
        assert b"Traceback" not in done.stderr, done.stderr
        assert b"Exception ignored" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["broker", "--listen", "127.0.0.1:0", "--store"],
        ["dev", "--namesrv-port", "0", "--broker-port", "0", "--store"],
        ["store", "fsck"],
        ["store", "ls"],
    ],
    ids=" ".join,
)
def test_a_store_that_is_a_file(words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")

    done = run([*words, str(path)])

    assert done.returncode != 0
    assert "Traceback" not in done.stderr.decode(), done.stderr
    assert str(path) in done.stderr.decode()
    assert path.read_text() == "x"


def test_an_unknown_cluster_is_answered_with_clusters(namesrv: str) -> None:
    text = one_line(run(["topic", "create", "t", "--cluster", "Nowhere"], namesrv))

    assert text == "error: the name server knows no cluster Nowhere; it knows DefaultCluster\n"


def test_the_port_of_a_broker_is_no_name_server(namesrv: str) -> None:
    """That of `dev` answers where a topic's queues are, so that one can send and receive there, and nothing else."""
    state = json.loads(run(["cluster", "-o", "json"], namesrv).stdout)[0]

    text = one_line(run(["topic", "list"], state["address"]))
    assert f"{state['address']} is no name server (a broker, perhaps?)" in text
    assert run(["produce", "t", "x"], state["address"]).stderr == b"sent 1 message to t\n"


@pytest.mark.promise("Refusals", "a command line with wrong input is one line and a status")
@pytest.mark.parametrize("after_s", [0.02, 0.1, 0.2, 0.4])
def test_ctrl_c_at_any_time_is_one_word(after_s: float) -> None:
    child = subprocess.Popen(
        [*ROQUETTE, "produce", "t"],
        env={**os.environ, "NAMESRV_ADDR": "127.0.0.1:1"},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # a job in the background of a shell is started with Ctrl-C ignored, and hands that on
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads
    )
    time.sleep(after_s)  # any moment will do: none of them may show a traceback of ours
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    if b"Exception ignored in" in said and b"KeyboardInterrupt" in said:
        return  # Python has lost the interrupt in a callback of its own imports, and the command ended by itself
    assert child.returncode in (1, 130, -signal.SIGINT)
    # before `main` begins Python is at work, with a `main` of its own and on the package too, and says so in its own way
    assert not re.search(r'roquette.*", line [0-9]+, in main', said.decode())


def test_pipelines_say_what_is_missing_without_arrow() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None; sys.modules['pyspark'] = None\n"
        "from roquette.apps.main import main\n"
        "main()"
    )
    for words, status in ((["--help"], 0), (["archive", "--topic", "t"], 1)):
        done = subprocess.run(
            [sys.executable, "-c", code, "pipeline", *words],
            capture_output=True,
            timeout=60,
            check=False,
            text=True,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == status, done.stderr
        assert "archive" in done.stdout + done.stderr
        assert "pip install 'roquette[spark]'" in " ".join((done.stdout + done.stderr).split())
