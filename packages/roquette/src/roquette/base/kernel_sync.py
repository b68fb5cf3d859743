"""Sync a file by the kernel's own worker: Linux's asynchronous I/O, without a thread of ours.

A thread costs a synchronous send two hand-overs of the interpreter lock and four sleeps; the kernel takes the
order, and wakes the event loop when the data is on the device. On other systems `open_kernel_sync` returns
None, and threads serve. The numbers are those of Linux's headers linux/aio_abi.h and asm/unistd.h.
"""

import asyncio
import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable
from typing import Final

_CALLS: Final = {  # machine -> io_setup, io_destroy, io_submit, io_getevents
    "x86_64": (206, 207, 209, 208),
    "aarch64": (0, 1, 2, 4),
}
_FDSYNC: Final = 3  # IOCB_CMD_FDSYNC
_TO_EVENTFD: Final = 1  # IOCB_FLAG_RESFD
_ORDER: Final = struct.Struct("=QIIHhIQQqQII")  # struct iocb
_EVENT: Final = struct.Struct("=QQqq")  # struct io_event
_DEPTH: Final = 8

SyncEnded = Callable[[OSError | None], None]
"""Told of a sync's end: None, or why the device did not take the data."""


class KernelSync:
    """One sync at a time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        setup: int,
        destroy: int,
        submit: int,
        get_events: int,
    ) -> None:
        """Takes the numbers of the four calls. Raises OSError: this kernel, or a sandbox before it, does not offer them."""
        self._loop = loop
        self._destroy, self._submit, self._get_events = destroy, submit, get_events
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        self._order = ctypes.create_string_buffer(_ORDER.size)
        self._orders = (ctypes.c_void_p * 1)(ctypes.addressof(self._order))
        self._event = ctypes.create_string_buffer(_EVENT.size)
        self._waiting: SyncEnded | None = None
        if self._call(setup, _DEPTH, ctypes.byref(self._context)) < 0:
            raise _error()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.add_reader(self._bell, self._done)

    def sync(self, fd: int, ended: SyncEnded) -> bool:
        """fdatasync of an open file; `ended` is called on the loop with what the device said. False: not taken,
        for a sync runs already or the file's system cannot do it so."""
        if self._waiting is not None:
            return False
        _ORDER.pack_into(
            self._order, 0, 0, 0, 0, _FDSYNC, 0, fd, 0, 0, 0, 0, _TO_EVENTFD, self._bell
        )
        if self._call(self._submit, self._context, 1, self._orders) != 1:
            return False
        self._waiting = ended
        return True

    def _done(self) -> None:
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            return
        result = self._take()
        ended, self._waiting = self._waiting, None
        if ended is not None:
            ended(OSError(-result, os.strerror(-result)) if result < 0 else None)

    def _take(self) -> int:
        """The result of the sync that has ended: 0, or the negative number of its error."""
        while self._call(self._get_events, self._context, 1, 1, self._event, None) != 1:
            if ctypes.get_errno() != errno.EINTR:
                return -errno.EIO  # the result is lost: the data must not count as synced
        return int(_EVENT.unpack(self._event)[2])

    def close(self) -> None:
        """Give it back; blocks until a sync on its way has ended."""
        self._loop.remove_reader(self._bell)
        self._call(self._destroy, self._context)
        os.close(self._bell)


def open_kernel_sync(loop: asyncio.AbstractEventLoop) -> KernelSync | None:
    """Open what this system offers; None when it offers nothing (not Linux, another processor, forbidden)."""
    calls = _CALLS.get(platform.machine())
    if sys.platform != "linux" or calls is None:
        return None
    try:
        return KernelSync(loop, *calls)
    except OSError:
        return None


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
