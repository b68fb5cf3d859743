"""report.html: what the demo has to tell, as a page of charts and totals."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from examples.demo.flights import Totals

from roquette_spark.pipelines.kit.report import (
    LEFT,
    SHADES,
    WIDTH,
    Cell,
    Chart,
    Report,
    ReportTable,
    Section,
    bars,
    box,
    columns,
    name_at,
    render,
    text_at,
)

FEW = 30  # a mean of fewer flights says nothing: such cells stay empty
_STEPS = (5, 10, 15, 20, 30, 40)  # minutes between the colours


@dataclass(slots=True)
class Story:
    """What the report tells."""

    facts: list[tuple[str, str]]
    totals: dict[str, Totals]
    consumers: list[tuple[str, int]]
    summary: list[dict[str, Any]]
    airlines: dict[str, str]


def write_report(path: Path, story: Story) -> None:
    """Write the page."""
    report = Report(
        title="New York flights of 2013, by way of Roquette",
        tab="Flights through Roquette",
        lead="Every flight travelled as one message through two brokers to three consumers, "
        "and through PySpark into a Parquet table. The plots are drawn from that table.",
        facts=story.facts,
        sections=_sections(story),
    )
    path.write_text(render(report), encoding="utf-8")


def _sections(story: Story) -> list[Section]:
    hours = [
        (str(hour), mean, f"{hour}:00, {mean:.1f} min, {count:,} flights")
        for hour, mean, count in _by_hour(story.summary)
    ]
    return [
        Section(
            "Which airlines leave late",
            "Mean departure delay in minutes, of the flights that left. Cancelled flights have no delay.",
            [bars(_by_airline(story))],
        ),
        Section(
            "Delay grows through the day",
            "Mean departure delay in minutes by the hour in which the flight was to leave.",
            [columns(hours, "mean delay by hour of departure")],
        ),
        Section(
            "Airline by hour",
            "Mean departure delay in minutes; hover over a cell for its numbers. "
            f"Cells of fewer than {FEW} flights are left empty.",
            [_heat_map(story)],
        ),
        Section(
            "Who consumed what",
            "Rows each consumer wrote to its file. One was killed half way; the others took over its queues.",
            [bars([(name, float(rows), f"{rows:,} rows") for name, rows in story.consumers])],
        ),
        Section(
            "Nothing was lost on the way",
            "The same totals over distinct flights, computed independently at each place.",
            [_table(story.totals)],
        ),
    ]


def _mean(rows: Iterable[dict[str, Any]]) -> tuple[float | None, int]:
    """Mean departure delay and the number of flights behind it."""
    minutes = count = 0
    for row in rows:
        minutes += row["departure_delay_minutes"] or 0
        count += row["departed"]
    return (minutes / count if count else None), count


def _by_airline(story: Story) -> list[tuple[str, float, str]]:
    found = []
    for code in {row["carrier"] for row in story.summary}:
        mean, count = _mean(row for row in story.summary if row["carrier"] == code)
        if mean is not None:
            found.append(
                (story.airlines.get(code, code), mean, f"{mean:.1f} min, {count:,} flights")
            )
    return sorted(found, key=lambda item: (-item[1], item[0]))


def _by_hour(summary: list[dict[str, Any]]) -> list[tuple[int, float, int]]:
    found = []
    for hour in sorted({row["hour"] for row in summary}):
        mean, count = _mean(row for row in summary if row["hour"] == hour)
        if mean is not None and count >= FEW:
            found.append((hour, mean, count))
    return found


def _heat_map(story: Story) -> Chart:
    rows = {(row["carrier"], row["hour"]): row for row in story.summary}
    names = [(name, code) for code, name in story.airlines.items()]
    order = [name for name, _, _ in _by_airline(story)]
    codes = [code for name in order for n, code in names if n == name]
    hours = [hour for hour, _, _ in _by_hour(story.summary)]

    def cell(row: int, column: int) -> tuple[float | None, str]:
        code, hour = codes[row], hours[column]
        mean, count = _mean([rows[code, hour]] if (code, hour) in rows else [])
        if mean is None or count < FEW:
            return None, "too few flights"
        return mean, f"{story.airlines[code]}, {hour}:00: {mean:.1f} min, {count:,} flights"

    return heat_chart(
        [story.airlines[code] for code in codes],
        [str(hour) for hour in hours],
        cell,
        _STEPS,
        "min",
        "mean delay by airline and hour",
    )


def heat_chart(
    rows: Sequence[str],
    heads: Sequence[str],
    cell: Callable[[int, int], tuple[float | None, str]],
    steps: Sequence[float],
    unit: str = "",
    label: str = "heat map",
) -> Chart:
    """A grid of shaded cells with a legend.

    Args:
        cell: value (None leaves it empty) and hover text, by row and column.
        steps: six values at which the colour changes.
    """
    assert len(steps) == SHADES - 1
    step = 26
    width = (WIDTH - LEFT) / max(1, len(heads))
    marks = [
        text_at(LEFT + (i + 0.5) * width, 14, head, anchor="middle") for i, head in enumerate(heads)
    ]
    for j, name in enumerate(rows):
        y = 22 + j * step
        marks.append(name_at(LEFT - 10, y + 17, name, LEFT - 10, anchor="end", soft=False))
        for i in range(len(heads)):
            value, title = cell(j, i)
            shade = "none" if value is None else f"h{sum(value >= bound for bound in steps)}"
            x = LEFT + i * width + 1
            marks.append(box(shade, x, y, width - 2, step - 2, radius=2, title=title))
    y = 34 + len(rows) * step
    bounds = [f"under {steps[0]:g}", *(f"{a:g}-{b:g}" for a, b in itertools.pairwise(steps))]
    for i, text in enumerate([*bounds, f"over {steps[-1]:g} {unit}".rstrip()]):
        x = LEFT + i * 96
        marks += [box(f"h{i}", x, y, 16, 16, radius=2), text_at(x + 22, y + 13, text)]
    return Chart(y + 22, marks, label)


def _table(totals: dict[str, Totals]) -> ReportTable:
    """One column per place, one row per total."""
    first = next(iter(totals.values()))
    rows: list[list[object]] = [
        [name.replace("_", " "), *(getattr(found, name) for found in totals.values())]
        for name in asdict(first)
    ]
    verdicts = [
        Cell("equal" if found == first else "DIFFERS", found == first)
        for found in list(totals.values())[1:]
    ]
    rows.append([f"compared with {next(iter(totals))}", "", *verdicts])
    return ReportTable(["", *totals], rows)
