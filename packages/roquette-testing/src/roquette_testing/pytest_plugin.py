"""Fixtures of the test kit. Nothing of Roquette is imported before a test asks for one.

- `roquette_broker`: an EmbeddedBroker for the whole session of one process (with pytest-xdist each worker has its own).
- `roquette_client`: a blocking client of it, closed after the test. Asynchronous tests write
  `async with roquette_broker.client() as mq`, in the loop of their own plugin.
- `roquette_topic`: a topic's name that no other test uses.
- `roquette_clock`, `roquette_faults`: of a broker of this test alone; `roquette_broker` is that broker then.
- `roquette_world`: a whole cluster in virtual time, for coroutine functions: see `roquette_testing.seeds`.
"""

from __future__ import annotations

import inspect
import itertools
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from roquette import sync
    from roquette_testing.embedded import EmbeddedBroker, EmbeddedClock, EmbeddedFaults

_ALONE = ("roquette_clock", "roquette_faults")
_numbers = itertools.count()


@pytest.fixture(scope="session")
def _roquette_shared_broker() -> Iterator[EmbeddedBroker]:
    from roquette_testing.embedded import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def roquette_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A running broker: the session's, or one of this test alone if it uses the clock or faults."""
    if not any(name in request.fixturenames for name in _ALONE):
        yield request.getfixturevalue("_roquette_shared_broker")
        return
    from roquette_testing.embedded import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def roquette_client(roquette_broker: EmbeddedBroker) -> Iterator[sync.Client]:
    """A started blocking client."""
    with roquette_broker.sync_client() as client:
        yield client


@pytest.fixture
def roquette_topic(request: pytest.FixtureRequest) -> str:
    """A topic of this test alone; it exists once something is sent to it."""
    words = re.sub(r"\W+", "-", request.node.name).strip("-")[:60]
    return f"{words}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def roquette_clock(roquette_broker: EmbeddedBroker) -> EmbeddedClock:
    """The broker's clock: `roquette_clock.advance(hours=3)`."""
    return roquette_broker.clock


@pytest.fixture
def roquette_faults(roquette_broker: EmbeddedBroker) -> EmbeddedFaults:
    """Faults of the broker: `roquette_faults.kill()`."""
    return roquette_broker.faults


WORLD = "roquette_world"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of tests with a `roquette_world`."""
    group = parser.getgroup("roquette", "Roquette: clusters in virtual time")
    group.addoption(
        "--roquette-seeds",
        type=int,
        default=10,
        metavar="N",
        help="run each test with a roquette_world under the seeds 1 to N (10)",
    )
    group.addoption(
        "--roquette-seed",
        type=int,
        default=None,
        metavar="K",
        help="run each test with a roquette_world under this seed alone: the very same run again",
    )


@pytest.fixture
def roquette_world() -> object:
    """A cluster in virtual time; the test gets a `roquette_testing.World`."""
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Run a coroutine function that has a world under its seeds."""
    if WORLD not in pyfuncitem.fixturenames or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    from roquette_testing.seeds import World, run_seed

    names = inspect.signature(pyfuncitem.obj).parameters
    given: dict[str, Any] = {n: v for n, v in pyfuncitem.funcargs.items() if n in names}

    async def test(world: World) -> None:
        await pyfuncitem.obj(**given | {WORLD: world})

    one: int | None = pyfuncitem.config.getoption("--roquette-seed")
    count: int = pyfuncitem.config.getoption("--roquette-seeds")
    for seed in range(1, count + 1) if one is None else (one,):
        try:
            run_seed(test, seed)
        except Exception as error:
            error.add_note(
                f"roquette: seed {seed} fails; the same run again: pytest '{pyfuncitem.nodeid}' --roquette-seed {seed}"
            )
            raise
    return True
