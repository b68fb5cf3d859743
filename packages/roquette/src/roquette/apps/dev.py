"""A name server and a broker in one process, for development: loopback only, small files, ready at once."""

import asyncio
import json
import os
import os.path
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from roquette.access.model import AccessSettings
from roquette.admin.access import AclRow, put_rules, save_user
from roquette.admin.cluster import masters_of
from roquette.admin.contexts import LOGIN_VARIABLE, NOBODY, Login, login_of, login_text
from roquette.apps import running
from roquette.apps.broker import broker_settings, serve_broker
from roquette.apps.namesrv import namesrv_settings, start_namesrv
from roquette.base.clock import SystemClock
from roquette.base.config import Sources
from roquette.base.entropy import secret_text
from roquette.base.files import OsFiles, write_private
from roquette.base.log_settings import LogSettings, begin_log
from roquette.base.options import options_of
from roquette.base.property_files import format_properties
from roquette.broker.floor.feature import Lane
from roquette.broker.group.member import GroupMember
from roquette.broker.service import Broker
from roquette.client.client import Client
from roquette.errors import ClientError, ConfigError
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.remoting.certificates import TlsSettings
from roquette.remoting.pem import Authority
from roquette.remoting.settings import DoorSettings
from roquette.remoting.tls_options import TlsOptions
from roquette.wire.signature import Credentials

# `roquette dev --secure`: certificates, users and rules of a closed cluster on this machine, and commands to try it by.


HOSTS = ("127.0.0.1", "localhost", "::1")
DAYS = 365
ADMIN, SERVER, USER = "admin", "server", "alice"
RULES = (("Pub,Sub", "Topic:alice-*"), ("Sub", "Group:alice-*"), ("Get", "Topic:TBW102"))
WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Secured:
    """Content of the directory: its files are their owner's alone."""

    directory: str
    people: dict[str, Credentials]

    def path(self, name: str) -> str:
        """Of a file there."""
        return os.path.join(self.directory, name)

    @property
    def tls(self) -> TlsOptions:
        """Options with which a client verifies these servers."""
        return TlsOptions(ca=self.path("ca.pem"))

    def settings(self) -> dict[str, str]:
        """Of the name server and of the broker."""
        admin, server = self.people[ADMIN], self.people[SERVER]
        return {
            "tls.server.mode": "enforcing",
            "tls.server.certPath": self.path("server.pem"),
            "tls.server.keyPath": self.path("server.key"),
            "tls.enable": "true",
            "tls.client.trustCertPath": self.path("ca.pem"),
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "initAuthenticationUser": json.dumps(
                {"username": admin.access_key, "password": admin.secret_key}
            ),
            "innerClientAuthenticationCredentials": json.dumps(
                {"accessKey": server.access_key, "secretKey": server.secret_key}
            ),
        }

    async def settle(self, namesrv: str) -> None:
        """Make the ordinary user and its rules at both servers, which are up.

        Raises:
            ClientError: they do not do it.
        """
        user, servers = self.people[USER], namesrv.split(";")
        admin = self.people[ADMIN]
        async with Client(
            namesrv, group="TOOLS_PRODUCER", tls=self.tls, credentials=admin
        ) as client:
            run = client.session.run
            await _wait_for_a_broker(client)
            for create in (True, False):
                told = await run(
                    save_user(
                        user.access_key,
                        servers,
                        create=create,
                        password=user.secret_key,
                        user_type="Normal",
                        user_status="enable",
                    )
                )
                if not any(one.error for one in told):
                    break  # else it is there, of an earlier run over the same store
            subject = f"User:{user.access_key}"
            rules = [
                AclRow(subject, "Custom", resource, actions, "", "Allow")
                for actions, resource in RULES
            ]
            told += await run(put_rules(rules, servers))
        for one in told:
            if one.error:
                raise ClientError(f"{one.address} does not take user {USER}: {one.error}")

    def commands(self, namesrv: str) -> str:
        """Return the commands to paste into another terminal."""
        admin, user = (shlex.quote(self.path(f"{name}.login")) for name in (ADMIN, USER))
        return f"""
export NAMESRV_ADDR={namesrv}
export {LOGIN_VARIABLE}={user}   # {USER}: topics and groups that begin with alice-
roquette produce alice-orders hello
roquette consume alice-orders --group alice-billing --count 1
roquette produce plans hello             # refused
export {LOGIN_VARIABLE}={admin}   # {ADMIN}: everything
roquette acl check {USER} pub plans      # why
roquette acl allow {USER} pub plans
roquette user show {USER}
"""


async def _wait_for_a_broker(client: Client) -> None:
    """Until the name server knows one."""
    now = asyncio.get_running_loop().time
    end_s = now() + WAIT_S
    while True:
        try:
            await client.session.run(masters_of())
            return
        except (ConfigError, ClientError):
            if now() > end_s:
                raise
            await asyncio.sleep(0.05)


def secured(store: str) -> Secured:
    """Return the content of a store's directory `secure`, made where it is not there yet. Blocks.

    Raises:
        ConfigError: what is there cannot be used. OSError.
    """
    directory, files = os.path.join(os.path.abspath(store), "secure"), OsFiles()
    os.makedirs(directory, mode=0o700, exist_ok=True)
    found = Secured(directory, {})
    if not files.exists(found.path("server.pem")):
        authority = Authority("roquette dev", SystemClock().now_ms(), DAYS)
        pair = authority.server(HOSTS)
        files.remove(found.path("server.key"))  # of an attempt that did not come to its end
        write_private(found.path("server.key"), pair["key"])
        files.write_atomic(found.path("ca.pem"), authority.pem["cert"], keep_backup=False)
        files.write_atomic(found.path("server.pem"), pair["cert"], keep_backup=False)
    for name in (ADMIN, SERVER, USER):
        path = found.path(f"{name}.login")
        if not files.exists(path):
            made = login_text(Credentials(name, secret_text()), found.tls)
            write_private(path, made.encode())
        credentials = login_of(path, {}).credentials
        if credentials is None:
            raise ConfigError(f"{path} has no accessKey and secretKey: remove it")
        found.people[name] = credentials
    return found


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
    console_port: int = 0,
) -> int:
    """Run both until SIGTERM; 0 after a clean stop, 1 when the broker's disk failed.

    Args:
        store: directory that is kept; None takes a temporary one that goes with the process.
        overrides: settings of either server.
        secure: with TLS and access control, and people to try them (`apps/dev.py`).
        grpc_port: where the v5 SDKs are served, by default; 0: nowhere.
        remoting_port: where Apache's proxy has remoting, by default; 0: nowhere.
        console_port: where the web console is; 0: nowhere.

    Raises:
        ConfigError: a setting is wrong, or a port is taken.
    """
    quiet = Sources(file_text=format_properties(LOG), environ=environ, overrides=overrides)
    begin_log(quiet)
    proxy_ports = {"grpcServerPort": str(grpc_port), "remotingListenPort": str(remoting_port)}
    overrides = proxy_ports | dict(overrides)
    if store is not None:
        kept = f"kept in {store}"
        return _run(
            namesrv_port, broker_port, store, overrides, environ, secure, console_port, kept
        )
    kept = "gone when it ends (--store DIR keeps it)"
    with tempfile.TemporaryDirectory(prefix="roquette-dev-") as directory:
        return _run(
            namesrv_port, broker_port, directory, overrides, environ, secure, console_port, kept
        )


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
    console_port: int,
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
        guest = asyncio.ensure_future(_console(address, console_port, people, stop))
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
            guest.cancel()
            await asyncio.wait((guest,))
            await name_server.stop()

    return running.run(body)


async def _console(namesrv: str, port: int, people: Secured | None, stop: asyncio.Event) -> None:
    """Serve the console once a broker is there, until `stop`; what keeps it from that is said, and dev goes on."""
    if not port:
        return
    login = NOBODY if people is None else Login(people.people[ADMIN], people.tls)
    async with Client(
        namesrv, group="TOOLS_PRODUCER", tls=login.tls or False, credentials=login.credentials
    ) as client:
        await _wait_for_a_broker(client)
    from roquette.apps.console import ConsoleTarget, opened  # when the servers are ready
    from roquette.console.app import ConsoleSettings

    try:
        settings = ConsoleSettings(listen=f"{LOOPBACK}:{port}")
        async with opened({"dev": ConsoleTarget(namesrv, login)}, settings) as address:
            print(f"Web console: {address}", flush=True)
            await stop.wait()
    except ConfigError as error:
        print(f"No web console: {error} (--console-port P takes another one)", flush=True)
