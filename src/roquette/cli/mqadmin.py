"""`roquette mqadmin`: scripts that were written for Apache's tool."""

import shlex
from typing import Annotated

import typer

from roquette.cli.connect import Cluster, place_of
from roquette.cli.output import Output, say


def mqadmin_command(
    context: typer.Context,
    command: Annotated[str, typer.Argument(metavar="SUB-COMMAND", show_default=False)],
    words: Annotated[list[str] | None, typer.Argument(metavar="FLAGS")] = None,
) -> None:
    """Run a sub-command of Apache's mqadmin with its flags (docs/cli.md), some by the command of ours that does it.

    Says which that is. What deletes does not ask, as there.
    """
    from roquette.base.options import did_you_mean
    from roquette.cli.java_flags import TRANSLATED, translate
    from roquette.cli.java_output import DIRECT
    from roquette.errors import ConfigError

    if command in DIRECT:
        _run(command, words or [])
        return
    if command not in TRANSLATED:
        known = sorted((*TRANSLATED, *DIRECT))
        raise ConfigError(
            f"mqadmin {command[:40]} is not understood{did_you_mean(command, known)}; these are: {', '.join(known)}"
        )
    ours = translate(command, words or [])
    say(shlex.join(("roquette", *ours)))
    status = context.find_root().command.main(ours, prog_name="roquette", standalone_mode=False)
    if isinstance(status, int) and status:
        raise typer.Exit(status)


def _run(command: str, words: list[str]) -> None:
    """Do what mqadmin does, and print what it prints."""
    from roquette.cli.java_flags import flags_of
    from roquette.cli.java_output import DIRECT

    letters, long, run = DIRECT[command]
    flags = flags_of(words, letters, long)
    place = place_of(flags.get("n"), None, None)
    cluster = Cluster(place.name_servers, Output.TABLE, place.login)
    cluster.run(run(flags, cluster.addresses(), print))
