"""Acknowledgements of popped messages: those that come while a request is under way go together in the next."""

import asyncio
from collections import deque
from typing import Final, TypeVar

from roquette.client import pop_requests
from roquette.client.calls import Call
from roquette.client.pop_requests import Receipt
from roquette.client.session import Session
from roquette.errors import BrokerError, ClientError
from roquette.message.message import MessageQueue
from roquette.wire.codes import ResponseCode

T = TypeVar("T")

MOST: Final = 256  # of one request
AGAIN_S: Final = 0.5  # between two tries of what may be said twice


class PopBroker:
    """Asks brokers what may be asked twice, until a popped message's time is over."""

    def __init__(self, session: Session, topic: str) -> None:
        self.session = session
        self._topic = topic

    async def ask(self, name: str, call: Call[T], over_s: float) -> T:
        """The answer of a broker's master. Raises ClientError: refused, or no answer in as many tries as a send has."""
        session = self.session
        loop = asyncio.get_running_loop()
        tries = 0
        while True:
            route = session.known_route(self._topic)
            try:
                address = session.master_of(MessageQueue(self._topic, name, -1))
                return await session.api.call(address, call)
            except ClientError as error:
                tries += 1
                enough = tries >= session.config.send_attempts or loop.time() + AGAIN_S >= over_s
                if not error.retriable or enough:
                    raise
            await session.masters.moved(route, self._topic, name, AGAIN_S)


class _Ack:
    __slots__ = ("answer", "over_s", "receipt")

    def __init__(self, receipt: Receipt, over_s: float, answer: "asyncio.Future[None]") -> None:
        self.receipt = receipt
        self.over_s = over_s
        self.answer = answer


class Acks:
    """Of one group and topic."""

    def __init__(self, broker: PopBroker, group: str, topic: str) -> None:
        self._broker = broker
        self._group = group
        self._topic = topic
        self._waiting: dict[str, deque[_Ack]] = {}
        self._singly: set[str] = set()  # brokers that do not know batches

    async def ack(self, receipt: Receipt, over_s: float) -> None:
        """Acknowledge a message. Raises ClientError."""
        name = receipt.broker_name
        if not receipt.batched or name in self._singly:
            await self._one(receipt, over_s)
            return
        ack = _Ack(receipt, over_s, asyncio.get_running_loop().create_future())
        line = self._waiting.get(name)
        if line is None:
            line = self._waiting[name] = deque()
            self._broker.session.tasks.start("pop-acks", self._send(name, line))
        line.append(ack)
        await ack.answer

    async def _one(self, receipt: Receipt, over_s: float) -> None:
        call = pop_requests.ack(self._group, self._topic, receipt)
        await self._broker.ask(receipt.broker_name, call, over_s)

    async def _send(self, name: str, line: deque[_Ack]) -> None:
        acks: list[_Ack] = []
        try:
            while line:
                acks = [line.popleft() for _ in range(min(MOST, len(line)))]
                await self._batch(name, acks)
        finally:
            del self._waiting[name]
            for ack in (*acks, *line):  # the client was closed
                if not ack.answer.done():
                    ack.answer.cancel()

    async def _batch(self, name: str, acks: list[_Ack]) -> None:
        if len(acks) > 1 and name not in self._singly:
            receipts = [ack.receipt for ack in acks]
            call = pop_requests.batch_ack(self._group, self._topic, receipts)
            try:
                await self._broker.ask(name, call, min(ack.over_s for ack in acks))
            except BrokerError as error:  # one by one, each with its own answer
                if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    self._singly.add(name)
            except ClientError as error:
                _fail(acks, error)
                return
            else:
                for ack in acks:
                    if not ack.answer.done():
                        ack.answer.set_result(None)
                return
        await asyncio.gather(*[self._answer(ack) for ack in acks])

    async def _answer(self, ack: _Ack) -> None:
        try:
            await self._one(ack.receipt, ack.over_s)
        except ClientError as error:
            _fail([ack], error)
        else:
            if not ack.answer.done():
                ack.answer.set_result(None)


def _fail(acks: list[_Ack], error: ClientError) -> None:
    for ack in acks:
        if not ack.answer.done():
            ack.answer.set_exception(error)
