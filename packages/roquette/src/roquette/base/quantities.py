"""Times, sizes and counts as people read them: `2.5 min`, `1.5 MiB`, `1 batch`."""

from datetime import UTC, datetime


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


def plural(count: int, one: str, many: str = "") -> str:
    """The noun of a count: `one`, or `many` (`one` with an s)."""
    return one if count == 1 else many or f"{one}s"


def counted(count: int, one: str, many: str = "") -> str:
    """A count and its noun: `1 batch`, `1,200 batches`."""
    return f"{count:,} {plural(count, one, many)}"
