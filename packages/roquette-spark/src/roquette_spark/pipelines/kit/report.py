"""What a run has to show people: facts, tables and charts as values, and the one template that makes them a page.

The page is a single file that loads nothing; the template escapes every value.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from roquette.errors import ConfigError
from roquette_spark.pipelines.kit.charts import Chart

if TYPE_CHECKING:
    from jinja2 import Template

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


def table_of(rows: Sequence[Any], columns: Mapping[str, Column]) -> ReportTable:
    """The first `MOST_ROWS` rows, by columns: the head, and what is under it."""
    cells = [
        [row[column] if isinstance(column, str) else column(row) for column in columns.values()]
        for row in rows[:MOST_ROWS]
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
    """A cell's text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return "" if value is None else str(value)
