"""`roquette topic ...`"""

from typing import Annotated

import msgspec
import typer

from roquette.cli.connect import NameServers, OutputForm, with_session
from roquette.cli.output import Output, say, show, show_json
from roquette.errors import ConfigError

app = typer.Typer(help="List, create, describe and delete topics.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
ClusterName = Annotated[
    str | None, typer.Option("--cluster", metavar="NAME", help="Only this cluster's brokers.")
]


class _Name(msgspec.Struct, frozen=True):
    topic: str


@app.command("list")
def list_command(
    namesrv: NameServers = None,
    system: Annotated[
        bool,
        typer.Option("--system", help="Also the system's own topics, retries and dead letters."),
    ] = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """List topics."""
    from roquette.admin.topics import list_topics

    names = with_session(namesrv, lambda session: list_topics(session, system=system))
    show(
        [_Name(name) for name in names],
        output,
        empty="no topics yet: a first send creates one, or 'roquette topic create NAME'",
    )


@app.command("create")
def create_command(
    topic: Topic,
    queues: Annotated[
        int, typer.Option("--queues", min=1, help="Read and write queues on each broker.")
    ] = 8,
    perm: Annotated[
        str, typer.Option("--perm", help="What may be done: 2 write, 4 read, 6 both.")
    ] = "6",
    cluster: ClusterName = None,
    broker: Annotated[
        str | None, typer.Option("--broker", metavar="NAME", help="Only this broker.")
    ] = None,
    order: Annotated[
        bool,
        typer.Option(
            "--order",
            help="An order topic: a broker that is down keeps its place, so that keys do not move "
            "(with orderMessageEnable=true at the name servers).",
        ),
    ] = False,
    namesrv: NameServers = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Create a topic, or change one, on every broker of a cluster or on one broker."""
    from roquette.admin.topics import create_topic, hands_out_order_config

    if perm not in ("2", "4", "6"):
        raise ConfigError(f"--perm {perm} is none of 2 (write), 4 (read), 6 (both)")
    done = with_session(
        namesrv,
        lambda session: create_topic(
            session,
            topic,
            queues=queues,
            perm=int(perm),
            cluster=cluster,
            broker=broker,
            order=order,
        ),
    )
    if output is Output.JSON:
        show_json({"topic": topic, "queues": queues, "perm": int(perm), "brokers": done})
    else:
        say(f"topic {topic} now has {queues} queues on each of: {', '.join(done)}")
        if order and not with_session(namesrv, lambda s: hands_out_order_config(s, topic)):
            say("the name servers keep its order from clients: set orderMessageEnable=true there")


@app.command("describe")
def describe_command(
    topic: Topic, namesrv: NameServers = None, output: OutputForm = Output.TABLE
) -> None:
    """Show a topic's brokers, queues and offsets."""
    from roquette.admin.topics import describe_topic

    found = with_session(namesrv, lambda session: describe_topic(session, topic))
    if output is Output.JSON:
        show_json(found)
        return
    show(found.brokers, output)
    say("")
    show(found.queues, output)
    say(f"\n{found.messages} messages in {len(found.queues)} queues")


@app.command("delete")
def delete_command(
    topic: Topic,
    cluster: ClusterName = None,
    namesrv: NameServers = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Delete a topic with its messages' queues and every group's offsets on it."""
    from roquette.admin.topics import delete_topic, require_topic
    from roquette.client.session import Session

    async def work(session: Session) -> list[str]:
        await require_topic(session, topic)
        return await delete_topic(session, topic, cluster=cluster)

    done = with_session(namesrv, work)
    if output is Output.JSON:
        show_json({"topic": topic, "brokers": done})
    else:
        say(f"topic {topic} deleted on: {', '.join(done)}")
