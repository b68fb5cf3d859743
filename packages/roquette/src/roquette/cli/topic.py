"""`roquette topic ...`"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from roquette.base.quantities import counted
from roquette.cli.connect import Cluster, Like, Yes, cluster_verb, confirm, listing_verb, say_more
from roquette.cli.output import say
from roquette.cli.resize import resize_command
from roquette.cli.settings import Attributes, changes_of
from roquette.errors import ConfigError

if TYPE_CHECKING:
    from roquette.admin.topics import TopicChange

app = typer.Typer(help="List, create, resize, describe and delete topics.", no_args_is_help=True)
app.command("resize")(resize_command)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
ClusterName = Annotated[
    str | None, typer.Option("--cluster", metavar="CLUSTER", help="Only this cluster's brokers.")
]


class TopicName(msgspec.Struct, frozen=True):
    """A topic that exists."""

    topic: str


def _plain(change: "TopicChange") -> dict[str, object]:
    return {"brokers": change.done, "failed": change.failed}


def _require_all(change: "TopicChange") -> None:
    """Say which name servers were not told; raise ClientError, for exit code 1, when a broker failed."""
    for address, reason in change.untold.items():
        say(f"name server {address} was not told: {reason}")
    if change.failed:
        change.require_all()


@app.command("list")
@listing_verb
def list_command(
    cluster: Cluster,
    like: Like = "",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=1,
            help="The first N, with their queues, permissions and messages; it says how many more.",
        ),
    ] = None,
    system: Annotated[
        bool,
        typer.Option("--system", help="Also the system's own topics, retries and dead letters."),
    ] = False,
) -> None:
    """List topics: the names of all, or with --limit what there is to know of some."""
    from roquette.admin.catalogue import OWN, topic_rows, topics

    names, more = cluster.run(topics()).page(like, limit, None if system else OWN)
    rows: Sequence[msgspec.Struct] = [TopicName(name) for name in names]
    if limit is not None:
        rows = cluster.run(topic_rows(names))
    cluster.show(
        rows, empty="no topics yet: a first send creates one, or 'roquette topic create NAME'"
    )
    say_more(more, "topics")


@app.command("create")
@cluster_verb
def create_command(
    where: Cluster,
    topic: Topic,
    queues: Annotated[
        int | None,
        typer.Option(
            "--queues", min=1, help="Read and write queues on each broker; 8 for a new one."
        ),
    ] = None,
    perm: Annotated[
        str | None,
        typer.Option("--perm", help="What may be done: 2 write, 4 read, 6 both; 6 for a new one."),
    ] = None,
    cluster: ClusterName = None,
    broker: Annotated[
        str | None, typer.Option("--broker", metavar="BROKER", help="Only this broker.")
    ] = None,
    order: Annotated[
        bool | None,
        typer.Option(
            "--order/--no-order",
            help="An order topic: a broker that is down keeps its place, so that keys do not move "
            "(with orderMessageEnable=true at the name servers).",
        ),
    ] = None,
    attribute: Attributes = None,
) -> None:
    """Create a topic on every broker of a cluster or on one; where it is, change what is said and nothing else.

    For fewer queues: roquette topic resize.
    """
    from roquette.admin.topics import create_topic, hands_out_order_config

    if perm not in (None, "2", "4", "6"):
        raise ConfigError(f"--perm {perm} is not one of 2 (write), 4 (read), 6 (both)")
    change = where.run(
        create_topic(
            where.addresses(),
            topic,
            queues=queues,
            perm=None if perm is None else int(perm),
            cluster=cluster,
            broker=broker,
            order=order,
            attributes=changes_of(attribute or []),
        )
    )
    now = next(iter(change.now.values()))
    if where.for_programs:
        numbers = {"queues": now.write_queue_nums, "perm": now.perm}
        where.show_value({"topic": topic, **numbers, **_plain(change)})
    else:
        same: dict[int, list[str]] = {}
        for name, config in change.now.items():
            same.setdefault(config.write_queue_nums, []).append(name)
        for count, names in same.items():
            say(f"topic {topic} now has {counted(count, 'queue')} on each of: {', '.join(names)}")
        if order and not where.run(hands_out_order_config(topic)):
            say("the name servers keep its order from clients: set orderMessageEnable=true there")
    _require_all(change)


@app.command("describe")
@listing_verb
def describe_command(cluster: Cluster, topic: Topic) -> None:
    """Show a topic's brokers, queues and offsets."""
    from roquette.admin.topics import describe_topic

    found = cluster.run(describe_topic(topic))
    if cluster.for_programs:
        cluster.show_value(found)
        return
    cluster.show(found.brokers)
    say("")
    cluster.show(found.queues)
    say(f"\n{counted(found.messages, 'message')} in {counted(len(found.queues), 'queue')}")


@app.command("delete")
@cluster_verb
def delete_command(
    where: Cluster, topic: Topic, cluster: ClusterName = None, yes: Yes = False
) -> None:
    """Delete a topic with its messages' queues and every group's offsets on it."""
    from roquette.admin.topics import delete_topic

    confirm(f"delete topic {topic}, its messages and every group's place in it", yes)
    change = where.run(delete_topic(where.addresses(), topic, cluster=cluster))
    if where.for_programs:
        where.show_value({"topic": topic, **_plain(change)})
    else:
        say(f"topic {topic} deleted on: {', '.join(change.done)}")
    _require_all(change)
