"""Name servers, brokers, consumers and Spark as processes of their own, stopped whatever happens."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

READY_WITHIN_S = 60
SILENT_FOR_S = 300
STOP_WITHIN_S = 15
ROQUETTE = Path(sys.executable).with_name("roquette")


class DemoError(Exception):
    """Something that must not happen, in words for the person who runs the demo."""


class Processes:
    """Starts processes with their logs in one directory, and stops all of them at the end.

    Each gets a process group of its own: Ctrl-C reaches only the demo, which then stops them in order,
    last started first, and whatever they have started themselves.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Processes":
        self._logs.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        before = {number: signal.signal(number, signal.SIG_IGN) for number in _STOPPING_SIGNALS}
        try:  # a second Ctrl-C must not leave half of them running
            for name in reversed(list(self._running)):
                self.stop(name)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def start_server(self, name: str, *arguments: str) -> None:
        """Run `roquette ARGUMENTS`; `ready_address` waits for it."""
        self._start(name, [str(ROQUETTE), *arguments], stdout=subprocess.PIPE)

    def ready_address(self, name: str, part: str) -> str:
        """The HOST:PORT of the line `ready namesrv=HOST:PORT` or `ready broker=HOST:PORT`."""
        line = next(_lines(self._running[name], READY_WITHIN_S), "nothing at all")
        if not line.startswith("ready "):
            raise DemoError(
                f"{name} did not become ready, it said: {line!r}. Its log: {self._log(name)}"
            )
        return dict(word.split("=", 1) for word in line.split()[1:])[part]

    def start_python(self, name: str, module: str, *arguments: str) -> None:
        """Run `python -m MODULE ARGUMENTS` beside everything else."""
        self._start(name, [sys.executable, "-m", module, *arguments], stdout=subprocess.DEVNULL)

    def run_python(self, name: str, module: str, *arguments: str) -> Iterator[str]:
        """Run `python -m MODULE ARGUMENTS` to its end; yields the lines it prints.

        Raises:
            DemoError: it ends with an error, or prints nothing for minutes.
        """
        command = [sys.executable, "-m", module, *arguments]
        process = self._start(name, command, stdout=subprocess.PIPE)
        yield from _lines(process, SILENT_FOR_S)
        try:
            code = process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            code = None
        self.stop(name)
        if code:
            raise DemoError(f"{name} failed with code {code}. Its log: {self._log(name)}")
        if code is None:
            raise DemoError(f"{name} does not go on. Its log: {self._log(name)}")

    def _start(self, name: str, command: list[str], stdout: int) -> subprocess.Popen[bytes]:
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=log, process_group=0
            )
        self._running[name] = process
        return process

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def kill(self, name: str) -> None:
        """SIGKILL: the process gets no chance to say goodbye."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str) -> None:
        """SIGTERM, and SIGKILL if that does not help in time; also for what it has started itself."""
        process = self._running.pop(name)
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_WITHIN_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def check_alive(self) -> None:
        """Raises DemoError if a process has ended that should run."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise DemoError(
                    f"{name} ended by itself with code {process.returncode}. "
                    f"Its log: {self._log(name)}"
                )


def stop_on_signals() -> None:
    """Let a demo that is told to end do so as by Ctrl-C: its processes end first."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGHUP, interrupt)


_STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _lines(process: subprocess.Popen[bytes], silent_for_s: float) -> Iterator[str]:
    """What it prints, line by line, until it ends or is silent for too long."""
    assert process.stdout is not None
    held = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        deadline = time.monotonic() + silent_for_s
        while selector.select(max(0.0, deadline - time.monotonic())):
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                return
            *whole, held = (held + data).split(b"\n")
            for line in whole:
                yield line.decode("utf-8", "replace")
            deadline = time.monotonic() + silent_for_s
