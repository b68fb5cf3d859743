"""A small order service, with a race: `OrderService.reserve` checks and then acts, and waits between the two.

Two handlers share the stock: orders take articles out of it, returns bring them back. Each is right by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable

from roquette import Client, ReceivedMessage, StartFrom

Pause = Callable[[], Awaitable[None]]


class OrderService:
    """Sells what is in stock.

    Args:
        locked: whether a reservation is one step, as it should be.
        pause: what reading the stock waits for, as for a database.
    """

    def __init__(self, stock: int, *, locked: bool, pause: Pause) -> None:
        self.stock = stock
        self.sold: list[str] = []
        self.refused: list[str] = []
        self._pause = pause
        self._lock = asyncio.Lock() if locked else None

    async def start(self, mq: Client) -> None:
        """Handle orders and express orders."""
        for topic in ("orders", "express"):
            await mq.subscribe(
                topic, group=f"shop-{topic}", handler=self.order, start_from=StartFrom.FIRST
            )

    async def order(self, message: ReceivedMessage) -> None:
        """Sell one article, once for each order."""
        if self._lock is None:
            await self._reserve(message.keys[0])
        else:
            async with self._lock:
                await self._reserve(message.keys[0])

    async def _reserve(self, order: str) -> None:
        if order in self.sold or order in self.refused:
            return  # it came twice
        left = self.stock
        await self._pause()
        if left > 0:
            self.stock = (
                left - 1
            )  # the race: another order may have been here since the look at the stock
            self.sold.append(order)
        else:
            self.refused.append(order)
