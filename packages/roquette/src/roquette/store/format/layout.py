"""Directory and file names of a store, as Apache lays them out (StorePathConfigHelper)."""

import datetime
import os
from typing import Final

NAME_DIGITS: Final = 20
_DAY_MS: Final = 86_400_000
SECTOR: Final = 512  # bytes that a disk writes whole
_YEAR_9999_MS: Final = 253_370_764_800_000


class StoreLayout:
    """Paths under one root. The commit log may live elsewhere."""

    def __init__(self, root: str, commit_log: str | None = None) -> None:
        self.root = os.path.expanduser(root)
        self.commit_log_apart = commit_log is not None  # it may have a disk of its own
        self.commit_log = (
            os.path.expanduser(commit_log) if commit_log else os.path.join(self.root, "commitlog")
        )
        # Segments made ahead wait beside the log, not in it: Apache reads every name there as an
        # offset, and half-made files must not count as log.
        self.ahead = self.commit_log.rstrip("/") + ".ahead"
        self.consume_queues = os.path.join(self.root, "consumequeue")
        self.index = os.path.join(self.root, "index")
        self.index_building = os.path.join(self.root, "index.building")  # the index is half made
        self.checkpoint = os.path.join(self.root, "checkpoint")
        self.abort = os.path.join(self.root, "abort")
        self.lock = os.path.join(self.root, "lock")
        self.reserve = os.path.join(self.root, "reserve")  # ours: Apache does not look at it
        self.lost = os.path.join(self.root, "repair.lost")  # damaged bytes that were filled
        self.replaced = os.path.join(self.root, "replaced")  # logs, and ends of them, set aside
        if commit_log:  # by renames, so on the log's disk
            self.replaced = f"{self.commit_log.rstrip('/')}.replaced"
        self.repair_pending = os.path.join(self.root, "repair.swap")  # ours: see offline.swap
        self.config = os.path.join(self.root, "config")
        self.timer_wheel = os.path.join(self.root, "timerwheel")
        self.timer_log = os.path.join(self.root, "timerlog")
        self.timer_checkpoint = os.path.join(self.config, "timercheck")

    def topic(self, topic: str) -> str:
        """The directory of a topic's consume queues."""
        return os.path.join(self.consume_queues, topic)

    def queue(self, topic: str, queue_id: int) -> str:
        """The directory of one consume queue."""
        return os.path.join(self.consume_queues, topic, str(queue_id))


def offset_name(offset: int) -> str:
    """The file name of a start offset: 20 decimal digits (Apache: UtilAll.offset2FileName)."""
    return f"{offset:020d}"


def parse_offset_name(name: str) -> int | None:
    """The start offset a file name stands for; None if it is not a segment name."""
    return int(name) if len(name) == NAME_DIGITS and name.isdecimal() else None


def index_name(now_ms: int) -> str:
    """yyyyMMddHHmmssSSS in local time (Apache: UtilAll.timeMillisToHumanString).

    A time that no calendar has, as a damaged record may say, is the nearest that one has.
    """
    now_ms = min(max(now_ms, _DAY_MS), _YEAR_9999_MS)
    moment = datetime.datetime.fromtimestamp(now_ms / 1000)
    return f"{moment:%Y%m%d%H%M%S}{now_ms % 1000:03d}"
