"""Watches the disks of one store: says when messages are refused and why, and keeps the reserve."""

import contextlib
import logging

from roquette.base.files import Files
from roquette.errors import StoreError
from roquette.store.config import StoreConfig
from roquette.store.index.index_file import index_file_size
from roquette.store.layout import StoreLayout, parse_offset_name
from roquette.store.log.replaced import KeptFile, list_kept
from roquette.store.queues.unit import UNIT_SIZE
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
            OSError: there is no space for them. StoreError: it is a new store, and its disk is too small for its files.
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
        else:
            self._refuse_small_disk()

    def _refuse_small_disk(self) -> None:
        """The first message of a new store needs a whole file of the log, of its queue and of the index."""
        config, layout, files = self.config, self._layout, self._files
        index = index_file_size(config.max_hash_slots, config.max_index_entries)
        if not config.index_enable or files.list_dir(layout.index):
            index = 0
        wanted = [
            (layout.commit_log, config.segment_size, "log: mappedFileSizeCommitLog"),
            (layout.root, config.queue_file_units * UNIT_SIZE, "queue: mappedFileSizeConsumeQueue"),
            (layout.root, index, "index: maxIndexNum, maxHashSlotNum, or messageIndexEnable=false"),
        ]
        apart = layout.commit_log_apart
        for rows in (wanted[:1], wanted[1:]) if apart else (wanted,):
            files.make_dirs(rows[0][0])
            free = files.disk_usage(rows[0][0])[1]
            if sum(size for _, size, _ in rows) > free:
                told = "; ".join(
                    f"{at}: {size >> 20} MiB for the {what}" for at, size, what in rows
                )
                raise StoreError(
                    f"the disk has {free >> 20} MiB free, less than the first message of a new store needs: {told}. "
                    "Make these settings smaller, or take a larger disk"
                )

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
