"""Declaration by which an operation is a command: how its parameters are typed, what is asked before it changes something,
and what is shown of its result. The command line reads it (`cli.commands`); nothing here prints.

    @command(empty="no consumer groups yet")
    def list_groups(*, like: Like = "", system: bool = False) -> Operation[Report[list[GroupRow]]]:
        '''List consumer groups with their members and lag.

        Args:
            system: Also the system's own groups.
        '''

Parameters before the `*` are words of the command line, those behind it options; their help is their line of `Args`.
`name_servers`, `clock`, and to what is awaited `mq` (the client), `run` (of operations) and `tell` (a sentence to people)
are given to it.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
)

import msgspec

from roquette.errors import ConfigError

if TYPE_CHECKING:
    from roquette.client.calls import Operation
    from roquette.client.client import Client

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Rows = Sequence[msgspec.Struct]
_ATTRIBUTE: Final = "__command__"

GIVEN: Final = ("name_servers", "clock", "mq", "run", "tell", "show")
"""Parameters that nobody types: who calls a command gives them to it."""

SECTIONS: Final = re.compile(r"\n+(?=(?:Args|Raises|Returns|Attributes):\n)")
"""Where what --help shows of a docstring ends."""

_LINE: Final = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


class Flag(NamedTuple):
    """Declaration of how a parameter is typed.

    Attributes:
        form: names and what stands for the value, as `-t --topic TOPIC`; what is not there comes of the parameter's name.
        help: "": the parameter's line of `Args`.
        least, most: the bounds of a number.
        reads: makes the value of what was typed. many: of a list of words, since it may be repeated.
        variable: of the environment, where it has a name of its own.
    """

    form: str = ""
    help: str = ""
    least: float | None = None
    most: float | None = None
    reads: Callable[[Any], Any] | None = None
    many: bool = False
    variable: str | None = None


class Printed(str):
    """A text that is a result itself, not a word beside it."""


class OperationReport(msgspec.Struct, Generic[T], frozen=True):
    """Report of a result: what is shown of it.

    Attributes:
        value: for programs; None: nothing.
        shown: for people, in this order: rows as a table, texts as words beside the result; None: `value`, which is rows.
        notes: what both are told after it. empty: in place of a table without rows.
        healthy: what was looked at is as it should be. failed: what of it was not done.
        done: all was done, or found; where not, rows or `empty` say what. lines: a list that is JSON lines, unless YAML or
            CSV is asked for.
    """

    value: T | None = None
    shown: Sequence[str | Rows] | None = None
    notes: Sequence[str] = ()
    empty: str = ""
    healthy: bool = True
    failed: str = ""
    done: bool = True
    lines: bool = False


class OperationPlan(NamedTuple, Generic[T]):
    """Plan of a change: what it would do, before it is done; T: its result.

    Attributes:
        shows: rows, which are seen before the question, too; or the operation that finds what a dry run tells; None: nothing.
        asks: the question; "": none is asked. does: the change itself, an operation or what is awaited with a client.
        notes: what is said before.
    """

    shows: "Rows | Operation[Any] | None"
    asks: str
    does: "Operation[Any] | Callable[[Client], Awaitable[Any]]"
    notes: Sequence[str] = ()


class command(msgspec.Struct, frozen=True, kw_only=True):
    """Declaration that a function is a command; as a decorator it leaves the function as it is.

    Attributes:
        asks: the question before it is called, with {parameters}, or a function of them that makes it.
        empty: what is said in place of a table without rows.
        shows: makes the report of the result and the parameters by name; without it the result is rows, a report or a plan.
        watched: it changes nothing and may be looked at again and again.
        dry_run: the help of --dry-run, which shows a plan. confirmed: its plan has a question, for which there is --yes.
    """

    asks: str | Callable[..., str] = ""
    empty: str = "nothing found"
    shows: Callable[..., OperationReport[Any]] | None = None
    watched: bool = False
    dry_run: str = ""
    confirmed: bool = False

    def __call__(self, function: F) -> F:
        setattr(function, _ATTRIBUTE, self)
        return function


def declared(function: Callable[..., Any]) -> command | None:
    """Return what a function was declared to be."""
    return getattr(function, _ATTRIBUTE, None)


def flag_of(annotation: Any) -> Flag:
    """Return how a parameter is typed, by its annotation."""
    parts = get_args(annotation) if get_origin(annotation) is Annotated else ()
    return next((each for each in parts if isinstance(each, Flag)), Flag())


def takes_many(annotation: Any) -> bool:
    """Return True for a parameter that several words are typed for."""
    parts = get_args(annotation)
    return (
        flag_of(annotation).many
        or get_origin(annotation) is list
        or any(takes_many(each) for each in parts)
    )


def helps_of(function: Callable[..., Any]) -> dict[str, str]:
    """Return what the docstring says of each parameter in `Args`."""
    sections = SECTIONS.split(inspect.getdoc(function) or "")[1:]
    lines = "".join(part for part in sections if part.startswith("Args:"))
    return {name: " ".join(words.split()) for name, words in _LINE.findall(lines)}


def words_of(words: str, function: Callable[..., Any], typed: Mapping[str, str]) -> tuple[str, ...]:
    """Return a command line, by the words of the command and what was typed for its parameters."""
    plain, options = words.split(), []
    for name, each in inspect.signature(function).parameters.items():
        text, flag = typed.get(name, ""), flag_of(each.annotation)
        named = next((word for word in flag.form.split() if word.startswith("--")), "")
        if text == "" or text == str(each.default):
            continue
        if each.kind is not inspect.Parameter.KEYWORD_ONLY and not named:
            plain += text.split() if takes_many(each.annotation) else [text]
            continue
        option = named or f"--{name.replace('_', '-')}"
        many = text.split() if takes_many(each.annotation) else [text]
        for word in many:
            options += [option] if isinstance(each.default, bool) else [option, word]
    return (*plain, *options)


# Parameters that several commands have.

PAGE: Final = 50
"""Names of which a list asks brokers, unless told otherwise: each is a few requests to each of its brokers."""

SAY_WHAT: Final = "Say what would be done where, and do nothing."

Like = Annotated[str, Flag("--like WORD", "Only names with this word in them.")]
Limit = Annotated[int, Flag("--limit N", "Of so many; it says how many more.", 1)]
OnCluster = Annotated[str | None, Flag("--cluster CLUSTER", "Only this cluster's brokers.")]
Settle = Annotated[
    float, Flag("--settle SECONDS", "What clients need to hear of other routes (Java: 30).", 0)
]
Timeout = Annotated[float, Flag("--timeout SECONDS", "Of --wait; then what is left is shown.", 0)]
IgnoredGroups = Annotated[
    list[str] | None,
    Flag("--ignore-group GROUP", "A group that nobody runs any more; may be repeated."),
]


def changes_of(words: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE words by key; raises ConfigError for others, and for a key that is there twice."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{word[:80]} is not of the form KEY=VALUE")
        if key.strip() in found:
            raise ConfigError(f"{key.strip()} is given twice")
        found[key.strip()] = value
    return found


Changes = Annotated[Mapping[str, str], Flag("KEY=VALUE", reads=changes_of, many=True)]
Attributes = Annotated[
    Mapping[str, str] | None,
    Flag(
        "--attribute NAME=VALUE",
        "Such as message.type=PRIORITY of a topic, priority.factor=50 of a group; NAME= takes it away. Repeatable.",
        reads=changes_of,
        many=True,
    ),
]


def more_words(more: int, what: str) -> list[str]:
    """Say how many a list left out, in words."""
    return [f"{more} more {what}: --like WORD chooses, --limit N shows more"] if more else []
