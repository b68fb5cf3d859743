"""Writes the tables "Clients: what was seen" of docs/reference/clients.md from the record of an interop run.

    make interop                          (or any run of tests/interop: it adds to the record)
    python tools/client_table.py

A cell says how many tests with the marker `feature` passed at Roquette's servers in the last run of each; the
last column how many of a row's tests also passed at Apache's own 5.5.0 (`make test-long` runs them there).
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.interop.features import (  # noqa: E402
    CLIENTS,
    FEATURES,
    NOT_OFFERED,
    RECORD,
    V5_CLIENTS,
    V5_FEATURES,
    V5_NOT_OFFERED,
)

PAGE = ROOT / "docs" / "reference" / "clients.md"
BEGIN = "<!-- clients: begin (tools/client_table.py) -->"
END = "<!-- clients: end -->"


class Table(NamedTuple):
    """One table: its columns, its rows, and the cells that stay empty."""

    clients: tuple[str, ...]
    features: dict[str, str]
    not_offered: dict[str, tuple[str, ...]]
    begin: str
    end: str


REMOTING = Table(CLIENTS, FEATURES, NOT_OFFERED, BEGIN, END)
V5 = Table(
    V5_CLIENTS,
    V5_FEATURES,
    V5_NOT_OFFERED,
    "<!-- v5 clients: begin (tools/client_table.py) -->",
    "<!-- v5 clients: end -->",
)


def cells(record: dict[str, Any]) -> dict[tuple[str, str, str], dict[str, int]]:
    """Outcomes by server, client and feature: how many tests of each."""
    found: dict[tuple[str, str, str], dict[str, int]] = {}
    for seen in record.values():
        for client, feature in seen["shows"]:
            counts = found.setdefault((seen["server"], client, feature), {})
            counts[seen["outcome"]] = counts.get(seen["outcome"], 0) + 1
    return found


def cell(client: str, feature: str, counts: dict[str, int], of: Table = REMOTING) -> str:
    """One cell; raises ValueError for a failed test, which is no statement to publish."""
    if counts.get("failed"):
        raise ValueError(f"{client}, {feature}: {counts['failed']} failed; no table is written")
    if counts.get("passed"):
        return f"yes ({counts['passed']})"
    return "not offered" if feature in of.not_offered.get(client, ()) else "not seen"


def table(record: dict[str, Any], of: Table = REMOTING) -> str:
    """A whole table in Markdown."""
    found = cells(record)
    lines = [f"| feature | {' | '.join(of.clients)} | proved at Apache's 5.5.0 |"]
    lines.append("|---" * (len(of.clients) + 2) + "|")
    for feature, words in of.features.items():
        here = [found.get(("roquette", client, feature), {}) for client in of.clients]
        there = [found.get(("apache", client, feature), {}) for client in of.clients]
        pairs = zip(of.clients, here, strict=True)
        row = [cell(client, feature, counts, of) for client, counts in pairs]
        passed = sum(counts.get("passed", 0) for counts in here)
        proved = sum(counts.get("passed", 0) for counts in there)
        lines.append(f"| {words} | {' | '.join(row)} | {proved} of {max(passed, proved)} |")
    return "\n".join(lines) + "\n"


def written(page: str, text: str, of: Table = REMOTING) -> str:
    """The page with the table between its markers."""
    pattern = re.compile(f"{re.escape(of.begin)}\n.*?{re.escape(of.end)}", re.DOTALL)
    assert pattern.search(page), f"{PAGE} has no markers"
    return pattern.sub(lambda _: f"{of.begin}\n{text}{of.end}", page)


def main() -> None:
    """Write the table."""
    if not RECORD.exists():
        raise SystemExit(f"no record at {RECORD}: run tests/interop first")
    try:
        record = json.loads(RECORD.read_text())
        texts = [(table(record, of), of) for of in (REMOTING, V5)]
    except ValueError as failed:
        raise SystemExit(str(failed)) from None
    for text, of in texts:
        PAGE.write_text(written(PAGE.read_text(), text, of))


if __name__ == "__main__":
    main()
