"""Limits of open files and connections of this process, their shares, and the words for a shortage."""

import errno
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

T = TypeVar("T")

LINUX: Final = sys.platform == "linux" and sys.maxsize == 2**63 - 1
OLD_MMAP: Final = sys.version_info < (3, 13)

KEEPS_DESCRIPTOR: Final = OLD_MMAP and not LINUX
"""Each map costs a descriptor on this system (base/os_file.py)."""

NO_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
"""Errors that pass when space is freed."""

DENIED: Final = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))
"""Errors of a file that this user may not read or write."""

SHORTAGE: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""Errors of a call that the system had no descriptor or no memory for: nothing was done, and it may be tried again."""

LEAST: Final = 48  # with so many any server starts and serves, whatever is switched on

_UNLIMITED: Final = 1 << 20
_OWN: Final = 48  # the log, tables, threads, listeners, name servers
_SPARES: Final = 8
_MAPS: Final = 65_530  # Linux's default of vm.max_map_count


def rights_words(path: str) -> str:
    """Return the command that gives this user the rights of a file or directory, to be typed by one who may."""
    user = os.geteuid() if hasattr(os, "geteuid") else "USER"
    return f"Give it to the user of this process (and mount it writable): chown -R {user} {path} && chmod -R u+rwX {path}"


def raise_limit() -> str | None:
    """As many open files as this user may have; why a server cannot start with them, None: it can."""
    if resource is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    found = descriptor_limit()
    if found >= LEAST:
        return None
    return f"{found} open files are too few: a server needs {LEAST} (ulimit -n, LimitNOFILE= of systemd)"


def descriptor_limit() -> int:
    """RLIMIT_NOFILE as it is now."""
    if resource is None:
        return _UNLIMITED
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _UNLIMITED if soft == resource.RLIM_INFINITY else min(soft, _UNLIMITED)


def open_descriptors() -> int:
    """Return the number of descriptors this process has open; -1 where the system does not tell."""
    try:
        return len(os.listdir("/dev/fd")) - 1  # without the one that lists them
    except OSError:
        return -1


def connection_limit() -> int:
    """Return the number of connections a process may have, so that its files and requests for others find descriptors."""
    limit = descriptor_limit()
    kept = min(_OWN + limit // 16, 2048) + (limit // 4 if KEEPS_DESCRIPTOR else 0)
    return max(limit - kept, 4)


def map_limit() -> int:
    """Return the number of files that may be mapped at a time: by the system's bound, or by descriptors where each map costs one."""
    try:
        with open("/proc/sys/vm/max_map_count", "rb") as stream:
            found = int(stream.read())
    except (OSError, ValueError):
        found = _MAPS
    found = max(found - max(4096, found // 32), 64)
    return min(found, max(descriptor_limit() // 4, 8)) if KEEPS_DESCRIPTOR else found


def shortage_words(error: OSError) -> str:
    """Return what is short, and what to do about it."""
    if error.errno == errno.EMFILE:
        return (
            f"out of file descriptors ({error}): this process may have {descriptor_limit()}; raise its limit "
            "(ulimit -n, LimitNOFILE= of systemd), or have fewer connections (maxConnections)"
        )
    if error.errno == errno.ENFILE:
        return f"the system is out of file descriptors ({error}): raise fs.file-max, or stop what holds them"
    return f"out of memory ({error}): give the system more, or raise vm.max_map_count"


def words_of(error: OSError) -> str:
    """Return the reason why a call failed: what is short, or the system's own words."""
    return shortage_words(error) if error.errno in SHORTAGE else error.strerror or str(error)


class Spares:
    """Descriptors kept back: when the process has none left, one is given up for a call that must not fail."""

    def __init__(self, count: int = _SPARES) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._held: list[int] = []
        self.refill()

    def run(self, call: Callable[..., T], *args: Any) -> T:
        """Do what opens a file. Raises OSError, a shortage only when the spares are used up as well."""
        while True:
            try:
                return call(*args)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._give_up():
                    raise

    def _give_up(self) -> bool:
        with self._lock:
            if not self._held:
                return False
            os.close(self._held.pop())
            return True

    def refill(self) -> None:
        """Take back what was given up, as far as there is any: call it when a descriptor was closed."""
        if len(self._held) == self._count:
            return
        with self._lock:
            try:
                while len(self._held) < self._count:
                    self._held.append(
                        os.open(os.devnull, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
                    )
            except OSError:
                return

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        while self._held:  # perhaps at the very end of Python, when the names of modules are gone
            close(self._held.pop())
