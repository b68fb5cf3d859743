"""The name server as a process: settings from file, environment and flags; one loop; exit codes."""

import asyncio
import dataclasses
import os
import os.path
from collections.abc import Mapping
from typing import NamedTuple

from roquette.access.model import AccessSettings
from roquette.apps import running
from roquette.base.clock import SystemClock
from roquette.base.config import Sources
from roquette.base.descriptors import words_of
from roquette.base.files import OsFiles
from roquette.base.foreign_keys import NAMESRV
from roquette.base.log_settings import LogSettings, begin_log
from roquette.errors import ConfigError
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.nameserver.service import NameServer
from roquette.remoting.address import local_address
from roquette.remoting.certificates import TlsSettings
from roquette.remoting.settings import DoorSettings, Protection


def namesrv_main(
    config_file: str | None,
    listen: str | None,
    controller: str | None,
    overrides: Mapping[str, str],
    environ: Mapping[str, str],
) -> int:
    """Run a name server until SIGTERM; 0 after a clean stop.

    Raises:
        ConfigError: a setting is wrong, or the port is taken.
    """
    flags = {**overrides, **running.listen_settings(listen)}
    if controller is not None:
        flags["controller"] = controller
    sources = running.sources_of(config_file, flags, environ)
    begin_log(sources)
    settings = namesrv_settings(sources)
    config = settings.config

    async def body(stop: asyncio.Event) -> int:
        etcd = None
        if config.controller == "managed":
            from roquette.apps.managed_etcd import ManagedEtcd  # few have one

            etcd = ManagedEtcd(config, OsFiles())
            await etcd.start()
        try:
            used = config if etcd is None else dataclasses.replace(config, controller=etcd.url)
            server = await start_namesrv(settings._replace(config=used))
            running.settle_memory()
            running.print_ready(namesrv=shown_address(config, server.port))
            await stop.wait()
            await server.stop()
        finally:
            if etcd is not None:
                await etcd.stop()
        return 0

    return running.run(body)


class NamesrvSettings(NamedTuple):
    """Of all rooms."""

    config: NamesrvConfig
    protection: Protection
    access: AccessSettings


def namesrv_settings(sources: Sources) -> NamesrvSettings:
    """The settings from all sources; unknown keys are warned of."""
    config, tls, door, access, log = running.load_settings(
        (NamesrvConfig, TlsSettings, DoorSettings, AccessSettings, LogSettings), NAMESRV, sources
    )
    settings: NamesrvConfig = dataclasses.replace(
        config,
        kv_config_path=os.path.expanduser(config.kv_config_path),
        controller_store_path=os.path.expanduser(config.controller_store_path),
    )
    directory = os.path.dirname(settings.kv_config_path)
    protection = running.protection_of(tls, directory, settings.bind_address, door, log)
    return NamesrvSettings(settings, protection, access)


async def start_namesrv(settings: NamesrvSettings) -> NameServer:
    """A running name server on the machine's own clock, files and network."""
    config, protection, access = settings
    server = NameServer(
        config, files=OsFiles(), clock=SystemClock(), protection=protection, access=access
    )
    try:
        await server.start()
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {config.bind_address}:{config.listen_port}: {words_of(error)}"
        ) from None
    return server


def shown_address(config: NamesrvConfig, port: int) -> str:
    """HOST:PORT under which clients reach it: the bind address, or the first one when it binds all."""
    host = config.bind_address
    return f"{local_address() if host in ('', '0.0.0.0', '::') else host}:{port}"
