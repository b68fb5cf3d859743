"""`roquette group ...`"""

from typing import Annotated

import typer

from roquette.cli.connect import Cluster, listing_verb
from roquette.cli.output import say

app = typer.Typer(
    help="List consumer groups and see how far behind they are.", no_args_is_help=True
)


@app.command("list")
@listing_verb
def list_command(
    cluster: Cluster,
    system: Annotated[bool, typer.Option("--system", help="Also the system's own groups.")] = False,
) -> None:
    """List consumer groups with their members and lag."""
    from roquette.admin.groups import list_groups

    cluster.show(
        cluster.run(list_groups(system=system)),
        empty="no consumer groups yet: a group appears when its first consumer starts",
    )


@app.command("lag")
@listing_verb
def lag_command(
    cluster: Cluster,
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.")
    ] = None,
) -> None:
    """Show per queue how many messages a group has not consumed yet."""
    from roquette.admin.groups import group_lag

    rows = cluster.run(group_lag(group, topic))
    cluster.show(rows)
    if not cluster.for_programs:
        say(f"\nlag of {group}: {sum(row.lag for row in rows if not row.error)} messages")
