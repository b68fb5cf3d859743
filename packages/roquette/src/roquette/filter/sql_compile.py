"""From the tree of a selector to tests of property bytes."""

from typing import Final

from roquette.filter import sql_eval as ev
from roquette.filter.sql_eval import Condition, Number, Operand, SqlFilter
from roquette.filter.sql_parser import (
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
    parse_sql,
)

_SIGNS: Final = {
    "<": ev.LESS,
    "<=": ev.LESS | ev.SAME,
    ">": ev.MORE,
    ">=": ev.MORE | ev.SAME,
}
_HOW: Final = {
    "CONTAINS": ev.CONTAINS,
    "STARTSWITH": ev.STARTS_WITH,
    "ENDSWITH": ev.ENDS_WITH,
}


def compile_sql(expression: str) -> SqlFilter:
    """The filter of a selector.

    Raises:
        ExpressionError: as `parse_sql` does, and nothing else.
    """
    root, nodes = parse_sql(expression)
    return SqlFilter(expression, _test(root), nodes)


def _test(node: Node) -> Condition:
    """The test of a node that has a truth value."""
    if isinstance(node, Junction):
        items = [_test(item) for item in node.items]
        return ev.AnyTest(items) if node.any else ev.AllTest(items)
    if isinstance(node, Equal):
        return ev.EqualValues(_operand(_folded(node.left)), _operand(_folded(node.right)))
    if isinstance(node, Order):
        left, right = _operand(_folded(node.left)), _operand(_folded(node.right))
        return ev.OrderValues(left, right, _SIGNS[node.operator])
    if isinstance(node, Not):
        return ev.NotTest(_test(node.operand))
    if isinstance(node, Cast):
        return ev.Presence(_mark(node.property), ev.FALSE, ev.NULL)
    if isinstance(node, IsNull):
        return _is_null(node.operand)
    if isinstance(node, TextMatch):
        return _text(node)
    if isinstance(node, InList):
        values = frozenset([_utf8(value) for value in node.values])
        return ev.InTest(_mark(node.property), values, node.negated)
    assert isinstance(node, Constant), node
    if node.type is Type.NULL:
        return ev.Fixed(ev.NULL)
    return ev.Fixed(ev.TRUE if node.value else ev.FALSE)


def _is_null(operand: Node) -> Condition:
    if isinstance(operand, Property):
        return ev.Presence(_mark(operand), ev.FALSE, ev.TRUE)
    null = Constant(Type.NULL, None)
    return (
        ev.EqualValues(_operand(_folded(operand)), _operand(null))
        if (isinstance(operand, (Constant, Negate)))
        else ev.IsNullTest(_test(operand))
    )


def _text(node: TextMatch) -> Condition:
    operand = node.operand
    if not node.search:
        return ev.Fixed(ev.FALSE)
    how, search = _HOW[node.how], _utf8(node.search)
    if isinstance(operand, Property):
        return ev.TextTest(_mark(operand), how, search, node.negated)
    if isinstance(operand, Constant) and operand.type is Type.STRING:
        assert isinstance(operand.value, str)
        return ev.Fixed(int(ev.text_matches(_utf8(operand.value), how, search) != node.negated))
    return ev.OtherText(_operand(operand))


def _operand(node: Node) -> Operand:
    """A side of a comparison."""
    inner = node
    while isinstance(inner, Negate):
        inner = _folded(inner.operand)
    negate = inner is not node  # minus: null, but a condition behind it is asked
    if not isinstance(inner, (Property, Constant)):
        return Operand(None, _test(inner), None, negate=negate)
    if negate:
        return Operand(None, None, None, negate=True)
    if isinstance(inner, Property):
        return Operand(_mark(inner), None, None, negate=False)
    return Operand(None, None, _value(inner), negate=False)


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
    """The bytes before the property's value in a property string."""
    return name.name.encode() + b"\x01"


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
