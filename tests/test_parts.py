"""The parts of `make test`: declared once, within the minutes there are, and all of them run."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tool_{name}", ROOT / "tools" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_part_is_a_target_and_the_budgets_are_what_was_agreed() -> None:
    runner = tool("run_tests")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(runner.BUDGETS) <= targets
    assert set(runner.PREPARED) <= set(runner.BUDGETS)
    assert sum(runner.BUDGETS.values()) <= 20 + 7  # the faults' tests run within the parts
    assert sum(runner.BUDGETS.values()) + sum(runner.KEPT.values()) <= 43


def test_the_table_names_what_failed_what_took_long_and_what_did_not_run() -> None:
    runner = tool("run_tests")
    rows = [runner.Row("check", 0.1, True), runner.Row("unit", 99.0, False)]
    shown = runner.table(rows, ["check", "unit", "crash"]).splitlines()
    assert shown[2].split() == ["check", "0.5", "0.1"]
    assert "FAILED" in shown[3] and "over its budget by" in shown[3]
    assert shown[4].endswith("not run")
    assert "99.1" in shown[5]


def test_tests_of_the_compiled_modules_are_there() -> None:
    builder = tool("build_compiled")
    chosen = builder.tests_of(builder.hot_modules())
    assert {"tests/store", "tests/broker", "tests/wire", "tests/golden"} <= set(chosen)
    for path in chosen:
        assert (ROOT / path).exists(), path
