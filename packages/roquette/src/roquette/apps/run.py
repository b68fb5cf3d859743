"""`roquette run module:app`: an application of consumers as a process, or as several."""

import asyncio
import importlib
import logging
import os
import signal
import sys
from collections.abc import Mapping

from roquette.base.config import Sources
from roquette.base.log_settings import begin_log, leave_log
from roquette.client.app.application import App
from roquette.errors import ConfigError

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
