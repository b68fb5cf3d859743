"""A self-contained HTML page of facts, tables and plots; the plots are SVG drawn right here."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

_RAMP = ("#e4eef9", "#bcd6f0", "#8fbae4", "#5f9ad4", "#3678bd", "#1c5796", "#0d386b")
_LINES = ("#3678bd", "#d9822b", "#1a7f4b", "#a854a8", "#c23030", "#5d6b7a")
_STYLE_RAMP = "".join(f".h{i}{{fill:{colour}}}" for i, colour in enumerate(_RAMP))
_STYLE_RAMP += "@media (prefers-color-scheme:dark){"  # on a dark page, much is bright
_STYLE_RAMP += "".join(f".h{i}{{fill:{colour}}}" for i, colour in enumerate(reversed(_RAMP))) + "}"
_STYLE = """
:root{--ink:#1c2733;--soft:#5d6b7a;--line:#dde3ea;--page:#fff;--card:#f6f8fa;--bar:#3678bd;--good:#1a7f4b;
--bad:#b3261e}
@media (prefers-color-scheme:dark){:root{--ink:#e6ebf0;--soft:#9aa8b6;--line:#333d48;--page:#14191f;
--card:#1c232b;--bar:#5f9ad4;--good:#57c78f;--bad:#ff8a80}}
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
svg .line{fill:none;stroke-width:2}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:7px 10px;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{font-weight:600;font-size:14px;color:var(--soft)}
.good{color:var(--good);font-weight:600}.bad{color:var(--bad);font-weight:600}
"""
LEFT, WIDTH = 205, 900  # of plots with names at the left


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, a sentence, and HTML made by the functions below."""

    title: str
    text: str
    content: str


@dataclass(slots=True)
class Page:
    """What a report tells. `facts` are (value, what it is)."""

    title: str
    lead: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    tab: str = ""  # the browser's title; default is `title`


@dataclass(frozen=True, slots=True)
class Cell:
    """A table's cell that is judged: shown in green or red."""

    text: str
    good: bool


def render(page: Page) -> str:
    """The page as one file with everything in it."""
    facts = "".join(
        f'<div class="fact"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for value, name in page.facts
    )
    sections = "".join(
        f'<h2>{escape(each.title)}</h2><p class="soft">{escape(each.text)}</p>'
        f'<div class="wide">{each.content}</div>'
        for each in page.sections
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(page.tab or page.title)}</title><style>{_STYLE}{_STYLE_RAMP}</style></head><body>"
        f'<main><h1>{escape(page.title)}</h1><p class="soft">{escape(page.lead)}</p>'
        f'<div class="facts">{facts}</div>{sections}</main></body></html>'
    )


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows below a head; whole numbers get separators, a `Cell` its colour."""
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, Cell):
        return f'<td class="{"good" if value.good else "bad"}">{escape(value.text)}</td>'
    if isinstance(value, int) and not isinstance(value, bool):
        return f"<td>{value:,}</td>"
    if isinstance(value, float):
        return f"<td>{value:,.1f}</td>"
    return f"<td>{escape('' if value is None else str(value))}</td>"


def bars(items: Sequence[tuple[str, float, str]]) -> str:
    """Horizontal bars: name, length, and the text at the end of the bar."""
    step = 28
    scale = (WIDTH - LEFT - 190) / max((value for _, value, _ in items if value > 0), default=1)
    parts = []
    for index, (name, value, text) in enumerate(items):
        y = index * step
        length = max(1.0, value * scale)
        parts.append(
            f'<text x="{LEFT - 10}" y="{y + 17}" text-anchor="end">{escape(name)}</text>'
            f'<rect class="bar" x="{LEFT}" y="{y + 4}" width="{length:.1f}" height="18" rx="3"/>'
            f'<text class="soft" x="{LEFT + length + 8:.1f}" y="{y + 17}">{escape(text)}</text>'
        )
    return _svg(WIDTH, len(items) * step + 4, "".join(parts), "bar chart")


def columns(items: Sequence[tuple[str, float, str]], label: str = "column chart") -> str:
    """Columns over a light grid: the text below, the height, and what hovering tells."""
    height, left, bottom = 280, 60, 30
    step_value, top = _grid(max((value for _, value, _ in items), default=1))
    scale, base = (height - bottom - 20) / top, height - bottom
    parts = [_grid_lines(left, base, scale, step_value, top)]
    step = (WIDTH - left - 10) / max(1, len(items))
    every = max(1, -(-len(items) * 55 // (WIDTH - left)))  # so that texts below do not overlap
    for index, (name, value, title) in enumerate(items):
        x = left + index * step + step * 0.14
        size = max(1.0, value * scale)
        parts.append(
            f'<rect class="bar" x="{x:.1f}" y="{base - size:.1f}" width="{step * 0.72:.1f}" '
            f'height="{size:.1f}" rx="3"><title>{escape(title)}</title></rect>'
        )
        if len(name) < 4 or index % every == 0:
            parts.append(
                f'<text class="soft" x="{x + step * 0.36:.1f}" y="{base + 19}" '
                f'text-anchor="middle">{escape(name)}</text>'
            )
    return _svg(WIDTH, height, "".join(parts), label)


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    label: str = "line chart",
    x_text: Callable[[float], str] = "{:g}".format,
) -> str:
    """Points (x, y) joined to lines, one per name, with a legend; y starts at 0."""
    height, left, bottom = 300, 60, 52
    points = [point for each in series.values() for point in each]
    low, high = (
        min((x for x, _ in points), default=0.0),
        max((x for x, _ in points), default=1.0),
    )
    step_value, top = _grid(max((y for _, y in points), default=1))
    scale, base = (height - bottom - 20) / top, height - bottom
    across = (WIDTH - left - 20) / ((high - low) or 1)
    parts = [_grid_lines(left, base, scale, step_value, top)]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = low + (high - low) * share
        parts.append(
            f'<text class="soft" x="{left + (x - low) * across:.1f}" y="{base + 19}" '
            f'text-anchor="{"end" if share == 1 else "middle"}">{escape(x_text(x))}</text>'
        )
    for index, (name, each) in enumerate(series.items()):
        colour = _LINES[index % len(_LINES)]
        path = " ".join(
            f"{left + (x - low) * across:.1f},{base - y * scale:.1f}" for x, y in sorted(each)
        )
        parts.append(f'<polyline class="line" stroke="{colour}" points="{path}"/>')
        x = left + index * 150
        parts.append(
            f'<rect x="{x}" y="{height - 16}" width="14" height="4" fill="{colour}"/>'
            f'<text class="soft" x="{x + 20}" y="{height - 10}">{escape(name[:18])}</text>'
        )
    return _svg(WIDTH, height, "".join(parts), label)


def heat_map(
    rows: Sequence[str],
    heads: Sequence[str],
    cell: Callable[[int, int], tuple[float | None, str]],
    steps: Sequence[float],
    unit: str = "",
    label: str = "heat map",
) -> str:
    """A grid of shaded cells with a legend.

    Args:
        cell: value (None leaves it empty) and hover text, by row and column.
        steps: six values at which the colour changes.
    """
    assert len(steps) == len(_RAMP) - 1
    step = 26
    width = (WIDTH - LEFT) / max(1, len(heads))
    parts = [
        f'<text class="soft" x="{LEFT + (i + 0.5) * width:.1f}" y="14" text-anchor="middle">'
        f"{escape(head)}</text>"
        for i, head in enumerate(heads)
    ]
    for j, name in enumerate(rows):
        y = 22 + j * step
        parts.append(f'<text x="{LEFT - 10}" y="{y + 17}" text-anchor="end">{escape(name)}</text>')
        for i in range(len(heads)):
            value, title = cell(j, i)
            shade = "none" if value is None else f"h{sum(value >= bound for bound in steps)}"
            parts.append(
                f'<rect class="{shade}" x="{LEFT + i * width + 1:.1f}" y="{y}" width="{width - 2:.1f}" '
                f'height="{step - 2}" rx="2"><title>{escape(title)}</title></rect>'
            )
    y = 34 + len(rows) * step
    bounds = [f"under {steps[0]:g}", *(f"{a:g}-{b:g}" for a, b in itertools.pairwise(steps))]
    for i, text in enumerate([*bounds, f"over {steps[-1]:g} {unit}".rstrip()]):
        x = LEFT + i * 96
        parts.append(
            f'<rect class="h{i}" x="{x}" y="{y}" width="16" height="16" rx="2"/>'
            f'<text class="soft" x="{x + 22}" y="{y + 13}">{escape(text)}</text>'
        )
    return _svg(WIDTH, y + 22, "".join(parts), label)


def _grid(largest: float) -> tuple[float, float]:
    """A round distance between grid lines, and the top line: 4 to 10 lines over `largest`."""
    step = 1.0
    if largest <= 0:
        return step, 4 * step
    while step * 10 < largest:
        step *= 10
    while step * 1 > largest:
        step /= 10
    for factor in (0.1, 0.2, 0.5, 1, 2):
        if largest / (step * factor) <= 8:
            step *= factor
            break
    return step, step * max(1, -(-largest // step))


def _grid_lines(left: float, base: float, scale: float, step: float, top: float) -> str:
    parts = []
    for index in range(round(top / step) + 1):
        value = index * step
        y = base - value * scale
        parts.append(
            f'<line class="axis" x1="{left}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="soft" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{_short(value)}</text>'
        )
    return "".join(parts)


def _short(value: float) -> str:
    for bound, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= bound:
            return f"{value / {'G': 1e9, 'M': 1e6, 'k': 1e3}[letter]:g}{letter}"
    return f"{value:g}"


def _svg(width: float, height: float, content: str, label: str) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">{content}</svg>'
