"""`roquette group ...`"""

from typing import Annotated

import typer

from roquette.cli.connect import NameServers, OutputForm, with_session
from roquette.cli.output import Output, say, show

app = typer.Typer(
    help="List consumer groups and see how far behind they are.", no_args_is_help=True
)


@app.command("list")
def list_command(
    namesrv: NameServers = None,
    system: Annotated[bool, typer.Option("--system", help="Also the system's own groups.")] = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """List consumer groups with their members and lag."""
    from roquette.admin.groups import list_groups

    rows = with_session(namesrv, lambda session: list_groups(session, system=system))
    show(
        rows, output, empty="no consumer groups yet: a group appears when its first consumer starts"
    )


@app.command("lag")
def lag_command(
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.")
    ] = None,
    namesrv: NameServers = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show per queue how many messages a group has not consumed yet."""
    from roquette.admin.groups import group_lag

    rows = with_session(namesrv, lambda session: group_lag(session, group, topic))
    show(rows, output)
    if output is Output.TABLE:
        say(f"\nlag of {group}: {sum(row.lag for row in rows)} messages")
