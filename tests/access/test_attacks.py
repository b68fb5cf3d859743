"""No attack of docs/reference/attacks.md succeeds, and the page names them all."""

import re
from pathlib import Path

import pytest
from tests.access.attackers import run_attack
from tests.access.attacks import ATTACKS
from tests.request_samples import BROKER_ROWS

HA_TICKET = 13007  # until brokers serve it, the port for replicas is behind a packet filter or open
IN_WORK = (
    set()
    if any(row.code == HA_TICKET for row in BROKER_ROWS)
    else {"replication_port_without_ticket"}
)


@pytest.mark.parametrize("name", sorted(ATTACKS.keys() - IN_WORK))
def test_attack(name: str) -> None:
    """The attack fails."""
    assert not run_attack(ATTACKS[name]), ATTACKS[name].__doc__


PAGE = Path("docs/reference/attacks.md")
BEGIN, END = "<!-- attacks:begin -->\n", "<!-- attacks:end -->\n"


def listed() -> str:
    """The attacks as the page lists them: `python -m tests.access.test_attacks` writes them there."""
    lines = [
        f"- `{name}`: {' '.join((work.__doc__ or '').split())}" for name, work in ATTACKS.items()
    ]
    return "\n".join(lines) + "\n"


def test_the_page_lists_every_attack() -> None:
    text = PAGE.read_text()
    assert text.partition(BEGIN)[2].partition(END)[0] == listed()


def test_each_advisory_names_tests_that_exist() -> None:
    table = PAGE.read_text().partition("## Apache's advisories")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 8
    tests = "".join(path.read_text() for path in Path("tests/remoting").glob("test_*.py"))
    for row in rows:
        names = re.findall(r"`(\w+)`", row[4])
        assert names or "there is none" in row[3], row
        for name in names:
            assert name in ATTACKS or f"def {name}(" in tests, name


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + listed() + END + rest.partition(END)[2])
