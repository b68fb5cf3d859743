"""Wall times that records carry, on the broker's steady time: how old is what was stored, whatever was done to the clock.

Records carry wall time, and delays, checks of half messages and invisible times count from it. While a broker lives
it notes each time that somebody sets the clock, with the end of the log at that moment: so the place of a record
says by which setting of the clock its time was read. docs/decisions/0016-two-times.md.
"""

import logging
from typing import Final

from roquette.base.clock import Clock
from roquette.message.record_layout import StoredRecord
from roquette.store.message_store import MessageStore

log = logging.getLogger("roquette.broker")

STEP_MS: Final = 100
"""Wall and steady time differ by less for other reasons: a clock that is adjusted, a thread that has to wait."""
MAX_STEPS: Final = 1_000


class StoredTimes:
    """The settings of the wall clock in this life of the broker. Pure; bounded.

    Attributes:
        shift: steady minus wall time, by the setting that was noted last.
    """

    def __init__(self, now_ms: int, steady_ms: int, place: int = 0) -> None:
        """`place`: the end of the log. What stands before it was stored by former lives, by this setting at best."""
        # place in the log, steady time, and steady minus wall time, from that place on
        self._steps: list[tuple[int, int, int]] = [(place, steady_ms, steady_ms - now_ms)]
        self.shift = steady_ms - now_ms

    def begin(self, place: int) -> None:
        """The log has been opened: nothing before `place` is of this life."""
        _, steady_ms, shift = self._steps[-1]
        self._steps = [(place, steady_ms, shift)]

    def note(self, now_ms: int, steady_ms: int, place: int) -> None:
        """The clock was set; all that is stored from `place` on carries the new time."""
        self.shift = steady_ms - now_ms
        self._steps.append((place, steady_ms, self.shift))
        if len(self._steps) > MAX_STEPS:
            del self._steps[1]

    def moment(self, stored_ms: int, place: int, steady_ms: int) -> int:
        """The steady time at which the record at `place` got its wall time `stored_ms`, at most now (`steady_ms`).

        Of a former life that is the time as stored, but not after this life's start: nothing waits longer from
        then on than it was to wait. A time that the record's setting of the clock cannot have shown was read just
        before the clock was set, and means that moment. One that is ahead by less than a step means now.
        """
        at = len(self._steps) - 1
        while at >= 0 and self._steps[at][0] > place:
            at -= 1
        if at < 0:
            _, start_ms, shift = self._steps[0]
            return min(stored_ms + shift, start_ms)
        _, first_ms, shift = self._steps[at]
        last_ms = self._steps[at + 1][1] if at + 1 < len(self._steps) else steady_ms
        found = stored_ms + shift
        if last_ms < found <= last_ms + STEP_MS:
            return last_ms
        return found if first_ms <= found <= last_ms else first_ms

    def age_ms(self, record: StoredRecord, steady_ms: int) -> int:
        """Return the age of a record, in ms since it was stored."""
        place = record.physical_offset
        return steady_ms - self.moment(record.store_timestamp_ms, place, steady_ms)


class BrokerClock:
    """The broker's clock: notices when somebody sets the wall clock, before any record carries the new time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._store: MessageStore | None = None
        self.times = StoredTimes(clock.now_ms(), clock.steady_ms())

    def watch(self, store: MessageStore) -> None:
        """The store has been opened: the clock's settings go with places in its log from now on."""
        self._store = store
        self.times.begin(store.max_physical_offset)

    def now_ms(self) -> int:
        """Wall time."""
        now_ms, steady_ms = self._clock.now_ms(), self._clock.steady_ms()
        if not -STEP_MS <= steady_ms - now_ms - self.times.shift <= STEP_MS:
            now_ms, steady_ms = self._clock.now_ms(), self._clock.steady_ms()  # no wait between
            if not -STEP_MS <= steady_ms - now_ms - self.times.shift <= STEP_MS:
                place = 0 if self._store is None else self._store.max_physical_offset
                self.times.note(now_ms, steady_ms, place)
                log.warning("the clock was set: it shows %d, steady time %d", now_ms, steady_ms)
        return now_ms

    def steady_ms(self) -> int:
        """Steady time."""
        return self._clock.steady_ms()

    def lease_ms(self) -> int:
        """Steady time, sleep included."""
        return self._clock.lease_ms()
