"""Check-points whose messages are out: what is acknowledged of them, and which are due. Pure, bounded by its user.

Apache keeps such a table twice (PopBufferMergeService, PopReviveService); here there is one per revive queue, filled
from the revive log only, so that what it holds is always on record: docs/decisions/0012-pop-state-from-the-log.md.
"""

import heapq
from collections import deque

from roquette.broker.pop.checkpoint import Ack, CheckPoint

_SLACK = 1_000  # entries of finished check-points that the orders may keep besides twice the table's size


class InFlightTable:
    """The unfinished check-points of one revive queue."""

    __slots__ = ("_by_key", "_due", "_order", "_places", "_points")

    def __init__(self) -> None:
        self._points: dict[int, CheckPoint] = {}  # by revive offset, ascending
        self._places: dict[int, int] = {}  # revive offset -> physical offset
        self._by_key: dict[tuple[str | None, str | None, int, int, int], CheckPoint] = {}
        self._order: deque[int] = deque()
        self._due: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._points)

    def add(
        self, point: CheckPoint, revive_offset: int, place: int = 0, popped_ms: int | None = None
    ) -> None:
        """Take in a check-point at the physical offset `place`; revive offsets only grow.

        `popped_ms`: the time of its pop by the clock that `due` is asked by; its own by default.

        Of two with one key the first gets the acknowledgements: the other's messages come again, none is lost.
        """
        point.revive_offset = revive_offset
        self._points[revive_offset] = point
        self._places[revive_offset] = place
        self._by_key.setdefault(point.key, point)
        self._order.append(revive_offset)
        popped_ms = point.pop_time if popped_ms is None else popped_ms
        heapq.heappush(self._due, (popped_ms + point.invisible_time, revive_offset))
        if point.done:
            self.remove(point)

    def acknowledge(self, ack: Ack) -> bool:
        """Note an acknowledgement; False when its check-point is not here, or has no such message."""
        point = self._by_key.get(ack.key)
        if point is None:
            return False
        known = False
        for offset in ack.acknowledged:
            index = point.index_of(offset)
            if index >= 0:
                point.bit_map |= 1 << index
                known = True
        if point.done:
            self.remove(point)
        return known

    def due(self, now_ms: int) -> CheckPoint | None:
        """The check-point with the oldest end of invisible time, when that is at or before `now_ms`."""
        while self._due and self._due[0][1] not in self._points:
            heapq.heappop(self._due)
        if not self._due or self._due[0][0] > now_ms:
            return None
        return self._points[self._due[0][1]]

    def place_of(self, point: CheckPoint) -> int:
        """The physical offset of a check-point; its messages come before it."""
        return self._places[point.revive_offset]

    def remove(self, point: CheckPoint) -> None:
        """A check-point is finished."""
        del self._points[point.revive_offset]
        del self._places[point.revive_offset]
        if self._by_key.get(point.key) is point:
            del self._by_key[point.key]
        bound = 2 * len(self._points) + _SLACK
        if len(self._order) > bound:
            self._order = deque(self._points)
        if len(self._due) > bound:
            self._due = [entry for entry in self._due if entry[1] in self._points]
            heapq.heapify(self._due)

    def first_offset(self) -> int | None:
        """The revive offset of the oldest unfinished check-point: progress ends before it."""
        while self._order and self._order[0] not in self._points:
            self._order.popleft()
        return self._order[0] if self._order else None

    def points(self) -> list[CheckPoint]:
        """All of them, oldest first."""
        return list(self._points.values())
