"""The proxy as a process: the v5 gRPC protocol in front of brokers that are elsewhere. It keeps nothing; several stand side by side."""

import asyncio
import dataclasses
import json
import logging
import os.path
from collections.abc import Mapping
from typing import Any, NamedTuple

from roquette.access.assemble import Access
from roquette.access.model import AccessSettings
from roquette.apps import running
from roquette.base.clock import Clock, SystemClock
from roquette.base.config import Sources
from roquette.base.descriptors import words_of
from roquette.base.entropy import Entropy
from roquette.base.files import Files, OsFiles
from roquette.base.foreign_keys import PROXY
from roquette.base.lifecycle import Tasks
from roquette.base.log_settings import LogSettings, begin_log
from roquette.base.property_files import format_properties
from roquette.errors import ConfigError, Refused
from roquette.proxy.access import CallGuard
from roquette.proxy.cluster import ClusterBackend, ClusterConfig
from roquette.proxy.parts import make_proxy
from roquette.proxy.sessions import Sessions
from roquette.proxy.settings import ClusterSettings, ProxySettings, has_http2
from roquette.remoting.address import local_address
from roquette.remoting.certificates import TlsSettings
from roquette.remoting.dispatcher import Dispatcher, LaneLimits
from roquette.remoting.request import Outcome, RequestContext, Row
from roquette.remoting.server import ConnectionBound, Server
from roquette.remoting.settings import DoorSettings, Protection
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.signature import Prover

log = logging.getLogger("roquette.proxy")

ELSEWHERE = "this is a proxy for gRPC clients (RocketMQ 5 SDKs): clients of the remoting protocol go to the name server {}"
ABOUT = (
    "This is a RocketMQ proxy: clients of the v5 SDKs (gRPC) have its address as their endpoints; clients of the "
    "remoting protocol go to a name server."
)
OF_APACHE = {  # keys of rmq-proxy.json that we have under the servers' names
    "tlsTestModeEnable": "tls.test.mode.enable",
    "tlsKeyPath": "tls.server.keyPath",
    "tlsCertPath": "tls.server.certPath",
}


class AllSettings(NamedTuple):
    """Of all rooms."""

    config: ClusterSettings
    proxy: ProxySettings
    protection: Protection
    access: AccessSettings


def proxy_main(
    config_file: str | None,
    namesrv: str | None,
    listen: str | None,
    overrides: Mapping[str, str],
    environ: Mapping[str, str],
) -> int:
    """Run a proxy until SIGTERM; 0 after a clean stop.

    Raises:
        ConfigError: a setting is wrong, or the port is taken.
    """
    given = {"namesrvAddr": namesrv} if namesrv else {}
    flags = {**overrides, **given, **running.listen_settings(listen)}
    sources = sources_of(config_file, flags, environ)
    begin_log(sources)
    settings = proxy_settings(sources)

    async def body(stop: asyncio.Event) -> int:
        server = ProxyServer(settings, files=OsFiles(), clock=SystemClock(), entropy=Entropy())
        await server.start()
        running.settle_memory()
        host = settings.config.bind_address
        shown = local_address() if host in running.ANY_ADDRESS else host
        print(
            f"ready namesrv={settings.config.namesrv_addr} proxy={shown}:{server.port}", flush=True
        )
        await stop.wait()
        await server.stop()
        return 0

    return running.run(body)


def sources_of(
    config_file: str | None, overrides: Mapping[str, str], environ: Mapping[str, str]
) -> Sources:
    """As of every server; the file may be Apache's rmq-proxy.json as well. Raises ConfigError."""
    sources = running.sources_of(config_file, overrides, environ)
    text = sources.file_text
    if not text.lstrip().startswith("{"):
        return sources
    try:
        values: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the config file {config_file} is not JSON: {error}") from None
    lines = {OF_APACHE.get(key, key): _text(value) for key, value in values.items()}
    return dataclasses.replace(sources, file_text=format_properties(lines))


def _text(value: object) -> str:
    """A value of JSON as a property file has it."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def proxy_settings(sources: Sources) -> AllSettings:
    """The settings from all sources; unknown keys are warned of. Raises ConfigError."""
    classes = ClusterSettings, ProxySettings, TlsSettings, DoorSettings, AccessSettings, LogSettings
    config, proxy, tls, door, access, log = running.load_settings(classes, PROXY, sources)
    namesrv = config.namesrv_addr or sources.environ.get("NAMESRV_ADDR", "")
    if not namesrv:
        raise ConfigError("a proxy needs name servers: --namesrv 'host:port;host:port'")
    config = dataclasses.replace(config, namesrv_addr=namesrv)
    host = local_address() if config.bind_address in running.ANY_ADDRESS else config.bind_address
    protection = running.protection_of(tls, config.proxy_store_path, host, door, log)
    return AllSettings(config, proxy, protection, access)


class ProxyServer:
    """A proxy in one event loop.

    Args:
        host: the address it calls brokers from: None leaves it to the system.

    Attributes:
        port: where it listens, once it has started.
    """

    def __init__(
        self,
        settings: AllSettings,
        host: str | None = None,
        *,
        files: Files,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        has_http2("a proxy cannot start")
        self.config = config = settings.config
        self.settings = settings.proxy
        self._clock = clock
        directory = os.path.expanduser(config.proxy_store_path)
        cluster = config.rocketmq_cluster_name
        prover = Prover(self._clock.now_ms, entropy.secret(16))
        self.access = Access(settings.access, files, directory, self._clock, cluster, prover)
        self._protection = self.access.protect(settings.protection)
        client = ClusterConfig(
            name_servers=config.namesrv_addr, local_host=host, calls=self._protection.calls
        )
        self._tasks, self._requests = Tasks(), Tasks()
        self.port = 0
        self.backend = ClusterBackend(
            client,
            self._clock,
            entropy,
            host or local_address(),
            cluster,
            guard=self._protection.guard,
        )
        self.proxy = make_proxy(
            self.backend,
            self.settings,
            self._clock,
            entropy,
            lambda: self.config.max_message_size,
        )
        self.backend.proxy = self.proxy
        guard = self.access.guard
        self._calls = None if guard is None else CallGuard(guard)
        if self._calls is not None:
            self._calls.watch(self.proxy)

    async def start(self) -> None:
        """Accept connections. Raises ConfigError: a port is taken, or nobody could log in."""
        config, settings, clock = self.config, self.settings, self._clock
        await self.access.start(config.bind_address)
        lanes = [LaneLimits("requests", 10_000)]
        rows = [Row(code, self._elsewhere, None, 0) for code in RequestCode]
        loop = asyncio.get_running_loop()
        dispatcher = Dispatcher(rows, lanes, clock, loop, self._requests)
        prove = None if self._calls is None else self._calls.prove
        self.sessions = Sessions(
            dispatcher, self.proxy, settings, clock, prove, max_body=config.max_message_size
        )
        bound = ConnectionBound(config.max_connections)
        await self.backend.start()
        further = {settings.grpc_server_port, settings.remoting_listen_port}
        ports = [config.listen_port, *sorted(further - {0, config.listen_port})]
        self._server = Server(dispatcher, clock, on_lost=self.proxy.connection_lost, bound=bound)
        door = self._protection.door or DoorSettings()
        protocols = door.protocols(ABOUT, self.access.guard is not None)
        protocols = dataclasses.replace(protocols, http2=self.sessions.open)
        for port in ports:
            try:
                got = await self._server.start(
                    config.bind_address, port, self._protection.tls, protocols
                )
            except OSError as error:
                await self.stop()
                where = f"{config.bind_address}:{port}"
                raise ConfigError(f"cannot listen on {where}: {words_of(error)}") from None
            self.port = self.port or got
        beats = [beat for part in self.proxy.parts for beat in part.beats()]
        for beat in (self.sessions.beat_row, *beats):
            self._tasks.every(beat.name, beat.seconds, beat.step)
        log.info("proxy started port=%d", self.port)

    def _elsewhere(self, ctx: RequestContext, header: None, body: bytes) -> Outcome:
        raise Refused(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ELSEWHERE.format(self.config.namesrv_addr)
        )

    async def stop(self) -> None:
        """Say goodbye to clients, answer what is held, close."""
        await self.sessions.close()
        await self._server.stop()
        await self._tasks.stop()
        await self._requests.stop()
        await self.backend.close()
        log.info("proxy stopped port=%d", self.port)
