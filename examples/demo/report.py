"""report.html: one file with everything in it; the plots are SVG drawn right here."""

import itertools
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from examples.demo.flights import Totals

FEW = 30  # a mean of fewer flights says nothing: such cells stay empty
_RAMP = ("#e4eef9", "#bcd6f0", "#8fbae4", "#5f9ad4", "#3678bd", "#1c5796", "#0d386b")
_STYLE_RAMP = "".join(f".h{i}{{fill:{colour}}}" for i, colour in enumerate(_RAMP))
_STYLE_RAMP += "@media (prefers-color-scheme:dark){"  # on a dark page, much is bright
_STYLE_RAMP += "".join(f".h{i}{{fill:{colour}}}" for i, colour in enumerate(reversed(_RAMP))) + "}"
_STEPS = (5, 10, 15, 20, 30, 40)  # minutes between the colours

_STYLE = """
:root{--ink:#1c2733;--soft:#5d6b7a;--line:#dde3ea;--page:#fff;--card:#f6f8fa;--bar:#3678bd;--good:#1a7f4b}
@media (prefers-color-scheme:dark){:root{--ink:#e6ebf0;--soft:#9aa8b6;--line:#333d48;--page:#14191f;
--card:#1c232b;--bar:#5f9ad4;--good:#57c78f}}
*{box-sizing:border-box}
body{font:16px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--page);margin:0}
main{max-width:960px;margin:0 auto;padding:32px 20px 64px}
h1{font-size:30px;line-height:1.2;margin:0 0 8px}h2{font-size:20px;margin:44px 0 4px}
p{margin:6px 0 14px;max-width:70ch}.soft{color:var(--soft)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:24px 0}
.fact{background:var(--card);border-radius:8px;padding:14px 16px}
.fact b{display:block;font-size:24px;line-height:1.25;font-variant-numeric:tabular-nums}
.fact span{color:var(--soft);font-size:14px}
.wide{overflow-x:auto}svg{display:block;width:100%;height:auto;min-width:620px}
svg text{fill:var(--ink);font:13px system-ui,sans-serif}svg .soft{fill:var(--soft)}
svg .bar{fill:var(--bar)}svg .axis{stroke:var(--line)}svg .none{fill:var(--card)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:7px 10px;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{font-weight:600;font-size:14px;color:var(--soft)}
.good{color:var(--good);font-weight:600}
"""


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
    facts = "".join(
        f'<div class="fact"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for value, name in story.facts
    )
    sections = [
        _section(
            "Which airlines leave late",
            "Mean departure delay in minutes, of the flights that left. Cancelled flights have no delay.",
            _bars(_by_airline(story)),
        ),
        _section(
            "Delay grows through the day",
            "Mean departure delay in minutes by the hour in which the flight was to leave.",
            _columns(_by_hour(story.summary)),
        ),
        _section(
            "Airline by hour",
            "Mean departure delay in minutes; hover over a cell for its numbers. "
            f"Cells of fewer than {FEW} flights are left empty.",
            _heat_map(story),
        ),
        _section(
            "Who consumed what",
            "Rows each consumer wrote to its file. One was killed half way; the others took over its queues.",
            _bars([(name, float(rows), f"{rows:,} rows") for name, rows in story.consumers]),
        ),
        _section(
            "Nothing was lost on the way",
            "The same totals over distinct flights, computed independently at each place.",
            _table(story.totals),
        ),
    ]
    path.write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Flights through Roquette</title><style>{_STYLE}{_STYLE_RAMP}</style></head><body><main>"
        "<h1>New York flights of 2013, by way of Roquette</h1>"
        '<p class="soft">Every flight travelled as one message through two brokers to three consumers, '
        "and through PySpark into a Parquet table. The plots are drawn from that table.</p>"
        f'<div class="facts">{facts}</div>{"".join(sections)}</main></body></html>',
        encoding="utf-8",
    )


def _section(title: str, text: str, content: str) -> str:
    return f'<h2>{escape(title)}</h2><p class="soft">{escape(text)}</p><div class="wide">{content}</div>'


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


def _bars(items: list[tuple[str, float, str]]) -> str:
    """Horizontal bars: name, length, and the text at the end of the bar."""
    left, width, step = 205, 900, 28
    scale = (width - left - 190) / max((value for _, value, _ in items), default=1)
    parts = []
    for index, (name, value, text) in enumerate(items):
        y = index * step
        length = max(1.0, value * scale)
        parts.append(
            f'<text x="{left - 10}" y="{y + 17}" text-anchor="end">{escape(name)}</text>'
            f'<rect class="bar" x="{left}" y="{y + 4}" width="{length:.1f}" height="18" rx="3"/>'
            f'<text class="soft" x="{left + length + 8:.1f}" y="{y + 17}">{escape(text)}</text>'
        )
    return _svg(width, len(items) * step + 4, "".join(parts), "bar chart")


def _columns(items: list[tuple[int, float, int]]) -> str:
    """Columns by hour with a light grid."""
    width, height, left, bottom = 900, 280, 40, 30
    top = max(10, -(-int(max((mean for _, mean, _ in items), default=1) + 1) // 5) * 5)
    scale = (height - bottom - 20) / top
    base = height - bottom
    step = (width - left - 10) / max(1, len(items))
    parts = []
    for value in range(0, top + 1, 5):
        y = base - value * scale
        parts.append(
            f'<line class="axis" x1="{left}" x2="{width}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="soft" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{value}</text>'
        )
    for index, (hour, mean, count) in enumerate(items):
        x = left + index * step + step * 0.14
        size = max(1.0, mean * scale)
        parts.append(
            f'<rect class="bar" x="{x:.1f}" y="{base - size:.1f}" width="{step * 0.72:.1f}" '
            f'height="{size:.1f}" rx="3"><title>{hour}:00, {mean:.1f} min, {count:,} flights</title></rect>'
            f'<text class="soft" x="{x + step * 0.36:.1f}" y="{base + 19}" text-anchor="middle">{hour}</text>'
        )
    return _svg(width, height, "".join(parts), "mean delay by hour of departure")


def _heat_map(story: Story) -> str:
    cells = {(row["carrier"], row["hour"]): row for row in story.summary}
    names = [(name, code) for code, name in story.airlines.items()]
    order = [name for name, _, _ in _by_airline(story)]
    codes = [code for name in order for n, code in names if n == name]
    hours = [hour for hour, _, _ in _by_hour(story.summary)]
    left, width, step = 205, 900, 26
    cell = (width - left) / max(1, len(hours))
    parts = [
        f'<text class="soft" x="{left + (i + 0.5) * cell:.1f}" y="14" text-anchor="middle">{hour}</text>'
        for i, hour in enumerate(hours)
    ]
    for j, code in enumerate(codes):
        y = 22 + j * step
        name = escape(story.airlines[code])
        parts.append(f'<text x="{left - 10}" y="{y + 17}" text-anchor="end">{name}</text>')
        for i, hour in enumerate(hours):
            mean, count = _mean([cells[code, hour]] if (code, hour) in cells else [])
            known = mean is not None and count >= FEW
            shade = f"h{_shade(mean or 0)}" if known else "none"
            title = (
                f"{name}, {hour}:00: {mean:.1f} min, {count:,} flights"
                if known
                else "too few flights"
            )
            parts.append(
                f'<rect class="{shade}" x="{left + i * cell + 1:.1f}" y="{y}" width="{cell - 2:.1f}" '
                f'height="{step - 2}" rx="2"><title>{title}</title></rect>'
            )
    y = 34 + len(codes) * step
    bounds = [f"under {_STEPS[0]}", *(f"{a}-{b}" for a, b in itertools.pairwise(_STEPS))]
    for i, text in enumerate([*bounds, f"over {_STEPS[-1]} min"]):
        x = left + i * 96
        parts.append(
            f'<rect class="h{i}" x="{x}" y="{y}" width="16" height="16" rx="2"/>'
            f'<text class="soft" x="{x + 22}" y="{y + 13}">{text}</text>'
        )
    return _svg(width, y + 22, "".join(parts), "mean delay by airline and hour")


def _shade(minutes: float) -> int:
    return sum(minutes >= step for step in _STEPS)


def _table(totals: dict[str, Totals]) -> str:
    """One column per place, one row per total."""
    first = next(iter(totals.values()))
    head = "".join(f"<th>{escape(place)}</th>" for place in ["", *totals])
    body = ""
    for name in asdict(first):
        cells = "".join(f"<td>{getattr(found, name):,}</td>" for found in totals.values())
        body += f"<tr><td>{escape(name.replace('_', ' '))}</td>{cells}</tr>"
    verdicts = "".join(
        '<td class="good">equal</td>' if found == first else "<td>DIFFERS</td>"
        for found in list(totals.values())[1:]
    )
    body += f"<tr><td>compared with {escape(next(iter(totals)))}</td><td></td>{verdicts}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _svg(width: float, height: float, content: str, label: str) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">{content}</svg>'
