"""The broker's JSON files under `config/` of the store, in Apache's shapes: loaded at start, written after changes.

How a file is replaced, and what is read when it is damaged, is `base.generations`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from roquette.base import generations
from roquette.base.descriptors import DENIED, NO_SPACE, rights_words
from roquette.base.executor import join_slices, run_blocking
from roquette.base.files import Files, make_durable_dir
from roquette.base.lifecycle import Tasks
from roquette.errors import Refused, StoreError
from roquette.wire.bodies import DelayOffsetSerializeWrapper
from roquette.wire.codes import ResponseCode
from roquette.wire.json_body import (
    Unknown,
    add_unknown,
    decode_body,
    fastjson_pretty,
    find_unknown,
    text_slices,
)

log = logging.getLogger("roquette.broker")
T = TypeVar("T")

TOPICS = "topics.json"
GROUPS = "subscriptionGroup.json"
OFFSETS = "consumerOffset.json"
DELAYS = "delayOffset.json"
MODES = "messageRequestMode.json"
ORDERS = "consumerOrderInfo.json"
TIMER_METRICS = "timermetrics"
PAUSE_S = 0.2e-6  # for each byte of a file that was written, about four times what it cost;
WAITED_S = PAUSE_S / 4  # when somebody waits, about as long as the write took,
LONGEST_PAUSE_S = 1.0  # but not more than that


class DelayProgress(DelayOffsetSerializeWrapper):
    """delayOffset.json as we write it: Apache's fields, and where deliveries begin that it does not know of."""

    log_offset: int = -1  # physical; -1: written by Apache, or by us before there was the field


def _no_room() -> bool:
    return False


class ConfigFiles:
    """Reads and writes the files of one directory.

    Args:
        make_room: asked when the disk is full; True when there is room now, and the write is tried once more.
            Called where the write is: in the executor.

    Attributes:
        failures: why the last write of a file failed.
    """

    def __init__(
        self, files: Files, directory: str, make_room: Callable[[], bool] = _no_room
    ) -> None:
        self._files = files
        self._directory = directory
        self._make_room = make_room
        self._unknown: dict[str, Unknown | None] = {}
        self.failures: dict[str, OSError] = {}

    @property
    def place(self) -> tuple[Files, str, Callable[[], bool]]:
        """Parts it was made of, for files of another kind in the same directory."""
        return self._files, self._directory, self._make_room

    def prove(self, kept_open: Iterable[str] = ()) -> None:
        """Raise StoreError when this user cannot replace files, or write `kept_open`: say root has restored them. Blocks.

        A full disk proves nothing: what it has is served.
        """
        probe = f"{self._directory}/writable.tmp"
        try:
            make_durable_dir(self._files, probe)
            self._files.open_file(probe, create=True).close()
            self._files.remove(probe)
            for path in (f"{self._directory}/{name}" for name in kept_open):
                if self._files.exists(path):
                    self._files.open_file(path).close()
        except OSError as error:
            if error.errno in DENIED:
                words = rights_words(self._directory)
                raise StoreError(f"tables cannot be written: {error}. {words}") from None

    def load(self, name: str, shape: type[T]) -> T | None:
        """`load_marked` without the mark."""
        found = self.load_marked(name, shape)
        return None if found is None else found.value

    def load_marked(self, name: str, shape: type[T]) -> generations.Loaded[T] | None:
        """The content of a file, or of the newest backup that is sound; None when nothing was ever written.

        Fields that `shape` does not have are remembered: they are written again with what the file holds then.

        Raises:
            StoreError: there are files, but none can be read: starting empty would lose what they hold.
        """
        return generations.load(
            self._files, f"{self._directory}/{name}", lambda data: self._parse(name, shape, data)
        )

    def _parse(self, name: str, shape: type[T], data: bytes) -> T:
        value = decode_body(shape, data)
        self._unknown[name] = find_unknown(shape, data)
        return value

    def complete(self, name: str, value: Any) -> Any:
        """Return what is to be written: `value` and the unknown fields that the file had when it was loaded."""
        unknown = self._unknown.get(name)
        return value if unknown is None else add_unknown(value, unknown)

    def encode(self, name: str, value: Any) -> bytes:
        """The bytes of a file."""
        return fastjson_pretty(self.complete(name, value))

    async def encode_beside(self, name: str, value: Any) -> bytes:
        """The same of what does not change any more, beside the loop."""
        whole = await run_blocking(self.complete, name, value)
        return await join_slices(text_slices(whole, java_keys=True, indent=""))

    def save(self, name: str, value: Any) -> None:
        """Replace a file. Blocks."""
        self.write(name, self.encode(name, value))

    def write(self, name: str, data: bytes) -> None:
        """Replace a file by encoded content. Blocks; an OSError leaves the older content."""
        path = f"{self._directory}/{name}"
        try:
            generations.save(self._files, path, data)
        except OSError as error:
            if error.errno not in NO_SPACE or not self._make_room():
                raise
            generations.save(self._files, path, data)
        self.failures.pop(name, None)


@dataclass(frozen=True, slots=True)
class SaveSteps:
    """Steps beside the write of a file.

    Attributes:
        before: called before each picture is taken.
        ready: waits until what the picture speaks of is on the disk; False puts the write off.
        picture: called in the moment of the picture.
        pictured: gets the content; False if it must not be written.
        written: the last picture is on the disk.
    """

    before: Callable[[], None] | None = None
    ready: Callable[[], Awaitable[bool]] | None = None
    picture: Callable[[], None] | None = None
    pictured: Callable[[bytes], bool] | None = None
    written: Callable[[], None] | None = None


class Saver:
    """Writes one file after changes: at most one write at a time, what changes meanwhile goes with the next.

    A write of much is followed by a pause: the file of a great table does not take the processor for itself.

    Args:
        frozen: nothing in a snapshot changes any more, so that it is encoded beside the loop.
        steps: what else happens when the file is written.
    """

    def __init__(
        self,
        files: ConfigFiles,
        name: str,
        snapshot: Callable[[], Any],
        *,
        frozen: bool = False,
        steps: SaveSteps = SaveSteps(),
    ) -> None:
        self._files = files
        self._name = name
        self._snapshot = snapshot
        self._changes = 0
        self._saved = 0
        self._frozen = frozen
        self._soon = False
        self._began_s = self._ended_s = float("-inf")  # of the last write, loop time
        self._written = 0  # bytes of it
        self._lock = asyncio.Lock()
        self._steps = steps

    @property
    def dirty(self) -> bool:
        """True while there are changes that no finished write holds."""
        return self._saved < self._changes

    def mark(self) -> None:
        """Something changed."""
        self._changes += 1

    def soon(self, tasks: Tasks, least_s: float = 0.0) -> None:
        """Something changed, and no request waits for it: write in a task, `least_s` after the last write began at the earliest."""
        self.mark()
        if not self._soon:
            self._soon = True
            tasks.start(f"save-{self._name}", self._save_soon(least_s))

    async def _save_soon(self, least_s: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            saved = True
            while saved and self.dirty:
                next_s = max(self._began_s + least_s, self._ended_s + self._written * PAUSE_S)
                await asyncio.sleep(max(0.0, next_s - loop.time()))
                saved = await self.try_save()
        finally:
            self._soon = False

    async def save(self) -> None:
        """Write what there is now, unless an earlier call has done so.

        Raises:
            OSError: it could not be written; the file keeps its older content, and the changes count as unsaved.
        """
        wanted, loop = self._changes, asyncio.get_running_loop()
        async with self._lock:
            if self._saved >= wanted:
                return
            pause_s = min(self._written * WAITED_S, LONGEST_PAUSE_S)
            pause_s += self._ended_s - loop.time()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            self._began_s = loop.time()
            await self._write()

    async def _write(self) -> None:
        changes = self._changes
        # The picture is taken on the loop, so that it is of one moment.
        if self._steps.before is not None:
            self._steps.before()
        picture = self._snapshot()
        if self._steps.picture is not None:
            self._steps.picture()
        if self._frozen:
            data = await self._files.encode_beside(self._name, picture)
        else:
            data = self._files.encode(self._name, picture)
        if self._steps.pictured is not None and not self._steps.pictured(data):
            return
        if self._steps.ready is not None and not await self._steps.ready():
            return
        await run_blocking(self._files.write, self._name, data)
        self._ended_s = asyncio.get_running_loop().time()
        self._written = len(data)
        self._saved = changes
        if self._steps.written is not None:
            self._steps.written()

    async def try_save(self) -> bool:
        """`save` for a beat: what fails is said in the log and tried again at the next one; True when what was
        changed before is saved."""
        wanted = self._changes
        try:
            await self.save()
        except OSError as error:
            self._files.failures[self._name] = error
            log.error(
                "%s not written, its older content stays and it is tried again error=%s",
                self._name,
                error,
            )
            return False
        return self._saved >= wanted

    async def confirm(self) -> None:
        """`save` for an answer: on return every change made before the call is on the disk.

        Raises:
            Refused: it is not. The change holds in memory, and the file is tried again on its beat.
        """
        wanted = self._changes
        why = "the log it speaks of is not on the disk"
        try:
            await self.save()
        except OSError as error:
            self._files.failures[self._name] = error
            why = str(error)
        if self._saved < wanted:
            log.error("%s not written, it is tried again error=%s", self._name, why)
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"changed in memory only: {self._name} cannot be written ({why}). It is tried again; "
                "until then a restart of the broker undoes the change",
            )

    def try_save_now(self) -> bool:
        """Write at once, blocking: for the end of the process. What fails is said in the log; the older content stays."""
        if self.dirty:
            if self._steps.before is not None:
                self._steps.before()
            try:
                self._files.save(self._name, self._snapshot())
            except OSError as error:
                log.error("%s not written, its older content stays error=%s", self._name, error)
                return False
            self._saved = self._changes
        return True
