"""`roquette broker promote`: what it says while it waits for the new master."""

import asyncio
from collections.abc import Generator
from typing import Any

import pytest
from msgspec.structs import replace

from roquette.admin import replication
from roquette.admin.replication import GroupState
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


def promote(*states: GroupState) -> list[str]:
    """What is said when a cluster's group is in these states, one after the other."""
    told, left = list[str](), iter(states)

    async def run(operation: Generator[Any, Any, Any]) -> Any:
        return [next(left)] if operation.__name__ == "group_states" else None

    report = asyncio.run(replication.promote(run, ["ns:9876"], told.append, "g", 1, cluster="c"))
    return [*told, *report.notes]


def test_it_waits_until_the_member_is_master() -> None:
    won = replace(GIVEN_BACK, ordered=0, epoch=5)  # and does not serve yet
    ordered, done = promote(BEFORE, ORDERED, GIVEN_BACK, won, replace(won, master=1))
    assert ordered == "ordered; the master is broker 2 now"
    assert "broker 1 is master of g, epoch 5; nobody was for" in done


def test_an_order_that_another_one_has_ended_is_told_at_once() -> None:
    """The one that was ordered did not stand for a lease's time: until now the words were that the order stands."""
    with pytest.raises(ClientError, match=r"the order is over, .* broker 3 is master, epoch 5"):
        promote(BEFORE, ORDERED, GIVEN_BACK, replace(BEFORE, master=3, epoch=5))
