"""Retention: the files that may go, and when the disk is too full to write. Pure decisions.

Apache: DefaultMessageStore.CleanCommitLogService. Beyond it: limits in bytes, and no deletion for a jump of the clock.
"""

import contextlib
import datetime
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from roquette.base.descriptors import NO_SPACE, SHORTAGE
from roquette.base.files import Files
from roquette.store.format.config import StoreConfig
from roquette.store.format.layout import StoreLayout, parse_offset_name
from roquette.store.format.unit import UNIT_SIZE
from roquette.store.index.index_file import index_file_size
from roquette.store.log.log_files import KeptFile, list_kept

HOUR_MS: Final = 3_600_000
CLOCK_TOLERANCE_MS: Final = HOUR_MS  # the clock may be set by so much and is believed at once


class Urgency(Enum):
    """Reason why files are deleted now."""

    TIME = "deleteWhen hour"
    SIZE = "the log is larger than fileReservedBytes"
    SPACE = "disk fuller than diskMaxUsedSpaceRatio"
    MANUAL = "asked for by an operator"
    FORCED = "disk fuller than diskSpaceCleanForciblyRatio"


@dataclass(frozen=True, slots=True)
class DiskState:
    """State of a disk: how full it is."""

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
    """State of the log: what it could give up.

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
    """Say why messages are refused, in words: where, how full, by which limit, what gives space; None: they are not."""
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
    """Count the oldest files to delete now.

    Args:
        ended_ms: store time at which each file but the newest was full, oldest first. (Apache asks
            the file system for the last write: the same moment, but not proof against a copy.)
    """
    if why is None:
        return 0
    kept_ms = config.file_reserved_hours * HOUR_MS
    count = 0
    for ended in ended_ms[: config.delete_batch]:
        # The oldest go first: behind a file that stays none may go, or the log would have a hole.
        if why is not Urgency.FORCED and now_ms < ended + kept_ms:
            break
        count += 1
    return count


def count_oversize(config: StoreConfig, file_count: int, file_size: int, deletable: int) -> int:
    """Count the oldest files that are too many for fileReservedBytes, `deletable` at most."""
    if config.file_reserved_bytes <= 0:
        return 0
    excess = file_count * file_size - config.file_reserved_bytes
    return min(max(0, -(-excess // file_size)), deletable, config.delete_batch)


def proven_ends(ended_ms: Sequence[int], newest_ms: int, kept_ms: int) -> list[int]:
    """Return when files ended, as far as the log's own times prove it.

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
            # At the first look only the log can say whether the clock is right.
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


# A file of blocks kept back: given up when the disk is full, so that offsets, progress and deletions still get through.


log = logging.getLogger("roquette.store")


class DiskReserve:
    """The file `reserve` in the store's root. Its calls block; they may come from several threads.

    Attributes:
        held: its blocks are ours. While they are not, messages must be refused, or they would use them up.
    """

    def __init__(self, files: Files, path: str, size: int) -> None:
        """`size` 0: there is none, and it always counts as held."""
        self._files = files
        self._path = path
        self.size = size
        self.held = size <= 0

    def take(self, free: int) -> bool:
        """Allocate it when that leaves as much again; True when it is held now. `free`: bytes the disk has left."""
        if self.held:
            return True
        try:
            have = self._files.exists(self._path)
            file = self._files.open_file(self._path, create=True)
            try:
                if have and file.size == self.size:
                    self.held = True
                # As much again must be free: the reserve must not fill a disk that is nearly full.
                elif free - self.size >= self.size:
                    if file.size > self.size:
                        file.truncate(self.size)
                    file.allocate(self.size)
                    self.held = True
            finally:
                file.close()
            if not self.held:
                self._files.remove(self._path)
        except OSError as error:
            if error.errno in SHORTAGE:
                return True  # nothing is known of it: at the next look
            self._files.remove(self._path)
            if error.errno not in NO_SPACE:  # no file of that size is possible here, full or not
                log.warning("no reserve for a full disk path=%s error=%s", self._path, error)
                self.size = 0
                self.held = True
        return self.held

    def release(self) -> bool:
        """Give the blocks back; False when there were none."""
        if self.size <= 0 or not self._files.exists(self._path):
            return False
        self.held = False
        self._files.remove(self._path)
        log.error(
            "the disk of %s is full: the reserve of %d bytes is given up for offsets and deletions, "
            "and messages are refused until there is space again",
            self._path,
            self.size,
        )
        return True


# Watches the disks of one store: says when messages are refused and why, and keeps the reserve.


class DiskUsage(NamedTuple):
    """Bytes of a disk: in all, and free for us."""

    total: int
    free: int


class DiskGuard:
    """Guard of the disks: what they allow, as last measured.

    Attributes:
        refusal: why senders' messages are refused, in words; None: they are not.
        exhausted: nothing may be appended at all, acknowledgements and deliveries included.
        kept: files of logs that were set aside, oldest first, as `measure` found them last.
    """

    def __init__(self, files: Files, layout: StoreLayout, config: StoreConfig) -> None:
        self._files = files
        self._layout = layout
        self.config = config
        self.reserve = DiskReserve(files, layout.reserve, config.reserve_bytes)
        self.disks: list[DiskState] = []
        self.kept: list[KeptFile] = []
        self.refusal: str | None = None
        self.exhausted = False
        self._failed = False  # a file could not be made since the last look

    def reconfigure(self, config: StoreConfig) -> None:
        """Take over limits; those that act otherwise than set are named in the log."""
        self.config = config
        for sentence in clamped_keys(config):
            log.warning("%s", sentence)

    def opening(self) -> None:
        """Before recovery: give it what was kept back, if it may need that, and let the log's newest file have all
        its blocks, which Apache's broker leaves sparse. Blocks.

        Raises:
            OSError: there is no space for them.
        """
        if self._usage(self._layout.root).free < self.reserve.size:
            self.reserve.release()
        names = [
            name
            for name in self._files.list_dir(self._layout.commit_log)
            if parse_offset_name(name) is not None
        ]
        if names:
            file = self._files.open_file(f"{self._layout.commit_log}/{names[-1]}")
            file.allocate(file.size)
            file.close()

    def measure(self) -> tuple[DiskUsage, DiskUsage | None]:
        """The root's disk, and the commit log's where that may be another. Looks at what was set aside, too. Blocks."""
        with contextlib.suppress(OSError):  # say somebody deletes it now: at the next look
            self.kept = list_kept(self._files, self._layout, self.kept)
        own = self._layout.commit_log_apart
        return (
            self._usage(self._layout.root),
            self._usage(self._layout.commit_log) if own else None,
        )

    def _usage(self, directory: str) -> DiskUsage:
        return DiskUsage(*self._files.disk_usage(directory))

    def no_space(self, error: OSError) -> str:
        """A file could not be made: senders need not try before the next look. Returns the words for them."""
        words = (
            f"no space for another file of the store on the disk of {self._layout.commit_log} or "
            f"{self._layout.root}: {error}. Free space there; it is looked for again every few seconds"
        )
        self._failed = True
        if self.refusal is None:
            self.refusal = words
            log.error("messages refused: %s", words)
        return words

    def check(
        self, root: DiskUsage, log_usage: DiskUsage | None, state: LogState, now_ms: int
    ) -> None:
        """Decide again. `log_usage`: of the commit log's disk, if it has one of its own; `state`: of the log."""
        total, free = root
        layout = self._layout
        self.disks = [DiskState(layout.root if log_usage else layout.commit_log, total, free)]
        if log_usage is not None:
            self.disks.insert(0, DiskState(layout.commit_log, *log_usage))
        words = refusal(self.config, self.disks, state, now_ms)
        if words is None and state.count == 0:
            words = self._too_small()
        if not self.reserve.take(free if total > 0 else 2 * self.reserve.size) and words is None:
            words = (
                f"the disk of {layout.root} was full and has {free >> 20} MiB free: the reserve of "
                f"{self.reserve.size} bytes (diskReserveBytes) is in use, and messages are taken again when "
                "twice as much is free. Free space on that disk"
            )
        if words is not None and self.refusal is None:
            log.error("messages refused: %s", words)
        elif words is None and self.refusal is not None and not self._failed:
            log.warning("messages are taken again: the disks have space")
        self._failed = False
        self.refusal = words
        self.exhausted = any(d.is_exhausted(self.config) for d in self.disks)

    def _too_small(self) -> str | None:
        """Say why a store without messages cannot take one: it needs a whole file of the log, of a queue and of the index."""
        config, layout = self.config, self._layout
        index = index_file_size(config.max_hash_slots, config.max_index_entries)
        if not config.index_enable or self._files.list_dir(layout.index):
            index = 0
        rows = [
            (config.segment_size, "for a file of the log (mappedFileSizeCommitLog)"),
            (config.queue_file_units * UNIT_SIZE, "of a queue (mappedFileSizeConsumeQueue)"),
            (index, "of the index (maxIndexNum, maxHashSlotNum, or messageIndexEnable=false)"),
        ]
        parts = [rows] if len(self.disks) == 1 else [rows[:1], rows[1:]]
        for disk, part in zip(self.disks, parts, strict=True):
            if disk.free < sum(size for size, _ in part) and disk.total > 0:
                told = ", ".join(f"{size >> 20} MiB {what}" for size, what in part if size)
                return (
                    f"the disk of {disk.directory} has {disk.free >> 20} MiB free, too few for the first message: it needs "
                    f"{told}. Take a larger disk, or start a broker with smaller ones"
                )
        return None

    @property
    def kept_words(self) -> str:
        """The amount that was set aside, in words; "no" when there is nothing."""
        if not self.kept:
            return "no"
        size = sum(one.size for one in self.kept)
        return f"{size} bytes in {len(self.kept)} files in {self._layout.replaced}"

    @property
    def ratios(self) -> tuple[float, float]:
        """Used shares, 0 to 1, of the commit log's disk and of the root's."""
        if not self.disks:
            return 0.0, 0.0
        return self.disks[0].used_percent / 100, self.disks[-1].used_percent / 100
