"""A checkout never runs compiled modules that were made of other sources."""

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from tools import workspace

from roquette.base.form import COMPILED, is_same

PACKAGE = workspace.PRODUCT
HOT = "message/record_view.py"
SAY = "from roquette.base.form import form; print(form()); import roquette.message.record_view"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The package with a compiled module that cannot be loaded: who loads it says so."""
    package = tmp_path / "roquette"
    for name in ("__init__.py", "errors.py", "base", "message"):
        source = PACKAGE / name
        if source.is_dir():
            shutil.copytree(source, package / name, ignore=shutil.ignore_patterns("*.so"))
        else:
            package.mkdir(exist_ok=True)
            shutil.copy(source, package / name)
    (package / HOT).with_suffix(EXTENSION_SUFFIXES[0]).write_bytes(b"no shared object")
    stamp(package)
    return tmp_path


def stamp(package: Path, size: int = 0) -> None:
    known = (package / HOT).stat()
    (package / COMPILED).write_text(
        f"{size or known.st_size} {known.st_mtime_ns} 0 {HOT}\n"  # as tools/compile.py writes it
    )


def say(checkout: Path, **environment: str) -> tuple[str, str]:
    """What it says of its form, and what kept it from running."""
    outer = {key: value for key, value in os.environ.items() if key != "ROQUETTE_INTERPRETED"}
    done = subprocess.run(
        [sys.executable, "-c", SAY],
        env={**outer, "PYTHONPATH": str(checkout), **environment},
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip(), done.stderr.strip().splitlines()[-1] if done.returncode else ""


def test_the_compiled_form_of_these_sources_runs(checkout: Path) -> None:
    said, error = say(checkout)
    assert said == "compiled"
    assert error.startswith("ImportError")  # the broken one was loaded


def test_a_changed_source_runs_interpreted_and_says_so(checkout: Path) -> None:
    with (checkout / "roquette" / HOT).open("a") as stream:
        stream.write("\n")
    assert say(checkout) == (f"interpreted: {HOT} has changed since `make compile`", "")


def test_a_missing_source_too(checkout: Path) -> None:
    (checkout / "roquette" / COMPILED).write_text("1 1 1 message/gone.py\n")
    assert say(checkout)[0] == "interpreted: message/gone.py has changed since `make compile`"


def test_the_interpreted_form_can_be_asked_for(checkout: Path) -> None:
    said = say(checkout, ROQUETTE_INTERPRETED="1")
    assert said == ("interpreted: ROQUETTE_INTERPRETED is set", "")


def test_a_file_is_the_same_by_its_bytes_when_its_time_is_another(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"123456789")
    changed_ns = path.stat().st_mtime_ns
    assert is_same(str(path), 9, changed_ns, 0)
    assert is_same(str(path), 9, changed_ns + 1, 0xCBF43926)
    assert not is_same(str(path), 9, changed_ns + 1, 1)
    assert not is_same(str(path), 8, changed_ns, 0xCBF43926)
    assert not is_same(str(tmp_path / "none"), 9, changed_ns, 0xCBF43926)
