"""Records of groups in one file of one name server: linearizable, because one process writes and answers alone.

The file (docs/formats/registers.md) is replaced as a whole and synced before anything in it is shown or answered. Its own CRC
tells whether it is what was written last: nothing but the newest content is ever taken, because an older one would
let a broker win a second time.
"""

import asyncio
import base64
import json
import logging
import os
from contextlib import suppress
from typing import Final, NamedTuple

from roquette.base import generations
from roquette.base.checksum import crc32
from roquette.base.executor import run_blocking
from roquette.base.files import FileLock, Files, make_durable_dir
from roquette.base.lifecycle import Tasks
from roquette.errors import AgreementError, ConfigError, StoreError
from roquette.replication.record import Stored

log = logging.getLogger("roquette.nameserver")

NAME: Final = "registers.json"
MOST_KEYS: Final = 1_000
MOST_VALUE: Final = 64 << 10  # bytes of one value
MOST_KEY: Final = 1_024  # characters of a key
MOST_BYTES: Final = 4 << 20  # of all values
MOST_WAITING: Final = 10_000  # conditional writes that wait for the disk
TOO_LARGE: Final = f"a record has at most {MOST_VALUE} bytes, its key {MOST_KEY} characters"

_NONE: Final = Stored(0, b"")


class _Wish(NamedTuple):
    """A conditional write that waits."""

    key: str
    revision: int
    value: bytes
    outcome: "asyncio.Future[int | None]"


class RegisterFile:
    """An `Agreement` in the file `registers.json` of a directory, which no other process may use.

    Revisions are a counter of all writes to the file. What waits while a write is under way goes with the next one.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{NAME}"
        self._table: dict[str, Stored] = {}  # as it is on the disk
        self._counter = 0
        self._waiting: list[_Wish] = []
        self._tasks = Tasks()
        self._writer: asyncio.Task[None] | None = None
        self._lock: FileLock | None = None

    async def load(self) -> None:
        """Take the file; raises ConfigError when another process has it, or its newest content is not there."""
        try:
            await run_blocking(self._load)
        except (StoreError, OSError) as error:
            await self.close()
            raise ConfigError(f"the controller's records cannot be used: {error}") from None
        log.warning(
            "controller=embedded: records of groups stand in %s: safe, but not replicated. While this name "
            "server is down no broker can become master; etcd has no such gap groups=%d",
            self._path,
            len(self._table),
        )

    def _load(self) -> None:
        make_durable_dir(self._files, self._path)
        try:
            self._lock = self._files.lock_file(self._path + ".lock")
        except StoreError:
            raise StoreError(
                f"another name server uses {self._path}: give this one another controllerStorePath"
            ) from None
        beside = (*generations.BACKUPS, generations.SUMS)
        if self._files.exists(self._path):
            found, self._counter = decode_registers(self._path, self._files.read_bytes(self._path))
            self._files.sync_dir(os.path.dirname(self._path))  # its name may not be on the disk yet
            self._table.update(found)
        elif any(self._files.exists(self._path + suffix) for suffix in beside):
            raise StoreError(f"{self._path} is missing. {_REMEDY}")

    async def get(self, key: str) -> Stored:
        """See `Agreement`: what is synced, and nothing that might still be lost."""
        return self._table.get(key, _NONE)

    async def put_if(self, key: str, revision: int, value: bytes) -> int | None:
        if len(self._waiting) >= MOST_WAITING:
            raise AgreementError(f"{MOST_WAITING} writes of records wait for the disk already")
        outcome: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Wish(key, revision, value, outcome))
        if self._writer is None:  # a task of its own: a caller that goes away ends no write
            self._writer = self._tasks.start("write-registers", self._write_all())
        return await outcome

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                await self._write()
        finally:
            self._writer = None

    async def _write(self) -> None:
        """Decide all that waits, in order, and answer when the result is on the disk: what loses, too, because it may
        lose to what is written now."""
        wishes, self._waiting = self._waiting, []
        table = dict(self._table)
        decided: list[tuple[_Wish, int | None]] = []
        for wish in wishes:
            words = _refusal(table, wish)
            if words:
                _answer(wish, AgreementError(words))
            elif wish.revision == table.get(wish.key, _NONE).revision:
                self._counter += 1
                table[wish.key] = Stored(self._counter, wish.value)
                decided.append((wish, self._counter))
            else:
                decided.append((wish, None))
        try:
            if any(number is not None for _, number in decided):
                await run_blocking(self._save, table, self._counter)
            self._table = table
            for wish, number in decided:
                _answer(wish, number)
        except (OSError, MemoryError) as error:  # the old or the new content is there, whole
            log.error("records of groups are not written path=%s error=%s", self._path, error)
            for wish, _ in decided:
                _answer(wish, AgreementError(f"the record could not be written: {error}"))

    def _save(self, table: dict[str, Stored], counter: int) -> None:
        generations.save(self._files, self._path, encode_registers(table, counter))

    async def close(self) -> None:
        """Let what was begun end; give the file free."""
        if self._writer is not None:
            await asyncio.wait([self._writer])
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):
                lock.release()


def _answer(wish: _Wish, outcome: int | AgreementError | None) -> None:
    if wish.outcome.done():
        return  # its caller has gone
    if isinstance(outcome, AgreementError):
        wish.outcome.set_exception(outcome)
    else:
        wish.outcome.set_result(outcome)


def _refusal(table: dict[str, Stored], wish: _Wish) -> str:
    """Why a write cannot be taken at all; empty when it can."""
    if len(wish.value) > MOST_VALUE or len(wish.key) > MOST_KEY:
        return TOO_LARGE
    if wish.key not in table and len(table) >= MOST_KEYS:
        return f"this controller keeps at most {MOST_KEYS} records: use etcd for more"
    if sum(len(stored.value) for stored in table.values()) + len(wish.value) > MOST_BYTES:
        return f"the records of this controller have at most {MOST_BYTES} bytes: use etcd for more"
    return ""


_REMEDY: Final = (
    "Only the content that was written last may be used: with an older one two brokers could be masters. Put the "
    "file back; or stop all brokers of all groups, remove every file whose name begins with it, and start again"
)


def encode_registers(table: dict[str, Stored], counter: int) -> bytes:
    """The file's content: a line of JSON, and a line with its CRC-32."""
    registers = {
        key: {"revision": stored.revision, "value": base64.b64encode(stored.value).decode()}
        for key, stored in table.items()
    }
    body = json.dumps({"counter": counter, "registers": registers}).encode()
    return b"%s\n%08x\n" % (body, crc32(body))


def decode_registers(path: str, data: bytes) -> tuple[dict[str, Stored], int]:
    """Registers and counter; raises StoreError when this is not what was written."""
    body, _, check = data.partition(b"\n")
    try:
        if check != b"%08x\n" % crc32(body):
            raise ValueError("its checksum is wrong")
        content = json.loads(body)
        registers = {
            key: Stored(stored["revision"], base64.b64decode(stored["value"]))
            for key, stored in content["registers"].items()
        }
        return registers, content["counter"]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"{path} is damaged: {error}. {_REMEDY}") from None
