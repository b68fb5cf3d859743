"""Verbs for people: produce, consume, topics, groups, cluster. Commands return, outputs render."""

import typer


def register(app: typer.Typer) -> None:
    """Add every verb of this room to the `roquette` command."""
