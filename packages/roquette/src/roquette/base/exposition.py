"""Metrics as Prometheus reads them (text format 0.0.4), made in slices. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

KIND: Final = "text/plain; version=0.0.4; charset=utf-8"
SLICE: Final = 250  # samples of one piece: a millisecond
NO_LIMIT: Final = 1 << 62
DROPPED: Final = "rocketmq_metrics_series_dropped"

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Family(NamedTuple):
    """Family of samples: a metric's name, type and meaning.

    Attributes:
        kind: counter, gauge or summary (whose samples are NAME_sum and NAME_count).
    """

    name: str
    kind: str
    meaning: str


Sample = tuple[str, float]
"""Labels (of `labels`), and the value."""


class MetricTable(NamedTuple):
    """A metric that has `size` samples; making one costs, so those without room are not made."""

    family: Family
    size: int
    samples: Iterable[Sample]


def one(family: Family, value: float) -> MetricTable:
    """A metric of one sample, without labels of its own."""
    return MetricTable(family, 1, [("", value)])


def escaped(value: str) -> str:
    """A label's value as it stands between quotation marks."""
    if value.isalnum():
        return value
    return value.translate(_ESCAPES).encode("utf-8", "replace").decode()


def labels(pairs: Mapping[str, object]) -> str:
    """Write the labels that stand between the braces."""
    return ",".join(f'{key}="{escaped(str(value))}"' for key, value in pairs.items())


class Exposition:
    """One scrape's text.

    Args:
        most: samples of one table.
        in_all: samples of the scrape; a table gets what is left of them, so those that matter most come first.

    Attributes:
        dropped: samples that were left out, by metric.
        left: samples that may follow.
    """

    def __init__(self, most: int = NO_LIMIT, in_all: int = NO_LIMIT) -> None:
        self._most = most
        self.left = in_all
        self.dropped: dict[str, int] = {}

    def family(self, family: Family, samples: Iterable[Sample | None]) -> Iterator[bytes]:
        """The lines of a metric, in pieces of at most SLICE samples; a None among the samples ends a piece.

        A family without samples has no lines at all.
        """
        name = family.name
        lines = [f"# HELP {name} {family.meaning}\n# TYPE {name} {family.kind}\n"]
        begun = 0
        for sample in samples:
            if sample is None:
                yield b""
                continue
            begun += 1
            lines.append(f"{name}{{{sample[0]}}} {sample[1]}\n")
            if begun % SLICE == 0:
                yield "".join(lines).encode()
                lines.clear()
        self.left -= begun
        if begun and lines:
            yield "".join(lines).encode()

    def table(self, table: MetricTable) -> Iterator[bytes]:
        """The lines of a metric that has a sample for each of many things: as many as there is room for."""
        fit = max(0, min(self._most, self.left, table.size))
        self.drop(table.family, table.size - fit)
        return self.family(table.family, islice(table.samples, fit))

    def drop(self, family: Family, count: int) -> None:
        """So many samples of a metric are left out."""
        if count:
            self.dropped[family.name] = self.dropped.get(family.name, 0) + count

    def summary(self, family: Family, text: str, total: float, count: int) -> bytes:
        """A sum and how many it is of: all that a summary without quantiles has."""
        name = family.name
        self.left -= 2
        return (
            f"# HELP {name} {family.meaning}\n# TYPE {name} summary\n"
            f"{name}_sum{{{text}}} {total}\n{name}_count{{{text}}} {count}\n"
        ).encode()
