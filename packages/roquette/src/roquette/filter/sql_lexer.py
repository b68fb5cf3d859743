"""Tokens of a SQL92 selector, read one at a time: what follows a complete selector is never looked at.

The rules are those of Apache's SelectorParser.jj: the longest match wins; keywords in any case; comments `-- ...`
up to a line's end and `/* ... */` are blanks. The parser reads one token ahead, so an odd character
far behind the end of a complete expression is never met, and no error.
"""

import re
from enum import IntEnum
from typing import Final

from roquette.errors import ExpressionError


class TokenKind(IntEnum):
    """Kind of a token."""

    END = 0
    NAME = 1
    STRING = 2
    DECIMAL = 3
    FLOAT = 4
    NOT = 5
    AND = 6
    OR = 7
    BETWEEN = 8
    IN = 9
    TRUE = 10
    FALSE = 11
    NULL = 12
    IS = 13
    CONTAINS = 14
    STARTSWITH = 15
    ENDSWITH = 16
    EQUAL = 17
    NOT_EQUAL = 18
    GREATER = 19
    GREATER_EQUAL = 20
    LESS = 21
    LESS_EQUAL = 22
    OPEN = 23
    COMMA = 24
    CLOSE = 25
    PLUS = 26
    MINUS = 27


_KEYWORDS: Final = {
    kind.name: kind for kind in TokenKind if TokenKind.NOT <= kind <= TokenKind.ENDSWITH
}
_SYMBOLS: Final = {
    "=": TokenKind.EQUAL,
    "<>": TokenKind.NOT_EQUAL,
    ">": TokenKind.GREATER,
    ">=": TokenKind.GREATER_EQUAL,
    "<": TokenKind.LESS,
    "<=": TokenKind.LESS_EQUAL,
    "(": TokenKind.OPEN,
    ",": TokenKind.COMMA,
    ")": TokenKind.CLOSE,
    "+": TokenKind.PLUS,
    "-": TokenKind.MINUS,
}

_BLANK: Final = re.compile(
    r"(?:[ \t\n\r\f]+"
    r"|--[^\n\r]*(?:\r\n|\n|\r)"
    r"|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)*"
)
# Floats stand before decimals: where both match, the float is longer.
_TOKEN: Final = re.compile(
    r"(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<decimal>0|[1-9][0-9]*[lL]?)"
    r"|(?P<string>'[^']*(?:''[^']*)*')"
    r"|(?P<symbol><>|<=|>=|[=<>(),+-])"
)


class Lexer:
    """The tokens of one text. `kind` and `text` are the current token's, `column` where it begins (from 1)."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._place = 0
        self.kind = TokenKind.END
        self.text = ""
        self.column = 0

    def advance(self) -> None:
        """Read the next token; at the end of the text it is END, again and again.

        Raises:
            ExpressionError: no token begins there.
        """
        blank = _BLANK.match(self._source, self._place)
        assert blank is not None
        place = blank.end()
        self.column = place + 1
        if place >= len(self._source):
            self.kind, self.text, self._place = TokenKind.END, "", place
            return
        found = _TOKEN.match(self._source, place)
        if found is None:
            raise ExpressionError(
                f"no token begins with {self._source[place]!r} at column {place + 1}"
            )
        self.text = found.group()
        self._place = found.end()
        group = found.lastgroup
        if group == "name":
            self.kind = _KEYWORDS.get(self.text.upper(), TokenKind.NAME)
        elif group == "symbol":
            self.kind = _SYMBOLS[self.text]
        elif group == "string":
            self.kind = TokenKind.STRING
        else:
            self.kind = TokenKind.FLOAT if group == "float" else TokenKind.DECIMAL

    def string(self) -> str:
        """The value of a string token: without its quotes, doubled quotes as one."""
        return self.text[1:-1].replace("''", "'")
