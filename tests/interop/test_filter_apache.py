"""SQL92 and tags against Apache's own filter, case by case: the answers must be the same.

One JVM is fed lines. The quick form takes a new part of the same row each day it grows; the long form 100,000.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.filter_cases import Cases
from tests.interop.peers import SMALL_JVM, Process, compiled, require_java

from roquette.base.javatypes import java_hash
from roquette.errors import ExpressionError
from roquette.filter.sql_compile import compile_sql
from roquette.filter.sql_eval import ERROR, FALSE, NULL, TRUE
from roquette.filter.tags import tag_codes

pytestmark = pytest.mark.interop
LETTERS = {TRUE: "T", FALSE: "F", NULL: "N", ERROR: "X"}
BATCH = 500
START_TIMEOUT_S = 60


class FilterPeer:
    """The JVM."""

    def __init__(self, folder: Path) -> None:
        require_java()
        command = ["java", *SMALL_JVM, "-Xmx256m", "-cp", compiled("servers55", "filter")]
        self.process = Process([*command, "FilterPeer"], folder, {})
        self.process.line_with("ready", START_TIMEOUT_S)

    def ask(self, questions: list[str]) -> list[str]:
        """One answer per question."""
        self.process.write("\n".join([*questions, ""]))
        return [self.process.line(START_TIMEOUT_S) for _ in questions]


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilterPeer]:
    found = FilterPeer(tmp_path_factory.mktemp("filter-peer"))
    try:
        yield found
    finally:
        found.process.stop()


def coded(text: str) -> str:
    return text.encode("utf-16-be", "surrogatepass").hex()


def ours(expression: str, strings: list[str]) -> str:
    try:
        found = compile_sql(expression)
    except ExpressionError:
        return "E"
    answers = [found.evaluate(text.encode("utf-8", "surrogatepass")) for text in strings]
    return "".join([LETTERS[answer] for answer in answers])


def differences(peer: FilterPeer, seed: int, count: int) -> tuple[list[str], dict[str, int]]:
    """What differs, and how often each answer came."""
    cases = Cases(seed)
    wrong: list[str] = []
    seen = dict.fromkeys("TFNXE", 0)
    for _ in range(0, count, BATCH):
        batch = [cases.next() for _ in range(BATCH)]
        questions = [" ".join(["sql", coded(e), *map(coded, s)]) for e, s in batch]
        for (expression, strings), answer in zip(batch, peer.ask(questions)):
            mine = ours(expression, strings)
            for letter in mine:
                seen[letter] += 1
            if mine != (answer[:1] if answer[:1] == "E" else answer):
                wrong.append(f"{expression!r} {strings!r}: ours {mine}, Apache {answer}")
    return wrong, seen


@pytest.mark.parametrize(
    "seed, count",
    [(1, 5_000), pytest.param(2, 100_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])],
)
def test_selectors_answer_as_apaches_do(peer: FilterPeer, seed: int, count: int) -> None:
    wrong, seen = differences(peer, seed, count)

    assert wrong == []
    assert all(number > count // 50 for number in seen.values()), seen


def test_tag_expressions_give_apaches_hashes(peer: FilterPeer) -> None:
    cases = Cases(3)
    expressions = ["||", "|| ||", "*", "A||B", "A || B", "||A", "A||", " ", *[cases.tags() for _ in range(1_000)]]  # fmt: skip
    answers = peer.ask([f"tag {coded(expression)}" for expression in expressions])

    assert [told(expression) for expression in expressions] == [
        "E" if answer.startswith("E ") else answer for answer in answers
    ]


def told(expression: str) -> str:
    try:
        codes = tag_codes(expression)
    except ExpressionError:
        return "E"
    return "*" if codes is None else str(sorted(codes))


def test_hashes_of_any_text_are_javas(peer: FilterPeer) -> None:
    cases = Cases(4)
    texts = ["", "😀", "\ud83d", "\ude00\ud83d", "a" * 300, *[cases.tags() for _ in range(1_000)]]
    answers = peer.ask([f"hash {coded(text)}" for text in texts])

    assert [java_hash(text) for text in texts] == [int(answer) for answer in answers]
