"""`roquette client ...`: who is connected, and what it is doing."""

from typing import Annotated

import typer

from roquette.cli.connect import PAGE, Cluster, Like, Limit, cluster_verb, listing_verb, say_more

app = typer.Typer(
    help="List connected clients and see where their handlers are.", no_args_is_help=True
)

Group = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]


@app.command("ls")
@listing_verb
def ls_command(
    cluster: Cluster,
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="Only this group's.")
    ] = None,
    like: Like = "",
    limit: Limit = PAGE,
    system: Annotated[bool, typer.Option("--system", help="Also the system's own.")] = False,
) -> None:
    """List producers and consumers with their addresses, languages and versions.

    Producers are seen from Apache's 5.x and from ours; one that has not sent for two minutes is forgotten.
    """
    from roquette.admin.clients import list_clients

    rows, more = cluster.run(list_clients(group, like=like, limit=limit, system=system))
    cluster.show(
        rows,
        empty="no client is connected" + (f" in group {group}" if group else ""),
    )
    say_more(more, "groups")


@app.command("stacks")
@cluster_verb
def stacks_command(
    cluster: Cluster,
    group: Group,
    client: Annotated[
        str | None, typer.Option("--client", metavar="ID", help="Only this member.")
    ] = None,
) -> None:
    """Show where the members of a group are in their code: threads of Java's clients, running handlers of ours."""
    from roquette.admin.clients import stacks

    rows = cluster.run(stacks(group, client))
    if not cluster.for_programs:
        for row in rows:
            print(f"{row.client}:")
            print(row.error or row.stacks.rstrip() or "    no handler is running")
        return
    cluster.show(rows)
