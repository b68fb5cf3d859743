"""Requests of operators to a name server: its KV config, its settings, lists of topics and changes of one (Apache: KVConfigManager)."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from roquette.base import generations
from roquette.base.config import read_changes, with_changes
from roquette.base.executor import run_blocking
from roquette.base.files import Files
from roquette.base.foreign_keys import NAMESRV
from roquette.base.property_files import format_properties
from roquette.errors import ConfigError, Refused, StoreError
from roquette.nameserver.floor.config import forbidden_keys, shown_settings
from roquette.nameserver.floor.core import NameServerCore, NameServerLane, decode_or_refuse, encode
from roquette.remoting.promises import Promise as P
from roquette.remoting.request import Outcome, Reply, RequestContext, Row, Task, row
from roquette.wire import headers
from roquette.wire.bodies import KVTable, TopicList, TopicRouteData
from roquette.wire.codes import RequestCode as R
from roquette.wire.codes import ResponseCode
from roquette.wire.header_codec import encode_ext, ext_dict
from roquette.wire.json_body import encode_body

# A name server's KV config. Apache: KVConfigManager.


class KvConfigProcessor:
    """The requests of the KV config, and its file at `kvConfigPath`."""

    def __init__(self, core: NameServerCore, files: Files) -> None:
        self._core = core
        self._kv = core.kv
        self._files = files
        self._saving = asyncio.Lock()
        self._saved_version = 0

    def rows(self) -> list[Row]:
        """Return the rows of the requests that are served."""
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


# A name server's own settings.


log = logging.getLogger("roquette.nameserver")


class SettingsProcessor:
    """Shows the settings, and changes those that may change while the process runs."""

    def __init__(self, core: NameServerCore) -> None:
        self._core = core

    def rows(self) -> list[Row]:
        """Return the rows of the requests that are served."""
        lane = NameServerLane.BROKERS
        return [
            row(R.UPDATE_NAMESRV_CONFIG, self.update_settings, None, lane, P.MEMORY),
            row(R.GET_NAMESRV_CONFIG, self.get_settings, None, lane, P.NOTHING),
        ]

    def get_settings(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """GET_NAMESRV_CONFIG."""
        return Reply(
            body=format_properties(shown_settings(self._core.config, self._core.fixed)).encode()
        )

    def update_settings(self, ctx: RequestContext, header: None, body: bytes) -> Reply:
        """UPDATE_NAMESRV_CONFIG: only what may change while running, never an address or a path."""
        try:
            changes = read_changes(body)
            if forbidden_keys(changes):
                raise Refused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
            (config,) = with_changes((self._core.config,), changes, NAMESRV)
        except ConfigError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        log.info("settings changed by a request now=%s", config)
        self._core.change(config)
        return Reply()


# A name server's lists of topics, and changes of one topic by an operator.


MANY: Final = 20_000  # topics: longer lists are encoded in the executor, off the event loop


class TopicListProcessor:
    """Lists of topics, and their removal."""

    def __init__(self, core: NameServerCore) -> None:
        self._core = core
        self._routes = core.routes

    def rows(self) -> list[Row]:
        """Return the rows of the requests that are served."""
        h, lane = headers, NameServerLane.BROKERS
        return [
            row(R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, self.all_topics, None, lane, P.NOTHING),
            row(
                R.GET_TOPICS_BY_CLUSTER,
                self.of_cluster,
                h.GetTopicsByClusterRequestHeader,
                lane,
                P.NOTHING,
            ),
            row(R.GET_SYSTEM_TOPIC_LIST_FROM_NS, self.system_topics, None, lane, P.NOTHING),
            row(R.GET_UNIT_TOPIC_LIST, self.unit_topics, None, lane, P.NOTHING),
            row(R.GET_HAS_UNIT_SUB_TOPIC_LIST, self.unit_sub_topics, None, lane, P.NOTHING),
            row(
                R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
                self.unit_sub_not_unit_topics,
                None,
                lane,
                P.NOTHING,
            ),
            row(
                R.DELETE_TOPIC_IN_NAMESRV,
                self.delete,
                h.DeleteTopicFromNamesrvRequestHeader,
                lane,
                P.MEMORY,
            ),
            row(
                R.REGISTER_TOPIC_IN_NAMESRV,
                self.register,
                h.RegisterTopicRequestHeader,
                lane,
                P.MEMORY,
            ),
        ]

    def all_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""
        if not self._core.config.enable_all_topic_list:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disable")
        return self._listed(self._routes.topics)

    def of_cluster(
        self, ctx: RequestContext, header: headers.GetTopicsByClusterRequestHeader, body: bytes
    ) -> Outcome:
        """GET_TOPICS_BY_CLUSTER."""
        self._check_enabled()
        return self._listed(partial(self._routes.topics_of_cluster, header.cluster))

    def system_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS."""
        topics, address = self._routes.system_topics()
        return self._listed(lambda: topics, address)

    def unit_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """GET_UNIT_TOPIC_LIST."""
        self._check_enabled()
        return self._listed(partial(self._routes.topics_with_flags, unit=True))

    def unit_sub_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """GET_HAS_UNIT_SUB_TOPIC_LIST."""
        self._check_enabled()
        return self._listed(partial(self._routes.topics_with_flags, unit_sub=True))

    def unit_sub_not_unit_topics(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST."""
        self._check_enabled()
        return self._listed(partial(self._routes.topics_with_flags, unit=False, unit_sub=True))

    def delete(
        self, ctx: RequestContext, header: headers.DeleteTopicFromNamesrvRequestHeader, body: bytes
    ) -> Reply:
        """DELETE_TOPIC_IN_NAMESRV."""
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        return Reply()

    def register(
        self, ctx: RequestContext, header: headers.RegisterTopicRequestHeader, body: bytes
    ) -> Reply:
        """REGISTER_TOPIC_IN_NAMESRV."""
        route: TopicRouteData = decode_or_refuse(TopicRouteData, body)
        self._routes.register_topic(header.topic, route.queue_datas)
        return Reply()

    def _check_enabled(self) -> None:
        if not self._core.config.enable_topic_list:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disable")

    def _listed(self, topics: Callable[[], list[str]], address: str | None = None) -> Outcome:
        if self._routes.topic_count > MANY:
            return Task(_encoded(topics, address), large=True)
        return Reply(body=encode_body(TopicList(topic_list=topics(), broker_addr=address)))


async def _encoded(topics: Callable[[], list[str]], address: str | None) -> Reply:
    answer = TopicList(topic_list=topics(), broker_addr=address)
    return Reply(body=await run_blocking(encode_body, answer))
