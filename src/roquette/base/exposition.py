"""Metrics as Prometheus reads them (text format 0.0.4), made in slices. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

KIND: Final = "text/plain; version=0.0.4; charset=utf-8"
SLICE: Final = 250  # samples of one piece: a millisecond
DROPPED: Final = "rocketmq_metrics_series_dropped"

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Family(NamedTuple):
    """What a metric means.

    Attributes:
        kind: counter, gauge or summary (whose samples are NAME_sum and NAME_count).
    """

    name: str
    kind: str
    meaning: str


Sample = tuple[str, float]
"""Labels (of `labels`), and the value."""


def escaped(value: str) -> str:
    """A label's value as it stands between quotation marks."""
    if value.isalnum():
        return value
    return value.translate(_ESCAPES).encode("utf-8", "replace").decode()


def labels(pairs: Mapping[str, object]) -> str:
    """What stands between the braces."""
    return ",".join(f'{key}="{escaped(str(value))}"' for key, value in pairs.items())


class Exposition:
    """One scrape's text.

    Args:
        most: series of one metric; further ones are counted in `dropped`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.dropped: dict[str, int] = {}

    def family(self, family: Family, samples: Iterable[Sample | None]) -> Iterator[bytes]:
        """The lines of a metric, in pieces of at most SLICE samples; a None among the samples ends a piece.

        A family without samples has no lines at all.
        """
        name, left = family.name, self._most
        lines = [f"# HELP {name} {family.meaning}\n# TYPE {name} {family.kind}\n"]
        begun = dropped = 0
        for sample in samples:
            if sample is None:
                yield b""
                continue
            if left <= 0:
                dropped += 1
                if dropped % SLICE == 0:
                    yield b""
                continue
            left -= 1
            begun += 1
            lines.append(f"{name}{{{sample[0]}}} {sample[1]}\n")
            if begun % SLICE == 0:
                yield "".join(lines).encode()
                lines.clear()
        if begun and lines:
            yield "".join(lines).encode()
        if dropped:
            self.dropped[name] = dropped

    def summary(self, family: Family, text: str, total: float, count: int) -> bytes:
        """A sum and how many it is of: all that a summary without quantiles has."""
        name = family.name
        return (
            f"# HELP {name} {family.meaning}\n# TYPE {name} summary\n"
            f"{name}_sum{{{text}}} {total}\n{name}_count{{{text}}} {count}\n"
        ).encode()
