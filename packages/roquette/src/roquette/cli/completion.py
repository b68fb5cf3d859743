"""Names for the shell's completion: of topics, groups, brokers and clusters, asked of the cluster that the line means."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from roquette.errors import RoquetteError

if TYPE_CHECKING:
    from roquette.client.calls import Operation

T = TypeVar("T")
Names = Callable[[Any], list[str]]
PATIENCE_S: Final = 1.0  # somebody waits with a finger on the key


def topics(ctx: Any) -> list[str]:
    """All topics but the system's own."""
    from roquette.admin import catalogue

    found = _asked(ctx, catalogue.topics())
    return [] if found is None else found.page()[0]


def groups(ctx: Any) -> list[str]:
    """All groups but the system's own."""
    from roquette.admin import catalogue

    found = _asked(ctx, catalogue.groups())
    return [] if found is None else found.page()[0]


def brokers(ctx: Any) -> list[str]:
    """Names of brokers."""
    from roquette.admin.cluster import cluster_info

    info = _asked(ctx, cluster_info())
    return sorted(info.broker_addr_table) if info is not None else []


def clusters(ctx: Any) -> list[str]:
    """Names of clusters."""
    from roquette.admin.cluster import cluster_info

    info = _asked(ctx, cluster_info())
    return sorted(info.cluster_addr_table) if info is not None else []


def contexts(_: Any) -> list[str]:
    """Names of contexts."""
    from roquette.admin.contexts import contexts_of

    try:
        return list(contexts_of(os.environ).all())
    except RoquetteError:
        return []


NAMES: Final[dict[str | None, Names]] = {
    "TOPIC": topics,
    "GROUP": groups,
    "BROKER": brokers,
    "CLUSTER": clusters,
    "CONTEXT": contexts,
}
"""What stands for a value in --help -> the names it may have; nothing of a store on this machine's disk is asked."""


def equip(command: Any) -> None:
    """Have a command and those below it complete names, and leave the names of variables out of --help."""
    for each in getattr(command, "commands", {}).values():
        equip(each)
    of_cluster = any("--namesrv" in param.opts for param in command.params)
    for param in command.params:
        param.show_envvar = False  # one rule makes them all: the end of `roquette --help`
        names = NAMES.get(param.metavar)
        if names is not None and (of_cluster or names is contexts):
            # Typer's own word for it, `autocompletion`, would stand beside each of these metavars.
            param._custom_shell_complete = _completer(names)


def _completer(names: Names) -> Callable[[Any, Any, str], list[str]]:
    def complete(ctx: Any, param: Any, incomplete: str) -> list[str]:
        return [name for name in names(ctx) if name.startswith(incomplete)]

    return complete


def _asked(ctx: Any, operation: "Operation[T]") -> T | None:
    """Return what an operation finds; None when it cannot: a completion that fails says nothing."""
    import asyncio

    from roquette.cli.connect import client_of, place_of

    words = ctx.params
    patience = {"call_timeout": PATIENCE_S, "connect_timeout": PATIENCE_S}

    async def ask() -> T:
        place = place_of(words.get("namesrv"), words.get("login"), words.get("context"))
        async with client_of(
            place.name_servers, place.login, "TOOLS_PRODUCER", **patience
        ) as client:
            return await client.session.run(operation)

    try:
        return asyncio.run(ask())
    except (RoquetteError, OSError):
        return None
