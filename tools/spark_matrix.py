"""Run the tests that need Spark on other versions of PySpark, each in an environment of its own.

usage: python tools/spark_matrix.py [--build] [VERSION ...] [-- PYTEST-ARGUMENT ...]

VERSION is one of those below (all of them if none is given); its environment is .venv-spark-VERSION. With --build the
environment is only made. 4.1 can only be built: it has nothing of ours, and reads our tables with Delta's and Iceberg's own libraries.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import environment

ROOT = Path(__file__).resolve().parent.parent
# Each has a lock of its own. The newest version is that of .venv, on which `make test` runs.
VERSIONS = ("4.2",)
READERS = ("4.1",)  # there is no Iceberg for newer ones
TESTS = ("tests/spark", "tests/pipelines")
MARKS = "not interop and not long"


def run(*command: str | Path) -> None:
    environment = {**os.environ, "PYTHONPATH": ""}
    subprocess.run([str(word) for word in command], check=True, cwd=ROOT, env=environment)


def build(version: str) -> Path:
    """The environment's Python, with that PySpark installed, and this source if it is one that the connector serves."""
    name = f"spark-{version}"
    venv = ROOT / f".venv-{name}"
    lock = (environment.LOCKS / f"{name}.txt").read_text()
    stamp = venv / ".installed"
    if not stamp.exists() or stamp.read_text() != lock:
        print(f"spark {version}: {venv.name} (at most 850 MB to download)", flush=True)
        environment.make(name, venv)
        stamp.write_text(lock)
    python = venv / "bin" / "python"
    check = "import pyspark, sys; sys.exit(not pyspark.__version__.startswith(sys.argv[1] + '.'))"
    run(python, "-c", check, version)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=", ".join(VERSIONS))
    parser.add_argument("--build", action="store_true", help="make the environments, run no test")
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    asked = parser.parse_args(words[:cut])
    for version in asked.versions or VERSIONS:
        if version in READERS and asked.build:
            build(version)
            continue
        if version not in VERSIONS:
            parser.error(f"no version {version}: there is {', '.join(VERSIONS)}")
        python = build(version)
        if not asked.build:
            print(f"spark {version}: tests", flush=True)
            rest = words[cut + 1 :] or [*TESTS, "-m", MARKS, "--timeout", "600"]
            run(python, "-m", "pytest", "-p", "no:cacheprovider", *rest)


if __name__ == "__main__":
    main()
