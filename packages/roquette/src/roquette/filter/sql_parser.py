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

from typing import Final

from roquette.errors import ExpressionError
from roquette.filter.conversions import MAX_INTEGER, MAX_LONG
from roquette.filter.sql_lexer import Lexer, TokenKind
from roquette.filter.sql_tree import (
    Cast,
    Constant,
    Equal,
    InList,
    IsNull,
    Junction,
    Negate,
    Node,
    Not,
    Order,
    Property,
    TextMatch,
    Type,
    is_boolean,
)
from roquette.filter.tags import check_length

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
