"""What is said once, as facts that are true or false. No number here is a limit: `make figures` counts."""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from tests.test_tidy import ROOT, modules, name_of, nodes, parameters, parsed

GENERATED = "Written by tools/make_sync.py"
FACTS = tomllib.loads((ROOT / "tests" / "facts.toml").read_text())["fact"]
# What a consumer may be told, by words that mean nothing else: stated on the TypedDicts of client/consumer_options.py.
OPTIONS = {
    *("concurrency", "orderly", "max_reconsume_times", "retry_levels", "on_revoke"),
    *("invisible", "renew", "auto_commit", "start_from", "strategy", "model"),
}
EMPTY = re.compile(r"(As|See) `?[A-Z]\w*(\.\w+)?`?( says)?\.|As the \w+ says\.")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.Constant]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node):
            yield node, node.body[0].value  # type: ignore[attr-defined]


@cache
def said() -> list[tuple[str, set[int], set[str]]]:
    """Of each module the numbers and texts that are written down; what documentation says is no second statement."""
    found = []
    for path in modules():
        told = {id(text) for _, text in docstrings(parsed(path))}
        values = [
            node.value
            for node in nodes(path)
            if isinstance(node, ast.Constant) and id(node) not in told
        ]
        numbers = {value for value in values if type(value) is int}
        texts = {value for value in values if isinstance(value, str)}
        found.append((name_of(path), numbers, texts))
    return found


def homes(fact: dict[str, Any]) -> set[str]:
    """Modules in which a fact is written down."""
    if "number" in fact:
        return {module for module, numbers, _ in said() if fact["number"] in numbers}
    search = re.compile(fact["text"]).search
    return {module for module, _, texts in said() if any(map(search, texts))}


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: str(fact["name"]))
def test_a_fact_has_one_home(fact: dict[str, Any]) -> None:
    assert homes(fact) == {fact["home"]}, f"import it from {fact['home']}"


def functions() -> Iterator[tuple[str, Function]]:
    for path in modules():
        for node in nodes(path):
            if isinstance(node, Function):
                yield f"{name_of(path)}:{node.lineno} {node.name}", node


def test_no_function_takes_options_of_consumers_one_by_one() -> None:
    """They travel as the value that `client/consumer_options.py` makes of them: an option more changes no signature."""
    taken = {
        where: sorted(OPTIONS & {each.arg for each in parameters(node.args)})
        for where, node in functions()
    }
    assert not {where: names for where, names in taken.items() if len(names) > 2}


def test_no_parameter_is_a_tuple_without_a_name() -> None:
    """Several things that go together are a type with a name, whose fields say what they are."""
    wrong = [
        f"{where}: {each.arg}"
        for where, node in functions()
        for each in parameters(node.args)
        if each.annotation is not None
        and re.match(r"tuple\[(?!.*\.\.\.)", ast.unparse(each.annotation))
    ]
    assert not wrong, "\n".join(wrong)


def test_a_public_class_has_a_name_of_its_own() -> None:
    """But the blocking twins, which are named as what they stand for."""
    named = defaultdict(list)
    for path in modules():
        if GENERATED not in path.read_text().partition("\n")[0]:
            for node in parsed(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    named[node.name].append(name_of(path))
    assert not {name: where for name, where in named.items() if len(where) > 1}


def test_no_docstring_says_nothing() -> None:
    """A method that does what its protocol says needs none."""
    wrong = [
        f"{name_of(path)}:{text.lineno} {text.value}"
        for path in modules()
        for _, text in docstrings(parsed(path))
        if EMPTY.fullmatch(str(text.value).strip())
    ]
    assert not wrong, "\n".join(wrong)
