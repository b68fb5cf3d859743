"""A random attacker at a closed cluster in virtual time: name server, broker, proxy, honest people with secrets, and somebody whose
rights are few. He learns nothing and changes nothing that his rights do not give (attacker_model.py).

`python -m tests.simulation.attacker N [FIRST]` makes N requests, from seed FIRST on; a finding names its seed, and the request
that did it.
"""

import asyncio
import contextlib
import hmac
import json
import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from tests.access.attackers import (  # fmt: skip
    BROKER,
    FAST,
    HA,
    NAMESRV,
    Actor,
    acl_body,
    connect,
    pop_ext,
    popped,
    pull_ext,
    send_ext,
)
from tests.access.attacks import _consumer, _Listening, _producer
from tests.proxy.sim_v5 import Failed, Gone, SimV5
from tests.proxy.v5_client import ack_request, check, consumer, producer
from tests.simulation.attacker_draws import EVIL, Asked, Draws, Facts
from tests.simulation.attacker_model import (
    ALICES,
    CLUSTER,
    DEAD,
    HIDDEN_CLIENT,
    HIDDEN_GROUP,
    HIDDEN_TOPIC,
    KV,
    LEFT,
    LEGAL_TOPIC,
    LEGAL_USER,
    OFFSET,
    OWNERS,
    PAID,
    PARTIES,
    PUBLIC,
    REPLIES,
    REPLY,
    RULES,
    SUPERS,
    USERS,
    State,
    holds,
    may_change,
    secrets_from,
)

from roquette.access.model import AccessSettings
from roquette.access.processor import unseal
from roquette.apps.proxy import AllSettings, ProxyServer
from roquette.base.entropy import Entropy
from roquette.broker.replication.ha_ticket import ticket_of, words_of
from roquette.errors import RemoteProtocolError
from roquette.message.record import decode_records
from roquette.proxy.clients import Clients
from roquette.proxy.settings import ClusterSettings, ProxySettings
from roquette.remoting.settings import UNPROTECTED
from roquette.wire.codes import RequestCode as R
from roquette.wire.command import Command
from roquette.wire.connection import WireConnection
from roquette.wire.header_codec import encode_dict, ext_dict
from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s
from roquette.wire.signature import Credentials, Signer
from roquette_testing.cluster import SimCluster, simulate

PROXY = ("10.0.2.1", 8081)
PLACES = {"broker": BROKER, "names": NAMESRV, "fast": FAST, "proxy": PROXY, "local": BROKER, "ha": HA, "http": BROKER, "http-names": NAMESRV}  # fmt: skip
REQUESTS = 400  # of a world
QUEUE = d.MessageQueue(topic=d.Resource(name="alice-v5"), broker=d.Broker(name="broker-a"), id=-1)
KEPT = ("public", "owner-topic", HIDDEN_TOPIC, "%RETRY%alice-billing", "%DLQ%alice-billing")
ORDERS, BILLING, POPS, POPPERS = "alice-orders", "alice-billing", "alice-pops", "alice-pops-group"


def settings() -> AccessSettings:
    """Of all servers."""
    admin, inner = USERS["admin"], USERS["inner"]
    first = {"username": admin.access_key, "password": admin.secret_key}
    own = {"accessKey": inner.access_key, "secretKey": inner.secret_key}
    return AccessSettings(
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user=json.dumps(first),
        inner_client_authentication_credentials=json.dumps(own),
    )


def metadata(who: Credentials) -> dict[str, str]:
    """What a v5 client says to prove who it is."""
    at = "20261127T000000Z"
    mark = hmac.digest(who.secret_key.encode(), at.encode(), "sha1").hex().upper()
    words = f"MQv2-HMAC-SHA1 Credential={who.access_key}, SignedHeaders=x-mq-date-time, Signature={mark}"
    return {"x-mq-date-time": at, "authorization": words}


class Ear(asyncio.Protocol):
    """A connection of the attacker: nothing that it hears is missed, wherever TCP splits it."""

    def __init__(self, hear: Callable[[bytes], None]) -> None:
        self._hear = hear
        self._rest = b""
        self.lost = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._hear(self._rest + data)
        self._rest = (self._rest + data)[-64:]

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True


class Line(Ear):
    """One that speaks the remoting protocol."""

    def __init__(self, hear: Callable[[bytes], None], answered: Callable[[Asked | None, Command], None]) -> None:  # fmt: skip
        super().__init__(hear)
        self._answered = answered
        self._wire = WireConnection()
        self._asked: dict[int, Asked] = {}

    def ask(self, asked: Asked) -> None:
        ext = encode_dict(asked.ext)
        if asked.who != "stranger":
            own = USERS[asked.who]
            signer = Credentials(own.access_key, asked.secret) if asked.secret else own
            ext = Signer(signer).sign(ext, asked.body)
        if asked.double:
            ext = b'{"b":%b,' % json.dumps(asked.double).encode() + ext[1:]
        opaque = self._wire.send_request(asked.code, ext, asked.body, asked.oneway)
        self._asked[opaque] = asked
        self.transport.write(b"".join(self._wire.data_to_send()))

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        for command in self._wire.receive_data(data):
            self._answered(self._asked.pop(command.opaque, None) if command.is_response else None, command)  # fmt: skip


class Stub(SimV5):
    """One that makes rpcs."""

    hear: Callable[[bytes], None] = staticmethod(lambda data: None)

    def data_received(self, data: bytes) -> None:
        rest = getattr(self, "_rest", b"")
        self.hear(rest + data)
        self._rest = (rest + data)[-64:]
        super().data_received(data)


class World:
    """A closed cluster, its people, and what is wrong with it.

    Attributes:
        found: what the attacker learnt or changed that his rights do not give.
    """

    def __init__(self, cluster: SimCluster, party: str, seed: int) -> None:
        self.cluster, self.party = cluster, party
        self.dice = Random(seed)
        self.facts = Facts()
        self.draws = Draws(self.dice, party, self.facts)
        self.secrets = secrets_from(party)
        self.found: list[str] = []
        self.asked: list[Asked] = []
        self.lines: dict[str, Line] = {}
        self.stubs: dict[str, Stub] = {}
        self.replies = 0
        self.silent = self.dice.random() < (
            0.5 if party == "auditor" else 0.06
        )  # the name server hears nothing of the broker
        self.due_s = 150 if self.silent else 60  # what alice waits for comes then
        if party == "operator":  # it is not looked for, and traffic takes its time
            self.due_s = 900
        self.honest = not holds(party, "Cluster", CLUSTER, "Update")  # else he may break it

    # The cluster and its people

    async def build(self) -> None:
        cluster = self.cluster
        cluster.access = settings()
        self.name_server = await cluster.add_namesrv(NAMESRV[0], controller="embedded")
        self.broker = await cluster.add_broker(
            BROKER[0], "broker-a", recall_message_enable=True, transaction_time_out=2_000,
            transaction_check_interval=1_000, transaction_check_max=10_000, enable_retry_topic_v2=self.dice.random() < 0.5,
        )  # fmt: skip
        self.proxy = await self._add_proxy()
        self.admin = await connect(BROKER, USERS["admin"])
        self.names = await connect(NAMESRV, USERS["admin"])
        for server in (self.admin, self.names):
            for name in (*RULES, *LEFT, "hidden-user-3b9a"):
                await self._make_user(server, name)
        await self._same_users()
        self.alice = await connect(BROKER, USERS["alice"])
        self.second = await connect(BROKER, USERS["alice"])
        await self._possessions()
        await self._pops_and_locks()
        await self._v5_clients()
        await self._leave()
        await cluster.loop.create_server(lambda: _Listening(self.facts.captured), EVIL, 10911)

    async def _add_proxy(self) -> ProxyServer:
        host, cluster = self.cluster.host(PROXY[0]), self.cluster

        async def begin() -> ProxyServer:
            config = ClusterSettings(bind_address=host.ip, namesrv_addr=cluster.name_servers, proxy_store_path="/proxy")  # fmt: skip
            world: Any = {
                "files": host.files,
                "clock": host.clock,
                "entropy": Entropy(5, process_id=1),
            }
            server = ProxyServer(AllSettings(config, ProxySettings(), UNPROTECTED, cluster.access), host.ip, **world)  # fmt: skip
            await server.start()
            return server

        return await cluster._begin(host, begin)

    async def _make_user(self, server: Actor, name: str) -> None:
        if name == "stranger":
            return
        user = {"username": name, "password": USERS[name].secret_key, "userType": "Normal"}
        await done(server.ask(R.AUTH_CREATE_USER, {"username": name}, json.dumps(user).encode()))
        for rule in RULES.get(name, RULES["alice"] if name in LEFT else ()):
            decision = "Allow" if rule.allow else "Deny"
            body = acl_body(name, rule.actions, f"{rule.kind}:{rule.name}", decision=decision)
            await done(server.ask(R.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, body))

    async def _same_users(self) -> None:
        """The proxy has what the broker has."""
        await self.proxy.access.users.follow(self.broker.core.access.users.state.kept())

    async def _possessions(self) -> None:
        """Messages in all states, offsets, clients, entries at the name server."""
        facts, ask = self.facts, self.alice.ask
        for number in range(2):
            body = ALICES + b" %d" % number
            sent = await done(self.alice.produce(ORDERS, body, properties=named(f"a{number}", KEYS="order-1")))  # fmt: skip
            facts.see(ext_dict(sent.ext))
        self.place = facts.places[-1]
        for topic, body in (("public", PUBLIC), ("owner-topic", OWNERS), (HIDDEN_TOPIC, b"x")):
            await done(self.admin.produce(topic, body))
        for name in (HIDDEN_GROUP, "alice-ledger", POPPERS, "alice-v5-group"):
            group = json.dumps({"groupName": name}).encode()
            await done(self.admin.ask(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group))
        for who, client in ((self.alice, "alice-client"), (self.second, HIDDEN_CLIENT)):
            await done(who.ask(R.HEART_BEAT, {}, _consumer(client, BILLING, ORDERS)))
            await done(who.ask(R.HEART_BEAT, {}, _producer(client, "alice-producers")))
        for owner, offset in (("alice-ledger", OFFSET), (BILLING, 1)):
            commit = {"consumerGroup": owner, "topic": ORDERS, "queueId": 0, "commitOffset": offset}
            await done(ask(R.UPDATE_CONSUMER_OFFSET, commit))
            facts.know(R.UPDATE_CONSUMER_OFFSET, commit | {"commitOffset": 77})
        for more in ({"DELAY": "18"}, {"TIMER_DELAY_SEC": "600"}):
            await done(self.alice.produce(ORDERS, ALICES, properties=named("w") | more))
        due = str(self.now_ms() + self.due_s * 1_000)
        timed = await done(self.alice.produce(ORDERS, ALICES + b" timed", properties=named("timed", TIMER_DELIVER_MS=due)))  # fmt: skip
        facts.see(ext_dict(timed.ext))
        recall = {"producerGroup": "p", "topic": ORDERS, "recallHandle": facts.words[-1]}
        facts.know(R.RECALL_MESSAGE, recall)
        back = {"offset": self.place, "group": BILLING, "originTopic": ORDERS}
        await done(ask(R.CONSUMER_SEND_MSG_BACK, back | {"delayLevel": 1}))
        for _ in range(2):  # one of them stays at its place for others to bury
            dead = await done(self.alice.produce(ORDERS, DEAD, properties=named("dead")))
        dead_place = int(ext_dict(dead.ext)["msgId"][-16:], 16)
        await done(ask(R.CONSUMER_SEND_MSG_BACK, back | {"offset": dead_place, "delayLevel": -1}))
        facts.know(R.CONSUMER_SEND_MSG_BACK, back | {"delayLevel": 1})
        self.half = await self._half()
        for kind in (8, 12):
            facts.know(R.END_TRANSACTION, self.half | {"commitOrRollback": kind, "topic": ORDERS})
        facts.know(R.PULL_MESSAGE, pull_ext(ORDERS, consumerGroup=BILLING, suspendTimeoutMillis=0))
        facts.know(R.POP_MESSAGE, pop_ext(self.now_ms()) | {"topic": ORDERS, "consumerGroup": BILLING})  # fmt: skip
        facts.know(R.SEND_MESSAGE_V2, send_ext(ORDERS), b"forged")
        facts.know(R.VIEW_MESSAGE_BY_ID, {"offset": self.place, "topic": ORDERS})
        asks = {"topic": ORDERS, "key": "order-1", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}  # fmt: skip
        facts.know(R.QUERY_MESSAGE, asks)
        facts.know(R.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": f"{self.party}-group", "clientId": "attacker-client", "msgId": self.facts.words[2], "topic": ORDERS})  # fmt: skip
        facts.know(R.FOLLOW_TABLES, {"what": "users", "once": "00ff"})
        for code in (R.AUTH_CREATE_USER, R.AUTH_UPDATE_USER, R.AUTH_DELETE_USER, R.AUTH_GET_USER, R.AUTH_CREATE_ACL, R.UPDATE_BROKER_CONFIG):  # fmt: skip
            facts.know(code, {"username": "new-user"}, self.draws._body(code, b""))
        put = {"namespace": "secrets", "key": "a", "value": KV}
        await done(self.names.ask(R.PUT_KV_CONFIG, put))

    async def _half(self) -> dict[str, Any]:
        """A half message, which its producer has not ended yet."""
        properties = named("half", TRAN_MSG="true", PGROUP="alice-producers")
        ext = send_ext(ORDERS, properties=properties, a="alice-producers", f=4, g=self.now_ms())
        told = ext_dict((await done(self.alice.call(R.SEND_MESSAGE_V2, ext, ALICES + b" half"))).ext)  # fmt: skip
        self.facts.see(told)
        return {
            "producerGroup": "alice-producers", "tranStateTableOffset": told["queueOffset"],
            "commitLogOffset": int(told["msgId"][-16:], 16), "fromTransactionCheck": "false",
            "msgId": "half", "transactionId": "half",
        }  # fmt: skip

    async def _pops_and_locks(self) -> None:
        await done(self.alice.produce(POPS, ALICES + b" popped"))
        (message,) = await self._pop(self.due_s * 1_000)
        ack = message.ack_ext(POPPERS)
        self.facts.words.append(message.receipt)
        self.facts.know(R.ACK_MESSAGE, ack)
        self.facts.know(R.CHANGE_MESSAGE_INVISIBLETIME, ack | {"invisibleTime": 1_000_000})
        start = message.receipt.split(" ")
        entry = {
            "c": POPPERS, "t": POPS, "r": "0", "so": int(start[0]), "q": 0, "rq": int(start[3]),
            "pt": int(start[1]), "it": int(start[2]), "b": "AQ==",
        }  # fmt: skip
        body = json.dumps({"brokerName": "broker-a", "acks": [entry]}).encode()
        self.facts.know(R.BATCH_ACK_MESSAGE, {}, body)
        await done(self.alice.ask(R.LOCK_BATCH_MQ, {}, self._locks("alice-client")))
        self.facts.know(R.UNLOCK_BATCH_MQ, {}, self._locks("alice-client"))
        self.facts.know(R.LOCK_BATCH_MQ, {}, self._locks("attacker-client"))
        self.facts.know(R.GET_HA_TICKET, {})  # as members of before ask
        evil = {"brokerName": "broker-evil", "brokerAddr": f"{EVIL}:10911", "clusterName": CLUSTER, "brokerId": 0}  # fmt: skip
        self.facts.know(R.REGISTER_BROKER, evil, self.draws._body(R.REGISTER_BROKER, b""))
        gone = {"clientID": "alice-client", "consumerGroup": BILLING, "producerGroup": "alice-producers"}  # fmt: skip
        self.facts.know(R.UNREGISTER_CLIENT, gone)
        for group, topic in ((BILLING, ORDERS), (f"{self.party}-group", self.draws.own_topic)):
            for client in ("alice-client", "attacker-client"):
                self.facts.know(R.HEART_BEAT, {}, _consumer(client, group, topic))
        self.facts.know(R.HEART_BEAT, {}, _producer("attacker-client", "alice-producers"))
        self.facts.know(R.HEART_BEAT, {}, _producer("alice-client", "attackers"))

    async def _pop(self, invisible_ms: int) -> list[Any]:
        fields = pop_ext(self.now_ms()) | {"topic": POPS, "consumerGroup": POPPERS, "invisibleTime": invisible_ms}  # fmt: skip
        return popped(await self.alice.ask(R.POP_MESSAGE, fields))

    @staticmethod
    def _locks(client: str) -> bytes:
        queue = {"topic": ORDERS, "brokerName": "broker-a", "queueId": 0}
        return json.dumps({"consumerGroup": "alice-locks", "clientId": client, "onlyThisBroker": True, "mqSet": [queue]}).encode()  # fmt: skip

    async def _v5_clients(self) -> None:
        """alice works on a message of hers at the proxy; a producer of payments is asked how its halves ended."""
        await done(self.admin.ask(R.UPDATE_AND_CREATE_TOPIC, topic_fields("alice-v5", "NORMAL")))
        await done(self.admin.ask(R.UPDATE_AND_CREATE_TOPIC, topic_fields("alice-paid", "TRANSACTION")))  # fmt: skip
        await asyncio.sleep(2)  # the name server knows them
        self.v5 = v5 = await stub("alice-v5", "alice", "10.0.4.1")
        await v5.settings(consumer(v5.endpoints, "alice-v5-group", "alice-v5"))
        await v5.receive("alice-v5-group", QUEUE, wait_s=1)  # the group begins before the message
        await v5.send("alice-v5", ALICES + b" v5")
        got: list[d.Message] = []
        async with asyncio.timeout(60):
            while not got:
                got = await v5.receive("alice-v5-group", QUEUE, invisible_s=300, wait_s=1)
        self.v5_message = got[0]
        of_message: dict[str, Any] = {"message_id": got[0].system_properties.message_id, "receipt_handle": got[0].system_properties.receipt_handle}  # fmt: skip
        group, topic = d.Resource(name="alice-v5-group"), d.Resource(name="alice-v5")
        bury = s.ForwardMessageToDeadLetterQueueRequest(group=group, topic=topic, delivery_attempt=1, max_delivery_attempts=1, **of_message)  # fmt: skip
        change = s.ChangeInvisibleDurationRequest(group=group, topic=topic, **of_message)
        change.invisible_duration.seconds = 1
        ack = ack_request("alice-v5-group", "alice-v5", got)
        end = s.NotifyClientTerminationRequest(group=group)
        for message in (bury, change, ack, end, s.HeartbeatRequest(group=group)):
            self.facts.know(type(message).__name__.removesuffix("Request"), {}, message.SerializeToString())  # fmt: skip
        self.facts.words += of_message.values()

    async def _leave(self) -> None:
        """Two that had alice's rights have them no more: one is switched off, one deleted. Its connections stay."""
        former = await connect(BROKER, USERS["former"])
        await done(former.ask(R.GET_MAX_OFFSET, {"topic": ORDERS, "queueId": 0}))
        self.old_stub = await self._stub("proxy", "former", "former-v5")
        await self.old_stub.settings(producer(self.old_stub.endpoints, "alice-paid"))
        payer = await stub("alice-payer", "alice", "10.0.4.2")
        for server in (self.admin, self.names):
            off = b'{"username":"gone","userStatus":"disable"}'
            await done(server.ask(R.AUTH_UPDATE_USER, {"username": "gone"}, off))
            await done(server.ask(R.AUTH_DELETE_USER, {"username": "former"}))
        await self._same_users()
        await payer.produce("alice-paid")
        paid = await payer.send("alice-paid", PAID, message_type=d.MessageType.TRANSACTION)
        ids = {"transaction_id": paid.transaction_id, "message_id": paid.message_id}
        self.payment = s.EndTransactionRequest(topic=d.Resource(name="alice-paid"), resolution=d.COMMIT, **ids)  # fmt: skip
        for resolution in (d.COMMIT, d.ROLLBACK):
            end = s.EndTransactionRequest(topic=self.payment.topic, resolution=resolution, **ids)
            self.facts.know("EndTransaction", {}, end.SerializeToString())
        payer.close()  # the next one of the topic is asked

    def now_ms(self) -> int:
        self.facts.now_ms = self.cluster.hosts[BROKER[0]].clock.now_ms()
        return self.facts.now_ms

    # The attack

    def hear(self, data: bytes) -> None:
        for secret in self.secrets.findall(data):
            self._tell(f"{self.party} heard {secret!r}")

    def _tell(self, words: str) -> None:
        if words not in self.found:
            self.found.append(words)

    def _answered(self, asked: Asked | None, command: Command) -> None:
        ext = {}
        with contextlib.suppress(ValueError):
            ext = ext_dict(command.ext) if command.ext else {}
        self.facts.see(ext)
        if asked is not None and asked.code == R.FOLLOW_TABLES and asked.who in USERS:
            with contextlib.suppress(RemoteProtocolError):  # it may be sealed for him
                sealed = USERS[asked.who].secret_key.encode(), asked.ext.get("once", "")
                self.hear(unseal(*sealed, bytes(command.body)))
        if ext.get("ticket"):
            self._tell(f"told a ticket: {asked}")
        if asked is not None and asked.never and command.code == 0:
            self._tell(f"served: {asked}")

    async def _line(self, door: str) -> Line:
        line = self.lines.get(door)
        if line is None or line.lost:
            loop = asyncio.get_running_loop()
            _, line = await loop.create_connection(lambda: Line(self.hear, self._answered), *PLACES[door], local_addr=(EVIL, 0))  # fmt: skip
            self.lines[door] = line
        return line

    async def _stub(self, door: str, who: str, client: str) -> Stub:
        made = await stub(client, who, EVIL, PLACES[door])
        made.hear = self.hear  # type: ignore[method-assign]
        return made

    async def ask(self, asked: Asked) -> None:
        """Make one request; what comes of it is heard whenever it comes."""
        self.asked.append(asked)
        if asked.door in ("broker", "names", "fast"):
            (await self._line(asked.door)).ask(asked)
        elif asked.door in ("proxy", "local"):
            await self._call(asked)
        else:
            loop = asyncio.get_running_loop()
            _, ear = await loop.create_connection(lambda: Ear(self.hear), *PLACES[asked.door], local_addr=(asked.host, 0))  # fmt: skip
            if asked.door != "ha":
                ear.transport.write(f"GET {asked.rpc} HTTP/1.1\r\nHost: {asked.client}\r\n\r\n".encode())  # fmt: skip
                return
            if asked.rpc and asked.who in USERS:
                ear.transport.write(words_of(ticket_of(USERS[asked.who].secret_key.encode(), asked.rpc)))  # fmt: skip
            ear.transport.write(bytes(8))

    async def _call(self, asked: Asked) -> None:
        key = f"{asked.door} {asked.who} {asked.secret} {asked.client}"
        one = self.stubs.get(key)
        try:
            if one is None or one.lost or one.told_to_go:
                one = self.stubs[key] = await self._stub(asked.door, asked.who, asked.client)
                if asked.secret:
                    one.metadata = metadata(Credentials(asked.who, asked.secret))
            message = getattr(s, "TelemetryCommand" if asked.rpc == "Telemetry" else f"{asked.rpc}Request")  # fmt: skip
            streams = asked.rpc == "Telemetry"
            reply = s.TelemetryCommand if streams else getattr(s, f"{asked.rpc}Response")
            one.begin(asked.rpc, message.FromString(asked.body), reply, more=streams)
        except Gone:
            return

    async def attack(self, count: int) -> None:
        if self.silent:  # it is about to be forgotten
            self.cluster.partition(BROKER[0], NAMESRV[0])
            await asyncio.sleep(80)
        before, sign = await self.state(), self._sign_of_life()
        for number in range(count):
            self.now_ms()
            asked = self.draws.request()
            if self.silent and self.dice.random() < 0.5:
                asked = self._about_the_broker(asked)
            await self.ask(asked)
            await asyncio.sleep(self.dice.choice((0.0, 0.0, 0.001, 0.01, 0.05)))
            if number % 50 == 25:
                await self._traffic(number)
        await asyncio.sleep(2)
        after = await self.state()
        if self.silent:
            if self._sign_of_life() != sign and self.honest:
                self._tell(f"{self.party} keeps a silent broker's registration alive")
            self.cluster.heal()
        for key in sorted(before.keys() | after.keys()):
            if key[0] == "rules" and ("user", *key[1:]) not in after:
                continue  # rules go with their user, whose going is judged by itself
            if before.get(key) != after.get(key) and not may_change(self.party, key):
                self._tell(f"{self.party} changed {key}: {before.get(key)!r:.200} -> {after.get(key)!r:.200}")  # fmt: skip
        await self._harvest()
        self._legal(after)
        if self.honest:
            try:
                async with asyncio.timeout(1_000):
                    await self._still_works(count)
            except (AssertionError, TimeoutError, Failed, Gone, OSError) as error:
                self._tell(f"an honest client fails: {error!r:.300}")

    async def _harvest(self) -> None:
        """He reads what has come into topics that are his: others' messages, perhaps."""
        await asyncio.sleep(15)  # retries take their time
        group = self.draws.own_group
        for topic in (self.draws.own_topic, f"%RETRY%{group}", f"%DLQ%{group}"):
            ext = pull_ext(topic, consumerGroup=group, sysFlag=4, suspendTimeoutMillis=0)
            await self.ask(Asked("broker", self.party, code=R.PULL_MESSAGE, ext=ext))
        await asyncio.sleep(2)

    def _about_the_broker(self, asked: Asked) -> Asked:
        ext = {"brokerName": "broker-a", "brokerAddr": f"{BROKER[0]}:{BROKER[1]}", "brokerId": "0", "clusterName": CLUSTER}  # fmt: skip
        code = self.dice.choice((R.QUERY_DATA_VERSION, R.BROKER_HEARTBEAT, R.GET_BROKER_MEMBER_GROUP))  # fmt: skip
        return Asked("names", self.party, code=code, ext=ext, body=b'{"counter":1,"timestamp":1}')

    def _sign_of_life(self) -> tuple[int, int] | None:
        live = self.name_server.core.routes.live.find(CLUSTER, f"{BROKER[0]}:{BROKER[1]}")
        return None if live is None else (live.updated_ms, live.connection)

    async def _traffic(self, number: int) -> None:
        """What honest people do meanwhile."""
        properties = named("r", REPLY_TO_CLIENT="alice-client", CORRELATION_ID="1", MSG_TYPE="reply", TTL="3000")  # fmt: skip
        self.alice.send(R.SEND_REPLY_MESSAGE_V2, send_ext(REPLIES, properties=properties), REPLY)
        self.replies += 1
        for who, client in ((self.alice, "alice-client"), (self.second, HIDDEN_CLIENT)):
            who.send(R.HEART_BEAT, {}, _consumer(client, BILLING, ORDERS))
            who.send(R.HEART_BEAT, {}, _producer(client, "alice-producers"))
        looks = {"consumerGroup": f"{self.party}-group", "clientId": "attacker-client"}
        self.admin.send(R.GET_CONSUMER_RUNNING_INFO, looks)
        self.alice.send(R.SEND_MESSAGE_V2, send_ext(f"alice-users-{number}"), b"a topic is made")
        if not self.honest:  # a broker that he has registered is told of it
            await asyncio.sleep(10)

    # What has become of it

    async def state(self) -> State:
        """Everything that somebody could have changed."""
        state: State = {}
        topics = await self._json(R.GET_ALL_TOPIC_CONFIG)
        for name, config in topics["topicConfigTable"].items():
            if not name.startswith("alice-users"):
                state["topic", name] = config
        groups = await self._json(R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        for name, config in groups["subscriptionGroupTable"].items():
            state["group", name] = config
        for key, queues in (await self._json(R.GET_ALL_CONSUMER_OFFSET))["offsetTable"].items():
            topic, _, group = key.partition("@")
            if not group.startswith("CID_RMQ_SYS"):
                state["offsets", topic, group] = queues
        for key in list(state):
            if key[0] == "topic" and (key[1] in KEPT or key[1].startswith("alice")):
                store, queues = self.broker.core.store, range(8)
                state["messages", key[1]] = [store.max_offset(key[1], number) for number in queues]
        connections = await self.admin.ask(R.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": BILLING})  # fmt: skip
        online = json.loads(connections.body)["connectionSet"] if connections.code == 0 else []
        state["clients", BILLING] = sorted(one["clientId"] for one in online)
        servers: dict[str, Any] = {
            "broker": self.broker.core,
            "names": self.name_server,
            "proxy": self.proxy,
        }
        for server, one in servers.items():
            for name, user in one.access.users.state.users.items():
                state["user", server, name] = (user.password, user.user_type, user.user_status)
            for name, acl in one.access.users.state.acls.items():
                state["rules", server, name] = acl
        for what, asker, code in (("broker", self.admin, R.GET_BROKER_CONFIG), ("names", self.names, R.GET_NAMESRV_CONFIG)):  # fmt: skip
            state["config", what] = (await asker.ask(code)).body
        clusters = await self._json(R.GET_BROKER_CLUSTER_INFO, self.names)
        state["brokers", ""] = clusters["brokerAddrTable"]
        for namespace in ("secrets", "ORDER_TOPIC_CONFIG"):
            state["kv", namespace] = (await self.names.ask(R.GET_KVLIST_BY_NAMESPACE, {"namespace": namespace})).body  # fmt: skip
        return state

    async def _json(self, code: int, server: Actor | None = None) -> Any:
        reply = await done((server or self.admin).ask(code))
        return json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', reply.body))  # fastjson's keys

    def _legal(self, state: State) -> None:
        """What nobody's rights give."""
        for key, value in state.items():
            kind, name = key[0], key[-1]
            if kind in ("topic", "group") and not LEGAL_TOPIC.fullmatch(name):
                self._tell(f"a {kind} is called {name!r}")
            if kind == "user" and not LEGAL_USER.fullmatch(name):
                self._tell(f"a user is called {name!r}")
            if kind == "user" and (value[1] == "Super") != (name in SUPERS):  # type: ignore[index]
                self._tell(f"{name} is {value[1]}")  # type: ignore[index]
            if kind == "rules" and re.search(r"Namespace|x{600}", repr(value)):
                self._tell(f"a rule is kept that means nothing: {value!r:.80}")
        files = self.cluster.hosts[BROKER[0]].files
        if files.exists("/evil"):
            self._tell("a file outside of the store")

    async def _still_works(self, count: int) -> None:
        """alice has what she had, and can do what she could."""
        ask = self.alice.ask
        heard = [command.body for command in await self.alice.listen(1)]
        assert heard.count(REPLY) == self.replies, f"replies: {heard}"
        checks = [body for body in heard if b" half" in body]
        assert checks, "her half message is not asked about"
        end = self.half | {"commitOrRollback": 8, "topic": ORDERS}
        await done(ask(R.END_TRANSACTION, end))
        await done(self.alice.produce(ORDERS, ALICES + b" last", properties=named("last")))
        locked = await done(ask(R.LOCK_BATCH_MQ, {}, self._locks("alice-client")))
        assert b'"queueId":0' in locked.body, "her lock is another's"
        looks = await ask(R.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": BILLING, "clientId": "x"})
        assert looks.code, looks
        client = next(part for part in self.proxy.proxy.parts if isinstance(part, Clients)).find("alice-v5")  # fmt: skip
        assert client is not None and client.caller.account == "alice", "her v5 client is gone"
        await self.v5.ack("alice-v5-group", "alice-v5", [self.v5_message])
        check((await self.v5.call("EndTransaction", self.payment)).status)
        await asyncio.sleep(self.due_s)  # her timer ends, and what she popped is due again
        self.alice = await connect(BROKER, USERS["alice"])
        async with asyncio.timeout(60):
            while not any(one.body == ALICES + b" popped" for one in await self._pop(1_000)):
                await asyncio.sleep(1)
        pulled = pull_ext(ORDERS, consumerGroup=BILLING, sysFlag=4, suspendTimeoutMillis=0)
        reply = await done(self.alice.ask(R.PULL_MESSAGE, pulled))
        bodies = Counter(bytes(one.body) for one in decode_records(reply.body, True))
        wanted = [ALICES + b" 0", ALICES + b" 1", DEAD, DEAD, *(ALICES + one for one in (b" half", b" last", b" timed"))]  # fmt: skip
        assert bodies == Counter(wanted), f"her topic holds {bodies}"


async def done(answer: Awaitable[Command]) -> Command:
    """An answer that says yes."""
    reply = await answer
    assert reply.code == 0, reply.remark
    return reply


def named(key: str, **more: str) -> dict[str, str]:
    """Properties of a message."""
    return {"UNIQ_KEY": key, "WAIT": "true"} | more


def topic_fields(name: str, kind: str) -> dict[str, Any]:
    """Of a topic of one queue."""
    return {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", "attributes": f"+message.type={kind}",
    }  # fmt: skip


async def stub(client: str, who: str, local: str, place: tuple[str, int] = PROXY) -> Stub:
    """A v5 client at a server."""
    host, port = place
    made = await Stub.connect(f"{host}:{port}", client, local)
    assert isinstance(made, Stub)
    if who in USERS:
        made.metadata = metadata(USERS[who])
    return made


def run_world(seed: int, count: int = REQUESTS, party: str = "") -> World:
    """One world of a seed."""
    worlds: list[World] = []

    async def scenario(cluster: SimCluster) -> None:
        world = World(cluster, party or PARTIES[seed % len(PARTIES)], seed)
        worlds.append(world)
        await world.build()
        await world.attack(count)

    try:
        simulate(scenario, seed=seed)
    except AssertionError as error:  # a callback of a server has failed
        if not worlds or not worlds[0].asked:
            raise
        worlds[0].found.append(f"something broke: {error!r:.500}")
    return worlds[0]


def shrunk(seed: int, count: int, party: str = "") -> str:
    """What a seed's world finds, and the request that does it: the last of the shortest beginning that finds something."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if run_world(seed, middle, party).found:
            high = middle
        else:
            low = middle + 1
    world = run_world(seed, high, party)
    last = str(world.asked[-1]) if world.asked else "nothing asked"
    return f"seed {seed}, request {high} of {world.party}: {'; '.join(world.found)}\n    {last}"


def main(requests: int, first: int = 1, party: str = "") -> int:
    """Make so many requests; returns how many worlds found something."""
    logging.disable(logging.CRITICAL)
    began, bad, made, seed = time.monotonic(), 0, 0, first
    while made < requests:
        world = run_world(seed, party=party)
        made += len(world.asked)
        if world.found:
            bad += 1
            print(shrunk(seed, REQUESTS, party), flush=True)
        seed += 1
    print(f"{made} requests, seeds {first} to {seed - 1}, {bad} findings, {time.monotonic() - began:.0f} s")  # fmt: skip
    return bad


if __name__ == "__main__":
    wanted, begin, only = (*sys.argv[1:], *("600", "1", "")[len(sys.argv) - 1 :])
    sys.exit(main(int(wanted), int(begin), only) > 0)
