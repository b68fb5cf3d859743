"""Both clients at a real name server under TLS, over real sockets: who is refused and why, and certificates that change."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority, issue, make_ca

from roquette.base.clock import SystemClock
from roquette.base.files import OsFiles
from roquette.client import calls
from roquette.client.client import Client
from roquette.errors import ClientError, ConnectError
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.nameserver.service import NameServer
from roquette.remoting import pem
from roquette.remoting.certificates import TlsSettings, server_tls
from roquette.remoting.security import Security
from roquette.remoting.settings import Protection
from roquette.remoting.tls_options import TlsOptions
from roquette_spark.workers.connection import BlockingConnection


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_ca(tmp_path_factory.mktemp("ca"))


@asynccontextmanager
async def serving(folder: Path, **settings: Any) -> AsyncIterator[str]:
    clock = SystemClock()
    tls = server_tls(TlsSettings(**settings), str(folder / "tls"), ["127.0.0.1"], clock)
    config = NamesrvConfig(
        bind_address="127.0.0.1", listen_port=0, kv_config_path=str(folder / "kv.json")
    )
    server = NameServer(config, files=OsFiles(), clock=clock, protection=Protection(tls=tls))
    await server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop()


async def ask(address: str, tls: TlsOptions | None) -> None:
    async with Client(address, tls=tls or False) as client:
        await client.session.ask_name_servers(calls.topic_names())


def ask_blocking(address: str, tls: TlsOptions | None) -> None:
    security = Security(tls=None if tls is None else tls._client_tls)
    connection = BlockingConnection(address, timeout_ms=20_000, security=security)
    try:
        connection.call(calls.topic_names())
    finally:
        connection.close()


async def refusals(address: str, tls: TlsOptions | None) -> tuple[str, str]:
    """What either client says."""
    with pytest.raises(ClientError) as one:
        await ask(address, tls)
    with pytest.raises(ConnectError) as other:
        await asyncio.to_thread(ask_blocking, address, tls)
    return str(one.value), str(other.value)


def test_both_clients_are_served_and_refused_alike(tmp_path: Path, ca: Authority) -> None:
    asyncio.run(_served_and_refused(tmp_path, ca))


async def _served_and_refused(tmp_path: Path, ca: Authority) -> None:
    others = make_ca(tmp_path / "others", "others")
    trusting = TlsOptions(ca=ca.cert)

    def shown(pair: Any) -> TlsOptions:
        return dataclasses.replace(trusting, certificate=pair.cert, key=pair.key)

    good = issue(ca, ["127.0.0.1"])
    both = {"certificate": str(good.cert), "key": str(good.key)}
    for pair, words in [
        (issue(others, ["127.0.0.1"]), "unable to get local issuer"),
        (issue(ca, ["localhost"]), "not valid for '127.0.0.1'"),
        (issue(ca, ["127.0.0.1"], days=-1), "expired"),
        (issue(ca, ["127.0.0.1"], starts_in_days=2), "not yet valid"),
    ]:
        async with serving(tmp_path, certificate=str(pair.cert), key=str(pair.key)) as address:
            for said in await refusals(address, trusting):
                assert words in said, said

    async with serving(tmp_path, **both) as address:  # permissive
        for options in (trusting, None, TlsOptions(verify=False)):
            await ask(address, options)
            await asyncio.to_thread(ask_blocking, address, options)
    async with serving(tmp_path, **both, mode="enforcing") as address:
        for said in await refusals(address, None):
            assert address in said and ("TLS" in said or "lost" in said), said
    async with serving(tmp_path, **both, mode="disabled") as address:
        for said in await refusals(address, trusting):
            assert address in said and "in the handshake" in said, said
    asking = {"verify_clients": True, "trusted": str(ca.cert)}
    async with serving(tmp_path, **both, **asking) as address:
        await ask(address, shown(issue(ca, ["app"], client=True)))
        for options in (trusting, shown(issue(others, ["app"], client=True))):
            for said in await refusals(address, options):
                assert "certificate" in said or "lost" in said, said


def test_certificates_roll_at_both_ends_without_a_failed_request(
    tmp_path: Path, ca: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers' and clients' pairs are replaced while new connections are made all the time."""
    monkeypatch.setattr(pem, "LOOK_MS", 0)
    asyncio.run(_roll(tmp_path, ca))


async def _roll(tmp_path: Path, ca: Authority) -> None:
    server, client = (tmp_path / "server", tmp_path / "client")
    serials: set[bytes] = set()

    def roll(name: Path, *, of_client: bool) -> dict[str, str]:
        pair = issue(ca, ["127.0.0.1"], client=of_client)
        for path, suffix in ((pair.key, ".key"), (pair.cert, ".pem")):  # never both at once
            new = name.with_suffix(".new")
            new.write_bytes(path.read_bytes())
            new.replace(name.with_suffix(suffix))
        serials.add(pair.cert.read_bytes())
        return {"certificate": f"{name}.pem", "key": f"{name}.key"}

    mine, theirs = roll(client, of_client=True), roll(server, of_client=False)
    options = TlsOptions(ca=ca.cert, **mine)
    asking = {"verify_clients": True, "trusted": str(ca.cert), "mode": "enforcing"}
    async with serving(tmp_path, **theirs, **asking) as address:
        made = 0

        async def keep_asking(how: Any) -> None:
            nonlocal made
            while len(serials) < 12:
                await how()
                made += 1

        tasks = [
            asyncio.create_task(keep_asking(lambda: ask(address, options))),
            asyncio.create_task(
                keep_asking(lambda: asyncio.to_thread(ask_blocking, address, options))
            ),
        ]
        for turn in range(10):
            before = made
            while made < before + 4:
                await asyncio.sleep(0.005)
                assert not any(task.done() and task.exception() for task in tasks), tasks
            roll(client if turn % 2 else server, of_client=bool(turn % 2))
        await asyncio.gather(*tasks)
        context = options._client_tls.context()
        assert context is not None and made >= 40
