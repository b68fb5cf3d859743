"""Settings of running servers: seen, and changed where a server lets them be changed."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from roquette.admin.cluster import masters_of
from roquette.admin.command import Changes, Flag, Report, command
from roquette.base.options import did_you_mean
from roquette.client.calls import runtime_info
from roquette.client.operations import Operation, ask_all
from roquette.client.operator_calls import (
    broker_settings,
    change_broker_settings,
    change_name_server_settings,
    name_server_settings,
)
from roquette.errors import ConfigError


class SettingRow(msgspec.Struct, frozen=True):
    """A setting of one server, under Apache's key."""

    server: str
    key: str
    value: str


def _brokers(cluster: str | None, broker: str | None) -> Operation[list[tuple[str, str]]]:
    """(name, address) of masters, or of the one process whose address is given, which no name server needs to know."""
    if broker is not None and ":" in broker:
        return [(broker, broker)]
    return (yield from masters_of(cluster, broker))


Key = Annotated[str | None, Flag("", "Apache's key; without it all settings.")]
OneBroker = Annotated[
    str | None, Flag("", "Only this one: the name of a master, or HOST:PORT of any broker.")
]


@command(watched=True)
def settings_of_brokers(
    key: Key = None, *, broker: OneBroker = None, runtime: bool = False
) -> Operation[list[SettingRow]]:
    """Show settings of the masters, or of one broker.

    Args:
        runtime: What it tells of its run instead (brokerStatus).

    Raises:
        ConfigError: there is no such broker or setting. ClientError: one does not answer.
    """
    masters = yield from _brokers(None, broker)
    call = runtime_info() if runtime else broker_settings()
    answers = yield from ask_all((address, call) for _, address in masters)
    return _rows(
        {name: answer.get() for (name, _), answer in zip(masters, answers, strict=True)}, key
    )


@command(watched=True)
def settings_of_name_servers(
    name_servers: Sequence[str], key: Key = None
) -> Operation[list[SettingRow]]:
    """Show settings of each name server.

    Raises:
        ConfigError and ClientError as above.
    """
    answers = yield from ask_all((address, name_server_settings()) for address in name_servers)
    return _rows({answer.address: answer.get() for answer in answers}, key)


def _rows(tables: Mapping[str, Mapping[str, str]], key: str | None) -> list[SettingRow]:
    rows = [
        SettingRow(server, *item)
        for server, table in tables.items()
        for item in sorted(table.items())
    ]
    found = [row for row in rows if key in (None, row.key)]
    if key is not None and not found:
        raise ConfigError(
            f"there is no setting {key}{did_you_mean(key, {row.key for row in rows})}"
        )
    return found


def _changed(reasons: dict[str, str], changes: Mapping[str, str], **_: object) -> Report[Any]:
    done = [server for server, reason in reasons.items() if not reason]
    failed = {server: reason for server, reason in reasons.items() if reason}
    what = ", ".join(f"{key}={value}" for key, value in changes.items())
    why = "; ".join(f"{server}: {reason}" for server, reason in failed.items())
    return Report(
        {"settings": changes, "done": done, "failed": failed},
        [f"{what} now at {', '.join(done)}"] if done else [],
        failed=f"not changed: {why}" if failed else "",
    )


@command(shows=_changed)
def change_brokers(
    changes: Changes,
    *,
    broker: OneBroker = None,
    cluster: str | None = None,
    every: Annotated[bool, Flag("--all")] = False,
) -> Operation[dict[str, str]]:
    """Change settings of a running broker, all of them or none; it says which values are possible.

    Args:
        cluster: Every master of this cluster.
        every: Every master.

    Returns:
        By name why a broker did not, "" for those that did.

    Raises:
        ConfigError: there is no such broker or cluster, or it is not said which ones are meant.
    """
    if (broker is not None) + (cluster is not None) + every != 1:
        raise ConfigError("say which: --broker NAME, --cluster NAME, or --all")
    masters = yield from _brokers(cluster, broker)
    call = change_broker_settings(changes)
    answers = yield from ask_all((address, call) for _, address in masters)
    return {name: answer.reason for (name, _), answer in zip(masters, answers, strict=True)}


@command(shows=_changed)
def change_name_servers(name_servers: Sequence[str], changes: Changes) -> Operation[dict[str, str]]:
    """Change settings of every name server while it runs.

    Returns:
        By address why one did not, "" for those that did.
    """
    call = change_name_server_settings(changes)
    answers = yield from ask_all((address, call) for address in name_servers)
    return {answer.address: answer.reason for answer in answers}
