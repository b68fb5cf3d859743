"""`roquette context ...`: clusters under names of their own."""

import os
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from roquette.cli.connect import OutputForm, Yes, confirm
from roquette.cli.output import Output, say, show, show_value

if TYPE_CHECKING:
    from roquette.admin.contexts import Contexts

app = typer.Typer(help="Give clusters names, and say which one is meant.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


class ContextRow(msgspec.Struct, frozen=True):
    """A named cluster. `current`: commands that name no other one mean it."""

    context: str
    current: bool
    namesrv: str
    login: str
    brokers: str


def _book() -> "Contexts":
    from roquette.admin.contexts import contexts_of

    return contexts_of(os.environ)


def _rows(book: "Contexts") -> list[ContextRow]:
    current = book.current
    return [
        ContextRow(name, name == current, one.namesrv, one.login, ";".join(one.brokers))
        for name, one in sorted(book.all().items())
    ]


@app.command("add")
def add_command(
    name: Name,
    namesrv: Annotated[
        str,
        typer.Option("-n", "--namesrv", metavar='"NS1;NS2"', help="Its name servers."),
    ],
    login: Annotated[
        str, typer.Option("--login", metavar="FILE", help="The login file for it.")
    ] = "",
    brokers: Annotated[
        str,
        typer.Option(
            "--brokers",
            metavar='"A;B"',
            help="Names of its brokers: `cluster` and `doctor` miss those that are not there.",
        ),
    ] = "",
    use: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
) -> None:
    """Remember a cluster under a name, or change it; `--context NAME` of other commands means it."""
    from roquette.admin.contexts import Context
    from roquette.client.name_servers import parse_name_servers

    parse_name_servers(namesrv)
    book = _book()
    names = tuple(one.strip() for one in brokers.split(";") if one.strip())
    book.put(name, Context(namesrv, os.path.abspath(login) if login else "", names))
    if use:
        book.use(name)
    say(f"context {name} is {namesrv}{', in use' if use else ''}; kept in {book.path}")


@app.command("use")
def use_command(
    name: Annotated[str, typer.Argument(metavar="CONTEXT", show_default=False)] = "",
) -> None:
    """Have commands that name no cluster mean this one; without a name, none again."""
    _book().use(name)
    say(f"commands without --context and -n go to {name}" if name else "no context is in use")


@app.command("ls")
def list_command(output: OutputForm = Output.TABLE) -> None:
    """List the contexts."""
    show(_rows(_book()), output, empty="no contexts yet: 'roquette context add NAME -n HOST:PORT'")


@app.command("show")
def show_command(
    name: Annotated[str, typer.Argument(metavar="CONTEXT", show_default=False)] = "",
    output: OutputForm = Output.TABLE,
) -> None:
    """Show a context, or which cluster a command without any option goes to, and why."""
    from roquette.admin.contexts import VARIABLE, place_of

    book = _book()
    if name:
        book.get(name)
        row = next(row for row in _rows(book) if row.context == name)
    else:
        place = place_of(None, None, None, os.environ)
        chosen = os.environ.get(VARIABLE) or (
            "" if os.environ.get("NAMESRV_ADDR") else book.current
        )
        row = ContextRow(
            chosen, True, place.name_servers, place.login or "", ";".join(place.brokers)
        )
    if output is Output.TABLE:
        show([row], output)
    else:
        show_value(row, output)


@app.command("rm")
def remove_command(name: Name, yes: Yes = False) -> None:
    """Forget a context; its cluster and its login file stay as they are."""
    book = _book()
    book.get(name)
    confirm(f"forget context {name}", yes)
    book.remove(name)
    say(f"context {name} is forgotten")
