"""Reads fastjson's dialect of JSON into plain values: what Java writes and no JSON parser takes.

Beyond JSON: keys without quotes (numbers above all), whole MessageQueue objects as keys, single quotes,
commas before a closing bracket, and `{"$ref":"$.path"}` where Java met one object twice.
"""

import re
from typing import Any, Final

import msgspec

from roquette.errors import RemoteProtocolError
from roquette.message.message import MessageQueue

MAX_DEPTH: Final = 64
MAX_TEXT: Final = 4 << 20  # bytes of dialect; quoting number keys is cheap and needs no such bound
MAX_REFERRED: Final = 100_000  # nodes copied by way of references, so that they cannot multiply

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_WORD: Final = re.compile(r"[A-Za-z0-9+\-._$]+")
_INT: Final = re.compile(r"[+-]?[0-9]{1,39}[LSB]?")
_FLOAT: Final = re.compile(r"[+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,3})?[DF]?")
_TEXTS: Final = {
    quote: re.compile(rf"{quote}([^{quote}\\]*+(?:\\.[^{quote}\\]*+)*+){quote}", re.DOTALL)
    for quote in "\"'"
}
# A text (to its end, or the input's: every byte is looked at once or twice), or a key: a number, or a plain flat object.
_KEY: Final = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|(?<=[{,\s])-?[0-9]+(?=\s*:)'
    rb'|\{(?:"[a-zA-Z]++":(?:"[^"\\]*+"|[0-9]++),?)++\}(?=:)',
    re.DOTALL,
)
_OBJECT: Final = ord("{")
_MARK: Final = "\0"
"""Before the text of an object that was a key."""
_REF_STEP: Final = re.compile(r"\.((?:\\.|[^.\[\]\\])+)|\[([0-9]{1,9})\]", re.DOTALL)
_QUEUE_FIELDS: Final = frozenset(("topic", "brokerName", "queueId"))
_QUOTE: Final = ord('"')


class NotJson(RemoteProtocolError):
    """Text that is no JSON of either dialect. `position`: the byte at which reading stopped; `reason`: what is wrong there."""

    def __init__(self, reason: str, position: int, near: str = "") -> None:
        super().__init__(f"the body is not JSON: {reason}{near}")
        self.reason = reason
        self.position = position


def read_json(data: bytes) -> Any:
    """Read JSON or the dialect. Keys become text, or MessageQueue; nulls in maps are left out.

    Raises:
        RemoteProtocolError: it is neither, or nested too deep, or too large.
    """
    try:
        values = _parse(data)
    except UnicodeDecodeError as error:
        raise NotJson(f"it is not UTF-8 at byte {error.start}", error.start) from None
    except RecursionError:
        raise NotJson("it is nested too deep", 0) from None
    if b"null" in data:
        values = _without_nulls(values)
    if b"$ref" in data:
        values = _References(values).resolve()
    return values


def _parse(data: bytes) -> Any:
    try:
        return _checked(msgspec.json.decode(data))
    except msgspec.DecodeError:
        pass
    if b"\\u0000{" not in data:  # what a key that was an object is marked with
        try:
            return _with_queues(_checked(msgspec.json.decode(_KEY.sub(_quoted, data))))
        except msgspec.MsgspecError:
            pass  # the reader says what is wrong
    if len(data) > MAX_TEXT:
        raise RemoteProtocolError(f"a body of {len(data)} bytes that is not JSON is refused")
    return _Reader(data.decode()).read()


def _quoted(found: "re.Match[bytes]") -> bytes:
    text = found[0]
    if text[0] == _OBJECT:
        return b'"\\u0000%b"' % text.replace(b'"', b'\\"')
    return text if text[0] == _QUOTE else b'"%b"' % text


def _with_queues(value: Any) -> Any:
    """With the keys that were objects as queues again; raises MsgspecError for one that is none."""
    if isinstance(value, list):
        return [_with_queues(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        msgspec.json.decode(key[1:], type=MessageQueue) if key[:1] == _MARK else key: item
        if isinstance(item, (int, float, str))
        else _with_queues(item)
        for key, item in value.items()
    }


def _checked(value: Any) -> Any:
    """The same depth for all: no caller need fear recursion."""
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += [v for v in item.values() if isinstance(v, (dict, list))]
            elif isinstance(item, list):
                below += [v for v in item if isinstance(v, (dict, list))]
        if not below:
            return value
        level = below
    raise RemoteProtocolError(f"the body is nested deeper than {MAX_DEPTH}")


def _without_nulls(value: Any) -> Any:
    """Java's null in a field means the field's default."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_nulls(v) for v in value]
    return value


class _Reader:
    """A recursive reader, tolerant in exactly fastjson's ways; bounded by depth and input."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._pos = 0

    def read(self) -> Any:
        value = self._value(0)
        if self._peek():
            raise self._error("text after the end")
        return value

    def _error(self, what: str) -> NotJson:
        near = self._text[self._pos : self._pos + 20]
        behind = len(self._text[: self._pos].encode())
        return NotJson(what, behind, f" at {self._pos}, near {near!r}")

    def _peek(self) -> str:
        found = _SPACE.match(self._text, self._pos)
        if found is not None:
            self._pos = found.end()
        return self._text[self._pos : self._pos + 1]

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
        if char in _TEXTS:
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
        if char in _TEXTS:
            return self._string(char)
        if char == "{":
            fields = self._value(depth + 1)
            if not fields.keys() >= _QUEUE_FIELDS:
                raise self._error("an object key that is not a MessageQueue")
            try:
                return msgspec.convert(fields, MessageQueue, strict=False)
            except msgspec.ValidationError as error:
                raise self._error(str(error)) from None
        return self._word("a key")

    def _array(self, depth: int) -> list[Any]:
        self._pos += 1
        found: list[Any] = []
        while not self._take("]"):
            found.append(self._value(depth + 1))
            if not self._take(",") and self._peek() != "]":
                raise self._error("',' or ']' expected")
        return found

    def _string(self, quote: str) -> str:
        found = _TEXTS[quote].match(self._text, self._pos)
        if found is None:
            raise self._error("a text without end")
        raw: str = found[1]
        self._pos = found.end()
        if quote == "'":
            raw = raw.replace("\\'", "'").replace('"', '\\"')
        if "\\" not in raw:
            return raw
        raw = "".join(c if c >= " " else f"\\u{ord(c):04x}" for c in raw)
        try:
            return msgspec.json.decode(f'"{raw}"'.encode(), type=str)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise self._error(f"a malformed text: {error}") from None

    def _word(self, what: str) -> str:
        found = _WORD.match(self._text, self._pos)
        if found is None:
            raise self._error(f"{what} expected")
        self._pos = found.end()
        return found[0]

    def _bare(self) -> Any:
        word = self._word("a value")
        if word in ("true", "false"):
            return word == "true"
        if word == "null":
            return None
        if len(word) > 64:
            raise self._error("a value expected")
        if _INT.fullmatch(word):
            return int(word.rstrip("LSB"))
        if _FLOAT.fullmatch(word):
            return float(word.rstrip("DF"))
        raise self._error("a value expected")


class _References:
    """Puts the object a reference names in its place; one that names none is left out, as a null is."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._budget = MAX_REFERRED

    def resolve(self) -> Any:
        return self._walk(self._root)

    def _walk(self, value: Any) -> Any:
        if isinstance(value, dict):
            found = {
                k: self._target(v) if _is_reference(v) else self._walk(v) for k, v in value.items()
            }
            return {k: v for k, v in found.items() if v is not None}
        if isinstance(value, list):
            listed = [self._target(v) if _is_reference(v) else self._walk(v) for v in value]
            return [v for v in listed if v is not None]
        return value

    def _target(self, reference: dict[str, str]) -> Any:
        path = reference["$ref"]
        if not path.startswith("$."):
            return None  # "..", "@", "$": an object inside itself, which no body is
        value, pos = self._root, 1
        while pos < len(path):
            step = _REF_STEP.match(path, pos)
            if step is None:
                return None
            pos = step.end()
            value = _child(value, step)
        return self._copy(value)

    def _copy(self, value: Any) -> Any:
        """Copy what is referred to, without the references in it: following those too could multiply."""
        self._budget -= 1
        if self._budget < 0:
            raise RemoteProtocolError(
                f"references of the body stand for over {MAX_REFERRED} values"
            )
        if isinstance(value, dict):
            return {k: self._copy(v) for k, v in value.items() if not _is_reference(v)}
        if isinstance(value, list):
            return [self._copy(v) for v in value if not _is_reference(v)]
        return value


def _is_reference(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("$ref"), str)


def _child(value: Any, step: "re.Match[str]") -> Any:
    name, index = step.groups()
    if index is not None and isinstance(value, list):
        return value[int(index)] if int(index) < len(value) else None
    if isinstance(value, dict):
        return value.get(index if name is None else re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL))
    return None
