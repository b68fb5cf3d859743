"""`roquette mqadmin`: scripts that were written for Apache's tool."""

from typing import Annotated

import typer

from roquette.cli.connect import Cluster, place_of
from roquette.cli.output import Output, say


def mqadmin_command(
    context: typer.Context,
    command: Annotated[str, typer.Argument(metavar="SUB-COMMAND", show_default=False)],
    words: Annotated[list[str] | None, typer.Argument(metavar="[FLAGS]...")] = None,
) -> None:
    """Run a sub-command of Apache's mqadmin with its flags, by the command of ours that does it (docs/cli.md).

    Says which that is. What deletes does not ask, as there.
    """
    from roquette.cli.java_flags import translate

    ours = _with_names(translate(command, words or []))
    say("roquette " + " ".join(ours))
    status = context.find_root().command.main(ours, prog_name="roquette", standalone_mode=False)
    if isinstance(status, int) and status:
        raise typer.Exit(status)


def _with_names(words: list[str]) -> list[str]:
    """With the names of brokers where mqadmin has their addresses."""
    if "--broker" not in words or ":" not in words[words.index("--broker") + 1]:
        return words
    from roquette.admin.cluster import cluster_info
    from roquette.errors import ConfigError

    at = words.index("--broker") + 1
    place = place_of(words[words.index("-n") + 1] if "-n" in words else None, None, None)
    info = Cluster(place.name_servers, Output.TABLE, place.login).run(cluster_info())
    for name, data in info.broker_addr_table.items():
        if words[at] in data.broker_addrs.values():
            return [*words[:at], name, *words[at + 1 :]]
    raise ConfigError(f"the name server knows no broker at {words[at]}")
