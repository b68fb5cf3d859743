"""The attacks of docs/reference/attacks.md: each is a coroutine over a closed cluster and says whether it succeeded.

`test_attacks.py` shows that none does, `test_mutations.py` that each would without its guard.
"""

import asyncio
import json
import struct
from typing import Any

import pytest
from tests.access.attackers import (
    ADMIN,
    ALICE,
    BROKER,
    FAST,
    GROUP,
    HA,
    MALLORY,
    NAMESRV,
    OPERATOR,
    PRODUCERS,
    SECRET_BODY,
    SECRETS,
    TOPIC,
    Actor,
    Attack,
    Closed,
    acl_body,
    bodies,
    connect,
    pop_ext,
    popped,
    pull_ext,
    rule,
    send_ext,
    tells,
)

from roquette.base.javatypes import java_hash
from roquette.broker.replication.ha_ticket import ticket_of, words_of
from roquette.message.properties import encode_properties
from roquette.message.record import encode_batch
from roquette.wire.codes import RequestCode as R
from roquette.wire.command import Command
from roquette.wire.connection import WireConnection
from roquette.wire.header_codec import encode_dict, ext_dict
from roquette.wire.signature import Credentials, Signer

ATTACKS: dict[str, Attack] = {}
OWN, OWN_GROUP = "mallory-own", "mallory-group"


def attack(work: Attack) -> Attack:
    """Enter an attack under its name."""
    ATTACKS[work.__name__] = work
    return work


def pull_of(topic: str, group: str = OWN_GROUP) -> dict[str, Any]:
    """A pull from the start that does not wait."""
    return pull_ext(topic, consumerGroup=group, sysFlag=4, suspendTimeoutMillis=0)


async def any_done(replies: list[Command]) -> bool:
    return any(reply.code == 0 for reply in replies)


# Settings and secrets


PATHS = (
    "storePathRootDir=/tmp/x", "storePathCommitLog=/tmp/x", "rocketmqHome=-c $@|sh . echo id;",
    "filterServerNums=1", "configStorePath=/tmp/x", "kvConfigPath=/tmp/x", "controllerStorePath=/tmp/x",
    "controllerProgram=/bin/sh", "controller=etcd://evil", "tls.config.file=/tmp/x",
    "tls.server.keyPath=/etc/shadow", "authConfigPath=/tmp/x", "configBlackList=", "bindAddress=1.2.3.4",
    "messageStorePlugIn=java.lang.Runtime", "transactionalMessageCheckListenerClass=x",
)  # fmt: skip


async def _config_taken(closed: Closed, lines: tuple[str, ...]) -> bool:
    """Whether a broker or a name server takes one of these settings, from anybody."""
    names = await connect(NAMESRV, ADMIN)
    people = (closed.admin, closed.mallory, closed.stranger, names, closed.mallory_names, closed.stranger_names)  # fmt: skip
    for who in people:
        for code in (R.UPDATE_BROKER_CONFIG, R.UPDATE_NAMESRV_CONFIG):
            for line in lines:
                if (await who.ask(code, {}, line.encode() + b"\n")).code == 0:
                    return True
    return False


@pytest.mark.promise(
    "Security",
    "no setting that a request can change names a path, a command, a class or an address, or opens a server",
)
@attack
async def setting_names_a_path_or_command(closed: Closed) -> bool:
    """CVE-2023-33246 and CVE-2023-37582, at both servers, by a super user even."""
    return await _config_taken(closed, PATHS)


AUTH_LINES = (
    "authenticationEnabled=false", "authorizationEnabled=false", "authenticationWhitelist=10,310,25",
    "authorizationWhitelist=10,310,25", "aclEnable=true", "haAllowedReplicas=0.0.0.0/0",
    "initAuthenticationUser={}", "innerClientAuthenticationCredentials={}", "tls.server.mode=disabled",
)  # fmt: skip


@pytest.mark.promise(
    "Security",
    "no setting that a request can change names a path, a command, a class or an address, or opens a server",
)
@attack
async def access_settings_changed_by_request(closed: Closed) -> bool:
    """A request switches access control off, or opens a white list."""
    return await _config_taken(closed, AUTH_LINES)


@attack
async def mallory_changes_a_setting(closed: Closed) -> bool:
    """An ordinary user changes what may be changed."""
    line = b"longPollingEnable=false\n"
    at_names = await closed.mallory_names.ask(
        R.UPDATE_NAMESRV_CONFIG, {}, b"enableTopicList=false\n"
    )
    return await any_done([await closed.mallory.ask(R.UPDATE_BROKER_CONFIG, {}, line), at_names])


READS = (
    (R.GET_BROKER_CONFIG, {}), (R.GET_NAMESRV_CONFIG, {}), (R.GET_BROKER_RUNTIME_INFO, {}),
    (R.AUTH_GET_USER, {"username": "admin"}), (R.AUTH_GET_USER, {"username": "alice"}),
    (R.AUTH_LIST_USER, {"filter": ""}), (R.AUTH_GET_ACL, {"subject": "User:alice"}),
    (R.AUTH_LIST_ACL, {}), (R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}), (R.GET_ALL_TOPIC_CONFIG, {}),
    (R.GET_ALL_PRODUCER_INFO, {}), (R.GET_KVLIST_BY_NAMESPACE, {"namespace": "ORDER_TOPIC_CONFIG"}),
    (R.GET_BROKER_HA_STATUS, {}), (54, {}), (52, {}),
)  # fmt: skip


@pytest.mark.promise(
    "Security",
    "no request answers a secret; replicas get users sealed, and members of before get none",
)
@attack
async def secrets_read_by_requests(closed: Closed) -> bool:
    """CVE-2024-23321: what users and settings there are is told without any secret, to super users even."""
    for place in (BROKER, NAMESRV):
        for who in (ADMIN, OPERATOR, MALLORY, None):
            actor = await connect(place, who)
            for code, ext in READS:
                reply = await actor.ask(code, ext)
                told = bytes(reply.body) + bytes(reply.ext) + (reply.remark or "").encode()
                if any(secret.encode() in told for secret in SECRETS):
                    return True
    return False


@pytest.mark.promise(
    "Security",
    "no request answers a secret; replicas get users sealed, and members of before get none",
)
@attack
async def secrets_in_error_remarks(closed: Closed) -> bool:
    """What is wrong with a request about a user is said without its password."""
    secret = "a-new-and-secret-password"
    for body in (
        f'{{"username":"bob","password":"{secret}"',
        f'{{"username":"bob","password":["{secret}"]}}',
        f'{{"username":"bob","password":"{secret}","userType":"King"}}',
        f'{{"username":"bob","password":"{secret}","userStatus":"asleep"}}',
        f'{{"username":"b\\u0000b","password":"{secret}"}}',
        f'{{"username":"bob","password":"{secret}\\ud800"}}',
        f'{{"username":"admin","password":"{secret}"}}',
    ):
        for code in (R.AUTH_CREATE_USER, R.AUTH_UPDATE_USER):
            reply = await closed.admin.ask(code, {"username": "bob"}, body.encode())
            if secret in (reply.remark or "") or secret.encode() in bytes(reply.ext):
                return True
    return False


@pytest.mark.promise("Security", "no name becomes a path before it was checked")
@attack
async def topic_name_leaves_the_store(closed: Closed) -> bool:
    """CVE-2019-17572: no name becomes a path before it was checked, whoever sends it."""
    root = closed.cluster.hosts[BROKER[0]].files
    replies = []
    for name in (
        "../../evil",
        "/etc/evil",
        "..",
        "a/b",
        "a\\b",
        "a\0b",
        "%RETRY%../../evil",
        "a" * 300,
    ):
        fields = {
            "topic": name, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip
        replies.append(await closed.admin.ask(R.UPDATE_AND_CREATE_TOPIC, fields))
        replies.append(await closed.admin.produce(name))
        group = json.dumps({"groupName": name}).encode()
        replies.append(await closed.admin.ask(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group))
    return await any_done(replies) or root.exists("/evil") or root.exists("/etc/evil")


@attack
async def json_bombs(closed: Closed) -> bool:
    """The fastjson series: deep, long and typed JSON is an error of that request, in a bounded time."""
    deep, typed = b"[" * 500_000, b'{"@type":"java.lang.Class","val":"x"}'
    number = b'{"username":' + b"9" * 1_000_000 + b"}"
    began = asyncio.get_running_loop().time()
    for body in (deep, typed, number, b'{"a":' * 200_000, b"\xff" * 1000):
        for code in (R.AUTH_CREATE_USER, R.AUTH_CREATE_ACL, R.HEART_BEAT, R.LOCK_BATCH_MQ):
            for who in (closed.admin, closed.mallory, closed.stranger):
                reply = await who.ask(code, {"username": "bob", "subject": "User:bob"}, body)
                if "failed inside" in (reply.remark or ""):
                    return True
    return asyncio.get_running_loop().time() - began > 60


# Who asks


async def _reads_alices(actor: Actor) -> bool:
    return tells(await actor.ask(R.PULL_MESSAGE, pull_of(TOPIC, GROUP)))


@pytest.mark.promise(
    "Security", "one guard at every port; who is not proven gets nothing, and changes nothing"
)
@attack
async def no_signature(closed: Closed) -> bool:
    """Nothing is answered to who does not sign, at any of the ports."""
    for place in (BROKER, FAST, NAMESRV):
        actor = await connect(place, None)
        for code, ext, body in (
            (R.PULL_MESSAGE, pull_of(TOPIC, GROUP), b""),
            (R.SEND_MESSAGE_V2, send_ext(TOPIC), b"x"),
            (R.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}, b""),
            (R.GET_BROKER_CLUSTER_INFO, {}, b""),
            (R.GET_BROKER_CONFIG, {}, b""),
            (R.AUTH_LIST_USER, {}, b""),
            (R.GET_TOPIC_STATS_INFO, {"topic": TOPIC}, b""),
        ):
            if (await actor.ask(code, ext, body)).code == 0:
                return True
    return False


@attack
async def wrong_secret(closed: Closed) -> bool:
    """A name alone is nothing."""
    return await _reads_alices(await connect(BROKER, Credentials("alice", "not-her-secret")))


@attack
async def name_without_signature(closed: Closed) -> bool:
    """AccessKey with no, an empty or a made-up signature."""
    for more in ({}, {"Signature": ""}, {"Signature": "AAAAAAAAAAAAAAAAAAAAAAAAAAA="}):
        reply = await closed.stranger.ask(
            R.PULL_MESSAGE, pull_of(TOPIC, GROUP) | {"AccessKey": "admin"} | more
        )
        if tells(reply):
            return True
    return False


async def _ask_as_signed(
    closed: Closed,
    code: int,
    ext: dict[str, Any],
    body: bytes,
    *,
    sent: dict[str, Any],
    sent_body: bytes,
) -> Command:
    """Sign one request as alice, and send another under its signature."""
    plain = {key: str(value) for key, value in ext.items()}
    fields = ext_dict(Signer(ALICE).sign(encode_dict(plain), body)) | sent
    return await closed.stranger.ask(code, fields, sent_body)


@attack
async def signature_of_another_body(closed: Closed) -> bool:
    """What was signed is what counts: the body is part of it."""
    fields = send_ext(TOPIC)
    reply = await _ask_as_signed(
        closed, R.SEND_MESSAGE_V2, fields, b"10", sent={}, sent_body=b"1000000"
    )
    return reply.code == 0


@attack
async def signature_of_other_fields(closed: Closed) -> bool:
    """So are all the fields."""
    fields = send_ext("alice-other")
    reply = await _ask_as_signed(
        closed, R.SEND_MESSAGE_V2, fields, b"10", sent={"b": TOPIC}, sent_body=b"10"
    )
    return reply.code == 0


@attack
async def signature_moved_between_fields(closed: Closed) -> bool:
    """The order of names is part of what is signed: a value cannot serve under an added name (it changes the text)."""
    fields = send_ext(TOPIC)
    added = {"zz": "", "SecurityToken": "x"}
    reply = await _ask_as_signed(
        closed, R.SEND_MESSAGE_V2, fields, b"1", sent=added, sent_body=b"1"
    )
    return reply.code == 0


@pytest.mark.promise(
    "Security", "one guard at every port; who is not proven gets nothing, and changes nothing"
)
@attack
async def unsigned_one_way_requests(closed: Closed) -> bool:
    """Nobody hears a refusal of those; they change nothing either."""
    before = await closed.count()
    requests: tuple[tuple[int, dict[str, Any], bytes], ...] = (
        (R.SEND_MESSAGE_V2, send_ext(TOPIC), b"forged"),
        (R.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}, b""),
        (R.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=0\n"),
        (R.UPDATE_CONSUMER_OFFSET, _offset(), b""),
    )
    for code, ext, body in requests:
        closed.stranger.send(code, ext, body, oneway=True)
        closed.mallory.send(code, ext, body, oneway=True)
    await asyncio.sleep(1)
    sent = await closed.alice.produce(TOPIC, b"still works")
    offset = await closed.alice.ask(
        R.QUERY_CONSUMER_OFFSET, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
    )
    moved = offset.code == 0 and ext_dict(offset.ext)["offset"] == "77"
    return sent.code != 0 or await closed.count() != before + 1 or moved


def _offset() -> dict[str, Any]:
    return {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 77}


@pytest.mark.promise(
    "Security", "users and rights that go count at once, on connections that are there as well"
)
@attack
async def disabled_user_goes_on(closed: Closed) -> bool:
    """A user that is disabled, on the connection it has."""
    body = b'{"username":"mallory","userStatus":"disable"}'
    assert (await closed.admin.ask(R.AUTH_UPDATE_USER, {"username": "mallory"}, body)).code == 0
    return (await closed.mallory.produce(OWN)).code == 0


@pytest.mark.promise(
    "Security", "users and rights that go count at once, on connections that are there as well"
)
@attack
async def deleted_user_goes_on(closed: Closed) -> bool:
    """A user that is deleted, on the connection it has."""
    assert (await closed.admin.ask(R.AUTH_DELETE_USER, {"username": "mallory"})).code == 0
    return (await closed.mallory.produce(OWN)).code == 0


@pytest.mark.promise(
    "Security", "users and rights that go count at once, on connections that are there as well"
)
@attack
async def rights_taken_are_kept(closed: Closed) -> bool:
    """A rule that was removed, on the connection that used it."""
    ext = {"subject": "User:mallory", "resource": "Topic:mallory*"}
    assert (await closed.admin.ask(R.AUTH_DELETE_ACL, ext)).code == 0
    return (await closed.mallory.produce(OWN)).code == 0


LOOKALIKES = ("admin ", " admin", "admin\u200b", "\u0430dmin", "ad\u0000min", "admin\n", "ADMIN\u0307", "a" * 5000, "", "User:admin", "*")  # fmt: skip


@attack
async def names_that_look_alike(closed: Closed) -> bool:
    """Users whose names look like another's, or have signs that people do not see."""
    replies = []
    for name in LOOKALIKES:
        body = json.dumps({"username": name, "password": "p", "userType": "Super"}).encode()
        replies.append(await closed.admin.ask(R.AUTH_CREATE_USER, {"username": name}, body))
    return await any_done(replies)


# Other doors


@pytest.mark.promise(
    "Security", "one guard at every port; who is not proven gets nothing, and changes nothing"
)
@attack
async def other_ports_are_open(closed: Closed) -> bool:
    """#6768: what the main port refuses, the second one and the name server refuse, too."""
    fast = await connect(FAST, MALLORY)
    return await any_done(
        [
            await fast.ask(R.SEND_MESSAGE_V2, send_ext(TOPIC), b"x"),
            await fast.ask(R.QUERY_MESSAGE, _query(TOPIC, "order-1")),
            await closed.mallory_names.ask(R.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}),
        ]
    )


@pytest.mark.promise(
    "Security",
    "the replication port is for replicas of super users' servers, and a ticket for one connection",
)
@attack
async def replication_port_without_ticket(closed: Closed) -> bool:
    """Who says at the port for replicas that it has nothing gets the whole log from an open master."""
    return SECRET_BODY in await _followed(b"")


@pytest.mark.promise(
    "Security",
    "the replication port is for replicas of super users' servers, and a ticket for one connection",
)
@attack
async def operator_follows_the_log(closed: Closed) -> bool:
    """Who may change the cluster and is no super user asks for tickets as replicas do, of today and of before, and says them at their port."""
    operator = await connect(BROKER, OPERATOR)
    for fields in ({"proves": "true"}, {}):
        reply = await operator.ask(R.GET_HA_TICKET, fields)
        told = ext_dict(reply.ext) if reply.code == 0 else {}
        made = ticket_of(OPERATOR.secret_key.encode(), told.get("challenge", ""))
        if SECRET_BODY in await _followed(words_of(told.get("ticket", "") or made)):
            return True
    return False


async def _followed(first: bytes) -> bytes:
    """What the port for replicas tells who begins so, and has nothing."""
    await asyncio.sleep(1)
    reader, writer = await asyncio.open_connection(*HA)
    writer.write(first + struct.pack(">q", 0))
    got = b""
    try:
        async with asyncio.timeout(20):
            while data := await reader.read(1 << 16):
                got += data
                writer.write(struct.pack(">q", 0))
    except (TimeoutError, ConnectionError):
        pass
    return got


@pytest.mark.promise(
    "Security",
    "what a server has signed serves for nothing else, at no other address, and once; clocks may differ by five minutes",
)
@attack
async def servers_signature_serves_for_more(closed: Closed) -> bool:
    """An operator registers a broker of her own. What others ask of it, signed by a super user, she passes on to them: as it is,
    and cut into other fields, for the users, for a ticket of the replication port, and for a user of her own.
    """
    asked: list[Command] = []
    await asyncio.get_running_loop().create_server(lambda: _Listening(asked), "10.6.6.6", 10911)
    operator = await connect(NAMESRV, OPERATOR)
    queues = {"readQueueNums": 8, "writeQueueNums": 8, "perm": 7}
    topics = {name: queues | {"topicName": name} for name in ("TBW102", "evil")}
    table = {"topicConfigTable": topics, "dataVersion": {"counter": 1, "timestamp": 1}}
    body = json.dumps({"topicConfigSerializeWrapper": table, "filterServerList": []}).encode()
    assert (await operator.ask(R.REGISTER_BROKER, _registration(), body)).code == 0
    for name in ("mallory-users", "mallory-new"):
        assert (await closed.mallory.produce(name, b"the first message makes a topic")).code == 0
    async with asyncio.timeout(60):
        while sum(command.code == R.UPDATE_AND_CREATE_TOPIC for command in asked) < 2:
            await asyncio.sleep(0.1)
    replies, told = [], b""
    for command in asked:
        fields = ext_dict(command.ext)
        who = {name: fields.pop(name) for name in ("AccessKey", "Signature")}
        content = "".join(fields[name] for name in sorted(fields))
        before, users, behind = content.partition("users")
        evil = await connect(BROKER, None)
        answers = [
            await evil.ask(R.FOLLOW_TABLES, who | {"a": before, "what": users, "x": behind}),
            await evil.ask(R.GET_HA_TICKET, who | {"x": content}),
            await evil.ask(R.GET_HA_TICKET, who, content.encode()),
        ]
        told += b"".join(bytes(answer.body) + bytes(answer.ext) for answer in answers)
        replies += [
            await evil.ask(command.code, fields | who),
            await evil.ask(R.AUTH_CREATE_USER, who | {"username": content}, b"{}"),
            await evil.ask(R.DELETE_TOPIC_IN_BROKER, who | {"topic": content}),
        ]
    secret = any(each.encode() in told for each in SECRETS)
    return secret or b'"ticket":"' in told or await any_done(replies)


class _Listening(asyncio.Protocol):
    """A broker that keeps what it is asked, and does it."""

    def __init__(self, asked: list[Command]) -> None:
        self._asked = asked
        self._wire = WireConnection()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for command in self._wire.receive_data(data):
            self._asked.append(command)
            code = 17 if command.code == R.GET_TOPIC_CONFIG else 0  # it has no such topic yet
            self._wire.send_reply(command.opaque, code, None, b"", b"")
        for piece in self._wire.data_to_send():
            self._transport.write(piece)


# What belongs to another


def _query(topic: str, key: str) -> dict[str, Any]:
    return {"topic": topic, "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}


@attack
async def anothers_topic_is_read(closed: Closed) -> bool:
    """By each request that reads, in her own group and in alice's."""
    pops = pop_ext(closed.now_ms()) | {"topic": TOPIC, "initMode": 0}
    for group in (OWN_GROUP, GROUP):
        for code, ext in (
            (R.PULL_MESSAGE, pull_of(TOPIC, group)),
            (R.LITE_PULL_MESSAGE, pull_of(TOPIC, group)),
            (R.POP_MESSAGE, pops | {"consumerGroup": group}),
            (
                R.PEEK_MESSAGE,
                {"topic": TOPIC, "queueId": 0, "maxMsgNums": 8, "consumerGroup": group},
            ),
            (R.QUERY_MESSAGE, _query(TOPIC, "order-1")),
            (R.VIEW_MESSAGE_BY_ID, {"offset": closed.record_offset, "topic": TOPIC}),
        ):
            if tells(await closed.mallory.ask(code, ext)):
                return True
    return False


@pytest.mark.promise(
    "Security",
    "a message that is named by its place is judged by its topic, through a proxy as well",
)
@attack
async def message_read_by_its_place(closed: Closed) -> bool:
    """VIEW_MESSAGE_BY_ID with a topic of one's own, or none."""
    offset = closed.record_offset
    own = await closed.mallory.ask(R.VIEW_MESSAGE_BY_ID, {"offset": offset, "topic": OWN})
    return tells(own) or tells(await closed.mallory.ask(R.VIEW_MESSAGE_BY_ID, {"offset": offset}))


def colliding_key(topic: str, wanted: str) -> str:
    """A key whose hash together with `topic` is that of `wanted`: the index knows hashes alone."""
    length, base = 7, 31
    start = java_hash(f"{topic}#") * base**length
    least = sum(33 * base**place for place in range(length))
    rest = (java_hash(wanted) - start - least) % (1 << 32)
    digits = [rest // base**place % base for place in range(length)][::-1]
    return "".join(chr(33 + digit) for digit in digits)


@attack
async def query_by_a_colliding_key(closed: Closed) -> bool:
    """A key of one's own topic with the hash of another's."""
    key = colliding_key(OWN, f"{TOPIC}#order-1")
    assert java_hash(f"{OWN}#{key}") == java_hash(f"{TOPIC}#order-1")
    await asyncio.sleep(1)
    return tells(await closed.mallory.ask(R.QUERY_MESSAGE, _query(OWN, key)))


@attack
async def anothers_topic_is_written(closed: Closed) -> bool:
    """By each form of a send."""
    before = await closed.count()
    properties = encode_properties({"UNIQ_KEY": "m", "WAIT": "true"})
    long_form = {
        "producerGroup": "pg", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
        "queueId": 0, "sysFlag": 0, "bornTimestamp": 0, "flag": 0, "properties": properties,
        "reconsumeTimes": 0, "unitMode": "false", "batch": "false",
    }  # fmt: skip
    batch = encode_batch([(0, b"forged", b"")])
    for code, ext, body in (
        (R.SEND_MESSAGE, long_form, b"forged"),
        (R.SEND_MESSAGE_V2, send_ext(TOPIC), b"forged"),
        (R.SEND_MESSAGE_V2, send_ext(TOPIC, m="true"), batch),
        (R.SEND_BATCH_MESSAGE, send_ext(TOPIC, m="true"), batch),
        (R.SEND_REPLY_MESSAGE, long_form, b"forged"),
        (R.SEND_REPLY_MESSAGE_V2, send_ext(TOPIC), b"forged"),
    ):
        await closed.mallory.ask(code, ext, body)
    return await closed.count() != before


@pytest.mark.promise(
    "Security", "the signature covers all fields and the body; what counts is what was signed"
)
@attack
async def two_values_of_one_field(closed: Closed) -> bool:
    """The topic is in the header twice: guard and processor must mean the same one."""
    before = await closed.count()
    for first, last in ((OWN, TOPIC), (TOPIC, OWN)):
        ext = encode_dict({key: str(value) for key, value in send_ext(last).items()})
        signed = Signer(MALLORY).sign(ext, b"forged")
        double = b'{"b":"%b",' % first.encode() + signed[1:]
        wire, signer = closed.mallory.wire, closed.mallory.wire.signer
        wire.signer = None
        opaque = wire.send_request(R.SEND_MESSAGE_V2, double, b"forged")
        wire.signer = signer
        closed.mallory.writer.write(b"".join(wire.data_to_send()))
        while (await closed.mallory.receive()).opaque != opaque:
            pass
    return await closed.count() != before


RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"


async def _give_back(closed: Closed) -> None:
    """Alice's message comes to the retry topic of her group."""
    ext = {"offset": closed.record_offset, "group": GROUP, "delayLevel": 1, "originTopic": TOPIC}
    assert (await closed.alice.ask(R.CONSUMER_SEND_MSG_BACK, ext)).code == 0
    await asyncio.sleep(15)


@attack
async def anothers_retries_are_read(closed: Closed) -> bool:
    """A pull of another group's retry topic, in one's own group."""
    await _give_back(closed)
    assert tells(await closed.alice.ask(R.PULL_MESSAGE, pull_of(RETRY, GROUP)))
    for topic in (RETRY, f"%RETRY%{RETRY}"):
        for group in (OWN_GROUP, GROUP, f"%RETRY%{OWN_GROUP}"):
            if tells(await closed.mallory.ask(R.PULL_MESSAGE, pull_of(topic, group))):
                return True
    return False


@attack
async def anothers_dead_letters_are_read(closed: Closed) -> bool:
    """A pull of another group's dead letters."""
    ext = {
        "offset": closed.record_offset, "group": GROUP, "delayLevel": -1, "originTopic": TOPIC,
    }  # fmt: skip
    assert (await closed.alice.ask(R.CONSUMER_SEND_MSG_BACK, ext)).code == 0
    replies = [await closed.mallory.ask(R.PULL_MESSAGE, pull_of(DEAD) | {"queueId": 0})]
    return any(map(tells, replies))


@attack
async def anothers_retries_are_written(closed: Closed) -> bool:
    """A send to another group's retry topic: its consumers would take it for their own."""
    sent = [await closed.mallory.produce(topic) for topic in (RETRY, DEAD)]
    return await any_done(sent)


@pytest.mark.promise(
    "Security",
    "a message that is named by its place is judged by its topic, through a proxy as well",
)
@attack
async def anothers_message_sent_back(closed: Closed) -> bool:
    """CONSUMER_SEND_MSG_BACK copies what stands at a place of the log to one's own retry topic."""
    ext = {"offset": closed.record_offset, "group": OWN_GROUP, "delayLevel": 1, "originTopic": OWN}
    await closed.mallory.ask(R.CONSUMER_SEND_MSG_BACK, ext)
    await asyncio.sleep(15)
    return tells(await closed.mallory.ask(R.PULL_MESSAGE, pull_of(f"%RETRY%{OWN_GROUP}")))


@attack
async def anothers_message_consumed_directly(closed: Closed) -> bool:
    """CONSUME_MESSAGE_DIRECTLY hands a message named by its id to a client of one's own."""
    assert (
        await closed.mallory.ask(R.HEART_BEAT, {}, _consumer("mallory-client", OWN_GROUP, OWN))
    ).code == 0
    ext = {
        "consumerGroup": OWN_GROUP, "clientId": "mallory-client", "msgId": closed.record_id,
        "brokerName": "broker-a",
    }  # fmt: skip
    for topic in ({}, {"topic": OWN}):
        closed.mallory.send(R.CONSUME_MESSAGE_DIRECTLY, ext | topic)
    return any(map(tells, await closed.mallory.listen(2)))


@attack
async def anothers_pop_is_acknowledged(closed: Closed) -> bool:
    """A receipt of another group, under one's own names and under the true ones."""
    fields = pop_ext(closed.now_ms()) | {
        "topic": TOPIC, "consumerGroup": GROUP, "queueId": 0, "invisibleTime": 10_000,
    }  # fmt: skip
    (message,) = popped(await closed.alice.ask(R.POP_MESSAGE, fields))
    acknowledge = message.ack_ext(GROUP)
    own = acknowledge | {"consumerGroup": OWN_GROUP, "topic": OWN}
    start = message.receipt.split(" ")
    batch = {
        "brokerName": "broker-a",
        "acks": [
            {
                "c": GROUP, "t": TOPIC, "r": "0", "so": int(start[0]), "q": 0, "rq": int(start[3]),
                "pt": int(start[1]), "it": int(start[2]), "b": "AQ==",
            }
        ],
    }  # fmt: skip
    for ext in (acknowledge, own, own | {"topic": TOPIC}, own | {"consumerGroup": GROUP}):
        await closed.mallory.ask(R.ACK_MESSAGE, ext)
        await closed.mallory.ask(R.CHANGE_MESSAGE_INVISIBLETIME, ext | {"invisibleTime": 10**9})
    await closed.mallory.ask(R.BATCH_ACK_MESSAGE, {}, json.dumps(batch).encode())
    await asyncio.sleep(60)
    again = await closed.alice.ask(
        R.POP_MESSAGE, fields | {"bornTime": closed.now_ms(), "queueId": -1}
    )
    return not tells(again)


def _consumer(client: str, group: str, topic: str) -> bytes:
    return json.dumps(
        {
            "clientID": client, "producerDataSet": [], "consumerDataSet": [{
                "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
                "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1}],
            }],
        }
    ).encode()  # fmt: skip


def _producer(client: str, group: str) -> bytes:
    return json.dumps(
        {"clientID": client, "producerDataSet": [{"groupName": group}], "consumerDataSet": []}
    ).encode()


@attack
async def group_joined_without_right(closed: Closed) -> bool:
    """A member of another's group takes its queues away from the others."""
    assert (
        await closed.alice.ask(R.HEART_BEAT, {}, _consumer("alice-client", GROUP, TOPIC))
    ).code == 0
    beat = _consumer("mallory-client", GROUP, OWN)
    await closed.mallory.ask(R.HEART_BEAT, {}, beat)
    closed.mallory.send(R.HEART_BEAT, {}, beat, oneway=True)
    closed.stranger.send(R.HEART_BEAT, {}, beat, oneway=True)
    await asyncio.sleep(1)
    reply = await closed.alice.ask(R.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP})
    return b"mallory" in bytes(reply.body)


@attack
async def anothers_queues_locked(closed: Closed) -> bool:
    """Who locks the queues of an orderly group stops it."""
    body = {
        "consumerGroup": GROUP, "clientId": "mallory-client", "onlyThisBroker": True,
        "mqSet": [{"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}],
    }  # fmt: skip
    return (await closed.mallory.ask(R.LOCK_BATCH_MQ, {}, json.dumps(body).encode())).code == 0


@attack
async def anothers_transaction_ended(closed: Closed) -> bool:
    """END_TRANSACTION names a half message by its place: with a topic of one's own, or none."""
    half, before = await closed.half(), await closed.count()
    for topic in ({}, {"topic": OWN}, {"topic": TOPIC}, {"topic": ""}):
        for kind in (8, 12):
            await closed.mallory.ask(R.END_TRANSACTION, half | {"commitOrRollback": kind} | topic)
    if await closed.count() != before:
        return True
    ended = await closed.alice.ask(
        R.END_TRANSACTION, half | {"commitOrRollback": 8, "topic": TOPIC}
    )
    return ended.code != 0  # mallory has rolled it back


@attack
async def anothers_transaction_checked(closed: Closed) -> bool:
    """Brokers send the half message to who says it is a producer of its group."""
    await closed.half()
    await closed.mallory.ask(R.HEART_BEAT, {}, _producer("mallory-client", PRODUCERS))
    return any(map(tells, await closed.mallory.listen(30)))


@pytest.mark.promise("Security", "a client's id is its account's, in each protocol")
@attack
async def anothers_reply_caught(closed: Closed) -> bool:
    """Replies go to a client by its id, which anybody can say in a heartbeat."""
    await rule(closed.admin, "alice", "Pub", "Topic:DefaultCluster_REPLY_TOPIC")
    asker = await connect(BROKER, ALICE)
    assert (await asker.ask(R.HEART_BEAT, {}, _producer("alice-client", PRODUCERS))).code == 0
    await closed.mallory.ask(R.HEART_BEAT, {}, _producer("alice-client", "mallory-producers"))
    named = {
        "UNIQ_KEY": "r", "WAIT": "true", "REPLY_TO_CLIENT": "alice-client", "CORRELATION_ID": "1",
        "MSG_TYPE": "reply", "TTL": "3000",
    }  # fmt: skip
    ext = send_ext("DefaultCluster_REPLY_TOPIC", properties=named)
    closed.alice.send(R.SEND_REPLY_MESSAGE_V2, ext, SECRET_BODY)
    return any(map(tells, await closed.mallory.listen(2)))


@attack
async def operators_signature_passed_on(closed: Closed) -> bool:
    """What the broker passes on to a client has nothing of who asked for it."""
    beat = _consumer("mallory-client", OWN_GROUP, OWN)
    assert (await closed.mallory.ask(R.HEART_BEAT, {}, beat)).code == 0
    ext = {"consumerGroup": OWN_GROUP, "clientId": "mallory-client"}
    closed.admin.send(R.GET_CONSUMER_RUNNING_INFO, ext)
    closed.admin.send(R.CONSUME_MESSAGE_DIRECTLY, ext | {"msgId": closed.record_id, "topic": OWN})
    heard = await closed.mallory.listen(2)
    return any(b"Signature" in bytes(command.ext) for command in heard)


@attack
async def anothers_offsets_moved(closed: Closed) -> bool:
    """Committed, reset, cloned from and to."""
    ask = closed.mallory.ask
    clone = {"topic": TOPIC, "offline": "false"}
    return await any_done(
        [
            await ask(R.UPDATE_CONSUMER_OFFSET, _offset()),
            await ask(R.QUERY_CONSUMER_OFFSET, {key: value for key, value in _offset().items() if key != "commitOffset"}),
            await ask(R.INVOKE_BROKER_TO_RESET_OFFSET, {"topic": TOPIC, "group": GROUP, "timestamp": 0, "isForce": "true"}),
            await ask(R.CLONE_GROUP_OFFSET, clone | {"srcGroup": GROUP, "destGroup": OWN_GROUP}),
            await ask(R.CLONE_GROUP_OFFSET, clone | {"srcGroup": OWN_GROUP, "destGroup": GROUP}),
            await ask(R.UNREGISTER_CLIENT, {"clientID": "alice-client", "consumerGroup": GROUP}),
        ]
    )  # fmt: skip


@attack
async def others_are_looked_at(closed: Closed) -> bool:
    """What topics and groups others have, how far they are, who they are."""
    ask, names = closed.mallory.ask, closed.mallory_names.ask
    replies = [
        await ask(R.GET_TOPIC_STATS_INFO, {"topic": TOPIC}),
        await ask(R.GET_TOPIC_CONFIG, {"topic": TOPIC}),
        await ask(R.GET_CONSUME_STATS, {"consumerGroup": GROUP}),
        await ask(R.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": GROUP}),
        await ask(R.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP}),
        await ask(R.QUERY_CONSUME_QUEUE, {"topic": TOPIC, "queueId": 0, "index": 0, "count": 8, "consumerGroup": GROUP}),
        await ask(R.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": 0}),
        await ask(R.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": TOPIC, "queueId": 0, "timestamp": 0}),
        await ask(R.GET_ALL_TOPIC_CONFIG),
        await ask(R.GET_ALL_CONSUMER_OFFSET),
        await ask(R.GET_BROKER_RUNTIME_INFO),
        await ask(R.GET_BROKER_CONFIG),
        await ask(R.FOLLOW_TABLES, {}, b"{}"),
        await names(R.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}),
        await names(R.WATCH_ROUTES, {}, json.dumps({"topicList": [TOPIC]}).encode()),
        await names(R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        await names(R.GET_BROKER_CLUSTER_INFO),
        await names(R.GET_NAMESRV_CONFIG),
        await names(R.GET_KVLIST_BY_NAMESPACE, {"namespace": "ORDER_TOPIC_CONFIG"}),
    ]  # fmt: skip
    return await any_done(replies)


# What belongs to operators


@attack
async def operators_requests_of_a_user(closed: Closed) -> bool:
    """Topics, groups, routes and users are changed by who has the right to."""
    ask, names = closed.mallory.ask, closed.mallory_names.ask
    topic = {
        "topic": OWN, "defaultTopic": "TBW102", "readQueueNums": 9, "writeQueueNums": 9, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    route = {"queueDatas": [], "brokerDatas": []}
    group = json.dumps({"groupName": GROUP}).encode()
    replies = [
        await ask(R.UPDATE_AND_CREATE_TOPIC, topic),
        await ask(R.UPDATE_AND_CREATE_TOPIC, topic | {"topic": TOPIC}),
        await ask(R.UPDATE_AND_CREATE_TOPIC_LIST, {}, b'{"topicConfigList":[{"topicName":"alice-orders"}]}'),
        await ask(R.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}),
        await ask(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group),
        await ask(R.DELETE_SUBSCRIPTIONGROUP, {"groupName": GROUP}),
        await ask(R.CLEAN_UNUSED_TOPIC),
        await ask(R.DELETE_EXPIRED_COMMITLOG),
        await ask(R.CLEAN_EXPIRED_CONSUMEQUEUE),
        await names(R.REGISTER_BROKER, _registration(), b""),
        await names(R.UNREGISTER_BROKER, _registration()),
        await names(R.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"}),
        await names(R.PUT_KV_CONFIG, {"namespace": "a", "key": "b", "value": "c"}),
        await names(R.DELETE_TOPIC_IN_NAMESRV, {"topic": TOPIC}),
        await names(R.REGISTER_TOPIC_IN_NAMESRV, {"topic": OWN}, json.dumps(route).encode()),
    ]  # fmt: skip
    return await any_done(replies)


def _registration() -> dict[str, Any]:
    return {
        "brokerName": "broker-evil", "brokerAddr": "10.6.6.6:10911", "clusterName": "DefaultCluster",
        "haServerAddr": "10.6.6.6:10912", "brokerId": 0,
    }  # fmt: skip


@pytest.mark.promise(
    "Security", "asking for a broker's version is no sign of life; nobody moves a living broker"
)
@attack
async def asking_is_living(closed: Closed) -> bool:
    """Who may only look asks for a broker's version: that is a sign of life, and moves a silent broker's registration to her."""
    names = await connect(NAMESRV, ADMIN)
    await rule(names, "mallory", "Get", "Cluster:DefaultCluster")
    closed.cluster.kill(BROKER[0])
    await asyncio.sleep(12)
    version = json.dumps({"counter": 1, "timestamp": 1}).encode()
    asked = {
        "brokerName": "broker-a",
        "brokerAddr": f"{BROKER[0]}:{BROKER[1]}",
        "brokerId": 0,
        "clusterName": "DefaultCluster",
    }
    return (await closed.mallory_names.ask(R.QUERY_DATA_VERSION, asked, version)).code == 0


@pytest.mark.promise(
    "Security",
    "keys of the controller's store are groups' records; its etcd takes members of its authority alone",
)
@attack
async def other_keys_of_the_controllers_store(closed: Closed) -> bool:
    """An operator reads and writes what is no group's record, with the name server's own rights to its etcd; or another cluster's."""
    operator, admin = await connect(NAMESRV, OPERATOR), await connect(NAMESRV, ADMIN)
    replies = [
        await admin.ask(R.GET_REGISTER, {"key": "payments/secret"}),
        await admin.ask(R.PUT_REGISTER_IF, {"key": "payments/secret", "revision": 0}, b"mine"),
        await operator.ask(R.GET_REGISTER, {"key": "roquette/OtherCluster/broker-a"}),
        await operator.ask(
            R.PUT_REGISTER_IF, {"key": "roquette/OtherCluster/broker-a", "revision": 0}, b"mine"
        ),
    ]
    return await any_done(replies)


@attack
async def user_gives_itself_rights(closed: Closed) -> bool:
    """Users and rules at both servers, by an ordinary user."""
    for ask in (closed.mallory.ask, closed.mallory_names.ask):
        body = acl_body("mallory", "All", "*")
        user = b'{"username":"%b","password":"p","userType":"Super"}'
        replies = [
            await ask(R.AUTH_CREATE_ACL, {"subject": "User:mallory"}, body),
            await ask(R.AUTH_UPDATE_ACL, {"subject": "User:mallory"}, body),
            await ask(R.AUTH_DELETE_ACL, {"subject": "User:alice"}),
            await ask(R.AUTH_CREATE_USER, {"username": "eve"}, user % b"eve"),
            await ask(R.AUTH_UPDATE_USER, {"username": "mallory"}, user % b"mallory"),
            await ask(R.AUTH_DELETE_USER, {"username": "alice"}),
            await ask(R.AUTH_LIST_USER),
        ]
        if await any_done(replies):
            return True
    return False


@pytest.mark.promise(
    "Security", "who may change users makes no super user, and no rules for itself"
)
@attack
async def operator_becomes_super_user(closed: Closed) -> bool:
    """Who may change users is not yet a super user, and cannot make one, or take over one that is there."""
    operator = await connect(BROKER, OPERATOR)
    kinds = b'{"username":"%b","password":"p","userType":"Super","userStatus":"enable"}'
    replies = [
        await operator.ask(R.AUTH_CREATE_USER, {"username": "eve"}, kinds % b"eve"),
        await operator.ask(R.AUTH_UPDATE_USER, {"username": "operator"}, kinds % b"operator"),
        await operator.ask(
            R.AUTH_UPDATE_USER, {"username": "admin"}, b'{"username":"admin","password":"p"}'
        ),
        await operator.ask(R.AUTH_DELETE_USER, {"username": "admin"}),
    ]
    return await any_done(replies)


# Topics of the broker's own


INNER_TOPICS = (
    "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "rmq_sys_REVIVE_LOG_DefaultCluster",
)  # fmt: skip


async def _all_but_alices(closed: Closed) -> None:
    """Mallory may use all topics and groups but alice's."""
    await rule(closed.admin, "mallory", "Pub,Sub", "Topic:*", "Group:*")
    await rule(closed.admin, "mallory", "All", "Topic:alice*", "Group:alice*", decision="Deny")


@attack
async def denied_within_what_is_allowed(closed: Closed) -> bool:
    """A rule that denies a part of what a wider one allows."""
    await _all_but_alices(closed)
    assert (await closed.mallory.produce("public")).code == 0
    return await anothers_topic_is_read(closed) or await anothers_topic_is_written(closed)


@pytest.mark.promise("Security", "`Topic:*` does not mean the broker's own topics")
@attack
async def waiting_messages_are_read(closed: Closed) -> bool:
    """Delayed, timed and half messages wait in topics of the broker's own, which `Topic:*` does not mean."""
    await _all_but_alices(closed)
    for more in ({"DELAY": "18"}, {"TIMER_DELAY_SEC": "600"}):
        named = {"UNIQ_KEY": "w", "WAIT": "true"} | more
        sent = await closed.alice.produce(TOPIC, SECRET_BODY, properties=named)
        assert sent.code == 0, sent.remark
    await closed.half()
    for topic in INNER_TOPICS:
        for queue in (0, 17):
            if tells(await closed.mallory.ask(R.PULL_MESSAGE, pull_of(topic) | {"queueId": queue})):
                return True
    return False


@pytest.mark.promise("Security", "`Topic:*` does not mean the broker's own topics")
@attack
async def broker_topics_are_written(closed: Closed) -> bool:
    """What the broker believes of its own: acknowledgements, ends of transactions, due times."""
    await _all_but_alices(closed)
    named = {"UNIQ_KEY": "w", "WAIT": "true", "REAL_TOPIC": TOPIC, "REAL_QID": "0"}
    return await any_done(
        [await closed.mallory.produce(topic, b"x", properties=named) for topic in INNER_TOPICS]
    )


@attack
async def message_smuggled_by_properties(closed: Closed) -> bool:
    """Properties with which a broker notes where a waiting message belongs."""
    before = await closed.count()
    place = {
        "UNIQ_KEY": "w",
        "WAIT": "true",
        "REAL_TOPIC": TOPIC,
        "REAL_QID": "0",
        "RETRY_TOPIC": TOPIC,
    }
    now_ms = closed.now_ms()
    for more in (
        {"DELAY": "1"}, {"TIMER_DELAY_SEC": "2"}, {"TIMER_OUT_MS": str(now_ms + 2000)},
        {"TIMER_DELIVER_MS": str(now_ms + 2000), "TIMER_OUT_MS": str(now_ms + 2000)},
        {"TIMER_OUT_MS": str(now_ms + 1000), "DELAY": "1"},
    ):  # fmt: skip
        await closed.mallory.produce(OWN, b"forged", properties=place | more)
    half = {"TRAN_MSG": "true", "PGROUP": "mallory-producers"}
    sent = await closed.mallory.call(
        310, send_ext(OWN, properties=place | half, f=4, g=closed.now_ms()), b"forged"
    )
    if sent.code == 0:
        ext = ext_dict(sent.ext)
        end = {
            "producerGroup": "mallory-producers", "tranStateTableOffset": ext["queueOffset"],
            "commitLogOffset": int(ext["msgId"][-16:], 16), "fromTransactionCheck": "false",
            "msgId": "w", "transactionId": "w", "commitOrRollback": 8, "topic": OWN,
        }  # fmt: skip
        await closed.mallory.ask(R.END_TRANSACTION, end)
    await asyncio.sleep(10)
    return await closed.count() != before


async def _timed(closed: Closed) -> tuple[str, int]:
    """The handle and the time of a message of alice that comes in 20 s."""
    due_ms = closed.now_ms() + 20_000
    named = {"UNIQ_KEY": "timed", "WAIT": "true", "TIMER_DELIVER_MS": str(due_ms)}
    sent = await closed.alice.produce(TOPIC, SECRET_BODY, properties=named)
    assert sent.code == 0, sent.remark
    return ext_dict(sent.ext)["recallHandle"], due_ms


@attack
async def anothers_timer_recalled(closed: Closed) -> bool:
    """A recall names a message by a handle, in which the topic stands as well."""
    before = await closed.count()
    handle, _ = await _timed(closed)
    for topic in (TOPIC, OWN):
        ext = {"producerGroup": "p", "topic": topic, "recallHandle": handle}
        await closed.mallory.ask(R.RECALL_MESSAGE, ext)
    await asyncio.sleep(40)
    return await closed.count() != before + 1


@attack
async def anothers_timer_deleted_by_a_property(closed: Closed) -> bool:
    """A timer message of one's own that says it takes another's away."""
    before = await closed.count()
    _, due_ms = await _timed(closed)
    named = {
        "UNIQ_KEY": "evil", "WAIT": "true", "TIMER_DELIVER_MS": str(due_ms),
        "TIMER_DEL_UNIQKEY": f"{TOPIC}+timed",
    }  # fmt: skip
    await closed.mallory.produce(OWN, b"0", properties=named)
    await asyncio.sleep(40)
    return await closed.count() != before + 1


@attack
async def rules_without_end(closed: Closed) -> bool:
    """More rules than a server keeps, and names longer than it takes."""
    many = [f"Topic:t{number}" for number in range(50_001)]  # users.MOST_RULES and one
    replies = [
        await closed.admin.ask(R.AUTH_CREATE_ACL, {"subject": "User:alice"}, acl_body("alice", "Pub", *resources))
        for resources in (many, ["Topic:" + "x" * 1_000_000], ["Topic:a*b*"], ["Nonsense:a"])
    ]  # fmt: skip
    return await any_done(replies)


@attack
async def unsubscribed_messages(closed: Closed) -> bool:
    """An answer of alice's last request does not leave on mallory's connection."""
    reply = await closed.mallory.ask(R.PULL_MESSAGE, pull_of(OWN))
    return SECRET_BODY in b"".join(bodies(reply))
