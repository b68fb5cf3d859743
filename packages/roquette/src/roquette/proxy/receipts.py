"""Receipts of messages that consumers have: AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue."""

from collections.abc import Iterable
from typing import Any, Final

from roquette.base.clock import Clock
from roquette.base.javatypes import whole_number
from roquette.proxy.backend import Backend
from roquette.proxy.encoding import acknowledged
from roquette.proxy.renewals import (
    ReceiptHandle,
    Renewals,
    ack,
    change,
    forward,
    living_handle,
    read_handle,
)
from roquette.proxy.service import BrokerAnswer, Caller, Part, Rpc, RpcCall, Then
from roquette.proxy.settings import ProxySettings
from roquette.proxy.statuses import PROXY_TIMEOUT, RpcError, code_of, status
from roquette.proxy.validators import group_of, topic_of
from roquette.wire.bodies import BatchAck, BatchAckMessageRequestBody
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.json_body import encode_body
from roquette.wire.proto.definition_pb2 import Code, Status
from roquette.wire.proto.service_pb2 import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    AckMessageResultEntry,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
)

# Acks of one turn that are of one pop, in one request (BATCH_ACK_MESSAGE): clients acknowledge each message by itself.
# Used where the broker is in this process: one of Apache's before 5.1 does not know the request. Orderly receipts, and one that is alone, go by ACK_MESSAGE, whose refusals say more.


MOST: Final = 256  # of one request
FARTHEST: Final = 1_024  # from the first message of the pop
ORDERLY: Final = "999"  # the revive queue in receipts of orderly pops


class _Batch:
    """Acks of one pop's messages of one queue."""

    __slots__ = ("caller", "group", "handles", "thens", "topic", "words")

    def __init__(self, caller: Caller, topic: str, group: str, words: list[str]) -> None:
        self.caller = caller
        self.topic = topic
        self.group = group
        self.words = words  # of the receipt
        self.handles: list[ReceiptHandle] = []
        self.thens: list[Then] = []

    def answered(self, answer: BrokerAnswer) -> None:
        """The broker has said it of all."""
        for then in self.thens:
            then(answer)


class AckBatches:
    """The acks of this turn."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._batches: dict[tuple[Caller, str, str, str], _Batch] = {}

    def ack(
        self, caller: Caller, handle: ReceiptHandle, topic: str, group: str, then: Then
    ) -> None:
        """Acknowledge a message, at the latest with the next turn of the loop."""
        words = handle.text.split(" ", 8)
        start = words[0]
        first = whole_number(start, 2**63 - 1)
        distance = handle.offset - first if first >= 0 else -1
        if words[3] == ORDERLY or not 0 <= distance < FARTHEST or not words[3].isdecimal():
            ack(self._backend, caller, handle, topic, group, then)
            return
        pop = " ".join(words[:7])
        key = caller, topic, group, pop
        batch = self._batches.get(key)
        if batch is None:
            if not self._batches:
                caller.peer.soon(self.send)
            batch = self._batches[key] = _Batch(caller, topic, group, words)
        batch.handles.append(handle)
        batch.thens.append(then)
        if len(batch.handles) >= MOST:
            del self._batches[key]
            self._send(batch)

    def send(self) -> None:
        """Ask for all that have come."""
        batches = self._batches
        self._batches = {}
        for batch in batches.values():
            self._send(batch)

    def _send(self, batch: _Batch) -> None:
        first = batch.handles[0]
        if len(batch.handles) == 1:
            ack(
                self._backend, batch.caller, first, batch.topic, batch.group, batch.thens[0]
            )  # fmt: skip
            return
        words, bits = batch.words, 0
        start = int(words[0])
        for handle in batch.handles:
            bits |= 1 << (handle.offset - start)
        acks = BatchAck(
            consumer_group=batch.group,
            topic=batch.topic,
            retry=first.kind,
            start_offset=start,
            queue_id=first.queue_id,
            revive_queue_id=int(words[3]),
            pop_time=first.pop_time,
            invisible_time=first.invisible_time,
            bits=bits.to_bytes((bits.bit_length() + 7) // 8, "little"),
        )
        body = encode_body(BatchAckMessageRequestBody(broker_name=first.broker, acks=[acks]))
        self._backend.ask(
            batch.caller, first.broker, RequestCode.BATCH_ACK_MESSAGE, None, body, batch.answered
        )


MOST_ENTRIES: Final = 1_024  # of one AckMessage
_TOLD: Final = (  # refusals that a client is told; others are "status is abnormal", as Apache's
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.NO_PERMISSION,
    PROXY_TIMEOUT,
)
_OK: Final = status(Code.OK, "OK")


class Receipts(Part):
    """Serves them; requests go to the broker that a handle names."""

    def __init__(
        self, backend: Backend, settings: ProxySettings, clock: Clock, renewals: Renewals
    ) -> None:
        self._backend = backend
        self._settings = settings
        self._clock = clock
        self._renewals = renewals
        self._batches = AckBatches(backend) if backend.in_process else None

    def rpcs(self) -> Iterable[Rpc[Any]]:
        """The three."""
        yield Rpc("AckMessage", AckMessageRequest, AckMessageResponse, self._ack)
        yield Rpc(
            "ChangeInvisibleDuration",
            ChangeInvisibleDurationRequest,
            ChangeInvisibleDurationResponse,
            self._change,
        )
        yield Rpc(
            "ForwardMessageToDeadLetterQueue",
            ForwardMessageToDeadLetterQueueRequest,
            ForwardMessageToDeadLetterQueueResponse,
            self._forward,
        )

    def stop(self) -> None:
        """The acks of this turn go before the end."""
        if self._batches is not None:
            self._batches.send()

    def _ack(self, call: RpcCall, request: AckMessageRequest) -> None:
        topic, group = topic_of(request.topic), group_of(request.group)
        entries = list(request.entries)
        if not entries:
            raise RpcError(Code.INTERNAL_SERVER_ERROR, "ack message result is empty")
        if len(entries) > MOST_ENTRIES:
            raise RpcError(Code.BAD_REQUEST, f"more than {MOST_ENTRIES} entries")
        self._renewals.seen(call.caller)
        acks = _Acks(call, entries)
        for index, entry in enumerate(entries):
            self._ack_one(acks, index, entry.receipt_handle, topic, group)

    def _ack_one(self, acks: "_Acks", index: int, text: str, topic: str, group: str) -> None:
        call = acks.call

        def valid(valid_text: str) -> None:
            try:
                handle = living_handle(valid_text, self._clock.now_ms())
            except RpcError as error:
                acks.note(index, status(error.code, error.text))
                return

            def answered(answer: BrokerAnswer) -> None:
                if answer.code == ResponseCode.SUCCESS:
                    acks.note(index, _OK)
                    return
                # A second try comes with the handle the client knows.
                self._renewals.changed(call.caller.client_id, group, text, valid_text)
                acks.note(index, refusal(answer, "ack failed: status is abnormal"))

            if self._batches is not None:
                self._batches.ack(call.caller, handle, topic, group, answered)
            else:
                ack(self._backend, call.caller, handle, topic, group, answered)

        self._renewals.take(call.caller.client_id, group, text, valid)

    def _change(self, call: RpcCall, request: ChangeInvisibleDurationRequest) -> None:
        topic, group = topic_of(request.topic), group_of(request.group)
        time_ms = request.invisible_duration.seconds * 1000
        time_ms += request.invisible_duration.nanos // 1_000_000
        check_invisible(time_ms, 0, self._settings.max_invisible_time_mills)
        text, suspend = request.receipt_handle, request.suspend
        read_handle(text)
        client_id = call.caller.client_id
        self._renewals.seen(call.caller)

        def valid(valid_text: str) -> None:
            try:
                handle = living_handle(valid_text, self._clock.now_ms())
            except RpcError as error:
                call.refuse(error.code, error.text)
                return
            change(
                self._backend, call.caller, handle, topic, group, time_ms, answered, suspend=suspend
            )

        def answered(answer: BrokerAnswer, new: str) -> None:
            self._renewals.changed(client_id, group, text, new)
            if answer.code == ResponseCode.SUCCESS:
                result = _OK
            else:
                result = refusal(answer, "changeInvisibleDuration failed: status is abnormal")
            call.reply(ChangeInvisibleDurationResponse(status=result, receipt_handle=new))

        self._renewals.take(client_id, group, text, valid)

    def _forward(self, call: RpcCall, request: ForwardMessageToDeadLetterQueueRequest) -> None:
        topic, group = topic_of(request.topic), group_of(request.group)
        text, message_id = request.receipt_handle, request.message_id
        self._renewals.seen(call.caller)

        def valid(valid_text: str) -> None:
            try:
                handle = read_handle(valid_text)
                forward(self._backend, call.caller, handle, topic, group, message_id, answered)
            except RpcError as error:
                call.refuse(error.code, error.text)

        def answered(answer: BrokerAnswer) -> None:
            if answer.code == ResponseCode.SUCCESS:
                call.refuse(Code.OK, "OK")
            else:
                call.refuse(code_of(answer.code), answer.remark)

        self._renewals.take(call.caller.client_id, group, text, valid)


class _Acks:
    """The results of one AckMessage, as they come in."""

    __slots__ = ("_entries", "_left", "_results", "call")

    def __init__(self, call: RpcCall, entries: list[AckMessageEntry]) -> None:
        self.call = call
        self._entries = entries
        self._left = len(entries)
        self._results: list[Status] = [_OK] * len(entries)

    def note(self, index: int, result: Status) -> None:
        """The result of one entry; the last one answers the call."""
        entries = self._entries
        if len(entries) == 1 and result is _OK:
            only = entries[0]
            self.call.reply_bytes(acknowledged(only.message_id, only.receipt_handle))
            return
        self._results[index] = result
        self._left -= 1
        if self._left:
            return
        codes = {result.code for result in self._results}
        code = codes.pop() if len(codes) == 1 else Code.MULTIPLE_RESULTS
        reply = AckMessageResponse(status=status(code, Code.Name(code)))
        for entry, each in zip(self._entries, self._results):
            reply.entries.append(
                AckMessageResultEntry(
                    message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=each
                )
            )
        self.call.reply(reply)


def refusal(answer: BrokerAnswer, text: str) -> Status:
    """The status for a broker's refusal to take a receipt."""
    if answer.code in _TOLD:
        return status(code_of(answer.code), answer.remark)
    return status(Code.INTERNAL_SERVER_ERROR, text)


def check_invisible(time_ms: int, least: int, most: int) -> None:
    """Refuse an invisible time that is not in its range. Raises RpcError."""
    if time_ms < least:
        raise RpcError(
            Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {least}"
        )
    if time_ms > most:
        raise RpcError(
            Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {most}"
        )
