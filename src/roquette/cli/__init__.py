"""Verbs for people: messages, topics, groups, brokers, stores, users, rules, certificates, contexts. Commands return, outputs render."""

import typer

from roquette.cli import (
    acl,
    apply,
    bench,
    broker,
    client,
    cluster,
    consume,
    context,
    dlq,
    doctor,
    explain,
    generate,
    group,
    messages,
    mqadmin,
    produce,
    schema,
    store,
    tls,
    topic,
    user,
)


def register(app: typer.Typer) -> None:
    """Add every verb of this room to the `roquette` command."""
    app.command()(produce.produce)
    app.command()(consume.consume)
    app.add_typer(topic.app, name="topic")
    app.add_typer(group.app, name="group")
    app.add_typer(messages.app, name="msg")
    app.add_typer(dlq.app, name="dlq")
    app.add_typer(client.app, name="client")
    app.add_typer(bench.app, name="bench")
    app.command()(cluster.cluster)
    app.command()(apply.apply)
    app.command()(doctor.doctor)
    app.command("explain")(explain.explain_command)
    app.add_typer(broker.app, name="broker")
    app.add_typer(store.app, name="store")
    app.add_typer(user.app, name="user")
    app.add_typer(acl.app, name="acl")
    app.add_typer(tls.app, name="tls")
    app.add_typer(generate.app, name="generate")
    app.add_typer(context.app, name="context")
    app.command("schema")(schema.schema_command)
    app.command(
        "mqadmin",
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )(mqadmin.mqadmin_command)
