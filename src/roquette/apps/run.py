"""`roquette run module:app`: an application of consumers as a process."""

import importlib
import os
import sys
from collections.abc import Mapping

from roquette.base.config import Sources
from roquette.base.log_settings import begin_log
from roquette.client.app.application import App
from roquette.errors import ConfigError


def run_main(
    target: str, name_servers: str | None, drain_s: float | None, environ: Mapping[str, str]
) -> int:
    """Serve until SIGTERM; returns the exit status. Raises ConfigError."""
    begin_log(Sources(environ=environ))
    app = find(target)
    where = name_servers or app.name_servers or environ.get("NAMESRV_ADDR", "")
    return app.run(
        name_servers=where, drain=drain_s, ready=lambda: print(f"ready app={target}", flush=True)
    )


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
