"""Report of a run for people: facts, tables and charts as values, and the one template that makes them a page.

The page is a single file that loads nothing; the template escapes every value.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from roquette.base.options import plural
from roquette.errors import ConfigError

if TYPE_CHECKING:
    from jinja2 import Template


# Charts of a report as SVG elements: values only, which the template of `report.py` writes and escapes.


_COLOURS = ("#3678bd", "#d9822b", "#1a7f4b", "#a854a8", "#c23030", "#5d6b7a")
SHADES = 7  # classes h0 to h6 of the template's style, from little to much
LEFT, WIDTH = 205, 900  # of charts with names at the left
_LETTER = 8.4  # width of a text's character, at most: fonts differ, and DejaVu's is wide
_DOTTED = 60  # points of a series that are marked one by one, so that a single one is seen


@dataclass(frozen=True, slots=True)
class Shape:
    """An SVG element: attributes, the text in it, and what hovering over it shows."""

    tag: str
    attributes: dict[str, object]
    text: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing of `WIDTH` by `height`; `label` is for people who cannot see it."""

    height: float
    marks: list[Shape]
    label: str
    width: int = WIDTH

    def __bool__(self) -> bool:
        return bool(self.marks)


def bars(items: Sequence[tuple[str, float, str]]) -> Chart:
    """Horizontal bars: name, length, and the text at the end of the bar."""
    step = 28
    after = max((len(text) for _, _, text in items), default=0) * _LETTER + 16
    room = max(60, WIDTH - LEFT - after)
    scale = room / max((value for _, value, _ in items if value > 0), default=1)
    marks = []
    for index, (name, value, text) in enumerate(items):
        y = index * step
        length = max(1.0, value * scale)
        marks += [
            name_at(LEFT - 10, y + 17, name, LEFT - 10, anchor="end", soft=False),
            box("bar", LEFT, y + 4, length, 18),
            name_at(LEFT + length + 8, y + 17, text, WIDTH - LEFT - room),
        ]
    return Chart(len(items) * step + 4, marks, "bar chart")


def columns(items: Sequence[tuple[str, float, str]], label: str = "column chart") -> Chart:
    """Columns over a light grid: the text below, the height, and what hovering shows."""
    height, left, bottom = 280, 60, 30
    base = height - bottom
    marks, scale = _grid(left, base, max((value for _, value, _ in items), default=1))
    step = (WIDTH - left - 10) / max(1, len(items))
    free = 0.0  # where the next text may begin
    for index, (name, value, title) in enumerate(items):
        x = left + index * step + step * 0.14
        size = max(1.0, value * scale)
        marks.append(box("bar", x, base - size, step * 0.72, size, title=title))
        middle, half = x + step * 0.36, len(name) * _LETTER / 2
        middle = min(max(middle, half), WIDTH - half)
        if middle - half >= free:
            marks.append(text_at(middle, base + 19, name, anchor="middle"))
            free = middle + half + 6
    return Chart(height, marks, label)


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    label: str = "line chart",
    x_text: Callable[[float], str] = "{:g}".format,
) -> Chart:
    """Points (x, y) joined to lines, one per name, with a legend; y starts at 0. Where there are few, each has a dot."""
    per_row, row_height = 4, 20
    rows = -(-len(series) // per_row)
    base, left = 248, 60
    height = base + 36 + max(1, rows) * row_height
    points = [point for each in series.values() for point in each]
    low, high = min(points, default=(0.0, 0.0))[0], max(points, default=(1.0, 0.0))[0]
    marks, scale = _grid(left, base, max((y for _, y in points), default=1))
    begin, across = left + 10.0, (WIDTH - left - 30) / ((high - low) or 1)
    if high == low:  # one moment is in the middle
        begin, across = (left + WIDTH) / 2, 0.0
    marks += _below(low, high, lambda x: begin + (x - low) * across, base + 19, x_text)
    for index, (name, each) in enumerate(series.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        spots = [
            (round(begin + (x - low) * across, 1), round(base - y * scale, 1))
            for x, y in sorted(each)
        ]
        path = " ".join(f"{x},{y}" for x, y in spots)
        look: dict[str, object] = {"data-series": name, "stroke": colour, "points": path}
        marks.append(Shape("polyline", {"class": "line", **look}))
        if len(spots) <= _DOTTED:
            dot = {"data-series": name, "r": 3, "fill": colour}
            marks += [Shape("circle", {**dot, "cx": x, "cy": y}) for x, y in spots]
        row, column = divmod(index, per_row)
        each_wide = (WIDTH - left) / per_row
        at, below = left + column * each_wide, base + 36 + row * row_height
        legend: dict[str, object] = {"x": at, "y": below + 4, "width": 14, "height": 4}
        marks.append(Shape("rect", {"class": "key", **legend, "fill": colour}))
        marks.append(name_at(at + 20, below + 10, name, each_wide - 26))
    return Chart(height, marks, label)


def _below(
    low: float,
    high: float,
    place: Callable[[float], float],
    y: float,
    x_text: Callable[[float], str],
) -> list[Shape]:
    """Texts below a line chart: five at most, none over another, none twice."""
    marks, label, free = [], "", 0.0
    for share in (0.0, 0.25, 0.5, 0.75, 1.0) if high > low else (0.0,):
        value = low + (high - low) * share
        text = x_text(value)
        half = len(text) * _LETTER / 2
        x = min(max(place(value), half), WIDTH - half)
        if text != label and x - half >= free:
            marks.append(text_at(x, y, text, anchor="middle"))
            label, free = text, x + half + 6
    return marks


def name_at(
    x: float, y: float, name: str, width: float, *, anchor: str | None = None, soft: bool = True
) -> Shape:
    """A text that fits into `width`: of a longer one the middle is left out, and hovering shows it whole."""
    most = max(3, int(width / _LETTER))
    if len(name) <= most:
        return text_at(x, y, name, anchor=anchor, soft=soft)
    tail = (most - 1) // 2
    short = f"{name[: most - 1 - tail]}…{name[len(name) - tail :]}"
    shape = text_at(x, y, short, anchor=anchor, soft=soft)
    return Shape(shape.tag, shape.attributes, short, title=name)


def text_at(
    x: float, y: float, text: str, *, anchor: str | None = None, soft: bool = True
) -> Shape:
    style = "soft" if soft else None  # the template leaves out what is None
    place = {"x": round(x, 1), "y": round(y, 1), "text-anchor": anchor}
    return Shape("text", {"class": style, **place}, text)


def box(
    style: str, x: float, y: float, width: float, height: float, *, radius: int = 3, title: str = ""
) -> Shape:
    place = {"x": x, "y": y, "width": width, "height": height}
    rounded = {name: round(value, 1) for name, value in place.items()}
    return Shape("rect", {"class": style, **rounded, "rx": radius}, title=title)


def _grid(left: float, base: float, largest: float) -> tuple[list[Shape], float]:
    """Lines with their values up to the first at or over `largest`, and the height of one unit."""
    step, top = _steps(largest)
    scale = (base - 20) / top
    marks = []
    for index in range(round(top / step) + 1):
        y = round(base - index * step * scale, 1)
        marks += [
            Shape("line", {"class": "axis", "x1": left, "x2": WIDTH, "y1": y, "y2": y}),
            text_at(left - 8, y + 4, _short(index * step), anchor="end"),
        ]
    return marks, scale


def _steps(largest: float) -> tuple[float, float]:
    """A round distance between grid lines, and the top line: 4 to 10 lines over `largest`."""
    step = 1.0
    if largest <= 0:
        return step, 4 * step
    while step * 10 < largest:
        step *= 10
    while step > largest:
        step /= 10
    step *= next(factor for factor in (0.1, 0.2, 0.5, 1, 2) if largest / (step * factor) <= 8)
    return step, step * max(1, -(-largest // step))


def _short(value: float) -> str:
    for bound, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= bound:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


_QUANTITY = re.compile(
    r"–|-?[\d,]+(\.\d+)?( (%|ms|s|min|h|d|B|[KMGT]iB))?"
)  # of quantities.py, too
MOST_ROWS = 50  # of a table on a page; summary.json has all
Column = str | Callable[[Any], object]  # a key of a row, or what makes the cell of it


@dataclass(frozen=True, slots=True)
class Cell:
    """A table's cell that is judged: shown in green or red."""

    text: str
    good: bool


@dataclass(frozen=True, slots=True)
class ReportTable:
    """Rows below a head; numbers get separators, a `Cell` its colour."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def numbers(self) -> frozenset[int]:
        """The columns, from 0, of numbers and quantities, which stand at the right; verdicts may be among them."""
        return frozenset(
            i for i in range(len(self.head)) if _are_numbers([r[i] for r in self.rows])
        )


def _are_numbers(cells: Sequence[object]) -> bool:
    plain = [cell for cell in cells if not isinstance(cell, Cell) and cell not in (None, "")]
    if not plain:
        plain = [cell.text for cell in cells if isinstance(cell, Cell)]
    return bool(plain) and all(
        _QUANTITY.fullmatch(cell) is not None
        if isinstance(cell, str)
        else isinstance(cell, (int, float)) and not isinstance(cell, bool)
        for cell in plain
    )


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, a sentence, and below it tables, charts and paragraphs."""

    title: str
    text: str
    parts: Sequence[ReportTable | Chart | str]


@dataclass(slots=True)
class Report:
    """A whole page. `facts` are (value, what it is); `tab` is the browser's title, default is `title`."""

    title: str
    lead: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    tab: str = ""

    def count(self, number: int, noun: str, rest: str = "") -> None:
        """Add the fact of how many there are: the noun is put into the plural, `rest` comes behind it."""
        self.facts.append((f"{number:,}", plural(number, noun) + rest))

    def add(self, title: str, text: str, *parts: ReportTable | Chart | str) -> None:
        """Add a section, unless nothing of its parts is there to be shown."""
        if any(parts):
            self.sections.append(Section(title, text, [part for part in parts if part]))


def table_of(
    rows: Sequence[Any], columns: Mapping[str, Column], most: int | None = MOST_ROWS
) -> ReportTable:
    """The first `most` rows (None: all), by columns: the head, and what is under it."""
    cells = [
        [row[column] if isinstance(column, str) else column(row) for column in columns.values()]
        for row in rows[:most]
    ]
    return ReportTable(list(columns), cells)


def render(report: Report) -> str:
    """The page. Raises ConfigError when jinja2 is not installed."""
    page: str = _template().render(report=report)
    return page


@cache
def _template() -> "Template":
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise ConfigError('jinja2 is not installed: pip install "roquette[spark]"') from None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["shown"] = shown
    text = (
        files("roquette_spark.pipelines.kit").joinpath("report.html.j2").read_text(encoding="utf-8")
    )
    return environment.from_string(text)


def shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return "" if value is None else str(value)
