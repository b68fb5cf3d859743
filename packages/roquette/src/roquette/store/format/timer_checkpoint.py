"""The timer's checkpoint file, config/timercheck: how far the timer's files can be trusted.

| field | bytes |
|---|---|
| read time: slots before it are delivered, epoch ms | 8 |
| timer log position up to which it is synced | 8 |
| offset of the timer queue up to which messages are in the timer log | 8 |
| the same as the master has it (the same here) | 8 |
| data version: state version, timestamp, counter | 24 |
| ours: the mark `RQTIMER1` | 8 |
| ours: commit log offset behind which deliveries may be that the files do not know | 8 |
| ours: precision of the wheel, ms | 8 |
| ours: the first three fields again | 24 |
| ours: timestamp and counter of the data version again | 16 |
| ours: CRC32 of our fields before, with bit 32 set | 8 |

4,096 bytes in all, the rest zeros. Apache (TimerCheckpoint) knows the first 56; when it wrote last, the data
version and the repeated fields do not fit the first ones, and the files are taken as Apache leaves them. Whatever else
does not fit is damage: the file vouches for nothing then.
"""

import logging
import struct
from dataclasses import dataclass
from typing import Final

from roquette.base.checksum import crc32
from roquette.base.files import Files
from roquette.store.format.checkpoint import CHECKPOINT_SIZE

log = logging.getLogger("roquette.store.timer")

WIRE_SIZE: Final = 56  # what GET_TIMER_CHECK_POINT carries
_MARK: Final = b"RQTIMER1"
_FIELDS: Final = struct.Struct(">7q8s5q2q")
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
        data = _FIELDS.pack(
            self.read_ms,
            self.log_position,
            self.queue_offset,
            self.queue_offset,
            0,
            self.version_timestamp,
            self.version_counter,
            _MARK,
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
    return crc32(data[WIRE_SIZE : _FIELDS.size]) | _CRC_BIT


def decode_timer_checkpoint(data: bytes) -> TimerCheckpoint:
    """Read a checkpoint; missing bytes count as zeros."""
    size = _FIELDS.size + _CRC.size
    fields = data[:size].ljust(size, b"\0")
    values = _FIELDS.unpack_from(fields)
    read_ms, log_position, queue_offset, _, _, timestamp, counter, mark = values[:8]
    (crc,) = _CRC.unpack_from(fields, _FIELDS.size)
    same = values[10:13] == (read_ms, log_position, queue_offset)
    ours = mark == _MARK and same
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
