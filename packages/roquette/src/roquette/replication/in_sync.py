"""A master's account of its slaves: who has how much, who is silent, who lags."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from roquette.replication.effects import TakeOverSettings

MOST: Final = 100


@dataclass(slots=True)
class Slave:
    """State of one slave, as its master knows it.

    Attributes:
        connection: the newest one; reports of others do not count.
        end: what it has reported on it; None: nothing yet.
        heard_ms: its newest report. caught_up_ms: when it last had all that we had. seen_end: our end when it
            reported last.
    """

    connection: object | None = None
    end: int | None = None
    heard_ms: int | None = None
    caught_up_ms: int | None = None
    seen_end: int = 0


class InSync:
    """Slaves by id, those of one mastership; beyond `MOST` a new one does not count."""

    def __init__(self, settings: TakeOverSettings) -> None:
        self._settings = settings
        self._slaves: dict[int, Slave] = {}

    def clear(self) -> None:
        """A mastership begins: what was reported to an earlier one does not count."""
        self._slaves.clear()

    def hello(self, slave_id: int, connection: object) -> None:
        """A slave has shaken hands: older connections of it are dead, and what they reported is void."""
        if slave_id not in self._slaves and len(self._slaves) >= MOST:
            return
        slave = self._slaves.setdefault(slave_id, Slave())
        slave.connection, slave.end = connection, None

    def lost(self, slave_id: int, connection: object | None) -> bool:
        """Its connection is gone (None: whichever it is); False: it was an older one, or none."""
        slave = self._slaves.get(slave_id)
        if slave is None or slave.connection is None or connection not in (None, slave.connection):
            return False
        slave.connection, slave.end = None, None
        return True

    def report(
        self, now_ms: int, slave_id: int, connection: object, end: int, own_end: int
    ) -> bool:
        """It has the log up to `end`. False: the report does not count, being of an older connection, or a claim
        beyond our own end."""
        slave = self._slaves.get(slave_id)
        if slave is None or not self._current(slave, connection) or end > own_end:
            return False
        if end >= own_end:
            slave.caught_up_ms = now_ms
        elif end >= slave.seen_end and slave.heard_ms is not None:
            slave.caught_up_ms = max(slave.heard_ms, slave.caught_up_ms or slave.heard_ms)
        slave.end = max(end, slave.end or 0)
        slave.heard_ms, slave.seen_end = now_ms, own_end
        return True

    def _current(self, slave: Slave, connection: object) -> bool:
        return slave.connection is not None and slave.connection == connection

    def confirmed(self, others: Iterable[int], own_end: int) -> int:
        """Return the offset up to which we and all of `others` have the log; no report counts as nothing."""
        return min([own_end, *(self._end(slave_id) for slave_id in others)])

    def _end(self, slave_id: int) -> int:
        slave = self._slaves.get(slave_id)
        return 0 if slave is None or slave.end is None else slave.end

    def gone(self, now_ms: int, slave_id: int, began_ms: int) -> bool:
        """Has this one of the set been silent, or behind, for too long?"""
        slave = self._slaves.get(slave_id) or Slave()
        heard = began_ms if slave.heard_ms is None else max(began_ms, slave.heard_ms)
        caught = began_ms if slave.caught_up_ms is None else max(began_ms, slave.caught_up_ms)
        return now_ms - heard > self._settings.silent_ms or now_ms - caught > self._settings.lag_ms

    def admit(self, now_ms: int, slave_id: int, floor: int) -> bool:
        """Does it report at present, and has it all up to `floor`? Then its time to catch up with the rest begins."""
        slave = self._slaves.get(slave_id)
        if slave is None or slave.end is None or slave.heard_ms is None:
            return False
        if slave.end < floor or now_ms - slave.heard_ms > self._settings.silent_ms // 2:
            return False
        slave.caught_up_ms = now_ms
        return True
