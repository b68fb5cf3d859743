"""Acks of one turn that are of one pop, in one request (BATCH_ACK_MESSAGE): clients acknowledge each message by itself.

Used where the broker is in this process: one of Apache's before 5.1 does not know the request. Orderly receipts, and
one that is alone, go by ACK_MESSAGE, whose refusals say more.
"""

from typing import Final

from roquette.base.javatypes import whole_number
from roquette.proxy.answers import BrokerAnswer, Then
from roquette.proxy.backend import Backend
from roquette.proxy.call import Caller
from roquette.proxy.handles import ReceiptHandle, ack
from roquette.wire.bodies import BatchAck, BatchAckMessageRequestBody
from roquette.wire.codes import RequestCode
from roquette.wire.json_body import encode_body

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
