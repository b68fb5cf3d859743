"""Struct <-> ext fields. Decoding is msgspec's; encoders are generated at import from the same Struct.

Ext values must leave as JSON strings (Go's client refuses numbers), so an int field becomes `"%d"` in a
bytes template: 0.3 µs for six fields. Reading accepts what Java's parsers accept.
"""

import json
import types
import typing
from collections.abc import Callable
from functools import cache

import msgspec
from msgspec.structs import FieldInfo

from roquette.base.javatypes import java_text
from roquette.errors import RemoteProtocolError

H = typing.TypeVar("H", bound=msgspec.Struct)

_quote = msgspec.json.Encoder().encode
_SHOWN = 40  # characters of a value in a refusal
_MAX_DIGITS = 100  # leading zeros included: Python's own limit raises ValueError
_EMPTY = b"{}"
_MAX_UNUSUAL = 1 << 17  # bytes read the slow way: 32,767 of properties, and their escapes


NOT_FAST: typing.Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class BadHeader(RemoteProtocolError):
    """The peer's ext fields do not fit the header of this code."""


class HeaderDecoder:
    """Reads ext fields as one header class.

    Hot callers try `fast`, msgspec's own decoder without a frame of Python around it, and when that raises one
    of `NOT_FAST`, `coerce`, which accepts what Java does or raises `BadHeader`.
    """

    __slots__ = ("_header", "fast")

    def __init__(self, header: type[msgspec.Struct]) -> None:
        self._header = header
        self.fast: Callable[[bytes], typing.Any] = msgspec.json.Decoder(header, strict=False).decode

    def coerce(self, ext: bytes) -> typing.Any:
        """The slow way; raises `BadHeader` when a field is missing or malformed."""
        return _decode_coerced(self._header, ext)

    def __call__(self, ext: bytes | None) -> typing.Any:
        """Either way; None is no ext fields."""
        if ext is None:
            ext = _EMPTY
        try:
            return self.fast(ext)
        except NOT_FAST:
            return self.coerce(ext)


def _decode_coerced(header: type[H], ext: bytes | None) -> H:
    """The slow path, in Java's manner: any scalar as text, `+5` and `007` as numbers, empty as absent."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(header)}
    values: dict[str, object] = {}
    for name, value in ext_dict(ext).items():
        field = fields.get(name)
        kind = None if field is None else _scalar(field.type)[0]
        if kind is bool:
            values[name] = value.lower() == "true"  # Boolean.parseBoolean
        elif field is None or kind is not int:
            values[name] = value
        elif value:
            values[name] = _java_number(header, field, value)
    try:
        return msgspec.convert(values, header, strict=False)
    except msgspec.ValidationError as error:
        raise BadHeader(f"{header.__name__}: {error}") from None


def _java_number(header: type[msgspec.Struct], field: FieldInfo, value: str) -> int:
    """`value` in the range of Java's type; the refusal names field, value and range."""
    name = field.encode_name
    if name.lower() != field.name.replace("_", ""):
        name = f"{name} ({field.name})"  # a letter says nothing
    shown = repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "...")
    digits = value[1:] if value[0] in "+-" else value
    if not digits.isdecimal():
        raise BadHeader(f"{header.__name__}: field {name} is not a number: {shown}")
    low, high = _range(field.type)
    number = int(value) if len(digits) <= _MAX_DIGITS else high + 1
    if not low <= number <= high:
        raise BadHeader(
            f"{header.__name__}: field {name} is {shown}, which is not in {low}..{high}"
        )
    return number


def _range(kind: object) -> tuple[int, int]:
    """Return the range of an integer field: as its type says, else a Java long."""
    if typing.get_origin(kind) is typing.Annotated:
        (meta,) = typing.get_args(kind)[1:]
        return meta.ge, meta.le
    inner = [one for one in typing.get_args(kind) if one is not types.NoneType]
    return _range(inner[0]) if inner else (-(2**63), 2**63 - 1)


def _scalar(kind: object) -> tuple[object, bool]:
    """The plain type of a header field, and whether it may be None."""
    if typing.get_origin(kind) in {types.UnionType, typing.Union}:
        (inner,) = (one for one in typing.get_args(kind) if one is not types.NoneType)
        return _scalar(inner)[0], True
    if typing.get_origin(kind) is typing.Annotated:
        return typing.get_args(kind)[0], False
    return kind, False


def ext_dict(ext: bytes | None) -> dict[str, str]:
    """All ext fields as text, whatever scalar the peer wrote; nulls are left out."""
    if ext is None:
        return {}
    try:
        values = msgspec.json.decode(ext)
    except NOT_FAST as error:
        values = _decode_as_java(bytes(ext))
        if values is None:
            what = error if isinstance(error, msgspec.DecodeError) else "they are no text"
            raise BadHeader(f"ext fields are not JSON: {what}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise BadHeader("ext fields are not an object")
    return {
        name: value if isinstance(value, str) else _quote(value).decode()
        for name, value in values.items()
        if value is not None
    }


def _decode_as_java(data: bytes) -> object:
    """JSON with text that Python calls none (GBK bytes, half a surrogate pair), as Java stores it; else None."""
    if len(data) > _MAX_UNUSUAL:
        return None
    try:
        values = json.loads(java_text(data), strict=False)
        return msgspec.json.decode(
            json.dumps(values, ensure_ascii=False).encode("utf-8", "replace")
        )
    except (ValueError, RecursionError):
        return None


def encoder(header: type[H], constants: dict[str, str] | None = None) -> Callable[[H], bytes]:
    """Return `encode(header) -> b'{"name":"value",...}'`, one generated function per class.

    `constants` are ext fields whose values never change while the process lives: they become part of the
    template. Optional fields that are None are left out.
    """
    fixed = [
        f'"{name}":{_quote(value).decode()}'.replace("%", "%%")
        for name, value in (constants or {}).items()
    ]
    arguments: list[str] = []
    optional: list[str] = []
    for field in msgspec.structs.fields(header):
        form, value = _member(field, f"h.{field.name}")
        if _scalar(field.type)[1]:
            optional.append(
                f"if h.{field.name} is not None: out.append({form.encode()!r} % {value})"
            )
        else:
            fixed.append(form)
            arguments.append(value)
    template = ",".join(fixed)
    values = f"({', '.join(arguments)},)" if arguments else "()"
    start = f"{template.encode()!r} % {values}"
    if optional:
        lines = ["def encode(h):", f" out = [{start}]" if fixed else " out = []"]
        lines += [f" {line}" for line in optional]
        lines.append(" return b'{' + b','.join(out) + b'}'")
    else:
        whole = ("{" + template + "}").encode()
        lines = ["def encode(h):", f" return {whole!r} % {values}"]
    scope: dict[str, typing.Any] = {"quote": _quote}
    exec("\n".join(lines), scope)  # names come from our own Struct definitions only
    return typing.cast(Callable[[H], bytes], scope["encode"])


def _member(field: FieldInfo, value: str) -> tuple[str, str]:
    """A field's `"name":"value"` as a format, and the expression whose value goes there."""
    kind, _ = _scalar(field.type)
    if kind is int:
        return f'"{field.encode_name}":"%d"', value
    if kind is bool:
        return f'"{field.encode_name}":"%b"', f"(b'true' if {value} else b'false')"
    return f'"{field.encode_name}":%b', f"quote({value})"


def common_part(header: msgspec.Struct, names: tuple[str, ...]) -> bytes:
    """Write the part that a header has beside the fields `names`: members of a JSON object, without its braces."""
    left_out = _wire_names(type(header), names)
    members = ext_dict(encode_ext(header)).items()
    return encode_dict({name: text for name, text in members if name not in left_out})[1:-1]


@cache
def _wire_names(header: type[msgspec.Struct], names: tuple[str, ...]) -> frozenset[str]:
    fields = msgspec.structs.fields(header)
    return frozenset(field.encode_name for field in fields if field.name in names)


@cache
def _encoder_of(header: type[msgspec.Struct]) -> Callable[[msgspec.Struct], bytes]:
    return encoder(header)


@cache
def _decoder_of(header: type[msgspec.Struct]) -> HeaderDecoder:
    return HeaderDecoder(header)


def encode_ext(header: msgspec.Struct) -> bytes:
    """The ext fields of any header, as the JSON object `Connection` takes."""
    return _encoder_of(type(header))(header)


def decode_ext(header: type[H], ext: bytes | None) -> H:
    """Read ext fields as `header`; raises `BadHeader`."""
    return typing.cast(H, _decoder_of(header)(ext))


def encode_dict(fields: dict[str, str]) -> bytes:
    """Ext fields that have no header class, as the JSON object `Connection` takes."""
    return _quote(fields)
