"""Sends that wait a moment for others to their topic, and go with them as one batch."""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from roquette.base.lifecycle import Tasks
from roquette.client.preparation import Entry, Preparation, weight
from roquette.client.send_request import SendReceipt, SendRequest
from roquette.errors import ClientClosed, ClientError
from roquette.message.batch import encode_batch
from roquette.message.message import Message

Waiting = tuple[Message, Entry, str, "asyncio.Future[SendReceipt]"]
"""A message, checked, with its id, and the future that its sender has."""

SendAll = Callable[[Message, SendRequest], Awaitable[list[SendReceipt]]]
"""Sends the first message's batch."""


@dataclass(slots=True)
class _Batch:
    """Messages to one topic that wait; `timer` sends them."""

    timer: asyncio.TimerHandle
    size: int = 0
    waiting: list[Waiting] = field(default_factory=list)


class Linger:
    """The batches of one producer that fill up. One goes after `seconds`, or before it is too large for one request.

    Attributes:
        fits: returns True when a message may wait for others.
    """

    def __init__(
        self, seconds: float, preparation: Preparation, tasks: Tasks, send: SendAll
    ) -> None:
        self._seconds = seconds
        self._preparation = preparation
        self._tasks = tasks
        self._send = send
        self.fits = preparation.fits
        self._filling: dict[str, _Batch] = {}

    def add(self, message: Message) -> "asyncio.Future[SendReceipt]":
        """Let it wait for others; the future gets what becomes of it. Raises MessageIllegal, or TypeError."""
        (entry,), (message_id,) = self._preparation.entries([message])
        topic, loop = message.topic, asyncio.get_running_loop()
        result: asyncio.Future[SendReceipt] = loop.create_future()
        batch = self._filling.get(topic)
        if batch is not None and batch.size + weight(entry) > self._preparation.batch_bytes:
            self._flush_topic(topic)
            batch = None
        if batch is None:
            batch = _Batch(loop.call_later(self._seconds, self._flush_topic, topic))
            self._filling[topic] = batch
        batch.size += weight(entry)
        batch.waiting.append((message, entry, message_id, result))
        return result

    def flush(self) -> None:
        """Send all that wait, now."""
        for topic in list(self._filling):
            self._flush_topic(topic)

    def _flush_topic(self, topic: str) -> None:
        batch = self._filling.pop(topic)
        batch.timer.cancel()
        if waiting := [each for each in batch.waiting if not each[3].done()]:
            task = self._tasks.start("send", self._send_batch(waiting))
            task.add_done_callback(partial(self._ended, waiting))

    async def _send_batch(self, waiting: list[Waiting]) -> list[SendReceipt] | ClientError:
        first = waiting[0][0]
        try:
            if len(waiting) == 1:
                return await self._send(first, self._preparation.request(first))
            body = encode_batch([entry for _, entry, _, _ in waiting])
            ids = [message_id for _, _, message_id, _ in waiting]
            return await self._send(first, self._preparation.batch(first.topic, body, ids))
        except ClientError as error:
            return error

    def _ended(
        self, waiting: list[Waiting], task: "asyncio.Task[list[SendReceipt] | ClientError]"
    ) -> None:
        outcome: list[SendReceipt] | BaseException | None
        outcome = ClientClosed("the client was closed") if task.cancelled() else task.exception()
        outcome = outcome or task.result()
        for place, (_, _, _, result) in enumerate(waiting):
            if result.done():
                continue  # its sender gave up
            if isinstance(outcome, list):
                result.set_result(outcome[place])
                continue
            result.set_exception(copy.copy(outcome))  # each is raised by itself
            if isinstance(outcome, ClientClosed):
                result.exception()  # seen, although no caller may look any more
