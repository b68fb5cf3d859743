"""A group of brokers in trouble: a handful of seeds; `python -m tests.simulation.group_chaos N` runs many."""

from typing import Any

import pytest
from tests.simulation.group_chaos import main, run_seed

from roquette.replication import takeover
from roquette.replication.effects import Role
from roquette.replication.epochs import EpochMarks
from roquette.replication.takeover import TakeOver
from roquette.store.message_store import MessageStore

pytestmark = pytest.mark.simulation


@pytest.mark.promise("Groups of brokers", "whoever becomes master has all that was acknowledged")
@pytest.mark.promise("Groups of brokers", "offsets, delayed messages, transactions, POP go on")
@pytest.mark.parametrize("seed", range(1, 4))
def test_nothing_acknowledged_is_lost_whatever_happens(seed: int) -> None:
    world = run_seed(seed)
    assert world.answers > 50


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("first", range(10_000, 12_000, 100))
def test_two_thousand_seeds(first: int) -> None:
    assert main(100, first, "") == 0


def _ack_local(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TakeOver, "_need", lambda table: {table.me})


def _read_unconfirmed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MessageStore, "set_confirmed", lambda store, offset: None)


def _elect_blind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(takeover, "bar", lambda *_: "")


def _ignore_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        TakeOver, "lease_left_ms", lambda table, now_ms: 9_999 if table.role is Role.MASTER else 0
    )


def _cut_at_shorter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EpochMarks, "common", lambda marks, own, theirs, their_end: min(own, their_end))


PLANTED = (_ack_local, _read_unconfirmed, _elect_blind, _ignore_lease, _cut_at_shorter)
# Where answers wait for replicas, those of another master's epoch do not answer: the lease is the only guard where they do not.
ANSWERS_AT_ONCE = {_ignore_lease}


@pytest.mark.promise("Groups of brokers", "the checks find bugs that are planted")
@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__[1:])
def test_a_planted_bug_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    role = "ASYNC_MASTER" if plant in ANSWERS_AT_ONCE else "SYNC_MASTER"
    for seed in range(1, 31):
        try:
            run_seed(seed, role=role)
        except AssertionError as error:
            print(f"found by seed {seed}: {str(error)[:200]}")
            return
    pytest.fail("30 seeds do not find it")
