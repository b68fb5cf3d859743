"""Common part of the options of all our formats: how Spark names them, and the kinds of their texts."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from roquette.base.javatypes import whole_number
from roquette.base.options import OptionKind, OptionReader, Unfit, options_of, split_addresses
from roquette.errors import ConfigError

C = TypeVar("C")
# What Spark's catalog adds to the options of a table made with CREATE TABLE ... USING.
_SPARKS_OWN: Final = frozenset(
    ("owner", "provider", "location", "external", "comment", "collation", "is_managed_location")
)
_SPARK: Final = OptionReader(
    names=lambda option: (option.name, *option.also),
    normal=str.lower,
    shown=lambda option: f"option {option.name}",
    missing=lambda option: f": {option.help.replace('`', '')}",
)


def names_of(cls: type[object]) -> frozenset[str]:
    """All names of the options of a class, in lower case."""
    known = options_of(cls).values()
    return frozenset(name.lower() for option in known for name in (option.name, *option.also))


def checked_options(
    cls: type[C],
    source: str,
    options: Mapping[str, str],
    also: Iterable[str] = (),
    prefix: str = "",
) -> C:
    """The options of one `format(...)`; names are case-insensitive.

    Args:
        source: the format's name, with which every error begins.
        options: what Spark hands over.
        also: names, in lower case, that are tolerated without being listed to people.
        prefix: so are names that begin so, if it is not empty.

    Raises:
        ConfigError: an option is unknown, missing or malformed; one line names it, and never a value of a secret.
    """
    if not options:
        first = "path" if "path" in names_of(cls) else "namesrvAddr"
        raise ConfigError(
            f"{source}: no option is given. Those of CREATE TABLE are not passed on by Spark: say them with the statement, "
            f"FROM t WITH ('{first}'='...', ...), or use CREATE TEMPORARY VIEW t USING {source} OPTIONS ({first} '...', ...)"
        )
    others = _SPARKS_OWN.union(also)

    def tolerated(name: str) -> bool:
        return name in others or name.startswith(("option.", prefix or "option."))

    values = _SPARK.values(cls, options, source, tolerated=tolerated)
    return _SPARK.build(cls, values, source)


def split_names(text: str) -> tuple[str, ...]:
    """The parts of a text with commas, each once, sorted."""
    return tuple(sorted({part.strip() for part in text.split(",") if part.strip()}))


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise Unfit(f"{text!r} is not a regular expression: {error}") from None
    return text


def _json_object(text: str) -> str:
    if not isinstance(json.loads(text), dict):
        raise ValueError
    return text


def _addresses(text: str) -> str:
    for one in split_addresses(text):
        host, _, port = one.rpartition(":")
        if not host or whole_number(port, 65_535) < 1:
            raise ValueError
    return text


ADDRESSES: Final = OptionKind(wanted="host:port;host:port", parse=_addresses)
NAMES: Final = OptionKind(wanted="names, with commas", parse=split_names)
PATTERN: Final = OptionKind(wanted="a regular expression", parse=_pattern)
JSON_OBJECT: Final = OptionKind(wanted='a JSON object such as {"anon":true}', parse=_json_object)
TAGS: Final = OptionKind(wanted="tags such as A || B", parse=lambda text: text or "*")
