"""Verbs for people: messages, topics, groups, brokers, stores, users, rules, certificates, contexts. Commands return, outputs render."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

from roquette.cli.completion import equip

Adder = Callable[[typer.Typer], None]

COMMANDS: Final[dict[str, str]] = {
    "produce": "cli.messages:produce",
    "consume": "cli.messages:consume",
    "topic resize": "admin.resize:resize_topic",
    "topic list": "admin.catalogue:list_topics",
    "topic create": "admin.topics:create_topic",
    "topic describe": "admin.topics:describe_topic",
    "topic readers": "admin.groups:topic_readers",
    "topic delete": "admin.topics:delete_topic",
    "group list": "admin.catalogue:list_groups",
    "group lag": "admin.groups:group_lag",
    "group show": "admin.groups:show_group",
    "group topics": "admin.groups:group_topics",
    "group seek": "admin.seek:seek_group",
    "group delete": "admin.groups:delete_group",
    "msg ls": "admin.newest:list_messages",
    "msg get": "admin.stored:get_message",
    "msg find": "admin.stored:find_messages",
    "msg resend": "admin.stored:resend_message",
    "msg tail": "cli.messages:tail",
    "dlq ls": "cli.messages:list_letters",
    "dlq resend": "admin.stored:resend_letters",
    "dlq purge": "admin.stored:purge",
    "client ls": "admin.catalogue:list_clients",
    "client stacks": "admin.members:stacks",
    "bench pub": "cli.bench:pub",
    "bench sub": "cli.bench:sub",
    "cluster": "cli.looks:cluster",
    "apply": "cli.apply:apply",
    "doctor": "cli.doctor:doctor",
    "top": "cli.looks:top",
    "events": "cli.looks:events",
    "selftest": "cli.looks:selftest",
    "bundle": "cli.looks:bundle",
    "explain": "admin.explain:explain_message",
    "store ls": "cli.store:ls",
    "store info": "cli.store:info",
    "store fsck": "cli.store:fsck",
    "store grep": "cli.store:grep",
    "store dump": "cli.store:dump",
    "store export": "cli.store:export",
    "store repair": "cli.store:repair",
    "store take-tail": "cli.store:take_tail",
    "user create": "cli.user:create",
    "user update": "cli.user:update",
    "user delete": "admin.access:delete_user",
    "user ls": "admin.access:list_users",
    "user show": "admin.access:show_user",
    "user prove": "cli.user:prove",
    "acl allow": "admin.access:allow",
    "acl deny": "admin.access:deny",
    "acl import": "cli.user:import_accounts",
    "acl rm": "admin.access:remove",
    "acl ls": "admin.access:list_acls",
    "acl show": "admin.access:rules_of",
    "acl check": "admin.access:check",
    "tls init": "cli.tls:init",
    "generate grafana": "cli.schema:grafana",
    "generate prometheus-rules": "cli.schema:prometheus_rules",
    "context add": "cli.context:add",
    "context use": "cli.context:use",
    "context ls": "cli.context:list_contexts",
    "context show": "cli.context:show_context",
    "context rm": "cli.context:remove",
    "schema": "cli.schema:schema",
    "namesrv diff": "admin.settings:diff",
    "namesrv config get": "admin.settings:settings_of_name_servers",
    "namesrv config set": "admin.settings:change_name_servers",
    "broker backup": "cli.backup:backup",
    "broker restore-backup": "cli.backup:restore_backup",
    "broker status": "admin.replication:group_states",
    "broker promote": "admin.replication:promote",
    "broker forget": "admin.replication:forget",
    "broker drain": "admin.drain:drain_broker",
    "broker restore": "admin.drain:restore",
    "broker stats": "admin.settings:counters",
    "broker config get": "admin.settings:settings_of_brokers",
    "broker config set": "admin.settings:change_brokers",
}
"""Every command of this room -> the function it is made of (`cli.commands`), imported when somebody asks for the command."""

FAMILIES: Final[dict[str, str]] = {
    "topic": "List, create, resize, describe and delete topics.",
    "group": "List consumer groups and see how far behind they are.",
    "msg": "Find messages, watch them come, send one again.",
    "dlq": "See a group's dead letters, send them again, delete them.",
    "client": "List connected clients and see where their handlers are.",
    "bench": "Measure how fast a cluster takes and gives messages.",
    "store": "Read, check and mend a store's directory (ours or Apache's) without a broker.",
    "user": "Create, change, list and delete users.",
    "acl": "Allow and deny users topics, groups and clusters; ask why.",
    "tls": "Make certificates for TLS.",
    "generate": "Files for other programs: a board for Grafana, rules for Prometheus.",
    "context": "Give clusters names, and say which one is meant.",
    "namesrv": "Run a name server; see what name servers disagree about; their settings.",
    "namesrv config": "Settings of running name servers.",
    "broker": "Run a broker; drain it; see and change who is master of a group; back up and restore a store; its settings.",
    "broker config": "Settings of running brokers.",
}
"""What has commands below it, and its help."""


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


def family(words: str) -> typer.Typer:
    """The commands below some words, each of them late."""
    late = {
        each.removeprefix(words).split()[0]: _adder(
            " ".join(each.split()[: len(words.split()) + 1])
        )
        for each in COMMANDS
        if each.startswith(f"{words} ")
    }
    kind = type("Family", (LateVerbs,), {"late": late})
    return typer.Typer(cls=kind, help=FAMILIES[words], no_args_is_help=True)


def there(name: str, module: str) -> Adder:
    """Adds what another room has under a name: the `app` of its module."""

    def add(app: typer.Typer) -> None:
        app.add_typer(import_module(module).app, name=name)

    return add


def _adder(words: str) -> Adder:
    def add(app: typer.Typer) -> None:
        name = words.rpartition(" ")[2]
        if words in FAMILIES:
            app.add_typer(family(words), name=name)
            return
        from roquette.cli.commands import command_of

        app.command(name)(command_of(function_of(words)))

    return add


def function_of(words: str) -> Callable[..., Any]:
    """Return what a command is made of."""
    module, _, name = COMMANDS[words].partition(":")
    found: Callable[..., Any] = getattr(import_module(f"roquette.{module}"), name)
    return found


VERBS: Final[dict[str, Adder]] = {
    verb: _adder(verb)
    for verb in dict.fromkeys(words.split()[0] for words in COMMANDS)
    if verb not in ("namesrv", "broker")
}
"""Every verb of this room; of `namesrv` and `broker`, which run servers, the room of servers makes verbs."""
