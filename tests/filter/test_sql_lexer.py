"""Tokens: longest match, keywords in any case, comments as blanks, errors only where somebody reads."""

import pytest

from roquette.errors import ExpressionError
from roquette.filter.sql_parser import Lexer, TokenKind


def tokens(text):
    lexer = Lexer(text)
    found = []
    lexer.advance()
    while lexer.kind is not TokenKind.END:
        found.append((lexer.kind.name, lexer.text))
        lexer.advance()
    return found


@pytest.mark.parametrize(
    "text, kinds",
    [
        ("a_$1", "NAME"),
        ("nOt AND or In", "NOT AND OR IN"),
        ("notx", "NAME"),
        ("007", "DECIMAL DECIMAL DECIMAL"),
        ("0L", "DECIMAL NAME"),
        ("12l5", "DECIMAL DECIMAL"),
        ("1.5 .5 5. 1e5 5.E+3", "FLOAT FLOAT FLOAT FLOAT FLOAT"),
        ("1e", "DECIMAL NAME"),
        ("<=<><>=", "LESS_EQUAL NOT_EQUAL NOT_EQUAL EQUAL"),
        ("a--b\n-1", "NAME MINUS DECIMAL"),
        ("a--b", "NAME MINUS MINUS NAME"),
        ("/* x ** / */ a /**/", "NAME"),
        ("'it''s' ''''", "STRING STRING"),
        ("(,)+-", "OPEN COMMA CLOSE PLUS MINUS"),
    ],
)
def test_kinds(text, kinds):
    assert " ".join(kind for kind, _ in tokens(text)) == kinds


@pytest.mark.parametrize("text", ["@", "'open", "/* open", "!=", ".", "é", "\x0b", "a = \u00a01"])
def test_what_begins_no_token_is_told_with_its_column(text):
    with pytest.raises(ExpressionError, match=r"no token begins with .* at column"):
        tokens(text)


def test_a_text_loses_its_quotes():
    lexer = Lexer("'it''s'")
    lexer.advance()

    assert lexer.string() == "it's"
