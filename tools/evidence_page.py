"""Makes docs/reference/evidence.md from the tests that have the mark `promise`: `python tools/evidence_page.py`."""

import ast
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "evidence.md"
SUBJECTS = (
    "The log",
    "Damage",
    "Answers",
    "Background work",
    "Time",
    "Refusals",
    "Bounds",
    "Peers",
    "The client",
    "Spark and pipelines",
    "Replication",
    "Groups of brokers",
    "Security",
)
HEAD = """# Which test shows which promise

Made by `tools/evidence_page.py` from the tests' marks `promise`. Do not edit by hand.

The promises are those of [reliability](../reliability.md) and [security](../security.md). `make test` runs the quick form of each test,
`make test-long` the long form. Functions of `tests/access/attacks.py` are attacks, which `tests/access/test_attacks.py` runs.
"""


class Promise(NamedTuple):
    """One mark on one function."""

    subject: str
    text: str
    test: str  # path and name


def promises() -> list[Promise]:
    """The marks of all tests, in the order of paths and lines."""
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text()
        if "mark.promise(" not in text:
            continue
        for node in ast.parse(text).body:
            for mark in getattr(node, "decorator_list", ()):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.promise":
                    subject, words = (ast.literal_eval(argument) for argument in mark.args)
                    test = f"{path.relative_to(ROOT)}::{getattr(node, 'name', '')}"
                    found.append(Promise(subject, words, test))
    return found


def page() -> str:
    """The page's text: a table for each subject, a row for each promise."""
    marks, parts = promises(), [HEAD]
    for subject in SUBJECTS:
        tests: dict[str, list[str]] = {}
        for mark in marks:
            if mark.subject == subject:
                tests.setdefault(mark.text, []).append(f"`{mark.test}`")
        rows = [f"| {text} | {', '.join(named)} |" for text, named in sorted(tests.items())]
        parts.append(f"\n## {subject}\n\n| promise | tests |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
