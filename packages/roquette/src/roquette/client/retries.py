"""Giving a failed message back: to the broker it came from, or as a new message to the retry topic."""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Self

from roquette.base.lifecycle import Health
from roquette.client import calls
from roquette.client.consumer_options import MemberOptions, Model
from roquette.client.core.process_queue import ProcessQueue
from roquette.client.producer import Producer
from roquette.client.session import Session
from roquette.errors import ClientError, StoreError
from roquette.message.message import Message, ReceivedMessage
from roquette.message.names import retry_topic
from roquette.message.properties import (
    DELAY,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    RECONSUME_TIME,
    RETRY_TOPIC,
    TRAN_MSG,
)
from roquette.wire.bodies.group_config import RETRY_WAITS_MS
from roquette.wire.headers import ConsumerSendMsgBackRequestHeader

log = logging.getLogger("roquette.client")

DEFAULT_MAX_RECONSUME = 16
_SEND_BACK_MS = 5_000
DEAD = -1
"""The delay level that sends a message to the dead letters at once (AbstractSendMessageProcessor.consumerSendMsgBack)."""


async def hand_back(
    session: Session,
    producer: Producer,
    group: str,
    message: ReceivedMessage,
    max_reconsume_times: int,
    delay_level: int = 0,
) -> bool:
    """Let the message come again later, or with `DEAD` never; False when no way worked (sendMessageBack, its
    fall-back, which would send an unreadable body for a good one and is for those that come again only)."""
    most = max_reconsume_times if max_reconsume_times >= 0 else DEFAULT_MAX_RECONSUME
    header = ConsumerSendMsgBackRequestHeader(
        offset=message.physical_offset,
        group=group,
        delay_level=delay_level,
        origin_msg_id=message.message_id,
        origin_topic=session.namespace.wrap(message.topic),
        max_reconsume_times=most,
        bname=message.queue.broker_name,
    )
    try:
        address = session.master_of(message.queue)
        await session.api.call(address, calls.send_back(header), timeout_ms=_SEND_BACK_MS)
        return True
    except ClientError as error:
        if delay_level == DEAD:
            log.warning("dead letter failed id=%s error=%s", message.message_id, error)
            return False
        log.warning(
            "send back failed, sending to the retry topic id=%s error=%s", message.message_id, error
        )
    return await resend(producer, group, message, message.reconsume_times + 1, most, delay_level)


def next_step(options: MemberOptions, pause_ms: int, message: ReceivedMessage) -> str:
    """Say what becomes of a message that the handler failed at, for the log."""
    failures, most = message.reconsume_times, options.max_reconsume_times
    if options.model is Model.BROADCASTING:
        return "it is dropped, broadcasting has no retries"
    if options.orderly:
        return f"it is tried again in {pause_ms} ms, what follows in its queue waits"
    if failures >= (most if most >= 0 else DEFAULT_MAX_RECONSUME):
        return "it goes to the dead letters"
    levels = options.retry_levels
    level = levels[min(failures, len(levels) - 1)] if levels else 3 + failures
    return f"it comes again, delay level {level}"


def level_after(after_s: float | None) -> int:
    """The first delay level, of Apache's, that is not shorter, or the longest; 0 for None: the broker's by failures."""
    if after_s is None:
        return 0
    return min(bisect_left(RETRY_WAITS_MS, after_s * 1000) + 1, len(RETRY_WAITS_MS))


class SendBacks:
    """Messages of one member that go back to the broker.

    Args:
        finish: called with what has gone back.
    """

    def __init__(
        self,
        session: Session,
        producer: Producer,
        group: str,
        max_reconsume_times: int,
        finish: Callable[[ProcessQueue, ReceivedMessage], None],
    ) -> None:
        self._hand_back = partial(hand_back, session, producer, group)
        self._most = max_reconsume_times
        self._tasks = session.tasks
        self._finish = finish
        self._levels: tuple[int, ...] = ()
        self._pending: dict[ProcessQueue, int] = {}

    def with_levels(self, levels: tuple[int, ...]) -> Self:
        """Give back with these delay levels, by failures; (): with the broker's."""
        self._levels = levels
        return self

    def has_pending(self, state: ProcessQueue) -> bool:
        """Return True when some messages of a queue are on their way."""
        return state in self._pending

    def begin(self, state: ProcessQueue, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Hand a message back, as often as it takes while its queue is ours."""
        decision = message.decision
        if not delay_level and decision is not None:
            delay_level = DEAD if decision.dead else level_after(decision.after_s)
        if not delay_level and self._levels:
            delay_level = self._levels[min(message.reconsume_times, len(self._levels) - 1)]
        self._pending[state] = self._pending.get(state, 0) + 1
        task = self._tasks.keep("hand-back", partial(self._repeat, state, message, delay_level))
        task.add_done_callback(lambda _: self._count_down(state))

    def _count_down(self, state: ProcessQueue) -> None:
        self._pending[state] -= 1
        if not self._pending[state]:
            del self._pending[state]

    async def _repeat(
        self, state: ProcessQueue, message: ReceivedMessage, delay_level: int, health: Health
    ) -> None:
        while not await self._hand_back(message, self._most, delay_level):
            if state.dropped:
                return
            await asyncio.sleep(5.0)  # neither way back worked: it stays ours, unacknowledged
        self._finish(state, message)


async def resend(
    producer: Producer,
    group: str,
    message: ReceivedMessage,
    failures: int,
    most: int,
    delay_level: int = 0,
) -> bool:
    """Send a failed message to the retry topic; with `failures` >= `most` the broker moves it to the dead-letter topic.

    False when it could not be sent.
    """
    again = Message(retry_topic(group), message.body, flag=message.flag)
    again.properties = {
        **{
            name: value
            for name, value in message.properties.items()
            if name not in (TRAN_MSG, DELAY)
        },
        ORIGIN_MESSAGE_ID: message.properties.get(ORIGIN_MESSAGE_ID, message.message_id),
        RETRY_TOPIC: producer.namespace.wrap(message.topic),
        RECONSUME_TIME: str(failures),
        MAX_RECONSUME_TIMES: str(most),
    }
    again.delay_level = min(delay_level or 3 + message.reconsume_times, producer.max_delay_level)
    try:
        await producer.send(again)
        return True
    except (ClientError, StoreError) as error:
        log.warning("message could not be given back id=%s error=%s", message.message_id, error)
        return False
