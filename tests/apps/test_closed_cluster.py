"""docs/howto/closed-cluster.md with processes: from open to closed, one restart after the other, and no send fails."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.real_servers import SMALL_STORE, ServerProcess

import roquette
from roquette.admin.access import AclRow, put_rules, save_user
from roquette.errors import ClientError
from roquette.remoting.pem import Authority, own_hosts

APP, ADMIN = (
    roquette.Credentials("app1", "the-secret-of-app1"),
    roquette.Credentials("admin", "s-admin"),
)
SERVER = {"accessKey": "server", "secretKey": "the-secret-of-servers"}
TOPIC = "orders"


class Servers:
    """A name server and two brokers, whose settings grow step by step."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.settings: dict[str, str] = {}
        self.running: dict[str, ServerProcess] = {}
        self.addresses: dict[str, str] = {}

    def start(self, name: str, more: dict[str, str]) -> None:
        """Start one where it was before."""
        file = self.directory / f"{name}.conf"
        lines = self.settings | more
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        listen = self.addresses.get(name, "127.0.0.1:0")
        words = (
            ["namesrv"] if name == "namesrv" else ["broker", "--store", str(self.directory / name)]
        )
        process = ServerProcess([*words, "-c", str(file), "--listen", listen])
        self.running[name] = process
        process.wait_ready()
        host, port = process.address
        self.addresses[name] = f"{host}:{port}"

    def own(self, name: str) -> dict[str, str]:
        """What is one server's alone."""
        if name == "namesrv":
            return {"kvConfigPath": str(self.directory / "namesrv" / "kvConfig.json")}
        sizes = {key: str(value) for key, value in SMALL_STORE.items()}
        return sizes | {"brokerName": name, "namesrvAddr": self.addresses["namesrv"]}

    async def restart(self, names: list[str]) -> None:
        """One after the other, each when the one before is back."""
        for name in names:
            process = self.running[name]
            process.child.send_signal(signal.SIGTERM)
            await asyncio.to_thread(process.child.wait, 60)
            process.end()
            await asyncio.to_thread(self.start, name, self.own(name))
            await asyncio.sleep(1.5)  # clients hear of it


class Sender:
    """An application that never stops: `client` is replaced when its settings change."""

    def __init__(self) -> None:
        self.sent = 0
        self.failed: list[str] = []
        self.client: roquette.Client | None = None

    async def run(self) -> None:
        while True:
            client = self.client
            assert client is not None
            try:
                await client.send(TOPIC, b"%d" % self.sent)
                self.sent += 1
            except ClientError as error:
                self.failed.append(str(error))
            await asyncio.sleep(0.02)


@pytest.mark.timeout(180)
def test_from_an_open_to_a_closed_cluster_without_a_failed_send(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    try:
        asyncio.run(walk(servers, tmp_path))
    finally:
        for process in servers.running.values():
            process.end()


async def walk(servers: Servers, directory: Path) -> None:
    brokers, everything = ["broker-a", "broker-b"], ["namesrv", "broker-a", "broker-b"]
    for name in everything:
        servers.start(name, servers.own(name))
    address = servers.addresses["namesrv"]
    pem = certificates(directory)
    tls = roquette.TlsOptions(ca=pem["ca"])

    def client(**access: Any) -> roquette.Client:
        return roquette.Client(address, poll_routes=0.5, send_attempts=6, **access)

    sender = Sender()
    sender.client = await client().start()
    task = asyncio.create_task(sender.run())
    await asyncio.sleep(2)

    servers.settings |= {  # 2. TLS beside plain connections
        "tls.server.mode": "permissive", "tls.server.certPath": pem["cert"],
        "tls.server.keyPath": pem["key"], "tls.client.trustCertPath": pem["ca"],
    }  # fmt: skip
    await servers.restart(everything)
    async with client() as operator:  # 3. users and rules
        await make_users(operator, address)
    old, sender.client = sender.client, await client(tls=tls, credentials=APP).start()  # 4. clients
    await asyncio.sleep(1)
    await old.close()
    servers.settings |= {  # 5. servers among themselves
        "tls.enable": "true", "innerClientAuthenticationCredentials": json.dumps(SERVER),
    }  # fmt: skip
    await servers.restart(everything)
    servers.settings["authenticationEnabled"] = "true"  # 6. signed
    await servers.restart([*brokers, "namesrv"])
    servers.settings["authorizationEnabled"] = "true"  # 7. rights
    await servers.restart([*brokers, "namesrv"])
    servers.settings["tls.server.mode"] = "enforcing"  # 8. nothing plain
    await servers.restart([*brokers, "namesrv"])

    before = sender.sent
    await asyncio.sleep(2)
    task.cancel()
    assert sender.sent > before, sender.failed[-3:]
    assert sender.failed == []
    with pytest.raises(ClientError, match="has no permission"):
        await sender.client.send("other", b"x")
    await sender.client.close()
    async with client() as stranger:
        with pytest.raises(ClientError):
            await stranger.send(TOPIC, b"x")
    print(f"{sender.sent} sent, {len(sender.failed)} failed")


def certificates(directory: Path) -> dict[str, str]:
    authority = Authority("test", 1_600_000_000_000, 30_000)
    pair = authority.server(own_hosts())
    found = {}
    for name, data in (("ca", authority.pem["cert"]), ("cert", pair["cert"]), ("key", pair["key"])):
        (directory / name).write_bytes(data)
        found[name] = str(directory / name)
    return found


async def make_users(operator: roquette.Client, address: str) -> None:
    run, servers = operator.session.run, [address]
    people = (("admin", ADMIN.secret_key, "Super"), ("server", SERVER["secretKey"], "Super"), ("app1", APP.secret_key, "Normal"))  # fmt: skip
    told = []
    for name, password, kind in people:
        told += await run(
            save_user(
                name, servers, create=True, password=password, user_type=kind, user_status="enable"
            )
        )
    told += await run(
        put_rules([AclRow("User:app1", "Custom", "Topic:orders*", "Pub", "", "Allow")], servers)
    )
    assert not any(one.error for one in told), told
