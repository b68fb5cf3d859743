"""Records in etcd: what its address says, and what the client makes of members that err, stall, lie or die.

The members here are made of bare HTTP in virtual time; the real ones stand in tests/interop/test_etcd.py.
"""

import asyncio
import base64
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from roquette.errors import AgreementError, ConfigError
from roquette.remoting import etcd
from roquette.remoting.client import RemotingClient
from roquette.remoting.etcd import (
    MOST_BODY,
    EtcdAddress,
    EtcdAgreement,
    RemoteAgreement,
    open_agreement,
    parse_etcd,
)
from roquette.replication.record import Stored
from roquette_testing.cluster import SimCluster, simulate
from roquette_testing.faulty_files import FaultyFiles

MEMBERS = ("10.0.5.1", "10.0.5.2", "10.0.5.3")
CLIENT = "10.0.2.1"
URL = "etcd://" + ",".join(f"{ip}:2379" for ip in MEMBERS)


def text64(text: str) -> bytes:
    return base64.b64decode(text)


class Members:
    """A fake etcd: one table behind several addresses, and what each of them does with a request.

    Attributes:
        asked: (member, path) of each request. how: ip to what is done before the answer; may return other bytes.
        tokens: those that let in; None: everybody is let in.
    """

    def __init__(self) -> None:
        self.table: dict[bytes, Stored] = {}
        self.revision = 1
        self.asked: list[tuple[str, str]] = []
        self.how: dict[str, Callable[[bytes], Awaitable[bytes]]] = {}
        self.tokens: list[str] | None = None
        self.chunked = False
        self.connections = 0

    async def start(self, ip: str) -> None:
        await asyncio.start_server(lambda r, w: self.serve(ip, r, w), ip, 2379)

    async def serve(
        self, ip: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        with contextlib.suppress(OSError, EOFError):
            await self.serve_all(ip, reader, writer)

    async def serve_all(
        self, ip: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:-2])
            body = json.loads(await reader.readexactly(int(fields["Content-Length"])))
            path = head.split()[1].decode()
            self.asked.append((ip, path))
            answer = self.frame(*self.answer(path, body, fields.get("Authorization", "")))
            if ip in self.how:
                answer = await self.how[ip](answer)
            if not answer:
                writer.transport.abort()
                return
            writer.write(answer)

    def frame(self, status: int, body: dict[str, Any]) -> bytes:
        data = json.dumps(body).encode()
        if not self.chunked:
            return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(data), data)
        head = b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n" % status
        pieces = [data[at : at + 7] for at in range(0, len(data), 7)]
        return head + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"

    def answer(self, path: str, body: dict[str, Any], token: str) -> tuple[int, dict[str, Any]]:
        if path == "/v3/auth/authenticate":
            if body != {"name": "roquette", "password": "secret"}:
                return 400, {"code": 3, "message": "etcdserver: authentication failed"}
            self.tokens = [*(self.tokens or []), f"token-{len(self.asked)}"]
            return 200, {"token": self.tokens[-1]}
        if self.tokens is not None and token not in self.tokens:
            return 401, {"code": 16, "message": "etcdserver: invalid auth token"}
        if path == "/v3/kv/range":
            found = self.table.get(text64(body["key"]))
            kv = found and {
                "mod_revision": str(found.revision),
                "value": base64.b64encode(found.value).decode(),
            }
            return 200, {"header": {"revision": str(self.revision)}} | ({"kvs": [kv]} if kv else {})
        (compare,), (put,) = body["compare"], body["success"]
        key = text64(compare["key"])
        if str(self.table.get(key, Stored(0, b"")).revision) != compare["mod_revision"]:
            return 200, {"header": {"revision": str(self.revision)}}
        self.revision += 1
        self.table[key] = Stored(self.revision, text64(put["requestPut"]["value"]))
        return 200, {"header": {"revision": str(self.revision)}, "succeeded": True}


Scenario = Callable[[SimCluster, Members, EtcdAgreement], Awaitable[None]]


def on_members(scenario: Scenario, url: str = URL) -> None:
    async def main(cluster: SimCluster) -> None:
        members = Members()
        for ip in MEMBERS:
            await cluster.run_on(ip, members.start(ip))
        files = FaultyFiles(1)
        files.write_atomic("/password", b"secret\n")

        async def work() -> None:
            asked = EtcdAgreement(parse_etcd(url), files)
            await asked.load()
            await scenario(cluster, members, asked)
            await asked.close()

        await cluster.run_on(CLIENT, work())

    simulate(main)


async def stall(answer: bytes) -> bytes:
    await asyncio.sleep(30)
    return answer


async def die(answer: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("chunked", [False, True])
def test_get_and_put_if(chunked: bool) -> None:
    async def scenario(cluster: SimCluster, members: Members, asked: EtcdAgreement) -> None:
        members.chunked = chunked
        assert await asked.get("k") == Stored(0, b"")
        value = bytes(range(256)) * 256
        assert await asked.put_if("k", 0, value) == 2
        assert await asked.put_if("k", 0, b"") is None
        assert await asked.get("k") == Stored(2, value)
        assert await asked.put_if("k", 2, b"") == 3
        assert await asked.get("k") == Stored(3, b"")
        assert list(members.table) == [b"k"] and members.connections == 1

    on_members(scenario)


def test_the_path_of_the_address_begins_every_key() -> None:
    async def scenario(cluster: SimCluster, members: Members, asked: EtcdAgreement) -> None:
        await asked.put_if("roquette/c/b", 0, b"v")
        assert list(members.table) == [b"prod/eu/roquette/c/b"]

    on_members(scenario, URL + "/prod/eu/")


@pytest.mark.parametrize("how", [stall, die])
def test_a_read_goes_on_to_the_next_member(how: Any) -> None:
    async def scenario(cluster: SimCluster, members: Members, asked: EtcdAgreement) -> None:
        members.how = dict.fromkeys(MEMBERS[:2], how)
        began = cluster.loop.time()
        assert await asked.get("k") == Stored(0, b"")
        assert cluster.loop.time() - began < (0.6 if how is stall else 0.1)
        began = cluster.loop.time()
        assert await asked.get("k") == Stored(0, b"")  # it stays with the one that answered
        assert cluster.loop.time() - began < 0.05
        members.how = dict.fromkeys(MEMBERS, how)
        with pytest.raises(AgreementError, match=r"10\.0\.5\.2:2379"):
            await asked.get("k")

    on_members(scenario)


@pytest.mark.parametrize("how", [stall, die])
def test_a_write_whose_outcome_is_unknown_is_sent_once(how: Any) -> None:
    async def scenario(cluster: SimCluster, members: Members, asked: EtcdAgreement) -> None:
        members.how = {MEMBERS[0]: how}
        with pytest.raises(AgreementError, match="may not have taken"):
            await asked.put_if("k", 0, b"v")
        assert members.asked == [(MEMBERS[0], "/v3/kv/txn")]
        assert await asked.get("k") == Stored(
            2, b"v"
        )  # by the next member: it had been carried out
        assert await asked.put_if("k", 2, b"w") == 3

    on_members(scenario)


def test_a_write_goes_on_where_no_connection_is_made() -> None:
    async def scenario(cluster: SimCluster, members: Members, asked: EtcdAgreement) -> None:
        cluster.partition(CLIENT, MEMBERS[0])
        cluster.kill(MEMBERS[1])
        assert await asked.put_if("k", 0, b"v") == 2
        assert members.asked == [(MEMBERS[2], "/v3/kv/txn")]
        cluster.kill(MEMBERS[2])
        await asyncio.sleep(1)
        cluster.heal()
        assert await asked.put_if("k", 2, b"w") == 3  # a kept connection that has ended is not used

    on_members(scenario)


BAD = {
    "no http": b"SSH-2.0-x\r\n\r\n",
    "no length": b"HTTP/1.1 200 OK\r\n\r\n{}",
    "large": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MOST_BODY + 1),
    "large chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n"
    % (MOST_BODY + 1),
    "bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}xx\r\n",
    "long head": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 5_000,
    "negative": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "no json": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{x",
    "a list": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[1]",
    "wrong types": b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"kvs":1}',
    "no base64": b'HTTP/1.1 200 OK\r\nContent-Length: 33\r\n\r\n{"kvs":[{"value":"a","x":"12345"}]',
    "no leader": b'HTTP/1.1 503 X\r\nContent-Length: 34\r\n\r\n{"message":"etcdserver: no leader"}',
    "bytes": b"HTTP/1.1 500 X\r\nContent-Length: 2\r\n\r\n\xff\xfe",
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_answer_is_an_error_and_nothing_is_sent_twice(name: str) -> None:
    async def lie(answer: bytes) -> bytes:
        return BAD[name]

    async def scenario(cluster: SimCluster, members: Members, asked: EtcdAgreement) -> None:
        members.how = dict.fromkeys(MEMBERS, lie)
        with pytest.raises(AgreementError):
            await asked.get("k")
        members.asked.clear()
        with pytest.raises(AgreementError):
            await asked.put_if("k", 0, b"v")
        assert len(members.asked) == 1
        members.how.clear()
        assert await asked.get("k") == Stored(2, b"v")

    on_members(scenario)


AS_USER = URL + "?user=roquette&passwordFile=/password"


def test_a_user_gets_a_token_and_a_new_one_when_it_is_over() -> None:
    async def scenario(cluster: SimCluster, members: Members, asked: EtcdAgreement) -> None:
        members.tokens = []
        assert await asked.put_if("k", 0, b"v") == 2
        members.tokens = []  # it is over, or the member was started anew
        assert await asked.put_if("k", 2, b"w") == 3
        members.tokens = []
        answers = await asyncio.gather(*(asked.get("k") for _ in range(50)))
        assert set(answers) == {Stored(3, b"w")}
        assert sum(path.endswith("authenticate") for _, path in members.asked) == 3

    on_members(scenario, AS_USER)


def test_a_wrong_password_is_told_without_it(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: SimCluster, members: Members, asked: EtcdAgreement) -> None:
        asked._files.write_atomic("/password", b"hunter2")
        for ask in (asked.get("k"), asked.put_if("k", 0, b"v")):
            with pytest.raises(AgreementError, match="does not let roquette in") as error:
                await ask
            assert "hunter2" not in str(error.value) + caplog.text

    on_members(scenario, AS_USER)


def test_members_of_two_clusters_are_not_mixed() -> None:
    async def scenario(cluster: SimCluster, members: Members, asked: EtcdAgreement) -> None:
        assert await asked.get("k") == Stored(0, b"")

        async def other(answer: bytes) -> bytes:
            return members.frame(200, {"header": {"cluster_id": "7", "revision": "9"}})

        members.how = dict.fromkeys(MEMBERS[:2], other)
        asked._cluster = "5"
        members.how[MEMBERS[2]] = other
        with pytest.raises(AgreementError, match="cluster 7, not of 5"):
            await asked.get("k")
        with pytest.raises(AgreementError, match="cluster 7, not of 5"):
            await asked.put_if("k", 0, b"v")

    on_members(scenario)


def test_many_calls_share_few_connections() -> None:
    async def scenario(cluster: SimCluster, members: Members, asked: EtcdAgreement) -> None:
        outcomes = await asyncio.gather(*(asked.put_if("k", 0, b"%d" % i) for i in range(500)))
        assert [outcome for outcome in outcomes if outcome] == [2]
        assert members.connections <= etcd.MOST_CONNECTIONS

    on_members(scenario)


def test_brokers_ask_etcd_through_any_name_server() -> None:
    async def main(cluster: SimCluster) -> None:
        members = Members()
        for ip in MEMBERS:
            await cluster.run_on(ip, members.start(ip))
        for ip in ("10.0.0.1", "10.0.0.2"):
            await cluster.add_namesrv(ip, controller=URL)
        client = RemotingClient(cluster.clock, local_host=CLIENT)
        asked = await open_agreement("10.0.0.1:9876;10.0.0.2:9876", client, FaultyFiles(1))
        assert isinstance(asked, RemoteAgreement)
        assert await asked.put_if("roquette/c/k", 0, b"v") == 2
        cluster.partition(CLIENT, "10.0.0.1")
        assert await asked.get("roquette/c/k") == Stored(2, b"v")
        assert await asked.put_if("roquette/c/k", 2, b"w") == 3
        for ip in MEMBERS:
            cluster.kill(ip)
        with pytest.raises(AgreementError, match="etcd did not answer"):
            await asked.get("roquette/c/k")

    simulate(main)


def test_what_an_address_says() -> None:
    assert parse_etcd("etcd://a:1,[::1]:2") == EtcdAddress(members=(("a", 1), ("::1", 2)))
    assert parse_etcd(
        "etcd://a:1/p/q/?user=u&passwordFile=/p&caFile=/c&certFile=/d&keyFile=/k"
    ) == EtcdAddress(
        members=(("a", 1),),
        prefix="p/q/",
        user="u",
        password_file="/p",
        tls=True,
        ca_file="/c",
        cert_file="/d",
        key_file="/k",
    )
    assert parse_etcd("etcd://a:1?tls=true").tls and not parse_etcd("etcd://a:1?tls=false").tls


@pytest.mark.promise("Groups of brokers", "an address with a password, or a wrong one, is refused")
@pytest.mark.parametrize(
    "text",
    [
        "etcd://",
        "etcd://a",
        "etcd://a:b",
        "etcd://a:1,",
        "http://a:1",
        "etcd://u:secret@a:1",
        "etcd://a:1?user=u",
        "etcd://a:1?passwordFile=/p",
        "etcd://a:1?certFile=/c",
        "etcd://a:1?tls=maybe",
        "etcd://a:1?tls=false&caFile=/c",
        "etcd://a:1?password=secret",
        "etcd://a:1#x",
    ],
)
def test_what_is_no_address_is_refused_without_secrets(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_etcd(text)
    assert "@" not in text or "secret" not in str(error.value)


@pytest.mark.parametrize("name", ["passwordFile=/none&user=u", "caFile=/none"])
def test_a_file_that_is_missing_is_told_at_the_start(name: str) -> None:
    async def main(cluster: SimCluster) -> None:
        client = RemotingClient(cluster.clock, local_host=CLIENT)
        with pytest.raises(ConfigError, match="cannot be used"):
            await open_agreement(f"{URL}?{name}", client, FaultyFiles(1))
        for wrong in ("", "a", "a:1;b"):
            with pytest.raises(ConfigError, match="controllerAddr"):
                await open_agreement(wrong, client, FaultyFiles(1))

    simulate(main)
