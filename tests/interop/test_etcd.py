"""Groups' records in real etcd: one member and three, killed, stopped and led by others, with users and TLS."""

import asyncio
import contextlib
import shutil
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.clients import etcd_program
from tests.interop.etcd import Etcd, Member, ask, certificates
from tests.interop.peers import Server, start_roquette_namesrv

from roquette.base.clock import SystemClock
from roquette.base.files import OsFiles
from roquette.errors import AgreementError, ConfigError
from roquette.remoting.client import RemotingClient
from roquette.remoting.etcd import EtcdAgreement, open_agreement, parse_etcd
from roquette.replication.record import Agreement, Stored

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """Three members."""
    members = Etcd(tmp_path_factory.mktemp("etcd"), 3)
    try:
        yield members.start().wait()
    finally:
        members.stop()


async def opened(url: str) -> EtcdAgreement:
    agreement = EtcdAgreement(parse_etcd(url), OsFiles())
    await agreement.load()
    return agreement


async def read(agreement: Agreement, key: str) -> Stored:
    """However often it must be asked."""
    while True:
        try:
            return await agreement.get(key)
        except AgreementError:
            await asyncio.sleep(0.05)


async def written(agreement: Agreement, key: str, revision: int, value: bytes) -> int:
    """The revision that this value has got, however often it must be asked; nobody else writes this value."""
    while True:
        with contextlib.suppress(AgreementError):
            if found := await agreement.put_if(key, revision, value):
                return found
        now = await read(agreement, key)
        if now.revision != revision:
            assert now.value == value
            return now.revision


async def add_one(agreement: Agreement, key: str, who: int) -> bool:
    """Try once to make the number under a key larger by one, whatever happens to the answers; whether we did."""
    found = await read(agreement, key)
    count = int(found.value.split()[0]) if found.value else 0
    ours = b"%d by %d" % (count + 1, who)
    while True:
        try:
            return await agreement.put_if(key, found.revision, ours) is not None
        except AgreementError:
            now = await read(agreement, key)
            if now.revision != found.revision:
                return now.value == ours or await passed(now, count + 1)


async def passed(now: Stored, count: int) -> bool:
    """Somebody has gone on from a number that may have been ours: that cannot be told any more."""
    assert int(now.value.split()[0]) >= count
    raise LookupError


def test_get_and_put_if(etcd: Etcd) -> None:
    async def scenario() -> None:
        agreement = await opened(etcd.url)
        assert await agreement.get("a") == Stored(0, b"")
        assert await agreement.put_if("a", 5, b"x") is None
        value = bytes(range(256)) * 256
        first = await agreement.put_if("a", 0, value)
        assert first and await agreement.get("a") == Stored(first, value)
        assert await agreement.put_if("a", 0, b"y") is None
        other = await agreement.put_if("b", 0, b"")
        second = await agreement.put_if("a", first, b"z")
        assert other and second and first < other < second
        for member in etcd.members:
            alone = await opened(f"etcd://127.0.0.1:{member.port}")
            assert await alone.get("a") == Stored(second, b"z")
            assert await alone.get("b") == Stored(other, b"")
            await alone.close()
        below = await opened(etcd.url + "/prod")
        assert await below.get("a") == Stored(0, b"")
        await agreement.close()
        await below.close()

    asyncio.run(scenario())


def test_of_many_clients_one_wins(etcd: Etcd) -> None:
    async def scenario() -> None:
        urls = [f"etcd://127.0.0.1:{member.port}" for member in etcd.members]
        clients = [await opened(urls[i % 3]) for i in range(9)]
        revision = 0
        for step in range(40):
            puts = (c.put_if("race", revision, b"%d" % i) for i, c in enumerate(clients))
            outcomes = await asyncio.gather(*puts)
            won = [(i, new) for i, new in enumerate(outcomes) if new is not None]
            assert len(won) == 1, step
            ((winner, revision),) = won
            found = await asyncio.gather(*(client.get("race") for client in clients))
            assert set(found) == {Stored(revision, b"%d" % winner)}
        for client in clients:
            await client.close()

    asyncio.run(scenario())


async def disturbed(etcd: Etcd, member: Member, how: str) -> None:
    """A fault of one member, and its end."""
    if how == "stop":
        member.pause()
        await asyncio.sleep(1.5)
        member.send(signal.SIGCONT)
    else:
        member.kill()
        await asyncio.sleep(0.5)
        member.start(etcd.names)


@pytest.mark.promise(
    "Groups of brokers", "etcd: a member fails; users, TLS; asked through name servers"
)
@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize("whom", ["leader", "asked"])
def test_nothing_is_lost_or_done_twice_when_a_member_fails(etcd: Etcd, whom: str, how: str) -> None:
    """Three writers add to one number; each addition that was told to have won is in it, once."""

    async def scenario() -> None:
        key = f"count-{whom}-{how}"
        writers = [await opened(etcd.url) for _ in range(3)]
        sure, unsure, over = [0] * 3, [0] * 3, asyncio.Event()

        async def write(who: int) -> None:
            while not over.is_set():
                try:
                    sure[who] += await add_one(writers[who], key, who)
                except LookupError:
                    unsure[who] += 1

        tasks = [asyncio.create_task(write(who)) for who in range(3)]
        await asyncio.sleep(0.3)
        member = await etcd.leader() if whom == "leader" else etcd.members[writers[0]._at]
        await disturbed(etcd, member, how)
        before = sum(sure)
        while sum(sure) < before + 20:  # it goes on
            await asyncio.sleep(0.05)
        over.set()
        await asyncio.gather(*tasks)
        count = int((await read(writers[0], key)).value.split()[0])
        assert sum(sure) <= count <= sum(sure) + sum(unsure)
        for writer in writers:
            await writer.close()

    asyncio.run(scenario())
    etcd.wait()


@pytest.mark.promise(
    "Groups of brokers", "no majority of etcd: nothing is answered, and the brokers say so"
)
def test_without_a_majority_nothing_is_answered(etcd: Etcd) -> None:
    async def scenario() -> None:
        agreement = await opened(etcd.url)
        revision = await written(agreement, "majority", 0, b"1")
        for member in etcd.members[1:]:
            member.pause()
        try:
            with pytest.raises(AgreementError):
                await agreement.get("majority")
            with pytest.raises(AgreementError):
                await agreement.put_if("majority", revision, b"2")
        finally:
            for member in etcd.members[1:]:
                member.send(signal.SIGCONT)
        found = await read(agreement, "majority")
        assert found.value in (b"1", b"2")
        await agreement.close()

    asyncio.run(scenario())


@pytest.mark.promise(
    "Groups of brokers", "etcd: a member fails; users, TLS; asked through name servers"
)
def test_brokers_ask_it_through_name_servers(etcd: Etcd, tmp_path: Path) -> None:
    servers: list[Server] = []
    try:
        for name in ("n1", "n2"):
            where = {"controller": etcd.url + "/through"}
            servers.append(start_roquette_namesrv(tmp_path / name, where))

        async def scenario() -> None:
            client = RemotingClient(SystemClock())
            addresses = ";".join(server.address for server in servers)
            agreement = await open_agreement(addresses, client, OsFiles())
            first = await written(agreement, "roquette/c/b", 0, b"1")
            assert await agreement.put_if("roquette/c/b", 0, b"2") is None
            servers[0].process.kill()
            assert await read(agreement, "roquette/c/b") == Stored(first, b"1")
            await written(agreement, "roquette/c/b", first, b"2")
            direct = await opened(etcd.url + "/through")
            assert (await direct.get("roquette/c/b")).value == b"2"
            await direct.close()
            await client.close()

        asyncio.run(scenario())
    finally:
        for server in servers:
            server.stop()


@pytest.mark.promise(
    "Groups of brokers", "etcd: a member fails; users, TLS; asked through name servers"
)
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for certificates")
def test_users_and_tls(tmp_path: Path, etcd_binary: Path) -> None:
    certificates(tmp_path)
    flags = ["--cert-file", f"{tmp_path}/server.pem", "--key-file", f"{tmp_path}/server.key"]
    flags += ["--client-cert-auth", "--trusted-ca-file", f"{tmp_path}/ca.pem"]
    lone = Etcd(tmp_path, 1, *flags, "--auth-token-ttl", "1", tls=True)
    tls = ssl.create_default_context(cafile=f"{tmp_path}/ca.pem")
    tls.load_cert_chain(f"{tmp_path}/client.pem", f"{tmp_path}/client.key")
    (tmp_path / "password").write_text("s3cret\n")
    ours = f"certFile={tmp_path}/client.pem&keyFile={tmp_path}/client.key"
    url = f"{lone.url}?user=root&passwordFile={tmp_path}/password"

    async def scenario() -> None:
        port = lone.members[0].port
        await ask(port, "/v3/auth/user/add", {"name": "root", "password": "s3cret"}, tls=tls)
        await ask(port, "/v3/auth/role/add", {"name": "root"}, tls=tls)
        await ask(port, "/v3/auth/user/grant", {"user": "root", "role": "root"}, tls=tls)
        await ask(port, "/v3/auth/enable", {}, tls=tls)
        agreement = await opened(f"{url}&caFile={tmp_path}/ca.pem&{ours}")
        first = await agreement.put_if("k", 0, b"1")
        assert first
        for _ in range(2):  # tokens end after a second
            await asyncio.sleep(1.1)
            assert await agreement.get("k") == Stored(first, b"1")
        await agreement.close()
        (tmp_path / "password").write_text("wrong")
        wrong = {
            f"caFile={tmp_path}/ca.pem&{ours}": "does not let root in",
            f"caFile={tmp_path}/other.pem&{ours}": "CERTIFICATE_VERIFY_FAILED",
            f"tls=true&{ours}": "CERTIFICATE_VERIFY_FAILED",
            f"caFile={tmp_path}/ca.pem": ".",  # no certificate of ours
            "tls=false": ".",
        }
        for words, said in wrong.items():
            agreement = await opened(f"{url}&{words}")
            for asked in (agreement.get("k"), agreement.put_if("k", first, b"2")):
                with pytest.raises(AgreementError, match=said) as error:
                    await asked
                assert "s3cret" not in str(error.value)
            await agreement.close()
        with pytest.raises(ConfigError, match="cannot be used"):
            await opened(f"{url}&caFile={tmp_path}/ca.key")

    try:
        lone.start().wait(tls)
        asyncio.run(scenario())
    finally:
        lone.stop()


@pytest.fixture(scope="session")
def etcd_binary() -> Path:
    """Skips without it."""
    return etcd_program()
