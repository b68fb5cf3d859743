"""Name servers that run an etcd among them: `--controller managed`."""

import asyncio
import os
import shutil
import signal
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.certificates import issue, make_ca
from tests.interop.clients import etcd_program
from tests.interop.etcd import HOST, ask
from tests.interop.peers import START_TIMEOUT_S, Server, free_port, start_roquette_namesrv

from roquette.apps.managed_etcd import ManagedEtcd
from roquette.apps.running import load_settings
from roquette.base.clock import SystemClock
from roquette.base.config import Sources
from roquette.base.files import OsFiles
from roquette.base.foreign_keys import NAMESRV
from roquette.errors import AgreementError, ConfigError, RemoteProtocolError
from roquette.nameserver.floor.config import NamesrvConfig
from roquette.remoting.client import RemotingClient
from roquette.remoting.etcd import open_agreement
from roquette.replication.record import Stored

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]


def until(what: Callable[[], bool], server: Server | None = None) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while not what():
        assert time.monotonic() < end, server and server.process.tail()
        time.sleep(0.05)


KEY = "roquette/c/b"  # what name servers serve


class Three:
    """Three name servers, each with a member; `encrypted`: they speak TLS to each other."""

    def __init__(self, folder: Path, encrypted: bool) -> None:
        self.folders = [folder / f"n{i}" for i in range(3)]
        self.ports = [free_port() for _ in range(3)]
        self.clients = [free_port() for _ in range(3)]
        self.servers: list[Server | None] = [None] * 3
        self.tls: dict[str, str] = {}
        self.context: ssl.SSLContext | None = None
        if encrypted:
            ca = make_ca(folder)
            pair = issue(ca, [HOST], both=True)
            names = ("controllerCaFile", "controllerCertFile", "controllerKeyFile")
            self.tls = {key: str(path) for key, path in zip(names, (ca.cert, *pair))}
            self.context = ssl.create_default_context(cafile=ca.cert)
            self.context.load_cert_chain(*pair)

    def start(self, number: int) -> None:
        peers = (f"n{i}={HOST}:{self.ports[i]}:{self.clients[i]}" for i in range(3))
        settings = {
            "controller": "managed",
            "controllerPeers": ";".join(peers),
            "controllerSelf": f"n{number}",
            "controllerStorePath": str(self.folders[number] / "c"),
            "controllerProgram": str(etcd_program()),
            **self.tls,
        }
        self.servers[number] = start_roquette_namesrv(self.folders[number], settings)

    def start_all(self) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.start, range(3)))
        self.wait(0, 1, 2)

    def server(self, number: int) -> Server:
        server = self.servers[number]
        assert server is not None
        return server

    def pid(self, number: int) -> int:
        """Of the member."""
        return int((self.folders[number] / "c" / "etcd.pid").read_text())

    def alive(self, number: int) -> bool:
        """Does the member answer, so that there is a majority behind it?"""
        try:
            path, body = "/v3/kv/range", {"key": "eA=="}
            asked = ask(self.clients[number], path, body, tls=self.context)
            asyncio.run(
                asyncio.wait_for(asked, 2.0)
            )  # without a majority it accepts, and is silent
        except (OSError, EOFError, AssertionError):
            return False
        return True

    def wait(self, *numbers: int) -> None:
        for number in numbers:
            until(lambda number=number: self.alive(number), self.server(number))  # type: ignore[misc]

    def read(self, *numbers: int) -> Stored:
        """The record, by each of these name servers alike; one whose members elect a leader is asked again."""

        async def ask_all() -> Stored:
            client = RemotingClient(SystemClock())
            found = set()
            for number in numbers:
                address = self.server(number).address
                agreement = await open_agreement(address, client, OsFiles())
                end = time.monotonic() + START_TIMEOUT_S
                while True:
                    try:
                        found.add(await agreement.get(KEY))
                        break
                    except AgreementError:
                        assert time.monotonic() < end, self.server(number).process.tail()
                        await asyncio.sleep(0.2)
            await client.close()
            (one,) = found
            return one

        return asyncio.run(ask_all())

    def write(self, number: int, value: bytes) -> Stored:
        """Replace the record, by one name server."""

        async def put() -> Stored:
            client = RemotingClient(SystemClock())
            agreement = await open_agreement(self.server(number).address, client, OsFiles())
            end = time.monotonic() + START_TIMEOUT_S
            while True:
                try:
                    before = await agreement.get(KEY)
                    new = await agreement.put_if(KEY, before.revision, value)
                except AgreementError:
                    if time.monotonic() > end:
                        raise
                    continue
                await client.close()
                assert new or before.value == value
                return Stored(new or before.revision, value)

        return asyncio.run(put())

    def stop(self) -> None:
        for server in self.servers:
            if server is not None:
                server.process.stop()


@pytest.fixture
def three(tmp_path: Path, etcd_binary: Path, request: pytest.FixtureRequest) -> Iterator[Three]:
    """Started, with a majority behind each."""
    found = Three(tmp_path, encrypted=request.param)
    try:
        found.start_all()
        yield found
    finally:
        found.stop()


def gone(pid: int) -> bool:
    try:
        return not Path(f"/proc/{pid}/cmdline").read_bytes()  # a zombie that nobody has looked at
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("three", [False], indirect=True)
def test_members_of_one_machine_need_no_certificates(three: Three) -> None:
    record = three.write(0, b"1")
    assert three.read(0, 1, 2) == record


@pytest.mark.promise(
    "Groups of brokers",
    "managed: members are started again, end with their name server, are replaced, show certificates",
)
@pytest.mark.promise(
    "Security",
    "keys of the controller's store are groups' records; its etcd takes members of its authority alone",
)
@pytest.mark.parametrize("three", [True], indirect=True)
def test_the_record_outlives_members_and_name_servers(three: Three) -> None:
    record = three.write(0, b"1")
    stranger = ssl.create_default_context(cafile=three.tls["controllerCaFile"])
    with pytest.raises((OSError, EOFError)):  # it shows no certificate
        asyncio.run(ask(three.clients[0], "/v3/kv/range", {"key": "eA=="}, tls=stranger))
    with pytest.raises((OSError, EOFError, RemoteProtocolError, AssertionError)):
        asyncio.run(ask(three.clients[0], "/v3/kv/range", {"key": "eA=="}))
    assert three.read(0, 1, 2) == record

    killed = three.pid(0)  # a member is killed: its name server starts it again
    os.kill(killed, signal.SIGKILL)
    assert three.read(1, 2) == record
    record = three.write(1, b"2")
    until(lambda: three.pid(0) != killed and three.alive(0), three.server(0))
    assert three.read(0, 1, 2) == record

    orphan = three.pid(1)  # a name server is killed: the next one ends what it has left
    three.server(1).process.kill()
    assert not gone(orphan)
    record = three.write(0, b"3")
    three.start(1)
    until(lambda: three.pid(1) != orphan and three.alive(1), three.server(1))
    assert gone(orphan)
    assert three.read(0, 1, 2) == record

    member = three.pid(2)  # a name server is stopped: its member ends with it
    assert three.server(2).stop() == 0
    assert gone(member)
    record = three.write(0, b"4")

    shutil.rmtree(three.folders[2] / "c")  # and its disk is lost: a new member takes its place
    three.start(2)
    three.wait(2)
    assert three.read(2) == record
    assert "a new one takes its place" in three.server(2).process.tail(100_000)

    pids = [three.pid(i) for i in range(3)]
    for number in range(3):  # all of them at once
        three.server(number).process.popen.terminate()
    for number in range(3):  # a second signal would end it at once
        assert three.server(number).process.popen.wait(60) == 0
    assert all(gone(pid) for pid in pids)
    three.start_all()
    assert three.read(0, 1, 2) == record


@pytest.mark.promise("Groups of brokers", "managed: a member without data elects no old record")
@pytest.mark.parametrize("three", [False], indirect=True)
def test_a_wiped_member_does_not_make_an_old_one_the_majority(three: Three) -> None:
    """Before: it began anew while nobody answered, elected one that lacked the newest record, and that was lost."""
    three.write(0, b"1")
    assert three.server(1).stop() == 0
    record = three.write(0, b"2")
    for number in (0, 2):
        assert three.server(number).stop() == 0
    shutil.rmtree(three.folders[2] / "c")
    three.start(2)
    said = ("etcd started", "has no data: it waits for")
    until(lambda: any(words in three.server(2).process.tail(100_000) for words in said))
    time.sleep(1)
    three.start(1)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        assert not three.alive(1)
        time.sleep(0.1)
    three.start(0)
    three.wait(0, 1, 2)
    assert three.read(0, 1, 2) == record


@pytest.mark.promise("Groups of brokers", "managed: no program, or an old one")
@pytest.mark.parametrize(
    "settings, words",
    [
        ({"controllerProgram": "no-such-etcd"}, "needs etcd 3.5.9 or newer: no program"),
        ({"controllerProgram": "OLD"}, "needs etcd 3.5.9 or newer: OLD says"),
        ({"controllerProgram": "/bin/true"}, "needs etcd 3.5.9 or newer: /bin/true says"),
        ({"controllerSelf": "n9"}, "controllerSelf='n9' is none of controllerPeers: n0"),
        ({"controllerPeers": "n0=a:1"}, "'n0=a:1' is not of the form NAME=HOST:PEERPORT:CLIENT"),
        ({"controllerPeers": "n0=a:1:2;n0=b:1:2"}, "names each member once"),
        ({"controllerCertFile": "a.pem"}, "belong together: one is missing"),
        (
            dict.fromkeys(
                ("controllerCaFile", "controllerCertFile", "controllerKeyFile"), "no.pem"
            ),
            "the files of controllerCertFile cannot be used: [Errno 2] No such file",
        ),
    ],
)
def test_what_it_cannot_run_is_told(tmp_path: Path, settings: dict[str, str], words: str) -> None:
    old = tmp_path / "etcd"
    old.write_text("#!/bin/sh\necho etcd Version: 3.5.8\n")
    old.chmod(0o755)
    given = {"controllerStorePath": str(tmp_path / "c"), "controllerProgram": "/bin/true"}
    given |= {key: text.replace("OLD", str(old)) for key, text in settings.items()}

    async def start() -> None:
        (config,) = load_settings((NamesrvConfig,), NAMESRV, Sources(overrides=given, environ={}))
        await ManagedEtcd(config, OsFiles()).start()

    with pytest.raises(ConfigError) as error:
        asyncio.run(start())
    assert words.replace("OLD", str(old)) in str(error.value)


@pytest.fixture(scope="module")
def etcd_binary() -> Path:
    """Skips without it."""
    return etcd_program()
