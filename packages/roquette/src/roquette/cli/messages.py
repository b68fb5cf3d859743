"""`roquette msg tail` and `roquette dlq ls`: messages that are printed as they come."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec

from roquette.admin.command import Flag
from roquette.admin.stored import ManyAtMost, Since, moment_of
from roquette.cli.connect import Cluster, ContextName, LoginFile, NameServers
from roquette.cli.consume import Contains, as_json_line, consume
from roquette.cli.output import say
from roquette.errors import ConfigError
from roquette.message.names import DLQ_PREFIX

if TYPE_CHECKING:
    from datetime import datetime


def tail(
    topic: str,
    *,
    offset: Annotated[str, Flag("--offset PLACE")] = "last",
    tags: Annotated[str, Flag('--tag "A || B"')] = "*",
    contains: Contains = "",
    count: Annotated[int, Flag("--count -c", "Stop after so many; 0: never.", 0)] = 0,
    namesrv: NameServers = None,
    login: LoginFile = None,
    context: ContextName = None,
) -> None:
    """Print messages as they come, one JSON object a line, until Ctrl-C. No group is needed, and none is moved.

    Args:
        offset: Where to begin: last, -10, @-5m, @2026-09-01T10:00 ...
    """
    place = {"namesrv": namesrv, "login": login, "context": context}
    words = {"offset": offset, "tag": tags, "contains": contains, "count": count}
    consume(topic, follow=True, as_json=True, **words, **place)  # type: ignore[arg-type]
    say("")


class DeadRow(msgspec.Struct, frozen=True):
    """A group that has dead letters. `error`: which brokers do not tell."""

    group: str
    messages: int
    last_ms: int
    error: str = ""


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
    from roquette.base.clock import SystemClock

    moment = moment_of(since, SystemClock())
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
