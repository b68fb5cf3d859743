"""JSON bodies as Java's fastjson writes and reads them.

Fast path: msgspec. Slow paths, for what is not JSON: maps whose keys are numbers without quotes or whole
MessageQueue objects, single quotes, trailing commas. Apache: RemotingSerializable.
"""

from collections.abc import Hashable
from functools import cache
from typing import Any, Final, TypeVar, cast

import msgspec

from roquette.errors import RemoteProtocolError
from roquette.message.message import MessageQueue

T = TypeVar("T")

MAX_DEPTH: Final = 64
_to_json = msgspec.json.Encoder().encode
_SPACE: Final = " \t\r\n"
_QUEUE_FIELDS: Final = frozenset(("topic", "brokerName", "queueId"))


@cache
def _decoder(kind: Hashable) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(cast(type[Any], kind), strict=False)


def decode_body(kind: type[T], data: bytes) -> T:
    """Read a body as `kind`.

    Raises:
        RemoteProtocolError: it is neither JSON nor fastjson's dialect of it, or does not fit `kind`.
    """
    if not data:
        data = b"{}"
    try:
        return cast(T, _decoder(cast(Hashable, kind)).decode(data))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    try:
        values = _Reader(data.decode()).read()
        return msgspec.convert(_without_nulls(values), kind, strict=False)
    except (msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(
            f"the body is not a {getattr(kind, '__name__', kind)}: {error}"
        ) from None


def read_json(data: bytes) -> Any:
    """Read JSON or fastjson's dialect into plain values; maps keyed by queues get MessageQueue keys."""
    try:
        return _Reader(data.decode()).read()
    except (UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"the body is not JSON: {error}") from None


def _without_nulls(value: Any) -> Any:
    """Java's null in a field means the field's default."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_nulls(v) for v in value]
    return value


class _Reader:
    """A recursive reader of JSON, tolerant in exactly fastjson's ways; bounded by depth and input."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._pos = 0

    def read(self) -> Any:
        value = self._value(0)
        self._skip()
        if self._pos != len(self._text):
            raise self._error("text after the end")
        return value

    def _error(self, what: str) -> RemoteProtocolError:
        near = self._text[self._pos : self._pos + 20]
        return RemoteProtocolError(f"the body is not JSON: {what} at {self._pos}, near {near!r}")

    def _skip(self) -> None:
        text, pos = self._text, self._pos
        while pos < len(text) and text[pos] in _SPACE:
            pos += 1
        self._pos = pos

    def _peek(self) -> str:
        self._skip()
        return self._text[self._pos] if self._pos < len(self._text) else ""

    def _take(self, char: str) -> bool:
        if self._peek() == char:
            self._pos += 1
            return True
        return False

    def _value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH}")
        char = self._peek()
        if char == "{":
            return self._object(depth)
        if char == "[":
            return self._array(depth)
        if char in ('"', "'") and char:
            return self._string(char)
        return self._bare()

    def _object(self, depth: int) -> dict[Any, Any]:
        self._pos += 1
        found: dict[Any, Any] = {}
        while not self._take("}"):
            key = self._key(depth)
            if not self._take(":"):
                raise self._error("':' expected")
            found[key] = self._value(depth + 1)
            if not self._take(",") and self._peek() != "}":
                raise self._error("',' or '}' expected")
        return found

    def _key(self, depth: int) -> Any:
        char = self._peek()
        if char in ('"', "'") and char:
            return self._string(char)
        if char == "{":
            fields = self._value(depth + 1)
            if not set(fields) >= _QUEUE_FIELDS:
                raise self._error("an object key that is not a MessageQueue")
            try:
                return msgspec.convert(fields, MessageQueue, strict=False)
            except msgspec.ValidationError as error:
                raise self._error(str(error)) from None
        word = self._word()
        if not word:
            raise self._error("a key expected")
        return word

    def _array(self, depth: int) -> list[Any]:
        self._pos += 1
        found: list[Any] = []
        while not self._take("]"):
            found.append(self._value(depth + 1))
            if not self._take(",") and self._peek() != "]":
                raise self._error("',' or ']' expected")
        return found

    def _string(self, quote: str) -> str:
        text, start = self._text, self._pos + 1
        pos = start
        while pos < len(text) and text[pos] != quote:
            pos += 2 if text[pos] == "\\" else 1
        if pos >= len(text):
            raise self._error("a text without end")
        raw = text[start:pos]
        self._pos = pos + 1
        if "\\" not in raw and all(c >= " " for c in raw):
            return raw
        if quote == "'":
            raw = raw.replace("\\'", "'").replace('"', '\\"')
        raw = "".join(c if c >= " " else f"\\u{ord(c):04x}" for c in raw)
        try:
            return msgspec.json.decode(f'"{raw}"'.encode("utf-8", "surrogatepass"), type=str)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._error(f"a malformed text: {error}") from None

    def _word(self) -> str:
        self._skip()
        text, start = self._text, self._pos
        pos = start
        while pos < len(text) and (text[pos].isalnum() or text[pos] in "+-._$"):
            pos += 1
        self._pos = pos
        return text[start:pos]

    def _bare(self) -> Any:
        word = self._word()
        if word in ("true", "false"):
            return word == "true"
        if word == "null":
            return None
        try:
            return int(word) if len(word) < 40 else float(word)
        except ValueError:
            pass
        try:
            return float(word.rstrip("DFLdfl"))
        except ValueError:
            raise self._error("a value expected") from None


def encode_body(value: Any, *, java_keys: bool = False) -> bytes:
    """Write a body: keys by their wire names, nulls left out.

    Args:
        java_keys: number keys without quotes, as fastjson writes them. Maps keyed by MessageQueue always get
            object keys, since Java reads nothing else there.
    """
    if not java_keys:
        try:
            return _to_json(value)
        except TypeError:
            pass  # keyed by MessageQueue
    out: list[str] = []
    _write(value, out, java_keys)
    return "".join(out).encode()


def _write(value: Any, out: list[str], java_keys: bool) -> None:
    pairs: list[tuple[str, Any]]
    if isinstance(value, msgspec.Struct):
        pairs = [(f'"{wire}"', getattr(value, name)) for name, wire in _names(type(value))]
    elif isinstance(value, dict):
        pairs = [(_key_text(key, java_keys), item) for key, item in value.items()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        out.append("[")
        for index, item in enumerate(value):
            if index:
                out.append(",")
            _write(item, out, java_keys)
        out.append("]")
        return
    else:
        out.append(_to_json(value).decode())
        return
    out.append("{")
    first = True
    for key, item in pairs:
        if item is None:
            continue
        if not first:
            out.append(",")
        first = False
        out.append(key)
        out.append(":")
        _write(item, out, java_keys)
    out.append("}")


@cache
def _names(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    return tuple((f.name, f.encode_name) for f in msgspec.structs.fields(kind))


def _key_text(key: Any, java_keys: bool) -> str:
    if isinstance(key, msgspec.Struct):
        return _to_json(key).decode()
    if isinstance(key, int):
        return str(key) if java_keys else f'"{key}"'
    return _to_json(str(key)).decode()


def fastjson_pretty(value: Any) -> bytes:
    """A config file as Apache writes it: tabs, `"key":value`, number keys without quotes."""
    out: list[str] = []
    _pretty(value, out, "")
    return "".join(out).encode()


def _pretty(value: Any, out: list[str], indent: str) -> None:
    inner = indent + "\t"
    if isinstance(value, msgspec.Struct):
        items = [(f'"{wire}"', getattr(value, name)) for name, wire in _names(type(value))]
        items = [(key, item) for key, item in items if item is not None]
    elif isinstance(value, dict):
        items = [(_key_text(key, True), item) for key, item in value.items() if item is not None]
    elif isinstance(value, (list, tuple, set, frozenset)):
        listed = list(value)
        if not listed:
            out.append("[]")
            return
        out.append("[")
        for index, item in enumerate(listed):
            out.append(("," if index else "") + "\n" + inner)
            _pretty(item, out, inner)
        out.append(f"\n{indent}]")
        return
    else:
        out.append(_to_json(value).decode())
        return
    if not items:
        out.append("{}")
        return
    out.append("{")
    for index, (key, item) in enumerate(items):
        out.append(("," if index else "") + f"\n{inner}{key}:")
        _pretty(item, out, inner)
    out.append(f"\n{indent}}}")
