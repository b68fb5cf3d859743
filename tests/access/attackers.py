"""A closed cluster in virtual time with something to steal in it, and people who try: alice owns it, mallory has an
account with rights of her own, a stranger has none.

What mallory may do: publish and consume `mallory*`, in groups `mallory*`; the operator also has all topics but alice's.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from tests.broker.conftest import RawClient, pull_ext, send_ext
from tests.broker.pop_frames import pop_ext, popped

from roquette.access.model import AccessSettings
from roquette.message.record import decode_records
from roquette.wire.codes import RequestCode as R
from roquette.wire.command import Command
from roquette.wire.header_codec import ext_dict
from roquette.wire.signature import Credentials, Signer
from roquette_testing.cluster import SimCluster, simulate

NAMESRV, BROKER, FAST, HA = ("10.0.0.1", 9876), ("10.0.1.1", 10911), ("10.0.1.1", 10909), ("10.0.1.1", 10912)  # fmt: skip
ADMIN = Credentials("admin", "the-secret-of-admin")
INNER = Credentials("inner", "the-secret-of-servers")
ALICE = Credentials("alice", "the-secret-of-alice")
MALLORY = Credentials("mallory", "the-secret-of-mallory")
OPERATOR = Credentials("operator", "the-secret-of-operator")  # rights on the cluster, no super user
SECRETS = [each.secret_key for each in (ADMIN, INNER, ALICE, OPERATOR)]
SECRET_BODY = b"what only alice may read"
TOPIC, GROUP, PRODUCERS = "alice-orders", "alice-billing", "alice-producers"
NO_PERMISSION = 16


def settings() -> AccessSettings:
    """Of the broker and of the name server."""
    return AccessSettings(
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user=json.dumps(
            {"username": ADMIN.access_key, "password": ADMIN.secret_key}
        ),
        inner_client_authentication_credentials=json.dumps(
            {"accessKey": INNER.access_key, "secretKey": INNER.secret_key}
        ),
    )


class Actor(RawClient):
    """A connection of somebody; requests are signed when there are credentials."""

    heard: list[Command]  # requests of the server

    async def ask(
        self,
        code: int,
        ext: dict[str, Any] | None = None,
        body: bytes = b"",
        *,
        oneway: bool = False,
    ) -> Command:
        """The answer; to a one-way request the answer of the next one, which asks for nothing secret."""
        if oneway:
            self.send(code, ext or {}, body, oneway=True)
            return await self.ask(R.GET_ROUTEINFO_BY_TOPIC, {"topic": "mallory-own"})
        return await self.call(code, ext or {}, body)

    async def listen(self, seconds: float) -> list[Command]:
        """Requests that the server sends within so long."""
        found: list[Command] = []
        try:
            async with asyncio.timeout(seconds):
                while True:
                    command = await self.receive()
                    if not command.is_response:
                        found.append(command)
        except TimeoutError:
            return found


async def connect(place: tuple[str, int], who: Credentials | None) -> Actor:
    """Somebody at a port."""
    actor = Actor(*await asyncio.open_connection(*place))
    actor.wire.signer = None if who is None else Signer(who)
    return actor


class Closed:
    """The cluster. at_broker, at_names: mallory's connections."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.broker: Any = None
        self.name_server: Any = None
        self.admin: Actor
        self.alice: Actor
        self.mallory: Actor
        self.stranger: Actor
        self.mallory_names: Actor
        self.stranger_names: Actor

    async def build(self, broker: dict[str, Any] | None = None) -> None:
        """Servers, users, rules, and what alice has."""
        cluster = self.cluster
        cluster.access = settings()
        self.name_server = await cluster.add_namesrv(NAMESRV[0], controller="embedded")
        self.broker = await cluster.add_broker(
            BROKER[0],
            "broker-a",
            recall_message_enable=True,
            transaction_time_out=2_000,
            transaction_check_interval=1_000,
            **broker or {},
        )
        self.admin = await connect(BROKER, ADMIN)
        names = await connect(NAMESRV, ADMIN)
        for server in (self.admin, names):
            for who in (ALICE, MALLORY, OPERATOR):
                await _done(
                    server.ask(R.AUTH_CREATE_USER, {"username": who.access_key}, _user(who))
                )
            await rule(server, "alice", "Pub,Sub", "Topic:alice*", "Group:alice*")
            await rule(server, "mallory", "Pub,Sub,Get", "Topic:mallory*", "Group:mallory*")
            await rule(server, "operator", "Update,Get,List", "Cluster:DefaultCluster")
        self.alice = await connect(BROKER, ALICE)
        self.mallory = await connect(BROKER, MALLORY)
        self.stranger = await connect(BROKER, None)
        self.mallory_names = await connect(NAMESRV, MALLORY)
        self.stranger_names = await connect(NAMESRV, None)
        sent = await self.alice.produce(
            TOPIC, SECRET_BODY, properties=_named("alice-1", KEYS="order-1")
        )
        assert sent.code == 0, sent.remark
        self.record_offset = int(ext_dict(sent.ext)["msgId"][-16:], 16)
        self.record_id = ext_dict(sent.ext)["msgId"]
        assert (await self.mallory.produce("mallory-own", b"hers")).code == 0

    def now_ms(self) -> int:
        """Wall time of the broker."""
        return self.cluster.hosts[BROKER[0]].clock.now_ms()

    async def half(self) -> dict[str, Any]:
        """A half message of alice: what would end it, but for its kind."""
        named = _named("alice-half") | {"TRAN_MSG": "true", "PGROUP": PRODUCERS}
        sent = await self.alice.call(
            310, send_ext(TOPIC, properties=named, a=PRODUCERS, f=4, g=self.now_ms()), SECRET_BODY
        )
        assert sent.code == 0, sent.remark
        ext = ext_dict(sent.ext)
        return {
            "producerGroup": PRODUCERS, "tranStateTableOffset": ext["queueOffset"],
            "commitLogOffset": int(ext["msgId"][-16:], 16), "fromTransactionCheck": "false",
            "msgId": "alice-half", "transactionId": "alice-half",
        }  # fmt: skip

    async def count(self, topic: str = TOPIC) -> int:
        """Messages in queue 0 of one of alice's topics."""
        reply = await self.alice.call(30, {"topic": topic, "queueId": 0})
        return int(ext_dict(reply.ext)["offset"]) if reply.code == 0 else 0


def _named(key: str, **more: str) -> dict[str, str]:
    return {"UNIQ_KEY": key, "WAIT": "true"} | more


def _user(who: Credentials, kind: str = "Normal") -> bytes:
    return json.dumps(
        {
            "username": who.access_key, "password": who.secret_key, "userType": kind,
            "userStatus": "enable",
        }
    ).encode()  # fmt: skip


async def _done(answer: Awaitable[Command]) -> None:
    reply = await answer
    assert reply.code == 0, reply.remark


def acl_body(user: str, actions: str, *resources: str, decision: str = "Allow") -> bytes:
    """The body of 3006 and 3007."""
    entries = [
        {"resource": resource, "actions": actions.split(","), "decision": decision}
        for resource in resources
    ]
    policies = [{"policyType": "Custom", "entries": entries}]
    return json.dumps({"subject": f"User:{user}", "policies": policies}).encode()


async def rule(
    server: Actor, user: str, actions: str, *resources: str, decision: str = "Allow"
) -> None:
    """Allow or deny something."""
    body = acl_body(user, actions, *resources, decision=decision)
    await _done(server.ask(R.AUTH_CREATE_ACL, {"subject": f"User:{user}"}, body))


def bodies(reply: Command) -> list[bytes]:
    """The bodies of an answer's messages, none when it is a refusal."""
    return [each.body for each in decode_records(reply.body, True)] if reply.code == 0 else []


def tells(reply: Command) -> bool:
    """Whether alice's message is in an answer."""
    return SECRET_BODY in bytes(reply.body)


Attack = Callable[[Closed], Awaitable[bool]]


def run_attack(attack: Attack, broker: dict[str, Any] | None = None) -> bool:
    """Whether an attack succeeds on a new closed cluster."""
    outcome: list[bool] = []

    async def scenario(cluster: SimCluster) -> None:
        closed = Closed(cluster)
        await closed.build(broker)
        outcome.append(await attack(closed))

    simulate(scenario, seed=7)
    return outcome[0]


__all__ = ["pop_ext", "popped", "pull_ext", "send_ext"]
