"""Run the parts of `make test`, one after the other, and print what each took beside its budget.

usage: python tools/run_tests.py [PART ...]        (all of them if none is named)

What needs no test to be there runs beside the tests, with what they leave of the processors: the compiled build, the
download of the interop tests' peers, an archive of Spark's classes. The first part that fails ends the run. A part that takes longer than
its budget is named in the table, and fails nothing.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv" / "bin" / "python"
LOGS = ROOT / ".cache" / "test-logs"

# Part (a target of the Makefile) -> minutes it may take on two processors that have nothing else to do.
BUDGETS = {
    "install": 1.0,
    "check": 0.5,
    "unit": 3.5,  # with the tests of the classes of faults, docs/reliability.md
    "simulation": 1.5,
    "crash": 1.0,
    "interop": 5.5,
    "spark": 8.0,
    "compiled": 1.5,
}
# Minutes kept for parts that are not there yet.
KEPT = {
    "replication": 3.0,
    "access": 2.0,
    "door": 3.0,
    "client": 3.0,
    "operation": 2.0,
    "tables": 3.0,
}
# Part -> what makes ready for it in the background, from the end of the set-up on.
PREPARED = {
    "interop": ("-m", "tests.interop.prepare"),
    "spark": ("-m", "tests.spark.jvm"),
    "compiled": ("tools/build_compiled.py",),
}


@dataclass
class Row:
    """A part that ran."""

    part: str
    minutes: float
    passed: bool


class Background:
    """A command with the lowest priority; its words are shown if it fails."""

    def __init__(self, part: str) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        self.part = part
        self.log = LOGS / f"{part}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["nice", "-n", "19", str(PYTHON), *PREPARED[part]],
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group of its own, with the compilers it starts
            )

    def wait(self) -> bool:
        """Whether it went well."""
        if self.process.poll() is None:
            print(f"{self.part}: waiting for what is made ready in the background", flush=True)
        passed = self.process.wait() == 0
        if not passed:
            print(self.log.read_text(errors="replace"), flush=True)
        return passed

    def end(self) -> None:
        """Nobody waits for it any more."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()


def run(parts: list[str]) -> list[Row]:
    """Run them until one fails."""
    rows: list[Row] = []
    background: dict[str, Background] = {}
    try:
        for number, part in enumerate(parts, 1):
            print(f"\n== {part} ({number} of {len(parts)}) ==", flush=True)
            began = time.monotonic()
            passed = part not in background or background[part].wait()
            if passed:
                make = os.environ.get("MAKE", "make")
                passed = subprocess.run([make, "-s", part], cwd=ROOT, check=False).returncode == 0
            rows.append(Row(part, (time.monotonic() - began) / 60, passed))
            if not passed:
                break
            if number == 1:
                background = {name: Background(name) for name in PREPARED if name in parts}
    finally:
        for process in background.values():
            process.end()
    return rows


def table(rows: list[Row], parts: list[str]) -> str:
    """What was planned and what was taken, in minutes."""
    lines = ["", f"{'part':<14}{'budget':>8}{'minutes':>9}"]
    for row in rows:
        words = "" if row.passed else "  FAILED"
        over = row.minutes - BUDGETS[row.part]
        if over > 0:
            words += f"  over its budget by {over:.1f}"
        lines.append(f"{row.part:<14}{BUDGETS[row.part]:>8.1f}{row.minutes:>9.1f}{words}")
    for part in parts[len(rows) :]:
        lines.append(f"{part:<14}{BUDGETS[part]:>8.1f}{'-':>9}  not run")
    taken = sum(row.minutes for row in rows)
    lines.append(f"{'in all':<14}{sum(BUDGETS[part] for part in parts):>8.1f}{taken:>9.1f}")
    kept = ", ".join(f"{part} {minutes:.0f}" for part, minutes in KEPT.items())
    most = sum(BUDGETS.values()) + sum(KEPT.values())
    lines.append(f"Kept for parts that are not there yet: {kept}; at most {most:.0f} with them.")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(BUDGETS))
    parts = parser.parse_args().parts or list(BUDGETS)
    unknown = [part for part in parts if part not in BUDGETS]
    if unknown:
        parser.error(f"no part {unknown[0]}: there is {', '.join(BUDGETS)}")
    rows = run(parts)
    print(table(rows, parts), flush=True)
    sys.exit(0 if len(rows) == len(parts) and rows[-1].passed else 1)


if __name__ == "__main__":
    main()
