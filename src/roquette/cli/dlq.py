"""`roquette dlq ...`: a group's dead letters: seen, sent again, deleted."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from roquette.cli.connect import Cluster, Yes, cluster_verb, confirm
from roquette.cli.consume import as_json_line
from roquette.cli.output import say

if TYPE_CHECKING:
    from datetime import datetime

    from roquette.admin.stored import ResentRow

app = typer.Typer(
    help="See a group's dead letters, send them again, delete them.", no_args_is_help=True
)

Group = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Only what died since then: @-1h or @2026-09-01T10:00."
    ),
]
ManyAtMost = Annotated[int, typer.Option("--most", min=1, help="Stop after so many.")]


def _moment(since: str | None) -> "datetime | None":
    from datetime import UTC, datetime

    from roquette.admin.places import parse_place
    from roquette.base.clock import SystemClock
    from roquette.errors import ConfigError

    if since is None:
        return None
    place = parse_place(since, SystemClock().now_ms())
    if place.kind != "time":
        raise ConfigError(f"--since {since} is no time: say @-1h or @2026-09-01T10:00")
    return datetime.fromtimestamp(place.number / 1000, UTC)


@app.command("ls")
@cluster_verb
def ls_command(
    cluster: Cluster,
    group: Group,
    since: Since = None,
    most: ManyAtMost = 1_000,
    bodies: Annotated[
        bool, typer.Option("--bodies", help="One JSON object a line, with bodies.")
    ] = False,
) -> None:
    """List a group's dead letters, with the topic each was sent to."""
    from roquette.admin.stored import dead_letters, row_of

    moment = _moment(since)

    async def run() -> None:
        rows = []
        async with cluster.client() as client:
            async for message in dead_letters(client, group, moment):
                if bodies:
                    print(as_json_line(message))
                rows.append(row_of(message))
                if len(rows) >= most:
                    say(f"stopped after {most}; say --most for more")
                    break
        if not bodies:
            cluster.show(
                rows, empty=f"group {group} has no dead letters" + (" since then" if since else "")
            )

    asyncio.run(run())


@app.command("resend")
@cluster_verb
def resend_command(
    cluster: Cluster,
    group: Group,
    since: Since = None,
    most: ManyAtMost = 1_000,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TOPIC", help="Where to; default is where each was sent first."
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Send dead letters again as new messages, which every group of the topic gets. They stay among the dead letters.

    Running it twice sends them twice: --since says which. Exit code 1 when one could not be sent; none after it was tried.
    """
    from roquette.admin.stored import dead_letters, resend

    moment = _moment(since)

    async def run() -> "list[ResentRow]":
        rows: list[ResentRow] = []
        async with cluster.client("TOOLS_PRODUCER") as client:
            found = []
            async for message in dead_letters(client, group, moment):
                found.append(message)
                if len(found) >= most:
                    break
            topics = sorted({to or message.origin_topic for message in found})
            if not found:
                return rows
            confirm(f"send {len(found)} dead letters of {group} again to {', '.join(topics)}", yes)
            for message in found:
                rows.append(await resend(client, message, to or message.origin_topic))
                if rows[-1].error:
                    break
        return rows

    rows = asyncio.run(run())
    cluster.show(
        rows, empty=f"group {group} has no dead letters" + (" since then" if since else "")
    )
    if any(row.error for row in rows):
        raise typer.Exit(1)


@app.command("purge")
@cluster_verb
def purge_command(cluster: Cluster, group: Group, yes: Yes = False) -> None:
    """Delete all dead letters of a group. They cannot be had back."""
    from roquette.admin.topics import delete_topic, describe_topic
    from roquette.message.names import dlq_topic

    topic = dlq_topic(group)
    count = cluster.run(describe_topic(topic)).messages
    confirm(f"delete all {count} dead letters of {group}", yes)
    change = cluster.run(delete_topic(cluster.addresses(), topic))
    if change.failed:
        from roquette.errors import ClientError

        reasons = "; ".join(f"{broker}: {reason}" for broker, reason in change.failed.items())
        raise ClientError(f"not deleted on {reasons}")
    say(f"{count} dead letters of {group} deleted")
