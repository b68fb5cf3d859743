"""Reading one slot of the timer: the one of this moment by the millisecond, or a past one as it was filled. HOT.

A slot is a chain from its newest unit to its oldest. For a past slot the first walk goes down the chain, remembers where
every block begins and collects the recalls; then blocks are read from the oldest to the newest. So a slot of
ten million messages costs a few thousand numbers.
"""

from heapq import heappop, heappush
from typing import Final

from roquette.store.timer.timer_log import TimerLog, TimerUnit

BLOCK: Final = 4096  # units held at once
MAX_RECALLS: Final = 100_000  # of one slot; further ones have no effect


class DueSlot:
    """The units of one slot whose time has come. Its chain does not change any more."""

    __slots__ = (
        "_counted", "_cursor", "_first", "_heads", "_log", "recalled", "recalls", "slot_ms",
    )  # fmt: skip

    def __init__(self, log: TimerLog, slot_ms: int, first: int, last: int) -> None:
        """`first`: units before it are delivered already; they count for recalls only."""
        self._log: TimerLog = log
        self._first: int = first
        self._cursor: int = last
        self._heads: list[int] = []
        self._counted: int = 0
        self.slot_ms: int = slot_ms
        self.recalls: list[TimerUnit] = []  # not read yet
        self.recalled: set[str] = set()  # keys of those that were

    def walk(self, budget: int) -> bool:
        """Go on with the first walk, `budget` units at most; True when it is done."""
        log = self._log
        position = self._cursor
        while position >= 0 and budget > 0:
            unit = log.read(position)
            if unit is None:
                position = -1
                break
            if unit.recalls:
                if len(self.recalls) < MAX_RECALLS:
                    self.recalls.append(unit)
            elif position >= self._first:
                if self._counted % BLOCK == 0:
                    self._heads.append(position)
                self._counted += 1
            position = unit.prev if unit.prev < position else -1
            budget -= 1
        self._cursor = position
        return position < 0

    def next_block(self) -> list[TimerUnit]:
        """The oldest block not read yet, oldest unit first; empty at the end. After the walk."""
        if not self._heads:
            return []
        position = self._heads.pop()
        found: list[TimerUnit] = []
        while position >= self._first and len(found) < BLOCK:
            unit = self._log.read(position)
            if unit is None:
                break
            if not unit.recalls:
                found.append(unit)
            position = unit.prev if unit.prev < position else -1
        found.reverse()
        return found


class CurrentSlot:
    """The slot of this moment: its units are given out when each is due, not when the slot is over.

    What was given out is known here only, and by the copies in the commit log: the slot itself stays as it is
    until all of it is done. So the checkpoint must not pass `log_start` before.
    """

    __slots__ = (
        "_cursor", "_first", "_given", "_heap", "_log", "_seen", "_until", "log_start", "recalled",
        "recalls", "slot_ms",
    )  # fmt: skip

    def __init__(self, log: TimerLog, slot_ms: int, first: int, log_start: int) -> None:
        self._log: TimerLog = log
        self._first: int = first  # units before it are delivered already
        self._given: list[TimerUnit] = []  # taken and not settled
        self._heap: list[tuple[int, int]] = []  # when due, and the unit's position
        self._cursor: int = -1  # where the walk goes on
        self._until: int = -1  # where it ends: units up to here are known
        self._seen: int = -1  # the newest unit known, or being walked from
        self.slot_ms: int = slot_ms
        self.log_start: int = log_start  # the commit log's end when it began
        self.recalls: list[TimerUnit] = []  # not read yet
        self.recalled: set[str] = set()  # keys of those that were

    def walk(self, last: int, end_ms: int, budget: int) -> bool:
        """Take in what has come up to the unit at `last`; True when all of it is known.

        Args:
            end_ms: when the slot is over: units that name no exact time are due then.
        """
        if self._cursor < 0 and last > self._seen:
            self._cursor, self._until, self._seen = last, self._seen, last
        position = self._cursor
        while position > self._until and budget > 0:
            unit = self._log.read(position)
            if unit is None:
                position = -1
                break
            if unit.recalls:
                if len(self.recalls) < MAX_RECALLS:
                    self.recalls.append(unit)
            elif position >= self._first:
                known = not unit.rolls and self.slot_ms < unit.due_ms <= end_ms
                heappush(self._heap, (unit.due_ms if known else end_ms, position))
            position = unit.prev if unit.prev < position else -1
            budget -= 1
        done = position <= self._until
        self._cursor = -1 if done else position
        return done and last <= self._seen

    @property
    def next_ms(self) -> int:
        """When the next known unit is due; 0 when there is none."""
        return self._heap[0][0] if self._heap else 0

    @property
    def empty(self) -> bool:
        """Is nothing left of what is known?"""
        return not self._heap and not self._given

    def take(self, now_ms: int, limit: int) -> list[TimerUnit]:
        """Units that are due, the earliest first; `settle` must follow, or they come again."""
        self.settle(0, now_ms)
        found = self._given
        heap = self._heap
        while heap and len(found) < limit and heap[0][0] <= now_ms:
            unit = self._log.read(heappop(heap)[1])
            if unit is not None:
                found.append(unit)
        return found

    def settle(self, count: int, now_ms: int) -> None:
        """The first `count` of the units taken are dealt with, the others are not."""
        for unit in self._given[count:]:
            heappush(self._heap, (now_ms, unit.position))
        self._given = []
