"""`roquette dlq ...`: a group's dead letters: seen, sent again, deleted."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from roquette.admin.command import Flag
from roquette.base.quantities import counted
from roquette.cli.connect import Cluster, Yes, confirm
from roquette.cli.consume import as_json_line
from roquette.cli.output import say
from roquette.errors import ClientError, ConfigError
from roquette.message.names import DLQ_PREFIX

if TYPE_CHECKING:
    from datetime import datetime

    from roquette.admin.stored import ResentRow


class DeadRow(msgspec.Struct, frozen=True):
    """A group that has dead letters. `error`: which brokers do not tell."""

    group: str
    messages: int
    last_ms: int
    error: str = ""


Since = Annotated[
    str | None,
    Flag("--since TIME", "Only what died since then: @-1h or @2026-09-01T10:00."),
]
ManyAtMost = Annotated[int, Flag("--most", "Stop after so many.", 1)]


def _moment(since: str | None) -> "datetime | None":
    from datetime import UTC, datetime

    from roquette.admin.places import parse_place
    from roquette.base.clock import SystemClock

    if since is None:
        return None
    place = parse_place(since, SystemClock().now_ms())
    if place.kind != "time":
        raise ConfigError(f"--since {since} is no time: say @-1h or @2026-09-01T10:00")
    return datetime.fromtimestamp(place.number / 1000, UTC)


def list_letters(
    cluster: Cluster,
    group: Annotated[str | None, Flag("GROUP", "Without it, all groups that have some.")] = None,
    *,
    since: Since = None,
    most: ManyAtMost = 1_000,
    bodies: bool = False,
    seen: bool = False,
) -> None:
    """List a group's dead letters, with the topic each was sent to; or the groups that have some.

    Args:
        bodies: One JSON object a line, with bodies.
        seen: Note that you have looked: the doctor tells later ones.
    """
    from roquette.admin.stored import dead_letters, note_seen, row_of

    moment = _moment(since)
    if group is None:
        if bodies or seen:
            raise ConfigError(
                "--bodies and --seen are about the dead letters of one group: say which"
            )
        _show_groups(cluster, moment, most)
        return

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
            if seen:
                await client.session.run(note_seen(rows))
        if not bodies:
            cluster.show(
                rows, empty=f"group {group} has no dead letters" + (" since then" if since else "")
            )

    asyncio.run(run())


def _show_groups(cluster: Cluster, since: "datetime | None", most: int) -> None:
    from roquette.admin.catalogue import DEAD, topic_rows, topics

    names, more = cluster.run(topics()).page(limit=most, kind=DEAD)
    since_ms = 0.0 if since is None else since.timestamp() * 1000
    rows = [
        DeadRow(row.topic.removeprefix(DLQ_PREFIX), row.messages, row.last_ms, row.error)
        for row in cluster.run(topic_rows(names))
        if row.error or (row.messages > 0 and row.last_ms >= since_ms)
    ]
    cluster.show(rows, empty="no group has dead letters")
    if more:
        say(f"{more} more topics of dead letters: say --most for more")


def resend_letters(
    cluster: Cluster,
    group: str,
    *,
    since: Since = None,
    most: ManyAtMost = 1_000,
    to: Annotated[str | None, Flag("--to TOPIC")] = None,
    yes: Yes = False,
) -> None:
    """Send dead letters again as new messages, which every group of the topic gets. They stay among the dead letters.

    Running it twice sends them twice: --since says which. Exit code 1 when one could not be sent; none after it was tried.

    Args:
        to: Where to; default is where each was sent first.
    """
    from roquette.admin.stored import dead_letters, note_seen, resend, row_of

    moment = _moment(since)

    async def run() -> "list[ResentRow]":
        rows: list[ResentRow] = []
        async with cluster.client("TOOLS_PRODUCER") as client:
            found = []
            async for message in dead_letters(client, group, moment):
                found.append(message)
                if len(found) >= most:
                    say(f"stopped after {most}; say --most for more")
                    break
            topics = sorted({to or message.origin_topic for message in found})
            if not found:
                return rows
            confirm(
                f"send {counted(len(found), 'dead letter')} of {group} again to {', '.join(topics)}",
                yes,
            )
            for message in found:
                rows.append(await resend(client, message, to or message.origin_topic))
                if rows[-1].error:
                    break
            sent = zip(found, rows, strict=False)
            try:
                await client.session.run(note_seen(row_of(m) for m, row in sent if not row.error))
            except ClientError as error:  # they are sent all the same
                say(f"the doctor is not told that they were seen: {error}")
        return rows

    rows = asyncio.run(run())
    cluster.show(
        rows, empty=f"group {group} has no dead letters" + (" since then" if since else "")
    )
    if any(row.error for row in rows):
        raise typer.Exit(1)
