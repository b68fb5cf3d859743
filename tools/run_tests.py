"""Run the parts of `make test` or `make test-long`, and print what each took.

usage: python tools/run_tests.py [PART ...]          (the quick form; all parts if none is named)
       python tools/run_tests.py --long [PART ...]   (parts of the long form)

A part that fails does not stop the others. What needs no test to be there runs beside the tests, with what they leave of the
processors: the compiled form, the tests' bytecode, the peers of the interop tests, an archive of Spark's classes. So do
the parts that need processors more than time; their output comes when they have ended. The table at the end has minutes,
CPU seconds (of the part and of all that it started and waited for) and cases of each part; then come the ten dearest cases.

A part of the long form that would take more than two hours is ended, and goes on where it stopped when it is run again
with the same sources; so does one that was cut off.
"""

import argparse
import contextlib
import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv" / "bin" / "python"
LOGS = ROOT / ".cache" / "test-logs"
LONGEST_S = 115 * 60
LOW = ("nice", "-n", "10")

QUICK = {
    "install": "the environment, from the lock",
    "check": "format, lint, types",
    "sources": "golden, wire, message, filter, store: what can differ, on the sources as they are",
    "unit": "unit, property and golden tests",
    "instructions": "what four paths cost, in instructions",
    "simulation": "a whole cluster in one process, in virtual time",
    "crash": "kill -9, full disks, power cuts",
    "interop": "real Java, Go, Node.js, Python and Rust clients, Apache's servers, etcd",
    "spark": "the connector and the pipelines",
}
LONG = {
    "long-unit": "unit tests with 1,000 examples each, and the long ones",
    "long-wheel": "all unit tests on a compiled wheel in an environment of its own",
    "long-simulation": "thousands of seeds",
    "long-crash": "hundreds of kills, all states of power cuts",
    "long-interop": "each feature with each client, many take-overs",
    "long-apache": "the same features at Apache's own servers; their answers captured again",
    "long-spark": "hundreds of kills, real object stores, other readers of the tables",
    "long-pipelines": "a database's way to its tables through 80 kills, other engines in turns, rows as Spark has them",
    "long-spark-4.2": "the connector and the pipelines on PySpark 4.2",
    "long-newest": "unit tests with the newest of everything that pyproject.toml allows",
    "long-lowest": "unit tests with the lowest of everything that it allows",
    "long-mutants": "30 drawn mutants of guards, bounds and orders: each must turn a test red",
}
# These have work for each processor at any time, and run beside the others, which wait for half of theirs, for JVMs, a clock or
# other people's clients. So what is left at the end is shared by all processors.
BESIDE = ("sources", "unit", "instructions", "simulation")
# What is made in the background from the end of the set-up on -> its command, and the parts that wait for it.
PREPARED = {
    "compile": (("tools/compile.py",), {*QUICK} - {"install", "check", "sources"}),
    "bytecode": (("-m", "pytest", "--collect-only", "-qq"), {"unit"}),
    "peers": (("-m", "tests.interop.prepare"), {"interop"}),
    "classes": (("-m", "tests.spark.jvm"), {"spark"}),
}


INTERRUPTED = threading.Event()


@dataclass
class Row:
    """A part that ran."""

    part: str
    minutes: float
    cpu_s: float
    passed: bool
    cases: list[dict[str, Any]] = field(default_factory=list)
    ended: bool = False

    def count(self, outcome: str) -> int:
        """How many of its cases ended so: passed, failed or skipped."""
        return sum(case["outcome"] == outcome for case in self.cases)


class Background:
    """A command of a low priority, but for what the first of the others waits for; its words are shown if it fails."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._told = False
        self.log = LOGS / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*(() if "crash" in PREPARED[name][1] else LOW), str(PYTHON), *PREPARED[name][0]],
                cwd=ROOT,
                env={**os.environ, "ROQUETTE_INTERPRETED": "1"},  # the compiled form is half made
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # its own, with the compilers it starts
            )

    def wait(self) -> None:
        """Its end. What failed here is tried again by the part that needs it, and fails there."""
        with self._lock:
            if self.process.poll() is None:
                print(f"waiting for the {self.name}, made ready in the background", flush=True)
            if self.process.wait() and not self._told:
                self._told = True
                print(self.log.read_text(errors="replace"), flush=True)

    def end(self) -> None:
        """Nobody waits for it any more."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()


def read_cases(record: Path) -> list[dict[str, Any]]:
    """The cases of a part's record, the last run of each."""
    if not record.exists():
        return []
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    return list({line["case"]: line for line in lines}.values())


def temporary_folder() -> str:
    """A folder for a part's temporary directories, in memory where that can be."""
    sys.path.insert(0, str(ROOT))
    from tests.record import memory_folder  # pytest is there when the environment is

    return tempfile.mkdtemp(prefix="part-", dir=os.environ.get("TMPDIR") or memory_folder())


def run_part(part: str, record: Path, longest_s: float = math.inf, log: Path | None = None) -> Row:
    """Run a part's target; one that takes longer than `longest_s` is ended as Ctrl-C does it, and by Ctrl-C.

    With a log it runs beside another part, and takes what that leaves of the processors.
    """
    began = time.monotonic()
    temporary = temporary_folder() if part != "install" else None
    make = [sys.executable, "tools/adopt.py", os.environ.get("MAKE", "make"), "-s", part]
    with log.open("wb") if log else contextlib.nullcontext() as output:
        process = subprocess.Popen(
            [*LOW, *make] if log else make,
            cwd=ROOT,
            env={
                **os.environ,
                "ROQUETTE_RECORD": str(record),
                **({"TMPDIR": temporary} if temporary else {}),
            },
            stdout=output,
            stderr=subprocess.STDOUT if log else None,
            process_group=0,  # in one session with what runs beside it, whose low priority counts among the processes of a session
        )
    ended, pid = False, 0
    try:
        while not pid:
            if not ended and (INTERRUPTED.is_set() or time.monotonic() - began > longest_s):
                ended = True
                os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.1)
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGINT)
        raise
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu_s = used.ru_utime + used.ru_stime
    if log:
        print(f"\n== {part}: {QUICK[part]} ==\n{log.read_text(errors='replace')}", flush=True)
    if temporary and process.returncode:
        print(f"{part}: what its servers wrote is left in {temporary}", flush=True)
    elif temporary:
        shutil.rmtree(temporary, ignore_errors=True)
    minutes = (time.monotonic() - began) / 60
    return Row(part, minutes, cpu_s, process.returncode == 0, read_cases(record), ended)


class Quick:
    """The parts of the quick form, and what is made ready for them in the background."""

    def __init__(self, parts: list[str]) -> None:
        self._parts = parts
        self._background: dict[str, Background] = {}
        self._rows: list[Row] = []

    def run(self) -> list[Row]:
        """Run them; without an environment there is nothing to run."""
        first = [part for part in self._parts if part not in BESIDE]
        if "install" in first:
            first.remove("install")
            self._run("install")
            if not self._rows[-1].passed:
                return self._rows
        wanted = [name for name, (_, waits) in PREPARED.items() if waits & {*self._parts}]
        self._background = {name: Background(name) for name in wanted}
        beside = [part for part in self._parts if part in BESIDE]
        try:
            with ThreadPoolExecutor() as threads:
                others = threads.submit(self._run_all, beside, log=bool(first))
                try:
                    self._run_all(first)
                    others.result()
                except KeyboardInterrupt:
                    INTERRUPTED.set()
                    raise
        finally:
            for process in self._background.values():
                process.end()
        return sorted(self._rows, key=lambda row: self._parts.index(row.part))

    def _run_all(self, parts: list[str], log: bool = False) -> None:
        for part in parts:
            if not INTERRUPTED.is_set():
                self._run(part, log)

    def _run(self, part: str, log: bool = False) -> None:
        print(f"\n== {part}: {QUICK[part]}{', in the background' if log else ''} ==", flush=True)
        for name, process in self._background.items():
            if part in PREPARED[name][1]:
                process.wait()
        record = LOGS / f"{part}.jsonl"
        record.unlink(missing_ok=True)
        self._rows.append(run_part(part, record, log=LOGS / f"{part}.log" if log else None))


def run_long(parts: list[str]) -> list[Row]:
    """Run them; cases that have passed with these sources are not run again."""
    rows = []
    os.environ["ROQUETTE_GO_ON"] = "1"
    for number, part in enumerate(parts, 1):
        print(f"\n== {part} ({number} of {len(parts)}): {LONG[part]} ==", flush=True)
        record = LOGS / f"{part}-{fingerprint()}.jsonl"
        rows.append(run_part(part, record, LONGEST_S))
    return rows


def fingerprint() -> str:
    """Of all that a case's result may depend on."""
    found = hashlib.sha256()
    for folder in ("packages", "tests", "locks", "tools"):
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT)
            made = path.suffix in (".pyc", ".so") or any(
                part == "build" or part.startswith(".") or part.endswith(".egg-info")
                for part in name.parts
            )
            if path.is_file() and not made:
                found.update(str(name).encode() + path.read_bytes())
    return found.hexdigest()[:16]


def table(rows: list[Row], parts: list[str], minutes: float) -> str:
    """What each part and all of them took, what failed, and the ten dearest cases."""
    head = f"{'part':<17}{'minutes':>9}{'CPU s':>8}{'passed':>9}{'failed':>8}{'skipped':>9}"
    lines = ["", head]
    for row in rows:
        counts = [row.count(outcome) for outcome in ("passed", "failed", "skipped")]
        words = f"{row.part:<17}{row.minutes:>9.1f}{row.cpu_s:>8.0f}"
        words += "".join(
            f"{count:>{width}}" for count, width in zip(counts, (9, 8, 9), strict=True)
        )
        if row.ended:
            words += "  not done: the same command goes on where it stopped"
        elif not row.passed:
            words += "  FAILED"
        lines.append(words)
    ran = {row.part for row in rows}
    lines += [f"{part:<17}{'-':>9}  not run" for part in parts if part not in ran]
    lines.append(f"{'in all':<17}{minutes:>9.1f}{sum(row.cpu_s for row in rows):>8.0f}")
    cases = [case for row in rows for case in row.cases]
    if cases:
        lines += ["", f"{'wall s':>8}{'CPU s':>8}  dearest cases (Java's CPU is not in it)"]
        for case in sorted(cases, key=lambda case: -max(case["cpu_s"], case["wall_s"]))[:10]:
            lines.append(f"{case['wall_s']:>8.1f}{case['cpu_s']:>8.1f}  {case['case']}")
    failed = [case["case"] for case in cases if case["outcome"] == "failed"]
    if failed:
        lines += ["", "failed:", *(f"  {case}" for case in failed)]
    counts = [
        sum(row.count(outcome) for row in rows) for outcome in ("passed", "failed", "skipped")
    ]
    lines += ["", "{} passed, {} failed, {} skipped".format(*counts)]
    return "\n".join(lines)


# Package -> the parts that test it, and where its tests of the part `unit` are.
PACKAGES = {
    "roquette": ([part for part in QUICK if part != "spark"], "tests"),
    "roquette-spark": (["install", "check", "spark"], "tests"),
    "roquette-testing": (["install", "check", "unit"], "tests/testing"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join((*QUICK, *LONG)))
    parser.add_argument("--long", action="store_true", help="the long form")
    parser.add_argument("--package", choices=PACKAGES, help="only what tests this package")
    asked = parser.parse_args()
    known = LONG if asked.long else QUICK
    parts = asked.parts or list(known)
    if asked.package:
        if asked.parts or asked.long:
            parser.error("--package chooses the parts, of the quick form")
        parts, os.environ["UNIT_TESTS"] = PACKAGES[asked.package]
    if asked.long:
        parts = [part if part in known else f"long-{part}" for part in parts]
    unknown = [part for part in parts if part not in known]
    if unknown:
        parser.error(f"no part {unknown[0]}: there is {', '.join(known)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    rows = run_long(parts) if asked.long else Quick(parts).run()
    print(table(rows, parts, (time.monotonic() - began) / 60), flush=True)
    good = len(rows) == len(parts) and all(row.passed for row in rows)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
