"""Commands of brokers to clients, on their Telemetry streams, and the clients' answers.

Apache: GrpcClientChannel, ProxyChannel, ClientActivity.reportThreadStackTrace, .reportVerifyMessageResult. Notices that a remoting
client would act on (NOTIFY_CONSUMER_IDS_CHANGED and the like) end here: v5 clients ask for their assignments.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from roquette.base.clock import Clock
from roquette.base.entropy import Entropy
from roquette.errors import CorruptRecord, RemoteProtocolError
from roquette.message.properties import PGROUP, decode_properties
from roquette.message.record import decode_records
from roquette.message.record_layout import StoredRecord
from roquette.proxy.answers import BrokerAnswer
from roquette.proxy.call import Caller
from roquette.proxy.clients import Clients, KnownClient
from roquette.proxy.delivered import to_message
from roquette.proxy.service import Part, ProxyBeat
from roquette.proxy.transactions import Half
from roquette.remoting.request import Peer
from roquette.wire.bodies.clients import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import decode_ext, ext_dict
from roquette.wire.headers import (
    CheckTransactionStateRequestHeader,
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from roquette.wire.json_body import encode_body
from roquette.wire.proto.definition_pb2 import Code
from roquette.wire.proto.service_pb2 import TelemetryCommand

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
        raw = _raw(ext)
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
        header = decode_ext(GetConsumerRunningInfoRequestHeader, _raw(ext))
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
        header = decode_ext(ConsumeMessageDirectlyResultRequestHeader, _raw(ext))
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


def _raw(ext: bytes) -> msgspec.Raw:
    return msgspec.Raw(ext or b"{}")


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
