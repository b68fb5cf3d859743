"""The name server: one table, its processors, a port, and a look for overdue brokers every 5 s."""

import asyncio
import logging

from roquette.base import generations
from roquette.base.clock import Clock
from roquette.base.executor import run_blocking
from roquette.base.files import Files
from roquette.base.lifecycle import Tasks
from roquette.errors import ConfigError, StoreError
from roquette.nameserver.bounds import Bounds
from roquette.nameserver.config import NamesrvConfig
from roquette.nameserver.kv_table import KvTable, encode
from roquette.nameserver.processor_table import rows
from roquette.nameserver.processors import (
    BrokerProcessor,
    ConfigProcessor,
    RouteProcessor,
    TopicProcessor,
)
from roquette.nameserver.route_table import RouteTable
from roquette.remoting.dispatcher import Dispatcher, Peer, Row
from roquette.remoting.lanes import LaneLimits
from roquette.remoting.server import Server
from roquette.remoting.transport import hang_up
from roquette.remoting.unfinished import PeerLimits
from roquette.wire.codes import RequestCode

log = logging.getLogger("roquette.nameserver")


class NameServer:
    """A name server. Everything but the KV config lives in memory: it may be killed at any time.

    Args:
        files: keeps the KV config at `config.kv_config_path`.
    """

    def __init__(self, config: NamesrvConfig, *, files: Files, clock: Clock) -> None:
        self.config = config
        self.bounds = Bounds()
        self.routes = RouteTable(self.bounds)
        self.kv = KvTable(self.bounds)
        self.port = 0
        self._files = files
        self._clock = clock
        self._tasks = Tasks()
        self._requests = Tasks()
        self._server: Server | None = None
        self._started_ms = 0
        self._saving = asyncio.Lock()
        self._saved_version = 0

    async def start(self, host: str | None = None, port: int | None = None) -> int:
        """Load the KV config and accept; returns the port.

        Raises:
            ConfigError: the KV config is not readable. OSError: the port is taken.
        """
        config = self.config
        await self._load()
        self._started_ms = self._clock.steady_ms()
        dispatcher = Dispatcher(
            self._rows(),
            [
                LaneLimits("clients", config.client_request_thread_pool_queue_capacity),
                LaneLimits("brokers", config.default_thread_pool_queue_capacity),
            ],
            self._clock,
            asyncio.get_running_loop(),
            self._requests,
        )
        self._server = Server(
            dispatcher,
            self._clock,
            on_lost=self._connection_lost,
            idle_s=config.server_channel_max_idle_time_seconds,
            limits=PeerLimits(
                config.frame_timeout_seconds,
                config.server_channel_max_idle_time_seconds,
                config.max_unfinished_frame_bytes,
                config.max_unsent_bytes,
            ),
        )
        self.port = await self._server.start(
            config.bind_address if host is None else host,
            config.listen_port if port is None else port,
        )
        scan_s = config.scan_not_active_broker_interval / 1000
        self._tasks.every("scan-brokers", scan_s, self._scan)
        log.info("name server started port=%d", self.port)
        return self.port

    def _rows(self) -> list[Row]:
        return rows(
            RouteProcessor(self.routes, self.kv, self._config_now, lambda: self._started_ms),
            BrokerProcessor(self.routes, self.kv, self._config_now, self._clock, self._nudge),
            TopicProcessor(self.routes, self._config_now),
            ConfigProcessor(self.kv, self._save_kv, self._config_now, self._replace_config),
        )

    def _nudge(self, connection: int) -> None:
        """A request that no broker serves: where no broker is any more, its machine resets the connection."""
        peer = None if self._server is None else self._server.peers.get(connection)
        if peer is not None:
            peer.notify(RequestCode.GET_BROKER_CLUSTER_INFO)

    def _config_now(self) -> NamesrvConfig:
        return self.config

    def _replace_config(self, config: NamesrvConfig) -> None:
        log.info("settings changed by a request now=%s", config)
        self.config = config

    async def _load(self) -> None:
        path = self.config.kv_config_path
        try:
            await run_blocking(generations.load, self._files, path, self.kv.load)
        except (StoreError, OSError) as error:
            raise ConfigError(f"kvConfigPath={path!r} cannot be read: {error}") from None
        self._saved_version = self.kv.version

    async def _save_kv(self) -> None:
        """Return when the KV config as it is now, or a later one, is on disk; one write at a time."""
        wanted = self.kv.version
        async with self._saving:
            if self._saved_version >= wanted:
                return
            version = self.kv.version
            data = await run_blocking(encode, self.kv.picture())
            await run_blocking(generations.save, self._files, self.config.kv_config_path, data)
            self._saved_version = version

    def _connection_lost(self, peer: Peer) -> None:
        self.routes.connection_lost(peer.id)

    def _scan(self) -> None:
        assert self._server is not None
        self.bounds.tell(log)
        for _, connection in self.routes.expire(self._clock.steady_ms()):
            peer = self._server.peers.get(connection)
            if peer is not None:
                hang_up(peer)

    async def stop(self) -> None:
        """Stop to accept, close every connection, let a running save end."""
        if self._server is not None:
            await self._server.stop()
        await self._tasks.stop()
        async with self._saving:
            pass
        await self._requests.stop()
        log.info("name server stopped port=%d", self.port)
