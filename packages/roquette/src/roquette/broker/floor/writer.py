"""Puts messages into the store on the broker's own account or by way of a slow path: delay levels, refusals.

The plain send in `processors/send.py` calls the store itself; everything with a special property comes here.
Apache: HookUtils.handleScheduleMessage, SendMessageProcessor.handlePutMessageResult.
"""

from collections.abc import Callable, Sequence

from roquette.broker.floor.set_aside import SetAside
from roquette.broker.floor.timer_rules import TimerRules, asks_for_timer, strip_timer
from roquette.broker.floor.waiting import keep_place
from roquette.errors import (
    BatchTooLarge,
    MessageIllegal,
    Refused,
    RefusedForNow,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreShort,
)
from roquette.message import names, properties, sysflag
from roquette.message.properties import encode_properties
from roquette.message.record_layout import MAX_PROPERTIES, Draft, StoredRecord, draft_of
from roquette.store.cut import copy_mark
from roquette.store.format.results import Appended
from roquette.store.message_store import MessageStore
from roquette.wire.codes import ResponseCode

_DISPENSABLE = frozenset(
    (
        properties.WAIT,
        properties.FIRST_POP_TIME,
        properties.ORIGIN_GROUP,
        properties.ORIGIN_MESSAGE_ID,
        properties.TIMER_ENQUEUE_MS,
        properties.TIMER_DEQUEUE_MS,
        properties.TIMER_ROLL_TIMES,
        properties.MSG_REGION,
        properties.TRACE_ON,
        properties.CLUSTER,
    )
)
_HOST_BITS = sysflag.BORN_HOST_V6 | sysflag.STORE_HOST_V6

Put = Callable[[Draft, dict[str, str], int], Appended]
"""Stores a draft with these properties, now in epoch ms, as `MessageWriter.put`: raises Refused."""


class MessageWriter:
    """Appends messages whose properties are known by name.

    Args:
        delay_ms: how long each delay level waits, level 1 first.
        disk_text: the part of the disk in use, for the refusal of a full disk.
        timers: what becomes of messages with a time of delivery; None refuses them.

    Attributes:
        delay_ms: how long each delay level waits, in ms, level 1 first.
        aside: where entries of the broker's own queues go that it cannot work off.
    """

    def __init__(
        self,
        store: MessageStore,
        delay_ms: Sequence[int],
        disk_text: Callable[[], str],
        timers: TimerRules | None = None,
    ) -> None:
        self._store: MessageStore = store
        self.delay_ms: Sequence[int] = delay_ms
        self._disk_text: Callable[[], str] = disk_text
        self._timers: TimerRules | None = timers
        self.aside: SetAside = SetAside()

    def put(self, draft: Draft, named: dict[str, str], now_ms: int) -> Appended:
        """Append a draft with these properties; one to be delivered later goes to the timer's queue or its delay
        level's, and `named` says so afterwards (HookUtils.handleScheduleMessage).

        Of the broker's own deliveries, what it adds is left out where the properties have no room.

        Raises:
            RefusedForNow, Refused: the store does not take it, or what it says of its delivery is wrong.
        """
        if draft.sys_flag & sysflag.TRANSACTION_ROLLBACK in (0, sysflag.TRANSACTION_COMMIT):
            level = delay_level(named)
            if draft.topic != names.TIMER_TOPIC and asks_for_timer(named):
                if level > 0:
                    strip_timer(named)  # the level wins
                elif properties.TIMER_OUT_MS not in named:
                    self._to_timer(draft, named, now_ms)
            if level > 0:
                level = min(level, len(self.delay_ms))
                named[properties.DELAY] = str(level)
                keep_place(named, draft.topic, draft.queue_id)
                draft.topic, draft.queue_id = names.SCHEDULE_TOPIC, level - 1
                draft.unit_code = now_ms + self.delay_ms[level - 1]
        text = fitting(named) if draft.own else encode_properties(named)
        draft.properties = text.encode()
        return self._append(draft, now_ms)

    def _append(self, draft: Draft, now_ms: int) -> Appended:
        draft.sys_flag &= ~_HOST_BITS
        try:
            return self._store.append(draft, now_ms)
        except StoreError as error:
            raise self.refusal(error) from None

    def _to_timer(self, draft: Draft, named: dict[str, str], now_ms: int) -> None:
        """Send a timer message to the timer's queue, unless its time has passed."""
        if self._timers is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "accurate timer message is not enabled, timerWheelEnable is false",
            )
        out_ms = self._timers.slot_of(named, now_ms)
        if out_ms is not None:
            named[properties.TIMER_OUT_MS] = str(out_ms)
            keep_place(named, draft.topic, draft.queue_id)
            draft.topic, draft.queue_id = names.TIMER_TOPIC, 0

    def put_copy(
        self, topic: str, queue_id: int, text: str, record: StoredRecord, now_ms: int
    ) -> Appended:
        """Append a delivery of a delayed message: another topic and property string, the rest as it was.

        The copy says whose copy it is (`copies`), so that it is made once, whatever crashes.

        Raises:
            RefusedForNow, Refused: the store does not take it.
        """
        draft = draft_of(record)
        draft.topic, draft.queue_id = topic, queue_id
        draft.properties = text.encode()
        draft.prepared_offset = copy_mark(record.physical_offset)
        draft.own = True
        return self._append(draft, now_ms)

    def illegal(self) -> Refused:
        """The refusal of a message that breaks a size limit."""
        return Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. msg body length "
            f"limit {self._store.config.max_message_size}B, msg properties length limit 32KB.",
        )

    def refusal(self, error: StoreError) -> Refused:
        """The refusal for a sender when the store refuses."""
        if isinstance(error, BatchTooLarge):
            return Refused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {error}")
        if isinstance(error, MessageIllegal):
            return self.illegal()
        if isinstance(error, StoreFull):
            return RefusedForNow(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"service not available now: the broker's disk is full [{self._disk_text()}]: {error}",
            )
        if isinstance(error, StoreShort):
            return RefusedForNow(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"service not available now: the broker is {error}. The disk is not full; send again",
            )
        if isinstance(error, StoreClosed):
            return RefusedForNow(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"service not available now: the message store takes no messages: {error}",
            )
        return Refused(ResponseCode.SYSTEM_ERROR, f"UNKNOWN_ERROR {error}")


def fitting(named: dict[str, str]) -> str:
    """The property string, without what brokers add for information where there is no room for it."""
    text = encode_properties(named)
    if len(text) > MAX_PROPERTIES // 4 and len(text.encode()) > MAX_PROPERTIES:
        text = encode_properties({k: v for k, v in named.items() if k not in _DISPENSABLE})
        if len(text.encode()) == MAX_PROPERTIES + 1:
            text = text[:-1]  # the last separator, as some clients leave it away
    return text


def delay_level(named: dict[str, str]) -> int:
    """The delay level a message asks for; 0 is none (Message.getDelayTimeLevel).

    Raises:
        Refused: the property is not a number.
    """
    text = named.get(properties.DELAY)
    if text is None:
        return 0
    try:
        return int(text)
    except ValueError:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f'NumberFormatException: For input string: "{text[:40]}"'
        ) from None
