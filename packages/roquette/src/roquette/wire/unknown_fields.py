"""Fields of a JSON file that its shape does not have: kept beside the decoded value, so that they are written again.

A newer broker's fields, or another tool's, must not be lost because this one rewrites the file.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from roquette.message.fastjson import read_json


class Unknown:
    """Parts that an object has beyond its shape: `fields` of its own, and `inside` those of its parts, by their keys."""

    __slots__ = ("fields", "inside")

    def __init__(self, fields: dict[str, Any], inside: "dict[str, Unknown]") -> None:
        self.fields = fields
        self.inside = inside

    def forget_missing(self, keys: "Mapping[str, Any]") -> None:
        """Forget the parts whose keys are gone: an entry made again under an old name is a new one."""
        if not self.inside.keys() <= keys.keys():
            self.inside = {key: part for key, part in self.inside.items() if key in keys}


class _Shape:
    """Keys that an object of a type has; of a map (`names` is None) all, and `values` is the shape of each."""

    __slots__ = ("names", "parts", "values")

    def __init__(self) -> None:
        self.names: frozenset[str] | None = None
        self.parts: dict[str, _Shape] = {}
        self.values: _Shape | None = None


@cache
def _shape_of(kind: type) -> _Shape | None:
    return _shape(inspect.type_info(kind))


def _shape(info: inspect.Type) -> _Shape | None:
    """None: nothing unknown can be inside. Lists are passed over: their parts have no names."""
    if isinstance(info, inspect.UnionType):
        found = [shape for one in info.types if (shape := _shape(one)) is not None]
        return found[0] if found else None
    shape = _Shape()
    if isinstance(info, inspect.StructType):
        shape.names = frozenset(field.encode_name for field in info.fields)
        for field in info.fields:
            part = _shape(field.type)
            if part is not None:
                shape.parts[field.encode_name] = part
        return shape
    if isinstance(info, inspect.DictType):
        shape.values = _shape(info.value_type)
        return None if shape.values is None else shape
    return None


def find_unknown(kind: type, data: bytes) -> Unknown | None:
    """The fields in `data` that `kind` does not have; None when there are none. `data` was decoded as `kind`."""
    shape = _shape_of(kind)
    return None if shape is None or not data else _find(shape, read_json(data))


def _find(shape: _Shape, value: Any) -> Unknown | None:
    if not isinstance(value, dict):
        return None
    inside: dict[str, Unknown] = {}
    if shape.names is None:
        fields: dict[str, Any] = {}
        assert shape.values is not None
        for key, part in value.items():
            found = _find(shape.values, part)
            if found is not None:
                inside[str(key)] = found
    else:
        fields = {key: value[key] for key in value.keys() - shape.names}
        for name, part_shape in shape.parts.items():
            found = _find(part_shape, value.get(name))
            if found is not None:
                inside[name] = found
    return Unknown(fields, inside) if fields or inside else None


def add_unknown(value: Any, unknown: Unknown) -> Any:
    """`value` as plain maps where something is unknown, the unknown fields among its own by name."""
    if isinstance(value, msgspec.Struct):
        pairs = {
            field.encode_name: getattr(value, field.name) for field in msgspec.structs.fields(value)
        }
        pairs |= {name: held for name, held in unknown.fields.items() if name not in pairs}
        pairs = dict(sorted(pairs.items()))
    elif isinstance(value, dict):
        pairs = dict(value)
    else:
        return value
    unknown.forget_missing({str(key): None for key in pairs})
    for key, item in pairs.items():
        part = unknown.inside.get(str(key))
        if part is not None:
            pairs[key] = add_unknown(item, part)
    return pairs
