"""Reading one slot of the timer, oldest message first, with memory for one block of it. HOT.

A slot is a chain from its newest unit to its oldest. The first walk goes down the chain, remembers where
every block begins and collects the recalls; then blocks are read from the oldest to the newest. So a slot of
ten million messages costs a few thousand numbers.
"""

from typing import Final

from roquette.store.timer_log import TimerLog, TimerUnit

BLOCK: Final = 4096  # units held at once
MAX_RECALLS: Final = 100_000  # of one slot; further ones have no effect


class DueSlot:
    """The units of one slot whose time has come. Its chain does not change any more."""

    __slots__ = ("_counted", "_cursor", "_first", "_heads", "_log", "recalls", "slot_ms")

    def __init__(self, log: TimerLog, slot_ms: int, first: int, last: int) -> None:
        """`first`: units before it are delivered already; they count for recalls only."""
        self._log: TimerLog = log
        self._first: int = first
        self._cursor: int = last
        self._heads: list[int] = []
        self._counted: int = 0
        self.slot_ms: int = slot_ms
        self.recalls: list[TimerUnit] = []

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
