"""How results are shown: a table for people, JSON for programs."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum

import msgspec


class Output(StrEnum):
    """The two forms of --output."""

    TABLE = "table"
    JSON = "json"


def show(rows: Sequence[msgspec.Struct], output: Output, *, empty: str = "nothing found") -> None:
    """Print rows of one kind; times (fields ending in _ms) are shown as local time in tables,
    which have a column `error` only when a row has one."""
    if output is Output.JSON:
        print(json.dumps([msgspec.to_builtins(row) for row in rows], indent=2))
        return
    if not rows:
        print(empty, file=sys.stderr)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    fields = [
        field
        for field in msgspec.structs.fields(type(rows[0]))
        if field.name != "error" or any(getattr(row, field.name) for row in rows)
    ]
    for field in fields:
        title = field.name.removesuffix("_ms").replace("_", " ")
        table.add_column(
            title, justify="right" if field.type in (int, float) else "left", no_wrap=True
        )
    for row in rows:
        table.add_row(*[_cell(field.name, getattr(row, field.name)) for field in fields])
    width = None if sys.stdout.isatty() else 200
    Console(width=width, highlight=False).print(table)


def _cell(name: str, value: object) -> str:
    if name.endswith("_ms") and isinstance(value, int):
        return (
            datetime.fromtimestamp(value / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
            if value > 0
            else "-"
        )
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and value < 0:  # unknown
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value)


def show_json(value: object) -> None:
    """Print one value as JSON."""
    print(json.dumps(msgspec.to_builtins(value), indent=2))


def say(text: str) -> None:
    """A word for people: on stderr, so that stdout stays for results."""
    print(text, file=sys.stderr)
