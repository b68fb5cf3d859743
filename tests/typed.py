"""Commands that our texts tell somebody to type: found, parsed by the program, and typed at a simulated cluster."""

import asyncio
import os
import queue
import re
import shlex
from concurrent.futures import Future
from threading import Thread
from typing import Any
from unittest import mock

from tools.commands_page import ROOT_COMMAND, below
from typer.testing import CliRunner, Result

from roquette.apps.main import app
from roquette.cli.connect import Cluster
from roquette.client.client import Client

QUOTED = re.compile("`(roquette [^`]+)`")
PLACE = re.compile("[A-Z][A-Z_]+")


def typed(text: str) -> list[list[str]]:
    """The words of each command in a text; what looks like a command stands in back quotes."""
    rest = QUOTED.sub("", text)
    assert not re.search(r"\b(mqadmin|roquette) [a-z]", rest), f"not in back quotes: {rest}"
    return [shlex.split(command) for command in QUOTED.findall(text)]


def parsed(words: list[str]) -> Any:
    """What the program makes of a command line; raises a usage error for one that it does not take. Words in capitals
    stand for something that who types knows."""
    command, rest = ROOT_COMMAND, [PLACE.sub("1", word) for word in words[1:]]
    while below(command) and rest and rest[0] in below(command):
        command = below(command)[rest.pop(0)]
    assert not below(command) or getattr(command, "invoke_without_command", False), words
    return command.make_context(words[1], rest)


async def type_at(client: Client, words: list[str]) -> Result:
    """Run a command line as an operator would, whose operations this client runs, in this loop's time."""
    asked: queue.SimpleQueue[tuple[Any, Future[Any]] | Result] = queue.SimpleQueue()

    def run(where: Cluster, operation: Any) -> Any:
        done: Future[Any] = Future()
        asked.put((operation, done))
        return done.result(60)

    rest = [*words[1:], "--yes"] if "yes" in parsed(words).params else words[1:]
    environ = {"NAMESRV_ADDR": ";".join(client.session.name_servers)}
    with mock.patch.object(Cluster, "run", run), mock.patch.dict(os.environ, environ):
        thread = Thread(target=lambda: asked.put(CliRunner().invoke(app, rest)))
        thread.start()
        while not isinstance(next_one := await _next(asked), Result):
            operation, done = next_one
            try:
                done.set_result(await client.session.run(operation))
            except Exception as error:  # noqa: BLE001 - the command's own, which it tells
                done.set_exception(error)
        thread.join()
    return next_one


async def _next(asked: "queue.SimpleQueue[Any]") -> Any:
    """Waits in real time: in that of the loop nothing happens meanwhile."""
    await asyncio.sleep(0)
    return asked.get(timeout=60)
