"""docs/reference/client-features.md names a test for each feature: it is there."""

import re

from tests.interop.peers import ROOT

PAGE = (ROOT / "docs" / "reference" / "client-features.md").read_text("utf-8")
ROWS = [line for line in PAGE.partition("\n## ")[0].splitlines() if line.startswith("| ")]


def test_every_row_names_a_test_that_exists() -> None:
    assert len(ROWS) > 30
    for row in ROWS[1:]:
        found = re.search(r"`(test_\w+\.py)(?:::(test_\w+))?` \|$", row)
        assert found, row
        files = [path.read_text("utf-8") for path in (ROOT / "tests").rglob(found[1])]
        assert any(f"def {found[2] or 'test_'}" in text for text in files), row
        assert row.count(" | ") == 6, row
