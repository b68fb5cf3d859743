"""Drawings made here, as SVG: a line of the last points, lines over time, a share of a whole, a strip of times."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import htpy as h
from htpy import Element, Node

from roquette.console.parts import rate, span

GAP_MS: Final = 10_000
"""Nobody looked for so long: the line is broken, since what was between is not known."""

_SVG: Final = {"preserveAspectRatio": "none", "role": "img"}
_WIDTH, _HEIGHT, _EDGE, _BELOW = 720, 160, 8, 20


def spark(points: Sequence[float], label: str) -> Element:
    """A line of the last points, without axes."""
    top, last = max([*points, 1e-9]), max(1, len(points) - 1)
    path = " ".join(
        f"{'L' if at else 'M'}{100 * at / last:.1f},{19 - 17 * value / top:.1f}"
        for at, value in enumerate(points)
    )
    line = h.path(d=path) if len(points) > 1 else None
    return h.svg(".spark", _SVG, viewBox="0 0 100 20", aria_label=label)[line]


def chart(
    series: Sequence[tuple[str, Sequence[float]]], times: Sequence[int], label: str
) -> Element:
    """Lines over time, by name; what is under the pointer console.js reads from `data-points`."""
    top = _ceiling(max([value for _, values in series for value in values] or [1.0]))
    first, last = (times[0], times[-1]) if times else (0, 1)
    across = max(1, last - first)

    def x(at: int) -> int:
        return round(_EDGE + (_WIDTH - 2 * _EDGE) * (at - first) / across)

    def y(value: float) -> int:
        return round(_EDGE + (_HEIGHT - _BELOW - _EDGE) * (1 - value / top))

    def lines(name: str, values: Sequence[float]) -> Node:
        """Steps from point to point: they are shorter than places, and the same ones come again."""
        drawn: list[list[tuple[int, int]]] = []
        before = -GAP_MS
        for at, value in zip(times, values, strict=True):
            if at - before > GAP_MS or not drawn:
                drawn.append([])
            drawn[-1].append((x(at), y(value)))
            before = at
        paths = [
            f"M{part[0][0]},{part[0][1]}l"
            + " ".join(f"{b[0] - a[0]},{b[1] - a[1]}" for a, b in pairwise(part))
            for part in drawn
            if len(part) > 1
        ]
        begins = [part[0][0] for part in drawn if len(part) > 1]
        closed = [f"{path}V{y(0)}H{at}Z" for path, at in zip(paths, begins, strict=True)]
        area, line = " ".join(closed), " ".join(paths)
        return [h.path(f".area.{name}", d=area), h.path(f".line.{name}", d=line)]

    def level(value: float, kind: str) -> Element:
        return h.line(f".{kind}", x1=_EDGE, x2=_WIDTH - _EDGE, y1=y(value), y2=y(value))

    # Figures are short, three digits and whole seconds: the part is sent every two seconds.
    shown = [[name, [_short(value) for value in values]] for name, values in series]
    data = {"t": [round(at, -3) for at in times], "s": shown}
    points = json.dumps(data, separators=(",", ":"))
    drawing = h.svg(_SVG, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", aria_label=label)[
        level(top, "gridline"),
        level(top / 2, "gridline"),
        level(0, "axis"),
        (lines(name, values) for name, values in series if len(values) > 1),
        h.line(".cursor", x1=-9, x2=-9, y1=_EDGE, y2=_HEIGHT - _BELOW),
    ]
    begun = f"{span(across)} ago" if times else ""
    return h.figure(".chart", data_points=points)[
        drawing,
        h.div(".ylabels", aria_hidden="true")[h.span[rate(top)], h.span[rate(top / 2)]],
        h.div(".xlabels", aria_hidden="true")[h.span[begun], h.span["now"]],
        h.output(".reading", aria_live="off"),
    ]


def _short(value: float) -> float:
    """Three digits of it."""
    return round(float(f"{value:.3g}"), None if value >= 10 else 2)


def _ceiling(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    return next(power * step for step in (1, 2, 5, 10) if value <= power * step)


def bar(part: float, label: str) -> Element:
    """A share of a whole, as the browser's own meter, which reads itself out."""
    bounds = {"min": "0", "max": "1", "low": "0.75", "high": "0.9", "optimum": "0"}
    value = f"{max(0.0, part):.3f}"
    return h.span(".bar")[h.meter(bounds, value=value, aria_label=label), f"{part:.0%}"]


def strip(parts: Sequence[tuple[int, int, int]], label: str) -> Element:
    """Times one after the other: number of its colour, first and last ms of each."""
    first, last = (parts[0][1], parts[-1][2]) if parts else (0, 1)
    scale = 700 / max(1, last - first)

    def piece(colour: int, begin: int, end: int) -> Element:
        x, width = f"{scale * (begin - first):.1f}", f"{max(1.0, scale * (end - begin)):.1f}"
        return h.rect(f".m{min(6, colour)}", x=x, y="0", height="26", width=width)

    pieces = (piece(*each) for each in parts)
    return h.svg(_SVG, viewBox="0 0 700 26", aria_label=label)[pieces]
