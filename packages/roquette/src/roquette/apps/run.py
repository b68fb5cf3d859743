"""`roquette run module:app`: an application of consumers as a process, or as several."""

import asyncio
import contextlib
import importlib
import logging
import math
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from typing import Final

from roquette.base.config import Sources
from roquette.base.executor import run_blocking
from roquette.base.lifecycle import Tasks
from roquette.base.log_settings import begin_log, leave_log
from roquette.cli.output import say
from roquette.client.app.application import App
from roquette.errors import ConfigError
from roquette.remoting.http1 import served_health

WORKER = "ROQUETTE_WORKER"  # the descriptor by which a worker tells its keeper that it has joined


def run_main(
    target: str,
    name_servers: str | None,
    drain_s: float | None,
    health: str,
    environ: Mapping[str, str],
) -> int:
    """Serve until SIGTERM; returns the exit status. Raises ConfigError."""
    os.environ.pop(WORKER, None)  # it is not for processes that the application starts
    leave_log()
    app = find(target)
    if not (logging.root.handlers or logging.getLogger("roquette").handlers):
        begin_log(Sources(environ=environ))  # the application has not said how it logs
    where = name_servers or app.name_servers or environ.get("NAMESRV_ADDR", "")

    def ready() -> None:
        if WORKER in environ:
            _tell_keeper(int(environ[WORKER]))
        else:
            print(f"ready app={target}", flush=True)

    return app.run(name_servers=where, drain=drain_s, health=health, ready=ready)


def health_address(text: str) -> str:
    """PORT, of all this machine's addresses, or HOST:PORT; raises ConfigError."""
    address = text if ":" in text else f"0.0.0.0:{text}"
    port = address.rpartition(":")[2]
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"--health {text} is no PORT and no HOST:PORT")
    return address


def _tell_keeper(descriptor: int) -> None:
    """This worker has joined. It ends when its keeper does, however that ends."""
    os.write(descriptor, b".")
    os.close(descriptor)
    loop, stdin = asyncio.get_running_loop(), 0  # the keeper never writes to it

    def gone() -> None:
        loop.remove_reader(stdin)
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(stdin, gone)


def find(target: str) -> App:
    """The application at `module:name`, of the current directory too. Raises ConfigError."""
    module, _, name = target.partition(":")
    if not module or not name:
        raise ConfigError(f"{target} is not module:name, such as orders:app")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module and not module.startswith(f"{error.name}."):
            raise
        raise ConfigError(f"there is no module {module} here or on the path") from None
    app: object = found
    for part in name.split("."):
        app = getattr(app, part, None)
    if not isinstance(app, App):
        raise ConfigError(f"{target} is no roquette.App")
    return app


# `roquette run --workers N --reload`: processes of an application, kept while they should run.


log = logging.getLogger("roquette.run")

PAUSE_S: Final = 1.0  # until a worker that ended by itself is started again
STEP_S: Final = 0.05
LOOK_S: Final = 0.5  # between two looks at the files
KILL_S: Final = 5.0  # how long workers that were told twice may take


class Worker:
    """One process after the other.

    Attributes:
        joined: the one that runs, or ran last, has joined its groups.
    """

    def __init__(self, number: int, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.number = number
        self.joined = False
        self._command = command
        self._environ = environ
        self._process: Process | None = None
        self._signal_sent = 0

    @property
    def ready(self) -> bool:
        """True if it runs and has joined."""
        return self.joined and self._process is not None and self._process.returncode is None

    async def run(self) -> int:
        """Start one and wait for its end; the exit status."""
        self.joined, self._signal_sent = False, 0
        ours, theirs = os.pipe()
        output = asyncio.StreamReader()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=PIPE,  # ends when we do
                pass_fds=(theirs,),
                env={**self._environ, WORKER: str(theirs)},
                start_new_session=True,  # Ctrl-C is for the keeper, which tells it
            )
        finally:
            os.close(theirs)
            pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(output), os.fdopen(ours, "rb")
            )
        if self._signal_sent:
            self._process.send_signal(self._signal_sent)
        self.joined = bool(await output.read(1))
        pipe.close()
        return await self._process.wait()

    def ask(self) -> None:
        """Ask it to end, if it has not been asked: told twice, it would end at once."""
        if not self._signal_sent:
            self.tell(signal.SIGTERM)

    def tell(self, number: int) -> None:
        """Send it a signal, now or when it has started."""
        self._signal_sent = number
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


class WorkerKeeper:
    """Keeps workers.

    Args:
        folder: a change of its Python files starts the workers anew; None: they are not watched.
    """

    def __init__(self, workers: Sequence[Worker], folder: str | None) -> None:
        self._workers = workers
        self._folder = folder
        self._tasks = Tasks()
        self._stopping = False
        self._failed = False
        self._version = 0  # of the files

    def why_not_ready(self) -> str:
        """Name the workers that have not joined; "": none."""
        late = [str(each.number) for each in self._workers if not each.ready]
        if self._stopping:
            return "the application drains"
        return f"workers that have not joined: {', '.join(late)}" if late else ""

    async def keep(self, target: str, health: str) -> int:
        """Run them until SIGTERM or SIGINT; the exit status. Raises ConfigError: the port of `health` is taken."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._pass_signal_on)
        async with served_health(health, f"roquette run {target}", self.why_not_ready):
            try:
                if self._folder is not None:
                    self._tasks.start("reload", self._watch(self._folder))
                self._tasks.start("ready", self._say_ready(target))
                await asyncio.gather(*map(self._keep, self._workers))
            finally:
                await self._tasks.stop()
        return int(self._failed)

    def _pass_signal_on(self) -> None:
        """Pass it on. Told twice, workers end at once, and are killed if they do not."""
        for each in self._workers:
            if not self._stopping:
                each.ask()
            else:
                each.tell(signal.SIGTERM)
                asyncio.get_running_loop().call_later(KILL_S, each.tell, signal.SIGKILL)
        self._stopping = True

    async def _keep(self, worker: Worker) -> None:
        while not self._stopping:
            version = self._version
            status = await worker.run()
            if self._stopping:
                if status and worker.joined:
                    log.error("worker %d ended with status %d", worker.number, status)
                    self._failed = True
            elif version != self._version:
                continue
            elif worker.joined:
                log.error("worker %d ended with status %d, starts again", worker.number, status)
                await self._pause(version, PAUSE_S)
            elif self._folder is not None:
                words = "worker %d ended with status %d before it joined: change a file"
                log.error(words, worker.number, status)
                await self._pause(version, math.inf)
            else:
                log.error("worker %d ended with status %d before it joined", worker.number, status)
                self._failed = True
                self._pass_signal_on()

    async def _pause(self, version: int, seconds: float) -> None:
        """Wait so long, or until files have changed or we are told to end."""
        now = asyncio.get_running_loop().time
        end = now() + seconds
        while not self._stopping and version == self._version and now() < end:
            await asyncio.sleep(STEP_S)

    async def _say_ready(self, target: str) -> None:
        while self.why_not_ready():
            await asyncio.sleep(STEP_S)
        say(f"ready app={target} workers={len(self._workers)}")

    async def _watch(self, folder: str) -> None:
        before = await run_blocking(_changed_at, folder)
        while True:
            await asyncio.sleep(LOOK_S)
            found = await run_blocking(_changed_at, folder)
            if changed := sorted(p for p, _ in found.items() ^ before.items()):
                log.info("starts anew changed=%s", changed[0])
                self._version += 1
                before = found
                for each in self._workers:
                    each.ask()


def _changed_at(folder: str) -> dict[str, int]:
    """Return the time of each Python file's last change (ns since 1970), outside of hidden folders and environments."""
    found: dict[str, int] = {}
    for where, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__"))
            and not os.path.exists(os.path.join(where, name, "pyvenv.cfg"))
        ]
        for path in (os.path.join(where, name) for name in names if name.endswith(".py")):
            with contextlib.suppress(OSError):  # gone meanwhile
                found[path] = os.stat(path).st_mtime_ns
    return found


def keep_workers(
    target: str,
    name_servers: str | None,
    drain_s: float | None,
    health: str,
    count: int,
    reload: bool,
    environ: Mapping[str, str],
) -> int:
    """Run so many processes of an application until SIGTERM; the exit status. Raises ConfigError."""
    begin_log(Sources(environ=environ))
    command = [sys.executable, "-m", "roquette.apps.entry", "run", target]
    command += ["-n", name_servers] if name_servers else []
    command += ["--drain", str(drain_s)] if drain_s is not None else []
    workers = [Worker(number, command, environ) for number in range(1, count + 1)]
    keeper = WorkerKeeper(workers, os.getcwd() if reload else None)
    with asyncio.Runner() as runner:
        return runner.run(keeper.keep(target, health))
