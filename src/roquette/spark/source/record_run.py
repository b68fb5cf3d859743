"""Where records begin that lie one after the other: told by their sizes alone.

Records of one size in a row, as a producer's often are, are found together.
"""

import struct

import numpy as np

from roquette.errors import CorruptRecord
from roquette.message.record_layout import SMALLEST_RECORD

_read_size = struct.Struct(">i").unpack_from
_REPEATS = 8  # equal sizes after which a run is looked for
_WORTH = 64  # records that a run must have more than these; after a shorter one the next look waits twice as long


def record_positions(data: bytes) -> np.ndarray:
    """Where each record begins. Raises CorruptRecord when sizes do not add up to all of the data."""
    positions, end = record_run(data, len(data))
    if end < len(data):
        size = _read_size(data, end)[0] if len(data) - end >= 4 else 0
        raise CorruptRecord(f"record at {end} of {len(data)} bytes has size {size}")
    return positions


def record_run(data: bytes, stop: int) -> tuple[np.ndarray, int]:
    """Begins of whole records, one after the other from the first byte, that begin before `stop`; and their end.

    Only sizes are looked at: what they lead to is checked later, many records at once.
    """
    runs: list[np.ndarray] = []
    starts: list[int] = []
    position, limit = 0, len(data)
    stop = min(stop, limit - SMALLEST_RECORD + 1)
    read_size, add, smallest = _read_size, starts.append, SMALLEST_RECORD
    last, repeats, enough = 0, 0, _REPEATS
    while position < stop:
        (size,) = read_size(data, position)
        if size < smallest or position + size > limit:
            break
        add(position)
        position += size
        if size != last:
            last, repeats = size, 0
        elif (repeats := repeats + 1) >= enough:
            after = _end_of_run(data, position, stop, size)
            repeats, enough = 0, _REPEATS if after - position >= _WORTH * size else 2 * enough
            runs += np.array(starts, dtype=np.int64), np.arange(position, after, size)
            starts.clear()
            position = after
    runs.append(np.array(starts, dtype=np.int64))
    return np.concatenate(runs) if len(runs) > 1 else runs[0], position


def _end_of_run(data: bytes, start: int, stop: int, size: int) -> int:
    """Where the whole records of exactly this size end that follow each other from `start` on, begun before `stop`."""
    most = min(-(-(stop - start) // size), (len(data) - start) // size)
    count = 64
    while most > 0:
        count = min(count, most)
        sizes: np.ndarray = np.ndarray(count, ">i4", data, start, (size,))
        others = np.flatnonzero(sizes != size)
        if len(others):
            return start + int(others[0]) * size
        start += count * size
        most -= count
        count *= 4
    return start
