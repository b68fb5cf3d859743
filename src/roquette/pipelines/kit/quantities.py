"""Times and sizes as people write and read them: `90s`, `30m`, `24h`, `7d`; `1.5 MiB`."""

import re
from datetime import UTC, datetime

from roquette.errors import ConfigError

_TIME = re.compile(r"(\d+)\s*([smhd])")
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str, where: str) -> int:
    """Milliseconds. Raises ConfigError that names `where`."""
    found = _TIME.fullmatch(text.strip().lower())
    if found is None:
        raise ConfigError(f"{where} must be a time such as 30m, 24h or 7d, not {text!r}")
    return int(found[1]) * _UNITS[found[2]]


def duration_text(milliseconds: float | None) -> str:
    """A span of time for people."""
    if milliseconds is None:
        return "–"
    if abs(milliseconds) < 1_000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    for bound, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if abs(seconds) >= 2 * bound:
            return f"{seconds / bound:.1f} {unit}"
    return f"{seconds:.1f} s"


def time_text(ms: float) -> str:
    """Date and time in UTC, of milliseconds since 1970."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def clock_text(ms: float) -> str:
    """The time of day of `time_text`."""
    return time_text(ms)[11:]


def size_text(count: float) -> str:
    """Bytes for people."""
    for bound, unit in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= bound:
            return f"{count / bound:.1f} {unit}"
    return f"{count:.0f} B"
