"""Compile the hot modules beside their sources, for this checkout: what `make setup` does where there is a C compiler.

usage: python tools/compile.py [--force]
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import time
from binascii import crc32
from pathlib import Path

import workspace
from build_compiled import PROJECT, has_compiler, hot_modules

ROOT = Path(__file__).resolve().parent.parent
SRC = workspace.SOURCES["roquette"]
PACKAGE = workspace.PRODUCT

sys.path.insert(0, str(SRC))
os.environ["ROQUETTE_INTERPRETED"] = "1"
from roquette.base.form import COMPILED, is_same  # noqa: E402

STAMP = PACKAGE / COMPILED


def hot_files() -> list[Path]:
    return [SRC / f"{module.replace('.', '/')}.py" for module in hot_modules()]


def sources() -> list[Path]:
    """The hot modules, and those of ours they import: constants of these are compiled in."""
    found = set(hot_files())
    for file in hot_files():
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            if isinstance(node, ast.ImportFrom):
                names += [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                path = SRC / f"{name.replace('.', '/')}.py"
                if path.is_file():
                    found.add(path)
    return sorted(found)


def line(path: Path) -> str:
    known = path.stat()
    data = path.read_bytes()
    return f"{known.st_size} {known.st_mtime_ns} {crc32(data)} {path.relative_to(PACKAGE)}"


def is_current() -> bool:
    """Is the compiled form there, and of these sources?"""
    if not STAMP.exists() or not built():
        return False
    lines = [words.split(" ", 3) for words in STAMP.read_text().splitlines()]
    if {words[3] for words in lines} != {str(path.relative_to(PACKAGE)) for path in sources()}:
        return False
    return all(
        is_same(str(PACKAGE / path), int(size), int(at), int(crc)) for size, at, crc, path in lines
    )


def built() -> list[Path]:
    suffix = f"{sys.implementation.cache_tag}-*.so"
    return [*PACKAGE.rglob(f"*.{suffix}"), *SRC.glob(f"*__mypyc.{suffix}")]


def remove() -> None:
    """Take the compiled form away: the sources run as they are."""
    STAMP.unlink(missing_ok=True)
    for path in [*PACKAGE.rglob("*.so"), *SRC.glob("*__mypyc.*.so")]:
        path.unlink()


def compile_all() -> str:
    """Do it; what kept it from being done, in words."""
    scratch = ROOT / "build" / "inplace"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    before = [line(path) for path in sources()]
    command = ("setup.py", "-q", "build_ext", "--inplace", "--force", "--build-temp", str(scratch))
    log = scratch / "log"
    with log.open("wb") as stream:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=PROJECT,
            env={**os.environ, "ROQUETTE_COMPILE": "1"},
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        remove()
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        return f"the compiler ended with {' '.join(last)}; all of it is in {log.relative_to(ROOT)}"
    STAMP.write_text("\n".join(before) + "\n")
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--force", action="store_true", help="also when nothing has changed")
    if is_current() and not parser.parse_args().force:
        print("compile: up to date")
        return
    remove()
    if not has_compiler():
        print("compile: no C compiler found: Roquette runs interpreted, at a half of its speed")
        return
    began = time.monotonic()
    print(f"compile: {len(hot_files())} hot modules, about a minute", flush=True)
    why = compile_all()
    if why:
        print(f"compile: Roquette runs interpreted, at a half of its speed: {why}")
        return
    print(f"compile: done in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
