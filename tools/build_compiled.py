"""Build the mypyc wheel and install it in an environment of its own; with --test, run tests on it.

usage: python tools/build_compiled.py [--test | --test-all] [--force]

--test runs the tests of the compiled modules: those of the rooms they are in, and those of all rooms that go through
them. --test-all runs everything that `make unit` runs.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-compiled"
PYTHON = VENV / "bin" / "python"
MARKS = "not simulation and not crash and not interop and not spark and not long"
# Besides the tests of the compiled modules' own rooms: real servers' bytes, and bytes that are none.
THROUGH = ("golden", "bad_input", "test_compiled.py")


def run(*command: str | Path, **environment: str) -> None:
    outer = {key: value for key, value in os.environ.items() if key != "ROQUETTE_INTERPRETED"}
    subprocess.run(
        [str(word) for word in command], check=True, cwd=ROOT, env={**outer, **environment}
    )


def fingerprint() -> str:
    digest = hashlib.sha256()
    for path in [ROOT / "pyproject.toml", ROOT / "setup.py", *sorted((ROOT / "src").rglob("*.py"))]:
        digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()


def hot_modules() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(project["tool"]["roquette"]["compiled"])


def tests_of(modules: list[str]) -> list[str]:
    """Where the tests of these modules are: tests/<room> of each."""
    rooms = sorted({module.split(".")[1] for module in modules})
    return [f"tests/{name}" for name in (*rooms, *THROUGH)]


def build(force: bool) -> None:
    """Make .venv-compiled hold a compiled roquette of exactly this source."""
    if not PYTHON.exists():
        print("compiled: creating", VENV.name, flush=True)
        run(sys.executable, "-m", "venv", VENV)
        run(PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-U", "pip")
    stamp = VENV / ".built"
    wanted = fingerprint()
    if not force and stamp.exists() and stamp.read_text() == wanted:
        return
    modules = hot_modules()
    print(f"compiled: building a wheel of {len(modules)} compiled modules", flush=True)
    pip = (PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    run(*pip, ".[dev]", ROQUETTE_COMPILE="0")  # dependencies and build tools; replaced below
    scratch = ROOT / "build" / "compiled"
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    scratch.mkdir(parents=True)
    run(
        PYTHON,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        scratch,
        ".",
        ROQUETTE_COMPILE="1",
    )
    wheel = next(scratch.glob("roquette-*.whl"))
    run(*pip, "--no-deps", "--force-reinstall", wheel)
    check = "import importlib,sys; bad=[m for m in sys.argv[1:] if not importlib.import_module(m).__file__.endswith('.so')]; sys.exit(f'not compiled: {bad}' if bad else 0)"
    run(PYTHON, "-c", check, *modules)
    stamp.write_text(wanted)


def main() -> None:
    from build_backend import has_compiler

    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--test", action="store_true", help="run the compiled modules' tests")
    what.add_argument("--test-all", action="store_true", help="run all unit tests")
    parser.add_argument("--force", action="store_true", help="build even when nothing changed")
    arguments = parser.parse_args()
    if not has_compiler():
        if os.environ.get("CI") == "true":
            sys.exit("compiled: no C compiler found, and in CI that is a failure")
        print("compiled: no C compiler found: the compiled tests are skipped")
        return
    build(arguments.force)
    if arguments.test or arguments.test_all:
        chosen = [] if arguments.test_all else tests_of(hot_modules())
        workers = ("-n", os.environ.get("WORKERS", "2"), "--dist", "loadscope")
        pytest = (PYTHON, "-m", "pytest", "-p", "no:cacheprovider", *workers)
        run(*pytest, "-m", MARKS, *chosen, ROQUETTE_EXPECT_COMPILED="1")


if __name__ == "__main__":
    main()
