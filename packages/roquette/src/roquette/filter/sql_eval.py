"""Tests of a message's property bytes, which a SQL92 selector is compiled to. HOT.

Every test answers TRUE, FALSE, NULL or ERROR, Java's evaluate(): ERROR is where Apache throws (a text that is no number),
and the message is not wanted then. Nothing is raised, nothing is kept between two messages, and only the properties a test
names are looked up: the last occurrence that has a value counts (MessageDecoder.string2messageProperties).

Apache: ComparisonExpression, UnaryExpression, LogicExpression.
"""

import math
import re
import unicodedata
from typing import Final

from mypy_extensions import i64

from roquette.message.properties import property_bytes

# Java's conversions of property texts, byte for byte as its filter does them. HOT.
# A text is the UTF-8 of a property. Integer.valueOf and Long.valueOf take a sign and decimal digits of any script; Double.valueOf trims, and takes what FloatingDecimal.readJavaFormatString takes.


BAD: Final = 2  # instead of a sign: the text is no such number (NumberFormatException)

MAX_INTEGER: Final = 2_147_483_647
MAX_LONG: Final = 9_223_372_036_854_775_807
_FAST_DIGITS: Final = 18  # so many always fit

_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEX: Final = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_BLANKS: Final = "".join([chr(code) for code in range(33)])


def compare_integer(text: bytes, constant: i64, is_long: bool) -> i64:
    """Sign of text minus constant, after Long.valueOf or Integer.valueOf; BAD when the text is invalid."""
    size: i64 = len(text)
    position: i64 = 0
    value: i64 = 0
    negative = False
    if size > 0:
        first: i64 = text[0]
        if first == 45:
            negative = True
            position = 1
        elif first == 43:
            position = 1
    # More digits may not fit an i64, and Java takes digits beyond ASCII: the slow way judges both.
    if position == size or size - position > _FAST_DIGITS:
        return _compare_slowly(text, constant, is_long)
    while position < size:
        digit: i64 = text[position]
        if digit < 48 or digit > 57:
            return _compare_slowly(text, constant, is_long)
        value = value * 10 + digit - 48
        position += 1
    if negative:
        value = -value
    if not is_long and (value > MAX_INTEGER or value < -MAX_INTEGER - 1):
        return BAD
    if value < constant:
        return -1
    return 1 if value > constant else 0


def _compare_slowly(text: bytes, constant: int, is_long: bool) -> int:
    value = java_integer(text.decode("utf-8", "replace"), MAX_LONG if is_long else MAX_INTEGER)
    if value is None:
        return BAD
    if value < constant:
        return -1
    return 1 if value > constant else 0


def java_integer(text: str, highest: int) -> int | None:
    """Integer.valueOf or Long.valueOf, by their highest value; None where Java throws."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits:
        return None
    value = 0
    for character in digits:
        digit = -1
        if ord(character) <= 0xFFFF:  # Java looks at UTF-16 units: half a pair is no digit
            digit = unicodedata.decimal(character, -1)
        if digit < 0:
            return None
        value = value * 10 + digit
        if value > highest + 1:
            return None
    if text.startswith("-"):
        return -value
    return value if value <= highest else None


def java_double(text: bytes) -> float | None:
    """Double.valueOf; None where Java throws."""
    words = text.decode("utf-8", "replace").strip(_BLANKS)
    found = _DECIMAL.match(words)
    if found is not None:
        rest = words[found.end() :]
        if not rest or (len(rest) == 1 and rest in "fFdD"):
            return float(found.group())
    unsigned = words[1:] if words[:1] in ("+", "-") else words
    if unsigned == "NaN":
        return math.nan
    if unsigned == "Infinity":
        return -math.inf if words.startswith("-") else math.inf
    found = _HEX.match(words)
    if found is not None:
        rest = words[found.end() :]
        if not rest or (len(rest) == 1 and rest in "fFdD"):
            return _from_hex(found.group())
    return None


def _from_hex(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def compare_double(text: bytes, constant: float) -> int:
    """Sign of text compared with a constant, after Double.valueOf; BAD when the text is invalid."""
    value = java_double(text)
    return BAD if value is None else double_sign(value, constant)


def double_sign(left: float, right: float) -> int:
    """Double.compareTo: -0.0 is below 0.0, NaN equals itself and is above everything."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        if left != 0.0:
            return 0
        return int(math.copysign(1.0, left) - math.copysign(1.0, right)) // 2
    if left != left:  # noqa: PLR0124 - NaN
        return 0 if right != right else 1  # noqa: PLR0124
    return -1


TRUE: Final = 1
FALSE: Final = 0
NULL: Final = -1
ERROR: Final = -2

LESS: Final = 1  # bits of an operator: which signs of a comparison make it true
SAME: Final = 2
MORE: Final = 4

CONTAINS: Final = 0
STARTS_WITH: Final = 1
ENDS_WITH: Final = 2


class Condition:
    """One condition."""

    __slots__ = ()

    def test(self, properties: bytes) -> i64:
        """TRUE, FALSE, NULL or ERROR for these properties."""
        raise AssertionError("every kind of test has its own")


class Fixed(Condition):
    """The same for every message."""

    __slots__ = ("_answer",)

    def __init__(self, answer: i64) -> None:
        self._answer: i64 = answer

    def test(self, properties: bytes) -> i64:
        return self._answer


class Presence(Condition):
    """One answer when the property is there, one when not: IS NULL, a property as truth value."""

    __slots__ = ("_absent", "_mark", "_present")

    def __init__(self, mark: bytes, present: i64, absent: i64) -> None:
        self._mark: bytes = mark
        self._present: i64 = present
        self._absent: i64 = absent

    def test(self, properties: bytes) -> i64:
        value = property_bytes(properties, self._mark)
        return self._absent if value is None else self._present


class NotTest(Condition):
    """NOT: null stays null."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Condition) -> None:
        self._inner: Condition = inner

    def test(self, properties: bytes) -> i64:
        answer = self._inner.test(properties)
        return answer if answer < 0 else 1 - answer


class IsNullTest(Condition):
    """IS NULL of a condition."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Condition) -> None:
        self._inner: Condition = inner

    def test(self, properties: bytes) -> i64:
        """TRUE when the condition is null."""
        answer = self._inner.test(properties)
        if answer == ERROR:
            return ERROR
        return TRUE if answer == NULL else FALSE


class AllTest(Condition):
    """AND: FALSE ends it, an ERROR met before ends it, too."""

    __slots__ = ("_items",)

    def __init__(self, items: list[Condition]) -> None:
        self._items: list[Condition] = items

    def test(self, properties: bytes) -> i64:
        """TRUE when all are."""
        found: i64 = TRUE
        for item in self._items:
            answer = item.test(properties)
            if answer == NULL:
                found = NULL
            elif answer != TRUE:
                return answer
        return found


class AnyTest(Condition):
    """OR: TRUE ends it, an ERROR met before ends it, too."""

    __slots__ = ("_items",)

    def __init__(self, items: list[Condition]) -> None:
        self._items: list[Condition] = items

    def test(self, properties: bytes) -> i64:
        """TRUE when one is."""
        found: i64 = FALSE
        for item in self._items:
            answer = item.test(properties)
            if answer == NULL:
                found = NULL
            elif answer != FALSE:
                return answer
        return found


class TextTest(Condition):
    """Property CONTAINS, STARTSWITH or ENDSWITH a text that is not empty; absent is FALSE, with NOT as well."""

    __slots__ = ("_mark", "_match_kind", "_negated", "_search")

    def __init__(self, mark: bytes, match_kind: i64, search: bytes, negated: bool) -> None:
        self._mark: bytes = mark
        self._match_kind: i64 = match_kind
        self._search: bytes = search
        self._negated: bool = negated

    def test(self, properties: bytes) -> i64:
        """Never null."""
        value = property_bytes(properties, self._mark)
        if value is None:
            return FALSE
        found = text_matches(value, self._match_kind, self._search)
        return FALSE if found == self._negated else TRUE


def text_matches(value: bytes, match_kind: i64, search: bytes) -> bool:
    """CONTAINS, STARTSWITH or ENDSWITH of a text."""
    if match_kind == CONTAINS:
        return search in value
    return value.startswith(search) if match_kind == STARTS_WITH else value.endswith(search)


class InTest(Condition):
    """Property IN a list of texts."""

    __slots__ = ("_mark", "_negated", "_values")

    def __init__(self, mark: bytes, values: frozenset[bytes], negated: bool) -> None:
        self._mark: bytes = mark
        self._values: frozenset[bytes] = values
        self._negated: bool = negated

    def test(self, properties: bytes) -> i64:
        """NULL when it is absent."""
        value = property_bytes(properties, self._mark)
        if value is None:
            return NULL
        return FALSE if (value in self._values) == self._negated else TRUE


class Number:
    """A Java number: its class, and its value as that class has it."""

    __slots__ = ("double", "integer", "is_double", "is_long")

    def __init__(self, value: int | float, *, is_long: bool, is_double: bool) -> None:
        self.double: float = float(value)
        self.integer: i64 = 0 if is_double else int(value)
        self.is_long: bool = is_long
        self.is_double: bool = is_double


class Operand:
    """One side of a comparison.

    A value is None (null), a bool, a Number, the bytes of a text, or `_FAILED`.
    """

    __slots__ = ("_constant", "_mark", "_negate", "_test")

    def __init__(
        self, mark: bytes | None, test: Condition | None, constant: object, *, negate: bool
    ) -> None:
        self._mark: bytes | None = mark  # a property,
        self._test: Condition | None = test  # or a condition,
        self._constant: object = constant  # or neither: a constant
        self._negate: bool = negate  # and minus before it: null, since it is no number

    def value(self, properties: bytes) -> object:
        """The value for these properties."""
        found = self._constant
        if self._mark is not None:
            found = property_bytes(properties, self._mark)
        elif self._test is not None:
            answer = self._test.test(properties)
            if answer == ERROR:
                return _FAILED
            found = None if answer == NULL else answer == TRUE
        return None if self._negate else found


class _Failed:
    __slots__ = ()


_FAILED: Final = _Failed()


class EqualValues(Condition):
    """`=` between two operands of any kind (ComparisonExpression.doCreateEqual)."""

    __slots__ = ("_left", "_right")

    def __init__(self, left: Operand, right: Operand) -> None:
        self._left: Operand = left
        self._right: Operand = right

    def test(self, properties: bytes) -> i64:
        """Null on the left is null, null on the right only is FALSE, two nulls are equal."""
        left = self._left.value(properties)
        if left is _FAILED:
            return ERROR
        right = self._right.value(properties)
        if right is _FAILED:
            return ERROR
        if left is None:
            return TRUE if right is None else NULL
        if right is None:
            return FALSE
        sign = java_sign(left, right)
        if sign == BAD:
            return ERROR
        return TRUE if sign == 0 else FALSE


class OrderValues(Condition):
    """`<` and its like between two operands of any kind (ComparisonExpression.evaluate)."""

    __slots__ = ("_left", "_right", "_signs")

    def __init__(self, left: Operand, right: Operand, signs: i64) -> None:
        self._left: Operand = left
        self._right: Operand = right
        self._signs: i64 = signs

    def test(self, properties: bytes) -> i64:
        """Null on the left ends it; two texts are compared as doubles."""
        left = self._left.value(properties)
        if left is None:
            return NULL
        right = self._right.value(properties)
        if left is _FAILED or right is _FAILED:
            return ERROR
        if right is None:
            return NULL
        sign: i64
        if isinstance(left, bytes) and isinstance(right, bytes):
            first, second = java_double(left), java_double(right)
            if first is None or second is None:
                return ERROR
            sign = double_sign(first, second)
        else:
            sign = java_sign(left, right)
            if sign == BAD:
                return ERROR
        return (self._signs >> (sign + 1)) & 1


class OtherText(Condition):
    """CONTAINS and its like of a condition: no text, so FALSE, when the condition can be had at all."""

    __slots__ = ("_operand",)

    def __init__(self, operand: Operand) -> None:
        self._operand: Operand = operand

    def test(self, properties: bytes) -> i64:
        """FALSE or ERROR."""
        return ERROR if self._operand.value(properties) is _FAILED else FALSE


def java_sign(left: object, right: object) -> i64:
    """ComparisonExpression.__compare of two values that are not null: a sign, or BAD where Java throws.

    Classes that do not go together are -1: not equal, and less.
    """
    if isinstance(left, bytes):
        return _text_sign(left, right)
    if isinstance(left, bool):
        if isinstance(right, bool):
            return int(left) - int(right)
        return BAD if isinstance(right, bytes) else -1  # Java casts the Boolean to String there
    assert isinstance(left, Number)
    if isinstance(right, Number):
        if left.is_double or right.is_double:
            return double_sign(left.double, right.double)
        return (left.integer > right.integer) - (left.integer < right.integer)
    if not isinstance(right, bytes):
        return -1
    sign = _text_sign(right, left)
    return sign if sign == BAD else -sign


def _text_sign(left: bytes, right: object) -> i64:
    if isinstance(right, bytes):
        return 0 if left == right else 1  # only equality comes here
    if isinstance(right, bool):
        return int(left.lower() == b"true") - int(right)
    assert isinstance(right, Number)
    if right.is_double:
        return compare_double(left, right.double)
    return compare_integer(left, right.integer, right.is_long)


class SqlFilter:
    """One compiled selector; shared by all who have the same expression.

    Attributes:
        weight: conditions and operands, as a measure of what one message costs.
    """

    __slots__ = ("_root", "expression", "weight")

    def __init__(self, expression: str, root: Condition, weight: int) -> None:
        self.expression: str = expression
        self.weight: int = weight
        self._root: Condition = root

    def evaluate(self, properties: bytes) -> int:
        """TRUE, FALSE, NULL or ERROR for a message with these property bytes."""
        return self._root.test(properties)

    def matches(self, properties: bytes) -> bool:
        """Return True if the message is wanted: only TRUE is (ExpressionMessageFilter.isMatchedByCommitLog)."""
        return self._root.test(properties) == TRUE
