"""Which files may go, and when the disk is too full to write. Pure decisions.

Apache: DefaultMessageStore.CleanCommitLogService. Beyond it: limits in bytes, and no deletion for a jump of the clock.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from roquette.store.format.config import StoreConfig

HOUR_MS: Final = 3_600_000
CLOCK_TOLERANCE_MS: Final = HOUR_MS  # the clock may be set by so much and is believed at once


class Urgency(Enum):
    """Why files are deleted now."""

    TIME = "deleteWhen hour"
    SIZE = "the log is larger than fileReservedBytes"
    SPACE = "disk fuller than diskMaxUsedSpaceRatio"
    MANUAL = "asked for by an operator"
    FORCED = "disk fuller than diskSpaceCleanForciblyRatio"


@dataclass(frozen=True, slots=True)
class DiskState:
    """How full a disk is."""

    directory: str
    total: int
    free: int

    @property
    def used_percent(self) -> float:
        """0 to 100; 0 when the disk's size is unknown."""
        return 100.0 * (self.total - self.free) / self.total if self.total > 0 else 0.0

    def room(self, config: StoreConfig) -> float:
        """Bytes until messages are refused; negative: they are. Above the ratio, and, where there is one, below the limit in
        bytes."""
        to_ratio = self.total * config.warning_percent / 100 - (self.total - self.free)
        if not config.disk_full_free:
            return to_ratio
        return max(to_ratio, self.free - max(config.disk_full_free, config.reserve_bytes))

    def is_full(self, config: StoreConfig) -> bool:
        """Are messages refused?"""
        return self.room(config) < 0

    def is_cleaned_forcibly(self, config: StoreConfig) -> bool:
        """May unexpired files go?"""
        return (
            config.clean_forcibly_enable
            and self.used_percent > min(config.forcibly_percent, config.warning_percent)
            and _is_short(self.free, config.disk_clean_forcibly_free)
        )

    def is_exhausted(self, config: StoreConfig) -> bool:
        """Is so little left that nothing more may be appended, acknowledgements included?"""
        return self.used_percent > config.warning_percent and self.free < config.reserve_bytes


@dataclass(frozen=True, slots=True)
class LogState:
    """What the log could give up.

    Attributes:
        count: its files; the newest is in use and stays.
        expires_ms: when the oldest one but the newest expires; 0 when that is not known, or there is none.
    """

    count: int
    expires_ms: int = 0


def _is_short(free: int, limit: int) -> bool:
    return limit == 0 or free < limit


def refusal(
    config: StoreConfig, disks: Sequence[DiskState], log: LogState, now_ms: int
) -> str | None:
    """Why messages are refused, in words: where, how full, by which limit, what gives space; None: they are not."""
    for disk in disks:
        if not disk.is_full(config):
            continue
        limit = f"above {config.warning_percent} % (diskSpaceWarningLevelRatio)"
        if config.disk_full_free:
            limit += f" with less than {config.disk_full_free >> 20} MiB free (diskFullFreeBytes)"
        return (
            f"the disk of {disk.directory} is {disk.used_percent:.1f} % full "
            f"({disk.free >> 20} of {disk.total >> 20} MiB free); messages are refused {limit}. "
            f"{_what_goes(config, disk, log, now_ms)} To send again: free space on that disk, "
            f"lower fileReservedTime (now {config.file_reserved_hours} hours) or set fileReservedBytes"
            + (", or lower diskFullFreeBytes" if config.disk_full_free else "")
        )
    return None


def _what_goes(config: StoreConfig, disk: DiskState, log: LogState, now_ms: int) -> str:
    every = f"every {config.clean_interval_ms / 1000:g} s"
    if log.count <= 1:
        return "The commit log is one file, which is in use: there is nothing to delete."
    if disk.is_cleaned_forcibly(config):
        return f"The oldest of {log.count} commit log files are deleted {every}, expired or not."
    if 0 < log.expires_ms <= now_ms:
        return f"The expired ones of {log.count} commit log files are deleted {every}."
    if log.expires_ms == 0:
        return f"None of {log.count} commit log files is deleted before it expires."
    when = datetime.datetime.fromtimestamp(log.expires_ms / 1000)
    return f"The oldest of {log.count} commit log files expires at {when:%Y-%m-%d %H:%M:%S}."


def clamped_keys(config: StoreConfig) -> list[str]:
    """A sentence for each ratio that acts otherwise than it was set."""
    told = []
    for key, value, acts, low, high in (
        ("diskMaxUsedSpaceRatio", config.disk_max_used_ratio, config.max_used_percent, 10, 95),
        (
            "diskSpaceCleanForciblyRatio",
            config.disk_clean_forcibly_ratio,
            config.forcibly_percent,
            30,
            85,
        ),
        ("diskSpaceWarningLevelRatio", config.disk_warning_ratio, config.warning_percent, 35, 90),
    ):
        if value != acts:
            told.append(
                f"{key}={value} acts as {acts}: it is held between {low} and {high}, as by Apache's broker; "
                "to use more of a large disk set diskFullFreeBytes and diskCleanForciblyFreeBytes"
            )
    return told


def urgency(config: StoreConfig, now_ms: int, disks: Sequence[DiskState]) -> Urgency | None:
    """Is it time to delete by age? (isTimeToDelete, isSpaceToDelete)"""
    if any(disk.is_cleaned_forcibly(config) for disk in disks):
        return Urgency.FORCED
    if any(disk.used_percent > config.max_used_percent for disk in disks):
        return Urgency.SPACE
    hour = f"{datetime.datetime.fromtimestamp(now_ms / 1000):%H}"
    if hour in (part.strip().zfill(2) for part in config.delete_when.split(";")):
        return Urgency.TIME
    return None


def count_expired(
    config: StoreConfig, now_ms: int, why: Urgency | None, ended_ms: Sequence[int]
) -> int:
    """How many of the oldest files to delete now.

    Args:
        ended_ms: store time at which each file but the newest was full, oldest first. (Apache asks
            the file system for the last write: the same moment, but not proof against a copy.)
    """
    if why is None:
        return 0
    kept_ms = config.file_reserved_hours * HOUR_MS
    count = 0
    for ended in ended_ms[: config.delete_batch]:
        if why is not Urgency.FORCED and now_ms < ended + kept_ms:
            break
        count += 1
    return count


def count_oversize(config: StoreConfig, file_count: int, file_size: int, deletable: int) -> int:
    """How many of the oldest files are too many for fileReservedBytes, `deletable` at most."""
    if config.file_reserved_bytes <= 0:
        return 0
    excess = file_count * file_size - config.file_reserved_bytes
    return min(max(0, -(-excess // file_size)), deletable, config.delete_batch)


def proven_ends(ended_ms: Sequence[int], newest_ms: int, kept_ms: int) -> list[int]:
    """When files ended, as far as the log's own times prove it.

    A file did not end later than the one after it. And time without a single message is no proof of age beyond
    `kept_ms`: it may be a clock that was set forward, so it does not count. What really lay idle for so long stays
    `kept_ms` longer; what a jump of ten years made look old stays, too.
    """
    proven = list(ended_ms)
    later, idle = newest_ms, 0
    for place in range(len(proven) - 1, -1, -1):
        ended = min(proven[place], later)
        if later - ended > kept_ms:
            idle += later - ended
        proven[place] = ended + idle
        later = ended
    return proven


class SteadyTime:
    """The time by which files expire: the clock's, but a jump forward counts only when it has stood long enough.

    By then every file from before the jump is old by any clock. Backward jumps count at once: they delete later.
    """

    def __init__(self) -> None:
        self._offset: int | None = None  # the clock's time less the time elapsed, as believed
        self._claimed = 0
        self._since_ms: int | None = None

    @property
    def doubts(self) -> bool:
        """Is there a jump that is not believed yet?"""
        return self._since_ms is not None

    def at(self, now_ms: int, elapsed_ms: int, newest_ms: int, kept_ms: int) -> int:
        """The time to expire files by.

        Args:
            now_ms: the clock.
            elapsed_ms: monotonic time, ms since any fixed moment of this process.
            newest_ms: store time of the newest record, 0 when there is none.
            kept_ms: how long a new time must stand, and how long a broker may have lain idle before its start.
        """
        offset = now_ms - elapsed_ms
        if self._offset is None:
            known = newest_ms <= 0 or now_ms - newest_ms <= kept_ms
            self._offset = offset if known else newest_ms - elapsed_ms
        if offset <= self._offset + CLOCK_TOLERANCE_MS:
            self._offset = offset
            self._since_ms = None
        elif self._since_ms is None or abs(offset - self._claimed) > CLOCK_TOLERANCE_MS:
            self._claimed = offset
            self._since_ms = elapsed_ms
        if self._since_ms is not None and elapsed_ms - self._since_ms >= kept_ms:
            self._offset = offset
            self._since_ms = None
        return self._offset + elapsed_ms
