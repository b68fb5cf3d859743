"""Receipts of messages that consumers have: AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue."""

from collections.abc import Iterable
from typing import Any, Final

from roquette.proxy.backend import Backend
from roquette.proxy.encoding import acknowledged
from roquette.proxy.renewals import (
    PopOfQueue,
    ReceiptHandle,
    Renewals,
    ack,
    change,
    forward,
    living_handle,
    read_handle,
)
from roquette.proxy.service import BrokerAnswer, Caller, Part, Rpc, RpcCall
from roquette.proxy.settings import ProxySettings
from roquette.proxy.statuses import PROXY_TIMEOUT, RpcError, code_of, status
from roquette.proxy.validators import checked_group, checked_topic, group_of, topic_of
from roquette.wire.bodies import BatchAck, BatchAckMessageRequestBody
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.json_body import encode_body
from roquette.wire.plain_v5 import plain_ack
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


class _Batch:
    """Acks of one pop's messages of one queue, which one caller sends."""

    __slots__ = ("acks", "caller", "group", "handles", "pop", "topic")

    def __init__(self, caller: Caller, topic: str, group: str, pop: PopOfQueue) -> None:
        self.caller: Caller = caller
        self.topic: str = topic
        self.group: str = group
        self.pop: PopOfQueue = pop
        self.handles: list[ReceiptHandle] = []
        self.acks: list[_Ack] = []

    def answered(self, answer: BrokerAnswer) -> None:
        """The broker has said it of all."""
        for one in self.acks:
            one.answered(answer)


class AckBatches:
    """The acks of this turn."""

    def __init__(self, backend: Backend) -> None:
        self._backend: Backend = backend
        self._batches: dict[tuple[Caller, str, str, str], _Batch] = {}
        self._last: _Batch | None = None  # of them: most acks of a turn are of one pop

    def ack(self, one: "_Ack", handle: ReceiptHandle) -> None:
        """Acknowledge a message, at the latest with the next turn of the loop."""
        acks, pop = one.acks, handle.pop
        distance = handle.offset - pop.start
        if pop.revive_queue < 0 or pop.start < 0 or not 0 <= distance < FARTHEST:
            one.ask(handle)
            return
        caller, batch = acks.call.caller, self._last
        if (
            batch is None
            or batch.pop is not pop
            or batch.caller is not caller
            or batch.topic != acks.topic
            or batch.group != acks.group
        ):
            batch = self._last = self._batch(caller, acks.topic, acks.group, pop)
        batch.handles.append(handle)
        batch.acks.append(one)
        if len(batch.handles) >= MOST:
            self.send()

    def _batch(self, caller: Caller, topic: str, group: str, pop: PopOfQueue) -> _Batch:
        """The batch of this turn for these acks."""
        key = caller, topic, group, pop.text
        batch = self._batches.get(key)
        if batch is None:
            if not self._batches:
                caller.peer.soon(self.send)
            batch = self._batches[key] = _Batch(caller, topic, group, pop)
        return batch

    def send(self) -> None:
        """Ask for all that have come."""
        batches = self._batches
        self._batches = {}
        self._last = None
        for batch in batches.values():
            self._send(batch)

    def _send(self, batch: _Batch) -> None:
        handles, pop = batch.handles, batch.pop
        if len(handles) == 1:
            batch.acks[0].ask(handles[0])
            return
        bits = 0
        for handle in handles:
            bits |= 1 << (handle.offset - pop.start)
        acks = BatchAck(
            consumer_group=batch.group,
            topic=batch.topic,
            retry=pop.kind,
            start_offset=pop.start,
            queue_id=pop.queue_id,
            revive_queue_id=pop.revive_queue,
            pop_time=pop.pop_time,
            invisible_time=pop.invisible_time,
            bits=bits.to_bytes((bits.bit_length() + 7) // 8, "little"),
        )
        body = encode_body(BatchAckMessageRequestBody(broker_name=pop.broker, acks=[acks]))
        self._backend.ask(
            batch.caller, pop.broker, RequestCode.BATCH_ACK_MESSAGE, None, body, batch.answered
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

    def __init__(self, backend: Backend, settings: ProxySettings, renewals: Renewals) -> None:
        self.backend = backend
        self._settings = settings
        self.renewals = renewals
        self.batches = AckBatches(backend) if backend.in_process else None

    def rpcs(self) -> Iterable[Rpc[Any]]:
        """The three."""
        yield Rpc(
            "AckMessage",
            AckMessageRequest,
            AckMessageResponse,
            self._ack,
            plain=self._ack_plain,
        )
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
        if self.batches is not None:
            self.batches.send()

    def _ack(self, call: RpcCall, request: AckMessageRequest) -> None:
        topic, group = topic_of(request.topic), group_of(request.group)
        entries = list(request.entries)
        if not entries:
            raise RpcError(Code.INTERNAL_SERVER_ERROR, "ack message result is empty")
        if len(entries) > MOST_ENTRIES:
            raise RpcError(Code.BAD_REQUEST, f"more than {MOST_ENTRIES} entries")
        said = [
            AckMessageEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle)
            for entry in entries
        ]
        acks = _Acks(self, call, topic, group, [entry.SerializeToString() for entry in said])
        self.renewals.seen(call.caller)
        for index, entry in enumerate(said):
            acks.take(index, entry.receipt_handle)

    def _ack_plain(self, call: RpcCall, request: bytes) -> bool:
        """The same with an ordinary request as it came; False: it is another one."""
        said = plain_ack(request)
        if said is None:
            return False
        topic, group = checked_topic(said.topic), checked_group(said.group)
        self.renewals.seen(call.caller)
        _Acks(self, call, topic, group, [said.entry]).take(0, said.receipt)
        return True

    def _change(self, call: RpcCall, request: ChangeInvisibleDurationRequest) -> None:
        topic, group = topic_of(request.topic), group_of(request.group)
        time_ms = request.invisible_duration.seconds * 1000
        time_ms += request.invisible_duration.nanos // 1_000_000
        check_invisible(time_ms, 0, self._settings.max_invisible_time_mills)
        text, suspend = request.receipt_handle, request.suspend
        read_handle(text)
        client_id = call.caller.client_id
        self.renewals.seen(call.caller)

        def valid(valid_text: str) -> None:
            try:
                handle = living_handle(valid_text, call.now_ms)
            except RpcError as error:
                call.refuse(error.code, error.text)
                return
            change(
                self.backend, call.caller, handle, topic, group, time_ms, answered, suspend=suspend
            )

        def answered(answer: BrokerAnswer, new: str) -> None:
            self.renewals.changed(client_id, group, text, new)
            if answer.code == ResponseCode.SUCCESS:
                result = _OK
            else:
                result = refusal(answer, "changeInvisibleDuration failed: status is abnormal")
            call.reply(ChangeInvisibleDurationResponse(status=result, receipt_handle=new))

        self.renewals.take(client_id, group, text, valid)

    def _forward(self, call: RpcCall, request: ForwardMessageToDeadLetterQueueRequest) -> None:
        topic, group = topic_of(request.topic), group_of(request.group)
        text, message_id = request.receipt_handle, request.message_id
        self.renewals.seen(call.caller)

        def valid(valid_text: str) -> None:
            try:
                handle = read_handle(valid_text)
                forward(self.backend, call.caller, handle, topic, group, message_id, answered)
            except RpcError as error:
                call.refuse(error.code, error.text)

        def answered(answer: BrokerAnswer) -> None:
            if answer.code == ResponseCode.SUCCESS:
                call.refuse(Code.OK, "OK")
            else:
                call.refuse(code_of(answer.code), answer.remark)

        self.renewals.take(call.caller.client_id, group, text, valid)


class _Acks:
    """The results of one AckMessage, as they come in.

    Attributes:
        owner: who serves it. entries: its AckMessageEntry each, serialized, without lite topics.
    """

    __slots__ = ("_left", "_results", "call", "entries", "group", "owner", "topic")

    def __init__(
        self, owner: Receipts, call: RpcCall, topic: str, group: str, entries: list[bytes]
    ) -> None:
        self.owner: Receipts = owner
        self.call: RpcCall = call
        self.topic: str = topic
        self.group: str = group
        self.entries: list[bytes] = entries
        self._left: int = len(entries)
        self._results: list[Status] = [_OK] * len(entries)

    def take(self, index: int, receipt: str) -> None:
        """Acknowledge the message of one entry."""
        one = _Ack(self, index, receipt)
        self.owner.renewals.take(self.call.caller.client_id, self.group, receipt, one.go_on)

    def note(self, index: int, result: Status) -> None:
        """The result of one entry; the last one answers the call."""
        if len(self.entries) == 1 and result is _OK:
            self.call.reply_bytes(acknowledged(self.entries[0]))
            return
        self._results[index] = result
        self._left -= 1
        if self._left:
            return
        codes = {result.code for result in self._results}
        code = codes.pop() if len(codes) == 1 else Code.MULTIPLE_RESULTS
        reply = AckMessageResponse(status=status(code, Code.Name(code)))
        for data, each in zip(self.entries, self._results):
            entry = AckMessageEntry.FromString(data)
            reply.entries.append(
                AckMessageResultEntry(
                    message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=each
                )
            )
        self.call.reply(reply)


class _Ack:
    """One entry of an AckMessage under way.

    Attributes:
        receipt: as the client says it; `valid`: the one that is valid now.
    """

    __slots__ = ("acks", "index", "receipt", "valid")

    def __init__(self, acks: _Acks, index: int, receipt: str) -> None:
        self.acks: _Acks = acks
        self.index: int = index
        self.receipt: str = receipt
        self.valid: str = receipt

    def go_on(self, valid: str) -> None:
        """The valid receipt is known. It is judged by the time at which the ack came; the broker has the last word."""
        self.valid = valid
        acks = self.acks
        try:
            handle = living_handle(valid, acks.call.now_ms)
        except RpcError as error:
            acks.note(self.index, status(error.code, error.text))
            return
        batches = acks.owner.batches
        if batches is not None:
            batches.ack(self, handle)
        else:
            self.ask(handle)

    def ask(self, handle: ReceiptHandle) -> None:
        """Acknowledge it by itself."""
        acks = self.acks
        backend = acks.owner.backend
        ack(backend, acks.call.caller, handle, acks.topic, acks.group, self.answered)

    def answered(self, answer: BrokerAnswer) -> None:
        """The broker has answered."""
        acks = self.acks
        if answer.code == ResponseCode.SUCCESS:
            acks.note(self.index, _OK)
            return
        # A second try comes with the handle the client knows.
        client_id = acks.call.caller.client_id
        acks.owner.renewals.changed(client_id, acks.group, self.receipt, self.valid)
        acks.note(self.index, refusal(answer, "ack failed: status is abnormal"))


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
