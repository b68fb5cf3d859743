"""From the tree of a selector to tests of property bytes: the usual comparisons get a test of their own kind.

`general=True` uses the general tests only; both give the same answers (a property test proves it).
"""

from typing import Final

from roquette.filter import sql_eval as ev
from roquette.filter.sql_eval import Condition, Number, Operand, SqlFilter
from roquette.filter.sql_parser import parse_sql
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
)

_SIGNS: Final = {
    "<": ev.LESS,
    "<=": ev.LESS | ev.SAME,
    ">": ev.MORE,
    ">=": ev.MORE | ev.SAME,
}
_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_HOW: Final = {
    "CONTAINS": ev.CONTAINS,
    "STARTSWITH": ev.STARTS_WITH,
    "ENDSWITH": ev.ENDS_WITH,
}


def compile_sql(expression: str, *, general: bool = False) -> SqlFilter:
    """The filter of a selector.

    Raises:
        ExpressionError: as `parse_sql` does, and nothing else.
    """
    root, nodes = parse_sql(expression)
    return SqlFilter(expression, _Compiler(general).test(root), nodes)


class _Compiler:
    """Recursion over a tree whose height the parser has bounded."""

    def __init__(self, general: bool) -> None:
        self._general = general

    def test(self, node: Node) -> Condition:
        """The test of a node that has a truth value."""
        if isinstance(node, Junction):
            items = [self.test(item) for item in node.items]
            return ev.AnyTest(items) if node.any else ev.AllTest(items)
        if isinstance(node, Equal):
            return self._equal(node)
        if isinstance(node, Order):
            return self._order(node)
        if isinstance(node, Not):
            return ev.NotTest(self.test(node.operand))
        if isinstance(node, Cast):
            return ev.Presence(_mark(node.property), ev.FALSE, ev.NULL)
        if isinstance(node, IsNull):
            return self._is_null(node.operand)
        if isinstance(node, TextMatch):
            return self._text(node)
        if isinstance(node, InList):
            values = frozenset([_utf8(value) for value in node.values])
            return ev.InTest(_mark(node.property), values, node.negated)
        assert isinstance(node, Constant), node
        if node.type is Type.NULL:
            return ev.Fixed(ev.NULL)
        return ev.Fixed(ev.TRUE if node.value else ev.FALSE)

    def _equal(self, node: Equal) -> Condition:
        left, right = _folded(node.left), _folded(node.right)
        if not self._general:
            # Null on the left makes it null, null on the right FALSE.
            if isinstance(left, Property) and isinstance(right, Constant):
                found = _property_equal(left, right, ev.NULL)
                if found is not None:
                    return found
            if isinstance(right, Property) and isinstance(left, Constant):
                found = _property_equal(right, left, ev.FALSE)
                if found is not None:
                    return found
        return ev.EqualValues(self._operand(left), self._operand(right))

    def _order(self, node: Order) -> Condition:
        left, right, operator = _folded(node.left), _folded(node.right), node.operator
        if not self._general:
            if isinstance(left, Property) and isinstance(right, Constant) and right.type.is_number:
                return _property_number(left, right, _SIGNS[operator], ev.NULL)
            if isinstance(right, Property) and isinstance(left, Constant) and left.type.is_number:
                return _property_number(right, left, _SIGNS[_FLIPPED[operator]], ev.NULL)
        return ev.OrderValues(self._operand(left), self._operand(right), _SIGNS[operator])

    def _is_null(self, operand: Node) -> Condition:
        if isinstance(operand, Property):
            return ev.Presence(_mark(operand), ev.FALSE, ev.TRUE)
        null = Constant(Type.NULL, None)
        return (
            ev.EqualValues(self._operand(_folded(operand)), self._operand(null))
            if (isinstance(operand, (Constant, Negate)))
            else ev.IsNullTest(self.test(operand))
        )

    def _text(self, node: TextMatch) -> Condition:
        operand = node.operand
        if not node.search:
            return ev.Fixed(ev.FALSE)
        how, search = _HOW[node.how], _utf8(node.search)
        if isinstance(operand, Property):
            return ev.TextTest(_mark(operand), how, search, node.negated)
        if isinstance(operand, Constant) and operand.type is Type.STRING:
            assert isinstance(operand.value, str)
            return ev.Fixed(int(ev.text_matches(_utf8(operand.value), how, search) != node.negated))
        return ev.OtherText(self._operand(operand))

    def _operand(self, node: Node) -> Operand:
        """A side of a general comparison."""
        if isinstance(node, Negate):
            inner = _folded(node.operand)
            return (
                Operand(None, None, None, negate=True)
                if isinstance(inner, (Property, Constant))
                else self._negated(inner)
            )
        if isinstance(node, Property):
            return Operand(_mark(node), None, None, negate=False)
        if isinstance(node, Constant):
            return Operand(None, None, _value(node), negate=False)
        return Operand(None, self.test(node), None, negate=False)

    def _negated(self, inner: Node) -> Operand:
        """Minus before a condition, or before minus before one: null, but the condition is asked."""
        while isinstance(inner, Negate):
            inner = _folded(inner.operand)
        if isinstance(inner, (Property, Constant)):
            return Operand(None, None, None, negate=True)
        return Operand(None, self.test(inner), None, negate=True)


def _folded(node: Node) -> Node:
    """A negated number as the constant it is; Java's int and long of literals never overflow by it."""
    minus = False
    inner = node
    while isinstance(inner, Negate):
        minus = not minus
        inner = inner.operand
    if inner is node or not isinstance(inner, Constant) or not inner.type.is_number:
        return node
    assert isinstance(inner.value, (int, float))
    return Constant(inner.type, -inner.value if minus else inner.value)


def _property_equal(name: Property, constant: Constant, absent: int) -> Condition | None:
    """`name = constant` or the other way round, by what an absent property makes of it."""
    mark = _mark(name)
    if constant.type.is_number:
        return _property_number(name, constant, ev.SAME, absent)
    if constant.type is Type.STRING:
        assert isinstance(constant.value, str)
        return ev.EqualText(mark, _utf8(constant.value), absent)
    if constant.type is Type.BOOLEAN and absent == ev.NULL:
        return ev.EqualBoolean(mark, bool(constant.value))
    return None


def _property_number(name: Property, constant: Constant, signs: int, absent: int) -> Condition:
    mark, value = _mark(name), constant.value
    if constant.type is Type.DOUBLE:
        assert isinstance(value, float)
        return ev.DoubleTest(mark, value, signs, absent)
    assert isinstance(value, int)
    return ev.IntegerTest(mark, value, constant.type is Type.LONG, signs, absent)


def _value(constant: Constant) -> object:
    """A constant as `sql_eval` wants it."""
    value = constant.value
    if constant.type.is_number:
        assert isinstance(value, (int, float))
        return Number(
            value,
            is_long=constant.type is Type.LONG,
            is_double=constant.type is Type.DOUBLE,
        )
    return _utf8(value) if isinstance(value, str) else value


def _mark(name: Property) -> bytes:
    """What stands before the property's value in property bytes."""
    return name.name.encode() + b"\x01"


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
