"""Write the table of all commands into docs/reference/cli.md, from the program itself: `python tools/commands_page.py`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from roquette.apps.main import app

PAGE = Path(__file__).parents[1] / "docs/reference/cli.md"
BEGIN, END = "<!-- commands: begin -->\n", "<!-- commands: end -->\n"
ROOT_COMMAND: Any = get_command(app)


def below(command: Any) -> dict[str, Any]:
    """The sub-commands of a command, hidden ones left out."""
    if not hasattr(command, "list_commands"):
        return {}
    found = {name: command.get_command(None, name) for name in command.list_commands(None)}
    return {name: each for name, each in found.items() if not each.hidden}


def rows(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Words of each command that does something, and the first line of its help."""
    more = below(command)
    if words and (not more or getattr(command, "invoke_without_command", False)):
        told = (command.help or "").split("\n\n")[0]
        yield " ".join(words), " ".join(told.split())
    for name, each in more.items():
        yield from rows(each, (*words, name))


def with_table(text: str) -> str:
    """The page with the table as it should be."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    lines = ["| command | does |", "|---|---|"]
    for words, told in sorted(rows(ROOT_COMMAND)):
        lines.append(f"| `roquette {words}` | {told.replace('|', chr(92) + '|')} |")
    return before + BEGIN + "\n".join(lines) + "\n" + END + after


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
