"""JSON bodies beside the columns they become: fields that no column takes, numbers that fit after all, what is malformed.

Spark's from_json ignores fields it has no column for, over what follows an object, and over all but the last of
fields of one name. So each body is looked at here as well; values still become columns by Spark.
"""

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column

LOOKED = "struct<rescued: string, text: string, error: string>"
MALFORMED = "the body is malformed JSON, or a value is not of its column's type"
TWICE = "the body has two fields of one name"
_WHOLE = ("byte", "short", "integer", "long")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_MOST_DIGITS = 19  # of a long


class NumberText(str):
    """The text of a number with a fraction or an exponent, so that nothing of it is lost."""

    __slots__ = ()


class Twice(ValueError):
    """Two fields of one name in one object."""


def looked_at(body: "Column", schema: str) -> "Column":
    """LOOKED of each body. `schema` is Spark's JSON of the columns."""
    from pyspark.sql import functions as f

    # Not by Arrow: PySpark 4.2 would want pandas for it.
    return f.udf(looker(schema), LOOKED, useArrow=False)(body)


def looker(schema: str) -> Callable[[bytes | None], dict[str, str | None] | None]:
    """What runs in the workers."""
    known = json.loads(schema)
    return lambda body: look_at(body, known)


def look_at(body: bytes | None, known: Any) -> dict[str, str | None] | None:
    """What Spark would not see of one body; None where there is nothing to say.

    Args:
        known: Spark's JSON of the columns, parsed.

    Returns:
        rescued: JSON of the fields that no column takes, those within columns among them. text: the body for Spark to
        read instead. error: why the message belongs into the quarantine.
    """
    try:
        value = decode_object((body or b"").decode())
        if not isinstance(value, dict):
            return None  # others say so
        fitted: list[bool] = []
        rescued = rescue(value, known, fitted)
    except Twice:
        return {"rescued": None, "text": None, "error": TWICE}
    except (ValueError, ArithmeticError, RecursionError):
        return {"rescued": None, "text": None, "error": MALFORMED}
    if rescued is None and not fitted:
        return None
    return {
        "rescued": None if rescued is None else text_of(rescued),
        "text": text_of(value) if fitted else None,
        "error": None,
    }


def decode_object(text: str) -> Any:
    """A JSON value; numbers with a fraction or an exponent keep their text.

    Raises:
        Twice: two fields of an object have one name.
        ValueError: it is malformed, or has half of a surrogate pair.
        RecursionError: it is too deep.
    """
    value = _DECODER.decode(text)
    if _SURROGATE.search(text) is not None:
        text_of(value).encode()  # halves of pairs are no text
    return value


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Twice
    return found


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_float=NumberText, parse_constant=NumberText
)


def rescue(value: Any, known: Any, fitted: list[bool] | None = None) -> Any:
    """What of a value has no place in its column; None when all has.

    Numbers such as 19.0 for a column of whole numbers are changed in place; `fitted` gets one entry for each.
    """
    return _rescue(value, known, [] if fitted is None else fitted)


def _rescue(value: Any, known: Any, fitted: list[bool]) -> Any:
    kind = known["type"] if isinstance(known, dict) else known
    if kind == "struct" and isinstance(value, dict):
        fields = {field["name"]: field["type"] for field in known["fields"]}
        return _rescue_items(value, fields, fitted)
    if kind == "map" and isinstance(value, dict):
        return _rescue_items(value, dict.fromkeys(value, known["valueType"]), fitted)
    if kind == "array" and isinstance(value, list):
        found = [_rescue_one(value, i, known["elementType"], fitted) for i in range(len(value))]
        return found if any(each is not None for each in found) else None
    return None


def _rescue_items(value: dict[str, Any], fields: dict[str, Any], fitted: list[bool]) -> Any:
    rescued = {}
    for name, each in value.items():
        if name not in fields:
            rescued[name] = each
        else:
            inner = _rescue_one(value, name, fields[name], fitted)
            if inner is not None:
                rescued[name] = inner
    return rescued or None


def _rescue_one(container: Any, key: Any, known: Any, fitted: list[bool]) -> Any:
    value = container[key]
    if isinstance(value, NumberText) and known in _WHOLE:
        number = Decimal(value)
        if number.is_finite() and number.adjusted() < _MOST_DIGITS and number == int(number):
            container[key] = int(number)
            fitted.append(True)
        return None
    return _rescue(value, known, fitted) if isinstance(value, dict | list) else None


def text_of(value: Any) -> str:
    """JSON with each number as it was written."""
    if isinstance(value, NumberText):
        return str(value)
    if isinstance(value, dict):
        items = (
            f"{json.dumps(name, ensure_ascii=False)}:{text_of(v)}" for name, v in value.items()
        )
        return "{" + ",".join(items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text_of, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
