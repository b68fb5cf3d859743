"""Tickets for replication connections: those speak another protocol than requests, and cannot be signed.

A replica asks for one by a signed request, and says it first on its connection: once, soon, and from where it asked.
"""

import hmac
from typing import Final

LIFE_MS: Final = 30_000
MOST: Final = 1_000


class Tickets:
    """Those that were given and not yet said. Pure; times are steady ms."""

    def __init__(self) -> None:
        self._given: dict[
            str, tuple[str, int]
        ] = {}  # -> address, time it ends; in the order of these

    def give(self, ticket: str, ip: str, now_ms: int) -> str:
        """Note a new ticket for an address; of too many the oldest goes."""
        self._forget(now_ms)
        if len(self._given) >= MOST:
            del self._given[next(iter(self._given))]
        self._given[ticket] = ip, now_ms + LIFE_MS
        return ticket

    def expects(self, ip: str, now_ms: int) -> bool:
        """Return True if somebody at this address has a ticket that counts."""
        self._forget(now_ms)
        return any(holder_ip == ip for holder_ip, _ in self._given.values())

    def take(self, said: str, ip: str, now_ms: int) -> bool:
        """Use up a ticket: True if it counts from this address; it does not a second time."""
        self._forget(now_ms)
        for ticket, (holder_ip, _) in self._given.items():
            if holder_ip == ip and hmac.compare_digest(ticket.encode(), said.encode()):
                del self._given[ticket]
                return True
        return False

    def _forget(self, now_ms: int) -> None:
        while self._given:
            ticket = next(iter(self._given))
            if self._given[ticket][1] > now_ms:
                break
            del self._given[ticket]
