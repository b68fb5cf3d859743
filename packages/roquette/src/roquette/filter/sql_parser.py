"""SQL92 selectors: grammar and the checks Apache makes while it parses.

    or         := and (OR and)*
    and        := equality (AND equality)*
    equality   := comparison ( = comparison | <> comparison | IS [NOT] NULL )*
    comparison := unary ( > unary | >= unary | < unary | <= unary | [NOT] BETWEEN unary AND unary
                        | [NOT] IN ( 'text', ... ) | [NOT] CONTAINS 'text' | [NOT] STARTSWITH 'text' | [NOT] ENDSWITH 'text' )*
    unary      := + unary | - unary | NOT unary | literal | name | ( or )

Of what follows a complete expression only the first token is looked at. Apache: SelectorParser.jj,
ComparisonExpression, UnaryExpression, ConstantExpression. Bounds are ours: Apache has none.
"""

import re
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from roquette.errors import ExpressionError
from roquette.filter.sql_eval import MAX_INTEGER, MAX_LONG
from roquette.filter.tags import check_length

# Tokens of a SQL92 selector, read one at a time: what follows a complete selector is never looked at.
# The rules are those of Apache's SelectorParser.jj: the longest match wins; keywords in any case; comments `-- ...` up to a line's end and `/* ... */` are blanks. The parser reads one token ahead, so an odd character far behind the end of a complete expression is never met, and no error.


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


# Tree of values that a SQL92 selector says. The parser builds it, `sql_compile` turns it into tests.
# Kinds of constants are Java's classes, since they decide how a text is converted: Integer, Long and Double convert differently (Apache: ConstantExpression).


class Type(Enum):
    """The Java class of a constant."""

    NULL = "null"
    BOOLEAN = "Boolean"
    INTEGER = "Integer"
    LONG = "Long"
    DOUBLE = "Double"
    STRING = "String"

    @property
    def is_number(self) -> bool:
        """Integer, Long or Double."""
        return self in (Type.INTEGER, Type.LONG, Type.DOUBLE)


@dataclass(slots=True, frozen=True)
class Constant:
    """A literal. `value` is None, bool, int, float or str, as `type` says."""

    type: Type
    value: bool | int | float | str | None


@dataclass(slots=True, frozen=True)
class Property:
    """A message property: a text, or null when the message has none of that name."""

    name: str


@dataclass(slots=True, frozen=True)
class Negate:
    """Minus: of a number its negative, of anything else null."""

    operand: "Node"


@dataclass(slots=True, frozen=True)
class Cast:
    """A property where a truth value is wanted: a text is no Boolean, so it is FALSE, or null when absent."""

    property: Property


@dataclass(slots=True, frozen=True)
class Not:
    """NOT in three-valued logic."""

    operand: "Node"


@dataclass(slots=True, frozen=True)
class Junction:
    """AND (`any` is false) or OR of two and more, evaluated from the left."""

    any: bool
    items: tuple["Node", ...]


@dataclass(slots=True, frozen=True)
class Equal:
    """`left = right`; `<>` is its Not."""

    left: "Node"
    right: "Node"


@dataclass(slots=True, frozen=True)
class IsNull:
    """IS NULL."""

    operand: "Node"


@dataclass(slots=True, frozen=True)
class Order:
    """`left operator right`, operator one of < <= > >=."""

    operator: str
    left: "Node"
    right: "Node"


@dataclass(slots=True, frozen=True)
class TextMatch:
    """CONTAINS, STARTSWITH or ENDSWITH, or with NOT before it."""

    how: str
    negated: bool
    operand: "Node"
    search: str


@dataclass(slots=True, frozen=True)
class InList:
    """`property IN ('a', 'b')`, or NOT IN."""

    property: Property
    values: frozenset[str]
    negated: bool


Node = (
    Constant
    | Property
    | Negate
    | Cast
    | Not
    | Junction
    | Equal
    | IsNull
    | Order
    | TextMatch
    | InList
)


def is_boolean(node: Node) -> bool:
    """Return True if a node has a truth value (Java: is a BooleanExpression); NULL counts as one."""
    if isinstance(node, Constant):
        return node.type in (Type.BOOLEAN, Type.NULL)
    return not isinstance(node, (Property, Negate))


MAX_NODES: Final = 4_096  # names, constants and operators; texts of an IN list do not count
MAX_DEPTH: Final = 64  # of brackets, NOT and signs
MAX_HEIGHT: Final = 128  # of the tree: comparisons in a row nest, too

_MAX_WORDS: Final = 120  # of an error, since it may quote a literal
_TEXT_MATCHES: Final = (TokenKind.CONTAINS, TokenKind.STARTSWITH, TokenKind.ENDSWITH)
_ORDERS: Final = {
    TokenKind.GREATER: ">",
    TokenKind.GREATER_EQUAL: ">=",
    TokenKind.LESS: "<",
    TokenKind.LESS_EQUAL: "<=",
}


def parse_sql(expression: str) -> tuple[Node, int]:
    """The tree of a selector, and how many nodes it has.

    Raises:
        ExpressionError: it is not one, compares what cannot be compared, or breaks a bound; nothing else is
            raised, whatever the text.
    """
    check_length(expression)
    parser = _Parser(Lexer(expression))
    root = parser.selector()
    if height(root) > MAX_HEIGHT:
        raise ExpressionError(f"operators are nested deeper than {MAX_HEIGHT}")
    return root, parser.nodes


class _Parser:
    """One pass over the tokens; `nodes` counts what was built."""

    def __init__(self, lexer: Lexer) -> None:
        self._lexer = lexer
        self._depth = 0
        self.nodes = 0
        lexer.advance()

    def selector(self) -> Node:
        """Parse a complete expression."""
        return self._boolean(self._or())

    def _or(self) -> Node:
        left = self._and()
        if self._lexer.kind is not TokenKind.OR:
            return left
        items = [self._boolean(left)]
        while self._accept(TokenKind.OR):
            items.append(self._boolean(self._and()))
        return self._count(Junction(True, tuple(items)))

    def _and(self) -> Node:
        left = self._equality()
        if self._lexer.kind is not TokenKind.AND:
            return left
        items = [self._boolean(left)]
        while self._accept(TokenKind.AND):
            items.append(self._boolean(self._equality()))
        return self._count(Junction(False, tuple(items)))

    def _equality(self) -> Node:
        left = self._comparison()
        while True:
            if self._accept(TokenKind.EQUAL):
                left = self._equal(left, self._comparison())
            elif self._accept(TokenKind.NOT_EQUAL):
                left = self._count(Not(self._equal(left, self._comparison())))
            elif self._accept(TokenKind.IS):
                negated = self._accept(TokenKind.NOT)
                self._expect(TokenKind.NULL)
                left = self._count(IsNull(left))
                if negated:
                    left = self._count(Not(left))
            else:
                return left

    def _equal(self, left: Node, right: Node) -> Node:
        """ComparisonExpression.createEqual with its checks."""
        for side in (left, right):
            if isinstance(side, Constant) and side.type is Type.NULL:
                raise self._wrong("NULL cannot be compared, use IS NULL")
        constants = isinstance(left, Constant) and isinstance(right, Constant)
        if constants and is_boolean(left) and not is_boolean(right):
            raise self._wrong("TRUE and FALSE cannot be compared with texts and numbers")
        return self._count(Equal(left, right))

    def _comparison(self) -> Node:
        left = self._unary()
        lexer = self._lexer
        while True:
            kind = lexer.kind
            order = _ORDERS.get(kind)
            if order is not None:
                lexer.advance()
                left = self._order(order, left, self._unary())
            elif kind in _TEXT_MATCHES or kind in (TokenKind.BETWEEN, TokenKind.IN):
                left = self._predicate(left, negated=False)
            elif kind is TokenKind.NOT:
                lexer.advance()
                left = self._predicate(left, negated=True)
            else:
                return left

    def _predicate(self, left: Node, *, negated: bool) -> Node:
        """Parse what may follow an optional NOT."""
        kind = self._lexer.kind
        if kind is TokenKind.BETWEEN:
            self._lexer.advance()
            low = self._unary()
            self._expect(TokenKind.AND)
            return self._between(left, low, self._unary(), negated)
        if kind is TokenKind.IN:
            self._lexer.advance()
            return self._in_list(left, negated)
        if kind in _TEXT_MATCHES:
            self._lexer.advance()
            return self._count(TextMatch(kind.name, negated, left, self._string()))
        raise self._unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")

    def _between(self, value: Node, low: Node, high: Node, negated: bool) -> Node:
        if negated:
            first, second = self._order("<", value, low), self._order(">", value, high)
            return self._count(Junction(True, (first, second)))
        first, second = self._order(">=", value, low), self._order("<=", value, high)
        if isinstance(low, Constant) and isinstance(high, Constant):
            assert isinstance(low.value, (int, float))
            assert isinstance(high.value, (int, float))
            if less_than(high.value, low.value):
                raise self._wrong(
                    f"BETWEEN: {low.value} must be less than or equal to {high.value}"
                )
        return self._count(Junction(False, (first, second)))

    def _order(self, operator: str, left: Node, right: Node) -> Node:
        """ComparisonExpression.createLessThan and its like: numbers and properties only."""
        for side in (left, right):
            if isinstance(side, Constant) and not side.type.is_number:
                raise self._wrong(f"{side.value!r} cannot be compared by {operator}")
            if is_boolean(side):
                raise self._wrong(f"a truth value cannot be compared by {operator}")
        return self._count(Order(operator, left, right))

    def _in_list(self, left: Node, negated: bool) -> Node:
        self._expect(TokenKind.OPEN)
        values = [self._string()]
        while self._accept(TokenKind.COMMA):
            values.append(self._string())
        self._expect(TokenKind.CLOSE)
        if not isinstance(left, Property):
            raise self._wrong("IN wants a property on its left")
        return self._count(InList(left, frozenset(values), negated))

    def _unary(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._wrong(f"nested deeper than {MAX_DEPTH}")
        node: Node
        if self._accept(TokenKind.PLUS):
            node = self._unary()
        elif self._accept(TokenKind.MINUS):
            node = self._count(Negate(self._unary()))
        elif self._accept(TokenKind.NOT):
            node = self._count(Not(self._boolean(self._unary())))
        elif self._accept(TokenKind.OPEN):
            node = self._or()
            self._expect(TokenKind.CLOSE)
        else:
            node = self._primary()
        self._depth -= 1
        return node

    def _primary(self) -> Node:
        lexer = self._lexer
        kind, text = lexer.kind, lexer.text
        node: Node
        if kind is TokenKind.NAME:
            node = Property(text)
        elif kind is TokenKind.STRING:
            node = Constant(Type.STRING, lexer.string())
        elif kind is TokenKind.DECIMAL:
            node = self._decimal(text)
        elif kind is TokenKind.FLOAT:
            node = self._float(text)
        elif kind in (TokenKind.TRUE, TokenKind.FALSE):
            node = Constant(Type.BOOLEAN, kind is TokenKind.TRUE)
        elif kind is TokenKind.NULL:
            node = Constant(Type.NULL, None)
        else:
            raise self._unexpected("a property, a literal or a bracket")
        lexer.advance()
        return self._count(node)

    def _decimal(self, text: str) -> Constant:
        digits = text.rstrip("lL")
        if len(digits) > 19 or int(digits) > MAX_LONG:
            raise self._wrong(f"{text[:40]} does not fit a long")
        value = int(digits)
        return Constant(Type.INTEGER if value <= MAX_INTEGER else Type.LONG, value)

    def _float(self, text: str) -> Constant:
        value = float(text)
        if value in (0.0, float("inf")):  # ConstantExpression.createFloat refuses 0.0, too
            raise self._wrong(f"{text[:40]} is not a double above 0")
        return Constant(Type.DOUBLE, value)

    # Tokens, counts, errors.

    def _boolean(self, node: Node) -> Node:
        """Take a node for a truth value (SelectorParser.asBooleanExpression)."""
        if is_boolean(node):
            return node
        if isinstance(node, Property):
            return self._count(Cast(node))
        raise self._wrong("the expression will not result in a boolean value")

    def _count(self, node: Node) -> Node:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self._wrong(f"more than {MAX_NODES} names, literals and operators")
        return node

    def _accept(self, kind: TokenKind) -> bool:
        if self._lexer.kind is not kind:
            return False
        self._lexer.advance()
        return True

    def _expect(self, kind: TokenKind) -> None:
        if not self._accept(kind):
            raise self._unexpected(kind.name)

    def _string(self) -> str:
        if self._lexer.kind is not TokenKind.STRING:
            raise self._unexpected("a text in single quotes")
        text = self._lexer.string()
        self._lexer.advance()
        return text

    def _unexpected(self, wanted: str) -> ExpressionError:
        lexer = self._lexer
        met = "the end" if lexer.kind is TokenKind.END else repr(lexer.text[:40])
        return ExpressionError(f"{met} at column {lexer.column}, expected {wanted}")

    def _wrong(self, words: str) -> ExpressionError:
        shown = words if len(words) <= _MAX_WORDS else f"{words[:_MAX_WORDS]}..."
        return ExpressionError(f"{shown}, before column {self._lexer.column}")


def less_than(left: float, right: float) -> bool:
    """Java's compareTo of two number constants: a Double among them makes both doubles."""
    if isinstance(left, float) or isinstance(right, float):
        return float(left) < float(right)
    return left < right


def height(root: Node) -> int:
    """The longest way from the root of a tree down, counted in nodes; without recursion."""
    highest = 0
    open_nodes: list[tuple[Node, int]] = [(root, 1)]
    while open_nodes:
        node, level = open_nodes.pop()
        highest = max(highest, level)
        if isinstance(node, Junction):
            open_nodes += [(item, level + 1) for item in node.items]
        elif isinstance(node, (Equal, Order)):
            open_nodes += [(node.left, level + 1), (node.right, level + 1)]
        elif isinstance(node, (Negate, Not, IsNull, TextMatch)):
            open_nodes.append((node.operand, level + 1))
    return highest
