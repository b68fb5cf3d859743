"""Each command that a document quotes exists, with its options; each command that exists is in docs/reference/cli.md's table."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.commands_page import PAGE, ROOT_COMMAND, below, with_table

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
INLINE = re.compile(r"`(roquette [^`\n]+)`")
END = re.compile(r"\s(?:#|\||&&|;|>|2>|&|\\)(?:\s|$)|\s#")


def quoted(path: Path) -> Iterator[tuple[str, str]]:
    """Lines of code that call the command, and the words in the text that do."""
    fenced = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        where = f"{path.relative_to(ROOT)}:{number}"
        if fenced or line.startswith("    "):
            for part in re.split(r"\s(?:&&|;|\|)\s", line):
                if part.strip().removeprefix("$ ").startswith("roquette "):
                    yield where, part.strip().removeprefix("$ ")
        else:
            for words in INLINE.findall(line):
                yield where, words


def test_the_table_of_commands_is_the_program() -> None:
    text = PAGE.read_text()

    assert with_table(text) == text, "run tools/commands_page.py"


def wrong(text: str) -> str:
    """What of a command line does not exist; "" when all of it does."""
    words = re.sub(r"[\[\]]", " ", END.split(text)[0]).replace("...", " ").split()[1:]
    command: Any = ROOT_COMMAND
    while below(command) and words:
        word = words[0].rstrip(",.:;")
        names = [name for name in word.split("|") if name]
        if word.isupper() or word.startswith(("-", "<", "…")) or not names:
            break
        unknown = [name for name in names if name not in below(command)]
        if unknown:
            return "" if getattr(command, "invoke_without_command", False) else f"no {unknown[0]}"
        command = below(command)[names[0]]
        words = words[1:]
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    known |= {"--help", "--version", "--install-completion", "--show-completion"}
    for word in words:
        option = word.split("=")[0].rstrip(",.:;)")
        if option == "--":
            break
        if re.fullmatch(r"--?[a-z][a-z-]*", option) and option not in known:
            return f"no option {option}"
    return ""


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_quotes_exists(path: Path) -> None:
    found = [f"{where}: {text}: {what}" for where, text in quoted(path) if (what := wrong(text))]

    assert not found, "\n".join(found)


def test_wrong_lines_are_found() -> None:
    assert wrong("roquette topic paint") == "no paint"
    assert wrong("roquette topic list --color red") == "no option --color"
    assert wrong("roquette group seek billing --topic orders --to -10 # back") == ""
    assert wrong("roquette broker drain|restore NAME --wait") == ""
    assert sum(len(list(quoted(path))) for path in DOCUMENTS) > 150
