"""Other brokers of a route, as v5 clients may hear of them: a port that speaks remoting alone is named to none."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from roquette.wire.bodies.route import TopicRouteData

KNOWN_MS: Final = 600_000  # so long a port that speaks is believed to,
UNKNOWN_MS: Final = 10_000  # and one that does not: it may be another server's by then
MOST: Final = 10_000  # addresses that are kept


class Neighbours:
    """What was heard of them.

    Args:
        speaks: asks an address. own: this broker's. now_ms: steady.
    """

    def __init__(
        self, speaks: Callable[[str], Awaitable[bool]], own: str, now_ms: Callable[[], int]
    ) -> None:
        self._speaks = speaks
        self._own = own
        self._now_ms = now_ms
        self._known: dict[str, tuple[bool, int]] = {}  # and until when

    async def ask(self, route: TopicRouteData) -> None:
        """Ask those of a route of whom nothing is known now."""
        now = self._now_ms()
        addresses = {one for data in route.broker_datas for one in data.broker_addrs.values()}
        wanted = [one for one in addresses if self._known.get(one, (False, 0))[1] <= now]
        if len(self._known) + len(wanted) > MOST:
            self._known.clear()
        for address, speaks in zip(wanted, await asyncio.gather(*map(self._ask, wanted))):
            self._known[address] = speaks, now + (KNOWN_MS if speaks else UNKNOWN_MS)

    async def _ask(self, address: str) -> bool:
        return address == self._own or await self._speaks(address)

    def told(self, route: TopicRouteData) -> TopicRouteData:
        """A route without the addresses that do not speak, and without queues where none is left."""
        brokers = [
            msgspec.structs.replace(
                data,
                broker_addrs={
                    number: address
                    for number, address in data.broker_addrs.items()
                    if address == self._own or self._known.get(address, (False, 0))[0]
                },
            )
            for data in route.broker_datas
        ]
        silent = {data.broker_name for data in brokers if not data.broker_addrs}
        queues = [data for data in route.queue_datas if data.broker_name not in silent]
        return TopicRouteData(queue_datas=queues, broker_datas=brokers)
