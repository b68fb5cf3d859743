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

4,096 bytes in all, the rest zeros. Apache (TimerCheckpoint) knows the first 56; when it wrote last, the
repeated fields do not fit the first ones, and the files are taken as Apache leaves them.
"""

import struct
from dataclasses import dataclass
from typing import Final

from roquette.base.files import Files
from roquette.store.checkpoint import CHECKPOINT_SIZE

WIRE_SIZE: Final = 56  # what GET_TIMER_CHECK_POINT carries
_MARK: Final = b"RQTIMER1"
_FIELDS: Final = struct.Struct(">7q8s5q")


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

    @property
    def ours(self) -> bool:
        """Did this broker write it, and not Apache's?"""
        return self.precision_ms > 0

    def encode(self) -> bytes:
        """The file's bytes; the first `WIRE_SIZE` are Apache's."""
        return _FIELDS.pack(
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
        ).ljust(CHECKPOINT_SIZE, b"\0")


def decode_timer_checkpoint(data: bytes) -> TimerCheckpoint:
    """Read a checkpoint; missing bytes count as zeros."""
    values = _FIELDS.unpack(data[: _FIELDS.size].ljust(_FIELDS.size, b"\0"))
    read_ms, log_position, queue_offset, _, _, timestamp, counter, mark = values[:8]
    ours = mark == _MARK and values[10:] == (read_ms, log_position, queue_offset)
    return TimerCheckpoint(
        read_ms=read_ms,
        log_position=log_position,
        queue_offset=queue_offset,
        version_timestamp=timestamp,
        version_counter=counter,
        commit_offset=values[8] if ours else 0,
        precision_ms=values[9] if ours else 0,
    )


def load_timer_checkpoint(files: Files, path: str) -> TimerCheckpoint | None:
    """The checkpoint on disk; None when there is none, or when a crash left only zeros of the first one."""
    if not files.exists(path):
        return None
    found = decode_timer_checkpoint(files.read_bytes(path))
    return found if found.read_ms > 0 else None
