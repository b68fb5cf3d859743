"""`roquette up ...`: a group of brokers that elect their master, as processes on this machine, to try."""

from typing import Annotated

import typer

from roquette.base.options import key_values
from roquette.cli.commands import command_of
from roquette.cli.connect import OutputForm
from roquette.cli.output import Output

app = typer.Typer()

Folder = Annotated[
    str | None,
    typer.Option(
        "--dir", metavar="DIR", help="The group's folder; default is roquette/up in ~/.local/state."
    ),
]


@app.callback(invoke_without_command=True)
def up(
    context: typer.Context,
    replicas: Annotated[
        int, typer.Option("--replicas", min=2, max=9, help="Brokers of the group.")
    ] = 3,
    etcd: Annotated[
        bool,
        typer.Option(
            "--etcd", help="Three name servers, each with a member of etcd (it must be installed)."
        ),
    ] = False,
    folder: Folder = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the brokers."),
    ] = None,
) -> None:
    """Start a group of brokers that elect their master, on loopback, until Ctrl-C; commands below try it.

    What is sent stays in the folder, and is there when it is started again.
    """
    if context.invoked_subcommand is None:
        from roquette.apps.group_run import keep_group

        raise typer.Exit(keep_group(folder, replicas, etcd, key_values(settings, "--set")))
    if folder is not None:
        raise typer.BadParameter("--dir goes behind the command")


@app.command("status")
@command_of
def status_command(*, folder: Folder = None, output: OutputForm = Output.TABLE) -> None:
    """Show the processes, who is master, who is in step; exit code 10 when the group is not healthy."""
    from roquette.apps.group_run import show_status
    from roquette.cli.exits import UNHEALTHY

    if not show_status(folder, output):
        raise typer.Exit(UNHEALTHY)


@app.command("kill")
def kill_command(
    who: Annotated[str, typer.Argument(metavar="master|slave|ID", show_default=False)],
    folder: Folder = None,
) -> None:
    """End a broker by SIGKILL while messages are sent, and tell what happens; exit code 1 when one is lost."""
    from roquette.apps.kill_watch import kill_and_watch

    if not kill_and_watch(folder, who):
        raise typer.Exit(1)


@app.command("restart")
def restart_command(
    who: Annotated[str, typer.Argument(metavar="ID", help="A broker's id, or a process's name.")],
    folder: Folder = None,
) -> None:
    """Start a process again, after a stop in order if it runs; waits until it is in step."""
    from roquette.apps.group_run import restart

    restart(folder, who)


@app.command("stop")
def stop_command(folder: Folder = None) -> None:
    """Stop the group as Ctrl-C does, and what a killed `roquette up` has left behind."""
    from roquette.apps.group_run import stop_group

    stop_group(folder)
