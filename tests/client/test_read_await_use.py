"""A value that is read, kept over an `await`, and then written or told is old by then: committed offsets went back so.

The search over client/ knows names, not types. It follows each coroutine in the order of its lines (loops twice) and
tells of locals that hold what may change (attributes that anything but a constructor changes, and what methods make
of them), have come over an `await`, and go into an attribute, a table or a request without having been looked at again
in an `if`; and of attributes that are tested before an `await` and set after it.
"""

import ast
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

import roquette.client

FOLDER: Final = Path(roquette.client.__file__).parent
SETTERS: Final = frozenset(
    [
        "append",
        "appendleft",
        "add",
        "pop",
        "popleft",
        "popitem",
        "clear",
        "update",
        "discard",
        "remove",
        "extend",
        "insert",
        "setdefault",
    ]
)
SETTING: Final = frozenset(["keep", "heappush", "heappop"])  # functions: their first argument
SAME: Final = frozenset(
    ["session", "_session", "_client", "_thread", "_producer", "queue", "topic", "number"]
)
"""Attributes that stay what they are while their owner is used, and names that keys have."""

ANY: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
STALE, FRESH = 2, 1
Known = dict[str, int]  # locals that hold what may change: fresh, or from before an `await`


def own(node: ast.AST) -> Iterator[ast.AST]:
    """A node and those in it, without those of functions within it."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*ANY, ast.Lambda)):
            yield from own(child)


def functions(trees: Iterable[ast.AST]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for tree in trees:
        yield from (node for node in ast.walk(tree) if isinstance(node, ANY))


def attribute(node: ast.AST) -> str:
    """The attribute that an assignment to this changes."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else ""


def called(node: ast.AST) -> str:
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def changed(node: ast.AST) -> str:
    """The attribute that a single step changes; "": none."""
    if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
        return attribute(node)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and called(node) in SETTERS
    ):
        return attribute(node.func.value)
    if called(node) in SETTING and isinstance(node, ast.Call):
        return attribute(node.args[0])
    return ""


def waits(nodes: Iterable[ast.AST]) -> bool:
    kinds = (ast.Await, ast.AsyncWith, ast.AsyncFor)
    return any(isinstance(part, kinds) for node in nodes for part in own(node))


def names(node: ast.AST | None) -> set[str]:
    return (
        {part.id for part in own(node) if isinstance(part, ast.Name)} if node is not None else set()
    )


def arguments(call: ast.Call) -> set[str]:
    return {n for a in [*call.args, *(k.value for k in call.keywords)] for n in names(a)}


def is_request(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    place = node.func.value if isinstance(node.func, ast.Attribute) else None
    requests = isinstance(place, ast.Name) and place.id in ("calls", "pop_requests")
    return requests or called(node).endswith("Header")


class Search:
    """What changes in some modules, and who reads or tells it."""

    def __init__(self, trees: Sequence[ast.AST]) -> None:
        every = list(functions(trees))
        later = [f for f in every if f.name not in ("__init__", "__post_init__")]
        self.changing = {changed(n) for f in later for n in own(f)} - SAME - {""}
        returns = [f for f in later if isinstance(f, ast.FunctionDef) and self._returns(f)]
        self.readers = {f.name for f in returns if self.reads(f)} - SAME
        self.tellers = {f.name for f in every if self._tells(f)} - self.readers

    def _returns(self, function: ast.FunctionDef) -> bool:
        """A number, a flag or a table: what is no mere step, and no other object."""
        kind = ast.unparse(function.returns) if function.returns is not None else ""
        return kind.startswith(("int", "float", "bool", "dict", "list", "set")) or "Data" in kind

    def _tells(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        given = {a.arg for a in [*function.args.args, *function.args.kwonlyargs]}
        found = [n for n in own(function) if isinstance(n, ast.Call) and is_request(n)]
        return any(arguments(call) & given for call in found)

    def reads(self, node: ast.AST) -> bool:
        for part in own(node):
            loads = isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load)
            if loads and attribute(part) in self.changing:
                return True
            if isinstance(part, ast.Call) and called(part) in getattr(self, "readers", ()):
                return True
        return False

    def found(self, function: ast.AsyncFunctionDef) -> list[str]:
        course = Course(self)
        course.block(function.body, {})
        return [f"{function.name}: {text}" for text in course.found]


class Course:
    """One coroutine, step by step."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._tested: list[
            list[object]
        ] = []  # attributes of the tests around, and whether we waited since
        self.found: dict[str, None] = {}

    def block(self, body: Sequence[ast.stmt], known: Known) -> Known:
        for step in body:
            known = self._step(step, dict(known))
        return known

    def _waited(self, known: Known) -> Known:
        for test in self._tested:
            test[1] = True
        return dict.fromkeys(known, STALE)

    def _use(self, node: ast.AST, used: set[str], known: Known) -> None:
        for name in sorted(used):
            if known.get(name) == STALE:
                self.found[f"{name} in {ast.unparse(node).splitlines()[0][:80]}"] = None

    def _value(self, node: ast.AST | None, known: Known) -> Known:
        """An expression: what it tells and changes, and whether it waits."""
        if node is None:
            return known
        for part in own(node):
            tells = is_request(part) or changed(part) or called(part) in self._search.tellers
            if isinstance(part, ast.Call) and tells:
                self._use(part, arguments(part), known)
        return self._waited(known) if waits([node]) else known

    def _set(self, target: ast.expr, value: ast.expr | None, known: Known) -> None:
        for part in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(part, ast.Name):
                known.pop(part.id, None)
                if value is not None and not waits([value]):
                    ages = [known[name] for name in names(value) if name in known]
                    if ages or self._search.reads(value):
                        known[part.id] = max(ages, default=FRESH)
            elif attribute(part):
                self._use(part, names(value), known)
                for test in self._tested:
                    if ast.unparse(part) == test[0] and test[1]:
                        self.found[f"{test[0]} is tested before an await and set after"] = None

    def _step(self, step: ast.stmt, known: Known) -> Known:
        if isinstance(step, (ast.Assign, ast.AnnAssign)):
            known = self._value(step.value, known)
            for target in step.targets if isinstance(step, ast.Assign) else [step.target]:
                self._set(target, step.value, known)
        elif isinstance(step, ast.AugAssign):
            if attribute(step.target) and waits([step.value]):
                self.found[f"{ast.unparse(step)[:80]} reads before it waits"] = None
            known = self._value(step.value, known)
            self._use(step, names(step.value) if attribute(step.target) else set(), known)
        elif isinstance(step, ast.If):
            known = self._value(step.test, known)
            for name in names(step.test) if self._search.reads(step.test) else ():
                if name in known:
                    known[name] = FRESH  # it was looked at again
            read = [n for n in own(step.test) if isinstance(n, ast.Attribute)]
            self._tested += (tests := [[ast.unparse(n), False] for n in read])
            inside = self.block(step.body, known)
            del self._tested[len(self._tested) - len(tests) :]
            known = _either(inside, self.block(step.orelse, known))
        elif isinstance(step, (ast.While, ast.For, ast.AsyncFor)):
            known = self._loop(step, known)
        elif isinstance(step, (ast.With, ast.AsyncWith)):
            for item in step.items:
                known = self._value(item.context_expr, known)
            told = "timeout" in ast.unparse(step.items[0].context_expr)
            waited = isinstance(step, ast.AsyncWith) and not told
            known = self.block(step.body, self._waited(known) if waited else known)
        elif isinstance(step, ast.Try):
            inside = self.block(step.body, known)
            broken = _either(known, inside)
            known = self.block(step.orelse, inside)
            for handler in step.handlers:
                known = _either(known, self.block(handler.body, broken))
            known = self.block(step.finalbody, known)
        elif isinstance(step, (ast.Expr, ast.Return)):
            known = self._value(step.value, known)
        return known

    def _loop(self, step: ast.While | ast.For | ast.AsyncFor, known: Known) -> Known:
        for turn in range(2):
            before = known
            if isinstance(step, ast.While):
                known = self._value(step.test, known)
            else:
                known = self._value(step.iter, known)
                values = ast.unparse(step.iter)
                pairs = ".items()" in values or ".values()" in values  # else they are keys
                ages = [known[name] for name in names(step.iter) if name in known]
                known = {n: age for n, age in known.items() if n not in names(step.target)}
                if pairs and (ages or self._search.reads(step.iter)):
                    old = turn and waits(step.body)
                    held = (
                        step.target.elts[-1] if isinstance(step.target, ast.Tuple) else step.target
                    )
                    known |= dict.fromkeys(names(held), STALE if old else FRESH)
            known = _either(before, self.block(step.body, known))
        return self.block(step.orelse, known)


def _either(one: Known, other: Known) -> Known:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in one | other}


def of_source(*sources: str) -> list[str]:
    trees = [ast.parse(source) for source in sources]
    search = Search(trees)
    waiting = [f for f in functions(trees) if isinstance(f, ast.AsyncFunctionDef)]
    return [words for function in waiting for words in search.found(function)]


RIGHT: Final = {
    "run: broker_id in self._pull(state, broker_id)": "an answer's advice for the next pull of the same queue",
    "take: self._turn_ends is tested before an await and set after": "a time, and who comes later sets a later one",
    "save: offsets in self._saved |= offsets": "what was saved, and `_saving` lets one save at a time",
    "_commit: offset in self._saved[queue]": "what the broker has taken, whatever we have come to since",
    "_change: call in self.receipt": "`_work` lets a job do one thing at a time",
    "commit: offset in self._commit(queue, offset)": "positions as of the call: what `poll` gave since is not done",
}
"""The places that are right, and why."""


def test_nothing_read_before_an_await_is_written_after_it() -> None:
    sources = [path.read_text() for path in sorted(FOLDER.rglob("*.py"))]
    found = of_source(*sources)
    assert sorted(set(found) - set(RIGHT)) == []
    assert sorted(set(RIGHT) - set(found)) == [], "the list names what is there"


PLANTED: Final = """
class Offsets:
    def __init__(self):
        self._at = {}
        self.sum = 0
        self._joined = None
        self._turn = Lock()

    def note(self, queue, offset):
        self._at[queue] = offset
        self.sum += 1

    def table(self) -> dict[str, int]:
        return dict(self._at)

    async def _commit(self, queue, offset):
        await self.api.call(calls.commit(queue, offset))

    async def step(self, queue):
        {body}
"""


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("at = self._at[queue]\nawait gone()\nawait self._commit(queue, at)", True),
        ("await gone()\nat = self._at[queue]\nawait self._commit(queue, at)", False),
        ("at = self.table()\nfor q in order:\n    await self._commit(q, at[q])", True),
        ("for q in order:\n    await self._commit(q, self.table()[q])", False),
        ("for q, at in list(self._at.items()):\n    await self._commit(q, at)", True),
        ("at = self._at\nasync with self._turn:\n    calls.beat(at)", True),
        ("at = self.sum\nawait gone()\nself.sum = at + 1", True),
        ("at = self.sum\nawait gone()\nif at == self.sum:\n    self.sum = at + 1", False),
        ("at = self.sum\nthen = at + 1\nawait gone()\nself._at[queue] = then", True),
        ("self.sum += await gone()", True),
        ("if self._joined is None:\n    self._joined = await gone()", True),
        (
            "if self._joined is None:\n    self._joined = start(gone())\n    await self._joined",
            False,
        ),
    ],
)
def test_planted_places_are_found(body: str, told: bool) -> None:
    planted = PLANTED.replace("{body}", textwrap.indent(body, " " * 8).lstrip())
    assert bool(of_source(planted)) == told
