"""A file of blocks kept back: given up when the disk is full, so that offsets, progress and deletions still get through."""

import logging

from roquette.base.descriptors import NO_SPACE, SHORTAGE
from roquette.base.files import Files

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
