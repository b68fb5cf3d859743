"""Show that the tests find faults: make small ones in the sources, one at a time, and see a test fail.

    python tools/mutate.py list             write tests/mutants.txt: all guards, bounds and orders that may be changed
    python tools/mutate.py list --check     write nothing; exit code 1 if the list is not what the sources give
    python tools/mutate.py run              change 30 of the list, five in each room, drawn with a fixed seed

A *guard* is a refusal (`if X:` that ends in raise, return, continue or break) whose condition becomes False; a *bound* is a
comparison that takes its limit in, or no longer does, or a min that becomes a max; an *order* is two neighbouring
calls that change places. Each change is made in a copy of the tree, and only the test modules that import the changed
file run on it, the nearest first, until one fails. That test must fail again alone, and pass alone without the
change; one that does not says nothing, and the rest goes on without it. Who survives all of them stands in the table.

Results are kept in .cache/mutants for as long as packages and tests are what they were, so a run goes on where it stopped.
"""

import argparse
import ast
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

import workspace

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "mutants.txt"
RESULTS = ROOT / ".cache" / "mutants"
ROOMS = ("store", "remoting", "access", "broker", "client", "spark")
# What a process of tests has on its path, below the tree.
SOURCES = [path.relative_to(workspace.ROOT).as_posix() for path in workspace.SOURCES.values()]
SEED = 20261126
# Part of `make test` -> the marks of its tests, and the seconds that one of them may take.
PARTS = {
    "unit": ("not simulation and not crash and not interop and not spark", 120),
    "simulation": ("simulation", 300),
    "crash": ("crash and not spark", 600),
    "spark": ("not spark and not interop", 300),  # only tests/spark, for its room
}
JUMPS = (ast.Raise, ast.Return, ast.Continue, ast.Break)
FLIPPED = {ast.Lt: b"<=", ast.LtE: b"<", ast.Gt: b">=", ast.GtE: b">"}
SWAPPED = {"min": b"max", "max": b"min"}
LOGS = {"debug", "info", "warning", "error", "exception", "critical"}
UNSEEN = {"__repr__", "__str__"}  # nobody promises what these say
# Tests of parts that do not run here, and the one that sees any change in the text itself.
ELSEWHERE = ("tests/interop/", "tests/pipelines/", "tests/test_mutate.py")
# Mutants that nobody can tell from the source -> why. They are drawn, and not run.
SAME = {
    "04c02853": "_SWAP is always true on the machines there are: all are little-endian",
    "1a67036d": "what it calls looks at the offset again; this only saves a timer for each report",
    "8c4b50cc": "what it writes behind the piece is wiped a line below",
    "796de37a": "two tables that know nothing of each other",
    "b97555b0": "a timer, and a table that knows nothing of it",
    "d33a66f1": "both are only scheduled here, one for the end of the turn and one for much later",
}
NO_TESTS = (0, 5)  # exit codes of pytest: all passed; none was chosen
# A plugin of pytest that writes down which tests fail; their names in its output may be cut.
PLUGIN = """
import os

def note(report):
    if report.failed:
        with open(os.environ["MUTATE_RED"], "a") as file:
            print(report.nodeid, file=file)

pytest_runtest_logreport = pytest_collectreport = note
"""
Edit = tuple[int, int, bytes]  # bytes from here to there, and what comes instead of them


class Mutant(NamedTuple):
    """One change of a file."""

    id: str
    file: str  # its room, and its path within that
    name: str  # of the function or class it is in
    kind: str
    change: str  # for people: may be cut
    line: int
    edits: tuple[Edit, ...]

    def row(self) -> str:
        """Its line of the list: no line number, so that code above it may come and go."""
        return "\t".join((self.id, self.file, self.name, self.kind, self.change))

    def applied(self, source: bytes) -> bytes:
        """The file with the change. Raises SyntaxError if that is no Python."""
        for begin, end, text in sorted(self.edits, reverse=True):
            source = source[:begin] + text + source[end:]
        ast.parse(source)
        return source


class Finder(ast.NodeVisitor):
    """All mutants of one file, in the order of the source."""

    def __init__(self, file: str, source: bytes) -> None:
        self.file, self.source = file, source
        self.found: list[Mutant] = []
        self._names: list[str] = []
        self._seen: Counter[tuple[str, ...]] = Counter()
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self.visit(ast.parse(source))

    def generic_visit(self, node: ast.AST) -> None:
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list):
                self._orders(body)
        super().generic_visit(node)

    def visit_FunctionDef(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ) -> None:
        if node.name not in UNSEEN:
            self._names.append(node.name)
            self.generic_visit(node)
            self._names.pop()

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_If(self, node: ast.If) -> None:
        asked = self._text(node.test)
        if "TYPE_CHECKING" in asked or "sys.version_info" in asked:
            return
        last = node.body[-1]
        if isinstance(last, JUMPS) and "NotImplemented" not in self._text(last):
            # A name that the condition binds is read below it.
            binds = any(isinstance(each, ast.NamedExpr) for each in ast.walk(node.test))
            new = f"({asked}) and False" if binds else "False"
            begin, end = self._span(node.test)
            change = f"if {asked}: {short(self._text(last), 50)}", f"if {new}"
            self._add("guard", node, change, ((begin, end, new.encode()),))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = itertools.pairwise((node.left, *node.comparators))
        for operator, (left, right) in zip(node.ops, operands, strict=True):
            if type(operator) not in FLIPPED:
                continue
            begin, end = self._span(left)[1], self._span(right)[0]
            between = re.sub(rb"#.*", lambda found: b" " * len(found[0]), self.source[begin:end])
            sign = re.search(rb"[<>]=?", between)
            assert sign
            edit = (begin + sign.start(), begin + sign.end(), FLIPPED[type(operator)])
            self._add("bound", node, self._both(node, edit), (edit,))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if is_log(node):
            return
        if isinstance(node.func, ast.Name) and node.func.id in SWAPPED:
            edit = (*self._span(node.func), SWAPPED[node.func.id])
            self._add("bound", node, self._both(node, edit), (edit,))
        self.generic_visit(node)

    def _orders(self, body: list[ast.stmt]) -> None:
        for first, second in itertools.pairwise(body):
            if is_effect(first) and is_effect(second):
                texts = [self._text(first), self._text(second)]
                if texts[0] == texts[1] or all(map(is_unordered, (first, second))):
                    continue
                spans = [self._span(first), self._span(second)]
                raw = [self.source[begin:end] for begin, end in spans]
                edits = ((*spans[0], raw[1]), (*spans[1], raw[0]))
                self._add("order", first, ("; ".join(texts), "; ".join(texts[::-1])), edits)

    def _add(
        self, kind: str, node: ast.expr | ast.stmt, change: tuple[str, str], edits: tuple[Edit, ...]
    ) -> None:
        name = ".".join(self._names) or "-"
        key = (self.file, name, kind, *change)
        self._seen[key] += 1  # the same text again in one function is another mutant
        digest = hashlib.sha256("\0".join((*key, str(self._seen[key]))).encode()).hexdigest()
        said = " -> ".join(short(text, 80) for text in change)
        self.found.append(Mutant(digest[:8], self.file, name, kind, said, node.lineno, edits))

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = self._starts[node.lineno - 1] + node.col_offset
        return begin, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr | ast.stmt) -> str:
        begin, end = self._span(node)
        return " ".join(self.source[begin:end].decode().split())

    def _both(self, node: ast.expr, edit: tuple[int, int, bytes]) -> tuple[str, str]:
        """The expression as it is and with the edit."""
        begin, end = self._span(node)
        new = self.source[begin : edit[0]] + edit[2] + self.source[edit[1] : end]
        return self._text(node), " ".join(new.decode().split())


def short(text: str, most: int) -> str:
    """At most so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def is_log(node: ast.expr) -> bool:
    """Whether it is a call that writes a line to the log."""
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return named and node.func.attr in LOGS


def is_effect(node: ast.stmt) -> bool:
    """Whether the statement is a call alone, awaited or not, that binds no name and is no line of the log."""
    if not isinstance(node, ast.Expr):
        return False
    call = node.value.value if isinstance(node.value, ast.Await) else node.value
    binds = any(isinstance(each, ast.NamedExpr) for each in ast.walk(node))
    return isinstance(call, ast.Call) and not is_log(call) and not binds


def is_unordered(node: ast.stmt) -> bool:
    """Whether it takes something out of a table, or starts a task: which of two does so first, nobody sees."""
    free = r"([\w.]+\.(clear|discard|pop)|[\w.]*tasks\.(every|keep))\([^()]*\)"
    return re.fullmatch(free, ast.unparse(node)) is not None


def mutants(tree: Path, rooms: Iterable[str] = ROOMS) -> Iterator[Mutant]:
    """Of all files of the rooms, but those that tools/make_sync.py writes; pipelines are no room of this."""
    for room in rooms:
        folder = tree / below_tree(room)
        for path in sorted(folder.rglob("*.py")):
            text, file = path.read_bytes(), path.relative_to(folder).as_posix()
            if not (
                b"Written by tools/make_sync.py" in text.partition(b"\n")[0]
                or (room == "spark" and file.startswith("pipelines/"))
            ):
                yield from Finder(f"{room}/{file}", text).found


def below_tree(file: str) -> str:
    """Where a file lies: `store/log.py` in the product, `spark/sink/writer.py` in the package of Spark."""
    room, _, rest = file.partition("/")
    path = workspace.SPARK / rest if room == "spark" else workspace.PRODUCT / file
    return path.relative_to(workspace.ROOT).as_posix()


def listed(text: str) -> dict[str, str]:
    """Identity -> file, of a committed list."""
    rows = (line.split("\t") for line in text.splitlines())
    return {row[0]: row[1] for row in rows}


def drawn(rows: dict[str, str], count: int, seed: int) -> list[str]:
    """So many identities, as many of each room as of the others, give or take one.

    A mutant's lot depends on the seed and on itself alone, so one that joins the list changes the draw by one at most.
    """
    chosen = []
    for number, room in enumerate(ROOMS):
        there = [each for each, file in rows.items() if file.startswith(room + "/")]
        lots = sorted(there, key=lambda each: hashlib.sha256(f"{seed} {each}".encode()).digest())
        chosen += lots[: count // len(ROOMS) + (number < count % len(ROOMS))]
    return chosen


class Imports:
    """Which test modules of a tree import a file, and over how many others."""

    def __init__(self, tree: Path) -> None:
        self._paths: dict[str, Path] = {}  # by name of the module
        for top, where in (*((tree / each, "") for each in SOURCES), (tree, "tests")):
            for path in (top / where).rglob("*.py"):
                parts = path.relative_to(top).with_suffix("").parts
                self._paths[".".join(p for p in parts if p != "__init__")] = path
        self._tree = tree
        self._importers: dict[str, set[str]] = {}
        for name, path in self._paths.items():
            for each in self._imported(name, path):
                self._importers.setdefault(each, set()).add(name)

    def tests_of(self, file: str) -> list[tuple[int, str]]:
        """(Distance, path below the tree) of each test module that imports the file, nearest first.

        Distance 0 has the module that mirrors the file: tests/ROOM/**/test_NAME.py.
        """
        parts = Path(below_tree(file)).with_suffix("").parts[3:]
        start = ".".join(part for part in parts if part != "__init__")
        edge, distances = {start}, {start: 0}
        while edge:
            following = {name for each in edge for name in self._importers.get(each, ())}
            edge = following - distances.keys()
            distances |= dict.fromkeys(edge, max(distances.values()) + 1)
        mirror = re.compile(rf"test_{Path(file).stem}(_\w+)?\.py")
        rows = []
        for name, path in self._paths.items():
            if name.startswith("tests.") and path.name.startswith("test_"):
                below = path.relative_to(self._tree).as_posix()
                alike = os.path.commonpath((f"tests/{file}", below)).count("/")  # folders
                distance = 0 if alike and mirror.fullmatch(path.name) else distances.get(name)
                if distance is not None:
                    rows.append((distance, -alike, below))
        return [(distance, below) for distance, _, below in sorted(rows)]

    def _imported(self, name: str, path: Path) -> Iterator[str]:
        in_tests = name.startswith("tests.")
        only_types: set[int] = set()
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name):
                # The package's own names are imported when first used; those of others are types.
                if node.test.id == "TYPE_CHECKING" and "." in name:
                    only_types |= {id(each) for each in ast.walk(node)}
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and id(node) not in only_types:
                yield node.module or ""
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif in_tests and isinstance(node, ast.Constant) and isinstance(node.value, str):
                # What another process runs, or what is imported by its name.
                yield from re.findall(r"\broquette(?:_spark|_testing)?(?:\.\w+)+", node.value)
        if in_tests and path.name.startswith("test_"):
            for folder in path.relative_to(self._tree).parents:
                yield ".".join((*folder.parts, "conftest"))


def stages(
    tree: Path, file: str, tests: list[tuple[int, str]], parts: Iterable[str]
) -> list[tuple[str, list[str]]]:
    """What runs for a changed file: parts, and test modules that run in one process, the nearest first."""
    room = file.split("/", maxsplit=1)[0]
    found = []
    for number, part in enumerate(PARTS):
        if part not in parts or (part == "spark" and room != "spark"):
            continue
        mine = [
            (distance, path)
            for distance, path in tests
            if path.startswith("tests/spark/") == (part == "spark")
            and not path.startswith(ELSEWHERE)
            and (part in ("unit", "spark") or f"mark.{part}" in (tree / path).read_text())
        ]
        near = [path for distance, path in mine if distance <= 1]
        own = [path for _, path in mine if path.startswith(f"tests/{room}/") and path not in near]
        rest = [path for _, path in mine if path not in near and path not in own]
        found += [(ring, number, part, files) for ring, files in enumerate((near, own, rest))]
    return [(part, files) for _, _, part, files in sorted(found) if files]


class Copy:
    """A copy of the tree that tests run in."""

    def __init__(self, tree: Path, where: Path, quick: bool) -> None:
        self.tree, self._quick, self._where = where / "tree", quick, where
        shutil.copytree(tree, self.tree)
        (self.tree / ".venv").symlink_to(ROOT / ".venv")
        (where / "plugin").mkdir()
        (where / "plugin" / "mutate_red.py").write_text(PLUGIN)
        self._red = where / "red"
        self._child: subprocess.Popen[bytes] | None = None
        self._ended = False
        paths = [*(self.tree / each for each in SOURCES), where / "plugin"]
        self._env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "ROQUETTE_INTERPRETED": "1",
        }
        self._env["MUTATE_RED"] = str(self._red)
        # A part of the long form leaves out what has passed before: each change would be spared by the tests that passed on the one before.
        for name in ("ROQUETTE_RECORD", "ROQUETTE_GO_ON"):
            self._env.pop(name, None)
        asked = [sys.executable, "-c", "import roquette; print(roquette.__file__)"]
        said = subprocess.check_output(asked, cwd=self.tree, env=self._env, text=True).strip()
        if not Path(said).is_relative_to(self.tree):
            raise SystemExit(f"tests would run {said}, not the copy in {self.tree}")

    def write(self, file: str, source: bytes) -> None:
        """Change a file, and forget what Python has compiled of it."""
        path = self.tree / below_tree(file)
        path.write_bytes(source)
        for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            stale.unlink()

    def end(self) -> None:
        """Nobody waits for its tests any more: what runs here says nothing."""
        self._ended = True
        if self._child is not None and self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)

    def red(
        self, part: str, tests: Iterable[str], seconds: float, leave: Iterable[str] = ()
    ) -> str:
        """The first of the tests that fails, or "". Raises TimeoutExpired.

        A run that ends without naming one is called by its exit code, "exit 3".
        """
        self._red.unlink(missing_ok=True)
        if self._ended:
            raise subprocess.TimeoutExpired("pytest", seconds)
        marks, longest = PARTS[part]
        words = f"-m pytest -x --timeout={longest} --hypothesis-seed=0 --tb=no".split()
        words += ["-p", "mutate_red", "-p", "no:cacheprovider"]
        words += ["-m", marks + " and not long" * self._quick]
        words += [word for each in leave for word in ("--deselect", each)]
        with (self._where / "log").open("wb") as log:
            self._child = child = subprocess.Popen(
                [sys.executable, *words, *tests],
                cwd=self.tree,
                env=self._env,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            code = child.wait(max(1.0, seconds))
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        if self._ended:
            raise subprocess.TimeoutExpired("pytest", seconds)
        names = self._red.read_text().splitlines() if self._red.exists() else []
        return names[0] if names else "" if code in NO_TESTS else f"exit {code}"


def judged(
    copy: Copy, mutant: Mutant, plan: list[tuple[str, list[str]]], seconds: float
) -> tuple[str, str, list[str]]:
    """Run the plan's tests on the mutant, in at most so many seconds.

    Returns:
        killed, SURVIVED, or UNDECIDED when the time was over; by which test, or by how many modules not; and tests
        that failed and say nothing of this change.
    """
    end = time.monotonic() + seconds
    before = (copy.tree / below_tree(mutant.file)).read_bytes()
    after = mutant.applied(before)
    unsteady: list[str] = []
    passed: set[str] = set()
    try:
        for part, files in plan:
            while True:
                copy.write(mutant.file, after)
                red = copy.red(part, files, end - time.monotonic(), unsteady)
                if not red:
                    break
                alone = files if red.startswith("exit ") else [red]
                again = copy.red(part, alone, end - time.monotonic())
                copy.write(mutant.file, before)
                if again and not copy.red(part, alone, max(120, end - time.monotonic())):
                    return "killed", f"{part} {red}", unsteady
                if red in unsteady or alone is files:
                    return "UNDECIDED", f"{red}, with the change and without it", unsteady
                unsteady.append(red)
            passed |= set(files)
    except subprocess.TimeoutExpired:
        said = f"{len(passed)} test modules passed before {seconds:.0f} s were over"
        return "UNDECIDED", said, unsteady
    finally:
        copy.write(mutant.file, before)
    return "SURVIVED", f"{len(passed)} test modules", unsteady


def snapshot(where: Path) -> str:
    """Copy what git knows, and new files that it does not ignore; the hash of packages and tests."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.check_output(words, cwd=ROOT, text=True).split("\0")
    digest = hashlib.sha256()
    for name in sorted(filter(None, set(names))):
        if (ROOT / name).is_file():
            (where / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, where / name)
            if name.startswith(("packages/", "tests/")):
                digest.update(name.encode() + b"\0" + (where / name).read_bytes())
    return digest.hexdigest()


def run(options: argparse.Namespace) -> int:
    """The exit code: 1 if one survived, or is undecided."""
    rows = listed(LIST.read_text())
    ids = options.id or drawn(rows, options.count, options.seed)
    if unknown := [each for each in ids if each not in rows]:
        raise SystemExit(f"not in {LIST.relative_to(ROOT)}: {', '.join(unknown)}")
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(
        prefix="mutate-", dir=memory, ignore_cleanup_errors=True
    ) as folder:
        where = Path(folder)
        state = snapshot(where / "tree")
        key = hashlib.sha256(f"{state} {options.form} {options.parts}".encode()).hexdigest()
        rooms = {rows[each].split("/")[0] for each in ids}
        there = {each.id: each for each in mutants(where / "tree", rooms)}
        if gone := [each for each in ids if each not in there]:
            raise SystemExit(f"no longer in the sources, list them anew: {', '.join(gone)}")
        imports = Imports(where / "tree")
        quick = options.form == "quick"
        places = [where / str(number) for number in range(options.workers)]
        everyone = [Copy(where / "tree", place, quick) for place in places]
        copies: Queue[Copy] = Queue()
        for copy in everyone:
            copies.put(copy)

        def one(mutant: Mutant) -> dict[str, Any]:
            row = mutant._replace(edits=())._asdict()
            if why := SAME.get(mutant.id):
                return {**row, "word": "the same", "by": why, "unsteady": [], "seconds": 0}
            kept = RESULTS / f"{mutant.id}.json"
            if kept.exists() and not options.fresh:
                result: dict[str, Any] = json.loads(kept.read_text())
                if result["key"] == key:
                    return result
            copy, began = copies.get(), time.monotonic()
            try:
                plan = stages(copy.tree, mutant.file, imports.tests_of(mutant.file), options.parts)
                word, by, unsteady = judged(copy, mutant, plan, options.seconds)
            finally:
                copies.put(copy)
            seconds = round(time.monotonic() - began, 1)
            result = {**row, "word": word, "by": by, "unsteady": unsteady}
            result |= {"seconds": seconds, "key": key}
            if word != "UNDECIDED":
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(result, indent=1))
            return result

        results = []
        with ThreadPoolExecutor(options.workers) as pool:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            try:
                for done in as_completed([pool.submit(one, there[each]) for each in ids]):
                    results.append(done.result())
                    tell(results[-1])
            finally:  # at Ctrl-C, too
                pool.shutdown(wait=False, cancel_futures=True)
                for copy in everyone:
                    copy.end()
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    counts = Counter(each["word"] for each in results)
    print(", ".join(f"{number} {word}" for word, number in sorted(counts.items())), flush=True)
    return 0 if set(counts) <= {"killed", "the same"} else 1


def tell(result: dict[str, Any]) -> None:
    """Print the row of a mutant."""
    print("{id}  {file}:{line}  {kind}  {change}".format_map(result))
    print("    {word}: {by}  ({seconds} s)".format_map(result), flush=True)
    for test in result["unsteady"]:
        print(f"    fails without the change, too, or not every time: {test}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("list", help="write tests/mutants.txt")
    verb.add_argument("--check", action="store_true", help="only say whether it is up to date")
    verb = verbs.add_parser("run", help="change some, and see tests fail")
    verb.add_argument("--seed", type=int, default=SEED, help="of the draw (%(default)s)")
    verb.add_argument("--count", type=int, default=30, help="how many (%(default)s)")
    verb.add_argument("--id", nargs="+", help="these of the list, in place of a draw")
    parts = ",".join(PARTS)
    verb.add_argument(
        "--parts", type=lambda text: text.split(","), default=list(PARTS), help=f"some of {parts}"
    )
    verb.add_argument(
        "--form", choices=("quick", "long"), default="quick", help="of the tests (%(default)s)"
    )
    verb.add_argument("--seconds", type=float, default=900, help="the most for one mutant")
    verb.add_argument("--workers", type=int, default=2, help="mutants at a time")
    verb.add_argument("--fresh", action="store_true", help="forget the results of earlier runs")
    verb.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args()
    if options.verb == "run":
        if unknown := set(options.parts) - set(PARTS):
            parser.error(f"no part {', '.join(sorted(unknown))}: there is {', '.join(PARTS)}")
        return run(options)
    text = "".join(mutant.row() + "\n" for mutant in mutants(ROOT))
    if not options.check:
        LIST.write_text(text)
    elif LIST.read_text() != text:
        print(f"{LIST.relative_to(ROOT)} is not what the sources give: tools/mutate.py list")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
