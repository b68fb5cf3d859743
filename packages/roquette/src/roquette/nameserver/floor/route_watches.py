"""Which connections want to hear of which topics at once, and what has changed since they were told. Pure."""

from collections.abc import Callable, Mapping

from roquette.errors import Refused
from roquette.nameserver.floor.bounds import NAME, WATCHED_TOPICS, NameServerBounds
from roquette.wire.codes import ResponseCode


class RouteWatches:
    """Topics by the connections that asked for them. Nobody needs it: routes are pulled all the same.

    Attributes:
        wake: called when there is something to `take`.
    """

    def __init__(self, bounds: NameServerBounds) -> None:
        self.wake: Callable[[], None] = _nothing
        self._bound = bounds.watches
        self._watchers: dict[str, dict[int, None]] = {}
        self._topics: dict[int, dict[str, None]] = {}  # by connection
        self._count = 0
        self._changed: dict[str, None] = {}

    def __len__(self) -> int:
        return self._count

    def watch(self, connection: int, topics: list[str]) -> None:
        """Tell this connection of these topics, instead of those it asked for before; raises Refused."""
        if len(topics) > WATCHED_TOPICS or any(len(topic) > NAME for topic in topics):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"one client watches {WATCHED_TOPICS} topics at most, of {NAME} characters",
            )
        wanted = dict.fromkeys(topics)
        had = len(self._topics.get(connection, ()))
        if len(wanted) > had:
            used = self._count - had + len(wanted) - 1
            self._bound.check(used, ResponseCode.SYSTEM_ERROR, "routes are not watched")
        self.forget(connection)
        if wanted:
            self._topics[connection] = wanted
            self._count += len(wanted)
        for topic in wanted:
            self._watchers.setdefault(topic, {})[connection] = None

    def forget(self, connection: int) -> None:
        """The connection has ended."""
        topics = self._topics.pop(connection, {})
        self._count -= len(topics)
        for topic in topics:
            watchers = self._watchers[topic]
            del watchers[connection]
            if not watchers:
                del self._watchers[topic]

    def changed(self, topic: str) -> None:
        """The route of a topic is another one."""
        if topic in self._watchers:
            self._add([topic])

    def _add(self, topics: list[str]) -> None:
        first = bool(topics) and not self._changed
        self._changed.update(dict.fromkeys(topics))
        if first:
            self.wake()

    def changed_any(self, topics: Mapping[str, object]) -> None:
        """The routes of many topics are others: a broker has another address."""
        few: Mapping[str, object] = self._watchers
        few, many = (few, topics) if len(few) <= len(topics) else (topics, few)
        self._add([topic for topic in few if topic in many])

    def take(self) -> dict[int, list[str]]:
        """By connection: the topics that have changed since the last call."""
        changed, self._changed = self._changed, {}
        found: dict[int, list[str]] = {}
        for topic in changed:
            for connection in self._watchers.get(topic, ()):
                found.setdefault(connection, []).append(topic)
        return found


def _nothing() -> None:
    return None
