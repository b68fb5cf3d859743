"""The checkpoint file: up to which store time log, queues and index are on the disk.

| field | bytes |
|---|---|
| physical timestamp: log synced up to it | 8 |
| logical timestamp: consume queues synced up to it | 8 |
| index timestamp: index files synced up to it | 8 |
| master flushed offset (replicas) | 8 |
| confirmed physical offset | 8 |
| logical physical offset: queues synced up to it | 8 |

4,096 bytes in all, the rest zeros (Apache: StoreCheckpoint). One sector, so never torn.
"""

import struct
from dataclasses import dataclass
from typing import Final

from roquette.base.files import Files

CHECKPOINT_SIZE: Final = 4096
_FIELDS: Final = struct.Struct(">qqqqqq")
_SAFETY_MS: Final = 3000  # Apache's issue 467: a record's time precedes its append a little


@dataclass(slots=True)
class Checkpoint:
    """The six numbers; times are epoch milliseconds, 0 for never."""

    physical_ms: int = 0
    logical_ms: int = 0
    index_ms: int = 0
    master_flushed_offset: int = 0
    confirmed_offset: int = 0
    logical_offset: int = 0

    @property
    def trusted_ms(self) -> int:
        """Everything stored before this time is on the disk, queues included."""
        return max(0, min(self.physical_ms, self.logical_ms) - _SAFETY_MS)

    def encode(self) -> bytes:
        """The file's bytes."""
        return _FIELDS.pack(
            self.physical_ms,
            self.logical_ms,
            self.index_ms,
            self.master_flushed_offset,
            self.confirmed_offset,
            self.logical_offset,
        ).ljust(CHECKPOINT_SIZE, b"\0")


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Read a checkpoint; missing bytes count as zeros, negative times as never."""
    values = _FIELDS.unpack(data[: _FIELDS.size].ljust(_FIELDS.size, b"\0"))
    return Checkpoint(*(max(0, value) for value in values))


def load_checkpoint(files: Files, path: str) -> Checkpoint:
    """The checkpoint on disk, all zeros when there is none."""
    return decode_checkpoint(files.read_bytes(path)) if files.exists(path) else Checkpoint()


def write_checkpoint(files: Files, path: str, data: bytes) -> None:
    """Overwrite the file in place and sync it. Blocks."""
    known = files.exists(path)
    file = files.open_file(path, CHECKPOINT_SIZE, create=True)
    try:
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.close()
    if not known:
        files.sync_dir(path.rpartition("/")[0] or ".")
