"""Every command of the program, found by looking at it, with wrong words: an exit code of docs/reference/cli.md and one line that
says what is wrong, whatever is given."""

import contextlib
import io
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tools.commands_page import ROOT_COMMAND, below

from roquette.apps import main as program
from roquette.cli.exit_codes import FAILED, UNHEALTHY, USAGE
from roquette.cli.output import MAX_ERROR

SERVERS = {
    "proxy",
    "dev",
    "namesrv",
    "broker",
    "console",
    "up",
    "run",
}  # they go on until somebody ends them
ENDLESS = {"top", "events"}  # unless they are told how often they look
SHARED = {
    "namesrv",
    "login",
    "context",
    "output",
    "every",
    "watch",
}  # the same code in all commands
NOWHERE = "127.0.0.1:1"
PLAIN = "x1"
# Where that does not lead to the cluster.
FITTING = {
    "--queues": "4",
    "--to": "last",
    "actions": "pub",
    "changes": "flushDiskType=ASYNC_FLUSH",
    "member": "1",
    "command": "topicList",
    "files": __file__,
    "who": "master",
}
QUICK = {
    "below zero": "-1",
    "10,000 digits": "9" * 10_000,
    "control characters": "a\x1b[2J\nb\r",
    "not UTF-8": os.fsdecode(b"caf\xe9"),
}
REST = {
    "a word": "zzz",
    "nothing": "",
    "2**63": str(2**63),
    "10,000 letters": "x" * 10_000,
    "no number": "nan",
    "another script's digits": "٣²",
}


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Each command that does something, by its words."""
    more = below(command)
    if words and (not more or getattr(command, "invoke_without_command", False)):
        yield " ".join(words), command
    for name, each in more.items():
        yield from leaves(each, (*words, name))


COMMANDS = dict(leaves(ROOT_COMMAND))
OF_CLUSTERS = [
    name
    for name, command in COMMANDS.items()
    if name not in SERVERS
    and not name.startswith(("pipeline", "spark", "context"))
    and any("--namesrv" in each.opts for each in command.params)
]


@dataclass
class Ended:
    """A command that was run."""

    code: object
    out: bytes
    said: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Ended]:
    """The command in this process, in an empty directory, without a terminal."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in list(os.environ):
        if name.startswith("ROQUETTE_") and name != "ROQUETTE_INTERPRETED":
            monkeypatch.delenv(name)
    monkeypatch.setenv("NAMESRV_ADDR", NOWHERE)

    def run(*words: str) -> Ended:
        out, said = io.BytesIO(), io.BytesIO()
        output = io.TextIOWrapper(
            out, "utf-8", write_through=True
        )  # main may have another one at its end
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["roquette", *words])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
            patch.setattr(sys, "stdout", output)
            patch.setattr(
                sys,
                "stderr",
                io.TextIOWrapper(said, "utf-8", "backslashreplace", write_through=True),
            )
            with pytest.raises(SystemExit) as ended:
                program.main()
            return Ended(ended.value.code, out.getvalue(), said.getvalue().decode())

    return run


def judge(ended: Ended, words: list[str]) -> None:
    shown = [word[:40] for word in words], ended.said[:2_000]
    assert ended.code in (0, FAILED, USAGE, UNHEALTHY), shown
    assert "Traceback" not in ended.said, shown
    lines = ended.said.splitlines()
    assert all(line.isprintable() for line in [*lines, *ended.out.decode().splitlines()]), shown
    if ended.code in (FAILED, USAGE):
        assert ended.out or lines, shown
        errors = [line for line in lines if line.startswith("error: ")]
        assert len(errors) <= 1, shown
        assert not any("roquette." in line and " WARNING " in line for line in lines), shown
        assert all(len(line) < MAX_ERROR + 100 for line in errors), shown


def plain_words(name: str, command: Any, instead: tuple[Any, str] | None = None) -> list[str]:
    """A command line that fits, with one value in the place of another."""
    words = name.split()
    for each in command.params:
        flag = each.opts[-1] if each.param_type_name == "option" else ""
        if instead is not None and each is instead[0]:
            joined = [f"{flag}={instead[1]}"] if flag.startswith("--") else [flag, instead[1]]
            words += (
                joined if flag else ["--", instead[1]] if instead[1][:1] == "-" else [instead[1]]
            )
        elif each.required:
            words += [*filter(None, [flag]), FITTING.get(flag or each.name, PLAIN)]
    known = {opt for each in command.params for opt in each.opts}
    if name in ENDLESS and (instead is None or "--count" not in instead[0].opts):
        words += ["--count", "1"]
    if "--yes" in known:
        words.insert(len(name.split()), "--yes")
    return words


def wrong_lines(name: str, values: dict[str, str]) -> Iterator[list[str]]:
    command = COMMANDS[name]
    for each in command.params:
        if each.name in SHARED or (
            each.param_type_name == "option" and (each.is_flag or each.count)
        ):
            continue
        if name in SERVERS and each.opts[-1] not in ("--listen", "--set"):
            continue
        for value in values.values():
            yield plain_words(name, command, (each, value))


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_values_are_told_in_a_line(name: str, run: Callable[..., Ended]) -> None:
    for words in wrong_lines(name, QUICK):
        judge(run(*words), words)


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_more_wrong_values_are_told_in_a_line(name: str, run: Callable[..., Ended]) -> None:
    for words in wrong_lines(name, REST):
        judge(run(*words), words)


@pytest.mark.parametrize("name", COMMANDS)
def test_unknown_and_missing_words_are_told_with_the_way_to_the_help(
    name: str, run: Callable[..., Ended]
) -> None:
    missing = any(each.required for each in COMMANDS[name].params)
    lines = [[*name.split(), "--no-such-option"]]
    lines += [name.split()] if missing else []
    for words in lines:
        ended = run(*words)
        judge(ended, words)
        assert ended.code == USAGE
        assert f"see: roquette {name} --help" in ended.said or "Usage: " in ended.said


@pytest.mark.parametrize("name", OF_CLUSTERS)
def test_a_name_server_that_is_not_there(name: str, run: Callable[..., Ended]) -> None:
    words = plain_words(name, COMMANDS[name])
    ended = run(*words, "--namesrv", NOWHERE)
    judge(ended, words)
    if not ended.said.startswith("sent 0"):  # nothing was given to send
        assert ended.code == FAILED
        assert "error: " in ended.said or "Connect" in ended.said


@pytest.mark.parametrize("option", sorted(SHARED - {"namesrv", "watch"}))
def test_options_of_all_commands(option: str, run: Callable[..., Ended]) -> None:
    (param,) = [each for each in COMMANDS["topic list"].params if each.name == option]
    for value in (QUICK | REST).values():
        words = plain_words("topic list", COMMANDS["topic list"], (param, value))
        ended = run(*words)
        judge(ended, words)
        assert ended.code in (FAILED, USAGE)


@pytest.mark.parametrize("value", (QUICK | REST).values(), ids=QUICK | REST)
def test_name_servers_that_are_none(value: str, run: Callable[..., Ended]) -> None:
    words = ["topic", "list", f"--namesrv={value}"]
    ended = run(*words)
    judge(ended, words)
    assert ended.code == FAILED


ANSWERS = {
    "closes": b"",
    "speaks HTTP": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "speaks TLS": b"\x15\x03\x01\x00\x02\x02\x28",
    "says anything": bytes(range(256)),
}


@pytest.fixture(scope="module", params=ANSWERS.values(), ids=ANSWERS)
def stranger(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where something else listens: it says its bytes to whatever comes, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.recv(1 << 16)
                        connection.sendall(request.param)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def test_something_else_at_the_name_servers_address(
    stranger: str, run: Callable[..., Ended]
) -> None:
    for name in OF_CLUSTERS:
        words = plain_words(name, COMMANDS[name])
        ended = run(*words, "--namesrv", stranger)
        judge(ended, words)
        assert ended.code == (0 if name == "produce" else FAILED), (name, ended.said)


def test_what_is_not_there_in_a_cluster_that_is(namesrv: str, run: Callable[..., Ended]) -> None:
    for name in OF_CLUSTERS:
        if name == "doctor" or name.endswith(" create"):
            continue
        command = COMMANDS[name]
        words = [*plain_words(name, command), "--namesrv", namesrv]
        if any(each.name == "output" for each in command.params):
            words += ["--output", "json"]
        ended = run(*words)
        judge(ended, words)
        if ended.out and "--output" in words:
            json.loads(ended.out)
