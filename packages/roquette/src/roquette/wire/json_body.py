"""JSON bodies as Java's fastjson writes and reads them.

Fast path: msgspec. Slow paths, for what is not JSON: maps whose keys are numbers without quotes or whole
MessageQueue objects, single quotes, trailing commas. Apache: RemotingSerializable.
"""

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Final, TypeVar, cast

import msgspec
from msgspec import inspect

from roquette.errors import RemoteProtocolError
from roquette.message.fastjson import MAX_TEXT, read_json

T = TypeVar("T")

MAX_REQUEST: Final = 512 << 10
MAX_LENIENT: Final = 64 << 10
SLICE: Final = 32 << 10  # of a large table's text: so much is half a millisecond's work
TABLE_DEPTH: Final = 2  # of a table's rows: the file's object, the table
_LISTS: Final = (list, tuple, set, frozenset)
_ENTRIES: Final = (dict, msgspec.Struct, *_LISTS)

_to_json = msgspec.json.Encoder().encode
# A field that is null, behind others and as the first one. Texts never match: inside them quotes are escaped.
_NULL_FIELD: Final = re.compile(rb',"[A-Za-z0-9_]+":null(?=[,}])')
_FIRST_NULL: Final = re.compile(rb'(?<={)"[A-Za-z0-9_]+":null(?:,|(?=}))')


@cache
def _decoder(kind: Hashable) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(cast(type[Any], kind), strict=False)


def decode_request_body(kind: type[T], data: bytes, most: int = MAX_REQUEST) -> T:
    """The same of a request, on a server's loop: at most `most` bytes, `MAX_LENIENT` of anything slow."""
    if len(data) > most:
        raise RemoteProtocolError(f"a body of {len(data)} bytes, {most} are allowed here")
    return decode_body(kind, data, MAX_LENIENT)


def decode_body(kind: type[T], data: bytes, lenient: int = MAX_TEXT) -> T:
    """Read a body as `kind`: unknown keys are skipped; missing ones, and nulls, are `kind`'s defaults.

    An empty body is an empty object.

    Args:
        lenient: bytes up to which what is not plain JSON is read: the dialect, references, nulls.

    Raises:
        RemoteProtocolError: it is neither JSON nor fastjson's dialect of it, or does not fit `kind`.
    """
    if not data:
        data = b"{}"
    if b"$ref" not in data:
        try:
            return cast(T, _decoder(cast(Hashable, kind)).decode(data))
        except msgspec.ValidationError as error:
            if b"null" not in data or len(data) > lenient:
                raise _misfit(kind, error) from None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            pass
    if len(data) > lenient:
        raise RemoteProtocolError(
            f"a body of {len(data)} bytes that is not plain JSON, {lenient} are allowed here"
        )
    try:
        return msgspec.convert(read_json(data), kind, strict=False)
    except (msgspec.ValidationError, OverflowError) as error:
        raise _misfit(kind, error) from None


def _misfit(kind: Any, error: Exception) -> RemoteProtocolError:
    return RemoteProtocolError(f"the body is not a {getattr(kind, '__name__', kind)}: {error}")


def encode_body(value: Any, *, java_keys: bool = False) -> bytes:
    """Write a body: fields by their wire names, nulls left out.

    Args:
        java_keys: number keys without quotes, as fastjson writes them. Maps keyed by MessageQueue always get
            object keys, since Java reads nothing else there.
    """
    if not java_keys:
        try:
            data = _to_json(value)
        except TypeError:
            pass  # keyed by MessageQueue
        else:
            if b'":null' in data:
                data = _FIRST_NULL.sub(b"", _NULL_FIELD.sub(b"", data))
            if b'":null' not in data:
                return data
    return _text(value, java_keys, None).encode()


def fastjson_pretty(value: Any) -> bytes:
    """A config file as Apache writes it: tabs, `"key":value`, number keys without quotes."""
    return _text(value, True, "").encode()


def text_slices(value: Any, *, java_keys: bool, indent: str | None) -> Iterator[bytes]:
    """The text of a large table, some rows at a time: a thread that makes all of it in one go keeps the interpreter from the
    loop in each long call, such as the joining and the release of a million texts.

    Args:
        value: nothing in it changes any more.
        java_keys, indent: as `encode_body` has them, or `fastjson_pretty`: its indent is "".
    """
    taken, size = [], 0
    for piece in _pieces(value, java_keys, indent, TABLE_DEPTH):
        taken.append(piece)
        size += len(piece)
        if size >= SLICE:
            yield "".join(taken).encode()
            taken, size = [], 0
    yield "".join(taken).encode()


def _pieces(value: Any, java_keys: bool, indent: str | None, deep: int) -> Iterator[str]:
    """The text in pieces: `deep` levels down each entry is one."""
    if not deep or not isinstance(value, _ENTRIES):
        plain = indent is None and not java_keys
        yield encode_body(value).decode() if plain else _text(value, java_keys, indent)
        return
    begin, between, end, inner = _layout(isinstance(value, _LISTS), indent)
    before = begin
    for name, item in _entries(value, java_keys, inner):
        yield before + name
        yield from _pieces(item, java_keys, inner, deep - 1)
        before = between
    yield end if before is between else begin[0] + end[-1]


def _text(value: Any, java_keys: bool, indent: str | None) -> str:
    """`indent` is that of the line the value starts on; None writes it all on one line."""
    if isinstance(value, str) or not isinstance(value, _ENTRIES):
        return _to_json(value).decode()
    begin, between, end, inner = _layout(isinstance(value, _LISTS), indent)
    parts = [
        f"{name}{item}" if type(item) is int else name + _text(item, java_keys, inner)
        for name, item in _entries(value, java_keys, inner)
    ]
    return begin + between.join(parts) + end if parts else begin[0] + end[-1]


@cache
def _layout(is_list: bool, indent: str | None) -> tuple[str, str, str, str | None]:
    """What stands before, between and behind the entries, and their indent."""
    opening, closing = "[]" if is_list else "{}"
    if indent is None:
        return opening, ",", closing, None
    line = f"\n{indent}"
    return f"{opening}{line}\t", f",{line}\t", line + closing, indent + "\t"


def _entries(value: Any, java_keys: bool, indent: str | None) -> Iterable[tuple[str, Any]]:
    """What stands before each value, and the value; nulls of objects are left out."""
    if isinstance(value, _LISTS):
        return (("", item) for item in value)
    if isinstance(value, dict):
        return (
            (f"{key}:" if java_keys and type(key) is int else _name(key, java_keys, indent), item)
            for key, item in value.items()
            if item is not None
        )
    kind: type[msgspec.Struct] = type(value)
    return (
        (name, item) for name, field in _fields(kind) if (item := getattr(value, field)) is not None
    )


def _name(key: Any, java_keys: bool, indent: str | None) -> str:
    if isinstance(key, int):
        return f"{key}:" if java_keys else f'"{key}":'
    return _text(key if isinstance(key, msgspec.Struct) else str(key), java_keys, indent) + ":"


@cache
def _fields(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """What stands before a field, and its name, by wire name: the order in which fastjson writes fields."""
    fields = sorted((field.encode_name, field.name) for field in msgspec.structs.fields(kind))
    return [(f'"{wire}":', name) for wire, name in fields]


# Fields of a JSON file that its shape does not have: kept beside the decoded value, so that they are written again.
# A newer broker's fields, or another tool's, must not be lost because this one rewrites the file.


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


# Java's numbers as msgspec reads them: what fits no int or long is refused at the door.


Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
