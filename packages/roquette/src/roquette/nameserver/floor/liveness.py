"""Which brokers are alive, over which connections, and with which version of their topics. Pure: time is an argument."""

from typing import Final

from roquette.nameserver.floor.identity import BrokerKey, Claim, Registration
from roquette.wire.bodies import DataVersion

DEFAULT_TIMEOUT_MS: Final = 120_000
ALIVE_MS: Final = 75_000  # a broker registers every 10 to 60 s
BEATING_MS: Final = 10_000  # one that also sends heartbeats does so every second


class LiveBroker:
    """One registered broker process."""

    __slots__ = (
        "alive_ms",
        "connection",
        "data_version",
        "ha_address",
        "identity",
        "outside",
        "timeout_ms",
        "updated_ms",
    )

    def __init__(self, said: Registration) -> None:
        self.identity = said.identity
        self.ha_address = said.ha_address
        self.outside = said.outside
        self.timeout_ms = DEFAULT_TIMEOUT_MS if said.timeout_ms is None else said.timeout_ms
        self.alive_ms = min(self.timeout_ms, ALIVE_MS)
        self.data_version = said.data_version
        self.connection = said.connection
        self.updated_ms = said.now_ms

    @property
    def epoch(self) -> int:
        """Of the group's newest master as far as this broker knows; 0: the group elects nobody."""
        return self.data_version.state_version

    def is_elsewhere(self, connection: int, now_ms: int) -> bool:
        """Whether the broker is alive, and not on this connection."""
        return self.connection != connection and now_ms - self.updated_ms <= self.alive_ms


class LiveBrokers:
    """The registered brokers by cluster and address, and by connection."""

    def __init__(self) -> None:
        self._brokers: dict[BrokerKey, LiveBroker] = {}
        self._by_connection: dict[int, dict[BrokerKey, None]] = {}

    def __len__(self) -> int:
        return len(self._brokers)

    def all(self) -> list[LiveBroker]:
        """Every registered broker."""
        return list(self._brokers.values())

    def find(self, cluster: str, address: str) -> LiveBroker | None:
        """A registered broker."""
        return self._brokers.get((cluster, address))

    def add(self, live: LiveBroker) -> bool:
        """Enter a registration instead of the one before; True when there was none."""
        key = live.identity.key
        new = self.remove(key) is None
        self._brokers[key] = live
        self._by_connection.setdefault(live.connection, {})[key] = None
        return new

    def remove(self, key: BrokerKey) -> LiveBroker | None:
        """Forget a registration; returns it."""
        live = self._brokers.pop(key, None)
        if live is not None:
            keys = self._by_connection[live.connection]
            del keys[key]
            if not keys:
                del self._by_connection[live.connection]
        return live

    def of_connection(self, connection: int) -> list[BrokerKey]:
        """The brokers that registered over a connection, and not over a newer one since."""
        return list(self._by_connection.get(connection, ()))

    def overdue(self, now_ms: int) -> list[LiveBroker]:
        """The brokers whose heartbeat is overdue."""
        return [
            live for live in self._brokers.values() if live.updated_ms + live.timeout_ms < now_ms
        ]

    def find_data_version(self, cluster: str, address: str) -> DataVersion | None:
        """The version a broker registered with last; None: it must register."""
        live = self._brokers.get((cluster, address))
        return None if live is None else live.data_version

    def touch(
        self, cluster: str, address: str, *, connection: int, now_ms: int, beats: bool = False
    ) -> bool:
        """Note a sign of life; of a broker that had fallen silent it also binds the registration to its connection.

        Args:
            beats: it is one of those that come every second.

        Returns:
            False when the broker is alive on another connection: the sign is not its own.
        """
        live = self._brokers.get((cluster, address))
        if live is None:
            return True
        if live.is_elsewhere(connection, now_ms):
            return False
        live.updated_ms = now_ms
        if beats:
            live.alive_ms = min(live.timeout_ms, BEATING_MS)
        if connection != live.connection:
            self.remove(live.identity.key)
            live.connection = connection
            self.add(live)
        return True

    def heard(self, connection: int, now_ms: int) -> None:
        """The brokers of a connection live, though what they say now is not taken in."""
        for key in self._by_connection.get(connection, ()):
            self._brokers[key].updated_ms = now_ms

    def rival(
        self, places: list[BrokerKey], connection: int, now_ms: int, claim: Claim | None = None
    ) -> int | None:
        """The connection of the first living broker among `places` that is not on `connection`, and that `claim`
        does not outrank."""
        for key in places:
            live = self._brokers.get(key)
            if live is None or not live.is_elsewhere(connection, now_ms):
                continue
            if claim is None or not claim.outranks(live.identity, live.epoch):
                return live.connection
        return None
