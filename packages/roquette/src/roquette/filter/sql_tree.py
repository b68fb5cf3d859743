"""Tree of values that a SQL92 selector says. The parser builds it, `sql_compile` turns it into tests.

Kinds of constants are Java's classes, since they decide how a text is converted: Integer, Long and
Double convert differently (Apache: ConstantExpression).
"""

from dataclasses import dataclass
from enum import Enum


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
