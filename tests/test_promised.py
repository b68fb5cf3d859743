"""What the how-to pages of groups promise: docs/reliability.md names a test for each, and each of these is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/reliability.md").read_text()
TABLE = PAGE.partition("| promise | test |\n|---|---|\n")[2].partition("\n\n")[0]
NAMED = sorted({*re.findall(r"`(tests/[\w/]+\.py)::(\w*)`", TABLE)})


def test_each_promise_has_a_test() -> None:
    rows = TABLE.splitlines()
    assert len(rows) > 20
    assert all(re.search(r"\| `tests/[\w/]+\.py::\w*`", row) for row in rows)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_what_is_named_is_one_test(path: str, name: str) -> None:
    found = re.findall(rf"^(?:async )?def {name or 'test_'}\w*", (ROOT / path).read_text(), re.M)
    assert len(found) == 1 or not name, found
    assert found
