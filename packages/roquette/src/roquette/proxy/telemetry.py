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
from typing import Any, Final, NamedTuple

import msgspec

from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.client.consumer_options import subscription
from roquette.errors import CorruptRecord, RemoteProtocolError
from roquette.message.properties import PGROUP, decode_properties
from roquette.message.record import decode_records
from roquette.message.record_layout import StoredRecord
from roquette.proxy.backend import Backend
from roquette.proxy.clients import MOST_NAMES, MOST_SETTINGS, Clients, KnownClient, Negotiated
from roquette.proxy.delivered import to_message
from roquette.proxy.service import BrokerAnswer, Caller, Part, ProxyBeat, Rpc, RpcCall, fail
from roquette.proxy.settings import ProxySettings
from roquette.proxy.statuses import (
    GRPC_INTERNAL,
    GRPC_INVALID_ARGUMENT,
    GRPC_UNAVAILABLE,
    RpcError,
    status,
)
from roquette.proxy.transactions import Half
from roquette.proxy.validators import check_expression, group_of, topic_of
from roquette.remoting.request import Peer
from roquette.wire.bodies.clients import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    SubscriptionData,
)
from roquette.wire.bodies.tables import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    SubscriptionGroupConfig,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import decode_ext, ext_dict
from roquette.wire.headers import (
    CheckTransactionStateRequestHeader,
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from roquette.wire.json_body import encode_body
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


# Commands of brokers to clients, on their Telemetry streams, and the clients' answers.
# Apache: GrpcClientChannel, ProxyChannel, ClientActivity.reportThreadStackTrace, .reportVerifyMessageResult. Notices that a remoting client would act on (NOTIFY_CONSUMER_IDS_CHANGED and the like) end here: v5 clients ask for their assignments.


TIMEOUT_MS: Final = 5_000  # grpcProxyRelayRequestTimeoutInSeconds
LOOK_S: Final = 1.0
MOST: Final = 1_000  # commands that wait for a client's word,
MOST_OF_CLIENT: Final = 16  # and of one client
BUSY: Final = int(ResponseCode.SYSTEM_BUSY)
ERROR: Final = int(ResponseCode.SYSTEM_ERROR)
NOTICES: Final = frozenset(
    (
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        RequestCode.NOTIFY_UNSUBSCRIBE_LITE,
    )
)
RESULTS: Final[dict[int, str]] = {
    Code.OK: "CR_SUCCESS",
    Code.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    Code.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}

Answers = Callable[[BrokerAnswer], None]


class _Waiting(NamedTuple):
    client: KnownClient
    answer: Answers
    until_ms: int


class Commands(Part):
    """Asks clients for brokers."""

    def __init__(self, clients: Clients, clock: Clock, entropy: Entropy) -> None:
        self._clients = clients
        self._clock = clock
        self._entropy = entropy
        self._waiting: dict[str, _Waiting] = {}  # by nonce

    def __len__(self) -> int:
        return len(self._waiting)

    def beats(self) -> Iterable[ProxyBeat]:
        """Return the beat that ends commands whose client does not answer."""
        return (ProxyBeat("v5-commands", LOOK_S, self.expire),)

    def asked(
        self, peer: Peer | None, code: int, ext: bytes, body: bytes, answer: Answers
    ) -> bool:  # fmt: skip
        """See `Part.asked`. A request that cannot be read is answered with an error."""
        try:
            if code == RequestCode.CHECK_TRANSACTION_STATE:
                return self._check(peer, ext, body)
            if code == RequestCode.GET_CONSUMER_RUNNING_INFO:
                self._running_info(ext, answer)
            elif code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
                self._verify(ext, body, answer)
            else:
                return code in NOTICES
        except (RemoteProtocolError, CorruptRecord) as error:
            answer(_refusal(ERROR, str(error)))
        return True

    def _check(self, peer: Peer | None, ext: bytes, body: bytes) -> bool:
        """CHECK_TRANSACTION_STATE, one way: a producer of the message's topic is asked, on this connection or any.

        The transaction's id says where the half message is: nothing is kept for the answer, which is EndTransaction.
        """
        raw = ext or b"{}"
        header = decode_ext(CheckTransactionStateRequestHeader, raw)
        broker = ext_dict(raw).get("bname", "")
        record = _record(body)
        topic = decode_properties(record.properties).get(PGROUP) or record.topic
        client = self._clients.producer_of(topic, peer, record.topic)
        if client is None or not broker:
            return False
        half = Half(broker, header.commit_log_offset, header.tran_state_table_offset)
        command = TelemetryCommand()
        command.recover_orphaned_transaction_command.transaction_id = half.id
        command.recover_orphaned_transaction_command.message.CopyFrom(to_message(record))
        self._send(client, command)
        return True

    def _running_info(self, ext: bytes, answer: Answers) -> None:
        """GET_CONSUMER_RUNNING_INFO: of a v5 client only its threads can be known."""
        header = decode_ext(GetConsumerRunningInfoRequestHeader, ext or b"{}")
        client = self._listening(header.client_id, header.consumer_group)
        if client is None:
            answer(_refusal(ERROR, _offline(header.consumer_group, header.client_id)))
        elif not header.jstack_enable:
            answer(_done(_info(client)))
        else:
            nonce = self._wait(client, answer)
            if nonce is not None:
                command = TelemetryCommand()
                command.print_thread_stack_trace_command.nonce = nonce
                self._send(client, command)

    def _verify(self, ext: bytes, body: bytes, answer: Answers) -> None:
        """CONSUME_MESSAGE_DIRECTLY: a client processes one message, outside of its order."""
        header = decode_ext(ConsumeMessageDirectlyResultRequestHeader, ext or b"{}")
        client = self._listening(header.client_id or "", header.consumer_group)
        message = to_message(_record(body))
        if client is None:
            answer(_refusal(ERROR, _offline(header.consumer_group, header.client_id or "")))
            return
        nonce = self._wait(client, answer)
        if nonce is not None:
            command = TelemetryCommand()
            command.verify_message_command.nonce = nonce
            command.verify_message_command.message.CopyFrom(message)
            self._send(client, command)

    def _listening(self, client_id: str, group: str) -> KnownClient | None:
        client = self._clients.find(client_id)
        return client if client and client.listens and client.wanted.group == group else None

    def _wait(self, client: KnownClient, answer: Answers) -> str | None:
        """The nonce of a new command; None: there are too many, and `answer` says so."""
        mine = sum(one.client is client for one in self._waiting.values())
        if len(self._waiting) >= MOST or mine >= MOST_OF_CLIENT:
            answer(_refusal(BUSY, "too many commands wait for clients"))
            return None
        nonce = self._entropy.secret(12)
        self._waiting[nonce] = _Waiting(client, answer, self._clock.steady_ms() + TIMEOUT_MS)
        return nonce

    @staticmethod
    def _send(client: KnownClient, command: TelemetryCommand) -> None:
        assert client.call is not None
        client.call.send(command)

    def report(self, caller: Caller, command: TelemetryCommand) -> None:
        """Take a client's answer; one that nobody has asked for, or that another client was asked for, is dropped."""
        code = command.status.code
        if command.HasField("thread_stack_trace"):
            waiting = self._take(command.thread_stack_trace.nonce, caller)
            if waiting is not None:
                if code == Code.OK:
                    info = _info(waiting.client)
                    info.jstack = command.thread_stack_trace.thread_stack_trace
                    waiting.answer(_done(info))
                else:
                    text = command.status.message or "the client cannot tell its threads"
                    waiting.answer(_refusal(ERROR, text))
        elif command.HasField("verify_message_result"):
            waiting = self._take(command.verify_message_result.nonce, caller)
            if waiting is not None:
                result = ConsumeMessageDirectlyResult(
                    consume_result=RESULTS.get(code), remark="from gRPC client"
                )
                waiting.answer(_done(result))

    def _take(self, nonce: str, caller: Caller) -> _Waiting | None:
        waiting = self._waiting.get(nonce)
        if waiting is None or waiting.client.id != caller.client_id:
            return None
        return self._waiting.pop(nonce)

    def expire(self) -> None:
        """Answer for clients that do not, and for those whose streams are gone."""
        now_ms = self._clock.steady_ms()
        for nonce, waiting in list(self._waiting.items()):
            call = waiting.client.call
            if waiting.until_ms <= now_ms or call is None or call.over:
                del self._waiting[nonce]
                waiting.answer(_refusal(BUSY, "call remote timeout"))

    def stop(self) -> None:
        """Nobody will answer any more."""
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            one.answer(_refusal(BUSY, "the server is going away"))


def _record(body: bytes) -> StoredRecord:
    records = decode_records(body)
    if not records:
        raise RemoteProtocolError("a request about a message that has none")
    return records[0]


def _info(client: KnownClient) -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        properties={"PROP_CLIENT_VERSION": client.caller.version},
        subscription_set=list(client.wanted.subscriptions),
    )


def _done(body: msgspec.Struct) -> BrokerAnswer:
    return BrokerAnswer(ResponseCode.SUCCESS, "", b"", encode_body(body))


def _refusal(code: int, text: str) -> BrokerAnswer:
    return BrokerAnswer(code, text, b"", b"")


def _offline(group: str, client_id: str) -> str:
    return f"The Consumer <{group}> <{client_id}> not online"
