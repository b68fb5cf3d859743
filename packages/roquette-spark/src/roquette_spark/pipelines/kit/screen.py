"""Progress on the terminal: a bar that moves, or plain lines where the output is not a terminal."""

import sys

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from roquette_spark.pipelines.kit.frame import Progress


class Screen(Progress):
    """Shows steps on stderr, so that stdout stays for results."""

    def __init__(self, *, live: bool | None = None) -> None:
        self._live = sys.stderr.isatty() if live is None else live
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bars = Bars(
            TextColumn("  {task.description}"),
            BarColumn(30),
            TextColumn("{task.fields[count]}"),
            TextColumn("{task.fields[note]}", style="dim"),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._task: TaskID | None = None
        self._shown_tenth = -1

    def __enter__(self) -> "Screen":
        if self._live:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live:
            self._bars.stop()

    def step(self, text: str) -> None:
        """A new step begins; the bar of the one before becomes full."""
        if not self._live:
            self._console.print(f"  {text}", markup=False)
            self._shown_tenth = -1
            return
        if self._task is not None:
            found = next(task for task in self._bars.tasks if task.id == self._task)
            self._bars.update(self._task, total=found.total or 1, completed=found.total or 1)
        self._task = self._bars.add_task(text, total=None, count="", note="")

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        """Move the bar; without a terminal, one line each tenth of the way."""
        count = f"{done:,}" + (f" of {total:,}" if total else "")
        if self._live:
            if self._task is not None:
                self._bars.update(self._task, completed=done, total=total, count=count, note=note)
            return
        tenth = done * 10 // total if total else -1
        if tenth > self._shown_tenth:
            self._shown_tenth = tenth
            self._console.print(f"    {count} {note}".rstrip(), markup=False)

    def say(self, text: str) -> None:
        """A fact that stays."""
        self._console.print(f"  {text}", markup=False)
