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

import logging
import struct
from dataclasses import dataclass
from typing import Final

from roquette.base.checksum import crc32
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


# The timer's checkpoint file, config/timercheck: how far the timer's files can be trusted.
# | field | bytes | |---|---| | read time: slots before it are delivered, epoch ms | 8 | | timer log position up to which it is synced | 8 | | offset of the timer queue up to which messages are in the timer log | 8 | | the same as the master has it (the same here) | 8 | | data version: state version, timestamp, counter | 24 | | ours: the mark `RQTIMER1` | 8 | | ours: commit log offset behind which deliveries may be that the files do not know | 8 | | ours: precision of the wheel, ms | 8 | | ours: the first three fields again | 24 | | ours: timestamp and counter of the data version again | 16 | | ours: CRC32 of our fields before, with bit 32 set | 8 |
# 4,096 bytes in all, the rest zeros. Apache (TimerCheckpoint) knows the first 56; when it wrote last, the data version and the repeated fields do not fit the first ones, and the files are taken as Apache leaves them. Whatever else does not fit is damage: the file vouches for nothing then.


log = logging.getLogger("roquette.store.timer")

WIRE_SIZE: Final = 56  # what GET_TIMER_CHECK_POINT carries
_TIMER_MARK: Final = b"RQTIMER1"
_TIMER_FIELDS: Final = struct.Struct(">7q8s5q2q")
_CRC: Final = struct.Struct(">q")
_CRC_BIT: Final = 1 << 32  # tells a CRC of 0 from a file that has none


@dataclass(slots=True, frozen=True, kw_only=True)
class TimerCheckpoint:
    """The numbers of the file."""

    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    version_timestamp: int = 0
    version_counter: int = 0
    commit_offset: int = 0
    precision_ms: int = 0  # 0: not written by us
    damaged: bool = False

    @property
    def ours(self) -> bool:
        """Did this broker write it, and not Apache's?"""
        return self.precision_ms > 0

    def encode(self) -> bytes:
        """The file's bytes; the first `WIRE_SIZE` are Apache's."""
        data = _TIMER_FIELDS.pack(
            self.read_ms,
            self.log_position,
            self.queue_offset,
            self.queue_offset,
            0,
            self.version_timestamp,
            self.version_counter,
            _TIMER_MARK,
            self.commit_offset,
            self.precision_ms,
            self.read_ms,
            self.log_position,
            self.queue_offset,
            self.version_timestamp,
            self.version_counter,
        )
        return (data + _CRC.pack(_crc(data))).ljust(CHECKPOINT_SIZE, b"\0")


def _crc(data: bytes) -> int:
    return crc32(data[WIRE_SIZE : _TIMER_FIELDS.size]) | _CRC_BIT


def decode_timer_checkpoint(data: bytes) -> TimerCheckpoint:
    """Read a checkpoint; missing bytes count as zeros."""
    size = _TIMER_FIELDS.size + _CRC.size
    fields = data[:size].ljust(size, b"\0")
    values = _TIMER_FIELDS.unpack_from(fields)
    read_ms, log_position, queue_offset, _, _, timestamp, counter, mark = values[:8]
    (crc,) = _CRC.unpack_from(fields, _TIMER_FIELDS.size)
    same = values[10:13] == (read_ms, log_position, queue_offset)
    ours = mark == _TIMER_MARK and same
    damaged = len(data) < CHECKPOINT_SIZE
    if crc or any(values[13:]):  # else written by Apache, or by us before there was the CRC
        ours = same and crc == _crc(fields)
        damaged = (
            damaged or crc != _crc(fields) or (not same and values[13:] == (timestamp, counter))
        )
    return TimerCheckpoint(
        read_ms=read_ms,
        log_position=log_position,
        queue_offset=queue_offset,
        version_timestamp=timestamp,
        version_counter=counter,
        commit_offset=values[8] if ours else 0,
        precision_ms=values[9] if ours else 0,
        damaged=damaged,
    )


def load_timer_checkpoint(files: Files, path: str) -> TimerCheckpoint | None:
    """The checkpoint on disk; None when there is none, when it is damaged, or when a crash left only zeros of the
    first one."""
    if not files.exists(path):
        return None
    found = decode_timer_checkpoint(files.read_bytes(path))
    if found.damaged:
        log.error("%s is damaged: all is taken again from the timer queue", path)
    return found if found.read_ms > 0 and not found.damaged else None
