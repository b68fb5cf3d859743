"""A streaming query from start to end: batches counted, paced, shown, stopped on request."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from roquette.base.quantities import counted
from roquette_spark.pipelines.kit.frame import Job

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

POLL_S = 0.25
KEPT_BATCHES = 10_000  # of a run that follows for months, the last ones are in the report


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch that was done in this run. `at_s` counts from the run's begin."""

    number: int
    rows: int
    at_s: float
    seconds: float


@dataclass(slots=True)
class Batches:
    """What a run has done so far."""

    job: Job
    max_rate: int = 0  # rows a second; 0 is no limit
    rows: int = 0
    count: int = 0
    kept: deque[Batch] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))
    _begin: float = field(default_factory=time.monotonic)
    _paced_from: float = field(default_factory=time.monotonic)

    def done(self, number: int, rows: int, seconds: float) -> None:
        """Count a batch, and wait if the rate says so; a stop request ends the wait."""
        self.rows += rows
        self.count += 1
        now = time.monotonic()
        self.kept.append(Batch(number, rows, now - self._begin, seconds))
        if self.max_rate and rows:
            due = max(self._paced_from, now - seconds) + rows / self.max_rate
            if due > now:
                self.job.stop.wait(due - now)
            self._paced_from = due


@dataclass(frozen=True, slots=True)
class Sum:
    """The batches of several queries, counted together."""

    parts: Sequence[Batches]

    @property
    def rows(self) -> int:
        """Rows so far."""
        return sum(each.rows for each in self.parts)

    @property
    def count(self) -> int:
        """Batches so far."""
        return sum(each.count for each in self.parts)


class Counted(Protocol):
    """How far some queries are."""

    @property
    def rows(self) -> int:
        """Rows so far."""

    @property
    def count(self) -> int:
        """Batches so far."""


def await_end(
    job: Job,
    queries: "Sequence[StreamingQuery]",
    batches: Counted,
    total: int | None,
    look: Callable[[], None] = lambda: None,
) -> None:
    """Until all queries have ended, one has failed, or somebody asked to stop.

    Args:
        look: called a few times a second meanwhile.

    Raises:
        StreamingQueryException: a query failed; the others are stopped.
    """
    try:
        while any(query.isActive for query in queries):
            if job.stop.is_set():
                break
            failed = [query for query in queries if query.exception() is not None]
            if failed:
                break
            active = next((query for query in queries if query.isActive), None)
            if active is not None:
                active.awaitTermination(POLL_S)
            job.progress.update(batches.rows, total, counted(batches.count, "batch", "batches"))
            look()
    finally:
        with contextlib.suppress(ConnectionError):  # the JVM is gone, and its queries with it
            for query in queries:
                if query.isActive:
                    query.stop()
    for query in queries:
        error = query.exception()
        if error is not None and not job.stop.is_set():
            raise error
    job.progress.update(batches.rows, total, counted(batches.count, "batch", "batches"))


def rates(batches: Batches) -> dict[str, list[tuple[float, float]]]:
    """Rows a second over time, for a plot."""
    return {
        "rows a second": [
            (round(each.at_s, 1), each.rows / each.seconds)
            for each in batches.kept
            if each.seconds > 0
        ]
    }


def summary_of(batches: Batches) -> dict[str, Any]:
    """For summary.json."""
    seconds = sum(each.seconds for each in batches.kept)
    return {
        "batches": batches.count,
        "rows": batches.rows,
        "rows_per_second": round(batches.rows / seconds) if seconds else 0,
    }
