"""Acts that take long: tasks with an owner, their sentences, and how they ended. All of them may be stopped and begun again."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct

from roquette.admin.drain import ShowRows
from roquette.base.clock import Clock
from roquette.base.lifecycle import Tasks
from roquette.console.audit import ActAudit
from roquette.errors import ConfigError, RoquetteError

MOST: Final = 100
MOST_AT_WORK: Final = 16
MOST_SENTENCES: Final = 1_000

Tell = Callable[[str], None]
Work = Callable[[Tell, ShowRows], Awaitable[Any]]


class ConsoleJob:
    """One of them.

    Attributes:
        state: at work, done, failed or stopped. sentences: (ms, text), what it told. rows: how it stands.
        result: what it found. error: why it failed.
    """

    def __init__(
        self, number: int, cluster: str, who: str, command: tuple[str, ...], at_ms: int
    ) -> None:
        self.number = number
        self.cluster = cluster
        self.who = who
        self.command = command
        self.begun_ms = at_ms
        self.ended_ms = 0
        self.state = "at work"
        self.sentences: list[tuple[int, str]] = []
        self.rows: Sequence[Struct] = ()
        self.result: Any = None
        self.error: RoquetteError | None = None


class Jobs:
    """The newest jobs of the console, of all people."""

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        self._jobs: OrderedDict[int, ConsoleJob] = OrderedDict()
        self._running: dict[int, asyncio.Task[Any]] = {}
        self._last = 0

    def all(self, cluster: str) -> list[ConsoleJob]:
        """Of a cluster, the newest first."""
        return [job for job in reversed(self._jobs.values()) if job.cluster == cluster]

    def get(self, number: int, cluster: str) -> ConsoleJob | None:
        """One of a cluster."""
        found = self._jobs.get(number)
        return found if found is not None and found.cluster == cluster else None

    def start(
        self,
        cluster: str,
        who: str,
        command: tuple[str, ...],
        work: Work,
        ended: Callable[[ConsoleJob], None],
    ) -> ConsoleJob:
        """Begin one; raises ConfigError when so many are at work, or the same one is."""
        if len(self._running) >= MOST_AT_WORK:
            raise ConfigError(f"{MOST_AT_WORK} jobs are at work: stop one, or wait")
        if any(
            self._jobs[n].command == command and self._jobs[n].cluster == cluster
            for n in self._running
        ):
            raise ConfigError("the same job is at work already")
        self._last += 1
        job = ConsoleJob(self._last, cluster, who, command, self._clock.now_ms())
        self._jobs[job.number] = job
        for number in [n for n in self._jobs if n not in self._running][: len(self._jobs) - MOST]:
            del self._jobs[number]
        task = self._tasks.start(f"job {job.number}", self._run(job, work))
        task.add_done_callback(lambda done: self._end(job, done, ended))
        self._running[job.number] = task
        return job

    def stop(self, job: ConsoleJob) -> None:
        """End one that is at work."""
        if task := self._running.get(job.number):
            task.cancel()

    async def _run(self, job: ConsoleJob, work: Work) -> None:
        def tell(text: str) -> None:
            job.sentences.append((self._clock.now_ms(), text))
            del job.sentences[:-MOST_SENTENCES]

        def show(rows: Sequence[Struct]) -> None:
            job.rows = rows

        try:
            job.result = await work(tell, show)
        except RoquetteError as error:
            job.error = error

    def _end(
        self, job: ConsoleJob, task: asyncio.Task[Any], ended: Callable[[ConsoleJob], None]
    ) -> None:
        """However it ended, even before its first step."""
        is_failed = job.error is not None or (not task.cancelled() and task.exception() is not None)
        job.state = "failed" if is_failed else "stopped" if task.cancelled() else "done"
        job.ended_ms = self._clock.now_ms()
        self._running.pop(job.number, None)
        ended(job)


class Deeds(NamedTuple):
    """What acts are noted in, and where those that take long go on."""

    audit: ActAudit
    jobs: Jobs
