"""The one door to YAML: files of operators in a bounded subset, as plain values that remember their lines; and what we write.

A document is built from the parser's events: mappings with texts as keys, lists, and scalars, which stay the texts they
are. Tags, anchors, aliases, merge keys and second documents are refused, so no class is named and nothing grows.
"""

from collections.abc import Iterator
from typing import Any, Final

from roquette.errors import ConfigError

MAX_BYTES: Final = 3 << 20  # SnakeYAML's own bound
MAX_DEPTH: Final = 8
MAX_NODES: Final = 400_000

TOO_DEEP: Final = f"lists and mappings deeper than {MAX_DEPTH}: that is no policy file"
_NULLS: Final = ("", "~", "null", "Null", "NULL")


class Scalar(str):
    """A text, with the line it stands in. `plain`: it stands there without quotation marks."""

    __slots__ = ("line", "plain")
    line: int
    plain: bool


class YamlMapping(dict[str, Any]):
    """A mapping, with the line it begins in."""

    __slots__ = ("line",)
    line: int


class Sequence(list[Any]):
    """A list, with the line it begins in."""

    __slots__ = ("line",)
    line: int


def fault(where: str, line: int, what: str) -> ConfigError:
    """Return the error with which a file is refused: which file, which line, what is wrong and what to do."""
    return ConfigError(f"{where}, line {line}: {what}")


def read_yaml(data: bytes, where: str) -> Any:
    """The value of a document: Mapping, Sequence, Scalar, or None. Blocks.

    Args:
        where: the file, for errors.

    Raises:
        ConfigError: it is not YAML, not of this subset, or too large.
    """
    import yaml

    if len(data) > MAX_BYTES:
        raise ConfigError(
            f"{where} has {len(data)} bytes: at most {MAX_BYTES} are read. Split it into several files"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise fault(where, line, "this is not UTF-8: save the file in UTF-8") from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(yaml.parse(text, Loader=loader), where)
    try:
        return builder.document()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        # The parser reads ahead of its events and has a bound of its own: it may meet too deep a list before we do.
        if mark and _unclosed_brackets(text[builder.read : mark.index]) > MAX_DEPTH:
            raise fault(where, mark.line + 1, TOO_DEEP) from None
        line = mark.line + 1 if mark else _line_of(text, getattr(error, "position", 0))
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
        raise fault(where, line, f"this is not YAML: {problem}") from None


def yaml_of(value: object) -> str:
    """A plain value as a document, in blocks."""
    import yaml

    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1 << 30))


def _unclosed_brackets(text: str) -> int:
    """Count the lists and mappings a stretch of text opens and does not close."""
    return sum(text.count(mark) for mark in "[{") - sum(text.count(mark) for mark in "]}")


def _line_of(text: str, position: object) -> int:
    return text.count("\n", 0, position if isinstance(position, int) else 0) + 1


class _Builder:
    """Makes values of the parser's events. The recursion is as deep as MAX_DEPTH."""

    def __init__(self, events: Iterator[Any], where: str) -> None:
        self._events = events
        self._where = where
        self._nodes = 0
        self.read = 0
        """How far the events have come, in characters."""

    def document(self) -> Any:
        value = None
        documents = 0
        for event in self._events:
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                documents += 1
                if documents > 1:
                    self._refuse(event, "a second document: remove the line '---' before it")
                value = self._value(next(self._events), 1)
        return value

    def _value(self, event: Any, depth: int) -> Any:
        kind = type(event).__name__
        self.read = event.end_mark.index
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._refuse(event, f"more than {MAX_NODES} values: split the file into several")
        if kind == "AliasEvent" or getattr(event, "anchor", None) is not None:
            self._refuse(event, "anchors and aliases (&name, *name) are not read: write it out")
        if getattr(event, "tag", None) not in (None, "!"):
            self._refuse(event, "tags (!name) are not read: remove it")
        line = event.start_mark.line + 1
        if kind == "ScalarEvent":
            plain = event.style is None or event.style == ""
            if plain and event.value in _NULLS:
                return None
            scalar = Scalar(event.value)
            scalar.line, scalar.plain = line, plain
            return scalar
        if depth > MAX_DEPTH:
            self._refuse(event, TOO_DEEP)
        if kind == "SequenceStartEvent":
            sequence = Sequence()
            sequence.line = line
            for inner in self._events_until("SequenceEndEvent"):
                sequence.append(self._value(inner, depth + 1))
            return sequence
        mapping = YamlMapping()
        mapping.line = line
        for inner in self._events_until("MappingEndEvent"):
            key = self._value(inner, depth + 1)
            if not isinstance(key, str) or key == "<<":
                self._refuse(inner, "this key is not a plain text")
            if key in mapping:
                self._refuse(inner, f"{key[:80]!r} is given twice: keep one of them")
            mapping[str(key)] = self._value(next(self._events), depth + 1)
        return mapping

    def _events_until(self, end: str) -> Iterator[Any]:
        while type(event := next(self._events)).__name__ != end:
            yield event

    def _refuse(self, event: Any, what: str) -> None:
        raise fault(self._where, event.start_mark.line + 1, what)
