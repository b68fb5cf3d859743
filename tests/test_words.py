"""Tests hold our words: what `pytest.raises(match=...)` wants of an error stands in our sources, or in the test that makes it up.

A library's words change with its next version, and a gate that holds them turns red though nobody changed a line.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("packages", "benchmarks", "examples", "tools")
# Patterns that stand in no source as they are, and why they may be wanted.
KNOWN = {
    "Input/output": "the operating system's words for an error number",
    "timed out": "the operating system's words for an error number",
    "RequestTimeoutException": "the name of a class of Apache's client",
    "ZeroDivisionError": "the name of a class of Python",
    "not you": "the peer of this test says it",
    "no kye": "a word of ours and a name of the test's",
    "flights differs\n  found:    1\n  expected: 2": "names of the test's and words of ours",
}


def texts_of(path: Path) -> list[str]:
    """All texts of a module; those of f-strings in pieces."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


@cache
def our_texts() -> str:
    paths = [path for folder in OURS for path in (ROOT / folder).rglob("*.py")]
    joined = "\n".join(" ".join(text.split()) for path in paths for text in texts_of(path))
    settings = (ROOT / "docs" / "reference" / "settings.md").read_text()
    names = {name for path in paths for name in re.findall(r"\b[a-z_]{4,}\b", path.read_text())}
    return "\n".join((joined, settings, *sorted(names)))


def wanted(path: Path) -> list[tuple[int, str]]:
    """The patterns of a test file, with their lines."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr != "raises":
                continue
            for keyword in node.keywords:
                if keyword.arg == "match":
                    parts = [
                        part.value
                        for part in ast.walk(keyword.value)
                        if isinstance(part, ast.Constant) and isinstance(part.value, str)
                    ]
                    found.append((node.lineno, " ".join(parts)))
    return found


def is_ours(pattern: str, texts: str) -> bool:
    """Do two words of it that follow each other, or its only one, stand in these texts?"""
    plain = re.sub(r"\\(.)", r"\1", pattern)
    runs = re.split(r"\.[*+.]|[\^$|()\[\]?*+{}\"'`=:]|\bd\+|\d+", plain)
    runs = [run.split() for run in runs if len(run.strip()) > 3]
    pairs = [" ".join(run[i : i + 2]) for run in runs for i in range(max(1, len(run) - 1))]
    given = any(word.startswith(("-", "/")) for run in runs for word in run)  # an option, a path
    return not pairs or given or any(pair in texts for pair in pairs)


FILES = [
    path for path in sorted((ROOT / "tests").rglob("test_*.py")) if "match=" in path.read_text()
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "tests")))
def test_what_a_test_wants_of_an_error_are_our_words(path: Path) -> None:
    made_up = "\n".join(text for text in texts_of(path))
    patterns = dict(wanted(path))
    for line, pattern in patterns.items():
        own = made_up.replace(pattern, "", 1)
        known = (
            pattern.replace("\\n", "\n") in KNOWN
            or is_ours(pattern, our_texts())
            or is_ours(pattern, own)
        )
        assert known, f"{path}:{line} wants {pattern!r}, which no source of ours says"


def test_a_librarys_words_are_found() -> None:
    assert not is_ours("exceeded maximum nesting depth", our_texts())
    assert not is_ours("Object missing required field `x`", our_texts())
    assert is_ours("lists and mappings deeper than 8", our_texts())
