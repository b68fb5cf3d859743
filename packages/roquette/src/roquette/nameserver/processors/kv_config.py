"""A name server's KV config. Apache: KVConfigManager."""

import asyncio

from roquette.base import generations
from roquette.base.executor import run_blocking
from roquette.base.files import Files
from roquette.errors import ConfigError, Refused, StoreError
from roquette.nameserver.floor.core import NameServerCore, NameServerLane
from roquette.nameserver.floor.kv_table import encode
from roquette.remoting.outcomes import Reply, Task
from roquette.remoting.promises import Promise as P
from roquette.remoting.request import RequestContext, Row, row
from roquette.wire import headers
from roquette.wire.bodies import KVTable
from roquette.wire.codes import RequestCode as R
from roquette.wire.codes import ResponseCode
from roquette.wire.header_codec import encode_ext, ext_dict
from roquette.wire.json_body import encode_body


class KvConfigProcessor:
    """The requests of the KV config, and its file at `kvConfigPath`."""

    def __init__(self, core: NameServerCore, files: Files) -> None:
        self._core = core
        self._kv = core.kv
        self._files = files
        self._saving = asyncio.Lock()
        self._saved_version = 0

    def rows(self) -> list[Row]:
        """What is served."""
        h, lane = headers, NameServerLane.BROKERS
        return [
            row(R.PUT_KV_CONFIG, self.put, None, lane, P.FILE),
            row(R.GET_KV_CONFIG, self.get, h.GetKVConfigRequestHeader, lane, P.NOTHING),
            row(R.DELETE_KV_CONFIG, self.delete, None, lane, P.FILE),
            row(
                R.GET_KVLIST_BY_NAMESPACE,
                self.list_namespace,
                h.GetKVListByNamespaceRequestHeader,
                lane,
                P.NOTHING,
            ),
        ]

    async def load(self) -> None:
        """Read the file; raises ConfigError when it exists and cannot be read."""
        path = self._core.config.kv_config_path
        try:
            await run_blocking(generations.load, self._files, path, self._kv.load)
        except (StoreError, OSError) as error:
            raise ConfigError(f"kvConfigPath={path!r} cannot be read: {error}") from None
        self._saved_version = self._kv.version

    async def finish(self) -> None:
        """Return when no write is running."""
        async with self._saving:
            pass

    async def _save(self) -> None:
        """Return when the KV config as it is now, or a later one, is on disk; one write at a time."""
        wanted = self._kv.version
        async with self._saving:
            if self._saved_version >= wanted:
                return
            version = self._kv.version
            data = await run_blocking(encode, self._kv.content())
            await run_blocking(
                generations.save, self._files, self._core.config.kv_config_path, data
            )
            self._saved_version = version

    def put(self, ctx: RequestContext, header: None, body: bytes) -> Task:
        """PUT_KV_CONFIG."""
        namespace, key, value = _entry(ctx)
        self._kv.put(namespace, key, value)
        return Task(self._saved())

    def get(
        self, ctx: RequestContext, header: headers.GetKVConfigRequestHeader, body: bytes
    ) -> Reply:
        """GET_KV_CONFIG."""
        value = self._kv.find(header.namespace, header.key)
        if value is None:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return Reply(encode_ext(headers.GetKVConfigResponseHeader(value=value)))

    def delete(self, ctx: RequestContext, header: None, body: bytes) -> Task:
        """DELETE_KV_CONFIG."""
        namespace, key, _ = _entry(ctx)
        self._kv.delete(namespace, key)
        return Task(self._saved())

    def list_namespace(
        self, ctx: RequestContext, header: headers.GetKVListByNamespaceRequestHeader, body: bytes
    ) -> Reply:
        """GET_KVLIST_BY_NAMESPACE."""
        table = self._kv.namespace(header.namespace)
        if table is None:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}"
            )
        return Reply(body=encode_body(KVTable(table=table)))

    async def _saved(self) -> Reply:
        try:
            await self._save()
        except OSError as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"the KV config could not be saved: {error}"
            ) from None
        return Reply()


def _entry(ctx: RequestContext) -> tuple[str, str, str]:
    """Namespace, key and value of a request."""
    fields = ext_dict(ctx.command.ext)
    namespace, key = fields.get("namespace"), fields.get("key")
    if namespace is None or key is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
    return namespace, key, fields.get("value", "")
