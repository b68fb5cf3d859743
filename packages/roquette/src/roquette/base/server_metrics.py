"""State that every server shows of itself, whatever it serves: as metrics, and as the reason why it is not well."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Final, NamedTuple

from roquette.base import metric_families as m
from roquette.base.descriptors import descriptor_limit, open_descriptors
from roquette.base.files import OsFiles
from roquette.base.form import form
from roquette.base.lifecycle import Health
from roquette.base.metric_families import Family, Sample, labels

Families = Iterator[tuple[Family, Iterable[Sample]]]
_STATE: Final = "/proc/self/stat"
UNWELL: Final = 3  # errors of a task in a row; the pauses between them grow


class ServerFigures(NamedTuple):
    """Of one server, now.

    Attributes:
        now_ms: wall time.
        not_ready: why it should get no requests; "": it should.
        refused: requests and connections since the start, by why.
        ends: seconds since 1970 at which certificates end, by the setting that names their file.
        kept: bytes for peers, and how many there may be.
        loop_lag_s: the longest wait for the event loop, lately.
    """

    now_ms: int
    not_ready: str
    refused: Mapping[str, int]
    ends: Mapping[str, float]
    kept: tuple[int, int]
    loop_lag_s: float
    tasks: list[Health]


def server_families(of: ServerFigures, text: str) -> Families:
    """All of them; `text` are the labels of the server."""
    for family, value in (
        (m.SERVER_READY, float(not of.not_ready)),
        (m.TIME, of.now_ms / 1000),
        (m.LOOP_LAG, of.loop_lag_s),
        (m.KEPT, of.kept[0]),
        (m.KEPT_MOST, of.kept[1]),
    ):
        yield family, [(text, value)]
    yield m.REFUSALS, [(f'{text},kind="{kind}"', count) for kind, count in of.refused.items()]
    ends = of.ends.items()
    yield m.CERTIFICATE_END, [(f"{text},{labels({'file': at})}", end) for at, end in ends]
    yield m.BUILD, [(f"{text},{_build()}", 1)]
    yield from task_families(of.tasks, text)
    yield from process_families()


@cache
def _build() -> str:
    version, python = import_module("roquette").__version__, sys.version.split()[0]
    return labels({"version": version, "python": python, "form": form().partition(":")[0]})


def process_families() -> Families:
    """Of this process, as Prometheus's client libraries name them; without what the system does not tell."""
    found = {
        m.CPU: sum(os.times()[:2]),
        m.MAX_FDS: descriptor_limit(),
        m.OPEN_FDS: open_descriptors(),
    }
    with suppress(OSError, ValueError, AttributeError):  # no Linux
        # Behind the command's name, which may hold anything: fields 22 to 24 of proc_pid_stat(5).
        fields = OsFiles().read_bytes(_STATE).rpartition(b")")[2].split()
        begun, found[m.VIRTUAL] = int(fields[19]), int(fields[20])
        found[m.RESIDENT] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        boot = OsFiles().read_bytes("/proc/stat").partition(b"\nbtime ")[2].split()[0]
        found[m.BEGUN] = int(boot) + begun / os.sysconf("SC_CLK_TCK")
    for family, value in found.items():
        if value >= 0:
            yield family, [("", value)]


def task_families(tasks: list[Health], text: str) -> Iterator[tuple[Family, Iterator[Sample]]]:
    """The metrics of supervised tasks; `text` are the labels of all."""
    names = [f"{text},{labels({'task': each.name})}" for each in tasks]
    yield m.TASK_FAILURES, iter([(n, each.failures) for n, each in zip(names, tasks)])
    yield m.TASK_ROW, iter([(n, each.in_row) for n, each in zip(names, tasks)])
    yield m.TASK_AGE, iter([(n, round(each.age_s(), 3)) for n, each in zip(names, tasks)])


def why_unhealthy(tasks: Iterable[Health]) -> str:
    """Name the tasks that fail again and again; "": none does."""
    return "; ".join(
        f"task {each.name} failed {each.in_row} times in a row, for {each.age_s():.0f} s: {each.last_error}"
        for each in tasks
        if each.in_row >= UNWELL
    )


class LoopLag:
    """Lag of the event loop, the wait of what is due: the longest of the last minute.

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
