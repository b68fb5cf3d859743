"""A streaming query from start to end: its options; batches counted, paced, shown, stopped on request."""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from roquette.base.clock import Clock
from roquette.base.metric_families import KIND, Exposition, Family, labels
from roquette.base.options import OptionKind, counted, option
from roquette.errors import ClientError, ConfigError
from roquette.remoting.http1 import HttpListener
from roquette.remoting.http_pages import HttpPages, StreamedPage
from roquette.remoting.settings import LISTEN
from roquette_spark.pipelines.kit.frame import KEY_VALUE, Job, PipelineOptions
from roquette_spark.values.options import READER_GROUP

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

POLL_S = 0.25
KEPT_BATCHES = 10_000  # of a run that follows for months, the last ones are in the report


def _limit(text: str) -> str:
    number = float(text.removesuffix("%"))
    if not number >= 0 or not (text.endswith("%") or text.isdigit()):
        raise ValueError
    return text


LIMIT: Final = OptionKind(wanted="a number such as 100, or a share such as 0.5%", parse=_limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedOptions(PipelineOptions):
    """Options of pipelines whose streams fill tables, with a quarantine beside each."""

    checkpoints: str = option(
        "",
        "Where Spark keeps how far it has read; default is in each table's folder. A local directory, for tables in an "
        "object store, does without Hadoop's jars.",
        metavar="DIR",
    )
    max_bad: str = option(
        "",
        "End before a batch with which more of a topic's messages of this run are bad: a number, or a share of them such as "
        "0.5%.",
        metavar="N|P%",
        kind=LIMIT,
    )
    from_quarantine: bool = option(
        False,
        "First read the messages in quarantine again: those that can be read now, after a mend, move to their table.",
    )
    set_aside: int = option(
        -1,
        "Put the messages of this batch into the quarantine as they are: a way past a batch that ends each run.",
        metavar="BATCH",
    )
    follow: bool = option(False, "Go on with what comes, until stopped.")
    interval_s: int = option(
        60, "With --follow: seconds between batches.", metavar="SECONDS", least=1
    )
    group: str = option(
        "",
        "Consumer group that is told how far the tables are, for group lag, topic resize, broker drain and doctor; default is a name of "
        "its own.",
        kind=READER_GROUP,
    )
    metrics_listen: str = option(
        "",
        "With --follow: HOST:PORT of a port for /metrics, /healthz and /readyz, which answers everybody who reaches it.",
        kind=LISTEN,
    )
    sample: int = option(10_000, "Messages looked at to infer a schema.", least=1)
    keep_replaced_minutes: int = option(
        60, "How long replaced files stay, for readers that still use them.", metavar="MINUTES"
    )
    source_option: tuple[str, ...] = option(
        (),
        "An option of the source, such as failOnDataLoss=false; may be repeated.",
        metavar=KEY_VALUE,
        split=False,
    )

    def check_listen(self, pipeline: str) -> None:
        """Raises ConfigError for --metrics-listen without --follow."""
        if self.metrics_listen and not self.follow:
            raise ConfigError(
                f"{pipeline}: --metrics-listen is for --follow: a run that ends has a report"
            )


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch that was done in this run. `at_s` counts from the run's begin."""

    number: int
    rows: int
    at_s: float
    seconds: float


@dataclass(slots=True)
class Batches:
    """Progress of a run: its batches so far."""

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


def await_end(
    job: Job,
    queries: "Sequence[StreamingQuery]",
    batches: Sequence[Batches],
    total: int | None,
    look: Callable[[], None] = lambda: None,
) -> None:
    """Until all queries have ended, one has failed, or somebody asked to stop.

    Args:
        look: called a few times a second meanwhile.

    Raises:
        StreamingQueryException: a query failed; the others are stopped.
    """

    def show() -> None:
        rows, count = (sum(getattr(each, name) for each in batches) for name in ("rows", "count"))
        job.progress.update(rows, total, counted(count, "batch", "batches"))

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
            show()
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
    show()


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
    seconds = sum(each.seconds for each in batches.kept)
    return {
        "batches": batches.count,
        "rows": batches.rows,
        "rows_per_second": round(batches.rows / seconds) if seconds else 0,
    }


# /metrics, /healthz and /readyz of a pipeline that follows: how far each table is, by the page that servers have.


LOOK_S: Final = 5.0  # between two questions to the brokers
STALE_MS: Final = 300_000  # so long, or
STALE_INTERVALS: Final = 5  # so many intervals between batches, may messages wait without a commit
_LAG = Family("roquette_pipeline_lag_messages", "gauge", "Messages that no committed batch has.")
_BATCH = Family("roquette_pipeline_last_batch", "gauge", "Number of the newest committed batch.")
_AGE = Family(
    "roquette_pipeline_last_commit_age_seconds",
    "gauge",
    "Since the newest batch was committed, or since the start.",
)
_ROWS = Family("roquette_pipeline_rows_total", "counter", "Rows that this run has committed.")
_BAD = Family(
    "roquette_pipeline_quarantined_messages", "gauge", "Messages in the table's quarantine."
)
_UNMET = Family(
    "roquette_pipeline_unmet_rows_total",
    "counter",
    "Rows that did not meet an expectation, once for each.",
)
_ASKED = Family(
    "roquette_pipeline_lag_age_seconds", "gauge", "Since the brokers last said how much waits."
)


@dataclass(frozen=True, slots=True)
class TableHealth:
    """Health of one table: how far it is.

    Attributes:
        lag: messages that no committed batch has.
        batch: the newest committed one; -1 when there is none.
        rows: that this run has committed.
        bad: messages in its quarantine.
        unmet: rows of this run that do not meet an expectation, once for each.
    """

    topic: str
    lag: int
    batch: int
    rows: int
    bad: int = 0
    unmet: int = 0


class RunHealth:
    """Health of a run; its pages are served by a thread, so that nothing of Spark holds them up.

    Args:
        look: asks the brokers how far each table is; raises ClientError when none answers.
        interval_s: between batches.
    """

    def __init__(
        self, name: str, look: Callable[[], Sequence[TableHealth]], clock: Clock, interval_s: int
    ) -> None:
        self._look = look
        self._clock = clock
        self._stale_ms = max(STALE_MS, STALE_INTERVALS * interval_s * 1000)
        self._name = name
        self._tables: Sequence[TableHealth] = ()
        self._began_ms = clock.now_ms()
        self._looked_ms = 0
        self._asked_ms = 0
        self._moved_ms: dict[
            str, int
        ] = {}  # by topic: when its batch was seen to be newer, or nothing waited
        self._committed_ms: dict[str, int] = {}
        self.pages = HttpPages(
            about=f"roquette pipeline {name}",
            anyone=True,
            shown=True,
            check_readiness=lambda: "" if self._looked_ms else "the streams have not begun",
            check_health=self.trouble,
            streams={"/metrics": StreamedPage(kind=KIND, begin=self._pieces)},
        )

    def update(self) -> None:
        """Ask the brokers, if the last time is long enough ago."""
        now_ms = self._clock.now_ms()
        if now_ms - self._asked_ms < LOOK_S * 1000:
            return
        self._asked_ms = now_ms
        with contextlib.suppress(ClientError):  # lag_age_seconds tells
            found = self._look()
            before = {each.topic: each for each in self._tables}
            for each in found:
                old = before.get(each.topic)
                newer = each.batch > (old.batch if old else each.batch)
                if newer:
                    self._committed_ms[each.topic] = now_ms
                if newer or old is None or not each.lag:
                    self._moved_ms[each.topic] = now_ms
            self._tables, self._looked_ms = found, now_ms

    def trouble(self) -> str:
        """Name the table that has messages waiting and no commit for too long; "": none."""
        now_ms = self._clock.now_ms()
        for each in self._tables:
            idle_ms = now_ms - self._moved_ms[each.topic]
            if each.lag and idle_ms > self._stale_ms:
                return f"{each.topic}: {each.lag} messages wait, nothing committed for {idle_ms // 1000} s"
        return ""

    def _pieces(self) -> Iterator[bytes]:
        out, now_ms, tables = Exposition(), self._clock.now_ms(), self._tables
        texts = [labels({"pipeline": self._name, "topic": each.topic}) for each in tables]
        committed = [self._committed_ms.get(each.topic, self._began_ms) for each in tables]
        for family, values in (
            (_LAG, [each.lag for each in tables]),
            (_BATCH, [each.batch for each in tables]),
            (_BAD, [each.bad for each in tables]),
            (_UNMET, [each.unmet for each in tables]),
            (_ROWS, [each.rows for each in tables]),
            (_AGE, [(now_ms - at_ms) / 1000 for at_ms in committed]),
        ):
            yield from out.family(family, list(zip(texts, values, strict=True)))
        asked_s = (now_ms - (self._looked_ms or self._began_ms)) / 1000
        yield from out.family(_ASKED, [(labels({"pipeline": self._name}), asked_s)])

    @contextlib.contextmanager
    def served(self, address: str, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
        """Serve the pages on host:port meanwhile, and say where; gives what is to be called a few times a second.

        "" is nowhere. Raises ConfigError if the port is taken.
        """
        if not address:
            yield lambda: None
            return
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="health", daemon=True)
        listener = HttpListener(self.pages)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(listener.start(address), loop).result()
            host = address.rpartition(":")[0]
            say(f"/metrics, /healthz and /readyz at http://{host}:{listener.port}")
            yield self.update
        finally:
            asyncio.run_coroutine_threadsafe(listener.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
