"""The rpcs Telemetry, Heartbeat and NotifyClientTermination: settings, liveness and goodbye of clients.

Apache: ClientActivity, GrpcClientSettingsManager. Differences, each so that clients work at once:

- A consumer that is not known (this server was restarted, and the client's settings come again within five minutes: clients#1137,
  rocketmq#9170) is registered from its heartbeat, which names its group, and is answered OK. Nothing else needs its settings: receives
  take what they need from the group's config. Its subscriptions at the broker stay as they are. A producer's heartbeat
  names no topic: it is answered UNRECOGNIZED_CLIENT_TYPE in Apache's words; its sends work all the same.
- A Telemetry stream that works is ended by nobody but its client, and by the end of the server (clients#903): settings that cannot be
  looked up now are answered with what was negotiated before.
- A client of any language, protocol or kind is served; the kinds of lite topics are refused in words.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from roquette.base.clock import Clock
from roquette.client.selection import subscription
from roquette.proxy.backend import Backend
from roquette.proxy.call import Caller, Rpc, RpcCall
from roquette.proxy.clients import MOST_NAMES, MOST_SETTINGS, Clients, KnownClient, Negotiated
from roquette.proxy.names import group_of, topic_of
from roquette.proxy.service import Part, fail
from roquette.proxy.settings import ProxySettings
from roquette.proxy.statuses import (
    GRPC_INTERNAL,
    GRPC_INVALID_ARGUMENT,
    GRPC_UNAVAILABLE,
    RpcError,
    status,
)
from roquette.proxy.validators import check_expression
from roquette.wire.bodies.clients import SubscriptionData
from roquette.wire.bodies.group_config import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    SubscriptionGroupConfig,
)
from roquette.wire.proto.definition_pb2 import (
    ClientType,
    Code,
    FilterType,
    RetryPolicy,
    Settings,
    SubscriptionEntry,
)
from roquette.wire.proto.service_pb2 import (
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    TelemetryCommand,
)

UNKNOWN: Final = "cannot find client settings for this client"  # Apache's words
NEITHER: Final = "there is no publishing or subscription data in settings"
FAILED: Final = "process client telemetryCommand failed. "
NO_LITE: Final = "lite topics are not served here: use a push or simple consumer of a topic"
GOING: Final = "the server is going away"
LITE_QUOTA: Final = 2_000  # Apache 5.5.0 says both to every consumer
LITE_TOPIC_SIZE: Final = 64
CONSUMERS: Final = frozenset((ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER))
LITE: Final = frozenset((ClientType.LITE_PUSH_CONSUMER, ClientType.LITE_SIMPLE_CONSUMER))

Report = Callable[[Caller, TelemetryCommand], None]


class Telemetry(Part):
    """Clients tell what they are.

    Args:
        max_body: bytes of a message's body at most, now.
        report: takes what a client says to a command that it was sent (`commands.py`).
    """

    def __init__(
        self,
        backend: Backend,
        clients: Clients,
        settings: ProxySettings,
        clock: Clock,
        max_body: Callable[[], int],
        report: Report,
    ) -> None:
        self._backend = backend
        self._clients = clients
        self._settings = settings
        self._clock = clock
        self._max_body = max_body
        self._report = report
        self._calls: dict[int, RpcCall] = {}  # by identity: a stream each

    def rpcs(self) -> Iterable[Rpc[Any]]:
        """The three of them."""
        return (
            Rpc(
                "Telemetry", TelemetryCommand, TelemetryCommand, self.telemetry,
                streams=True, listens=True,
            ),
            Rpc("Heartbeat", HeartbeatRequest, HeartbeatResponse, self.heartbeat),
            Rpc(
                "NotifyClientTermination",
                NotifyClientTerminationRequest,
                NotifyClientTerminationResponse,
                self.terminate,
            ),
        )  # fmt: skip

    def telemetry(self, call: RpcCall, command: TelemetryCommand) -> None:
        """A stream begins; it stays open, whatever its first message is."""
        self._calls[id(call)] = call
        call.on_message = lambda message: self._heard(call, message)
        call.on_cancel = lambda: self._gone(call)
        call.on_end = lambda: self._ended(call)
        self._heard(call, command)

    def _heard(self, call: RpcCall, command: Any) -> None:
        try:
            if command.HasField("settings"):
                self._negotiate(call, command.settings)
            else:
                self._report(call.caller, command)
        except RpcError as error:
            self._fail(call, error)

    def _ended(self, call: RpcCall) -> None:
        self._gone(call)
        call.finish()

    def _gone(self, call: RpcCall) -> None:
        self._calls.pop(id(call), None)
        client = self._clients.find(call.caller.client_id)
        if client is not None and client.call is call:
            client.call = None

    def _fail(self, call: RpcCall, error: RpcError) -> None:
        """End a stream as Apache does: the client's own fault is INVALID_ARGUMENT."""
        self._gone(call)
        own = Code.BAD_REQUEST <= error.code < Code.INTERNAL_ERROR
        fault = GRPC_INVALID_ARGUMENT if own else GRPC_INTERNAL
        grpc = error.grpc or fault
        text = error.text if error.grpc else FAILED + error.text
        fail(call, RpcError(error.code, text, grpc))

    def _negotiate(self, call: RpcCall, settings: Settings) -> None:
        """Take settings in; their reply has what is decided here in place of what the client said."""
        if settings.client_type in LITE:
            raise RpcError(Code.UNSUPPORTED, NO_LITE, GRPC_INVALID_ARGUMENT)
        size = settings.ByteSize()
        if size > MOST_SETTINGS:
            raise RpcError(Code.BAD_REQUEST, f"settings of {size} bytes: {MOST_SETTINGS} at most")
        if settings.HasField("publishing"):
            topics = tuple(dict.fromkeys(topic_of(one) for one in settings.publishing.topics))
            _count(len(topics))
            self._agreed(call, settings, Negotiated(settings.client_type, size, topics))
        elif settings.HasField("subscription"):
            self._subscribe(call, settings, size)
        else:
            raise RpcError(Code.BAD_REQUEST, NEITHER, GRPC_INVALID_ARGUMENT)

    def _subscribe(self, call: RpcCall, settings: Settings, size: int) -> None:
        group = group_of(settings.subscription.group)
        entries = settings.subscription.subscriptions
        _count(len(entries))
        wanted = tuple(_subscription(entry, self._clock.now_ms()) for entry in entries)
        kind = settings.client_type

        def found(config: SubscriptionGroupConfig | None) -> None:
            try:
                if config is None:
                    text = f"group not found: {group}"
                    raise RpcError(Code.CONSUMER_GROUP_NOT_FOUND, text)
                agreed = Negotiated(kind, size, group=group, subscriptions=wanted, config=config)
                self._agreed(call, settings, agreed)
            except RpcError as error:  # it may come later than the message
                self._fail(call, error)

        self._clients.config(call.caller, group, found)

    def _agreed(self, call: RpcCall, settings: Settings, wanted: Negotiated) -> None:
        if call.over:
            return
        client = self._clients.put(call.caller, self._same(call.caller, wanted))
        client.call = call
        reply = TelemetryCommand(status=status(Code.OK, "OK"), settings=settings)
        self._decide(reply.settings, wanted.config)
        call.send(reply)

    def _same(self, caller: Caller, wanted: Negotiated) -> Negotiated:
        """Subscriptions that a client repeats keep their version."""
        client = self._clients.find(caller.client_id)
        if client is None or client.wanted.group != wanted.group:
            return wanted
        before = {_plain(one): one for one in client.wanted.subscriptions}
        kept = tuple(before.get(_plain(one), one) for one in wanted.subscriptions)
        return wanted._replace(subscriptions=kept)

    def _decide(self, reply: Settings, config: SubscriptionGroupConfig | None) -> None:
        """Apache: GrpcClientSettingsManager.mergeProducerData, mergeSubscriptionData, mergeMetric."""
        own = self._settings
        policy = reply.backoff_policy
        if config is None:
            policy.max_attempts = own.grpc_client_producer_max_attempts
            _exponential(
                policy,
                own.grpc_client_producer_backoff_initial_millis,
                own.grpc_client_producer_backoff_max_millis,
                own.grpc_client_producer_backoff_multiplier,
            )
            reply.publishing.validate_message_type = own.enable_topic_message_type_check
            reply.publishing.max_body_size = self._max_body()
        else:
            wanted = reply.subscription
            wanted.receive_batch_size = own.grpc_client_consumer_long_polling_batch_size
            wanted.long_polling_timeout.FromMilliseconds(
                own.grpc_client_consumer_max_long_polling_timeout_millis
            )
            wanted.fifo = config.consume_message_orderly
            wanted.lite_subscription_quota = LITE_QUOTA
            wanted.max_lite_topic_size = LITE_TOPIC_SIZE
            policy.max_attempts = config.retry_max_times + 1
            _retries(policy, config)
        reply.metric.Clear()
        reply.metric.on = False
        reply.metric.SetInParent()

    def heartbeat(self, call: RpcCall, request: HeartbeatRequest) -> None:
        """A client lives."""
        caller = call.caller
        client = self._clients.find(caller.client_id)
        if client is None:
            client = self._unknown(caller, request)
            if client is None:
                call.refuse(Code.UNRECOGNIZED_CLIENT_TYPE, UNKNOWN)
                return
        else:
            if client.wanted.group:
                group_of(request.group)
            self._clients.heard(client, caller)
        call.reply(HeartbeatResponse(status=status(Code.OK, "OK")))

    def _unknown(self, caller: Caller, request: HeartbeatRequest) -> KnownClient | None:
        kind = request.client_type
        if kind not in CONSUMERS or not request.group.name:
            return None
        wanted = Negotiated(kind, 0, group=group_of(request.group))
        return self._clients.put(caller, wanted, known=False)

    def terminate(self, call: RpcCall, request: NotifyClientTerminationRequest) -> None:
        """A client says goodbye: its settings and registration end. Its stream is its own to end."""
        client = self._clients.drop(call.caller.client_id)
        if client is None:
            call.refuse(Code.UNRECOGNIZED_CLIENT_TYPE, UNKNOWN)
            return
        if client.wanted.group:
            group_of(request.group)
        call.reply(NotifyClientTerminationResponse(status=status(Code.OK, "OK")))

    def stop(self) -> None:
        """End all streams."""
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.finish(GRPC_UNAVAILABLE, GOING)


def _count(names: int) -> None:
    if names > MOST_NAMES:
        raise RpcError(Code.BAD_REQUEST, f"settings with {names} topics: {MOST_NAMES} at most")


def _subscription(entry: SubscriptionEntry, now_ms: int) -> SubscriptionData:
    """A subscription as a heartbeat has it; a topic of any name, as in Apache: one that cannot be has no messages."""
    topic = entry.topic.name
    expression = entry.expression.expression
    check_expression(expression)
    if entry.expression.type == FilterType.SQL:
        return SubscriptionData(
            topic=topic, sub_string=expression, sub_version=now_ms, expression_type="SQL92"
        )
    if expression and not any(expression.split("||")):
        raise RpcError(Code.ILLEGAL_FILTER_EXPRESSION, "expression format is not correct")
    return subscription(topic, expression, now_ms)


def _plain(data: SubscriptionData) -> tuple[str, str, str]:
    return data.topic, data.sub_string, data.expression_type


def _exponential(policy: RetryPolicy, initial_ms: int, max_ms: int, multiplier: int) -> None:
    waits = policy.exponential_backoff
    waits.Clear()
    waits.initial.FromMilliseconds(initial_ms)
    waits.max.FromMilliseconds(max_ms)
    waits.multiplier = multiplier


def _retries(policy: RetryPolicy, config: SubscriptionGroupConfig) -> None:
    """The waits of a group (Apache: convertToExponentialBackoff, convertToCustomizedRetryPolicy)."""
    retry = config.group_retry_policy
    if retry.type == "EXPONENTIAL":
        grows = retry.exponential_retry_policy or ExponentialRetryPolicy()
        _exponential(policy, grows.initial, grows.max, grows.multiplier)
        return
    fixed = retry.customized_retry_policy or CustomizedRetryPolicy()
    policy.customized_backoff.Clear()
    policy.customized_backoff.SetInParent()
    for wait_ms in fixed.next:
        policy.customized_backoff.next.add().FromMilliseconds(wait_ms)
