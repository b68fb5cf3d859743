"""Which brokers have left within a day and did not come back, and which are refused. Pure: time is an argument."""

from typing import Final

import msgspec

from roquette.nameserver.bounds import LEFT_BROKERS, LEFT_CHARACTERS
from roquette.nameserver.identity import BrokerIdentity
from roquette.wire.bodies import REFUSED, BrokerLeft

KEPT_MS: Final = 86_400_000
REFUSED_MS: Final = 60_000
"""One that is refused says so again every two seconds."""


class Departed:
    """What a name server remembers of brokers it does not have: the newest, as far as the bounds go."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], tuple[int, BrokerLeft]] = {}  # oldest first
        self._characters = 0

    def note(self, who: BrokerIdentity, why: str, now_ms: int, peer: str = "") -> None:
        """A broker has left; with `peer`, the host it calls from, it is refused."""
        key = (*who.key, peer)
        self._drop(key)
        left = BrokerLeft(who.cluster, who.broker_name, who.broker_id, who.address, why, 0, peer)
        self._found[key] = now_ms, left
        self._characters += _size(left)
        while len(self._found) > LEFT_BROKERS or self._characters > LEFT_CHARACTERS:
            self._drop(next(iter(self._found)))

    def came(self, who: BrokerIdentity, elects: bool) -> None:
        """A broker registers: it, or the one in whose place it comes, is there. `elects`: the members of its group take
        each other's ids."""
        for key, (_, left) in list(self._found.items()):
            same = (left.cluster, left.broker_name, left.broker_id) == who.place
            if key[:2] == who.key or (same and not elects and not left.peer):
                self._drop(key)

    def forget(self, who: BrokerIdentity) -> None:
        """An operator says that a broker is not expected any more."""
        self._drop((*who.key, ""))

    def _drop(self, key: tuple[str, str, str]) -> None:
        found = self._found.pop(key, None)
        if found is not None:
            self._characters -= _size(found[1])

    def all(self, now_ms: int) -> list[BrokerLeft]:
        """Those of the last day, and who was refused a moment ago."""
        return [
            msgspec.structs.replace(left, ago_ms=now_ms - at_ms)
            for at_ms, left in self._found.values()
            if now_ms - at_ms <= (REFUSED_MS if left.why == REFUSED else KEPT_MS)
        ]


def _size(left: BrokerLeft) -> int:
    return len(left.cluster) + len(left.broker_name) + len(left.broker_addr) + len(left.peer)
