"""examples/outbox: producers are killed around the commit of their database, and it answers the broker's check."""

import asyncio
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from tools import workspace

from roquette import Client, ReceivedMessage, StartFrom
from roquette_testing import EmbeddedBroker

ROOT = Path(__file__).parents[2]
KILLED = """
import asyncio, os, signal, sys
from examples.outbox import shop

def die(self, number):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(shop.Shop, sys.argv[4], die)
asyncio.run(shop.main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def order(broker: EmbeddedBroker, url: str, number: int, die: str = "") -> int:
    """Take an order in a process of its own; how it ended."""
    words = ["-c", KILLED] if die else ["-m", "examples.outbox.shop"]
    words += [broker.name_servers, url, f"{number}", *([die] if die else [])]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{workspace.python_path()}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, 1, -signal.SIGKILL), done.stderr
    return done.returncode


@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGKILL")
def test_the_database_answers_for_producers_that_were_killed(tmp_path: Path) -> None:
    from examples.outbox.shop import GROUP, TOPIC, Shop, utc_now
    from sqlalchemy import create_engine

    url = f"sqlite:///{tmp_path / 'shop.db'}"
    asked: list[tuple[bytes, bool | None]] = []
    later = timedelta()
    told: list[bytes] = []

    class Asked(Shop):
        def check(self, message: ReceivedMessage) -> bool | None:
            asked.append((message.body, super().check(message)))
            return asked[-1][1]

    async def answer(broker: EmbeddedBroker) -> None:
        nonlocal later
        engine = create_engine(url)
        async with Client(broker.name_servers, group=GROUP) as mq:
            Asked(mq, engine, lambda: utc_now() + later)
            await mq.subscribe(
                TOPIC,
                group="billing",
                handler=lambda message: told.append(message.body),
                start_from=StartFrom.FIRST,
            )
            async with asyncio.timeout(60):
                while (b"order 9", False) not in asked or b"order 8" not in told:
                    if (b"order 9", None) in asked:
                        later = timedelta(minutes=1)
                    answered = len(
                        asked
                    )  # after 15 checks that nobody answered the broker discards
                    await asyncio.to_thread(broker.clock.advance, seconds=30)
                    for _ in range(20):
                        if len(asked) > answered:
                            break
                        await asyncio.sleep(0.1)
            await asyncio.to_thread(broker.clock.advance, hours=1)
            await asyncio.sleep(0.5)
        engine.dispose()

    with EmbeddedBroker() as broker:
        assert order(broker, url, 7) == 0
        assert order(broker, url, 7) == 1, "the order is there already"
        assert order(broker, url, 8, "after_commit") == -signal.SIGKILL
        assert order(broker, url, 9, "before_commit") == -signal.SIGKILL
        asyncio.run(answer(broker))
    young = (b"order 9", None)  # it might be at work elsewhere
    assert set(asked) == {(b"order 8", True), young, (b"order 9", False)}
    assert sorted(told) == [b"order 7", b"order 8"]
