"""Types of columns as Spark's JSON: what a value would need, and a schema that takes more than before. Pure.

A kind is a name such as "long", or a dict: struct, array, map.
"""

from typing import Any

Kind = Any
NULL = "void"  # of a value that says nothing
MOST_FIELDS = 1000  # of all structs of a schema together; more stay without a column
_LONG = 2**63
_WHOLE = ("byte", "short", "integer", "long")
_NUMBERS = (*_WHOLE, "float", "double")


def kind_of(value: Any, number: type) -> Kind:
    """What a JSON value would need for a column.

    Args:
        number: class of the numbers that are written with a fraction or an exponent.
    """
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, number):
        return "double"
    if isinstance(value, int):
        return "long" if -_LONG <= value < _LONG else "string"
    if isinstance(value, dict):
        fields = [_field(name, kind_of(each, number)) for name, each in value.items()]
        return {"type": "struct", "fields": fields}
    if isinstance(value, list):
        inner: Kind = NULL
        for each in value:
            inner = joined(inner, kind_of(each, number))
        return {"type": "array", "elementType": inner, "containsNull": True}
    return "string"


def joined(one: Kind, other: Kind) -> Kind:
    """A kind for values of both; "string" takes what has nothing in common."""
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    if isinstance(one, dict) and isinstance(other, dict) and one["type"] == other["type"]:
        if one["type"] == "struct":
            return _structs(one, other, joined)
        name = "elementType" if one["type"] == "array" else "valueType"
        return {**one, name: joined(one[name], other[name])}
    if one in _WHOLE and other in _WHOLE:
        return max(one, other, key=_WHOLE.index)
    return "double" if one in _NUMBERS and other in _NUMBERS else "string"


def widened(known: Kind, found: Kind) -> Kind:
    """A schema that keeps what it has and takes more: fields it lacks, and whole numbers that are too large for it.

    Fields of which nothing is known but null are left out, and all that are more than MOST_FIELDS.
    """
    wider = _widened(known, found)
    return wider if _count(wider) <= max(MOST_FIELDS, _count(known)) else known


def grew_from(known: Kind, given: Kind) -> bool:
    """Whether a schema is another one that bodies may have widened since."""
    return bool(_ordered(widened(given, known)) == _ordered(known))


def _ordered(kind: Kind) -> Kind:
    """What matters of a kind: names and types."""
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "struct":
        return sorted((field["name"], _ordered(field["type"])) for field in kind["fields"])
    name = "elementType" if kind["type"] == "array" else "valueType"
    return kind["type"], _ordered(kind[name])


def _widened(known: Kind, found: Kind) -> Kind:
    if isinstance(known, dict) and isinstance(found, dict):
        if known["type"] == "struct" == found["type"]:
            return _structs(known, found, _widened)
        if known["type"] == "array" == found["type"]:
            return {**known, "elementType": _widened(known["elementType"], found["elementType"])}
        if known["type"] == "map" and found["type"] == "struct":
            inner = known["valueType"]
            for field in found["fields"]:
                inner = _widened(inner, field["type"])
            return {**known, "valueType": inner}
    if _plain(known, found) and known in _WHOLE[:3] and found == "long":
        return "long"
    return known


def _structs(one: Kind, other: Kind, both: Any) -> Kind:
    fields = {field["name"]: field for field in one["fields"]}
    taken = {name.lower() for name in fields}
    for field in other["fields"]:
        name = field["name"]
        if name in fields:
            fields[name] = {**fields[name], "type": both(fields[name]["type"], field["type"])}
        elif both is joined:
            fields[name] = field
        elif name.lower() not in taken and (kind := complete(field["type"])) is not None:
            fields[name] = _field(name, kind)
            taken.add(name.lower())
    return {**one, "fields": list(fields.values())}


def complete(kind: Kind) -> Kind:
    """Without what is only known to be null, and without names that differ in case alone; None if nothing remains."""
    if not isinstance(kind, dict):
        return None if kind == NULL else kind
    if kind["type"] in ("array", "map"):
        name = "elementType" if kind["type"] == "array" else "valueType"
        inner = complete(kind[name])
        return None if inner is None else {**kind, name: inner}
    fields, taken = [], set()
    for field in kind["fields"]:
        inner = complete(field["type"])
        if inner is not None and field["name"].lower() not in taken:
            taken.add(field["name"].lower())
            fields.append(_field(field["name"], inner))
    return {**kind, "fields": fields} if fields else None


def _field(name: str, kind: Kind) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _plain(*kinds: Kind) -> bool:
    return all(isinstance(kind, str) for kind in kinds)


def _count(kind: Kind) -> int:
    """Fields of all structs."""
    if not isinstance(kind, dict):
        return 0
    if kind["type"] == "struct":
        return sum(1 + _count(field["type"]) for field in kind["fields"])
    return _count(kind["elementType" if kind["type"] == "array" else "valueType"])
