"""Long work of the store verbs: progress on stderr, one process per CPU."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from roquette.base.system_calls import usable_cpus
from roquette.cli.output import say

_LONG = 256 << 20  # bytes of log from which on progress is worth a line


class Steps:
    """Says how far something is, when it is long and somebody watches."""

    def __init__(self, verb: str, thing: str, size: int) -> None:
        self._verb = verb
        self._thing = thing
        self._shown = size >= _LONG and sys.stderr.isatty()
        self._done = 0

    def begin(self, name: str) -> None:
        """Something is begun."""
        if self._shown:
            say(f"{name} ...")

    def done(self, total: int) -> None:
        """One more is done, of so many."""
        self._done += 1
        if self._shown:
            say(f"{self._verb} {self._done} of {total} {self._thing}s")

    def restart(self) -> None:
        """Another row of things begins."""
        self._done = 0


@contextlib.contextmanager
def in_processes(
    jobs: int, steps: Steps
) -> Iterator[Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]]:
    """A `map` over processes; with one job, or one item, in this one. Results come in order."""
    count = jobs or usable_cpus()
    with contextlib.ExitStack() as stack:
        pool: list[ProcessPoolExecutor] = []

        def run(task: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
            listed = list(items)
            steps.restart()
            if count == 1 or len(listed) < 2:
                found: Iterator[Any] = map(task, listed)
            else:
                if not pool:
                    pool.append(stack.enter_context(ProcessPoolExecutor(count)))
                found = pool[0].map(task, listed)
            for result in found:
                steps.done(len(listed))
                yield result

        yield run
