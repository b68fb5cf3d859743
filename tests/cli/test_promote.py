"""`roquette broker promote`: what it says while it waits for the new master."""

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from roquette.admin.replication import GroupState
from roquette.cli.broker import _promote
from roquette.errors import ClientError

BEFORE = GroupState(
    cluster="c",
    group="g",
    epoch=4,
    master=2,
    in_step=[1, 2, 3],
    lossy_epoch=0,
    problems=[],
    members=[],
)
ORDERED = replace(BEFORE, ordered=1)
GIVEN_BACK = replace(ORDERED, master=0)


class Told:
    """A cluster whose group is in these states, one after the other."""

    def __init__(self, *states: GroupState) -> None:
        self._states = iter(states)

    def addresses(self) -> list[str]:
        return ["ns:9876"]

    @asynccontextmanager
    async def client(self, group: str) -> AsyncIterator[SimpleNamespace]:
        yield SimpleNamespace(session=SimpleNamespace(run=self._run))

    async def _run(self, operation: Generator[Any, Any, Any]) -> Any:
        return [next(self._states)] if operation.__name__ == "group_states" else None


def promote(*states: GroupState) -> None:
    asyncio.run(_promote(Told(*states), ("c", "g"), 1, False))  # type: ignore[arg-type]


def test_it_waits_until_the_member_is_master(capsys: pytest.CaptureFixture[str]) -> None:
    won = replace(GIVEN_BACK, ordered=0, epoch=5)  # and does not serve yet
    promote(BEFORE, ORDERED, GIVEN_BACK, won, replace(won, master=1))
    assert "broker 1 is master of g, epoch 5; nobody was for" in capsys.readouterr().err


def test_an_order_that_another_one_has_ended_is_told_at_once() -> None:
    """The one that was ordered did not stand for a lease's time: until now the words were that the order stands."""
    with pytest.raises(ClientError, match=r"the order is over, .* broker 3 is master, epoch 5"):
        promote(BEFORE, ORDERED, GIVEN_BACK, replace(BEFORE, master=3, epoch=5))
