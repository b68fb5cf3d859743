"""What is declared of a function is the command: flags and their help, the question, the dry run, what is shown, exit codes."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Annotated, Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner, Result

from roquette.admin.command import (
    Flag,
    OperationPlan,
    OperationReport,
    Printed,
    changes_of,
    command,
)
from roquette.cli import connect
from roquette.cli.commands import command_of
from roquette.client.calls import Operation
from roquette.errors import ClientError, ConfigError


class Row(msgspec.Struct):
    name: str
    count: int


def typed(function: Callable[..., Any], *words: str) -> Result:
    app = typer.Typer(rich_markup_mode=None)
    app.command()(command_of(function))
    return CliRunner().invoke(app, list(words))


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that runs operations which ask nobody."""

    async def run(operation: Operation[Any]) -> Any:
        with pytest.raises(StopIteration) as end:
            next(operation)
        return end.value.value

    @asynccontextmanager
    async def client(*_: object, **__: object) -> AsyncIterator[Any]:
        yield SimpleNamespace(session=SimpleNamespace(run=run))

    monkeypatch.setattr(connect, "client_of", client)


@command(watched=True)
def listed(
    name_servers: list[str],
    topic: str,
    *,
    most: Annotated[int, Flag("--most -m N", least=1)] = 5,
    like_this: str | None = None,
    settings: Annotated[
        Mapping[str, str] | None, Flag("--set A=B", reads=changes_of, many=True)
    ] = None,
) -> OperationReport[list[Row]]:
    """List what there is.

    The second part.

    Args:
        most: So many,
            in two lines.
        like_this: Only these.

    Raises:
        ConfigError: never.
    """
    return OperationReport([Row(f"{topic} {name_servers} {like_this} {settings}", most)])


def test_flags_come_from_the_signature_and_their_help_from_the_docstring() -> None:
    shown = typed(listed, "--help").stdout

    assert "List what there is.\n\n  The second part." in shown and "never" not in shown
    assert "{TOPIC}" in shown and "name_servers" not in shown
    assert "-m, --most N" in shown and "So many, in two lines." in shown and "x>=1" in shown
    assert "--like-this LIKE_THIS" in shown and "Only these." in shown and "--set A=B" in shown
    for shared in ("--namesrv", "--login", "--context", "--output", "--watch", "--every"):
        assert shared in shown
    assert "--yes" not in shown and "--dry-run" not in shown


def test_values_are_read_and_what_is_given_is_no_flag() -> None:
    words = ("t", "-m", "7", "--set", "a=1", "--set", "b=2", "-n", "ns:1", "-o", "json")
    assert json.loads(typed(listed, *words).stdout) == [
        {"name": "t ['ns:1'] None {'a': '1', 'b': '2'}", "count": 7}
    ]
    assert isinstance(typed(listed, "t", "--set", "a").exception, ConfigError)
    assert typed(listed, "t", "-m", "0").exit_code == 2


@command(asks="delete {topic}")
def deleted(topic: str) -> OperationReport[None]:
    """Delete."""
    return OperationReport(notes=[f"{topic} is gone"])


def test_a_question_is_asked_before_and_yes_answers_it() -> None:
    refused = typed(deleted, "t")
    assert isinstance(refused.exception, ConfigError) and "delete t: " in str(refused.exception)
    assert typed(deleted, "t", "--yes").stderr == "t is gone\n"


def planned(known: bool) -> tuple[Callable[..., Any], list[str]]:
    done: list[str] = []

    @command(dry_run="Only the plan.", confirmed=True)
    def change(name: str) -> Operation[OperationPlan[None]]:
        """Change."""

        def shows() -> Operation[list[Row]]:
            return [Row("found", 1)]
            yield []

        def does() -> Operation[OperationReport[None]]:
            done.append(name)
            return OperationReport(notes=["done"])
            yield []

        return OperationPlan(
            [Row("known", 1)] if known else shows(), f"change {name}", does(), ["note"]
        )
        yield []

    return change, done


@pytest.mark.parametrize(("known", "word"), [(True, "known"), (False, "found")])
def test_a_dry_run_shows_the_plan_and_does_nothing(known: bool, word: str) -> None:
    change, done = planned(known)
    shown = typed(change, "x", "--dry-run")
    assert (word in shown.stdout, shown.stderr, done) == (True, "note\n", [])
    assert shown.exit_code == 0
    refused = typed(change, "x")
    assert "change x: " in str(refused.exception) and done == []
    assert ("known" in refused.stdout) == known  # what is asked about is seen first
    assert typed(change, "x", "--yes").stderr == "note\ndone\n" and done == ["x"]


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (OperationReport(), 0),
        (OperationReport(healthy=False), 10),
        (OperationReport(done=False), 1),
        (OperationReport(failed="no"), 1),
    ],
)
def test_a_reports_end_is_the_exit_code(report: OperationReport[None], code: int) -> None:
    @command()
    def ends() -> OperationReport[None]:
        """End."""
        return report

    ended = typed(ends)
    assert ended.exit_code == code
    assert isinstance(ended.exception, ClientError) == bool(report.failed)


def test_people_and_programs_are_shown_their_parts() -> None:
    @command()
    async def both(run: Any, tell: Callable[[str], None]) -> OperationReport[Any]:
        """Show."""
        tell("first")
        return OperationReport({"a": 1}, [Printed("out"), "beside", [Row("n", 2)]], ["note"])

    shown = typed(both)
    assert shown.stdout.splitlines() == ["out", "name  count", "n         2"]
    assert shown.stderr == "first\nbeside\nnote\n"
    assert json.loads(typed(both, "-o", "json").stdout) == {"a": 1}


def test_whole_values_are_json_lines_unless_another_form_is_asked_for() -> None:
    @command()
    def lines() -> OperationReport[list[Any]]:
        """Print."""
        return OperationReport([{"a": 1}, {"a": 2}], lines=True)

    for form in ("table", "json", "jsonl"):
        assert typed(lines, "-o", form).stdout == '{"a": 1}\n{"a": 2}\n'
    assert typed(lines, "-o", "csv").stdout == "a\n1\n2\n"
