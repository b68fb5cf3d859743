"""How results are shown: a table for people; JSON, JSON lines, YAML and CSV for programs."""

import json
import re
import sys
from collections.abc import Sequence
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
MAX_CELL: Final = 4_000
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][\w.-]*")
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")
_YAML_WORDS: Final = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def show(rows: Sequence[msgspec.Struct], output: Output, *, empty: str = "nothing found") -> None:
    """Print rows of one kind; times (fields ending in _ms) are shown as local time in tables,
    which have a column `error` only when a row has one."""
    if output is not Output.TABLE:
        show_value(list(rows), output)
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
    Console(width=width, highlight=False, markup=False).print(table)


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
    return escaped(str(value), MAX_CELL)


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
        print("\n".join(_yaml(plain)))
    elif output is Output.CSV:
        _show_csv(parts)
    else:
        print(json.dumps(plain, indent=2))


def prints_lines(output: Output) -> bool:
    """Whether what comes one after the other, without end perhaps, is printed as JSON lines, else as text.

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


def _yaml(value: object) -> list[str]:
    """The lines of a plain value: blocks of what has parts, JSON (which YAML is) of what has none."""
    lines: list[str] = []
    if isinstance(value, dict) and value:
        for key, part in value.items():
            name = str(key)
            if not _PLAIN_KEY.fullmatch(name) or name.lower() in _YAML_WORDS:
                (name,) = _yaml(name)
            inner = _yaml(part)
            if isinstance(part, dict | list) and part:
                lines += [f"{name}:", *(f"  {line}" for line in inner)]
            else:
                lines.append(f"{name}: {inner[0]}")
    elif isinstance(value, list) and value:
        for part in value:
            first, *rest = _yaml(part)
            lines += [f"- {first}", *(f"  {line}" for line in rest)]
    else:
        text = json.dumps(value, ensure_ascii=False)
        lines.append(_UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))
    return lines


def say(text: str) -> None:
    """A word for people: on stderr, so that stdout stays for results; what is not printable is escaped."""
    print("\n".join(escaped(line, MAX_LINE) for line in text.split("\n")), file=sys.stderr)


def say_error(words: object) -> None:
    """What went wrong, in one line; of a long text, which somebody has given, the middle is left out."""
    text = escaped(str(words), sys.maxsize)
    if len(text) > MAX_ERROR:
        text = f"{text[: MAX_ERROR // 2]} ... {text[-MAX_ERROR // 4 :]}"
    print(f"error: {text}", file=sys.stderr)
