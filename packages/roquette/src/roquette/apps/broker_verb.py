"""`roquette broker` itself: runs one. The commands below it are the cli room's."""

import os
from typing import Annotated

import typer

from roquette.apps.server_options import ConfigFile, Listen, Settings
from roquette.base.options import key_values
from roquette.cli import family

app = family("broker")


@app.callback(invoke_without_command=True)
def broker(
    context: typer.Context,
    config: ConfigFile = None,
    namesrv_addr: Annotated[
        str | None,
        typer.Option("-n", "--namesrv", metavar='"NS1;NS2"', help="Name servers to register with."),
    ] = None,
    listen: Listen = None,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="DIR", help="Directory of the store (storePathRootDir)."),
    ] = None,
    settings: Settings = None,
) -> None:
    """Run a broker (Apache's default port is 10911); with a command below, look at groups of brokers."""
    if context.invoked_subcommand is not None:
        if any((config, namesrv_addr, listen, store, settings)):
            raise typer.BadParameter("options of a command go behind it")
        return
    from roquette.apps.broker import broker_main

    raise typer.Exit(
        broker_main(
            config,
            namesrv_addr,
            listen,
            store,
            key_values(settings, "--set"),
            dict(os.environ),
        )
    )
