"""Which files may go, and when the disk is too full to write. Pure decisions."""

import datetime
from dataclasses import dataclass
from enum import Enum

from roquette.store.config import StoreConfig

_HOUR_MS = 3_600_000


class Urgency(Enum):
    """Why files are deleted now."""

    TIME = "deleteWhen hour"
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

    def refusal(self, config: StoreConfig) -> str | None:
        """Why writes are refused, in words; None when they are not."""
        if self.used_percent < config.disk_warning_ratio:
            return None
        return (
            f"the disk of {self.directory} is {self.used_percent:.1f} % full "
            f"({self.free >> 20} of {self.total >> 20} MiB free); writes are refused from "
            f"{config.disk_warning_ratio} % on (diskSpaceWarningLevelRatio). Free space on that "
            f"disk, or lower fileReservedTime (now {config.file_reserved_hours} hours)"
        )


def urgency(config: StoreConfig, now_ms: int, disk: DiskState) -> Urgency | None:
    """Is it time to delete? (Apache: DefaultMessageStore.CleanCommitLogService)"""
    used = disk.used_percent
    if config.clean_forcibly_enable and used > config.disk_clean_forcibly_ratio:
        return Urgency.FORCED
    if used > config.disk_max_used_ratio:
        return Urgency.SPACE
    hour = f"{datetime.datetime.fromtimestamp(now_ms / 1000):%H}"
    if hour in (part.strip().zfill(2) for part in config.delete_when.split(";")):
        return Urgency.TIME
    return None


def count_expired(
    config: StoreConfig, now_ms: int, why: Urgency | None, ended_ms: list[int]
) -> int:
    """How many of the oldest files to delete now.

    Args:
        ended_ms: store time at which each file but the newest was full, oldest first. (Apache asks
            the file system for the last write: the same moment, but not proof against a copy.)
    """
    if why is None:
        return 0
    kept_ms = config.file_reserved_hours * _HOUR_MS
    count = 0
    for ended in ended_ms[: config.delete_batch]:
        if why is not Urgency.FORCED and now_ms < ended + kept_ms:
            break
        count += 1
    return count
