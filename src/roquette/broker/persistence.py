"""The broker's JSON files under `config/` of the store, in Apache's shapes: loaded at start, written after changes.

A write replaces the file and keeps the previous content as `.bak` (Apache: ConfigManager.persist). A main file
that is empty, torn or missing is read from its `.bak`, and that is said in the log.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from roquette.base.executor import run_blocking
from roquette.base.files import Files
from roquette.errors import RemoteProtocolError, StoreError
from roquette.wire.json_body import decode_body, fastjson_pretty

log = logging.getLogger("roquette.broker")
T = TypeVar("T")

TOPICS = "topics.json"
GROUPS = "subscriptionGroup.json"
OFFSETS = "consumerOffset.json"
DELAYS = "delayOffset.json"


class ConfigFiles:
    """Reads and writes the files of one directory."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    def load(self, name: str, shape: type[T]) -> T | None:
        """The content of a file or of its backup; None when neither was ever written.

        Raises:
            StoreError: there are files, but none can be read: starting empty would lose what they hold.
        """
        path = f"{self._directory}/{name}"
        problems: list[str] = []
        for candidate in (path, path + ".bak"):
            if not self._files.exists(candidate):
                continue
            try:
                data = self._files.read_bytes(candidate)
                if not data.strip():
                    raise RemoteProtocolError("the file is empty")
                value = decode_body(shape, data)
            except (RemoteProtocolError, OSError) as error:
                problems.append(f"{candidate}: {error}")
                continue
            if problems:
                log.warning("config file restored from its backup: %s", "; ".join(problems))
            return value
        if problems:
            raise StoreError("no readable copy of " + "; ".join(problems))
        return None

    def save(self, name: str, value: Any) -> None:
        """Replace a file. Blocks."""
        self.write(name, fastjson_pretty(value))

    def write(self, name: str, data: bytes) -> None:
        """Replace a file by encoded content. Blocks."""
        self._files.write_atomic(f"{self._directory}/{name}", data)


class Saver:
    """Writes one file after changes: at most one write at a time, what changes meanwhile goes with the next.

    Attributes:
        before: called before each picture is taken.
        ready: waits until what the picture speaks of is on the disk; False puts the write off.
    """

    def __init__(self, files: ConfigFiles, name: str, snapshot: Callable[[], Any]) -> None:
        self._files = files
        self._name = name
        self._snapshot = snapshot
        self._changes = 0
        self._saved = 0
        self._lock = asyncio.Lock()
        self.before: Callable[[], None] | None = None
        self.ready: Callable[[], Awaitable[bool]] | None = None

    @property
    def dirty(self) -> bool:
        """Whether there are changes that no finished write holds."""
        return self._saved < self._changes

    def mark(self) -> None:
        """Something changed."""
        self._changes += 1

    async def save(self) -> None:
        """Write what there is now, unless an earlier call has done so."""
        async with self._lock:
            changes = self._changes
            if self._saved >= changes:
                return
            # Encoded on the loop, so that the picture is of one moment; only the write is elsewhere.
            if self.before is not None:
                self.before()
            data = fastjson_pretty(self._snapshot())
            if self.ready is not None and not await self.ready():
                return
            await run_blocking(self._files.write, self._name, data)
            self._saved = changes

    def save_now(self) -> None:
        """Write at once, blocking: for the end of the process."""
        if self.dirty:
            if self.before is not None:
                self.before()
            self._files.save(self._name, self._snapshot())
            self._saved = self._changes
