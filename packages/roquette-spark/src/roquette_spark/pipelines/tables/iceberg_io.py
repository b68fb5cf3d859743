"""Iceberg's files on a local disk, whose bytes are safe before the catalog names them."""

import io
import os
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from roquette.base.files import OsFiles


class SyncedFileIO(PyArrowFileIO):
    """What pyiceberg writes with, where a table is on a local disk."""

    def new_output(self, location: str) -> "SyncedFile":
        scheme, netloc, path = self.parse_location(location, self.properties)
        return SyncedFile(
            location=location,
            path=path,
            fs=self.fs_by_scheme(scheme, netloc),
            buffer_size=io.DEFAULT_BUFFER_SIZE,
        )


class SyncedFile(PyArrowFile):
    """A file that is synced when it is closed."""

    def create(self, overwrite: bool = False) -> Any:
        folder = os.path.dirname(self._path)
        os.makedirs(folder, exist_ok=True)
        return _SyncedStream(io.FileIO(self._path, "w" if overwrite else "x"))


class _SyncedStream(io.BufferedWriter):
    def close(self) -> None:
        if self.closed:
            return
        self.flush()
        os.fsync(self.fileno())
        name = str(self.raw.name)  # type: ignore[attr-defined]
        super().close()
        OsFiles().sync_dir(os.path.dirname(name))
