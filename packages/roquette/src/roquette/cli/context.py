"""`roquette context ...`: clusters under names of their own."""

import os
from typing import TYPE_CHECKING, Annotated

import msgspec

from roquette.admin.command import Flag
from roquette.cli.connect import OutputForm, Yes, confirm
from roquette.cli.output import Output, say, show, show_value

if TYPE_CHECKING:
    from roquette.admin.contexts import Contexts

Known = Annotated[str, Flag("CONTEXT")]


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


def add(
    name: str,
    *,
    namesrv: Annotated[str, Flag('-n --namesrv "NS1;NS2"', "Its name servers.")],
    login: Annotated[str, Flag("--login FILE", "The login file for it.")] = "",
    brokers: Annotated[str, Flag('--brokers "A;B"')] = "",
    use: bool = False,
) -> None:
    """Remember a cluster under a name, or change it; `--context NAME` of other commands means it.

    Args:
        brokers: Names of its brokers: `cluster` and `doctor` miss those that are not there.
        use: Use it from now on.
    """
    from roquette.admin.contexts import Context
    from roquette.client.config import parse_name_servers

    parse_name_servers(namesrv)
    book = _book()
    names = tuple(one.strip() for one in brokers.split(";") if one.strip())
    book.put(name, Context(namesrv, os.path.abspath(login) if login else "", names))
    if use:
        book.use(name)
    say(f"context {name} is {namesrv}{', in use' if use else ''}; kept in {book.path}")


def use(name: Known = "") -> None:
    """Have commands that name no cluster mean this one; without a name, none again."""
    _book().use(name)
    say(f"commands without --context and -n go to {name}" if name else "no context is in use")


def list_contexts(*, output: OutputForm = Output.TABLE) -> None:
    """List the contexts."""
    show(_rows(_book()), output, empty="no contexts yet: 'roquette context add NAME -n HOST:PORT'")


def show_context(name: Known = "", *, output: OutputForm = Output.TABLE) -> None:
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


def remove(name: str, *, yes: Yes = False) -> None:
    """Forget a context; its cluster and its login file stay as they are."""
    book = _book()
    book.get(name)
    confirm(f"forget context {name}", yes)
    book.remove(name)
    say(f"context {name} is forgotten")
