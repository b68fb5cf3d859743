"""Lines of logs that no peer can forge, as text or as JSON, and a rate limit for lines that repeat.

A log call is a template of ours, a literal, and values: `log.info("broker removed broker=%s", name)`. Whatever a
value is, `LineFormatter` makes one line of it: a peer can name a group as it likes and still writes no line, field
or terminal sequence of its own (tests/test_tidy.py, tests/bad_input/test_log_lines.py).
"""

import json
import logging
import math
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from roquette.base.clock import Clock

MAX_VALUE: Final = 400  # characters of one value; so many of a traceback's line, too
MAX_LINE: Final = 4_000  # characters of a message
MAX_TRACEBACK: Final = 60  # lines
TRACE: Final = "\n    | "  # what a line of a traceback begins with, and no line of a record does

_CONVERSION = re.compile(r"(=?)%[-#0 +]*[\d*]*(?:\.\d+)?[hlL]?([a-zA-Z%])")
_NAME = re.compile(r"[\w.-]*\Z")
_MAX_NAME = 40  # characters of a field's name: a template is ours, or a foreign library's that may be anything
_QUOTED = re.compile(r'[\s"=\\]')


def escaped(text: str, limit: int = MAX_VALUE) -> str:
    """`text` in printable characters alone, cut at `limit`."""
    size = len(text)
    if size > limit:
        text = text[:limit]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if size <= limit else f"{text}... ({size} characters)"


def quoted(text: str) -> str:
    """The value of a field: as it is when it is one plain word, else in quotation marks."""
    if text and text.isprintable() and len(text) <= MAX_VALUE and not _QUOTED.search(text):
        return text
    plain = escaped(text[: MAX_VALUE + 1].replace("\\", "\\\\").replace('"', '\\"'), 2 * MAX_VALUE)
    return f'"{plain}"' if len(text) <= MAX_VALUE else f'"{plain}..." ({len(text)} characters)'


class _Value:
    """A value of a record that shows itself as `text`, by %s and by %r."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


class _Conversion(NamedTuple):
    """One value's place in a template."""

    name: str  # of `name=%s`
    field: bool
    kind: str  # the conversion's letter


@lru_cache(maxsize=2_000)
def _conversions(template: str) -> tuple[_Conversion, ...]:
    found = []
    for m in _CONVERSION.finditer(template):
        before = template[max(0, m.start() - _MAX_NAME) : m.start()] if m[1] else ""
        found.append(_Conversion(_NAME.search(before)[0], bool(m[1]), m[2]))  # type: ignore[index]  # matches ""
    return tuple(each for each in found if each.kind != "%")


def _as_text(value: object, place: _Conversion) -> str | None:
    """None for a number, and for what the template writes as one."""
    if place.kind not in "sra" or isinstance(value, (int, float)):
        return None
    return str(value) if place.kind == "s" else repr(value)


def _places(record: logging.LogRecord) -> tuple[_Conversion, ...]:
    """Of each of a record's values, in order; empty when they do not fit the template one by one."""
    places = _conversions(str(record.msg))
    fit = isinstance(record.args, tuple) and len(record.args) == len(places)
    return places if fit else ()


def _message(record: logging.LogRecord) -> str:
    """One line."""
    values: Any = record.args
    places = _places(record)
    if places:
        shown = []
        for value, place in zip(values, places, strict=True):
            text = _as_text(value, place)
            plain = value if text is None else _Value((escaped, quoted)[place.field](text))
            shown.append(plain)
        values = tuple(shown)
    template = str(record.msg)
    return escaped(template % values if values else template, MAX_LINE)


class LineFormatter(logging.Formatter):
    """Time, level, logger and a message of one line; a traceback's lines follow, each marked as one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        record.message = _message(record)
        record.asctime = self.formatTime(record)
        return self.formatMessage(record) + "".join(TRACE + each for each in self.traceback(record))

    def traceback(self, record: logging.LogRecord) -> list[str]:
        """Its lines, printable and bounded; empty without one."""
        if not record.exc_info or record.exc_info[1] is None:
            return []
        lines = self.formatException(record.exc_info).split("\n")
        if len(lines) > MAX_TRACEBACK:
            lines[MAX_TRACEBACK // 2 : -MAX_TRACEBACK // 2] = ["..."]
        return [escaped(each) for each in lines]


class JsonFormatter(LineFormatter):
    """One JSON object a line, of ASCII alone: `time` (UTC, milliseconds), `level`, `logger`, `message` as the text has it.

    `fields` holds the values that the message names (`broker=%s`), numbers as numbers; `traceback` a list of lines.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        values: Any = record.args
        fields = {
            place.name: _field(value, place)
            for place, value in zip(_places(record), values or (), strict=False)
            if place.name
        }
        if fields:
            told["fields"] = fields
        lines = self.traceback(record)
        if lines:
            told["traceback"] = lines
        return json.dumps(told)


def _field(value: Any, place: _Conversion) -> object:
    if isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = str(value) if place.kind != "r" else repr(value)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}... ({len(text)} characters)"


class RateLimited:
    """Lets one line per key pass in each interval and counts the rest; keys are bounded."""

    def __init__(
        self, logger: logging.Logger, clock: Clock, interval_ms: int = 10_000, keys: int = 1_000
    ) -> None:
        self._log = logger
        self._clock = clock
        self._interval_ms = interval_ms
        self._keys = keys
        self._seen: dict[str, list[int]] = {}  # key -> [last shown ms, suppressed since]

    def warning(
        self, key: str, message: str, *args: object, error: BaseException | None = None
    ) -> None:
        """Log `message`, and the traceback of `error`, unless a line of this `key` passed within the interval."""
        self.line(logging.WARNING, key, message, *args, error=error)

    def line(
        self, level: int, key: str, message: str, *args: object, error: BaseException | None = None
    ) -> None:
        """The same at any level."""
        now = self._clock.steady_ms()
        entry = self._seen.get(key)
        if entry is not None and now - entry[0] < self._interval_ms:
            entry[1] += 1
            return
        if entry is None and len(self._seen) >= self._keys:
            self._seen.clear()
        suppressed = entry[1] if entry else 0
        self._seen[key] = [now, 0]
        if suppressed:
            message += " (and %d more like it)"
            args = (*args, suppressed)
        self._log.log(level, message, *args, exc_info=error)
