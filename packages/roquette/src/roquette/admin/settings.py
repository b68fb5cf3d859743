"""Settings of running servers: seen, and changed where a server lets them be changed."""

from collections.abc import Mapping, Sequence

import msgspec

from roquette.admin.cluster import masters_of
from roquette.base.options import did_you_mean
from roquette.client.calls import runtime_info
from roquette.client.change_calls import change_name_server_settings, name_server_settings
from roquette.client.inspection_calls import broker_settings, change_broker_settings
from roquette.client.operations import Operation, ask_all
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


def settings_of_brokers(
    broker: str | None, key: str | None = None, *, runtime: bool = False
) -> Operation[list[SettingRow]]:
    """Settings of a master, of any process by its address, or of all masters, or one setting; `runtime`: what it tells of
    its run instead.

    Raises:
        ConfigError: there is no such broker or setting. ClientError: one does not answer.
    """
    masters = yield from _brokers(None, broker)
    call = runtime_info() if runtime else broker_settings()
    answers = yield from ask_all((address, call) for _, address in masters)
    return _rows(
        {name: answer.get() for (name, _), answer in zip(masters, answers, strict=True)}, key
    )


def settings_of_name_servers(
    name_servers: Sequence[str], key: str | None = None
) -> Operation[list[SettingRow]]:
    """Settings of each name server, or one setting; raises ConfigError and ClientError as above."""
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


def change_brokers(
    broker: str | None, changes: Mapping[str, str], cluster: str | None = None
) -> Operation[dict[str, str]]:
    """Change settings of a broker (as above), or of all masters (of a cluster): by name why one did not, "" for those that did.

    The broker says which values a setting may have. Raises ConfigError when there is no such broker or cluster.
    """
    masters = yield from _brokers(cluster, broker)
    call = change_broker_settings(changes)
    answers = yield from ask_all((address, call) for _, address in masters)
    return {name: answer.reason for (name, _), answer in zip(masters, answers, strict=True)}


def change_name_servers(
    name_servers: Sequence[str], changes: Mapping[str, str]
) -> Operation[dict[str, str]]:
    """Change settings of every name server; by address why one did not, "" for those that did."""
    call = change_name_server_settings(changes)
    answers = yield from ask_all((address, call) for address in name_servers)
    return {answer.address: answer.reason for answer in answers}
