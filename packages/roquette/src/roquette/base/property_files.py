"""Property files as java.util.Properties reads them."""

import re
from collections.abc import Mapping
from typing import Final


def parse_properties(text: str) -> dict[str, str]:
    """Read a property file as java.util.Properties does; lines with an empty key are passed over.

    A malformed unicode escape, which ends Java's reading, is a plain `u`: files that go about have some.
    """
    found: dict[str, str] = {}
    pending = ""
    for raw in [*re.split(r"\r\n|\r|\n", text), ""]:  # Java knows no other ends of lines
        line = pending + raw.lstrip(" \t\f")
        pending = ""
        if not line or line[0] in "#!":
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        key, value = _PROPERTY.fullmatch(line).groups()  # type: ignore[union-attr]  # all lines match
        if key:
            found[_unescape(key)] = _unescape(value)
    return found


_PROPERTY: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.S)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.S)


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code, char = match.groups()
        return (
            chr(int(code, 16))
            if code
            else {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(char, char)
        )

    # Escapes come as UTF-16: pairs belong together, and half a pair is no text.
    return (
        _ESCAPE.sub(one, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    )


def format_properties(values: Mapping[str, str]) -> str:
    """`key=value` lines as Apache's MixAll.properties2String gives them."""
    return "".join(f"{key}={value}\n" for key, value in values.items())
