"""Access control of gRPC calls: the signature of v5 clients, and the rights of each rpc.

What an rpc asks of a broker passes that broker's guard as well, as the same account. Here it is judged before anything is
looked up or made for it, and judged are the rpcs that ask nothing of a broker. The rights are Apache's 5.5.0
(DefaultAuthenticationContextBuilder, DefaultAuthorizationContextBuilder); where that asks for nothing, `note` says so.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from roquette.access.guard import Guard
from roquette.access.model import Needed, group_resource, topic_resource
from roquette.access.needs import PUB, ROUTE, SUB
from roquette.errors import Refused
from roquette.proxy.clients import Clients
from roquette.proxy.service import SERVICE, Caller, Proxy, RpcCall
from roquette.proxy.statuses import RpcError
from roquette.wire.codes import RequestCode as R
from roquette.wire.grpc import Metadata
from roquette.wire.proto.definition_pb2 import Code

AUTHORIZATION: Final = b"authorization"
DATE_TIME: Final = b"x-mq-date-time"
MOST_AUTHORIZATION: Final = 4_096  # bytes


class Rule(NamedTuple):
    """Rights that an rpc needs.

    Attributes:
        code: the request it stands for in white lists and in the audit. needed: reads what it needs from its message.
        asks: the same in words.
    """

    code: int
    needed: Callable[[Any], Iterator[Needed]]
    asks: str
    note: str = ""


def _route(request: Any) -> Iterator[Needed]:
    yield topic_resource(request.topic.name), ROUTE


def _publish(request: Any) -> Iterator[Needed]:
    yield topic_resource(request.topic.name), PUB


def _send(request: Any) -> Iterator[Needed]:
    for name in {message.topic.name for message in request.messages}:
        yield topic_resource(name), PUB


def _consume(request: Any) -> Iterator[Needed]:
    yield group_resource(request.group.name), SUB
    yield topic_resource(request.topic.name), SUB


def _receive(request: Any) -> Iterator[Needed]:
    yield group_resource(request.group.name), SUB
    yield topic_resource(request.message_queue.topic.name), SUB


def _group(request: Any) -> Iterator[Needed]:
    if request.group.name:
        yield group_resource(request.group.name), SUB


def _settings(command: Any) -> Iterator[Needed]:
    settings = command.settings if command.HasField("settings") else None
    if settings is None:
        return
    for topic in settings.publishing.topics:
        yield topic_resource(topic.name), PUB
    subscription = settings.subscription
    if subscription.group.name:
        yield group_resource(subscription.group.name), SUB
    for entry in subscription.subscriptions:
        yield topic_resource(entry.topic.name), SUB


def _nothing(request: Any) -> Iterator[Needed]:
    return iter(())


_CONSUMES: Final = "Group and Topic: Sub"
_UNSERVED: Final = "an account; it is not served"

RULES: Final[dict[str, Rule]] = {
    "QueryRoute": Rule(R.GET_ROUTEINFO_BY_TOPIC, _route, "Topic: Pub or Sub or Get"),
    "Heartbeat": Rule(R.HEART_BEAT, _group, "Group, where it names one: Sub"),
    "SendMessage": Rule(R.SEND_MESSAGE_V2, _send, "each Topic: Pub"),
    "QueryAssignment": Rule(R.QUERY_ASSIGNMENT, _consume, _CONSUMES),
    "ReceiveMessage": Rule(R.POP_MESSAGE, _receive, _CONSUMES),
    "AckMessage": Rule(R.ACK_MESSAGE, _consume, _CONSUMES),
    "ForwardMessageToDeadLetterQueue": Rule(R.CONSUMER_SEND_MSG_BACK, _consume, _CONSUMES),
    "EndTransaction": Rule(R.END_TRANSACTION, _publish, "Topic: Pub"),
    "Telemetry": Rule(
        R.HEART_BEAT, _settings,
        "settings: each Topic published to: Pub; Group and each Topic subscribed to: Sub",
    ),
    "NotifyClientTermination": Rule(R.UNREGISTER_CLIENT, _group, "Group, where it names one: Sub"),
    "ChangeInvisibleDuration": Rule(R.CHANGE_MESSAGE_INVISIBLETIME, _consume, _CONSUMES),
    "RecallMessage": Rule(R.RECALL_MESSAGE, _publish, "Topic: Pub"),
    "PullMessage": Rule(R.PULL_MESSAGE, _nothing, _UNSERVED),
    "UpdateOffset": Rule(R.UPDATE_CONSUMER_OFFSET, _nothing, _UNSERVED),
    "GetOffset": Rule(R.QUERY_CONSUMER_OFFSET, _nothing, _UNSERVED),
    "QueryOffset": Rule(R.SEARCH_OFFSET_BY_TIMESTAMP, _nothing, _UNSERVED),
    "SyncLiteSubscription": Rule(R.HEART_BEAT, _nothing, _UNSERVED),
}  # fmt: skip
"""By rpc. One without a rule is refused (`tests/proxy/test_access.py`)."""

_BY_PATH: Final = {f"{SERVICE}{name}".encode(): rule for name, rule in RULES.items()}


class Signature(NamedTuple):
    """Signature of a call: an access key, the signature, and what was signed."""

    access_key: str
    given: str
    content: bytes


def signature_of(fields: Metadata) -> Signature | None:
    """The v5 signature among a call's metadata; None: there is none.

    `authorization: MQv2-HMAC-SHA1 Credential=AK/..., SignedHeaders=x-mq-date-time, Signature=HEX`; what is signed is the
    text of `x-mq-date-time`, of any form: official clients write local time there, so that no window can be asked for.

    Raises:
        RpcError: it cannot be read.
    """
    header = fields.get(AUTHORIZATION, b"")
    if not header:
        return None
    content = fields.get(DATE_TIME, b"")
    if not content:
        raise RpcError(Code.UNAUTHORIZED, "datetime is null.")
    _, space, rest = header.partition(b" ")
    pairs = (pair.partition("=") for pair in rest.decode("utf-8", "replace").split(","))
    values = {name.strip(): value.strip() for name, _, value in pairs}
    access_key = values.get("Credential", "").partition("/")[0]
    if not space or len(header) > MOST_AUTHORIZATION or not access_key:
        raise RpcError(Code.UNAUTHORIZED, "authentication header is incorrect.")
    return Signature(access_key, values.get("Signature", ""), content)


class CallGuard:
    """The guard of a server, as the proxy asks it.

    Attributes:
        clients: those that are known: what one says nobody else's account may say in its place.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.clients: Clients | None = None

    def watch(self, proxy: Proxy) -> None:
        """Judge the calls of a proxy, and what its clients say."""
        proxy.gate = self.judge
        self.clients = next(part for part in proxy.parts if isinstance(part, Clients))
        self.clients.may_publish = self.publishes

    def publishes(self, caller: Caller, topic: str) -> bool:
        """Return True when a caller may publish to a topic now."""
        try:
            needed: list[Needed] = [(topic_resource(topic), PUB)]
            self._guard.judge(caller.account, caller.peer, R.SEND_MESSAGE_V2, needed)
        except Refused:
            return False
        return True

    def prove(self, caller: Caller, fields: Metadata) -> None:
        """Prove who makes a call (`Sessions`); raises RpcError UNAUTHORIZED."""
        rule = _BY_PATH.get(fields.get(b":path", b""))
        code = int(R.HEART_BEAT) if rule is None else rule.code
        signature = signature_of(fields)
        try:
            if signature is None:
                self._guard.unsigned(caller.peer, code)
                return
            account = self._guard.prove(caller.peer, code, *signature)
        except Refused as refusal:
            raise RpcError(Code.UNAUTHORIZED, refusal.remark) from None
        if caller.account not in (None, account):  # calls under way are made by somebody else
            raise RpcError(Code.UNAUTHORIZED, "authentication header is incorrect.")
        caller.account = account

    def judge(self, call: RpcCall, request: Any) -> None:
        """Judge a message of a call before it is served (`Proxy.gate`); raises RpcError FORBIDDEN."""
        rule = RULES.get(call.rpc.name)
        caller = call.caller
        try:
            if rule is None:
                self._guard.judge(caller.account, caller.peer, -1, None)
            else:
                self._guard.judge(
                    caller.account, caller.peer, rule.code, list(rule.needed(request))
                )
        except Refused as refusal:
            raise RpcError(Code.FORBIDDEN, refusal.remark) from None
        if self.clients is not None:
            client = self.clients.find(caller.client_id)
            if client is not None and client.caller.account not in (None, caller.account):
                raise RpcError(Code.FORBIDDEN, "another user's client has this id")
