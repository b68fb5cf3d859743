import ast
import enum
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any, is_typeddict

from tests.interop.peers import ROOT

import roquette

PAGE = (ROOT / "docs" / "client.md").read_text("utf-8").partition("\n## Every public name")[2]
ROW = re.compile(r"\| `(\w+)` \| (.*) \| `(?:(test_\w+\.py)::(test_\w+))` \|")


def set_in(cls: type[Any]) -> Iterator[str]:
    """What its methods set on `self`."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls)))):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node.attr


def attributes(cls: Any) -> set[str]:
    """The public ones of a class, but for those that a public class it stands on has."""
    if is_typeddict(cls):
        return set(cls.__annotations__)
    if issubclass(cls, enum.Enum):
        return set(cls.__members__)
    found: set[str] = set()
    for base in cls.__mro__:
        ours = base.__module__.startswith("roquette")
        if base is not cls and ours and base.__name__ in roquette.__all__:
            break
        if ours:
            found |= {*vars(base), *vars(base).get("__annotations__", ()), *set_in(base)}
    return {name for name in found if not name.startswith("_")}


def public() -> dict[str, set[str]]:
    things = {name: getattr(roquette, name) for name in roquette.__all__ if name[0] != "_"}
    return {
        name: attributes(thing) if inspect.isclass(thing) else set()
        for name, thing in things.items()
    }


def shown() -> dict[str, dict[str, tuple[str, str]]]:
    """Of each name of `roquette` its attributes, and by which test each is shown; "" is the name itself."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for line in PAGE.splitlines():
        if not line.startswith("| `"):
            continue
        row = ROW.fullmatch(line)
        assert row, line
        for word in re.findall(r"`(\w+)`", row[2]) or [""]:
            assert word not in found.setdefault(row[1], {}), line
            found[row[1]][word] = row[3], row[4]
    return found


@cache
def functions(file: str) -> dict[str, str]:
    """The test functions of a file, as text."""
    found: dict[str, str] = {}
    for path in (ROOT / "tests").rglob(file):
        text = path.read_text("utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                found[node.name] = ast.get_source_segment(text, node) or ""
    return found


def test_the_table_has_every_name_and_no_other() -> None:
    known, rows = public(), shown()
    assert rows.keys() == known.keys()
    for name, words in known.items():
        told = rows[name].keys()
        # one test may show all that a set of options, an enumeration or an error has
        assert told == {""} or told - {""} == words, name


def test_each_name_is_used_by_its_test() -> None:
    for name, words in shown().items():
        for word, (file, test) in words.items():
            text = functions(file).get(test)
            assert text is not None, f"{name}.{word}: {file} has no {test}"
            assert re.search(rf"\b{word or name}\b", text), f"{test} does not use {name}.{word}"
