"""Map a file without keeping a descriptor for it: docs/decisions/0018-maps-without-descriptors.md.

Python's `mmap` keeps a copy of the descriptor it is given, before 3.13 whether wanted or not. A mapping of the system
needs none. So on Linux a place is taken by an anonymous `mmap`, which has no descriptor, and the file is put there by
the system's own call: the object reads, writes and lets go of the memory as any other.
"""

import ctypes
import mmap
import os
from typing import Final

from roquette.base.descriptors import LINUX, OLD_MMAP

_FIXED: Final = 0x10  # MAP_FIXED of linux/mman.h
_NO_RESERVE: Final = 0x4000  # MAP_NORESERVE

_abandoned: list[mmap.mmap] = []


class _Buffer(ctypes.Structure):
    """Py_buffer, as the stable interface of Python 3.11 declares it."""

    _fields_ = (
        ("start", ctypes.c_void_p),
        ("owner", ctypes.py_object),
        ("size", ctypes.c_ssize_t),
        ("item_size", ctypes.c_ssize_t),
        ("read_only", ctypes.c_int),
        ("dimensions", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("sub_offsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def map_file(fd: int, *, writable: bool) -> mmap.mmap:
    """The whole of an open file as memory; `fd` may be closed afterwards. Raises OSError."""
    size = os.fstat(fd).st_size
    if LINUX and OLD_MMAP and size > 0:
        return _replaced(fd, size, writable)
    return _plain(fd, writable)


def _plain(fd: int, writable: bool) -> mmap.mmap:
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    if not OLD_MMAP:
        return mmap.mmap(fd, 0, access=access, trackfd=False)  # type: ignore[call-arg,unused-ignore]
    return mmap.mmap(fd, 0, access=access)


def _replaced(fd: int, size: int, writable: bool) -> mmap.mmap:
    """An anonymous map with the file's pages put in its place."""
    rights = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    try:
        place = mmap.mmap(-1, size, flags=flags, prot=rights)
    except OSError:  # a system that counts every anonymous page, perhaps
        return _plain(fd, writable)
    start = _address(place)
    shared = mmap.MAP_SHARED | _FIXED
    if _map_at(start, size, rights, shared, fd, 0) == start:
        return place
    number = ctypes.get_errno()
    seen = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
    if _look_at(
        start, size, seen
    ):  # the old pages are gone: somebody else may be there when it is let go of
        _abandoned.append(place)
    raise OSError(number, os.strerror(number))


def _address(memory: mmap.mmap) -> int:
    found = _Buffer()
    _get_buffer(memory, ctypes.byref(found), 0)
    start = found.start
    _release_buffer(ctypes.byref(found))
    assert start
    return int(start)


if LINUX and OLD_MMAP:
    # With the interpreter's lock held: no thread of ours comes between the steps.
    _c = ctypes.PyDLL(None, use_errno=True)
    _map_at = _c.mmap
    _map_at.restype = ctypes.c_void_p
    _map_at.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    )
    _look_at = _c.mincore
    _look_at.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    _get_buffer = ctypes.pythonapi.PyObject_GetBuffer
    _get_buffer.argtypes = (ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
    _release_buffer = ctypes.pythonapi.PyBuffer_Release
    _release_buffer.argtypes = (ctypes.c_void_p,)
