"""Events of a client, told to its application as they happen: connections, routes, shares of queues, full windows."""

import enum
import logging
from collections.abc import Callable
from typing import NamedTuple

from roquette.message.message import MessageQueue

log = logging.getLogger("roquette.client")


class EventKind(enum.StrEnum):
    """Kind of an event."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    ROUTE_CHANGED = "route changed"
    REBALANCED = "rebalanced"
    BLOCKED = "blocked"


class Event(NamedTuple):
    """One event of a client; what does not belong to its kind is empty.

    Attributes:
        address: of the name server or broker of a connection.
        topic: whose route changed, or to which the send is that waits.
        group: whose consumer has other queues now; `queues`: all that it has.
    """

    kind: EventKind
    address: str = ""
    topic: str = ""
    group: str = ""
    queues: tuple[MessageQueue, ...] = ()


Listener = Callable[[Event], object]
"""A plain function, called on the client's loop: it must not block."""


class Events:
    """The listeners of one client, told in order. An error of theirs is logged and harms nothing."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> None:
        """Tell this one, too."""
        self._listeners.append(listener)

    def tell(
        self,
        kind: EventKind,
        address: str = "",
        *,
        topic: str = "",
        group: str = "",
        queues: tuple[MessageQueue, ...] = (),
    ) -> None:
        """It has happened."""
        event = Event(kind, address, topic, group, queues)
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                log.exception("a listener of events failed")
