"""What pages promise: the tables of docs/reliability.md and docs/security.md name tests for it, and each of these is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAD = "| promise | test |\n|---|---|\n"
TABLES = {
    name: (ROOT / f"docs/{name}.md").read_text().partition(HEAD)[2].partition("\n\n")[0]
    for name in ("reliability", "security")
}
NAMED = sorted({*re.findall(r"`(tests/[\w/]+\.py)::(\w*)`", "".join(TABLES.values()))})


@pytest.mark.parametrize("page", TABLES)
def test_each_promise_has_a_test(page: str) -> None:
    rows = TABLES[page].splitlines()
    assert len(rows) > 20
    assert all(re.search(r"\| `tests/[\w/]+\.py::\w*`", row) for row in rows)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_what_is_named_is_one_test(path: str, name: str) -> None:
    found = re.findall(rf"^(?:async )?def {name or 'test_'}\w*", (ROOT / path).read_text(), re.M)
    assert len(found) == 1 or not name, found
    assert found
