"""Rules for what a message with an arbitrary time of delivery must say.

Apache: HookUtils.checkIfTimerMessage and transformTimerMessage.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from roquette.base.entropy import Entropy
from roquette.broker.floor.config import LiveConfig
from roquette.errors import Refused
from roquette.message import names, properties
from roquette.message.message_id import offset_message_id
from roquette.message.properties import (
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    decode_properties,
)
from roquette.message.record_layout import StoredRecord
from roquette.store.timer_store import TimerStore
from roquette.wire.codes import ResponseCode

_MAX: Final = 2**63 - 1
_DECIMAL: Final = re.compile(r"[+-]?[0-9]+")


def asks_for_timer(named: dict[str, str]) -> bool:
    """Does a message name a time of delivery?"""
    return TIMER_DELIVER_MS in named or TIMER_DELAY_MS in named or TIMER_DELAY_SEC in named


def strip_timer(named: dict[str, str]) -> None:
    """Take the times of delivery away: the message has a delay level, which wins."""
    for name in (TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS):
        named.pop(name, None)


def wait_no_more(named: dict[str, str]) -> None:
    """For a message that consumers have had: times of delivery that no timer has obeyed hold it up no more."""
    if TIMER_OUT_MS not in named:
        strip_timer(named)


class TimerRules:
    """The slot of a timer message, or the refusal Apache has for it.

    Args:
        precision_ms: width of a slot.
        max_delay_sec, congest_number: the current settings.
        number: messages that wait in a slot.
        below: a random number from 0 to before its argument.
    """

    def __init__(
        self,
        precision_ms: Callable[[], int],
        max_delay_sec: Callable[[], int],
        congest_number: Callable[[], int],
        number: Callable[[int], int],
        below: Callable[[int], int],
    ) -> None:
        self._precision_ms = precision_ms
        self._max_delay_sec = max_delay_sec
        self._congest_number = congest_number
        self._number = number
        self._below = below

    def slot_of(self, named: dict[str, str], now_ms: int) -> int | None:
        """The slot (TIMER_OUT_MS) a message waits in; None when its time is not ahead.

        It is delivered one precision later, so never early. Sums are exact: a delay near 2^63 is refused for
        its length, where Java's sum would overflow into the past (its issue 10872).

        Raises:
            Refused: no number, too far ahead, or too many messages in the slot.
        """
        if (text := named.get(TIMER_DELAY_SEC)) is not None:
            deliver_ms = now_ms + self._number_of(text) * 1000
        elif (text := named.get(TIMER_DELAY_MS)) is not None:
            deliver_ms = now_ms + self._number_of(text)
        else:
            deliver_ms = self._number_of(named[TIMER_DELIVER_MS])
        if deliver_ms <= now_ms:
            if TIMER_DEL_UNIQKEY in named:
                raise self._illegal()
            return None
        if deliver_ms - now_ms > self._max_delay_sec() * 1000:
            raise self._illegal()
        precision = self._precision_ms()
        if deliver_ms % precision == 0:
            slot_ms = deliver_ms - precision
        else:
            slot_ms = deliver_ms // precision * precision
        self._check_congestion(slot_ms)
        return slot_ms

    def _number_of(self, text: str) -> int:
        value = int(text) if len(text) <= 100 and _DECIMAL.fullmatch(text) else _MAX + 1
        if not -_MAX - 1 <= value <= _MAX:
            raise self._illegal()
        return value

    def _illegal(self) -> Refused:
        return Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{self._max_delay_sec() * 1000}ms; or if set del msg, the delay time should be bigger than "
            "the current time",
        )

    def _check_congestion(self, slot_ms: int) -> None:
        """Refuse some messages of a slot that has many, and all when it has twice as many (isReject)."""
        limit = self._congest_number()
        number = self._number(slot_ms)
        if number <= limit:
            return
        if number < limit * 2 and self._below(1000) <= 1000 * (number - limit) / (limit + 0.1):
            return
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"timer message is under flow control, max num limit is {limit * 2} or the current value is "
            f"greater than {limit} and less than {limit * 2}, trigger random flow control",
        )


def delete_key(topic: str, uniq_key: str) -> str:
    """Return the key that TIMER_DEL_UNIQKEY carries (TimerMessageStore.buildDeleteKey)."""
    return f"{topic}+{uniq_key}"


def rules_of(storage: TimerStore, live: LiveConfig, entropy: Entropy) -> TimerRules:
    """The rules by which the writer of one timer's broker takes timer messages."""
    return TimerRules(
        lambda: storage.precision_ms,
        lambda: live.store.timer_max_delay_sec,
        lambda: live.store.timer_congest_num_each_slot,
        storage.number,
        entropy.below,
    )


# The way of a message that a consumer could not process: retry later, or the dead-letter topic. Pure.
# Apache: AbstractSendMessageProcessor.consumerSendMsgBack, SendMessageProcessor.handleRetryAndDLQ.


FIRST_RETRY_LEVEL = 3  # retry n waits level n + 2: 10 s, 30 s, 1 min ...
HEADER_LIMIT_SINCE = 121  # V3_4_9: clients that may set maxReconsumeTimes in the header
DLQ_QUEUES = 1
RETRY_PERM = names.PERM_READ | names.PERM_WRITE


@dataclass(slots=True, frozen=True, kw_only=True)
class SendBackPlan:
    """Plan for a message returned by a consumer: where it goes, and with which properties."""

    topic: str
    dead: bool
    named: dict[str, str]
    reconsume_times: int


def retry_limit(group_limit: int, header_limit: int | None, client_version: int) -> int:
    """Return how many retries there are: the group's number, or what a newer client says."""
    if header_limit is not None and client_version >= HEADER_LIMIT_SINCE:
        return header_limit
    return group_limit


def plain_properties(record: StoredRecord) -> dict[str, str]:
    """The properties of a message that has no room for those of a retry: it waits for nothing."""
    named = decode_properties(record.properties)
    named.pop(properties.DELAY, None)
    wait_no_more(named)
    return named


def plan_send_back(
    record: StoredRecord, group: str, *, wanted_level: int, limit: int
) -> SendBackPlan:
    """Decide for one message: level 0 lets the broker choose, a negative one means the dead-letter topic."""
    named = decode_properties(record.properties)
    named.setdefault(properties.RETRY_TOPIC, record.topic)
    named[properties.WAIT] = "false"
    if not named.get(properties.ORIGIN_MESSAGE_ID):
        named[properties.ORIGIN_MESSAGE_ID] = offset_message_id(
            record.store_host, record.physical_offset
        )
    wait_no_more(named)
    dead = record.reconsume_times >= limit or wanted_level < 0
    if dead:
        named[properties.DELAY] = "0"
    else:
        named[properties.DELAY] = str(wanted_level or FIRST_RETRY_LEVEL + record.reconsume_times)
    return SendBackPlan(
        topic=names.dlq_topic(group) if dead else names.retry_topic(group),
        dead=dead,
        named=named,
        reconsume_times=record.reconsume_times + 1,
    )
