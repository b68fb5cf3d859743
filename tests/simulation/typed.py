"""Commands as an operator types them, run in a simulated cluster: the verb in a thread, its requests on the loop."""

import asyncio
import queue
import re
import shlex
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
import typer
from tests.simulation.ward import Ward
from typer.testing import CliRunner, Result

from roquette.apps.main import app
from roquette.cli import apply, broker, connect, dlq, doctor, group, resize, topic
from roquette.errors import RoquetteError

VERBS = (apply, broker, dlq, doctor, group, resize, topic)
COMMAND = re.compile(r"roquette [^;`]+")


def commands_of(fix: str) -> list[str]:
    """What a fix says to type: from the word roquette to the next semicolon, or the end."""
    return [found.strip() for found in COMMAND.findall(fix)]


class Borrowed:
    """The operator's client, which no command closes."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def __aenter__(self) -> Any:
        return self._client

    async def __aexit__(self, *error: object) -> None:
        return None


async def typed(ward: Ward, line: str, *more: str) -> Result:
    """What a command line does and says; who is asked says yes. Time passes only while it waits for an answer."""
    words = [*shlex.split(line)[1:], *more]
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
        results.append(CliRunner().invoke(app, words))
        work.put(None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "run", hand_over)
        patch.setattr(connect, "client_of", lambda *args, **settings: Borrowed(ward.mq))
        for module in VERBS:
            patch.setattr(module, "confirm", lambda deed, yes: None)
        patch.setenv("NAMESRV_ADDR", ";".join(ward.mq.session.name_servers))
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while (coroutine := work.get()) is not None:
            try:
                answers.put((await coroutine, None))
            except (RoquetteError, typer.Exit, typer.Abort) as error:
                answers.put((None, error))
        thread.join()
    return results[0]


async def done(ward: Ward, line: str, *more: str) -> str:
    """What a command says on both its streams; it must succeed."""
    result = await typed(ward, line, *more)
    if result.exit_code:
        raise result.exception or AssertionError(result.output)
    return result.output
