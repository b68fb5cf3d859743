"""The KV config: namespace -> key -> value. Pure; the service writes it to disk. Apache: KVConfigManager."""

from roquette.nameserver.floor.bounds import NAME, NameServerBounds
from roquette.wire.bodies import KVConfigFile
from roquette.wire.codes import ResponseCode
from roquette.wire.json_body import decode_body, fastjson_pretty


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
