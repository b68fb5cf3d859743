"""Counts of what groups have read lately of the log's cold part, and how much each may read. Pure.

Apache: ColdDataCgCtrService, AccAndTimeStamp, SimpleColdCtrStrategy, PIDAdaptiveColdCtrStrategy. Thresholds are kept in
memory only, as there.
"""

from typing import Final, Protocol

from roquette.base.bounds import Bound
from roquette.base.clock import Clock
from roquette.message.names import (
    CLIENT_INNER_PRODUCER_GROUP,
    DEFAULT_PRODUCER_GROUP,
    PREDEFINED_GROUPS,
    SELF_TEST_PRODUCER_GROUP,
    is_system_group,
)
from roquette.wire.codes import ResponseCode

KEPT_MS: Final = 60_000  # a group that has not read cold messages for so long is forgotten
ADAPTIVE: Final = "||adaptive"  # ends the names of thresholds that the broker itself sets
FASTER, SLOWER = 1.5, 0.8
SLOWED_AT_ONCE: Final = 3
HISTORY: Final = 10
WEIGHTS: Final = (0.5, 0.3, 0.2)  # of the last error, of the sum of all, of the last change
EXPECTED_SHARE: Final = 0.8  # of globalColdReadThreshold
UNLIMITED: Final = PREDEFINED_GROUPS - {
    DEFAULT_PRODUCER_GROUP,
    CLIENT_INNER_PRODUCER_GROUP,
    SELF_TEST_PRODUCER_GROUP,
}


class ColdReadSettings(Protocol):
    """The settings of BrokerConfig that act here."""

    @property
    def cg_cold_read_threshold(self) -> int:
        """Bytes a group may read in one interval."""
        ...

    @property
    def global_cold_read_threshold(self) -> int:
        """Bytes all groups together may read in one interval."""
        ...

    @property
    def cold_ctr_strategy_enable(self) -> bool:
        """Thresholds of groups nobody set one for follow what is read."""
        ...

    @property
    def use_pid_cold_ctr_strategy(self) -> bool:
        """By a controller with memory, instead of each time."""
        ...


class ColdReader:
    """One group that reads cold messages.

    Attributes:
        read: bytes in this interval.
        created_ms, last_ms: wall times of its first and last cold read.
        last_steady_ms: steady time of the last one.
    """

    __slots__ = ("created_ms", "last_ms", "last_steady_ms", "read")

    def __init__(self, now_ms: int) -> None:
        self.read = 0
        self.created_ms = now_ms
        self.last_ms = now_ms
        self.last_steady_ms = 0


class ColdReads:
    """Bytes by group within the current interval, which `end_interval` ends.

    Attributes:
        readers: groups (of the table of groups, as only they may read) that have read cold messages within KEPT_MS.
        thresholds: bytes a group may read in one interval, where it is not cgColdReadThreshold.
        total: bytes that all groups have read.
    """

    def __init__(self, clock: Clock, bound: Bound) -> None:
        self._clock = clock
        self._bound = bound
        self._errors: list[int] = []
        self.readers: dict[str, ColdReader] = {}
        self.thresholds: dict[str, int] = {}
        self.total = 0

    def count(self, group: str, size: int) -> None:
        """A group has read `size` bytes of cold messages."""
        if group in UNLIMITED or is_system_group(group):
            return
        now_ms = self._clock.now_ms()
        self.total += size
        reader = self.readers.get(group)
        if reader is None:
            reader = self.readers[group] = ColdReader(now_ms)
        reader.read += size
        reader.last_ms, reader.last_steady_ms = now_ms, self._clock.steady_ms()

    def exceeds(self, group: str, settings: ColdReadSettings) -> bool:
        """Return True when a group that reads cold messages has to wait for the next interval."""
        reader = self.readers.get(group)
        if reader is None:
            return False
        if reader.read >= self.threshold(group, settings):
            return True
        return self.total >= settings.global_cold_read_threshold

    def threshold(self, group: str, settings: ColdReadSettings) -> int:
        """Bytes a group may read in one interval: an operator's word, the broker's own, or the common one."""
        usual = settings.cg_cold_read_threshold
        if group in self.thresholds or not settings.cold_ctr_strategy_enable:
            return self.thresholds.get(group, usual)
        return self.thresholds.get(group + ADAPTIVE, usual)

    def set_threshold(self, group: str, size: int) -> None:
        """An operator's word. Raises Refused: there is no room for one more."""
        if group not in self.thresholds:
            count, code = len(self.thresholds), ResponseCode.SYSTEM_ERROR
            self._bound.check(count, code, f"no threshold is set for {group}")
        self.thresholds[group] = size

    def remove_threshold(self, group: str) -> None:
        """Back to the common one; nothing happens without."""
        self.thresholds.pop(group, None)

    def end_interval(self, settings: ColdReadSettings) -> None:
        """Begin to count anew, forget who has stopped, and let the broker's own thresholds follow."""
        adapts = settings.cold_ctr_strategy_enable
        if adapts:
            self._note_error(settings)
        elif any(name.endswith(ADAPTIVE) for name in self.thresholds):
            kept = self.thresholds.items()
            self.thresholds = {name: size for name, size in kept if not name.endswith(ADAPTIVE)}
        steady_ms = self._clock.steady_ms()
        for group, reader in list(self.readers.items()):
            if steady_ms >= reader.last_steady_ms + KEPT_MS:
                del self.readers[group]
                if adapts:
                    self.remove_threshold(group + ADAPTIVE)
            elif adapts and group not in self.thresholds:
                self._raise(group, reader, settings)
            reader.read = 0
        if adapts:
            self._lower(settings)
        self.total = 0

    def shown(self, settings: ColdReadSettings) -> dict[str, object]:
        """The answer of GET_COLD_DATA_FLOW_CTR_INFO."""
        runtime = {
            group: {
                "coldAcc": reader.read,
                "createTimeMills": reader.created_ms,
                "lastColdReadTimeMills": reader.last_ms,
            }
            for group, reader in self.readers.items()
        }
        return {
            "runtimeTable": runtime,
            "configTable": self.thresholds,
            "cgColdReadThreshold": settings.cg_cold_read_threshold,
            "globalColdReadThreshold": settings.global_cold_read_threshold,
            "globalAcc": self.total,
        }

    # The broker's own thresholds

    def _note_error(self, settings: ColdReadSettings) -> None:
        expected = int(settings.global_cold_read_threshold * EXPECTED_SHARE)
        self._errors = [*self._errors, expected - self.total][-HISTORY:]

    def _factor(self) -> float:
        """Above 0: more may be read, below: less."""
        errors = self._errors
        if len(errors) < HISTORY:
            return 0.0
        now, whole, change = WEIGHTS
        return now * errors[-1] + whole * sum(errors) + change * (errors[-1] - errors[-2])

    def _raise(self, group: str, reader: ColdReader, settings: ColdReadSettings) -> None:
        size = self.threshold(group, settings)
        if reader.read < size or self.total > settings.global_cold_read_threshold:
            return
        if not settings.use_pid_cold_ctr_strategy or self._factor() > 0:
            self.thresholds[group + ADAPTIVE] = int(size * FASTER)

    def _lower(self, settings: ColdReadSettings) -> None:
        """The largest ones of the broker's own, never below the common one."""
        if settings.use_pid_cold_ctr_strategy:
            wanted = self._factor() < 0
        else:
            wanted = self.total > settings.global_cold_read_threshold
        if not wanted:
            return
        own = [
            (size, name)
            for name, size in self.thresholds.items()
            if name.endswith(ADAPTIVE) and name.removesuffix(ADAPTIVE) not in self.thresholds
        ]
        for size, name in sorted(own, reverse=True)[:SLOWED_AT_ONCE]:
            self.thresholds[name] = max(int(size * SLOWER), settings.cg_cold_read_threshold)
