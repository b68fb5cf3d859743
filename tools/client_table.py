"""Writes the table "Clients: what was seen" of docs/compatibility.md from the record of an interop run.

    make interop                          (or any run of tests/interop: it adds to the record)
    python tools/client_table.py

A cell says how many tests with the marker `feature` passed at Roquette's servers in the last run of each; the
last column how many of a row's tests also passed at Apache's own 5.5.0 (`make test-long` runs them there).
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.interop.features import CLIENTS, FEATURES, NOT_OFFERED, RECORD  # noqa: E402

PAGE = ROOT / "docs" / "compatibility.md"
BEGIN = "<!-- clients: begin (tools/client_table.py) -->"
END = "<!-- clients: end -->"


def cells(record: dict[str, Any]) -> dict[tuple[str, str, str], dict[str, int]]:
    """Outcomes by server, client and feature: how many tests of each."""
    found: dict[tuple[str, str, str], dict[str, int]] = {}
    for seen in record.values():
        for client, feature in seen["shows"]:
            counts = found.setdefault((seen["server"], client, feature), {})
            counts[seen["outcome"]] = counts.get(seen["outcome"], 0) + 1
    return found


def cell(client: str, feature: str, counts: dict[str, int]) -> str:
    """One cell; raises ValueError for a failed test, which is no statement to publish."""
    if counts.get("failed"):
        raise ValueError(f"{client}, {feature}: {counts['failed']} failed; no table is written")
    if counts.get("passed"):
        return f"yes ({counts['passed']})"
    return "not offered" if feature in NOT_OFFERED.get(client, ()) else "not seen"


def table(record: dict[str, Any]) -> str:
    """The whole table in Markdown."""
    found = cells(record)
    lines = [f"| feature | {' | '.join(CLIENTS)} | proved at Apache's 5.5.0 |"]
    lines.append("|---" * (len(CLIENTS) + 2) + "|")
    for feature, words in FEATURES.items():
        here = [found.get(("roquette", client, feature), {}) for client in CLIENTS]
        there = [found.get(("apache", client, feature), {}) for client in CLIENTS]
        row = [cell(client, feature, counts) for client, counts in zip(CLIENTS, here, strict=True)]
        passed = sum(counts.get("passed", 0) for counts in here)
        proved = sum(counts.get("passed", 0) for counts in there)
        lines.append(f"| {words} | {' | '.join(row)} | {proved} of {max(passed, proved)} |")
    return "\n".join(lines) + "\n"


def written(page: str, text: str) -> str:
    """The page with the table between its markers."""
    pattern = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.DOTALL)
    assert pattern.search(page), f"{PAGE} has no markers"
    return pattern.sub(lambda _: f"{BEGIN}\n{text}{END}", page)


def main() -> None:
    """Write the table."""
    if not RECORD.exists():
        raise SystemExit(f"no record at {RECORD}: run tests/interop first")
    try:
        text = table(json.loads(RECORD.read_text()))
    except ValueError as failed:
        raise SystemExit(str(failed)) from None
    PAGE.write_text(written(PAGE.read_text(), text))


if __name__ == "__main__":
    main()
