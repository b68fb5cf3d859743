"""Times as people write them: `90s`, `30m`, `24h`, `7d`."""

import re

from roquette.errors import ConfigError

_TIME = re.compile(r"(\d+)\s*([smhd])")
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str, where: str) -> int:
    """Milliseconds. Raises ConfigError that names `where`."""
    found = _TIME.fullmatch(text.strip().lower())
    if found is None:
        raise ConfigError(f"{where} must be a time such as 30m, 24h or 7d, not {text!r}")
    return int(found[1]) * _UNITS[found[2]]


def shown(milliseconds: float | None) -> str:
    """A time for people."""
    if milliseconds is None:
        return "–"
    if abs(milliseconds) < 1_000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    for bound, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if abs(seconds) >= 2 * bound:
            return f"{seconds / bound:.1f} {unit}"
    return f"{seconds:.1f} s"
