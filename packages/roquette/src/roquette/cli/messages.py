"""`roquette msg ...`: one message, those with a key, those that come; and sending one again."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from roquette.admin.command import Flag
from roquette.cli.connect import Cluster, ContextName, LoginFile, NameServers, Yes, confirm
from roquette.cli.consume import Contains, as_json_line, consume, fields_of
from roquette.cli.output import Output, say, show_value

if TYPE_CHECKING:
    from roquette.message.message import ReceivedMessage

Which = Annotated[
    str,
    Flag(
        "MESSAGE",
        "A message id, the id of a place in a log (32 or 56 hex digits), or BROKER:QUEUE:OFFSET.",
    ),
]
Target = Annotated[str | None, Flag("--to TOPIC", "Where to; default is where it was sent first.")]
MOST = 64  # what a broker gives at most, unless it is set otherwise
OfTopic = Annotated[
    str | None, Flag("--topic -t TOPIC", "Needed for an id its sender made, and for a place.")
]


def get(cluster: Cluster, message: Which, *, topic: OfTopic = None) -> None:
    """Print one message with everything known of it, as JSON."""
    _show_whole(cluster, [asyncio.run(_get(cluster, message, topic))])


def _show_whole(cluster: Cluster, messages: "list[ReceivedMessage]") -> None:
    """With bodies: a JSON object a line, or YAML or CSV if that is asked for."""
    if cluster.output in (Output.YAML, Output.CSV):
        show_value([fields_of(message) for message in messages], cluster.output)
    else:
        for message in messages:
            print(as_json_line(message))


async def _get(cluster: Cluster, which: str, topic: str | None) -> "ReceivedMessage":
    from roquette.admin.stored import get

    async with cluster.client() as client:
        return await get(client, which, topic)


def find(
    cluster: Cluster,
    key: Annotated[str, Flag("KEY", "A key, or a message id.")],
    *,
    topic: Annotated[str, Flag("--topic -t TOPIC")],
    most: Annotated[int, Flag("--most", "Of each broker.", 1)] = MOST,
    bodies: bool = False,
) -> None:
    """List the messages of a topic that have a key. Exit code 1 when there is none.

    Args:
        bodies: One JSON object a line, with bodies.
    """
    from roquette.admin.explain.collect import full_words
    from roquette.admin.stored import row_of

    async def run() -> "list[ReceivedMessage]":
        async with cluster.client() as client:
            return await client.find(topic, key, most=most)

    found = asyncio.run(run())
    for words in full_words(found, most):
        say(words)
    if bodies:
        _show_whole(cluster, found)
    else:
        cluster.show(
            [row_of(message) for message in found], empty=f"no message of {topic} has the key {key}"
        )
    if not found:
        raise typer.Exit(1)


def resend_one(
    cluster: Cluster, message: Which, *, topic: OfTopic = None, to: Target = None, yes: Yes = False
) -> None:
    """Send a message's body, tag, keys and properties again, as a new message: every group gets it."""
    from roquette.admin.stored import get, resend

    async def run() -> None:
        async with cluster.client("TOOLS_PRODUCER") as client:
            found = await get(client, message, topic)
            target = to or found.origin_topic
            confirm(f"send message {found.message_id} again to topic {target}", yes)
            row = await resend(client, found, target)
        cluster.show([row])
        if row.error:
            raise typer.Exit(1)

    asyncio.run(run())


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
