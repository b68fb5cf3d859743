"""A disk that hangs, for one process: a library before its writes and syncs (hung_disk.c)."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.interop.peers import HERE, absent, failure


class HungDisk:
    """Holds what a process writes and syncs below a directory, from `hold` on."""

    def __init__(self, folder: Path, below: Path) -> None:
        """Skips where there is no C compiler; in CI that is a failure."""
        if shutil.which("cc") is None:
            absent("needs a C compiler for a disk that hangs; not found: cc")
        folder.mkdir(parents=True, exist_ok=True)
        library, self._flag = folder / "hung_disk.so", folder / "hung"
        source = str(HERE / "hung_disk.c")
        said = failure("cc", "-shared", "-fPIC", "-O1", "-o", str(library), source, "-ldl")
        assert not said, said
        wanted = {"LD_PRELOAD": library, "HUNG_WHILE": self._flag, "HUNG_BELOW": below.resolve()}
        self.prefix = ["env", *(f"{key}={value}" for key, value in wanted.items())]

    @contextlib.contextmanager
    def held(self, *, syncs_only: bool = False) -> Iterator[None]:
        """While the block runs nothing that is written, or synced, below the directory comes back."""
        flag = self._flag.with_suffix(".syncs") if syncs_only else self._flag
        flag.touch()
        try:
            yield
        finally:
            flag.unlink()
