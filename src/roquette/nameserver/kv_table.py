"""The KV config: namespace -> key -> value. Pure; the service writes it to disk. Apache: KVConfigManager."""

from roquette.wire.bodies import KVConfigFile
from roquette.wire.json_body import decode_body, fastjson_pretty


class KvTable:
    """Texts by namespace and key. `version` grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._table: dict[str, dict[str, str]] = {}

    def load(self, data: bytes) -> None:
        """Take over a kvConfig.json; raises RemoteProtocolError when it is none."""
        self._table = decode_body(KVConfigFile, data).config_table
        self.version += 1

    def encode(self) -> bytes:
        """kvConfig.json as Apache writes it."""
        return fastjson_pretty(KVConfigFile(config_table=self._table))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value."""
        self._table.setdefault(namespace, {})[key] = value
        self.version += 1

    def delete(self, namespace: str, key: str) -> None:
        """Remove one value, if it is there."""
        if self._table.get(namespace, {}).pop(key, None) is not None:
            self.version += 1

    def find(self, namespace: str, key: str) -> str | None:
        """One value."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, name: str) -> dict[str, str] | None:
        """All of one namespace; None when nothing was ever put there."""
        table = self._table.get(name)
        return None if table is None else dict(table)
