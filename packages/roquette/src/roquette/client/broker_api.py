"""Calls and operations on the event loop."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from roquette.client.calls import Call
from roquette.client.operations import AHEAD, ANY_NAME_SERVER, Answer, Ask, Operation
from roquette.errors import ClientError
from roquette.remoting.client import RemotingClient

T = TypeVar("T")


class BrokerApi:
    """Runs calls by address. Methods raise ClientError; a refusal is a BrokerError with its code."""

    def __init__(self, remoting: RemotingClient, timeout_ms: int) -> None:
        self._remoting = remoting
        self._timeout_ms = timeout_ms

    async def call(self, address: str, call: Call[T], *, timeout_ms: int | None = None) -> T:
        """Send a request to a server and return what its answer says."""
        answer = await self._remoting.invoke(
            address, call.code, call.ext, call.body, timeout_ms=timeout_ms or self._timeout_ms
        )
        return call.result(answer, address)


class OperationRun:
    """Drives one operation: servers side by side, `AHEAD` requests at each."""

    def __init__(
        self, api: BrokerApi, ask_name_servers: Callable[[Call[Any]], Awaitable[Any]]
    ) -> None:
        self._api = api
        self._ask_name_servers = ask_name_servers
        self._turns: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(AHEAD))
        self._silent: dict[str, ClientError] = {}

    async def result(self, operation: Operation[T]) -> T:
        """Run the operation and return its result, or raise what it raises."""
        try:
            asks = next(operation)
            while True:
                answers = await asyncio.gather(*[self._answer(ask) for ask in asks])
                asks = operation.send(answers)
        except StopIteration as end:
            found: T = end.value
            return found

    async def _answer(self, ask: Ask) -> Answer[Any]:
        address = ask.address
        async with self._turns[address]:
            if address in self._silent:
                return Answer(address, error=self._silent[address])
            try:
                if address == ANY_NAME_SERVER:
                    return Answer(address, await self._ask_name_servers(ask.call))
                return Answer(address, await self._api.call(address, ask.call))
            except ClientError as error:
                if ask.is_silence(error):
                    self._silent[address] = error
                return Answer(address, error=error)
