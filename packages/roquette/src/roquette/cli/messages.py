"""`roquette msg ...`: one message, those with a key, those that come; and sending one again."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from roquette.base.quantities import counted
from roquette.cli.connect import (
    Cluster,
    ContextName,
    LoginFile,
    NameServers,
    Yes,
    cluster_verb,
    confirm,
)
from roquette.cli.consume import as_json_line, consume, fields_of
from roquette.cli.output import Output, say, show_value

if TYPE_CHECKING:
    from roquette.message.message import ReceivedMessage

MOST_OF_KEY = 64  # what a broker gives at most, unless it is set otherwise

app = typer.Typer(help="Find messages, watch them come, send one again.", no_args_is_help=True)

Which = Annotated[
    str,
    typer.Argument(
        metavar="MESSAGE",
        show_default=False,
        help="A message id, the id of a place in a log (32 or 56 hex digits), or BROKER:QUEUE:OFFSET.",
    ),
]
OfTopic = Annotated[
    str | None,
    typer.Option(
        "--topic", "-t", metavar="TOPIC", help="Needed for an id its sender made, and for a place."
    ),
]


@app.command("get")
@cluster_verb
def get_command(cluster: Cluster, message: Which, topic: OfTopic = None) -> None:
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


@app.command("find")
@cluster_verb
def find_command(
    cluster: Cluster,
    key: Annotated[
        str, typer.Argument(metavar="KEY", show_default=False, help="A key, or a message id.")
    ],
    topic: Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", show_default=False)],
    most: Annotated[int, typer.Option("--most", min=1, help="Of each broker.")] = MOST_OF_KEY,
    bodies: Annotated[
        bool, typer.Option("--bodies", help="One JSON object a line, with bodies.")
    ] = False,
) -> None:
    """List the messages of a topic that have a key. Exit code 1 when there is none."""
    from roquette.admin.stored import row_of

    async def run() -> "list[ReceivedMessage]":
        async with cluster.client() as client:
            return await client.find(topic, key, most=most)

    found = asyncio.run(run())
    say_full(found, most)
    if bodies:
        _show_whole(cluster, found)
    else:
        cluster.show(
            [row_of(message) for message in found], empty=f"no message of {topic} has the key {key}"
        )
    if not found:
        raise typer.Exit(1)


def say_full(found: "Iterable[ReceivedMessage]", most: int) -> None:
    """Say which brokers may have more messages of a key: those that gave as many as they were asked for, or give at all."""
    counts = Counter((message.topic, message.queue.broker_name) for message in found)
    for (topic, broker), count in counts.items():
        if count >= min(most, MOST_OF_KEY):
            say(
                f"{broker} gave {counted(count, 'message')} of {topic} and may have more: it was asked for {most}, "
                f"and gives {MOST_OF_KEY} unless its maxMsgsNumBatch says otherwise"
            )


@app.command("resend")
@cluster_verb
def resend_command(
    cluster: Cluster,
    message: Which,
    topic: OfTopic = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TOPIC", help="Where to; default is where it was sent first."),
    ] = None,
    yes: Yes = False,
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


@app.command("tail")
def tail_command(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    offset: Annotated[
        str,
        typer.Option(
            "--offset",
            metavar="PLACE",
            help="Where to begin: last, -10, @-5m, @2026-09-01T10:00 ...",
        ),
    ] = "last",
    tags: Annotated[str, typer.Option("--tag", metavar='"A || B"')] = "*",
    contains: Annotated[
        str, typer.Option("--contains", metavar="TEXT", help="Print only bodies with this text.")
    ] = "",
    count: Annotated[
        int, typer.Option("--count", "-c", min=0, help="Stop after so many; 0: never.")
    ] = 0,
    namesrv: NameServers = None,
    login: LoginFile = None,
    context: ContextName = None,
) -> None:
    """Print messages as they come, one JSON object a line, until Ctrl-C. No group is needed, and none is moved."""
    consume(
        topic,
        None,
        offset,
        tags,
        contains,
        count,
        follow=True,
        as_json=True,
        namesrv=namesrv,
        login=login,
        context=context,
    )
    say("")
