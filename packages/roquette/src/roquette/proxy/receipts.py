"""Receipts of messages that consumers have: AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue."""

from collections.abc import Iterable
from typing import Any, Final

from roquette.base.clock import Clock
from roquette.proxy.ack_batches import AckBatches
from roquette.proxy.answers import BrokerAnswer
from roquette.proxy.backend import Backend
from roquette.proxy.call import Rpc, RpcCall
from roquette.proxy.encoding import acknowledged
from roquette.proxy.handles import ack, change, forward, living_handle, read_handle
from roquette.proxy.names import group_of, topic_of
from roquette.proxy.renewals import Renewals
from roquette.proxy.service import Part
from roquette.proxy.settings import ProxySettings
from roquette.proxy.statuses import PROXY_TIMEOUT, RpcError, code_of, status
from roquette.wire.codes import ResponseCode
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
                said = _OK
            else:
                said = refusal(answer, "changeInvisibleDuration failed: status is abnormal")
            call.reply(ChangeInvisibleDurationResponse(status=said, receipt_handle=new))

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
        for entry, said in zip(self._entries, self._results):
            reply.entries.append(
                AckMessageResultEntry(
                    message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=said
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
