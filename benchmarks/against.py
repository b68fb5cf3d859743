"""`python -m benchmarks.against COMMIT`: this source beside an earlier commit, both compiled, in pairs.

Each pair is the same load on both servers, one right after the other, so that a machine whose speed drifts
changes both. A row's figure is the median of its pairs' ratios of CPU seconds per message (below 1: this
source is cheaper), the whole is the geometric mean of the rows. micro.py runs in turns and the best of all
its runs counts.
"""

import argparse
import dataclasses
import math
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import servers
from benchmarks.__main__ import FULL, Bench, say
from benchmarks.rows import chosen

KINDS = (servers.BEFORE, "compiled")


def prepare(commit: str) -> Path:
    """Check out a commit below .cache and build it; returns its compiled environment."""
    full = _git("rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()
    root = servers.ROOT / ".cache" / "benchmarks" / f"at-{full[:12]}"
    if not (root / "pyproject.toml").exists():
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        subprocess.run(["tar", "-x", "-C", str(root)], input=_git("archive", full), check=True)
    subprocess.run([sys.executable, str(root / "tools" / "build_compiled.py")], check=True)
    return root / ".venv-compiled"


def _git(*words: str) -> bytes:
    return subprocess.run(
        ["git", *words], cwd=servers.ROOT, check=True, stdout=subprocess.PIPE
    ).stdout


def ratios(samples: list[dict[str, Any]]) -> dict[str, list[float]]:
    """For each row the CPU per message of this source over the one before, pair by pair."""
    cpu = {
        (sample["row"], sample["repeat"], sample["kind"]): sample["cpu_s"] / sample["messages"]
        for sample in samples
        if sample["messages"]
    }
    found: dict[str, list[float]] = {}
    for (row, repeat, kind), spent in cpu.items():
        before = cpu.get((row, repeat, servers.BEFORE))
        if kind == "compiled" and before:
            found.setdefault(row, []).append(spent / before)
    return found


def micro_ratios(runs: int) -> dict[str, list[float]]:
    """For each operation of micro.py [best of this source / best of the one before]."""
    best: dict[str, dict[str, float]] = {kind: {} for kind in KINDS}
    for at in range(runs):
        for kind in KINDS:
            for name, spent in servers.micro(kind).items():
                best[kind][name] = min(spent, best[kind].get(name, math.inf))
        say(f"micro {at + 1} of {runs}")
    now, before = best["compiled"], best[servers.BEFORE]
    return {name: [now[name] / before[name]] for name in now if name in before}


def show(title: str, found: dict[str, list[float]]) -> None:
    """A table of medians with their geometric mean."""
    table = Table("row", "median", "least", "most", "pairs", title=title)
    for name, values in found.items():
        figures = (statistics.median(values), min(values), max(values))
        table.add_row(name, *(f"{value:.3f}" for value in figures), str(len(values)))
    if found:
        mean = statistics.geometric_mean(statistics.median(values) for values in found.values())
        table.add_row("geometric mean", f"{mean:.3f}")
    Console(width=120).print(table)


def main() -> None:
    """Parse the flags, build, measure, print."""
    parser = argparse.ArgumentParser(prog="benchmarks.against", description=__doc__)
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument("--rows", default="", help="words; only rows whose key contains one")
    parser.add_argument("--repeats", type=int, default=7, help="pairs of every row (0: none)")
    parser.add_argument("--seconds", type=float, default=FULL.seconds, help="length of a send run")
    parser.add_argument("--micro", type=int, default=20, help="runs of micro.py (0: none)")
    arguments = parser.parse_args()
    servers.ENVIRONMENTS[servers.BEFORE] = prepare(arguments.commit)
    servers.build_compiled()
    if arguments.repeats:
        plan = dataclasses.replace(FULL, repeats=arguments.repeats, seconds=arguments.seconds)
        bench = Bench(list(KINDS), chosen(arguments.rows), plan)
        bench.run()
        show(f"CPU per message, against {arguments.commit}", ratios(bench.samples))
    if arguments.micro:
        show(f"micro.py, against {arguments.commit}", micro_ratios(arguments.micro))


if __name__ == "__main__":
    main()
