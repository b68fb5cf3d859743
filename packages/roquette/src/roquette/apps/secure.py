"""`roquette dev --secure`: certificates, users and rules of a closed cluster on this machine, and commands to try it by."""

import asyncio
import json
import os
import shlex
from dataclasses import dataclass

from roquette.admin.access import AclRow, put_rules, save_user
from roquette.admin.cluster import masters_of
from roquette.admin.login import VARIABLE, login_of, login_text
from roquette.base.clock import SystemClock
from roquette.base.entropy import secret_text
from roquette.base.files import OsFiles, write_private
from roquette.client.client import Client
from roquette.errors import ClientError, ConfigError
from roquette.remoting.authority import Authority
from roquette.remoting.tls_options import TlsOptions
from roquette.wire.signature import Credentials

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
export {VARIABLE}={user}   # {USER}: topics and groups that begin with alice-
roquette produce alice-orders hello
roquette consume alice-orders --group alice-billing --count 1
roquette produce plans hello             # refused
export {VARIABLE}={admin}   # {ADMIN}: everything
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
