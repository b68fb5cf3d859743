"""A name server and a broker in one process, for development: loopback only, small files, ready at once."""

import asyncio
import os.path
import tempfile
from collections.abc import Mapping

from roquette.access.settings import AccessSettings
from roquette.apps import running
from roquette.apps.broker import broker_settings, serve_broker
from roquette.apps.namesrv import namesrv_settings, start_namesrv
from roquette.apps.secure import secured
from roquette.base.config import Sources
from roquette.base.log_settings import LogSettings, begin_log
from roquette.base.options import options_of
from roquette.base.property_files import format_properties
from roquette.broker.floor.feature import Lane
from roquette.broker.group.member import GroupMember
from roquette.broker.service import Broker
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.remoting.certificates import TlsSettings
from roquette.remoting.door_settings import DoorSettings

LOOPBACK = "127.0.0.1"

# Allocated files are real disk, so they are small here; a 4 MiB message must still fit into one.
DEV_SETTINGS = {
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": str(8 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 6_000),
    "maxHashSlotNum": "20000",
    "maxIndexNum": "80000",
    "recallMessageEnable": "true",  # who tries things out tries that, too
}
LOG = {"logLevel": "WARNING"}
OWN_KEYS = ("listenPort", "bindAddress")  # both servers have them: the ports come as arguments here


def dev_main(
    namesrv_port: int,
    broker_port: int,
    store: str | None,
    overrides: Mapping[str, str],
    environ: Mapping[str, str],
    *,
    secure: bool = False,
    grpc_port: int = 0,
    remoting_port: int = 0,
) -> int:
    """Run both until SIGTERM; 0 after a clean stop, 1 when the broker's disk failed.

    Args:
        store: directory that is kept; None takes a temporary one that goes with the process.
        overrides: settings of either server.
        secure: with TLS and access control, and people to try them (`apps/secure.py`).
        grpc_port: where the v5 SDKs are served, by default; 0: nowhere.
        remoting_port: where Apache's proxy has remoting, by default; 0: nowhere.

    Raises:
        ConfigError: a setting is wrong, or a port is taken.
    """
    quiet = Sources(file_text=format_properties(LOG), environ=environ, overrides=overrides)
    begin_log(quiet)
    proxy_ports = {"grpcServerPort": str(grpc_port), "remotingListenPort": str(remoting_port)}
    overrides = proxy_ports | dict(overrides)
    if store is not None:
        kept = f"kept in {store}"
        return _run(namesrv_port, broker_port, store, overrides, environ, secure, kept)
    kept = "gone when it ends (--store DIR keeps it)"
    with tempfile.TemporaryDirectory(prefix="roquette-dev-") as directory:
        return _run(namesrv_port, broker_port, directory, overrides, environ, secure, kept)


def first_steps(address: str, grpc_port: str, kept: str) -> str:
    """Return what to do next, for a user who has just started it."""
    v5 = f"; endpoint of the v5 SDKs: {LOOPBACK}:{grpc_port}" if grpc_port != "0" else ""
    return f"""Try in another terminal (NAMESRV_ADDR={address} stands for -n):
    roquette produce -n {address} orders hello world
    roquette consume -n {address} orders
    roquette top -n {address}

namesrvAddr of applications: {address}{v5}
What is sent is {kept}. Ctrl-C ends it."""


def _run(
    namesrv_port: int,
    broker_port: int,
    store: str,
    overrides: Mapping[str, str],
    environ: Mapping[str, str],
    secure: bool,
    kept: str,
) -> int:
    people = secured(store) if secure else None
    names = options_of(NamesrvConfig)
    of_both = AccessSettings, TlsSettings, DoorSettings, LogSettings
    both = {key for each in of_both for key in options_of(each)}
    closed = {} if people is None else people.settings()
    shared = {key: text for key, text in overrides.items() if key not in OWN_KEYS}
    theirs = {key: text for key, text in shared.items() if key in names or key in both}
    ours = {key: text for key, text in shared.items() if key not in names}
    theirs["kvConfigPath"] = os.path.join(store, "namesrv", "kvConfig.json")
    theirs["controllerStorePath"] = os.path.join(store, "namesrv", "controller")
    ours["storePathRootDir"] = store
    # Ports come from the arguments alone: an environment meant for one server must not move both.
    quiet = {key: text for key, text in environ.items() if key != "NAMESRV_ADDR"}
    theirs |= running.listen_settings(f"{LOOPBACK}:{namesrv_port}")
    where = "the settings of dev"
    namesrv = namesrv_settings(
        Sources(
            file_text=format_properties(LOG | closed),
            file_name=where,
            environ=quiet,
            overrides=theirs,
        )
    )

    async def body(stop: asyncio.Event) -> int:
        name_server = await start_namesrv(namesrv)
        address = f"{LOOPBACK}:{name_server.port}"
        try:
            overrides = ours | {"namesrvAddr": address}
            overrides |= running.listen_settings(f"{LOOPBACK}:{broker_port}")
            sources = Sources(
                file_text=format_properties(LOG | DEV_SETTINGS | closed),
                file_name=where,
                environ=quiet,
                overrides=overrides,
            )

            async def settle() -> str:
                if people is None:
                    return first_steps(address, ours["grpcServerPort"], kept)
                await people.settle(address)
                return people.commands(address)

            # Lent now, not before: the broker has its HTTP/2 only once it has started.
            def begun(broker: Broker | GroupMember) -> None:
                http2 = broker.http2() if isinstance(broker, Broker) else None
                if http2 is not None:
                    name_server.lend(http2)

            return await serve_broker(
                broker_settings(sources),
                stop,
                namesrv=address,
                settle=settle,
                begun=begun,
                more=name_server.client_rows(Lane.CLIENT_MANAGER),
            )
        finally:
            await name_server.stop()

    return running.run(body)
