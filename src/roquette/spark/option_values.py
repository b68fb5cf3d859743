"""Spark's option texts to values: every refusal is one line that names the option, and never a value of a secret."""

import difflib
import re
from collections.abc import Mapping, Sequence

from roquette.errors import ConfigError

# What Spark's catalog adds to the options of a table made with CREATE TABLE ... USING.
_SPARKS_OWN = frozenset(
    ("owner", "provider", "location", "external", "comment", "collation", "is_managed_location")
)
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION = re.compile(r"(\d+)\s*(ms|s|sec|m|min|h|d|)")
_MILLISECONDS = {
    "": 1,
    "ms": 1,
    "s": 1_000,
    "sec": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


class OptionValues:
    """The options of one `format(...)`; names are case-insensitive.

    Args:
        source: the format's name, with which every error begins.
        options: what Spark hands over.
        known: every option there is.
        also: options that are tolerated without being listed to people, such as those of the other direction.
        prefix: names that begin so belong to somebody else, who checks them; "" if there are none.

    Raises:
        ConfigError: an option is not known.
    """

    def __init__(
        self,
        source: str,
        options: Mapping[str, str],
        known: Sequence[str],
        also: Sequence[str] = (),
        prefix: str = "",
    ) -> None:
        self.source = source
        self._given = {name.lower(): value for name, value in options.items()}
        by_lower = {name.lower(): name for name in known}
        tolerated = _SPARKS_OWN.union(name.lower() for name in also)
        for name in self._given:
            if name in by_lower or name in tolerated or name.startswith("option."):
                continue
            if prefix and name.startswith(prefix):
                continue
            close = difflib.get_close_matches(name, by_lower, 1)
            hint = f"did you mean {by_lower[close[0]]}?" if close else f"known: {', '.join(known)}"
            raise ConfigError(f"{source}: unknown option {name}; {hint}")

    def given(self, name: str) -> bool:
        """Whether the option is there at all."""
        return name.lower() in self._given

    def names_with(self, prefix: str) -> list[str]:
        """The given names, in lower case, that begin so."""
        return sorted(name for name in self._given if name.startswith(prefix))

    def text(self, name: str, default: str = "") -> str:
        """The text without spaces around it."""
        return self._given.get(name.lower(), default).strip()

    def either(self, first: str, second: str) -> str:
        """The text of an option that has two names; "" when neither is given."""
        one, two = self.text(first), self.text(second)
        if one and two and one != two:
            raise ConfigError(
                f"{self.source}: options {first} and {second} mean the same: give one of them"
            )
        return one or two

    def names(self, text: str) -> tuple[str, ...]:
        """The parts of a text with commas."""
        return tuple(part.strip() for part in text.split(",") if part.strip())

    def integer(self, name: str, default: int, *, least: int = 1) -> int:
        """A whole number of at least `least`."""
        text = self._given.get(name.lower())
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise ConfigError(
                f"{self.source}: option {name} must be a number of at least {least}, not {text!r}"
            )
        return value

    def optional_integer(self, name: str, *, least: int = 0) -> int | None:
        """A whole number of at least `least`, None when it is not given."""
        return self.integer(name, 0, least=least) if self.given(name) else None

    def size(self, name: str, default: int) -> int:
        """Bytes, at least one: `134217728`, `128m`, `1g`."""
        text = self._given.get(name.lower())
        if text is None:
            return default
        found = _SIZE.fullmatch(text.strip().lower())
        if found is None or not int(found[1]):
            raise ConfigError(
                f"{self.source}: option {name} must be a size such as 128m, not {text!r}"
            )
        return int(found[1]) * _UNITS[found[2]]

    def duration_ms(self, name: str, default: int) -> int:
        """Milliseconds: `500`, `500ms`, `10s`, `15m`, `1h`."""
        text = self._given.get(name.lower())
        if text is None:
            return default
        found = _DURATION.fullmatch(text.strip().lower())
        if found is None:
            raise ConfigError(
                f"{self.source}: option {name} must be a time such as 10s or 15m, not {text!r}"
            )
        return int(found[1]) * _MILLISECONDS[found[2]]

    def flag(self, name: str, default: bool) -> bool:
        """`true` or `false`."""
        text = self._given.get(name.lower())
        if text is None:
            return default
        if text.strip().lower() not in {"true", "false"}:
            raise ConfigError(f"{self.source}: option {name} must be true or false, not {text!r}")
        return text.strip().lower() == "true"

    def choice(self, name: str, *choices: str) -> str:
        """One of these words; the first is the default."""
        text = self.text(name, choices[0])
        if text.lower() not in choices:
            raise ConfigError(
                f"{self.source}: option {name} must be {' or '.join(choices)}, not {text!r}"
            )
        return text.lower()

    def pattern(self, name: str) -> str:
        """A regular expression, "" when it is not given."""
        text = self.text(name)
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigError(
                f"{self.source}: option {name} is no regular expression: {error}"
            ) from None
        return text
