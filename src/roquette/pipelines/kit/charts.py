"""Charts of a report as SVG elements: values only, which the template of `report.py` writes and escapes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_COLOURS = ("#3678bd", "#d9822b", "#1a7f4b", "#a854a8", "#c23030", "#5d6b7a")
SHADES = 7  # classes h0 to h6 of the template's style, from little to much
LEFT, WIDTH = 205, 900  # of charts with names at the left


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


def bars(items: Sequence[tuple[str, float, str]]) -> Chart:
    """Horizontal bars: name, length, and the text at the end of the bar."""
    step = 28
    scale = (WIDTH - LEFT - 190) / max((value for _, value, _ in items if value > 0), default=1)
    marks = []
    for index, (name, value, text) in enumerate(items):
        y = index * step
        length = max(1.0, value * scale)
        marks += [
            text_at(LEFT - 10, y + 17, name, anchor="end", soft=False),
            box("bar", LEFT, y + 4, length, 18),
            text_at(LEFT + length + 8, y + 17, text),
        ]
    return Chart(len(items) * step + 4, marks, "bar chart")


def columns(items: Sequence[tuple[str, float, str]], label: str = "column chart") -> Chart:
    """Columns over a light grid: the text below, the height, and what hovering shows."""
    height, left, bottom = 280, 60, 30
    base = height - bottom
    marks, scale = _grid(left, base, max((value for _, value, _ in items), default=1))
    step = (WIDTH - left - 10) / max(1, len(items))
    every = max(1, -(-len(items) * 55 // (WIDTH - left)))  # so that texts below do not overlap
    for index, (name, value, title) in enumerate(items):
        x = left + index * step + step * 0.14
        size = max(1.0, value * scale)
        marks.append(box("bar", x, base - size, step * 0.72, size, title=title))
        if len(name) < 4 or index % every == 0:
            marks.append(text_at(x + step * 0.36, base + 19, name, anchor="middle"))
    return Chart(height, marks, label)


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    label: str = "line chart",
    x_text: Callable[[float], str] = "{:g}".format,
) -> Chart:
    """Points (x, y) joined to lines, one per name, with a legend; y starts at 0."""
    height, left, bottom = 300, 60, 52
    base = height - bottom
    points = [point for each in series.values() for point in each]
    low, high = min(points, default=(0.0, 0.0))[0], max(points, default=(1.0, 0.0))[0]
    marks, scale = _grid(left, base, max((y for _, y in points), default=1))
    across = (WIDTH - left - 20) / ((high - low) or 1)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0) if high > low else (0.0,):
        x = low + (high - low) * share
        anchor = "end" if share == 1 else "middle"
        marks.append(text_at(left + (x - low) * across, base + 19, x_text(x), anchor=anchor))
    for index, (name, each) in enumerate(series.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        path = " ".join(
            f"{left + (x - low) * across:.1f},{base - y * scale:.1f}" for x, y in sorted(each)
        )
        x = left + index * 150
        legend = {"x": x, "y": height - 16, "width": 14, "height": 4, "fill": colour}
        marks += [
            Shape("polyline", {"class": "line", "stroke": colour, "points": path}),
            Shape("rect", legend),
            text_at(x + 20, height - 10, name[:18]),
        ]
    return Chart(height, marks, label)


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
