"""Places in queues, as people name them: an end, a count from an end, an offset, a time.

| word | place |
|---|---|
| `first`, `earliest` | the oldest message there is |
| `last`, `latest` | behind the newest message |
| `120` | that offset |
| `-10` | ten messages before the end |
| `+100` | a hundred messages after the start |
| `@-1h` | the first message stored since then: ms, s, m, h, d |
| `@2026-09-01T10:00` | the first message stored at that time or later; without a zone it is this machine's time |
| `@1790000000000` | the same, in milliseconds since 1970 |
"""

import re
from datetime import datetime
from typing import Final, NamedTuple

from roquette.base.javatypes import whole_number
from roquette.errors import ConfigError

_SPAN: Final = re.compile(r"-(\d{1,12})(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FORMS: Final = (
    "first, last, 120, -10 (before the end), +100 (after the start), @-1h or @2026-09-01T10:00"
)
_MOST: Final = 2**63 - 1


class QueuePlace(NamedTuple):
    """A place in any queue: either a time, or a number counted from an end, or an offset.

    Attributes:
        kind: "start" and "end" (count `number` from there), "offset", "time" (epoch milliseconds), or "group".
        group: of the last kind: where this one is.
    """

    kind: str
    number: int
    group: str = ""

    def at(self, low: int, high: int) -> int:
        """The offset in a queue with these ends, never outside of them; not for a time or a group."""
        wanted = {"start": low + self.number, "end": high + self.number, "offset": self.number}
        return max(low, min(wanted[self.kind], high))


def parse_place(text: str, now_ms: int) -> QueuePlace:
    """What a word of people means; raises ConfigError."""
    words = text.strip()
    if words in ("first", "earliest"):
        return QueuePlace("start", 0)
    if words in ("last", "latest"):
        return QueuePlace("end", 0)
    if words.startswith("@"):
        return QueuePlace("time", _time(words[1:], text, now_ms))
    if words[:1] in ("+", "-") and whole_number(words[1:], _MOST) >= 0:
        return QueuePlace("start" if words[0] == "+" else "end", int(words))
    if (offset := whole_number(words, _MOST)) >= 0:
        return QueuePlace("offset", offset)
    raise ConfigError(f"{text!r} is no place in a queue: say {_FORMS}")


def _time(words: str, text: str, now_ms: int) -> int:
    if span := _SPAN.fullmatch(words):
        return max(0, now_ms - int(span[1]) * _UNITS_MS[span[2]])
    if (ms := whole_number(words, _MOST)) >= 0:
        return ms
    try:
        moment = datetime.fromisoformat(words)
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"{text!r} is no time: say @-90m, @2026-09-01T10:00 or @2026-09-01T10:00+02:00"
        ) from None
