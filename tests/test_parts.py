"""The parts of `make test` and `make test-long`: targets that are there, a table that tells the truth, a record that is gone on from."""

import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from tests.conftest import is_named
from tests.record import passed_before

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tool_{name}", ROOT / "tools" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


runner = tool("run_tests")
environment = tool("environment")


def case(name: str, outcome: str, wall_s: float = 1.0) -> dict[str, object]:
    return {"case": name, "outcome": outcome, "cpu_s": 0.5, "wall_s": wall_s}


def test_each_part_is_a_target() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9.-]+(?: [a-z0-9.-]+)*):", text, re.M))
    targets = {word for words in targets for word in words.split()}
    assert set(runner.QUICK) <= targets
    assert set(runner.LONG) <= targets
    assert set().union(*(waits for _, waits in runner.PREPARED.values())) <= set(runner.QUICK)


def test_what_the_part_of_the_sources_runs_is_there() -> None:
    text = (ROOT / "Makefile").read_text().replace("\\\n", "")
    paths = re.search(r"^SOURCES := (.*)$", text, re.M)
    assert paths
    for path in paths[1].split():
        assert (ROOT / path).exists(), path


def test_the_table_names_what_failed_what_did_not_run_and_the_dearest_cases() -> None:
    cases = [case("a", "passed", 3.0), case("b", "failed", 9.0), case("c", "skipped")]
    rows = [runner.Row("check", 0.1, 5.0, True), runner.Row("unit", 99.0, 61.0, False, cases)]
    shown = runner.table(rows, ["check", "unit", "crash"], 99.1).splitlines()
    assert shown[2].split() == ["check", "0.1", "5", "0", "0", "0"]
    assert shown[3].split() == ["unit", "99.0", "61", "1", "1", "1", "FAILED"]
    assert shown[4].endswith("not run")
    assert shown[5].split() == ["in", "all", "99.1", "66"]
    assert [line.split()[2] for line in shown[8:11]] == ["b", "a", "c"]
    assert shown[-1] == "1 passed, 1 failed, 1 skipped"
    assert "  b" in shown[-3]


def test_a_part_that_was_ended_says_how_it_goes_on() -> None:
    shown = runner.table(
        [runner.Row("long-crash", 115.0, 1.0, False, [], True)], ["long-crash"], 115.0
    )
    assert "FAILED" not in shown and "goes on where it stopped" in shown


def test_a_case_that_passed_is_not_run_again_and_the_last_run_of_it_counts(tmp_path: Path) -> None:
    record = tmp_path / "record"
    lines = [case("a", "failed"), case("a", "passed"), case("b", "failed"), case("c", "skipped")]
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert passed_before(record) == {"a"}
    assert passed_before(tmp_path / "none") == set()
    read = {line["case"]: line["outcome"] for line in runner.read_cases(record)}
    assert read == {"a": "passed", "b": "failed", "c": "skipped"}


def test_a_part_that_takes_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tmp_path / "make"
    make.write_text("#!/bin/sh\ntrap 'exit 3' INT\nwhile :; do sleep 0.05; done\n")
    make.chmod(0o755)
    monkeypatch.setenv("MAKE", str(make))
    row = runner.run_part("long-crash", tmp_path / "record", longest_s=0.2)
    assert row.ended and not row.passed and row.minutes < 1


def test_what_is_long_by_the_list_is_there_and_says_what_finds_its_faults() -> None:
    lists = tomllib.loads((ROOT / "tests" / "long_cases.toml").read_text())["left"]
    for left in lists:
        assert len(left["found_by"]) > 10
        for case in left["cases"] + left.get("but", []):
            path, _, function = case.partition("[")[0].partition("::")
            files = list(ROOT.glob(path))
            assert files, f"tests/long_cases.toml: there is no {path}"
            name = function.replace("*", "")
            assert any(f"def {name}" in file.read_text() for file in files), case


def test_ids_of_the_list_are_names_and_patterns_of_cases() -> None:
    assert is_named("tests/a.py::test_x[1-b]", ["tests/a.py"])
    assert is_named("tests/a.py::test_x[1-b]", ["tests/a.py::test_x"])
    assert is_named("tests/a.py::test_x[1-b]", ["tests/a.py::test_x[1-*]"])
    assert is_named("tests/a.py::test_x[7]", ["tests/?.py::*[[5-8]]"])
    assert not is_named("tests/a.py::test_x[1-b]", ["tests/a.py::test_x[2-*]", "tests/a.py::test"])
    assert not is_named("tests/a.py::test_x", ["tests/a.py::test_x[*]"])


LOCKS = sorted((ROOT / "locks").glob("*.txt"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_pins_with_hashes_and_names_no_host(lock: Path) -> None:
    text = lock.read_text()
    entries = re.findall(r"^[a-zA-Z0-9].*(?:\n .*)*", text, re.M)
    assert len(entries) > 3
    for entry in entries:
        assert re.match(
            r"[a-z0-9-]+==[0-9][^ ]*( ; [^\\]+)? \\\n    --hash=sha256:[0-9a-f]{64}", entry
        ), entry
    assert "://" not in text and "--index" not in text and "--find" not in text
    assert set(environment.BUILD_TOOLS) <= set(environment.pins(lock))


def test_each_lock_is_of_an_environment_that_is_made() -> None:
    assert {lock.stem for lock in LOCKS} == {"roquette", *environment.SECOND}


def test_the_lock_has_what_the_project_asks_for() -> None:
    from importlib.metadata import version

    from packaging.requirements import Requirement

    locked = Path(sys.prefix).name == ".venv"  # else the newest or the lowest of everything
    pins = environment.pins(environment.MAIN)
    for words in environment.workspace.requirements(*environment.ALL):
        wanted = Requirement(words)
        entry = pins[wanted.name.lower().replace("_", "-")]
        for pinned in re.findall(r"==([^ ]+)", entry):
            if pinned[0].isdigit():
                assert wanted.specifier.contains(pinned), (words, pinned)
        if locked and (wanted.marker is None or wanted.marker.evaluate()):
            assert f"=={version(wanted.name)} " in entry, f"{wanted.name}: run make setup"
