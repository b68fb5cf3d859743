"""The broker as a process: settings from file, environment and flags; one loop; exit codes."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from roquette.access.model import AccessSettings
from roquette.apps import running
from roquette.apps.features import broker_features, replica_features
from roquette.base.clock import Clock, SystemClock
from roquette.base.config import Sources, to_properties
from roquette.base.entropy import Entropy
from roquette.base.files import Files, OsFiles
from roquette.base.foreign_keys import BROKER
from roquette.base.log_settings import LogSettings, begin_log
from roquette.broker.floor.config import BrokerConfig
from roquette.broker.service import Broker
from roquette.errors import ConfigError
from roquette.proxy.settings import ProxySettings
from roquette.remoting.address import host_name, local_address
from roquette.remoting.certificates import TlsSettings
from roquette.remoting.request import Row
from roquette.remoting.settings import DoorSettings, Protection
from roquette.store.format.config import StoreConfig

if TYPE_CHECKING:
    from roquette.broker.group.member import GroupMember


def broker_main(
    config_file: str | None,
    namesrv: str | None,
    listen: str | None,
    store: str | None,
    overrides: Mapping[str, str],
    environ: Mapping[str, str],
) -> int:
    """Run a broker until SIGTERM; 0 after a clean stop, 1 when its disk failed.

    Raises:
        ConfigError: a setting is wrong. StoreError: the store cannot be opened. OSError: the port is taken.
    """
    flags = {"namesrvAddr": namesrv, "storePathRootDir": store} | running.listen_settings(listen)
    given = {key: text for key, text in flags.items() if text is not None}
    sources = running.sources_of(config_file, {**overrides, **given}, environ)
    begin_log(sources)
    settings = broker_settings(sources)

    async def body(stop: asyncio.Event) -> int:
        return await serve_broker(settings, stop)

    return running.run(body)


class BrokerSettings(NamedTuple):
    """Of all rooms."""

    config: BrokerConfig
    store: StoreConfig
    protection: Protection
    access: AccessSettings
    proxy: ProxySettings


async def serve_broker(
    settings: BrokerSettings,
    stop: asyncio.Event,
    namesrv: str | None = None,
    settle: Callable[[], Awaitable[str]] | None = None,
    begun: "Callable[[Broker | GroupMember], None] | None" = None,
    more: Iterable[Row] = (),
) -> int:
    """Run a broker until `stop` is set or it fails; returns the exit code.

    Args:
        namesrv: the name server's address, for the ready line.
        settle: done before that line; what it returns is printed behind it.
        begun: gets the broker before that.
        more: what its ports serve for another server of this process.

    Raises:
        ConfigError: a setting is wrong.
    """
    broker = make_broker(
        settings.config,
        settings.store,
        settings.proxy,
        files=OsFiles(),
        clock=SystemClock(),
        entropy=Entropy(),
    )
    broker.protection, broker.access = settings.protection, settings.access
    if isinstance(broker, Broker):
        broker.more += more
    await broker.start()
    if begun is not None:
        begun(broker)
    told, settled = "", settle is None
    try:
        if settle is not None:
            told = await settle()
            settled = True
    finally:
        # In `finally`: a cancelled `settle` must not leave the broker running either.
        if not settled:
            await broker.stop()
    running.settle_memory()
    running.print_ready(namesrv=namesrv, broker=broker.address)
    if told:
        print(told, flush=True)
    failure = await running.wait_end(stop, broker.wait_failed)
    await broker.stop()
    return 0 if failure is None else 1


def make_broker(
    config: BrokerConfig,
    store_config: StoreConfig,
    proxy: ProxySettings | None = None,
    *,
    files: Files,
    clock: Clock,
    entropy: Entropy,
) -> "Broker | GroupMember":
    """Make the broker that the settings ask for: a member of a group, a replica of a master that is told, or a master.

    Raises:
        ConfigError: they do not fit together.
    """
    proxy = proxy or ProxySettings()
    if config.enable_controller_mode:
        from roquette.apps import group_features as group
        from roquette.broker.group.member import GroupMember

        return GroupMember(
            config,
            store_config,
            master_features=partial(group.group_master_features, proxy=proxy),
            replica_features=group.group_replica_features,
            files=files,
            clock=clock,
            entropy=entropy,
        )
    slave = config.broker_role == "SLAVE"
    if slave != (config.broker_id > 0):
        raise ConfigError(
            f"brokerRole={config.broker_role} does not go with brokerId={config.broker_id}: "
            "a master has 0, a SLAVE another one"
        )
    features = replica_features if slave else partial(broker_features, proxy=proxy)
    return Broker(config, store_config, features, files=files, clock=clock, entropy=entropy)


def broker_settings(sources: Sources) -> BrokerSettings:
    """All rooms' settings, completed by what only the machine knows: its name and address."""
    shared = TlsSettings, DoorSettings, AccessSettings, LogSettings
    (config, store_config, proxy, tls, door, access, log) = running.load_settings(
        (BrokerConfig, StoreConfig, ProxySettings, *shared), BROKER, sources
    )
    advertised = "" if config.bind_address in running.ANY_ADDRESS else config.bind_address
    config = dataclasses.replace(
        config,
        broker_name=config.broker_name or host_name(),
        broker_ip1=config.broker_ip1 or advertised or local_address(),
        namesrv_addr=config.namesrv_addr or sources.environ.get("NAMESRV_ADDR", ""),
    )
    root = store_config.root_dir
    protection = running.protection_of(tls, root, config.broker_ip1, door, log)
    protection = dataclasses.replace(
        protection,
        ports=(proxy.grpc_server_port, proxy.remoting_listen_port),
        shown={**protection.shown, **to_properties(proxy)},
    )
    return BrokerSettings(config, store_config, protection, access, proxy)
