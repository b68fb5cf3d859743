"""Telling the brokers of a name that their smallest id has changed (RouteInfoManager.notifyMinBrokerIdChanged)."""

from typing import Final

from roquette.nameserver.route_table import RouteTable
from roquette.wire.headers import NotifyMinBrokerIdChangeRequestHeader

Notice = tuple[list[str], NotifyMinBrokerIdChangeRequestHeader]
NOBODY: Final[dict[int, str]] = {}


class MemberNotices:
    """What is to be told to whom, of the groups with enableActingMaster. Pure."""

    def __init__(self, routes: RouteTable) -> None:
        self._routes = routes
        self._members: dict[str, dict[int, str]] = {}  # as they were when they were told
        self._changed: dict[str, None] = {}

    def changed(self, broker_name: str) -> bool:
        """The members are others; True when there is something to `take` now and was not before."""
        first = not self._changed
        self._changed[broker_name] = None
        return first

    def take(self) -> list[Notice]:
        """What has changed since the last call: addresses, and what they are told."""
        changed, self._changed = self._changed, {}
        found = [self._notice(name) for name in changed]
        return [notice for notice in found if notice is not None]

    def _notice(self, name: str) -> Notice | None:
        before, now = self._members.pop(name, NOBODY), self._routes.find_members(name)
        broker = self._routes.find_broker(name)
        if broker is None or not now or not broker.enable_acting_master:
            return None
        self._members[name] = now
        least = min(now)
        if not before or least == min(before):
            return None
        gone = before[min(before)] if min(before) not in now else None
        live = self._routes.live.find(broker.cluster, now[least])
        told = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=least,
            broker_name=name,
            min_broker_addr=now[least],
            offline_broker_addr=gone,
            ha_broker_addr=None if live is None else live.ha_address,
        )
        others = [a for i, a in now.items() if i != least or gone is not None or len(now) == 1]
        return others, told
