"""The door of gRPC calls: who makes them, and every rpc x right, without a socket."""

import asyncio
import hmac
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.access.gate import CLUSTER, IP, SECRET, Book

from roquette.access.guard import Audit, Guard, Scope
from roquette.access.model import (
    Acl,
    Action,
    Decision,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceType,
    subject_of,
)
from roquette.access.policies import PolicyJudge, PolicyTable
from roquette.base.clock import SystemClock
from roquette.proxy.access import RULES, CallGuard, signature_of
from roquette.proxy.clients import Clients
from roquette.proxy.service import SERVICE, Asks, Caller, Part, Proxy, Rpc, RpcCall
from roquette.proxy.statuses import RpcError
from roquette.remoting.request import Peer
from roquette.remoting.transport import InnerWire
from roquette.wire.proto import definition_pb2 as d
from roquette.wire.proto import service_pb2 as s
from roquette.wire.proto.definition_pb2 import Code

T = d.Resource(name="orders")
G = d.Resource(name="billing")
TOPIC, GROUP = Resource(ResourceType.TOPIC, "orders"), Resource(ResourceType.GROUP, "billing")
PUB, SUB, GET = Action.PUB, Action.SUB, Action.GET
SETTINGS = d.Settings(
    subscription=d.Subscription(group=G, subscriptions=[d.SubscriptionEntry(topic=T)])
)
Right = tuple[Resource, Action]
CONSUME: list[Right] = [(GROUP, SUB), (TOPIC, SUB)]
ROWS: list[tuple[str, Any, Any, list[Right]]] = [
    ("QueryRoute", s.QueryRouteRequest(topic=T), s.QueryRouteResponse, [(TOPIC, GET)]),
    ("Heartbeat", s.HeartbeatRequest(group=G), s.HeartbeatResponse, [(GROUP, SUB)]),
    ("SendMessage", s.SendMessageRequest(messages=[d.Message(topic=T)]), s.SendMessageResponse, [(TOPIC, PUB)]),
    ("QueryAssignment", s.QueryAssignmentRequest(topic=T, group=G), s.QueryAssignmentResponse, CONSUME),
    ("ReceiveMessage", s.ReceiveMessageRequest(group=G, message_queue=d.MessageQueue(topic=T)), s.ReceiveMessageResponse, CONSUME),
    ("AckMessage", s.AckMessageRequest(topic=T, group=G), s.AckMessageResponse, CONSUME),
    ("ForwardMessageToDeadLetterQueue", s.ForwardMessageToDeadLetterQueueRequest(topic=T, group=G), s.ForwardMessageToDeadLetterQueueResponse, CONSUME),
    ("EndTransaction", s.EndTransactionRequest(topic=T), s.EndTransactionResponse, [(TOPIC, PUB)]),
    ("Telemetry", s.TelemetryCommand(settings=SETTINGS), s.TelemetryCommand, CONSUME),
    ("NotifyClientTermination", s.NotifyClientTerminationRequest(group=G), s.NotifyClientTerminationResponse, [(GROUP, SUB)]),
    ("ChangeInvisibleDuration", s.ChangeInvisibleDurationRequest(topic=T, group=G), s.ChangeInvisibleDurationResponse, CONSUME),
    ("RecallMessage", s.RecallMessageRequest(topic=T), s.RecallMessageResponse, [(TOPIC, PUB)]),
]  # fmt: skip
NAMES = [row[0] for row in ROWS]


class Served(Part):
    """Every rpc: it only says that it was served."""

    def __init__(self) -> None:
        self.served: list[str] = []

    def rpcs(self) -> Iterator[Rpc[Any]]:
        for name, request, reply, _ in ROWS:
            streams, listens = name in ("ReceiveMessage", "Telemetry"), name == "Telemetry"
            yield Rpc(name, type(request), reply, self.serve, streams=streams, listens=listens)
        yield Rpc("Unheard", s.QueryRouteRequest, s.QueryRouteResponse, self.serve)

    def serve(self, call: RpcCall, request: Any) -> None:
        self.served.append(call.rpc.name)
        call.on_message = lambda message: self.served.append("again")


class Back:
    """What a client gets."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def respond(self, stream_id: int, message: bytes) -> None:
        self.got.append(message)

    def send(self, stream_id: int, messages: list[bytes]) -> None:
        self.got += messages

    def finish(self, stream_id: int, status: int, text: str) -> None:
        self.got.append((status, text))


class Door:
    """A proxy with a guard, and people."""

    def __init__(self, **scope: Any) -> None:
        self.book = Book()
        self.table = PolicyTable()
        self.guard = Guard(
            self.book, PolicyJudge(self.table), Scope(cluster=CLUSTER, **scope),
            Audit(SystemClock()),
        )  # fmt: skip
        self.calls = CallGuard(self.guard)
        self.part = Served()
        self.proxy = Proxy([self.part], SystemClock())
        self.proxy.gate = self.calls.judge
        self.asks = Asks()
        wire = InnerWire(self.asks.answered, lambda *asked: None, list)
        self.peer = Peer(None, asyncio.Transport(), 1, bytes(8), f"{IP}:4711", wire)  # type: ignore[arg-type]
        self.caller = Caller(self.peer, "client", self.asks)
        self.back = Back()
        self.said: list[str] = []

    def allow(self, name: str, rights: list[Right]) -> None:
        entries = [
            PolicyEntry(resource, (action,), (), Decision.ALLOW) for resource, action in rights
        ]
        policy = Policy(PolicyType.CUSTOM, tuple(entries))
        self.table.put(Acl(subject_of(name), (policy,)))

    def call(self, name: str, request: Any, fields: dict[bytes, bytes]) -> int:
        """The status code of a refusal; 0: it was served."""
        self.part.served.clear()
        rpc = self.proxy.rpcs[SERVICE + name]
        try:
            self.calls.prove(self.caller, {b":path": (SERVICE + name).encode(), **fields})
        except RpcError as error:
            self.said.append(error.text)
            return int(error.code)
        call = RpcCall(self.caller, rpc, self.back, 1)
        self.back.got.clear()
        self.proxy.begin(call, request.SerializeToString())
        if self.part.served:
            self.again = call
            return 0
        first = self.back.got[0]
        if isinstance(first, tuple):
            assert first[0] == 3, first
            return int(Code.FORBIDDEN)
        reply: Any = rpc.reply
        return int(reply.FromString(first).status.code)


def signed(name: str, secret: str = SECRET, when: str = "20240101T000000Z") -> dict[bytes, bytes]:
    """Metadata as official clients write them."""
    mac = hmac.digest(secret.encode(), when.encode(), "sha1").hex().upper()
    text = f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={mac}"
    return {b"authorization": text.encode(), b"x-mq-date-time": when.encode()}


@pytest.fixture
def door() -> Door:
    made = Door()
    made.book.add("alice")
    made.book.add("root", is_super=True)
    made.book.add("gone", enabled=False)
    return made


def test_the_vector_of_the_protocol() -> None:
    fields = signed("AK", "12345678")
    found = signature_of(fields)
    assert found is not None
    assert found.given == "C6FC09021280E20533C17364F135C0E3217D83E9"
    assert found.access_key == "AK"


@pytest.mark.promise("Security", "each request, and each rpc, has a rule; one without is refused")
def test_all_rpcs_have_a_rule_and_those_that_are_served_a_row() -> None:
    assert set(RULES) == {
        method.name for method in s.DESCRIPTOR.services_by_name["MessagingService"].methods
    }
    assert {name for name, rule in RULES.items() if "not served" not in rule.asks} == set(NAMES)


@pytest.mark.promise("Security", "a client's id is its account's, in each protocol")
def test_a_clients_id_is_its_accounts(door: Door) -> None:
    door.book.add("mallory")
    alice = SimpleNamespace(caller=SimpleNamespace(account="alice"))
    door.calls.clients = cast(Clients, SimpleNamespace(find={"client": alice}.get))
    for name, request, _, rights in ROWS:
        door.allow("alice", rights)
        door.allow("mallory", rights)
        assert door.call(name, request, signed("alice")) == 0
        door.caller.account = None
        assert door.call(name, request, signed("mallory")) == Code.FORBIDDEN
        door.caller.account = None


@pytest.mark.promise(
    "Security", "users and rights that go count at once, on connections that are there as well"
)
def test_a_producer_whose_right_went_is_shown_no_half_message(door: Door) -> None:
    """Its stream stands, and nothing more is asked of it for the topic."""
    clients = Clients(cast(Any, None), SystemClock())
    door.calls.watch(Proxy([clients], SystemClock()))
    for name in ("alice", "mallory"):
        client: Any = SimpleNamespace(
            id=name, listens=True, caller=Caller(door.peer, name, door.asks)
        )
        client.caller.account = name
        clients._producers.setdefault("orders", {})[name] = client
    door.book.add("mallory")
    door.allow("mallory", [(TOPIC, PUB)])

    def shown() -> str | None:
        found = clients.producer_of("orders", None, "orders")
        return None if found is None else found.id

    assert {shown(), shown()} == {"mallory"}
    assert clients.producer_of("orders", None, "others") is None
    door.allow("alice", [(TOPIC, PUB)])
    assert {shown(), shown()} == {"alice", "mallory"}
    door.book.accounts.pop("mallory")
    assert {shown(), shown()} == {"alice"}


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_who_is_not_proven_is_not_served(door: Door, row: Any) -> None:
    name, request, _, rights = row
    door.allow("alice", rights)
    good = signed("alice")
    wrong = {**good, b"authorization": good[b"authorization"][:-1] + b"!"}
    later = {**good, b"x-mq-date-time": b"20240101T000001Z"}
    for fields in (
        {}, signed("alice", "guessed"), wrong, later, signed("nobody"), signed("gone"),
        {b"authorization": good[b"authorization"]}, {**good, b"authorization": b"Basic xyz"},
        {**good, b"authorization": good[b"authorization"].lower()},
        {**good, b"authorization": b"MQv2-HMAC-SHA1 Credential=alice"},
        {**good, b"authorization": b"\xff" * 9_000},
    ):  # fmt: skip
        assert door.call(name, request, fields) == Code.UNAUTHORIZED, fields
    assert not any(SECRET in text for text in door.said)
    assert door.call(name, request, {**good, b"x-mq-session-token": b"any"}) == 0


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_a_call_needs_every_right_of_its_row(door: Door, row: Any) -> None:
    name, request, _, rights = row
    assert door.call(name, request, signed("alice")) == Code.FORBIDDEN
    for missing in rights:
        door.allow("alice", [right for right in rights if right != missing])
        assert door.call(name, request, signed("alice")) == Code.FORBIDDEN, missing
    door.allow("alice", [(Resource(one.kind, "other"), action) for one, action in rights])
    assert door.call(name, request, signed("alice")) == Code.FORBIDDEN
    door.allow("alice", rights)
    assert door.call(name, request, signed("alice")) == 0
    door.book.accounts["alice"] = door.book.accounts["gone"]
    assert door.call(name, request, signed("alice")) == Code.UNAUTHORIZED


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_a_super_user_needs_no_right(door: Door, row: Any) -> None:
    assert door.call(row[0], row[1], signed("root")) == 0


@pytest.mark.promise("Security", "each request, and each rpc, has a rule; one without is refused")
def test_an_rpc_without_a_rule_is_refused(door: Door) -> None:
    assert door.call("Unheard", s.QueryRouteRequest(topic=T), signed("root")) == Code.FORBIDDEN


def test_further_settings_are_judged_too(door: Door) -> None:
    door.allow("alice", CONSUME)
    assert door.call("Telemetry", ROWS[8][1], signed("alice")) == 0
    other = s.TelemetryCommand(
        settings=d.Settings(publishing=d.Publishing(topics=[d.Resource(name="theirs")]))
    )
    door.proxy.go_on(door.again, ROWS[8][1].SerializeToString())
    assert door.part.served == ["Telemetry", "again"]
    door.proxy.go_on(door.again, other.SerializeToString())
    assert door.part.served == ["Telemetry", "again"]
    assert door.back.got[-1][0] == 3


def test_a_namespace_counts_for_nothing(door: Door) -> None:
    door.allow("alice", [(TOPIC, GET)])
    wrapped = s.QueryRouteRequest(topic=d.Resource(resource_namespace="ns", name="orders"))
    assert door.call("QueryRoute", wrapped, signed("alice")) == 0
    inside = s.QueryRouteRequest(topic=d.Resource(resource_namespace="ns", name="ns%orders"))
    assert door.call("QueryRoute", inside, signed("alice")) == Code.FORBIDDEN


def test_one_callers_calls_are_of_one_account(door: Door) -> None:
    door.book.add("mallory")
    door.allow("alice", [(TOPIC, GET)])
    door.allow("mallory", [(TOPIC, GET)])
    assert door.call("QueryRoute", ROWS[0][1], signed("alice")) == 0
    assert door.call("QueryRoute", ROWS[0][1], signed("mallory")) == Code.UNAUTHORIZED
    assert door.caller.account == "alice"


def test_white_lists_of_codes_hold_for_the_rpcs_they_stand_for() -> None:
    door = Door(unproven=frozenset({105}), unjudged=frozenset({105}))
    assert door.call("QueryRoute", ROWS[0][1], {}) == 0
    assert door.call("Heartbeat", ROWS[1][1], {}) == Code.UNAUTHORIZED


def test_without_authorization_whoever_is_proven_may_do_everything() -> None:
    door = Door(authorize=False)
    door.book.add("alice")
    assert door.call("QueryRoute", ROWS[0][1], signed("alice")) == 0
    assert door.call("QueryRoute", ROWS[0][1], {}) == Code.UNAUTHORIZED
