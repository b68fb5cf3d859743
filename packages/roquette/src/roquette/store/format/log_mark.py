"""End of the log as the last process that wrote it knew it: kept beside Apache's fields in `checkpoint`.

| field | bytes | at |
|---|---|---|
| the mark `RQMARK01` | 8 | 128 |
| boot id of the system that wrote it | 16 | 136 |
| the log is synced up to this offset, and its complement; these six in the machine's order of bytes | 16 | 152 |
| the log was handed to the system up to this offset, and its complement | 16 | 168 |
| the log begins here: files before were removed by retention, and its complement | 16 | 184 |

Each pair is written after what it speaks of has happened, into memory: it outlives the process, and after a power cut
an older one is there, which is true as well. So what lies before the greatest of them was there, and damage can be
told from what a crash tears (docs/decisions/0015). Nothing here counts once Apache's broker had the store: it writes
`lock` into the file of this name.
"""

import os
import struct
from dataclasses import dataclass
from typing import Final

from roquette.base.files import File, Files
from roquette.store.format.checkpoint import CHECKPOINT_SIZE, Checkpoint, decode_checkpoint
from roquette.store.format.layout import StoreLayout

MARK_AT: Final = 128
_MARK: Final = b"RQMARK01"
_HEAD: Final = struct.Struct(">8s16s")
_PAIR: Final = struct.Struct("=qq")
_SYNCED_AT: Final = MARK_AT + _HEAD.size
_WROTE_AT: Final = _SYNCED_AT + _PAIR.size
_BEGIN_AT: Final = _WROTE_AT + _PAIR.size
_END: Final = _BEGIN_AT + _PAIR.size


@dataclass(frozen=True, slots=True)
class Vouched:
    """Facts known of the log before it is looked at.

    Attributes:
        known: there is a mark, so all is known that was on the disk.
        end: everything before was on the disk, or in the memory of a system that still runs.
        begin: retention has removed no file from here on; 0 when not `known`.
    """

    known: bool = False
    end: int = 0
    begin: int = 0


class LogMark:
    """The mark of an open store. Any thread may note; each number has one writer."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._words = memoryview(file.map(True))[_SYNCED_AT:_END].cast(
            "q"
        )  # one store each: no kill tears it

    def note_wrote(self, offset: int) -> None:
        """The log was handed to the system up to an offset."""
        self._words[2] = offset
        self._words[3] = ~offset

    def note_synced(self, offset: int) -> None:
        """The log is on the disk up to an offset."""
        self._words[0] = offset
        self._words[1] = ~offset

    def note_begin(self, offset: int) -> None:
        """Files before an offset are about to be removed."""
        self._words[4] = offset
        self._words[5] = ~offset

    def sync(self) -> None:
        """Bring the mark to the disk. Raises OSError."""
        self._file.sync()


def load_vouched(files: Files, layout: StoreLayout, checkpoint: Checkpoint) -> Vouched:
    """Read what checkpoint and mark say of the log."""
    if not files.exists(layout.checkpoint) or _apache_had_it(files, layout):
        return Vouched(end=checkpoint.log_synced)
    data = files.read_bytes(layout.checkpoint).ljust(_END, b"\0")
    mark, boot = _HEAD.unpack_from(data, MARK_AT)
    synced, wrote, begin = (_pair(data, at) for at in (_SYNCED_AT, _WROTE_AT, _BEGIN_AT))
    if mark != _MARK or checkpoint.foreign or synced < 0 or begin < 0:
        return Vouched(end=checkpoint.log_synced)
    end = max(checkpoint.log_synced, synced)
    if files.boot_id and boot == files.boot_id:
        end = max(end, wrote)
    return Vouched(True, end, begin)


def written_until(files: Files, layout: StoreLayout) -> int:
    """Read how far the log of a store in use was handed to the system; -1: another system has it, or Apache's broker.

    More may follow at once, but all before was there when this was asked, and every answer that has left speaks of it.
    """
    if not files.exists(layout.checkpoint) or _apache_had_it(files, layout):
        return -1
    data = files.read_bytes(layout.checkpoint)
    _, boot = _HEAD.unpack_from(data.ljust(_END, b"\0"), MARK_AT)
    if boot != _boot_of(files) or decode_checkpoint(data).foreign:
        return -1
    return wrote_of(data)


def wrote_of(checkpoint: bytes) -> int:
    """Return how far the mark in a checkpoint says that the log was handed to the system; -1: there is none."""
    data = checkpoint.ljust(_END, b"\0")
    mark, _ = _HEAD.unpack_from(data, MARK_AT)
    return _older(data, _WROTE_AT) if mark == _MARK else -1


def follow_begin(files: Files, layout: StoreLayout, copy: StoreLayout) -> None:
    """Have the mark of a copied checkpoint say what retention has removed from the store since then. Raises OSError."""
    begin = _older(files.read_bytes(layout.checkpoint).ljust(_END, b"\0"), _BEGIN_AT)
    file = files.open_file(copy.checkpoint)
    file.pwrite(_PAIR.pack(begin, ~begin), _BEGIN_AT)
    file.sync()
    file.close()


def begin_mark(files: Files, layout: StoreLayout, begin: int, end: int) -> LogMark:
    """Begin to keep the mark of a store that was recovered: its log is synced up to `end`. Raises OSError."""
    file = files.open_file(layout.checkpoint, CHECKPOINT_SIZE, create=True)
    pairs = b"".join(_PAIR.pack(value, ~value) for value in (end, end, begin))
    file.pwrite(_HEAD.pack(_MARK, _boot_of(files)) + pairs, MARK_AT)
    file.sync()
    if _apache_had_it(files, layout):
        lock = files.open_file(layout.lock)
        lock.truncate(0)
        lock.close()
    return LogMark(file)


def _boot_of(files: Files) -> bytes:
    return files.boot_id.ljust(16, b"\0")[:16]


def _older(data: bytes, at: int) -> int:
    """A number that a broker may be writing: its complement comes after it, and what is older was true before."""
    value, complement = _PAIR.unpack_from(data, at)
    return int(min(value, ~complement))


def _pair(data: bytes, at: int) -> int:
    """A number that its complement confirms; -1 when it does not."""
    value, complement = _PAIR.unpack_from(data, at)
    return int(value) if complement == ~value else -1


def _apache_had_it(files: Files, layout: StoreLayout) -> bool:
    """Has Apache's broker opened the store since ours did?"""
    if os.path.basename(layout.lock) not in files.list_dir(layout.root):
        return False
    return bool(files.read_bytes(layout.lock))
