"""Watches the disks of one store: says when messages are refused and why, and keeps the reserve."""

import contextlib
import logging

from roquette.base.files import Files
from roquette.store.format.config import StoreConfig
from roquette.store.format.layout import StoreLayout, parse_offset_name
from roquette.store.format.unit import UNIT_SIZE
from roquette.store.index.index_file import index_file_size
from roquette.store.log.replaced import KeptFile, list_kept
from roquette.store.upkeep.reserve import DiskReserve
from roquette.store.upkeep.retention import DiskState, LogState, clamped_keys, refusal

log = logging.getLogger("roquette.store")

Usage = tuple[int, int]  # bytes of a disk: total, and free for us


class DiskGuard:
    """What the disks allow, as last measured.

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
        if self._files.disk_usage(self._layout.root)[1] < self.reserve.size:
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

    def measure(self) -> tuple[Usage, Usage | None]:
        """The root's disk, and the commit log's where that may be another. Looks at what was set aside, too. Blocks."""
        with contextlib.suppress(OSError):  # say somebody deletes it now: at the next look
            self.kept = list_kept(self._files, self._layout, self.kept)
        own = self._layout.commit_log_apart
        return (
            self._files.disk_usage(self._layout.root),
            self._files.disk_usage(self._layout.commit_log) if own else None,
        )

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

    def check(self, root: Usage, log_usage: Usage | None, state: LogState, now_ms: int) -> None:
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
        """Why a store without messages cannot take one: that needs a whole file of the log, of a queue and of the index."""
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
        """What was set aside, in words; "no" when there is nothing."""
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
