"""Name servers, brokers and consumers as processes of their own, stopped whatever happens."""

import selectors
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

READY_WITHIN_S = 60
ROQUETTE = Path(sys.executable).with_name("roquette")


class DemoError(Exception):
    """Something that must not happen, in words for the person who runs the demo."""


class Processes:
    """Starts processes with their logs in one directory, and stops all of them at the end."""

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
        for name in reversed(list(self._running)):
            self.stop(name)

    def start_server(self, name: str, *arguments: str) -> str:
        """Run `roquette ARGUMENTS` and return the HOST:PORT of its ready line."""
        process = self._start(name, [str(ROQUETTE), *arguments], stdout=subprocess.PIPE)
        line = _first_line(process)
        if not line.startswith("ready "):
            raise DemoError(
                f"{name} did not become ready: {line!r}. Its log: {self._logs / name}.log"
            )
        parts = dict(part.split("=", 1) for part in line.split()[1:])
        return parts["namesrv" if arguments[0] == "namesrv" else "broker"]

    def start_python(self, name: str, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Run `python -m MODULE ARGUMENTS`."""
        command = [sys.executable, "-m", module, *arguments]
        return self._start(name, command, stdout=subprocess.DEVNULL)

    def _start(self, name: str, command: list[str], stdout: int) -> subprocess.Popen[bytes]:
        with (self._logs / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=stdout, stderr=log)
        self._running[name] = process
        return process

    def kill(self, name: str) -> None:
        """SIGKILL: the process gets no chance to say goodbye."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str) -> None:
        """SIGTERM, and SIGKILL if that does not help within 15 s."""
        process = self._running.pop(name)
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def check_alive(self) -> None:
        """Raises DemoError if a process has ended that should run."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise DemoError(
                    f"{name} ended by itself with code {process.returncode}. "
                    f"Its log: {self._logs / name}.log"
                )


def _first_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + READY_WITHIN_S
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if selector.select(deadline - time.monotonic()):
            return process.stdout.readline().decode().strip()
    return f"no line within {READY_WITHIN_S} s"
