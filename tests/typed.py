"""Commands that our texts tell somebody to type: found, parsed by the program, and typed at a simulated cluster."""

import asyncio
import queue
import re
import shlex
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
import typer
from tools.commands_page import ROOT_COMMAND, below
from typer.testing import CliRunner, Result

from roquette.apps.main import app
from roquette.base import clock
from roquette.cli import connect
from roquette.client.client import Client
from roquette.errors import RoquetteError

QUOTED = re.compile("`(roquette [^`]+)`")
COMMAND = re.compile(r"roquette [^;`]+")
PLACE = re.compile("[A-Z][A-Z_]+")


def typed(text: str) -> list[list[str]]:
    """The words of each command in a text; what looks like a command stands in back quotes."""
    rest = QUOTED.sub("", text)
    assert not re.search(r"\b(mqadmin|roquette) [a-z]", rest), f"not in back quotes: {rest}"
    return [shlex.split(command) for command in QUOTED.findall(text)]


def commands_of(text: str) -> list[str]:
    """The commands in a text, in back quotes or not: from the word roquette to the next semicolon, or the end."""
    return [found.strip() for found in COMMAND.findall(text)]


def parsed(words: list[str]) -> Any:
    """What the program makes of a command line; raises a usage error for one that it does not take. Words in capitals
    stand for something that who types knows."""
    command, rest = ROOT_COMMAND, [PLACE.sub("1", word) for word in words[1:]]
    while below(command) and rest and rest[0] in below(command):
        command = below(command)[rest.pop(0)]
    assert not below(command) or getattr(command, "invoke_without_command", False), words
    return command.make_context(words[1], rest)


class Borrowed:
    """The operator's client, which no command closes."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def __aenter__(self) -> Any:
        return self._client

    async def __aexit__(self, *error: object) -> None:
        return None


async def type_at(client: Client, words: list[str]) -> Result:
    """What a command line does and says, its requests sent by this client; who is asked says yes. Time passes only while
    it waits for an answer."""
    rest = [*words[1:], "--yes"] if "yes" in parsed(words).params else words[1:]
    work: queue.Queue[Coroutine[Any, Any, Any] | None] = queue.Queue()
    answers: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue()
    results: list[Result] = []

    def hand_over(coroutine: Coroutine[Any, Any, Any]) -> Any:
        work.put(coroutine)
        value, error = answers.get()
        if error is not None:
            raise error
        return value

    def run() -> None:
        results.append(CliRunner().invoke(app, rest))
        work.put(None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "run", hand_over)
        patch.setattr(connect, "client_of", lambda *args, **settings: Borrowed(client))
        patch.setattr(clock, "SystemClock", lambda: client._clock)
        patch.setenv("NAMESRV_ADDR", ";".join(client.session.name_servers))
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while (coroutine := work.get()) is not None:
            try:
                answers.put((await coroutine, None))
            except (RoquetteError, typer.Exit, typer.Abort) as error:
                answers.put((None, error))
        thread.join()
    return results[0]


async def done(client: Client, line: str, *more: str) -> str:
    """What a command says on both its streams; it must succeed."""
    result = await type_at(client, [*shlex.split(line), *more])
    if result.exit_code:
        raise result.exception or AssertionError(result.output)
    return result.output
