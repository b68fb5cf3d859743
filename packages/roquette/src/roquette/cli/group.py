"""`roquette group ...`"""

from typing import Annotated

import typer

from roquette.base.quantities import counted
from roquette.cli.connect import (
    PAGE,
    Cluster,
    Like,
    Limit,
    Yes,
    cluster_verb,
    confirm,
    listing_verb,
    say_more,
)
from roquette.cli.output import say
from roquette.errors import ConfigError

app = typer.Typer(
    help="List consumer groups and see how far behind they are.", no_args_is_help=True
)


@app.command("list")
@listing_verb
def list_command(
    cluster: Cluster,
    like: Like = "",
    limit: Limit = PAGE,
    system: Annotated[bool, typer.Option("--system", help="Also the system's own groups.")] = False,
) -> None:
    """List consumer groups with their members and lag."""
    from roquette.admin.catalogue import OWN, group_rows, groups

    found = cluster.run(groups())
    names, more = found.page(like, limit, None if system else OWN)
    cluster.show(
        cluster.run(group_rows(names, found)),
        empty="no consumer groups yet: a group appears when its first consumer starts",
    )
    say_more(more, "groups")


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
        say(
            f"\nlag of {group}: {counted(sum(row.lag for row in rows if not row.error), 'message')}"
        )


@app.command("show")
@listing_verb
def show_command(
    cluster: Cluster,
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    settings: Annotated[
        bool,
        typer.Option(
            "--settings", help="Its settings on each broker; roquette apply --group changes them."
        ),
    ] = False,
) -> None:
    """Show a group's members that are online: how many queues each has and how many messages wait in it."""
    from roquette.admin.clients import members
    from roquette.admin.groups import settings_of_group

    cluster.show(cluster.run(settings_of_group(group) if settings else members(group)))


@app.command("seek")
@cluster_verb
def seek_command(
    cluster: Cluster,
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    topic: Annotated[
        str,
        typer.Option("--topic", "-t", metavar="TOPIC", show_default=False, help="Of which topic."),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="first, last, 120, -10 (before the end), +100 (after the start), @-1h or @2026-09-01T10:00.",
        ),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option("--like", metavar="OTHER", help="In place of --to: where another group is."),
    ] = None,
    queue: Annotated[
        int | None,
        typer.Option("--queue", min=0, metavar="N", help="Only this queue, on each broker."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    yes: Yes = False,
) -> None:
    """Let a group go on elsewhere: shows per queue what it gets again or never, asks, and does it.

    Members that are online are moved by their brokers (those without useServerSideResetOffset=true can move them to first, last or a time).
    """
    from roquette.admin.places import Place, parse_place
    from roquette.admin.seek import apply_seek, plan_seek, require_done
    from roquette.base.clock import SystemClock

    if (to is None) == (like is None):
        raise ConfigError("say either --to PLACE or --like OTHER")
    place = Place("group", 0, like or "") if to is None else parse_place(to, SystemClock().now_ms())
    plan = cluster.run(plan_seek(group, topic, place, queue))
    if all(row.committed < 0 and not row.online for row in plan.rows):
        say(f"group {group} has read nothing of topic {topic} yet: is the name right?")
    if dry_run:
        cluster.show(plan.rows)
        return
    if not yes and not cluster.for_programs:
        cluster.show(plan.rows)
    again = -sum(min(row.delta, 0) for row in plan.rows)
    never = sum(max(row.delta, 0) for row in plan.rows)
    confirm(f"let group {group} get {again} messages again and never get {never}", yes)
    rows = cluster.run(apply_seek(plan))
    cluster.show(rows)
    require_done(rows)


@app.command("delete")
@cluster_verb
def delete_command(
    cluster: Cluster,
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    keep_offsets: Annotated[
        bool, typer.Option("--keep-offsets", help="Leave its offsets, for one that comes again.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Delete a group's settings and offsets on every master. Refused while members are online."""
    from roquette.admin.groups import delete_group

    confirm(f"delete group {group}" + ("" if keep_offsets else " with its offsets"), yes)
    done = cluster.run(delete_group(group, with_offsets=not keep_offsets))
    say(f"group {group} deleted on: {', '.join(done)}")
