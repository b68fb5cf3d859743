"""The name server: one table, its processors, a port, and a look for overdue brokers every 5 s."""

import asyncio
import logging
import os.path
from dataclasses import replace
from typing import TYPE_CHECKING

from roquette.access.assemble import Access
from roquette.access.model import OPEN_TO_ALL, AccessSettings
from roquette.access.processor import AccessProcessor
from roquette.base.clock import Clock
from roquette.base.config import to_properties
from roquette.base.files import Files
from roquette.base.lifecycle import Tasks
from roquette.errors import ConfigError
from roquette.nameserver.controller import ControllerProcessor, RegisterFile, RegisterProcessor
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.nameserver.floor.core import NameServerCore, NameServerLane
from roquette.nameserver.metrics import ABOUT, NameServerMetrics
from roquette.nameserver.processors.brokers import BrokerProcessor
from roquette.nameserver.processors.operators import (
    KvConfigProcessor,
    SettingsProcessor,
    TopicListProcessor,
)
from roquette.nameserver.processors.routes import RouteProcessor
from roquette.remoting.account import PeerLimits
from roquette.remoting.dispatcher import Dispatcher, Hooks, LaneLimits
from roquette.remoting.door import PortProtocols
from roquette.remoting.request import Peer, Row
from roquette.remoting.server import Server
from roquette.remoting.settings import UNPROTECTED, Protection
from roquette.remoting.transport import hang_up
from roquette.wire.bodies import TopicList
from roquette.wire.codes import RequestCode
from roquette.wire.json_body import encode_body

if TYPE_CHECKING:
    from roquette.remoting.etcd import EtcdAgreement

TELL_S = 0.02  # a broker's registration brings many changes
TOLD_AT_ONCE = 200
SIGNS_OF_LIFE = frozenset(
    (RequestCode.REGISTER_BROKER, RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION)
)

log = logging.getLogger("roquette.nameserver")


class NameServer:
    """A name server. Everything but the KV config lives in memory: it may be killed at any time.

    Args:
        files: keeps the KV config at `config.kv_config_path`, and what an embedded controller has.

    Raises:
        ConfigError: `config.controller` is none.
    """

    def __init__(
        self,
        config: NamesrvConfig,
        *,
        files: Files,
        clock: Clock,
        protection: Protection = UNPROTECTED,
        access: AccessSettings = OPEN_TO_ALL,
    ) -> None:
        self.core = NameServerCore(config, clock)
        directory = os.path.dirname(config.kv_config_path) or "."
        self.access = Access(access, files, directory, clock, "DefaultCluster")
        self._protection = self.access.protect(protection)
        self.core.fixed = {**protection.shown, **to_properties(access)}
        self.port = 0
        self._kv = KvConfigProcessor(self.core, files)
        self._registers = registers_of(config, files)
        self.tasks = Tasks()
        self._requests = Tasks()
        self._server: Server | None = None
        self._limits = PeerLimits(
            config.frame_timeout_seconds,
            config.server_channel_max_idle_time_seconds,
            config.max_unfinished_frame_bytes,
            config.max_unsent_bytes,
            config.max_kept_bytes,
        )
        self.metrics = NameServerMetrics(
            self.core,
            self.tasks,
            lambda: len(self.peers()),
            self._limits.account,
            self._refusals,
            self._protection.ends,
        )

    def rows(self) -> list[Row]:
        """Return the rows of the requests that are served."""
        settings = SettingsProcessor(self.core)
        return [
            *RouteProcessor(self.core).rows(),
            *BrokerProcessor(self.core, self._nudge).rows(),
            *TopicListProcessor(self.core).rows(),
            *self._kv.rows(),
            *settings.rows(),
            *AccessProcessor(self.access.settings, self.access.users).rows(NameServerLane.BROKERS),
            *RegisterProcessor(self._registers).rows(),
            *ControllerProcessor(self.core, self._registers, settings).rows(),
        ]

    async def start(self, host: str | None = None, port: int | None = None) -> int:
        """Load the KV config and accept; returns the port.

        Raises:
            ConfigError: the KV config or the records are not readable. OSError: the port is taken.
        """
        config, clock = self.core.config, self.core.clock
        await self._kv.load()
        await self.access.start(config.bind_address if host is None else host)
        if self._registers is not None:
            await self._registers.load()
        self.core.started_ms = clock.steady_ms()
        dispatcher = Dispatcher(
            self.rows(),
            lane_limits(config),
            clock,
            asyncio.get_running_loop(),
            self._requests,
            Hooks(guard=self._protection.guard, refused=self._refused),
        )
        self.core.changed.append(lambda now: dispatcher.limit(lane_limits(now)))
        self._server = Server(
            dispatcher,
            clock,
            on_lost=self._connection_lost,
            idle_s=config.server_channel_max_idle_time_seconds,
            limits=self._limits,
        )
        self.core.routes.watches.wake = self._tell_soon
        bind = config.bind_address if host is None else host
        tls, protocols = self._protection.tls, self._protocols()
        wanted = config.listen_port if port is None else port
        self.port = await self._server.start(bind, wanted, tls, protocols)
        if config.outside_listen_port:
            await self._server.start(bind, config.outside_listen_port, tls, protocols)
        await self.metrics.start()
        core = self.core
        self.tasks.every(
            "scan-brokers", lambda: core.config.scan_not_active_broker_interval / 1000, self._scan
        )
        environment = config.product_env_name
        log.info("name server started port=%d environment=%s", self.port, environment)
        return self.port

    def _protocols(self) -> PortProtocols | None:
        door, guard = self._protection.door, self._protection.guard
        if door is None:
            return None
        found = door.protocols(ABOUT, guard is not None)
        assert found.pages is not None
        return replace(found, pages=found.pages.joined(self.metrics.pages))

    def client_rows(self, lane: int) -> list[Row]:
        """Return what clients need of a name server, for the ports of a broker in this process: Apache's proxy has both at one.

        Without WATCH_ROUTES: who watches is known by a connection of our own port.
        """
        rows = RouteProcessor(self.core).rows()
        found = [each for each in rows if each.code == RequestCode.GET_ROUTEINFO_BY_TOPIC]
        for each in found:
            each.lane = lane
        return found

    def lend(self, other: PortProtocols) -> None:
        """HTTP/2 connections at this port are served, counted and closed by another server of this process."""
        server = self._server
        if server is not None and server.protocols is not None:
            server.protocols = replace(server.protocols, http2=other.http2, load=other.load)

    def peers(self) -> list[Peer]:
        """Return the peers that are connected."""
        return [] if self._server is None else list(self._server.peers.values())

    def _refusals(self) -> dict[str, int]:
        of_port = {} if self._server is None else self._server.refusals()
        names = {"names": self.core.bounds.refused()}
        return {**self.access.audit.refusals, **of_port, **names}

    def _nudge(self, connection: int) -> None:
        """Send a request that no broker serves: if the broker is gone, its machine resets the connection."""
        peer = None if self._server is None else self._server.peers.get(connection)
        if peer is not None:
            peer.notify(RequestCode.GET_BROKER_CLUSTER_INFO)

    def _refused(self, peer: Peer, code: int) -> None:
        """A broker whose words are refused because others ask too much has said them: it lives."""
        if code in SIGNS_OF_LIFE:
            self.core.routes.live.heard(peer.id, self.core.clock.steady_ms())

    def _connection_lost(self, peer: Peer) -> None:
        self.core.routes.connection_lost(peer.id, self.core.clock.steady_ms())
        self.core.routes.watches.forget(peer.id)

    def _tell_soon(self) -> None:
        self.tasks.start("tell-watchers", self._tell())

    async def _tell(self) -> None:
        """Tell those who watch what has changed in a short while."""
        await asyncio.sleep(TELL_S)
        for number, (connection, topics) in enumerate(self.core.routes.watches.take().items()):
            peer = None if self._server is None else self._server.peers.get(connection)
            if peer is not None:
                body = encode_body(TopicList(topic_list=topics))
                peer.notify(RequestCode.ROUTES_CHANGED, b"", body)
            if number % TOLD_AT_ONCE == TOLD_AT_ONCE - 1:
                await asyncio.sleep(0)

    def _scan(self) -> None:
        assert self._server is not None
        self.core.bounds.tell(log)
        for live in self.core.routes.expire(self.core.clock.steady_ms()):
            peer = self._server.peers.get(live.connection)
            if peer is not None:
                hang_up(peer)

    async def stop(self) -> None:
        """Stop to accept, close every connection, let a running save end."""
        await self.metrics.close()
        if self._server is not None:
            await self._server.stop()
        await self.tasks.stop()
        await self._kv.finish()
        await self.access.users.finish()
        await self._requests.stop()
        if self._registers is not None:
            await self._registers.close()
        log.info("name server stopped port=%d", self.port)


def lane_limits(config: NamesrvConfig) -> list[LaneLimits]:
    """Of each Lane, in order."""
    return [
        LaneLimits("clients", config.client_request_thread_pool_queue_capacity),
        LaneLimits("brokers", config.default_thread_pool_queue_capacity),
    ]


def registers_of(config: NamesrvConfig, files: Files) -> "RegisterFile | EtcdAgreement | None":
    """Make the place where the records of groups stand; None: this is no controller. Raises ConfigError."""
    if not config.controller:
        return None
    from roquette.remoting.etcd import SCHEME, EtcdAgreement, parse_etcd  # few are controllers

    match config.controller:
        case "embedded":
            return RegisterFile(files, config.controller_store_path)
        case where if where.startswith(SCHEME):
            return EtcdAgreement(parse_etcd(where), files)
        case "managed":
            raise ConfigError(
                "controller=managed: only the command `roquette namesrv` runs an etcd"
            )
    raise ConfigError(
        f"controller={config.controller!r} is neither embedded nor managed nor {SCHEME}..."
    )
