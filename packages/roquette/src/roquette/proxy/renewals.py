"""Receipts that the proxy renews while its clients work on their messages (Apache: DefaultReceiptHandleManager).

A client that receives with `auto_renew` never names an invisible time: its messages stay away from others as long
as it lives, for `LONGEST_MS` at most; where too many are renewed already, for `UNRENEWED_MS`. It goes on using the handle it was given; here stands the one that is valid.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Final, final

from roquette.base.clock import Clock
from roquette.base.javatypes import whole_number
from roquette.message.names import RETRY_PREFIX, pop_retry_topic
from roquette.proxy.backend import Backend, RequestUnderWay
from roquette.proxy.service import BrokerAnswer, Caller, Part, ProxyBeat, Then
from roquette.proxy.statuses import RpcError
from roquette.wire.bodies.tables import (
    RETRY_WAITS_MS,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
)
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import HeaderDecoder
from roquette.wire.headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    ConsumerSendMsgBackRequestHeader,
)
from roquette.wire.proto.definition_pb2 import Code

# Receipt handles of the v5 protocol, and the requests that they name (Apache: ReceiptHandle, ConsumerProcessor).
# A handle is a broker's receipt, `start popTime invisibleTime reviveQid t brokerName queueId queueOffset`, and the message's place in the log as its ninth word. t: 0 the topic's message, 1 and 2 the pop retry topic's, of v1 and v2.


NACK_MS: Final = 1_000  # what is given back comes again after so long
LONGEST: Final = 1_024  # characters of a handle
ORDERLY: Final = "999"  # the revive queue in receipts of orderly pops
_KINDS: Final = ("0", "1", "2")
_changed: Final = HeaderDecoder(ChangeInvisibleTimeResponseHeader)


@final
class PopOfQueue:
    """What the receipts of one pop's messages of one queue have in common: their first seven words.

    Attributes:
        text: these words, with the space behind each.
        start: the offset of the pop's first message; below 0 when the receipt does not say one.
        revive_queue: the number of the queue in which the pop waits; below 0: it is an orderly pop, or it does not say one.
        visible_ms: time at which the messages come again, ms, wall time.
    """

    def __init__(self, text: str, words: list[str]) -> None:
        self.text: str = text
        self.start: int = whole_number(words[0], 2**63 - 1)
        self.pop_time: int = int(words[1])
        self.invisible_time: int = int(words[2])
        waits = words[3].isdecimal() and words[3] != ORDERLY
        self.revive_queue: int = int(words[3]) if waits else -1
        self.kind: str = words[4]
        self.broker: str = words[5]
        self.queue_id: int = int(words[6])
        self.visible_ms: int = self.pop_time + self.invisible_time


@final
class ReceiptHandle:
    """A receipt handle, read.

    Attributes:
        place: of the message in the log; below 0 when the handle does not say it.
    """

    def __init__(self, text: str, pop: PopOfQueue, offset: int, place: int) -> None:
        self.text: str = text
        self.pop: PopOfQueue = pop
        self.offset: int = offset
        self.place: int = place

    def topic(self, topic: str, group: str) -> str:
        """The topic the message was popped from."""
        kind = self.pop.kind
        return topic if kind == "0" else pop_retry_topic(topic, group, v2=kind == "2")


def kind_of(topic: str) -> str:
    """Return which of the three kinds a topic is (ExtraInfoUtil.getRetry)."""
    if not topic.startswith(RETRY_PREFIX):
        return "0"
    return "2" if "+" in topic else "1"


class _Last:
    """The pop whose receipt was read last: what comes next is mostly of it, too."""

    def __init__(self) -> None:
        self.pop: PopOfQueue | None = None


_last: Final = _Last()


def read_handle(text: str) -> ReceiptHandle:
    """Read a handle.

    Raises:
        RpcError: INVALID_RECEIPT_HANDLE, it is none.
    """
    pop = _last.pop
    try:
        if len(text) > LONGEST:
            raise ValueError
        if pop is None or not text.startswith(pop.text):
            pop = _last.pop = _pop_of(text)
        words = text[len(pop.text) :].split(" ", 2)
        place = int(words[1]) if len(words) > 1 else -1
        return ReceiptHandle(text, pop, int(words[0]), place)
    except ValueError:
        raise RpcError(Code.INVALID_RECEIPT_HANDLE, "receipt handle is invalid") from None


def _pop_of(text: str) -> PopOfQueue:
    """Raises ValueError."""
    words = text.split(" ", 7)
    if len(words) < 8 or words[4] not in _KINDS or not words[5]:
        raise ValueError
    return PopOfQueue(text[: len(text) - len(words[7])], words)


def living_handle(text: str, now_ms: int) -> ReceiptHandle:
    """Read a handle whose message is still invisible. Raises RpcError."""
    handle = read_handle(text)
    if handle.pop.visible_ms <= now_ms:
        raise RpcError(Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
    return handle


def ack(
    backend: Backend, caller: Caller, handle: ReceiptHandle, topic: str, group: str, then: Then
) -> RequestUnderWay:
    """Acknowledge a message."""
    header = AckMessageRequestHeader(
        consumer_group=group,
        topic=handle.topic(topic, group),
        queue_id=handle.pop.queue_id,
        extra_info=handle.text,
        offset=handle.offset,
    )
    return backend.ask(caller, handle.pop.broker, RequestCode.ACK_MESSAGE, header, b"", then)


def change(
    backend: Backend,
    caller: Caller,
    handle: ReceiptHandle,
    topic: str,
    group: str,
    invisible_ms: int,
    then: Callable[[BrokerAnswer, str], None],
    *,
    suspend: bool = False,
) -> RequestUnderWay:
    """Change how long a message is invisible, from now.

    Args:
        then: gets the answer and the message's handle from now on: the new one, or the old one where it stays.
    """

    def answered(answer: BrokerAnswer) -> None:
        text = handle.text
        if answer.code == ResponseCode.SUCCESS and answer.ext:
            new = _changed(answer.ext)
            if new.pop_time:
                text = (
                    f"{handle.offset} {new.pop_time} {new.invisible_time} {new.revive_qid} {handle.pop.kind} "
                    f"{handle.pop.broker} {handle.pop.queue_id} {handle.offset} {handle.place}"
                )
        then(answer, text)

    header = ChangeInvisibleTimeRequestHeader(
        consumer_group=group,
        topic=handle.topic(topic, group),
        queue_id=handle.pop.queue_id,
        extra_info=handle.text,
        offset=handle.offset,
        invisible_time=invisible_ms,
        suspend=suspend,
    )
    code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    return backend.ask(caller, handle.pop.broker, code, header, b"", answered)


def give_back(backend: Backend, text: str, topic: str, group: str) -> None:
    """Nobody works on a message any more: it comes again soon. Nothing happens for a handle that is none."""
    try:
        handle = read_handle(text)
    except RpcError:
        return
    change(backend, backend.own, handle, topic, group, NACK_MS, lambda answer, new: None)


def forward(
    backend: Backend,
    caller: Caller,
    handle: ReceiptHandle,
    topic: str,
    group: str,
    message_id: str,
    then: Then,
) -> None:
    """Put a message into the group's dead-letter queue, then acknowledge it.

    Raises:
        RpcError: the handle does not say where the message is.
    """
    if handle.place < 0:
        raise RpcError(Code.INVALID_RECEIPT_HANDLE, "commit log offset is empty")

    def answered(answer: BrokerAnswer) -> None:
        if answer.code == ResponseCode.SUCCESS:
            ack(backend, backend.own, handle, topic, group, lambda ignored: None)
        then(answer)

    header = ConsumerSendMsgBackRequestHeader(
        offset=handle.place,
        group=group,
        delay_level=-1,
        origin_msg_id=message_id,
        origin_topic=handle.topic(topic, group),
        max_reconsume_times=0,
    )
    backend.ask(
        caller, handle.pop.broker, RequestCode.CONSUMER_SEND_MSG_BACK, header, b"", answered
    )


SCAN_S: Final = 1.0
AHEAD_MS: Final = 10_000  # so long before it ends a receipt is renewed
AGAIN_MS: Final = 3_000  # between tries
TRIES: Final = 3
LONGEST_MS: Final = 10_800_000  # 3 h after the receive a message is given back
TIMES_MS: Final = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
MOST: Final = 100_000  # receipts: those of further receives are not renewed
LITTLE: Final = 1_000  # receipts: who has fewer has his renewed, up to twice as many of all
UNRENEWED_MS: Final = (
    900_000  # invisible time of messages that are not renewed (consumeTimeout of 4.x)
)
AT_ONCE: Final = 500  # receipts renewed in one step
MOST_CHANGED: Final = 20_000

_LOST: Final = (ResponseCode.NO_MESSAGE, ResponseCode.MESSAGE_ILLEGAL)
Key = tuple[str, str, str]  # client id, group, the handle the client knows


class _Entry:
    """One receipt.

    Attributes:
        handle: the valid one. waiting: who wants it as soon as a renewal under way has ended.
    """

    __slots__ = (
        "busy", "caller", "gone", "handle", "key", "reconsumed", "since_ms", "times", "topic", "tries",
        "waiting",
    )  # fmt: skip

    def __init__(
        self,
        caller: Caller,
        key: Key,
        topic: str,
        handle: ReceiptHandle,
        reconsumed: int,
        now_ms: int,
    ) -> None:
        self.caller = caller
        self.key = key
        self.topic = topic
        self.handle = handle
        self.reconsumed = reconsumed
        self.since_ms = now_ms
        self.times = 0
        self.tries = 0
        self.busy = False
        self.gone = False
        self.waiting: Callable[[str], None] | None = None


class Renewals(Part):
    """The receipts that are renewed, and what became of handles that clients have changed.

    Renewals are asked for by `backend.own`, so that they outlive the connection the message went to.
    """

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._sequence = 0
        self._entries: dict[Key, _Entry] = {}
        self._due: list[tuple[int, int, _Entry]] = []  # steady
        self._clients: dict[str, tuple[Caller, int]] = {}  # who was here last, and its receipts
        self._changed: dict[Key, tuple[str, int]] = {}  # the new handle, and until when, wall time

    def __len__(self) -> int:
        return len(self._entries)

    def has_room(self, client_id: str) -> bool:
        """Return True when what a client receives now is renewed."""
        count = self._clients.get(client_id, (None, 0))[1]
        return len(self._entries) < MOST or (count < LITTLE and len(self._entries) < 2 * MOST)

    def beats(self) -> Iterable[ProxyBeat]:
        """Renew what is due."""
        yield ProxyBeat("renewals", SCAN_S, self.step)

    def seen(self, caller: Caller) -> None:
        """A client asks something, perhaps over another connection than before."""
        found = self._clients.get(caller.client_id)
        if found is not None and found[0] is not caller:
            self._clients[caller.client_id] = (caller, found[1])

    def add(self, caller: Caller, group: str, topic: str, text: str, reconsumed: int) -> None:
        """Renew the receipt of a message that goes to a client."""
        handle = read_handle(text)
        key = (caller.client_id, group, text)
        if key in self._entries or len(self._entries) >= 2 * MOST:
            return
        entry = _Entry(caller, key, topic, handle, reconsumed, self._clock.steady_ms())
        self._keep(entry)
        self._plan(entry, handle.pop.visible_ms - self._clock.now_ms() - AHEAD_MS)

    def _keep(self, entry: _Entry) -> None:
        self._entries[entry.key] = entry
        _, count = self._clients.get(entry.key[0], (entry.caller, 0))
        self._clients[entry.key[0]] = (entry.caller, count + 1)

    def _plan(self, entry: _Entry, in_ms: int) -> None:
        self._sequence += 1
        due = self._clock.steady_ms() + max(0, in_ms)
        heapq.heappush(self._due, (due, self._sequence, entry))
        if len(self._due) > 2 * len(self._entries) + 1_000:
            self._due = [old for old in self._due if not old[2].gone]
            heapq.heapify(self._due)

    def take(self, client_id: str, group: str, text: str, then: Callable[[str], None]) -> bool:
        """The client is done with a handle, or changes it: it is renewed no more.

        Args:
            then: gets the handle that is valid, at once or when a renewal under way has ended.

        Returns:
            It was renewed until now.
        """
        if not (self._entries or self._changed):  # as where nobody renews anything
            then(text)
            return False
        key = (client_id, group, text)
        entry = self._entries.get(key)
        if entry is None:
            found = self._changed.get(key)
            then(text if found is None else found[0])
            return False
        self._forget(entry)
        if entry.busy:
            entry.waiting = then
        else:
            then(entry.handle.text)
        return True

    def changed(self, client_id: str, group: str, old: str, new: str) -> None:
        """A client has changed a handle: acks with the old one mean the new one, as long as that lives."""
        if old == new:
            return
        now_ms = self._clock.now_ms()
        while self._changed:
            first = next(iter(self._changed))
            if len(self._changed) < MOST_CHANGED and self._changed[first][1] > now_ms:
                break
            del self._changed[first]
        self._changed[client_id, group, old] = (new, read_handle(new).pop.visible_ms)

    def _forget(self, entry: _Entry) -> None:
        entry.gone = True
        if self._entries.pop(entry.key, None) is None:
            return
        client_id = entry.key[0]
        caller, count = self._clients[client_id]
        if count > 1:
            self._clients[client_id] = (caller, count - 1)
        else:
            del self._clients[client_id]

    def step(self) -> None:
        """Renew what is due."""
        now = self._clock.steady_ms()
        for _ in range(AT_ONCE):
            if not self._due or self._due[0][0] > now:
                break
            entry = heapq.heappop(self._due)[2]
            if entry.gone or entry.busy:
                continue
            if self._clients[entry.key[0]][0].peer.closed:  # and it has not come again
                self._give_back(entry)
            elif entry.tries >= TRIES:
                self._forget(entry)
            elif now - entry.since_ms >= LONGEST_MS:
                self._end(entry)
            else:
                self._renew(entry)

    def _renew(self, entry: _Entry) -> None:
        entry.busy = True
        left_ms = LONGEST_MS - (self._clock.steady_ms() - entry.since_ms)
        time_ms = min(TIMES_MS[min(entry.times, len(TIMES_MS) - 1)], left_ms + AHEAD_MS)

        def renewed(answer: BrokerAnswer, text: str) -> None:
            entry.busy = False
            if answer.code == ResponseCode.SUCCESS:
                entry.handle = read_handle(text)
                entry.times += 1
                entry.tries = 0
            else:
                entry.tries += 1
            # An ack may have come meanwhile (`take`): it needs the handle that is valid now, so that it waits for this.
            waiting, entry.waiting = entry.waiting, None
            if waiting is not None:
                waiting(entry.handle.text)
            elif entry.gone:
                give_back(self._backend, entry.handle.text, entry.topic, entry.key[1])
            elif answer.code in _LOST:
                self._forget(entry)
            elif answer.code == ResponseCode.SUCCESS:
                left = entry.handle.pop.visible_ms - self._clock.now_ms()
                self._plan(entry, left - AHEAD_MS)
            else:
                self._plan(entry, AGAIN_MS)

        own, group = self._backend.own, entry.key[1]
        change(self._backend, own, entry.handle, entry.topic, group, time_ms, renewed)

    def _end(self, entry: _Entry) -> None:
        """It was renewed for as long as may be: it waits for its next delivery as after a failure."""
        self._forget(entry)
        group = entry.key[1]

        def known(config: SubscriptionGroupConfig | None) -> None:
            if config is not None:
                wait = next_wait(config.group_retry_policy, entry.reconsumed)
                own = self._backend.own
                change(
                    self._backend, own, entry.handle, entry.topic, group, wait, lambda answer, new: None
                )  # fmt: skip

        self._backend.group(self._backend.own, group, known)

    def _give_back(self, entry: _Entry) -> None:
        self._forget(entry)
        if not entry.busy:  # else it is given back when that has ended
            give_back(self._backend, entry.handle.text, entry.topic, entry.key[1])

    def client_gone(self, client_id: str, group: str | None = None) -> None:
        """A client has ended, or has left a group: its messages are given back."""
        if client_id in self._clients:
            for entry in list(self._entries.values()):
                if entry.key[0] == client_id and group in (None, entry.key[1]):
                    self._give_back(entry)

    def stop(self) -> None:
        """Give all back."""
        for entry in list(self._entries.values()):
            self._give_back(entry)


def next_wait(policy: GroupRetryPolicy, times: int) -> int:
    """Return how long a message waits after a failure, ms (Apache: RetryPolicy.nextDelayDuration)."""
    times = min(max(0, times), 32)
    if policy.type == "EXPONENTIAL":
        grows = policy.exponential_retry_policy or ExponentialRetryPolicy()
        grown: int = grows.initial * grows.multiplier**times
        return min(grows.max, grown)
    own = policy.customized_retry_policy
    waits = list(RETRY_WAITS_MS) if own is None or not own.next else own.next
    return waits[
        min(times + 2, len(waits) - 1)
    ]  # as CustomizedRetryPolicy: two levels are left out
