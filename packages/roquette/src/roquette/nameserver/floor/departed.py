"""Which brokers have left within a day and did not come back, and which are refused. Pure: time is an argument."""

from typing import Final

import msgspec

from roquette.nameserver.floor.bounds import LEFT_BROKERS
from roquette.nameserver.floor.identity import BrokerIdentity, BrokerKey
from roquette.wire.bodies import REFUSED, BrokerLeft

KEPT_MS: Final = 86_400_000
REFUSED_MS: Final = 60_000
"""One that is refused says so again every two seconds."""


class Departed:
    """What a name server remembers of brokers it does not have: the newest, LEFT_BROKERS at most, each text with NAME
    characters at most."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], tuple[int, BrokerLeft]] = {}  # oldest first

    def note(self, who: BrokerIdentity, why: str, now_ms: int, peer: str = "") -> None:
        """A broker has left; with `peer`, the host it calls from, it is refused."""
        self.forget(who.key, peer)
        left = BrokerLeft(who.cluster, who.broker_name, who.broker_id, who.address, why, 0, peer)
        self._found[*who.key, peer] = now_ms, left
        if len(self._found) > LEFT_BROKERS:
            del self._found[next(iter(self._found))]

    def came(self, who: BrokerIdentity, elects: bool) -> None:
        """A broker registers: it, or the one in whose place it comes, is there. `elects`: the members of its group take
        each other's ids."""
        for key, (_, left) in list(self._found.items()):
            same = (left.cluster, left.broker_name, left.broker_id) == who.place
            if key[:2] == who.key or (same and not elects and not left.peer):
                del self._found[key]

    def forget(self, key: BrokerKey, peer: str = "") -> None:
        """It is not expected any more."""
        self._found.pop((*key, peer), None)

    def all(self, now_ms: int) -> list[BrokerLeft]:
        """Those of the last day, and who was refused a moment ago."""
        return [
            msgspec.structs.replace(left, ago_ms=now_ms - at_ms)
            for at_ms, left in self._found.values()
            if now_ms - at_ms <= (REFUSED_MS if left.why == REFUSED else KEPT_MS)
        ]
