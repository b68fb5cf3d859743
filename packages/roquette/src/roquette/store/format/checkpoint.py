"""The checkpoint file: up to which store time log, queues and index are on the disk.

| field | bytes |
|---|---|
| physical timestamp: log synced up to it | 8 |
| logical timestamp: consume queues synced up to it | 8 |
| index timestamp: index files synced up to it | 8 |
| master flushed offset (replicas) | 8 |
| confirmed physical offset | 8 |
| logical physical offset: queues synced up to it | 8 |
| ours: the mark `RQCHECK1` | 8 |
| ours: the log is synced up to this offset | 8 |
| ours: queues and index are synced for all records before this offset | 8 |
| ours: the sum of the ends of all queues; -1: not known | 8 |
| ours: the three timestamps again | 24 |

4,096 bytes in all, the rest zeros (Apache: StoreCheckpoint). One sector, so never torn. Apache knows the first
48; when it wrote last, the repeated timestamps do not fit the first ones, and our offsets count for nothing.
Offsets are better than times: a clock that is set back makes what was stored later look older.
"""

import struct
from dataclasses import dataclass
from typing import Final

from roquette.base.files import Files

CHECKPOINT_SIZE: Final = 4096
_FIELDS: Final = struct.Struct(">qqqqqq")
_OURS: Final = struct.Struct(">8s6q")
_MARK: Final = b"RQCHECK1"
_SAFETY_MS: Final = 3000  # Apache's issue 467: a record's time precedes its append a little


@dataclass(slots=True)
class Checkpoint:
    """The numbers; times are epoch milliseconds, 0 for never. The last three are 0 when Apache wrote last."""

    physical_ms: int = 0
    logical_ms: int = 0
    index_ms: int = 0
    master_flushed_offset: int = 0
    confirmed_offset: int = 0
    logical_offset: int = 0
    log_synced: int = 0
    queues_synced: int = 0
    queue_ends: int = 0
    foreign: bool = False  # ours was there, and Apache's broker wrote last

    @property
    def trusted_offset(self) -> int:
        """Every record before this offset is on the disk, its queue unit and index entries too; 0: not known."""
        return min(self.log_synced, self.queues_synced)

    @property
    def trusted_ms(self) -> int:
        """Everything stored before this time is on the disk, queues included."""
        return max(0, min(self.physical_ms, self.logical_ms) - _SAFETY_MS)

    def encode(self) -> bytes:
        """The file's bytes."""
        times = (self.physical_ms, self.logical_ms, self.index_ms)
        data = _FIELDS.pack(
            *times, self.master_flushed_offset, self.confirmed_offset, self.logical_offset
        )
        if self.log_synced:
            data += _OURS.pack(_MARK, self.log_synced, self.queues_synced, self.queue_ends, *times)
        return data.ljust(CHECKPOINT_SIZE, b"\0")


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Read a checkpoint; missing bytes count as zeros, negative times as never."""
    size = _FIELDS.size + _OURS.size
    data = data[:size].ljust(size, b"\0")
    values = _FIELDS.unpack_from(data)
    mark, log_synced, queues_synced, queue_ends, *times = _OURS.unpack_from(data, _FIELDS.size)
    found = Checkpoint(*(max(0, value) for value in values))
    if mark == _MARK and tuple(times) == values[:3]:
        found.log_synced, found.queues_synced = max(0, log_synced), max(0, queues_synced)
        found.queue_ends = queue_ends
    else:
        found.foreign = mark == _MARK
    return found


def load_checkpoint(files: Files, path: str) -> Checkpoint:
    """The checkpoint on disk, all zeros when there is none."""
    return decode_checkpoint(files.read_bytes(path)) if files.exists(path) else Checkpoint()


def write_checkpoint(
    files: Files, path: str, data: bytes, used: int = _FIELDS.size + _OURS.size
) -> None:
    """Overwrite the first `used` bytes in place and sync them; what stands behind stays (`log_mark`). Blocks."""
    known = files.exists(path)
    file = files.open_file(path, CHECKPOINT_SIZE, create=True)
    try:
        file.pwrite(data[:used], 0)
        file.sync()
    finally:
        file.close()
    if not known:
        files.sync_dir(path.rpartition("/")[0] or ".")
