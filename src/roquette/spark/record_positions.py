"""Where records begin in what a pull brings: by their sizes, one after the other."""

import struct

import numpy as np

from roquette.errors import CorruptRecord

SMALLEST_RECORD = 91  # a record with v4 hosts, one byte of topic length, and nothing variable
_read_size = struct.Struct(">i").unpack_from
_REPEATS = 8  # equal sizes after which a run is looked for


def record_positions(data: bytes) -> list[int]:
    """Where each record begins. Raises CorruptRecord when sizes do not add up.

    Records of one size in a row, as a producer's often are, are found together.
    """
    positions = []
    position, end = 0, len(data)
    last = repeats = 0
    while position < end:
        positions.append(position)
        size = _read_size(data, position)[0] if end - position >= 4 else 0
        if size < SMALLEST_RECORD or size > end - position:
            raise CorruptRecord(f"record at {position} of {end} bytes has size {size}")
        position += size
        repeats = repeats + 1 if size == last else 0
        last = size
        if repeats == _REPEATS:
            repeats = 0
            after = _end_of_run(data, position, size)
            positions.extend(range(position, after, size))
            position = after
    return positions


def _end_of_run(data: bytes, start: int, size: int) -> int:
    """Where the whole records of exactly this size end that follow each other from `start` on."""
    limit = 64
    while (count := min(limit, (len(data) - start) // size)) > 0:
        sizes: np.ndarray = np.ndarray(count, ">i4", data, start, (size,))
        others = np.flatnonzero(sizes != size)
        if len(others):
            return start + int(others[0]) * size
        start += count * size
        limit *= 4
    return start
