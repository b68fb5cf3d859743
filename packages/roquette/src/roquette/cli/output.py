"""Output of results: a table for people; JSON, JSON lines, YAML and CSV for programs."""

import json
import os
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from roquette.base.logs import MAX_LINE, escaped
from roquette.errors import ConfigError


class Output(StrEnum):
    """The forms of --output."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    CSV = "csv"


MAX_ERROR: Final = 1_200  # characters
GAP: Final = "  "  # between two columns


def show(rows: Sequence[msgspec.Struct], output: Output, *, empty: str = "nothing found") -> None:
    """Print rows of one kind. In tables times (fields ending in _ms) are local, and a column whose default all rows have
    is not there.

    Nothing is ever cut. Where a terminal is too narrow, columns go that the kind of row names in `NARROW`, the first one
    first, and that is said; where that is not enough, a row becomes lines. Into a pipe all goes, whatever its width.
    """
    if output is not Output.TABLE:
        show_value(list(rows), output)
        return
    if not rows:
        print(empty, file=sys.stderr)
        return
    kind, width = type(rows[0]), screen()
    signed = getattr(kind, "SIGNED", ())
    columns = {
        field.name: _Column(
            field.name.removesuffix("_ms").replace("_", " "),
            [_cell(field.name, getattr(row, field.name), field.name in signed) for row in rows],
            field.type in (int, float),
        )
        for field in msgspec.structs.fields(kind)
        if any(getattr(row, field.name) != field.default for row in rows)
    }
    all_columns, hidden = list(columns.values()), []
    for name in getattr(kind, "NARROW", ()):
        if _width_of(columns.values()) > width and name in columns:
            hidden.append(columns.pop(name).title)
    if _width_of(columns.values()) > width:
        print("\n\n".join(_as_lines(all_columns, at) for at in range(len(rows))))
        return
    head, *lines = (_line(columns.values(), at) for at in range(-1, len(rows)))
    plain = width == sys.maxsize or "NO_COLOR" in os.environ
    print("\n".join((head if plain else f"\x1b[1m{head}\x1b[0m", *lines)))
    if hidden:
        say(f"left out at {width} columns: {', '.join(hidden)} (-o json has them)")


def screen() -> int:
    """Columns of the terminal; of a pipe as many as are wanted."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


class _Column:
    """A column of a table: its cells as they are shown. `size`: columns of the terminal it needs."""

    def __init__(self, title: str, cells: list[str], right: bool) -> None:
        from rich.cells import cell_len

        self.title, self.cells, self.right = title, cells, right
        self.size = max(map(cell_len, (title, *cells)))

    def cell(self, row: int) -> str:
        """A cell in the column's width; of row -1 the title."""
        from rich.cells import cell_len

        text = self.title if row < 0 else self.cells[row]
        blank = " " * (self.size - cell_len(text))
        return blank + text if self.right else text + blank


def _width_of(columns: Collection[_Column]) -> int:
    """Return the width a table needs at least: words in the last column may go on in the terminal's next line."""
    *others, last = columns
    needed = sum(column.size + len(GAP) for column in others)
    return needed + (last.size if last.right or not others else len(last.title))


def _line(columns: Iterable[_Column], row: int) -> str:
    return GAP.join(column.cell(row) for column in columns).rstrip()


def _as_lines(columns: Sequence[_Column], row: int) -> str:
    most = max(len(column.title) for column in columns)
    return "\n".join(f"{column.title:{most}}{GAP}{column.cells[row]}" for column in columns)


def local_time(ms: int) -> str:
    """A time as people read it here."""
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _cell(name: str, value: object, signed: bool) -> str:
    if name.endswith("_ms") and isinstance(value, int):
        return local_time(value) if value > 0 else "-"
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and value < 0 and not signed:  # unknown
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}"
    return escaped(str(value), sys.maxsize)


def show_value(value: object, output: Output) -> None:
    """Print a value for programs: in `jsonl` and `csv` a list is one line for each part, anything else one line.

    What has parts of its own is JSON in its field of a CSV line. A table is for rows (`show`): here it is JSON.
    """
    plain = msgspec.to_builtins(value)
    parts = plain if isinstance(plain, list) else [plain]
    if output is Output.JSONL:
        for part in parts:
            print(json.dumps(part, ensure_ascii=False))
    elif output is Output.YAML:
        from roquette.base.yaml_text import yaml_of

        print(yaml_of(plain), end="")
    elif output is Output.CSV:
        _show_csv(parts)
    else:
        print(json.dumps(plain, indent=2))


def prints_lines(output: Output) -> bool:
    """Return True when what comes one after the other, without end perhaps, is printed as JSON lines, else as text.

    Raises:
        ConfigError: it has no such form.
    """
    if output in (Output.YAML, Output.CSV):
        raise ConfigError(f"--output {output} is not for this: table, json and jsonl are")
    return output is not Output.TABLE


def _show_csv(parts: list[Any]) -> None:
    import csv

    rows = [part if isinstance(part, dict) else {"value": part} for part in parts]
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if names:
        writer.writerow(names)
    for row in rows:
        writer.writerow([_csv_field(row.get(name)) for name in names])


def _csv_field(value: object) -> object:
    if isinstance(value, dict | list | bool):
        return json.dumps(value, ensure_ascii=False)
    return value


def say(text: str) -> None:
    """A word for people: on stderr, so that stdout stays for results; what is not printable is escaped."""
    print("\n".join(escaped(line, MAX_LINE) for line in text.split("\n")), file=sys.stderr)


def say_error(words: object) -> None:
    """Say what went wrong, in one line; of a long text, which somebody has given, the middle is left out."""
    text = escaped(str(words), sys.maxsize)
    if len(text) > MAX_ERROR:
        text = f"{text[: MAX_ERROR // 2]} ... {text[-MAX_ERROR // 4 :]}"
    print(f"error: {text}", file=sys.stderr)
