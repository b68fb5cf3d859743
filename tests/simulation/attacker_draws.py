"""Requests of a random attacker: any code of either server, any rpc, HTTP and the port for replicas, with names, ids, places
and handles of his own, of others, and of nobody.
"""

import json
import zlib
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from tests.access.attackers import acl_body
from tests.access.attacks import AUTH_LINES, LOOKALIKES, PATHS, colliding_key
from tests.request_samples import (
    BODIES,
    BROKER_ROWS,
    LETTERS,
    NAMESRV_ROWS,
    REGISTRATION,
    body_of,
    ext_of,
)
from tests.simulation.attacker_model import (
    CLUSTER,
    HIDDEN_TOPIC,
    INNER_TOPICS,
    LEFT,
    REPLIES,
    SENT_PASSWORD,
    SUPERS,
    USERS,
)

from roquette.message.properties import encode_properties
from roquette.wire.codes import RequestCode as R
from roquette.wire.command import Command
from roquette.wire.header_codec import ext_dict
from roquette.wire.proto import service_pb2 as s
from roquette.wire.signature import SIGNATURE

ROWS = {"broker": BROKER_ROWS, "names": NAMESRV_ROWS}
RPCS = [
    (method.name, getattr(s, method.input_type.name))
    for method in s.DESCRIPTOR.services_by_name["MessagingService"].methods
]
DOORS = ("broker", "names", "fast", "proxy", "local", "http", "http-names", "ha")
WEIGHTS = (50, 18, 3, 22, 4, 1, 1, 1)
OWN_TOPIC = {
    "guest": "public",
    "mallory": "mallory-own",
    "owner": "owner-topic",
    "wide": "wide-own",
}
TOPICS = (
    "alice-orders", "alice-orders", "alice-orders", "alice-pops", "alice-paid", "public", "owner-topic",
    "mallory-own", "%RETRY%alice-billing", "%DLQ%alice-billing", "%RETRY%alice-pops-group_alice-pops",
    "%RETRY%alice-pops-group+alice-pops", "%RETRY%%RETRY%alice-billing", "ns%alice-orders", *INNER_TOPICS,
    "TBW102", REPLIES, "", "../../evil", "owner/../../evil", "new-topic",
)  # fmt: skip
GROUPS = (
    "alice-billing", "alice-billing", "alice-ledger", "alice-locks", "alice-pops-group", "alice-producers",
    "%RETRY%alice-billing", "%HANDOVER%alice-billing", "guest-group", "owner-group", "new-group", "",
)  # fmt: skip
CLIENTS = ("alice-client", "alice-v5", "attacker-client", "attacker-client")
CONFIG = ("longPollingEnable=false", "orderMessageEnable=true", "fileReservedTime=71")
RESOURCES = ("Topic:alice*", "Topic:*", "*", "Group:alice*", f"Cluster:{CLUSTER}", "Namespace:x", "Topic:" + "x" * 1_000, "Topic:a*b*")  # fmt: skip
EVIL = "10.6.6.6"
BOMBS = (b"[" * 100_000, b'{"a":' * 50_000, b'{"username":' + b"9" * 10_000 + b"}", b"\xff" * 100)


class Asked(NamedTuple):
    """One request.

    Attributes:
        who: signs; "stranger": nobody. secret: with which, "" is his own.
        never: no right lets this succeed. double: a field that stands in the header twice, first with this value.
        signed: by somebody before: nobody signs now. host: from where, for HTTP.
    """

    door: str
    who: str = "stranger"
    secret: str = ""
    code: int = 0
    rpc: str = ""
    ext: dict[str, str] = {}
    body: bytes = b""
    client: str = ""
    oneway: bool = False
    never: bool = False
    double: str = ""
    signed: bool = False
    host: str = EVIL

    def __str__(self) -> str:
        what = self.rpc or (R(self.code).name if self.code in list(R) else str(self.code))
        forged = " (wrong secret)" if self.secret else " (signed before)" if self.signed else ""
        more = f" twice {self.double!r}" if self.double else ""
        return f"{self.door}: {what} of {self.who}{forged}{more} as {self.client!r} {self.ext} {self.body[:300]!r}"


class Facts:
    """What the attacker has seen, or can guess.

    Attributes:
        known: whole requests about what is another's, by code or rpc. words: ids, receipts and handles. places: of messages
            in the log. captured: what servers asked of a broker of his.
    """

    def __init__(self) -> None:
        self.known: dict[int | str, list[tuple[dict[str, str], bytes]]] = defaultdict(list)
        self.words: list[str] = ["", "x"]
        self.places: list[int] = [0]
        self.captured: list[Command] = []
        self.challenges: list[str] = []
        self.now_ms = 0

    def know(self, code: int | str, ext: dict[str, Any], body: bytes = b"") -> None:
        self.known[code].append(({key: str(value) for key, value in ext.items()}, body))

    def see(self, ext: dict[str, str]) -> None:
        """Keep what stands in an answer."""
        for name in ("msgId", "transactionId", "recallHandle", "popTime"):
            if name in ext and len(self.words) < 200:
                self.words.append(ext[name])
        if "challenge" in ext:
            self.challenges.append(ext["challenge"])
        if len(ext.get("msgId", "")) == 32:
            self.places.append(int(ext["msgId"][-16:], 16))


class Draws:
    """Everything an attacker does, by one seed."""

    def __init__(self, dice: Random, party: str, facts: Facts) -> None:
        self.dice, self.party, self.facts = dice, party, facts
        self.own_topic = OWN_TOPIC.get(party, "new-topic")
        self.own_group = f"{party}-group"
        self.topics = (*TOPICS, f"%RETRY%{party}-group", f"%DLQ%{party}-group")
        rules = (
            party == "operator"
        )  # may let others in: those that attack beside it it leaves alone
        self.names = [name for name in USERS if not rules or name in {*SUPERS, party, "alice"}] + [
            "new-user",
            *LOOKALIKES,
        ]

    def some(self, *values: Any) -> Any:
        return self.dice.choice(values)

    def often(self, chance: float) -> bool:
        return self.dice.random() < chance

    def request(self) -> Asked:
        """The next one."""
        (door,) = self.dice.choices(DOORS, WEIGHTS)
        self.topic = self.own_topic if self.often(0.35) else self.dice.choice(self.topics)
        self.group = self.own_group if self.often(0.4) else self.dice.choice(GROUPS)
        who, secret = self._signer()
        if self.facts.captured and self.often(0.2):
            return self._replayed()
        if door.startswith("http"):
            path = self.some("/metrics", "/", "/healthz", "/../etc", "/metrics?x=1")
            host = self.some(EVIL, "127.0.0.1")  # there a browser, whose page has another name
            return Asked(door, rpc=path, client="evil.example", host=host)
        if door == "ha":
            said = self.dice.choice(self.facts.challenges) if self.facts.challenges else ""
            return Asked(door, who=self.party, rpc=said)
        if door in ("proxy", "local"):
            rpc, kind = self.dice.choice(RPCS)
            known = self.facts.known.get(rpc)
            message = kind()
            if known and self.often(0.5):
                message.ParseFromString(self.dice.choice(known)[1])
                self._rename(message)
            else:
                self._fill(message)
            client = self.dice.choice(CLIENTS)
            return Asked(
                door, who, secret, rpc=rpc, body=message.SerializeToString(), client=client
            )
        asked = self._remoting(door)
        return asked._replace(who=who, secret=secret, oneway=self.often(0.05))

    def _signer(self) -> tuple[str, str]:
        if self.often(0.78):
            return self.party, ""
        who = self.some("stranger", *LEFT, *LEFT, "alice", "alice", "admin")
        return who, "" if who in LEFT or who == "stranger" else "not-the-secret"

    # requests of the remoting protocol

    def _remoting(self, door: str) -> Asked:
        rows = ROWS["names" if door == "names" else "broker"]
        likely = [row for row in rows if row.code in self.facts.known]
        row = self.dice.choice(likely if likely and self.often(0.5) else rows)
        code, ext, body = row.code, ext_of(row), self._body(row.code, body_of(row))
        known = self.facts.known.get(code)
        if known and self.often(0.6):
            base, body = self.dice.choice(known)
            ext = {**ext, **base}
            if self.often(0.5):
                body = self._body(code, body)
            changed = [
                name for name in ext if LETTERS.get(name, name) in _NAMES and self.often(0.5)
            ]
        else:
            changed = list(ext) + [name for name in ("topic",) if self.often(0.1)]
        for name in changed:
            value = self._value(code, LETTERS.get(name, name))
            if value is not None:
                ext[name] = value
        for name in [name for name in ext if self.often(0.02)]:
            del ext[name]
        if code == R.REGISTER_BROKER:
            ext["bodyCrc32"] = str(zlib.crc32(body) & 0x7FFFFFFF)
        lines = body.decode("latin-1").splitlines()
        never = code in (R.UPDATE_BROKER_CONFIG, R.UPDATE_NAMESRV_CONFIG) and bool(
            {*PATHS, *AUTH_LINES}.intersection(lines)
        )
        if code in (R.GET_REGISTER, R.PUT_REGISTER_IF):
            never = "/DefaultCluster/" not in ext.get("key", "")
        double = ""
        if "b" in ext and self.often(0.1):
            double = self.own_topic
        return Asked(door, code=code, ext=ext, body=body, never=never, double=double)

    def _value(self, code: int, name: str) -> str | None:
        """Of a field; None: as in the sample."""
        draw = FIELDS.get(name)
        return None if draw is None else str(draw(self, code))

    def _body(self, code: int, body: bytes) -> bytes:
        if code in (R.AUTH_CREATE_USER, R.AUTH_UPDATE_USER):
            return self._user()
        if code in (R.AUTH_CREATE_ACL, R.AUTH_UPDATE_ACL):
            self.subject = self.dice.choice(self.names)
            return acl_body(self.subject, "Pub,Sub", self.dice.choice(RESOURCES))
        if code in (R.UPDATE_BROKER_CONFIG, R.UPDATE_NAMESRV_CONFIG):
            return self.some(*PATHS, *AUTH_LINES, *CONFIG, *CONFIG).encode() + b"\n"  # type: ignore[no-any-return]
        if code == R.REGISTER_BROKER:
            topics = REGISTRATION["topicConfigSerializeWrapper"]["topicConfigTable"]  # type: ignore[call-overload,index]
            table = {name: topics["T"] | {"topicName": name} for name in ("TBW102", "evil")}
            wrapper = {"topicConfigTable": table, "dataVersion": {"counter": 1, "timestamp": 1}}
            return json.dumps(
                {"topicConfigSerializeWrapper": wrapper, "filterServerList": []}
            ).encode()
        if isinstance(BODIES.get(code), dict):
            if self.often(0.02):
                return self.dice.choice(BOMBS)
            return json.dumps(self._renamed(json.loads(body))).encode()
        if code in (R.PUT_REGISTER_IF, R.GET_REGISTER):
            return b"mine"
        return body

    def _user(self) -> bytes:
        if self.often(0.1):
            return self.dice.choice(BOMBS)
        user = {
            "username": self.dice.choice(self.names), "password": SENT_PASSWORD,
            "userType": self.some("Super", "Normal", "King"), "userStatus": self.some("enable", "disable", "asleep"),
        }  # fmt: skip
        for name in [name for name in user if self.often(0.3)]:
            del user[name]
        body = json.dumps(user).encode()
        return body[:-1] if self.often(0.2) else body

    def _renamed(self, value: Any, name: str = "") -> Any:
        """A JSON body with other names in it."""
        if isinstance(value, dict):
            return {key: self._renamed(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [self._renamed(each) for each in value]
        if name in ("topic", "topicName", "t"):
            return self.topic if self.often(0.8) else self.dice.choice(self.topics)
        if name in ("groupName", "consumerGroup", "group", "c"):
            return self.group if self.often(0.8) else self.dice.choice(GROUPS)
        if name in ("clientID", "clientId"):
            return self.dice.choice(CLIENTS)
        return value

    def _replayed(self) -> Asked:
        """What a server of the cluster has signed, as it is and for something else."""
        command = self.dice.choice(self.facts.captured)
        fields = ext_dict(command.ext)
        who = {"AccessKey": fields.pop("AccessKey", ""), SIGNATURE: fields.pop(SIGNATURE, "")}
        content = "".join(fields[name] for name in sorted(fields))
        before, users, behind = content.partition("users")
        code, ext = self.some(
            (command.code, fields),
            (R.FOLLOW_TABLES, {"a": before[:-1], "once": before[-1:], "what": users, "x": behind}),
            (R.GET_HA_TICKET, {"x": content}),
            (R.AUTH_DELETE_USER, {"username": content}),
            (R.DELETE_TOPIC_IN_BROKER, {"topic": content}),
        )
        body = bytes(command.body)
        return Asked("broker", code=code, ext=ext | who, body=body, signed=True, never=True)

    # rpcs

    def _fill(self, message: Message, depth: int = 0) -> None:
        """Names of the dictionary in fields of their kind, anything in the others."""
        for field in message.DESCRIPTOR.fields:
            if self.often(0.15) or depth > 4:
                continue
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                continue
            if field.message_type is not None:
                part = getattr(message, field.name)
                part = part.add() if field.is_repeated else part
                if not field.is_repeated:
                    part.SetInParent()
                self._fill(part, depth + 1)
                self._rename_part(field.name, part)
            else:
                value = self._scalar(field)
                if field.is_repeated:
                    getattr(message, field.name).append(value)
                else:
                    setattr(message, field.name, value)

    def _scalar(self, field: Any) -> Any:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return b"forged"
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return "" if field.name == "resource_namespace" else self.dice.choice(self.facts.words)
        if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
            return self.some(0, 1, 2, 3, 4)
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return self.often(0.5)
        return self.some(0, 1, 8, 30)

    def _rename(self, message: Message) -> None:
        for field, part in message.ListFields():
            if field.message_type is None or field.message_type.GetOptions().map_entry:
                continue
            for each in part if field.is_repeated else [part]:
                self._rename(each)
                if self.often(0.5):
                    self._rename_part(field.name, each)

    def _rename_part(self, name: str, part: Any) -> None:
        if part.DESCRIPTOR.name == "Resource":
            part.name = self.group if "group" in name else self.topic
            part.resource_namespace = ""
        elif part.DESCRIPTOR.name == "Broker":
            part.name = "broker-a"


def _place(draws: Draws, code: int) -> int:
    return draws.dice.choice(draws.facts.places)


def _offset(draws: Draws, code: int) -> int:
    return _place(draws, code) if code in (R.VIEW_MESSAGE_BY_ID, R.CONSUMER_SEND_MSG_BACK) else draws.some(0, 0, 1, 77)  # type: ignore[no-any-return]  # fmt: skip


def _key(draws: Draws, code: int) -> str:
    if code in (R.GET_REGISTER, R.PUT_REGISTER_IF):
        return draws.some("roquette/DefaultCluster/broker-a", "roquette/OtherCluster/broker-a", "payments/secret")  # type: ignore[no-any-return]  # fmt: skip
    collides = colliding_key(draws.topic or "x", "alice-orders#order-1")
    return draws.some("order-1", collides, collides, "a", *draws.facts.words[:5])  # type: ignore[no-any-return]


def _properties(draws: Draws, code: int) -> str:
    """What a sender may say of its message, and what only a broker may."""
    named = {"UNIQ_KEY": f"u{draws.dice.randrange(1000)}", "WAIT": "true"}
    due = str(draws.facts.now_ms + 2_000)
    more: dict[str, str] = draws.some(
        {}, {}, {"DELAY": "1"}, {"TIMER_DELAY_SEC": "2"}, {"TIMER_DELIVER_MS": due}, {"TIMER_OUT_MS": due},
        {"TRAN_MSG": "true", "PGROUP": draws.group}, {"TIMER_DELIVER_MS": due, "TIMER_DEL_UNIQKEY": "alice-orders+timed"},
        {"MSG_TYPE": "reply", "REPLY_TO_CLIENT": "alice-client", "CORRELATION_ID": "1", "TTL": "3000"},
    )  # fmt: skip
    if draws.often(0.4):
        more = more | {"REAL_TOPIC": "alice-orders", "REAL_QID": "0", "RETRY_TOPIC": "alice-orders"}
    return encode_properties(named | more)


def _subject(draws: Draws, code: int) -> str:
    name = getattr(draws, "subject", "") if draws.often(0.7) else ""
    return f"User:{name or draws.dice.choice(draws.names)}"


_topic: Callable[[Draws, int], str] = lambda draws, code: draws.topic  # noqa: E731
_group: Callable[[Draws, int], str] = lambda draws, code: draws.group  # noqa: E731
_word: Callable[[Draws, int], str] = lambda draws, code: draws.dice.choice(draws.facts.words)  # noqa: E731


def _one(*values: str) -> Callable[[Draws, int], str]:
    return lambda draws, code: draws.dice.choice(values)


FIELDS: dict[str, Callable[[Draws, int], Any]] = {
    **dict.fromkeys(("topic", "originTopic", "topicList"), _topic),
    **dict.fromkeys(("consumerGroup", "group", "groupName", "producerGroup", "compareGroup", "filterGroups"), _group),
    **dict.fromkeys(("srcGroup", "destGroup"), lambda draws, code: draws.some(draws.group, *GROUPS)),
    **dict.fromkeys(("clientID", "clientId"), _one(*CLIENTS)),
    **dict.fromkeys(("msgId", "originMsgId", "transactionId", "recallHandle", "extraInfo"), _word),
    "commitLogOffset": _place, "offset": _offset, "key": _key, "properties": _properties,
    "queueId": _one("0", "0", "0", "-1", "1", "17"), "queueOffset": _one("0", "0", "1", "77"),
    "tranStateTableOffset": _one("0", "1", "2"), "commitOffset": _one("0", "77"), "delayLevel": _one("-1", "0", "1"),
    "commitOrRollback": _one("8", "12", "0"), "sysFlag": _one("0", "0", "4", "8", "6"), "suspendTimeoutMillis": _one("0", "1000"),
    "brokerName": _one("broker-a", "broker-evil"), "brokerAddr": _one("10.0.1.1:10911", f"{EVIL}:10911"),
    "haServerAddr": _one(f"{EVIL}:10912"), "clusterName": _one(CLUSTER, CLUSTER, "OtherCluster"),
    "cluster": _one(CLUSTER, "OtherCluster"), "username": lambda draws, code: draws.dice.choice(draws.names),
    "subject": _subject, "filter": _one("", "a"), "subjectFilter": _one(""), "resourceFilter": _one(""),
    "resource": _one("Topic:alice*", ""), "policyType": _one("", "Custom"), "what": _one("users", "orders", "offsets", "tables", "queues"),
    "since": _one(""), "once": _one("00ff", ""), "proves": _one("true", "false"), "several": _one("false"),
    "namespace": _one("ORDER_TOPIC_CONFIG", "secrets"), "maxMsgNums": _one("32"), "pollTime": _one("0", "1000"), "initMode": _one("0"),
    "bornTime": lambda draws, code: draws.facts.now_ms, "bornTimestamp": lambda draws, code: draws.facts.now_ms,
    "beginTimestamp": _one("0"), "endTimestamp": _one(str(1 << 60)), "timestamp": _one("0", "-1"), "subscription": _one("*"), "exp": _one("*"),
    "index": _one("0"), "count": _one("8"), "isForce": _one("true"), "revision": _one("0", "1"), "brokerId": _one("0", "1"),
}  # fmt: skip
_NAMES = {name for name, draw in FIELDS.items() if draw in (_topic, _group)} | {
    "clientID",
    "clientId",
}
assert HIDDEN_TOPIC not in TOPICS
