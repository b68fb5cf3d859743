"""Medians, ratios and tables of a run, on the terminal and in the page of this machine."""

import math
import os
import platform
import statistics
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.rows import ROWS, Row
from benchmarks.servers import ROOT

DOCS = ROOT / "docs" / "reference" / "benchmarks-linux-2-cores.md"
BEGIN = "<!-- measured: begin -->"
END = "<!-- measured: end -->"
FACTS = {
    "start_s": ("start of name server and broker to the first accepted send, s (median)", "{:.2f}"),
    "anonymous_mb": ("broker's anonymous memory after the load, MB", "{:.0f}"),
    "idle_anonymous_mb": ("broker's anonymous memory, idle, MB", "{:.0f}"),
    "idle_cpu_percent": ("broker's CPU when idle, % of a core", "{:.1f}"),
}


def machine() -> dict[str, str]:
    """What was measured on, in words that say nothing private."""
    return {
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "system": platform.system(),
        "arch": platform.machine(),
    }


def medians(results: dict[str, Any]) -> dict[tuple[str, str], dict[str, float]]:
    """(row, kind) -> median of each figure over the repeats; errors are summed."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for sample in results["samples"]:
        groups.setdefault((sample["row"], sample["kind"]), []).append(sample)
    found = {}
    for key, samples in groups.items():
        counted = [s for s in samples if s["messages"]]
        figures = {
            "cpu": [s["cpu_s"] / s["messages"] * 1e5 for s in counted],
            "rate": [s["messages"] / s["seconds"] for s in counted],
            "p50": [s["p50_us"] / 1000 for s in counted],
            "p99": [s["p99_us"] / 1000 for s in counted],
        }
        found[key] = {name: statistics.median(v) if v else math.nan for name, v in figures.items()}
        found[key]["errors"] = sum(s["errors"] for s in samples)
    return found


def table_rows(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the main table; ratios are to Apache's, less is better but for msgs/s."""
    kinds = results["kinds"]
    beside = "apache" in kinds
    header = ["case"]
    for kind in kinds:
        header.append(f"{kind}: CPU s / 100k")
        if beside and kind != "apache":
            header.append("ratio")
    for kind in kinds:
        header.append(f"{kind}: msgs/s")
    header.append("p50 / p99 ms: " + ", ".join(kinds))
    found = medians(results)
    cells = []
    for row in ROWS:
        if not any((row.key, kind) in found for kind in kinds):
            continue
        cells.append(_row_cells(row, kinds, found))
    return header, cells


def _row_cells(
    row: Row, kinds: list[str], found: dict[tuple[str, str], dict[str, float]]
) -> list[str]:
    line = [row.title]
    apache = found.get((row.key, "apache"))
    for kind in kinds:
        figures = found.get((row.key, kind))
        line.append(f"{figures['cpu']:.2f}" if figures else "-")
        if apache and kind != "apache":
            ratio = figures["cpu"] / apache["cpu"] if figures else math.nan
            mark = "" if ratio <= row.limit else " ▲"
            line.append(f"{ratio:.2f}{mark}")
    for kind in kinds:
        figures = found.get((row.key, kind))
        line.append(f"{figures['rate']:,.0f}" if figures else "-")
    spans = []
    for kind in kinds:
        figures = found.get((row.key, kind))
        text = (
            f"{figures['p50']:.2f} / {figures['p99']:.1f}"
            if figures and row.verb not in ("push", "async")
            else "-"
        )
        if figures and figures["errors"]:
            text += f" ({figures['errors']:.0f} errors)"
        spans.append(text)
    line.append(", ".join(spans))
    return line


def fact_rows(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of start-up, memory and idle figures."""
    kinds = results["kinds"]
    cells = []
    for key, (title, form) in FACTS.items():
        values = [results["facts"][kind].get(key) for kind in kinds]
        if any(value is not None for value in values):
            cells.append(
                [title, *("-" if value is None else form.format(value) for value in values)]
            )
    return ["", *kinds], cells


def micro_rows(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the codec and store figures."""
    micro = results["micro"]
    kinds = [kind for kind in results["kinds"] if kind in micro]
    names = list(dict.fromkeys(name for kind in kinds for name in micro[kind]))
    cells = [[name, *(f"{micro[kind][name]:,.2f}" for kind in kinds)] for name in names]
    return ["µs each", *kinds], cells


def show(results: dict[str, Any]) -> None:
    """All tables on the terminal."""
    console = Console(width=200)
    for header, cells in (table_rows(results), fact_rows(results), micro_rows(results)):
        if not cells:
            continue
        table = Table()
        for at, name in enumerate(header):
            table.add_column(name, justify="left" if at == 0 else "right")
        for line in cells:
            table.add_row(*line)
        console.print(table)


def markdown(header: list[str], cells: list[list[str]]) -> str:
    """One table as Markdown."""
    lines = [header, ["---" if at == 0 else "---:" for at in range(len(header))], *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_docs(results: dict[str, Any]) -> None:
    """Replace what stands between the markers of the page."""
    place = results["machine"]
    plan = results["plan"]
    words = (
        f"{place['cores']} cores, {place['system']} {place['arch']}, Python {place['python']}; medians of "
        f"{plan['repeats']} runs of {plan['seconds']:g} s, the servers in turn. ▲: above the target."
    )
    parts = [words]
    for header, cells in (table_rows(results), fact_rows(results), micro_rows(results)):
        if cells:
            parts.append(markdown(header, cells))
    text = DOCS.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCS.write_text(before + BEGIN + "\n\n" + "\n\n".join(parts) + "\n\n" + END + after)
