"""Whether the disk of a member takes writes, also when nobody sends: a small one each second proves it."""

import asyncio
import os
from collections.abc import Callable
from typing import Final

from roquette.base.executor import run_blocking
from roquette.base.files import Files
from roquette.base.lifecycle import Health

FILE: Final = "diskProbe"
PROBE_S: Final = 1.0
STOOD_STILL_MS: Final = 1_000


class DiskProbe:
    """`now_ms`: the clock of leases."""

    def __init__(self, files: Files, root: str, now_ms: Callable[[], int]) -> None:
        self._files = files
        self._root = root
        self._path = os.path.join(root, FILE)
        self._now_ms = now_ms
        self._proven_ms = self._looked_ms = now_ms()
        self._refusal = ""

    async def run(self, health: Health, refusal: Callable[[], str | None]) -> None:
        """For ever. `refusal`: why senders are refused for want of space, if they are."""
        while True:
            try:
                await run_blocking(self._write)
                self._refusal = refusal() or ""
            except OSError as error:
                self._refusal = f"cannot be written: {error}"
            if not self._refusal:
                self._proven_ms = self._now_ms()
            health.worked()
            await asyncio.sleep(PROBE_S)

    def sick(self, now_ms: int, patience_ms: int) -> str:
        """In words: it has taken nothing for so long. Empty: it has. To be asked all the time: while nobody asks, the
        process stands still, which says nothing of its disk."""
        stood_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        if stood_ms > STOOD_STILL_MS:
            self._proven_ms += stood_ms
        if now_ms - self._proven_ms <= patience_ms:
            return ""
        why = self._refusal or f"has not answered for more than {patience_ms / 1000:.0f} s"
        return f"the disk below {self._root} takes no messages: {why}"

    def _write(self) -> None:
        file = self._files.open_file(self._path, create=True)
        try:
            file.pwrite(bytes(512), 0)
            file.sync()
        finally:
            file.close()
