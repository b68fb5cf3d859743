"""Verbs for people: produce, consume, topics, groups, brokers, cluster, store, certificates. Commands return, outputs render."""

import typer

from roquette.cli import broker, cluster, consume, group, produce, store, tls, topic


def register(app: typer.Typer) -> None:
    """Add every verb of this room to the `roquette` command."""
    app.command()(produce.produce)
    app.command()(consume.consume)
    app.add_typer(topic.app, name="topic")
    app.add_typer(group.app, name="group")
    app.command()(cluster.cluster)
    app.add_typer(broker.app, name="broker")
    app.add_typer(store.app, name="store")
    app.add_typer(tls.app, name="tls")
