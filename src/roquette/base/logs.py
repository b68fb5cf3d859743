"""Log set-up for our processes: lines that no peer can forge, and a rate limit for lines that repeat.

A log call is a template of ours, a literal, and values: `log.info("broker removed broker=%s", name)`. Whatever a
value is, `LineFormatter` makes one line of it: a peer can name a group as it likes and still writes no line, field
or terminal sequence of its own (tests/test_tidy.py, tests/bad_input/test_log_lines.py).
"""

import logging
import re
import sys
from functools import lru_cache
from typing import Any, Final, TextIO

from roquette.base.clock import Clock

MAX_VALUE: Final = 400  # characters of one value; so many of a traceback's line, too
MAX_LINE: Final = 4_000  # characters of a message
MAX_TRACEBACK: Final = 60  # lines
TRACE: Final = "\n    | "  # what a line of a traceback begins with, and no line of a record does

_CONVERSION = re.compile(r"(=?)%[-#0 +]*[\d*]*(?:\.\d+)?[hlL]?([a-zA-Z%])")
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


@lru_cache(maxsize=2_000)
def _conversions(template: str) -> tuple[tuple[bool, str], ...]:
    """Of each value in a template: whether it is a field's (`key=%s`), and its conversion."""
    found = [(bool(m[1]), m[2]) for m in _CONVERSION.finditer(template)]
    return tuple(entry for entry in found if entry[1] != "%")


def _shown(value: object, field: bool, conversion: str) -> object:
    if conversion not in "sra" or isinstance(value, (int, float)):
        return value
    text = str(value) if conversion == "s" else repr(value)
    return _Value(quoted(text) if field else escaped(text))


class LineFormatter(logging.Formatter):
    """Time, level, logger and a message of one line; a traceback's lines follow, each marked as one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        template = str(record.msg)
        values: Any = record.args
        if isinstance(values, tuple) and values:
            kinds = _conversions(template)
            if len(kinds) == len(values):
                values = tuple(_shown(v, *kind) for v, kind in zip(values, kinds, strict=True))
        text = template % values if values else template
        record.message = escaped(text, MAX_LINE)
        record.asctime = self.formatTime(record)
        line = self.formatMessage(record)
        if record.exc_info and record.exc_info[1] is not None:
            lines = self.formatException(record.exc_info).split("\n")
            if len(lines) > MAX_TRACEBACK:
                lines[MAX_TRACEBACK // 2 : -MAX_TRACEBACK // 2] = ["..."]
            line += "".join(TRACE + escaped(each) for each in lines)
        return line


def configure(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send everything under `roquette`, and what asyncio says, to `stream` (stderr), by `LineFormatter`."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter())
    for name in ("roquette", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
    logging.getLogger("roquette").setLevel(level.upper())
    logging.raiseExceptions = False  # a line that cannot be written is no reason for a traceback


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
