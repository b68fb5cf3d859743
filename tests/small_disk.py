"""A disk of a few MiB for one process: a tmpfs in a mount namespace of its own, seen from here through /proc."""

import functools
import subprocess
from pathlib import Path

import pytest

_SCRIPT = 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"'


@functools.cache
def _refusal() -> str:
    """Why this machine gives no small disk; empty when it does."""
    try:
        done = subprocess.run(
            ["unshare", "-Urm", "sh", "-c", "mount -t tmpfs none /tmp"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or "unshare failed"


def on_small_disk(size: str, directory: Path) -> list[str]:
    """The command before a command that gives it a disk of this size at a directory; skips where that is not allowed."""
    if why := _refusal():
        pytest.skip(f"no file system of our own can be mounted: {why}")
    directory.mkdir(exist_ok=True)
    return ["unshare", "-Urm", "sh", "-c", _SCRIPT, "sh", size, str(directory)]


def seen_by(pid: int, path: Path) -> Path:
    """A path as the process with the small disk sees it."""
    return Path(f"/proc/{pid}/root{path}")
