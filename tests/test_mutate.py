"""tools/mutate.py: which changes it finds, what it draws, and which tests it runs on them."""

import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
mutate: Any = import_module("mutate")

SAMPLE = b"""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from a import b

class Log:
    def append(self, data):
        if not data or (
            len(data) > self.room  # < of a comment
        ):
            raise ValueError("\xc3\xa9: no room")
        self.file.write(data); self.file.sync()
        log.info("wrote %d", 1 if self.end < 5 else 2)
        self.size.clear()
        self.keys.pop(1, None)
        self.index.add(data)
        await self.gate.pass_on(
            data,
        )
        return min(self.end, 7)

    def read(self):
        while (found := self.next()) and 0 <= self.end < 9:
            if found.bad: continue
            if (size := found.size) > 1:
                return size
            if found.last:
                self.last = found
        assert self.end >= 0
        if self.end:
            return NotImplemented

    def __repr__(self):
        return "late" if self.end > 3 else "early"
"""


def found(source: bytes = SAMPLE) -> list[Any]:
    return list(mutate.Finder("store/log.py", source).found)


def changed(change: str) -> str:
    """The sample with the one mutant whose text begins so."""
    [one] = [each for each in found() if each.change.startswith(change)]
    return str(one.applied(SAMPLE).decode())


def test_all_guards_bounds_and_orders_are_found_and_nothing_else() -> None:
    assert [(each.name, each.kind, each.change) for each in found()] == [
        ("Log.append", "order", "self.file.write(data); self.file.sync() -> self.file.sync(); self.file.write(data)"),
        ("Log.append", "order", "self.keys.pop(1, None); self.index.add(data) -> self.index.add(data); self.keys.pop(1, None)"),
        ("Log.append", "order", "self.index.add(data); await self.gate.pass_on( data, ) -> await self.gate.pass_on( data, ); self.index.add(data)"),
        ("Log.append", "guard", 'if not data or ( len(data) > self.room # < of a comment ): raise ValueError("é:… -> if False'),
        ("Log.append", "bound", "len(data) > self.room -> len(data) >= self.room"),
        ("Log.append", "bound", "min(self.end, 7) -> max(self.end, 7)"),
        ("Log.read", "bound", "0 <= self.end < 9 -> 0 < self.end < 9"),
        ("Log.read", "bound", "0 <= self.end < 9 -> 0 <= self.end <= 9"),
        ("Log.read", "guard", "if found.bad: continue -> if False"),
        ("Log.read", "guard", "if (size := found.size) > 1: return size -> if ((size := found.size) > 1) and False"),
        ("Log.read", "bound", "(size := found.size) > 1 -> (size := found.size) >= 1"),
    ]  # fmt: skip


def test_a_change_changes_what_it_says_and_nothing_else() -> None:
    text = SAMPLE.decode()
    assert changed("self.file.write") == text.replace(
        "self.file.write(data); self.file.sync()", "self.file.sync(); self.file.write(data)"
    )
    assert changed("len(data)") == text.replace("> self.room", ">= self.room")
    assert changed("min(") == text.replace("min(", "max(")
    assert changed("if found.bad") == text.replace("if found.bad", "if False")
    kept = "if ((size := found.size) > 1) and False:"  # the name is bound as before
    assert changed("if (size") == text.replace("if (size := found.size) > 1:", kept)
    swapped = changed("self.index.add")
    assert swapped.index("pass_on") < swapped.index("index.add")


def test_an_identity_outlives_lines_that_come_and_go_and_tells_equal_texts_apart() -> None:
    ids = [each.id for each in found()]
    assert [each.id for each in found(b"# more\n" * 9 + SAMPLE)] == ids
    twice = SAMPLE.replace(b"if found.bad: continue", b"if found.bad: continue\n            " * 2)
    assert len({each.id for each in found(twice)}) == len(ids) + 1


def test_the_draw_takes_as_many_of_each_room_and_is_the_same_for_a_seed() -> None:
    rows = {f"{room}{n}": f"{room}/m.py" for room in mutate.ROOMS for n in range(50)}
    one = mutate.drawn(rows, 30, 1)
    assert one == mutate.drawn(dict(reversed(rows.items())), 30, 1)
    assert one != mutate.drawn(rows, 30, 2)
    assert len(set(one)) == 30
    for room in mutate.ROOMS:
        assert sum(each.startswith(room) for each in one) == 5
    assert len(mutate.drawn(rows, 8, 1)) == 8
    more = mutate.drawn(rows | {"another": "store/other.py"}, 30, 1)
    assert len(set(one) - set(more)) <= 1, "one that joins the list moves one at most"


def test_tests_are_those_that_import_a_file_and_the_nearest_come_first(tmp_path: Path) -> None:
    files = {
        "packages/roquette/src/roquette/store/log.py": "",
        "packages/roquette/src/roquette/store/book.py": "from typing import TYPE_CHECKING\nfrom roquette.store import log",
        "packages/roquette/src/roquette/store/types.py": "if TYPE_CHECKING:\n    from roquette.store.log import Log",
        "packages/roquette/src/roquette/apps/main.py": "def main():\n    import roquette.store.book",
        "tests/store/test_log.py": "",
        "tests/store/test_book.py": "from roquette.store.book import Book",
        "tests/store/test_types.py": "import roquette.store.types",
        "tests/broker/test_direct.py": "from roquette.store.log import Log",
        "tests/broker/conftest.py": "from roquette.store import book",
        "tests/broker/test_fixture.py": "",
        "tests/servers.py": 'MAIN = ["-c", "from roquette.apps.main import main"]',
        "tests/crash/test_kill.py": "import pytest\nfrom tests import servers\npytest.mark.crash",
        "tests/interop/test_java.py": "import roquette.store.log",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    tests = mutate.Imports(tmp_path).tests_of("store/log.py")
    assert tests == [
        (0, "tests/store/test_log.py"),
        (1, "tests/broker/test_direct.py"),
        (1, "tests/interop/test_java.py"),
        (2, "tests/store/test_book.py"),
        (3, "tests/broker/test_fixture.py"),
        (4, "tests/crash/test_kill.py"),
    ]
    assert mutate.stages(tmp_path, "store/log.py", tests, ["crash", "unit", "spark"]) == [
        ("unit", ["tests/store/test_log.py", "tests/broker/test_direct.py"]),
        ("unit", ["tests/store/test_book.py"]),
        ("unit", ["tests/broker/test_fixture.py", "tests/crash/test_kill.py"]),
        ("crash", ["tests/crash/test_kill.py"]),
    ]


@pytest.mark.parametrize(
    ("said", "word", "unsteady"),
    [
        ({"change": "t::a", "alone": "t::a"}, "killed", []),
        ({"change": "t::a"}, "SURVIVED", ["t::a"]),  # passes alone
        ({"change": "t::a", "alone": "t::a", "before": "t::a"}, "SURVIVED", ["t::a"]),
        ({"change": "exit 3", "alone": "exit 3", "before": "exit 3"}, "UNDECIDED", []),
        ({}, "SURVIVED", []),
    ],
)
def test_a_test_that_fails_without_the_change_or_not_again_kills_nothing(
    tmp_path: Path, said: dict[str, str], word: str, unsteady: list[str]
) -> None:
    class Copy:
        tree = tmp_path
        now = SAMPLE

        def write(self, file: str, source: bytes) -> None:
            self.now = source

        def red(self, part: str, tests: list[str], seconds: float, leave: Any = None) -> str:
            if leave is not None:
                return "" if said.get("change") in leave else said.get("change", "")
            return said.get("before" if self.now == SAMPLE else "alone", "")

    path = tmp_path / mutate.below_tree("store/log.py")
    path.parent.mkdir(parents=True)
    path.write_bytes(SAMPLE)
    copy = Copy()
    mutant = found()[0]
    verdict = mutate.judged(copy, mutant, [("unit", ["tests/store/test_log.py"])], 60)
    assert (verdict[0], verdict[2]) == (word, unsteady)
    assert copy.now == SAMPLE, "the source is as it was"


def test_what_passed_on_one_change_is_run_on_the_next_in_the_long_form_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    (tree / "tests").mkdir(parents=True)
    (tree / "packages").symlink_to(ROOT / "packages")  # pytest loads our plugin
    shutil.copy(ROOT / "tests" / "record.py", tree / "tests" / "conftest.py")
    (tree / "tests" / "test_it.py").write_text("def test_it():\n    assert 0")
    (tree / "pytest.ini").write_text("[pytest]\nmarkers = simulation\n crash\n interop\n spark\n")
    record = tmp_path / "record.jsonl"
    record.write_text('{"case": "tests/test_it.py::test_it", "outcome": "passed"}\n')
    monkeypatch.setenv("ROQUETTE_RECORD", str(record))
    monkeypatch.setenv("ROQUETTE_GO_ON", "1")

    copy = mutate.Copy(tree, tmp_path / "copy", quick=False)

    assert copy.red("unit", ["tests/test_it.py"], 60) == "tests/test_it.py::test_it"


def test_the_committed_list_is_what_the_sources_give() -> None:
    rows = [each.row() for each in mutate.mutants(ROOT)]
    assert len({row.partition("\t")[0] for row in rows}) == len(rows), "two have one identity"
    assert mutate.SAME.keys() <= {row.partition("\t")[0] for row in rows}, "one is gone"
    listed = mutate.LIST.read_text().splitlines()
    changed = sorted(set(rows) ^ set(listed))
    assert listed == rows, f"run tools/mutate.py list; {len(changed)} differ: {changed[:4]}"
