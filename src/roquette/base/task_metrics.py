"""How the background tasks of a server are: as metrics, and as the reason why it is not well. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from roquette.base import metric_families as m
from roquette.base.exposition import Family, Sample, labels
from roquette.base.lifecycle import Health

UNWELL: Final = 3  # errors in a row; the pauses between them grow


def task_families(tasks: list[Health], text: str) -> Iterator[tuple[Family, Iterator[Sample]]]:
    """The metrics of supervised tasks; `text` are the labels of all."""
    names = [f"{text},{labels({'task': each.name})}" for each in tasks]
    yield m.TASK_FAILURES, iter([(n, each.failures) for n, each in zip(names, tasks)])
    yield m.TASK_ROW, iter([(n, each.in_row) for n, each in zip(names, tasks)])
    yield m.TASK_AGE, iter([(n, round(each.age_s(), 3)) for n, each in zip(names, tasks)])


def unwell(tasks: Iterable[Health]) -> str:
    """Which tasks fail again and again; "": none does."""
    return "; ".join(
        f"task {each.name} failed {each.in_row} times in a row, for {each.age_s():.0f} s: {each.last_error}"
        for each in tasks
        if each.in_row >= UNWELL
    )


class LoopLag:
    """How long what is due waits for the event loop: the longest of the last minute.

    Args:
        interval_s: of the looks.
    """

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._due_s: float | None = None
        self._lags = [0.0] * max(1, round(60 / interval_s))
        self._at = 0

    def look(self, now_s: float) -> None:
        """The beat, by the loop's time."""
        if self._due_s is not None:
            self._lags[self._at] = max(0.0, now_s - self._due_s)
            self._at = (self._at + 1) % len(self._lags)
        self._due_s = now_s + self.interval_s

    def longest_s(self) -> float:
        """Seconds."""
        return round(max(self._lags), 6)
