"""Core that all processors of a name server work on."""

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from roquette.base.clock import Clock
from roquette.errors import Refused, RemoteProtocolError
from roquette.nameserver.floor.config import NAME, NameServerBounds, NamesrvConfig
from roquette.nameserver.floor.route_table import RouteTable
from roquette.remoting.request import RequestContext
from roquette.wire.bodies import KVConfigFile
from roquette.wire.codes import ResponseCode
from roquette.wire.json_body import decode_body, decode_request_body, fastjson_pretty

# The KV config: namespace -> key -> value. Pure; the service writes it to disk. Apache: KVConfigManager.


def encode(content: KVConfigFile) -> bytes:
    """kvConfig.json as Apache writes it."""
    return fastjson_pretty(content)


class KvTable:
    """Texts by namespace and key. `version` grows with every change."""

    def __init__(self, bounds: NameServerBounds | None = None) -> None:
        bounds = bounds or NameServerBounds()
        self._entries, self._characters = bounds.kv_entries, bounds.kv_characters
        self.version = 0
        self._table: dict[str, dict[str, str]] = {}
        self._count = self._size = 0  # namespaces and keys; characters

    def load(self, data: bytes) -> None:
        """Take over a kvConfig.json; raises RemoteProtocolError when it is invalid."""
        self._table = decode_body(KVConfigFile, data).config_table
        self._count = len(self._table) + sum(map(len, self._table.values()))
        self._size = sum(
            len(name) + sum(len(key) + len(value) for key, value in values.items())
            for name, values in self._table.items()
        )
        self.version += 1

    def content(self) -> KVConfigFile:
        """A copy of all of it, for `encode`."""
        return KVConfigFile(config_table={name: dict(v) for name, v in self._table.items()})

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value; raises Refused when there is no room for it."""
        values = self._table.get(namespace)
        old = None if values is None else values.get(key)
        more = len(value) - len(old) if old is not None else len(key) + len(value)
        count = int(old is None)
        if values is None:
            more, count = more + len(namespace), 2
        what = f"the key {key[:NAME]} of namespace {namespace[:NAME]} is not set"
        if count:
            self._entries.check(self._count + count - 1, ResponseCode.SYSTEM_ERROR, what)
        if more > 0:
            self._characters.check(self._size + more - 1, ResponseCode.SYSTEM_ERROR, what)
        self._count += count
        self._size += more
        self._table.setdefault(namespace, {})[key] = value
        self.version += 1

    def delete(self, namespace: str, key: str) -> None:
        """Remove one value."""
        old = self._table.get(namespace, {}).pop(key, None)
        if old is not None:
            self._count -= 1
            self._size -= len(key) + len(old)
            self.version += 1

    def find(self, namespace: str, key: str) -> str | None:
        """One value; None when it is missing."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, name: str) -> dict[str, str] | None:
        """All of one namespace; None when nothing was ever put there."""
        table = self._table.get(name)
        return None if table is None else dict(table)


class NameServerLane(IntEnum):
    """Classes of work, each with a bounded queue of its own."""

    CLIENTS = 0
    BROKERS = 1


class NameServerCore:
    """The settings in force now, the tables and the time.

    Attributes:
        started_ms: steady time of the start.
        fixed: settings of ports and accounts, which are shown beside the others.
        changed: called after each change of the settings.
    """

    def __init__(self, config: NamesrvConfig, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.bounds = NameServerBounds(lambda: self.config)
        self.routes = RouteTable(self.bounds)
        self.kv = KvTable(self.bounds)
        self.started_ms = 0
        self.fixed: dict[str, str] = {}
        self.changed: list[Callable[[NamesrvConfig], None]] = []

    def waits_s(self) -> float:
        """Seconds for which routes are still refused after the start (needWaitForService)."""
        config, ran_ms = self.config, self.clock.steady_ms() - self.started_ms
        wait_s = config.wait_seconds_for_service - ran_ms / 1000
        return wait_s if config.need_wait_for_service and wait_s > 0 else 0.0

    def is_outside(self, ctx: RequestContext) -> bool:
        """Return True when a request came in at the port of those who reach brokers by their outside addresses."""
        port = self.config.outside_listen_port
        return port > 0 and ctx.peer.local.endswith(f":{port}")

    def change(self, config: NamesrvConfig) -> None:
        """Other settings from now on."""
        self.config = config
        for follow in self.changed:
            follow(config)


def decode_or_refuse(kind: Any, body: bytes) -> Any:
    """The body of a request; raises Refused when it is not of this kind."""
    try:
        return decode_request_body(kind, body)
    except RemoteProtocolError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
