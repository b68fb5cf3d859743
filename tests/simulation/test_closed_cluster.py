"""A cluster in which every server asks for signatures and rights: it works as an open one for whom it knows, and for nobody else."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.access.attackers import connect
from tests.simulation.test_group import MEMBERS, in_step, master, until

from roquette import StartFrom
from roquette.access.model import AccessSettings
from roquette.admin import access
from roquette.admin.replication import group_states
from roquette.apps.features import replica_features
from roquette.broker.group.member import GroupMember
from roquette.broker.replication.ha_ticket import words_of
from roquette.broker.replication.master import MasterReplication
from roquette.client.client import Client
from roquette.errors import ClientError, ConfigError
from roquette.message.message import ReceivedMessage
from roquette.wire.codes import RequestCode
from roquette.wire.header_codec import ext_dict
from roquette.wire.signature import Credentials
from roquette_testing.cluster import SimCluster, simulate

NAME_SERVERS = ("10.0.0.1", "10.0.0.2")
INNER = Credentials("inner", "1nner")
CLOSED = AccessSettings(
    authentication_enabled=True,
    authorization_enabled=True,
    init_authentication_user='{"username":"root","password":"r00t"}',
    inner_client_authentication_credentials='{"accessKey":"inner","secretKey":"1nner"}',
)
ROOT, ALICE = Credentials("root", "r00t"), Credentials("alice", "4lice")

pytestmark = pytest.mark.simulation


async def closed_group(cluster: SimCluster) -> Client:
    """Two name servers, a group of three, and its operator."""
    cluster.access = CLOSED
    await cluster.add_namesrv(NAME_SERVERS[0], controller="embedded")
    await cluster.add_namesrv(NAME_SERVERS[1])
    for ip in MEMBERS:
        await cluster.add_member(ip, "orders")
    await until(lambda: in_step(cluster) == 3)
    return await cluster.client("10.0.9.1", credentials=ROOT)


async def know_alice(operator: Client) -> None:
    run, servers = operator.session.run, operator.session.name_servers
    rules = [
        access.AclRow("User:alice", "Custom", resource, "Pub,Sub,Get", "", "Allow")
        for resource in ("Topic:T*", "Group:g", "Topic:TBW102")
    ]
    making = access.save_user("alice", servers, create=True, password="4lice")
    for change in (making, access.put_rules(rules, servers)):
        told = await run(change)
        assert [one.error for one in told] == [""] * 3, told


def users_at(cluster: SimCluster, ip: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.hosts[ip].service.broker.core.access.users.state.users
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_closed_group_sends_takes_over_and_knows_everybody_afterwards(seed: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        operator = await closed_group(cluster)
        await know_alice(operator)
        await until(lambda: all("alice" in users_at(cluster, ip) for ip in MEMBERS))
        mq = await cluster.client("10.0.9.2", credentials=ALICE)
        got: list[ReceivedMessage] = []
        await mq.subscribe("T", group="g", handler=got.append, start_from=StartFrom.FIRST)

        async def send(body: bytes) -> None:
            for _ in range(200):
                try:
                    if (await mq.send("T", body)).status == "SEND_OK":
                        return
                except ClientError as error:
                    if "permission" in str(error):
                        raise
                await asyncio.sleep(0.1)
            raise AssertionError("nothing is taken")

        await send(b"1")
        first = master(cluster)
        assert first is not None
        cluster.kill(first)
        await until(lambda: master(cluster) not in (None, first), 60)
        await send(b"2")
        await until(lambda: {b"1", b"2"} <= {message.body for message in got}, 120)
        with pytest.raises(ClientError, match="has no permission"):
            await mq.send("Other", b"x")
        told = await operator.session.run(access.list_users(operator.session.name_servers))
        assert {row.username for row in told} == {"alice", "inner", "root"}

    simulate(scenario, seed=seed)


@pytest.mark.parametrize(
    ("credentials", "words"),
    [
        (None, "username cannot be null"),
        (Credentials("root", "wrong"), "check signature failed"),
        (Credentials("eve", "r00t"), "is not found"),
    ],
)
def test_who_is_not_known_gets_nothing_and_is_told_why(
    credentials: Credentials | None, words: str
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        cluster.access = CLOSED
        await cluster.add_namesrv(NAME_SERVERS[0])
        await cluster.add_broker(MEMBERS[0], "broker-a")
        mq = await cluster.client("10.0.9.2", credentials=credentials)
        with pytest.raises(ClientError, match=words):
            await mq.send("T", b"x")

    simulate(scenario, seed=1)


def test_a_broker_without_credentials_is_not_registered_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        cluster.access = CLOSED
        await cluster.add_namesrv(NAME_SERVERS[0])
        cluster.access = AccessSettings()
        await cluster.add_broker(MEMBERS[0], "broker-a")
        await asyncio.sleep(100)

    simulate(scenario, seed=1)
    said = [r for r in caplog.records if "username cannot be null" in r.getMessage()]
    assert len(said) == 1 and said[0].name == "roquette.broker.registration"
    assert 1 <= len([r for r in caplog.records if r.name == "roquette.audit"]) <= 12


@pytest.mark.promise(
    "Security",
    "the replication port is for replicas of super users' servers, and a ticket for one connection",
)
def test_the_log_is_given_to_replicas_with_a_ticket_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: SimCluster) -> None:
        cluster.access = CLOSED
        await cluster.add_namesrv(NAME_SERVERS[0])
        broker = await cluster.add_broker(MEMBERS[0], "broker-a")
        tickets = broker.feature(MasterReplication)._tickets._tickets
        now_ms = broker.core.clock.steady_ms

        async def say(*parts: bytes) -> bytes:
            """What comes back until the connection is closed, or for a second."""
            reader, writer = await asyncio.open_connection(MEMBERS[0], broker.core.identity.ha_port)
            ip = writer.get_extra_info("sockname")[0]
            said.append(ip)
            for part in parts:
                writer.write(part)
                await asyncio.sleep(0.01)
            try:
                async with asyncio.timeout(1):
                    return b"closed " + await reader.read(100)
            except (TimeoutError, ConnectionError) as error:
                return b"open" if isinstance(error, TimeoutError) else b"closed "
            finally:
                writer.close()

        said: list[str] = []
        assert await say(bytes(8)) == b"closed "
        assert "no replica at this address has asked for a ticket" in caplog.text
        here = said[0]

        def ticket(number: int, ip: str = here) -> bytes:
            return words_of(tickets.give(f"{number:064x}", ip, now_ms()))

        report = bytes(8)  # of a replica that has nothing
        await asyncio.sleep(11)  # lines of one kind are one in 10 s
        good = ticket(1)
        assert await say(report) == b"closed "  # none
        assert "it says no ticket" in caplog.text
        assert await say(good[:-1] + b"f") == b"closed "  # another one
        assert await say(ticket(2, "10.9.9.9")) == b"closed "  # another address's
        assert await say(good[:20], good[20:], report) == b"open"
        ticket(3)
        assert await say(good) == b"closed "  # used
        old = ticket(4)
        await asyncio.sleep(29)
        ticket(5)
        await asyncio.sleep(2)
        assert await say(old) == b"closed "
        assert "its ticket is wrong, too old" in caplog.text

    simulate(scenario, seed=1)


@pytest.mark.parametrize("allowed", ["10.0.1.0/24", ""])
def test_a_replica_of_apaches_is_let_in_by_its_address(allowed: str) -> None:
    """One that asks for no ticket: here ours without credentials, which cannot sign its question."""

    async def scenario(cluster: SimCluster) -> None:
        cluster.access = replace(CLOSED, ha_allowed_replicas=allowed)
        broker = await cluster.add_broker(MEMBERS[0], "broker-a", name_servers="")
        # It asks where the log begins unsigned, which is let through here.
        codes = str(int(RequestCode.GET_BROKER_RUNTIME_INFO))
        broker.core.protection.guard.__self__._open |= {int(codes)}  # type: ignore[union-attr]
        cluster.access = AccessSettings()
        await cluster.add_broker(
            MEMBERS[1],
            "broker-a",
            name_servers="",
            features=replica_features,
            broker_role="SLAVE",
            broker_id=1,
            ha_master_address=f"{MEMBERS[0]}:{broker.core.identity.ha_port}",
        )
        await asyncio.sleep(10)
        connected = int(broker.runtime_info(0)["replicas"])
        assert connected == (1 if allowed else 0)

    simulate(scenario, seed=1)


@pytest.mark.promise(
    "Security",
    "no request answers a secret; replicas get users sealed, and members of before get none",
)
def test_a_member_of_before_gets_its_ticket_and_no_secrets() -> None:
    """It signs without proofs: a request of no fields for the ticket, and asks for users without a number of its own."""

    async def scenario(cluster: SimCluster) -> None:
        cluster.access = CLOSED
        await cluster.add_namesrv(NAME_SERVERS[0])
        await cluster.add_broker(MEMBERS[0], "broker-a")
        old = await connect((MEMBERS[0], 10911), INNER)
        ticket = await old.ask(RequestCode.GET_HA_TICKET)
        assert ticket.code == 0 and len(ext_dict(ticket.ext)["ticket"]) == 64
        moved = await old.ask(RequestCode.GET_HA_TICKET, {"anything": "more"})
        assert (moved.code, moved.remark) == (16, "this was signed as another request")
        users = await old.ask(RequestCode.FOLLOW_TABLES, {"what": "users"})
        assert users.code == 16 and users.remark is not None and "told sealed" in users.remark
        for code, ext in ((RequestCode.FOLLOW_TABLES, {"what": "orders"}), (RequestCode.GET_ALL_TOPIC_CONFIG, {})):  # fmt: skip
            assert (await old.ask(code, ext)).code == 0

    simulate(scenario, seed=1)


def test_the_status_of_a_group_says_that_a_member_of_before_gets_no_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(cluster: SimCluster) -> None:
        operator = await closed_group(cluster)
        run, servers = operator.session.run, operator.session.name_servers
        (state,) = await run(group_states(servers, "orders"))
        assert state.healthy and state.notes == []
        old = cluster.hosts[MEMBERS[0]].service
        health = GroupMember.health

        def without(self: GroupMember, users: int) -> dict[str, str]:
            shown = health(self, users)
            if self is old:
                del shown["groupUsers"]  # as the head before
            return shown

        monkeypatch.setattr(GroupMember, "health", without)
        (state,) = await run(group_states(servers, "orders"))
        (note,) = state.notes
        assert state.healthy and "is of an older version: users and rules pass neither" in note

    simulate(scenario, seed=1)


def test_nobody_could_log_in_ends_the_start() -> None:
    async def scenario(cluster: SimCluster) -> None:
        cluster.access = AccessSettings(authentication_enabled=True)
        with pytest.raises(ConfigError, match="nobody could log in"):
            await cluster.add_namesrv(NAME_SERVERS[0])

    simulate(scenario, seed=1)
