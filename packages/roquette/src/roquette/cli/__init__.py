"""Verbs for people: messages, topics, groups, brokers, stores, users, rules, certificates, contexts. Commands return, outputs render."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

from roquette.cli.completion import equip

Adder = Callable[[typer.Typer], None]


def family(name: str, module: str = "", room: str = "roquette.cli") -> Adder:
    """Adds the sub-commands under a name; their module, by default of that name, is imported then."""

    def add(app: typer.Typer) -> None:
        app.add_typer(import_module(f"{room}.{module or name}").app, name=name)

    return add


def verb(name: str, function: str, module_name: str = "") -> Adder:
    """Adds one command; its module is by default that of the name."""

    def add(app: typer.Typer) -> None:
        module = import_module(f"roquette.cli.{module_name or name}")
        app.command(name)(getattr(module, function))

    return add


VERBS: Final[dict[str, Adder]] = {
    "produce": verb("produce", "produce"),
    "consume": verb("consume", "consume"),
    "topic": family("topic"),
    "group": family("group"),
    "msg": family("msg", "messages"),
    "dlq": family("dlq"),
    "client": family("client"),
    "bench": family("bench"),
    "cluster": verb("cluster", "cluster"),
    "apply": verb("apply", "apply"),
    "doctor": verb("doctor", "doctor"),
    "top": verb("top", "top"),
    "events": verb("events", "events", "top"),
    "selftest": verb("selftest", "selftest_command"),
    "bundle": verb("bundle", "bundle_command"),
    "explain": verb("explain", "explain_command"),
    "store": family("store"),
    "user": family("user"),
    "acl": family("acl"),
    "tls": family("tls"),
    "generate": family("generate"),
    "context": family("context"),
    "schema": verb("schema", "schema_command"),
}
"""Every verb of this room; its module is imported when somebody asks for the verb."""


class LateVerbs(TyperGroup):
    """A command whose verbs are imported when they are asked for: all of them for help, one to run it."""

    late: dict[str, Adder] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, those that are there already first."""
        return [*(name for name in self.commands if name not in self.late), *self.late]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb of a name; None if there is none."""
        if cmd_name in self.late and cmd_name not in self.commands:
            self.add_command(_made(cmd_name, self.late[cmd_name]), cmd_name)
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            equip(found)
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As its base does, which looks for a similar name among those that are imported."""
        if args and self.get_command(ctx, args[0]) is None:
            for name in self.late:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


def _made(name: str, add: Adder) -> Any:
    holder = typer.Typer(rich_markup_mode=None, add_completion=False)
    holder.callback()(_nothing)  # a command of one verb alone would be that verb
    add(holder)
    return typer.main.get_command(holder).commands[name]  # type: ignore[attr-defined]


def _nothing() -> None:
    """Nothing."""
