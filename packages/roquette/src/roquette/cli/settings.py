"""`roquette broker config ...` and `roquette namesrv config ...`: settings of running servers."""

from typing import Annotated

import typer

from roquette.cli.connect import Cluster, cluster_verb, listing_verb
from roquette.cli.output import say
from roquette.errors import ClientError, ConfigError

broker_app = typer.Typer(help="Settings of running brokers.", no_args_is_help=True)
name_server_app = typer.Typer(help="Settings of running name servers.", no_args_is_help=True)

Key = Annotated[
    str | None, typer.Argument(metavar="KEY", help="Apache's key; without it all settings.")
]
Changes = Annotated[list[str], typer.Argument(metavar="KEY=VALUE", show_default=False)]
BrokerName = Annotated[
    str | None,
    typer.Option(
        "--broker",
        metavar="BROKER",
        help="Only this one: the name of a master, or HOST:PORT of any broker.",
    ),
]

Attributes = Annotated[
    list[str] | None,
    typer.Option(
        "--attribute",
        metavar="NAME=VALUE",
        help="Such as message.type=PRIORITY of a topic, priority.factor=50 of a group; NAME= takes it away. Repeatable.",
    ),
]


def changes_of(words: list[str]) -> dict[str, str]:
    """KEY=VALUE words by key; raises ConfigError for others, and for a key that is there twice."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{word[:80]} is not of the form KEY=VALUE")
        if key.strip() in found:
            raise ConfigError(f"{key.strip()} is given twice")
        found[key.strip()] = value
    return found


def tell(where: Cluster, reasons: dict[str, str], changes: dict[str, str]) -> None:
    """Say what changed where; raises ClientError when a server did not do it."""
    done = [server for server, reason in reasons.items() if not reason]
    failed = {server: reason for server, reason in reasons.items() if reason}
    if where.for_programs:
        where.show_value({"settings": changes, "done": done, "failed": failed})
    elif done:
        say(f"{', '.join(f'{k}={v}' for k, v in changes.items())} now at {', '.join(done)}")
    if failed:
        raise ClientError(
            "not changed: " + "; ".join(f"{server}: {reason}" for server, reason in failed.items())
        )


@broker_app.command("get")
@listing_verb
def broker_get_command(
    where: Cluster,
    key: Key = None,
    broker: BrokerName = None,
    runtime: Annotated[
        bool,
        typer.Option("--runtime", help="What it tells of its run instead (brokerStatus)."),
    ] = False,
) -> None:
    """Show settings of the masters, or of one broker."""
    from roquette.admin.settings import settings_of_brokers

    where.show(where.run(settings_of_brokers(broker, key, runtime=runtime)))


@broker_app.command("set")
@cluster_verb
def broker_set_command(
    where: Cluster,
    changes: Changes,
    broker: BrokerName = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="CLUSTER", help="Every master of this cluster."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every master.")] = False,
) -> None:
    """Change settings of a running broker, all of them or none; it says which values are possible."""
    from roquette.admin.settings import change_brokers

    wanted = changes_of(changes)
    if (broker is not None) + (cluster is not None) + every != 1:
        raise ConfigError("say which: --broker NAME, --cluster NAME, or --all")
    tell(where, where.run(change_brokers(broker, wanted, cluster)), wanted)


@name_server_app.command("get")
@listing_verb
def name_server_get_command(where: Cluster, key: Key = None) -> None:
    """Show settings of each name server."""
    from roquette.admin.settings import settings_of_name_servers

    where.show(where.run(settings_of_name_servers(where.addresses(), key)))


@name_server_app.command("set")
@cluster_verb
def name_server_set_command(where: Cluster, changes: Changes) -> None:
    """Change settings of every name server while it runs."""
    from roquette.admin.settings import change_name_servers

    wanted = changes_of(changes)
    tell(where, where.run(change_name_servers(where.addresses(), wanted)), wanted)
