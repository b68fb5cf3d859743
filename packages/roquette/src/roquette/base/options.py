"""Options: stated once, on the field of a dataclass, and read alike wherever they come from.

`option` declares one and `options_of` lists those of a class. `Option.read` makes a value of what a property file,
the environment, a flag, YAML or Spark gives; every refusal has one form: what, where, what is wanted, what is given.
`base/config.py` reads property files and the environment; flags, YAML and Spark's options go through `OptionReader`.
"""

import dataclasses
import enum
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any, Final, TypeVar

from roquette.errors import ConfigError

C = TypeVar("C")
REQUIRED: Final = dataclasses.MISSING
SHOWN: Final = 80  # characters of a value in a refusal
_BYTES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_MILLISECONDS: Final = {
    "": 1,
    "ms": 1,
    "s": 1_000,
    "sec": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_WORDS: Final = {int: "a whole number", float: "a number", str: "a text"}


class Unfit(ValueError):
    """Fault of a value, where "must be ..." would say too little."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OptionKind:
    """Kind of value that several options share.

    Attributes:
        wanted: completes "must be ..."; without it the type says what is wanted.
        parse: a stripped text to a value, where the type is not enough; raises ValueError, or Unfit.
        least, most: the smallest and the largest value.
    """

    wanted: str = ""
    parse: Callable[[str], Any] | None = None
    least: float | None = None
    most: float | None = None


def matching(form: str, wanted: str) -> OptionKind:
    """Texts of which all matches the regular expression `form`."""

    def parse(text: str) -> str:
        if re.fullmatch(form, text) is None:
            raise ValueError
        return text

    return OptionKind(wanted=wanted, parse=parse)


def _parse_size(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)i?b?", text.lower())
    if match is None:
        raise ValueError
    return int(match[1]) * _BYTES[match[2]]


def parse_duration(text: str) -> int:
    """Milliseconds, as DURATION has them."""
    match = re.fullmatch(r"(\d+)\s*(ms|s|sec|m|min|h|d|)", text.lower())
    if match is None:
        raise ValueError
    return int(match[1]) * _MILLISECONDS[match[2]]


PLAIN: Final = OptionKind()
MILLISECONDS: Final = OptionKind(least=1, most=1 << 40)
PERCENT: Final = OptionKind(least=1, most=100)
INT32: Final = OptionKind(least=1, most=2**31 - 1)
INT64: Final = OptionKind(least=0, most=2**63 - 1)
SIZE: Final = OptionKind(wanted="a size such as 128m", parse=_parse_size)
"""Bytes: `134217728`, `128m`, `1g`."""
DURATION: Final = OptionKind(wanted="a time such as 10s or 15m", parse=parse_duration)
"""Milliseconds: `500`, `500ms`, `10s`, `15m`, `24h`, `7d`."""


class Traits(typing.TypedDict, total=False):
    """Traits of an option beside its default and its help; see `Option`."""

    name: str
    also: Sequence[str]
    kind: OptionKind
    least: float
    most: float
    choices: Sequence[str]
    mutable: bool
    split: bool
    secret: bool
    metavar: str
    unset: str


def option(default: Any, help: str = "", **traits: typing.Unpack[Traits]) -> Any:
    """A field of an options class.

    Args:
        default: of the field's type, or a text that the option's kind reads; REQUIRED if there is none.
        help: a sentence for people: --help and the reference pages show it.
    """
    parse = traits.get("kind", PLAIN).parse
    written = default if isinstance(default, str) and parse else ""
    value = parse(written) if written and parse else default
    return dataclasses.field(
        default=value,
        repr=not traits.get("secret", False),
        metadata={"help": help, "written": written, **traits},
    )


live: Final = partial(option, mutable=True)
"""An option that a request may change while the process runs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """A declared option.

    Attributes:
        field: the attribute it fills.
        type: bool, int, float, str or an enum; `many` says that it is a tuple of texts.
        name: in property files and in Spark; the field's name in camel case unless it is given.
        also: other names for the same option.
        least, most: the smallest and the largest value; numbers whose default is 0 or more are never below 0.
        choices: the only texts allowed, in any case; the value is as written here.
        mutable: a request may change it while the process runs. Never for what names a path, command, class or URL.
        split: texts of a tuple may also be given with commas.
        secret: never shown.
        metavar: stands for the value in --help.
        unset: what pages show as the default when it is None or empty.
        written: the default as it was declared, where `kind` reads it from a text.
    """

    field: str
    type: type[Any]
    many: bool
    default: Any
    name: str
    help: str = ""
    also: Sequence[str] = ()
    kind: OptionKind = PLAIN
    least: float | None = None
    most: float | None = None
    choices: Sequence[str] = ()
    mutable: bool = False
    split: bool = True
    secret: bool = False
    metavar: str = ""
    unset: str = ""
    written: str = ""

    @property
    def required(self) -> bool:
        """There is no default."""
        return self.default is REQUIRED

    @property
    def flag(self) -> str:
        """As the command line writes it."""
        return "--" + self.field.replace("_", "-")

    @cached_property
    def wanted(self) -> str:
        """Description of what a value must be, for errors."""
        if self.many:
            return "a text or a list of texts"
        if self.choices:
            *others, last = self.choices
            return f"{', '.join(others)} or {last}" if others else last
        words = self.kind.wanted or _WORDS[self.type]
        if self.least is not None and self.most is not None:
            return f"{words} from {self.least} to {self.most}"
        if self.least is not None:
            return f"{words} of at least {self.least}"
        return words if self.most is None else f"{words} of at most {self.most}"

    def read(self, given: object, subject: str) -> Any:
        """The value of a text, or of what YAML holds.

        Raises:
            ConfigError: it does not fit; the text begins with `subject`, which says what it is and where it stands.
        """
        try:
            return self._texts(given) if self.many else self._value(given)
        except Unfit as error:
            raise ConfigError(f"{subject}: {error}") from None
        except ValueError:
            raise self._refusal(given, subject) from None

    def check(self, value: object, subject: str) -> None:
        """Raise ConfigError unless `value`, which a program gives, is of the option's type and within its bounds."""
        try:
            self._check(value)
        except ValueError:
            raise self._refusal(value, subject) from None

    def _refusal(self, given: object, subject: str) -> ConfigError:
        text = repr(given)
        shown = text if len(text) <= SHOWN + 2 else f"{text[: SHOWN + 1]}...{text[-1]}"
        but_shown = "" if self.secret else f", not {shown}"
        return ConfigError(f"{subject} must be {self.wanted}{but_shown}")

    def _texts(self, given: object) -> tuple[str, ...]:
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list | tuple) or not all(isinstance(each, str) for each in texts):
            raise ValueError
        words = [word for each in texts for word in (each.split(",") if self.split else [each])]
        return tuple(word.strip() for word in words if word.strip())

    def _value(self, given: object) -> Any:
        value: Any = given
        if isinstance(given, str):
            value = self._parsed(given if self.secret else given.strip())
        elif self.type is float and type(given) is int:
            value = float(given)
        if value is not None or given is None:  # an optional one may read an empty text as None
            self._check(value)
        return value

    def _check(self, value: Any) -> None:
        if type(value) is not self.type:
            raise ValueError
        if self.least is not None and value < self.least:
            raise ValueError
        if self.most is not None and value > self.most:
            raise ValueError

    def _parsed(self, text: str) -> Any:
        if self.kind.parse is not None:
            return self.kind.parse(text)
        if self.choices:
            by_lower = {choice.lower(): choice for choice in self.choices}
            if text.lower() not in by_lower:
                raise ValueError
            choice = by_lower[text.lower()]
            if self.type is bool:
                return choice == "true"
            return self.type[choice] if issubclass(self.type, enum.Enum) else choice
        value = self.type(text)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError
        return value

    def text(self, value: Any) -> str:
        """A value as property files have it; None is empty."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, enum.Enum):
            return value.name
        return "" if value is None else str(value)


_KNOWN: Final[dict[type[Any], Mapping[str, Option]]] = {}


def options_of(cls: type[Any]) -> Mapping[str, Option]:
    """Name -> option, of all fields of a class, in their order."""
    if cls not in _KNOWN:
        hints = typing.get_type_hints(cls)
        found = [_option_of(field, hints[field.name]) for field in dataclasses.fields(cls)]
        _KNOWN[cls] = {each.name: each for each in found}
    return _KNOWN[cls]


def _option_of(field: "dataclasses.Field[Any]", hint: Any) -> Option:
    declared = dict(field.metadata)
    if isinstance(hint, types.UnionType):  # X | None: None is the default, and is never given
        (hint,) = (each for each in typing.get_args(hint) if each is not types.NoneType)
    kind, default = declared.get("kind", PLAIN), field.default
    many = typing.get_origin(hint) is tuple and kind.parse is None
    if not declared.get("name"):
        declared["name"] = re.sub("_(.)", lambda match: match[1].upper(), field.name)
    for bound in ("least", "most"):
        if declared.get(bound) is None:
            declared[bound] = getattr(kind, bound)
    if declared["least"] is None and hint in (int, float) and kind.parse is None:
        declared["least"] = 0 if default in (None, REQUIRED) or default >= 0 else None
    if hint is bool:
        declared["choices"] = ("true", "false")
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        declared["choices"] = tuple(item.name for item in hint)
    plain = str if many else typing.get_origin(hint) or hint
    return Option(field=field.name, type=plain, many=many, default=default, **declared)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the nearest of those known, if there is one."""
    import difflib  # for those alone who made a mistake

    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OptionReader:
    """Reads options from mappings of names to values, where an unknown name is an error.

    Attributes:
        names: what an option may be called; the first is shown to people.
        normal: names are compared in this form.
        shown: an option in the text of an error.
        missing: what to do about a required option that is not given, as the end of an error.
    """

    names: Callable[[Option], Sequence[str]]
    normal: Callable[[str], str]
    shown: Callable[[Option], str]
    missing: Callable[[Option], str]

    def values(
        self,
        cls: type[Any],
        given: Mapping[str, object],
        where: str,
        *,
        place: str = "",
        tolerated: Callable[[str], bool] = lambda name: False,
    ) -> dict[str, Any]:
        """Field -> value, of what is given and not None.

        Args:
            where: begins every error. place: where the names stand, if that is not clear.
            tolerated: unknown names, in normal form, that are passed over.

        Raises:
            ConfigError: a name is not known, a value does not fit, or two names of one option contradict each other.
        """
        known = options_of(cls).values()
        by_name = {self.normal(name): option for option in known for name in self.names(option)}
        found: list[tuple[str, Option]] = []
        for name in given:
            if self.normal(name) in by_name:
                found.append((name, by_name[self.normal(name)]))
            elif not tolerated(self.normal(name)):
                every = [each for option in known for each in self.names(option)]
                hint = did_you_mean(name, every) or f"; known: {', '.join(every)}"
                raise ConfigError(f"{where}: unknown option {name}{place}{hint}")
        values: dict[str, Any] = {}
        for name, option in found:
            if given[name] is None:
                continue
            value = option.read(given[name], f"{where}: {self.shown(option)}")
            empty = value in ("", ())
            if empty and (option.required or option.field in values):
                continue
            if values.get(option.field, value) not in (value, "", ()):
                both = " and ".join(self.names(option))
                raise ConfigError(f"{where}: options {both} mean the same: give one of them")
            values[option.field] = value
        return values

    def build(self, cls: type[C], values: Mapping[str, Any], where: str) -> C:
        """An instance; raises ConfigError when a required option is missing."""
        for option in options_of(cls).values():
            if option.required and option.field not in values:
                raise ConfigError(
                    f"{where}: {self.shown(option)} is required{self.missing(option)}"
                )
        return cls(**values)


HIDDEN: Final = "***"
_SECRET: Final = re.compile(
    r"(?i)secret|passw|token|credential|signature|(access|account|private|api)[._-]?key"
)


def without_secret(word: str) -> str:
    """A `key=value` word for people: no value where the word reads like a secret (Spark's rule, and Azure's keys)."""
    key, equals, _ = word.partition("=")
    if _SECRET.search(word) is None:
        return without_password(word)
    return f"{key}={HIDDEN}" if equals else HIDDEN


def without_password(text: str) -> str:
    """A text for people: an address in it loses its user and password."""
    return re.sub(r"(?<=://)[^/?#\s]*@", f"{HIDDEN}@", text)


def key_values(words: Iterable[str] | None, flag: str) -> dict[str, str]:
    """`key=value` words of a flag that may be repeated; raises ConfigError for a word without `=`."""
    found: dict[str, str] = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{flag} {without_secret(word)!r} is not of the form key=value")
        found[key.strip()] = value
    return found


def split_addresses(text: str) -> list[str]:
    """The addresses of `host:port;host:port` (or with commas), in order, each once."""
    parts = (part.strip() for part in text.replace(",", ";").split(";"))
    return list(dict.fromkeys(filter(None, parts)))


# Times, sizes and counts as people read them: `2.5 min`, `1.5 MiB`, `1 batch`.


def duration_text(milliseconds: float | None) -> str:
    """A span of time for people."""
    if milliseconds is None:
        return "–"
    if abs(milliseconds) < 1_000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    for bound, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if abs(seconds) >= 2 * bound:
            return f"{seconds / bound:.1f} {unit}"
    return f"{seconds:.1f} s"


def time_text(ms: float) -> str:
    """Date and time in UTC, of milliseconds since 1970."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def clock_text(ms: float) -> str:
    """The time of day of `time_text`."""
    return time_text(ms)[11:]


def size_text(count: float) -> str:
    """Bytes for people."""
    for bound, unit in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= bound:
            return f"{count / bound:.1f} {unit}"
    return f"{count:.0f} B"


def plural(count: int, one: str, many: str = "") -> str:
    """The noun of a count: `one`, or `many` (`one` with an s)."""
    return one if count == 1 else many or f"{one}s"


def counted(count: int, one: str, many: str = "") -> str:
    """A count and its noun: `1 batch`, `1,200 batches`."""
    return f"{count:,} {plural(count, one, many)}"
