"""`roquette namesrv` itself: runs one. The commands below it are the cli room's."""

import os
from typing import Annotated

import typer

from roquette.apps.server_options import ConfigFile, Listen, Settings
from roquette.base.options import key_values
from roquette.cli import family

app = family("namesrv")


@app.callback(invoke_without_command=True)
def namesrv(
    context: typer.Context,
    config: ConfigFile = None,
    listen: Listen = None,
    controller: Annotated[
        str | None,
        typer.Option(
            "--controller",
            metavar="WHERE",
            help="Keep the records of broker groups: embedded (in a file), etcd://HOST:PORT,HOST:PORT, or "
            "managed (in an etcd that the name servers run).",
        ),
    ] = None,
    settings: Settings = None,
) -> None:
    """Run a name server (Apache's default port is 9876); with a command below, look at name servers."""
    if context.invoked_subcommand is not None:
        if any((config, listen, controller, settings)):
            raise typer.BadParameter("options of a command go behind it")
        return
    from roquette.apps.namesrv import namesrv_main

    raise typer.Exit(
        namesrv_main(config, listen, controller, key_values(settings, "--set"), dict(os.environ))
    )
