"""Message trace: what was sent and handled, told to a topic that Apache's tools read (mqadmin queryMsgTraceById).

The form is that of Apache's TraceDataEncoder; batches are found by the ids and keys of the messages they tell of.
Nothing here waits: what comes faster than it leaves is dropped and counted, as by Apache's AsyncTraceDispatcher.
"""

import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from roquette.base.lifecycle import Health
from roquette.client.core.namespace import Namespace
from roquette.client.interceptors import Handled, Sent
from roquette.client.producer import Producer
from roquette.client.receipt import SendReceipt
from roquette.client.session import Session
from roquette.client.under_way import Interceptors
from roquette.errors import ClientError, StoreError
from roquette.message import properties as names
from roquette.message.message import Message, ReceivedMessage
from roquette.message.message_id import decode_offset_message_id, host_text
from roquette.message.names import TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("roquette.client")

GROUP: Final = "_INNER_TRACE_PRODUCER"
REGION: Final = "DefaultRegion"  # of brokers that name none (MixAll.DEFAULT_TRACE_REGION_ID)
WAITING: Final = 2_048  # records; more are dropped
BATCH: Final = 20  # records of one trace message
BATCH_CHARACTERS: Final = 128_000
KEY_CHARACTERS: Final = 16_000
PAUSE_S: Final = 1.0
CLOSE_S: Final = 3.0
NORMAL, HALF, COMMIT, DELAYED = 0, 1, 2, 3  # ordinals of Apache's MessageType
SUCCESS, EXCEPTION, FAILED = 0, 2, 4  # ordinals of Apache's ConsumeReturnType

Record = tuple[tuple[object, ...], str, str]
"""Its fields, and what it is found by: a message id, and keys with blanks between ("null" if none)."""


_STATES: Final = {True: "COMMIT_MESSAGE", False: "ROLLBACK_MESSAGE", None: "UNKNOW"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfTransaction:
    """End of a half message, as its producer states it; `commit` is None when it does not know yet."""

    group: str
    topic: str
    message_id: str
    tag: str | None
    keys: tuple[str, ...]
    store_host: str
    transaction_id: str
    commit: bool | None
    from_check: bool


def encoded(fields: tuple[object, ...]) -> str:
    """A record as it travels; None is Java's null."""
    return "\x01".join(_text(field) for field in fields) + "\x02"


def _text(field: object) -> str:
    if field is None:
        return "null"
    return str(field).lower() if isinstance(field, bool) else str(field)


def batches(waiting: "deque[Record]") -> "Iterator[tuple[str, set[str]]]":
    """Take records away in texts of one message each, with the keys by which it is found."""
    while waiting:
        text, keys = "", set[str]()
        for _ in range(min(BATCH, len(waiting))):
            fields, message_id, own_keys = waiting.popleft()
            text += encoded(fields)
            keys.add(message_id)
            if own_keys != "null":
                keys.update(own_keys.split())
            if len(text) >= BATCH_CHARACTERS or sum(map(len, keys)) >= KEY_CHARACTERS:
                break
        yield text, keys


class MessageTrace:
    """An interceptor that tells a topic. `begin` when there is a session, `aclose` before that ends.

    `dropped` counts records that never reached the topic.

    Args:
        topic: None is Apache's.
    """

    def __init__(self, topic: str | None = None) -> None:
        self.topic = topic or TRACE_TOPIC
        self.dropped = 0
        self._waiting: deque[Record] = deque()
        self._some = asyncio.Event()
        self._session: Session | None = None
        self._producer: Producer | None = None
        self._task: asyncio.Task[None] | None = None
        self._untold = 0  # records that wait, or are under way
        self._ending = asyncio.Event()

    def begin(self, session: Session) -> None:
        """Tell what happens from now on."""
        self._session = session
        self._producer = Producer(session, GROUP, Interceptors(), Namespace(""))
        self._ending.clear()
        self._task = session.tasks.keep("trace", self._run)

    async def aclose(self) -> None:
        """Send what is waiting, for `CLOSE_S` at most; may be called twice."""
        task, self._task = self._task, None
        if task is None:
            return
        assert self._producer is not None
        self._ending.set()
        self._some.set()
        began = asyncio.get_running_loop().time()
        await asyncio.wait((task,), timeout=CLOSE_S)
        await self._producer.flush(max(0.0, began + CLOSE_S - asyncio.get_running_loop().time()))
        self.dropped, self._untold = self.dropped + self._untold, 0
        if self.dropped:
            log.error("message trace lacks %d records topic=%s", self.dropped, self.topic)

    # the interceptor

    def on_send(self, message: Message, group: str) -> Sent | None:
        if message.topic == self.topic or self._session is None:
            return None
        clock = self._session.clock
        at_ms, began_ms = clock.now_ms(), clock.steady_ms()

        def sent(receipt: SendReceipt | None, error: BaseException | None) -> None:
            if receipt is None:
                return  # so does Apache's: nothing has an id
            keys = names.KEY_SEPARATOR.join(message.keys) or "null"
            fields = (
                *("Pub", at_ms, REGION, group, message.topic, receipt.message_id),
                *(message.tag, keys, store_host(receipt), len(message.body)),
                *(clock.steady_ms() - began_ms, _kind(message), receipt.offset_message_id),
                receipt.status == "SEND_OK",
            )
            self._tell((fields, receipt.message_id, keys))

        return sent

    def on_receive(self, message: ReceivedMessage, group: str) -> Handled | None:
        session = self._session
        traced = message.properties.get(names.TRACE_ON) != "false"
        if session is None or message.topic == self.topic or not traced:
            return None
        clock = session.clock
        at_ms, began_ms = clock.now_ms(), clock.steady_ms()
        region, keys = message.properties.get(names.MSG_REGION), " ".join(message.keys) or "null"
        assert self._producer is not None
        request = self._producer.new_id()
        found = message.message_id, keys
        before = ("SubBefore", at_ms, region, group, request, message.message_id)
        self._tell(((*before, message.reconsume_times, keys), *found))

        def handled(accepted: bool, error: BaseException | None) -> None:
            code = EXCEPTION if error is not None else SUCCESS if accepted else FAILED
            took_ms = clock.steady_ms() - began_ms
            after = ("SubAfter", request, message.message_id, took_ms, accepted, keys, code)
            self._tell(((*after, clock.now_ms(), group), *found))

        return handled

    # what is no send and no handler

    def transaction_ended(self, end: EndOfTransaction) -> None:
        """A producer ends a transaction, or answers a check."""
        if self._session is None:
            return
        keys = names.KEY_SEPARATOR.join(end.keys) or "null"
        fields = (
            *("EndTransaction", self._session.clock.now_ms(), REGION, end.group, end.topic),
            *(end.message_id, end.tag, keys, end.store_host, COMMIT, end.transaction_id),
            *(_STATES[end.commit], end.from_check),
        )
        self._tell((fields, end.message_id, keys))

    def recalled(self, receipt: SendReceipt, group: str, success: bool) -> None:
        """A message was taken back, or could not be."""
        if self._session is None:
            return
        at_ms, topic = self._session.clock.now_ms(), receipt.queue.topic
        fields = ("Recall", at_ms, REGION, group, topic, receipt.message_id, success)
        self._tell((fields, receipt.message_id, "null"))

    # sending

    def _tell(self, record: Record) -> None:
        if len(self._waiting) >= WAITING:
            self.dropped += 1
            return
        self._untold += 1
        self._waiting.append(record)
        self._some.set()

    async def _run(self, health: Health) -> None:
        while self._waiting or not self._ending.is_set():
            await self._some.wait()
            if len(self._waiting) < BATCH:
                with suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE_S):
                        await self._ending.wait()
            self._some.clear()
            await self._flush()
            health.worked()

    async def _flush(self) -> None:
        assert self._producer is not None
        for text, keys in batches(self._waiting):
            message = Message(self.topic, text.encode(), keys=tuple(sorted(keys)))
            count = text.count("\x02")
            try:
                answer = await self._producer.send_nowait(message)
            except (ClientError, StoreError, OSError) as error:
                self._failed(count, error)
            else:
                answer.add_done_callback(partial(self._answered, count))

    def _answered(self, count: int, answer: "asyncio.Future[SendReceipt]") -> None:
        if not answer.cancelled() and (error := answer.exception()) is not None:
            self._failed(count, error)
        else:
            self._untold -= count

    def _failed(self, count: int, error: BaseException) -> None:
        assert self._session is not None
        self._untold -= count
        self.dropped += count
        words = "trace is not stored topic=%s dropped=%d error=%s"
        self._session.noise.warning("trace", words, self.topic, self.dropped, error)


def store_host(receipt: SendReceipt) -> str:
    """The address of the broker that stored a message; "null" where it gives other ids."""
    try:
        return host_text(decode_offset_message_id(receipt.offset_message_id)[0])
    except ValueError:
        return "null"


def _kind(message: Message) -> int:
    if message.properties.get(names.TRAN_MSG) == "true":
        return HALF
    return DELAYED if message.delay_level or message.deliver_at_ms else NORMAL
