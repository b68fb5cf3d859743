"""Build the mypyc wheel and install it in an environment of its own, .venv-compiled; with --test, run all unit tests on it.

usage: python tools/build_compiled.py [--test] [--force]
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import environment
import workspace

ROOT = workspace.ROOT
PROJECT = workspace.FOLDERS["roquette"]
sys.path.insert(0, str(PROJECT))
from build_backend import has_compiler  # noqa: E402

VENV = ROOT / ".venv-compiled"
PYTHON = VENV / "bin" / "python"
MARKS = "not simulation and not crash and not interop and not spark and not long"


def run(*command: str | Path, **environment: str) -> None:
    outer = {key: value for key, value in os.environ.items() if key != "ROQUETTE_INTERPRETED"}
    subprocess.run(
        [str(word) for word in command], check=True, cwd=ROOT, env={**outer, **environment}
    )


def fingerprint() -> str:
    digest = hashlib.sha256()
    for path in [
        environment.MAIN,
        PROJECT / "pyproject.toml",
        PROJECT / "setup.py",
        *sorted(workspace.PRODUCT.rglob("*.py")),
    ]:
        digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()


def hot_modules() -> list[str]:
    return list(workspace.project_of("roquette")["tool"]["roquette"]["compiled"])


def build(force: bool, locked: str) -> None:
    """Make .venv-compiled hold a compiled roquette of exactly this source, and what is locked under a name."""
    stamp = VENV / ".built"
    wanted = f"{locked} {fingerprint()}"
    if not force and stamp.exists() and stamp.read_text() == wanted:
        return
    modules = hot_modules()
    print(f"compiled: building a wheel of {len(modules)} compiled modules", flush=True)
    environment.make(locked, VENV)  # with this checkout, which the wheel replaces
    scratch = ROOT / "build" / "compiled"
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.rmtree(PROJECT / "build", ignore_errors=True)
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
        PROJECT,
        ROQUETTE_COMPILE="1",
    )
    wheel = next(scratch.glob("roquette-*.whl"))
    quiet = ("-q", "--disable-pip-version-check")
    run(PYTHON, "-m", "pip", "install", *quiet, "--no-deps", "--force-reinstall", wheel)
    check = "import importlib,sys; bad=[m for m in sys.argv[1:] if not importlib.import_module(m).__file__.endswith('.so')]; sys.exit(f'not compiled: {bad}' if bad else 0)"
    run(PYTHON, "-c", check, *modules)
    stamp.write_text(wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--test", action="store_true", help="run all unit tests on it")
    parser.add_argument("--force", action="store_true", help="build even when nothing changed")
    arguments = parser.parse_args()
    if not has_compiler():
        if os.environ.get("CI") == "true":
            sys.exit("compiled: no C compiler found, and in CI that is a failure")
        print("compiled: no C compiler found: the compiled tests are skipped")
        return
    build(arguments.force, "all" if arguments.test else "base")
    if arguments.test:
        workers = ("-n", os.environ.get("WORKERS", "2"), "--dist", "worksteal")
        pytest = (PYTHON, "-m", "pytest", "-p", "no:cacheprovider", *workers)
        run(
            *pytest,
            "-m",
            MARKS,
            "--ignore=tests/spark",
            "--ignore=tests/pipelines",
            ROQUETTE_EXPECT_COMPILED="1",
        )


if __name__ == "__main__":
    main()
