"""Drawings made here, as SVG: a line of the last points, lines over time, a share of a whole, a strip of times."""

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import htpy as h
from htpy import Element

from roquette.console.parts import rate, span

GAP_MS: Final = 10_000
"""Nobody looked for so long: the line is broken, since what was between is not known."""

_WIDTH, _HEIGHT, _EDGE, _BELOW = 720, 160, 8, 20


def spark(points: Sequence[float], label: str) -> Element:
    """A line of the last points, without axes."""
    top, last = max([*points, 1e-9]), max(1, len(points) - 1)
    path = " ".join(
        f"{'L' if at else 'M'}{100 * at / last:.1f},{19 - 17 * value / top:.1f}"
        for at, value in enumerate(points)
    )
    return h.svg(
        ".spark", viewBox="0 0 100 20", preserveAspectRatio="none", role="img", aria_label=label
    )[h.path(d=path) if len(points) > 1 else None]


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

    def path(values: Sequence[float], closed: bool) -> str:
        """Steps from point to point: they are shorter than places, and the same ones come again."""
        drawn: list[list[tuple[int, int]]] = []
        before = -GAP_MS
        for at, value in zip(times, values, strict=True):
            if at - before > GAP_MS or not drawn:
                drawn.append([])
            drawn[-1].append((x(at), y(value)))
            before = at
        return " ".join(
            f"M{part[0][0]},{part[0][1]}l"
            + " ".join(f"{b[0] - a[0]},{b[1] - a[1]}" for a, b in pairwise(part))
            + (f"V{y(0)}H{part[0][0]}Z" if closed else "")
            for part in drawn
            if len(part) > 1
        )

    def level(value: float, kind: str) -> Element:
        at = str(y(value))
        return h.line(f".{kind}", x1=_EDGE, x2=_WIDTH - _EDGE, y1=at, y2=at)

    # Figures are short, three digits and whole seconds: the part is sent every two seconds.
    shown = [[name, [_short(value) for value in values]] for name, values in series]
    seconds = [round(at, -3) for at in times]
    return h.figure(
        ".chart",
        data_points=json.dumps({"t": seconds, "s": shown}, separators=(",", ":")),
        data_morph="chart",
    )[
        h.svg(
            viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
            preserveAspectRatio="none",
            role="img",
            aria_label=label,
        )[
            level(top, "gridline"),
            level(top / 2, "gridline"),
            level(0, "axis"),
            (
                (
                    h.path(f".area.{name}", d=path(values, True)),
                    h.path(f".line.{name}", d=path(values, False)),
                )
                for name, values in series
                if len(values) > 1
            ),
            h.line(".cursor", x1=-9, x2=-9, y1=_EDGE, y2=_HEIGHT - _BELOW),
        ],
        h.div(".ylabels", aria_hidden="true")[h.span[rate(top)], h.span[rate(top / 2)]],
        h.div(".xlabels", aria_hidden="true")[
            h.span[f"{span(across)} ago" if times else ""], h.span["now"]
        ],
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
    return h.span(".bar")[
        h.meter(
            min=0,
            max=1,
            low="0.75",
            high="0.9",
            optimum="0",
            value=f"{max(0.0, part):.3f}",
            aria_label=label,
        ),
        f"{part:.0%}",
    ]


def strip(parts: Iterable[tuple[int, int, int]], label: str) -> Element:
    """Times one after the other: number of its colour, first and last ms of each."""
    found = list(parts)
    first, last = (found[0][1], found[-1][2]) if found else (0, 1)
    across = max(1, last - first)
    return h.svg(
        ".strip", viewBox="0 0 700 26", preserveAspectRatio="none", role="img", aria_label=label
    )[
        (
            h.rect(
                f".m{min(6, colour)}",
                x=f"{700 * (begin - first) / across:.1f}",
                y="0",
                height="26",
                width=f"{max(1.0, 700 * (end - begin) / across):.1f}",
            )
            for colour, begin, end in found
        )
    ]
