"""Whether Parquet files have the columns of a table, and a table's columns may become others. Pure."""

import json
from typing import Any

import pyarrow as pa

from roquette.errors import ConfigError

_INTEGERS = ("byte", "short", "integer", "long")
_WIDER = {
    **{(a, b): True for i, a in enumerate(_INTEGERS) for b in _INTEGERS[i + 1 :]},
    ("float", "double"): True,
}


def misfits(found: pa.Schema, wanted: pa.Schema) -> str:
    """What is wrong with a file's columns, "" when they fit: the same types or narrower, none that the table lacks."""
    for field in found:
        index = wanted.get_field_index(field.name)
        if index < 0:
            return f"the table has no column {field.name}"
        if not _fits(field.type, wanted.field(index).type):
            return f"{field.name} is {field.type}, the table has {wanted.field(index).type}"
    return ""


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    t = pa.types
    if found == wanted:
        return True
    if t.is_signed_integer(found) and t.is_signed_integer(wanted):
        return bool(found.bit_width <= wanted.bit_width)
    if t.is_floating(found) and t.is_floating(wanted):
        return bool(found.bit_width <= wanted.bit_width)
    if t.is_timestamp(found) and t.is_timestamp(wanted):
        # INT96, which Spark writes, has no zone and is UTC.
        return found.unit == "ns" or (found.tz is None) == (wanted.tz is None)
    if t.is_decimal(found) and t.is_decimal(wanted):
        return bool(found.scale == wanted.scale and found.precision <= wanted.precision)
    for alike in ((t.is_string, t.is_large_string), (t.is_binary, t.is_large_binary)):
        if any(each(found) for each in alike) and any(each(wanted) for each in alike):
            return True
    if t.is_struct(found) and t.is_struct(wanted):
        return not misfits(pa.schema(list(found)), pa.schema(list(wanted)))
    if t.is_map(found) and t.is_map(wanted):
        return _fits(found.key_type, wanted.key_type) and _fits(found.item_type, wanted.item_type)
    lists = (t.is_list(found) or t.is_large_list(found)) and t.is_list(wanted)
    return lists and _fits(found.value_type, wanted.value_type)


def check_wider(before: str, after: str) -> None:
    """Of two schemas (Spark's JSON). Raises ConfigError for a column that rows of the first do not fit into."""
    new = {each["name"]: each["type"] for each in json.loads(after)["fields"]}
    for column in json.loads(before)["fields"]:
        name, there = column["name"], column["type"]
        if name not in new:
            raise ConfigError(f"column {name} cannot go")
        if not _widens(there, new[name]):
            raise ConfigError(
                f"column {name} is {json.dumps(there)} and cannot become {json.dumps(new[name])}"
            )


def _widens(before: Any, after: Any) -> bool:
    """Whether all values of a type of Spark's JSON are values of another."""
    if before == after:
        return True
    if isinstance(before, str) or isinstance(after, str):
        return isinstance(before, str) and isinstance(after, str) and (before, after) in _WIDER
    if before["type"] != after["type"]:
        return False
    if before["type"] == "struct":
        new = {each["name"]: each["type"] for each in after["fields"]}
        return all(
            each["name"] in new and _widens(each["type"], new[each["name"]])
            for each in before["fields"]
        )
    parts = ("elementType",) if before["type"] == "array" else ("keyType", "valueType")
    return all(_widens(before[part], after[part]) for part in parts)
