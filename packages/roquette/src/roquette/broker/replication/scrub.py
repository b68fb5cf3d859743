"""A member looks through its log, slowly and for ever, for what has rotted in it, and gets it from another.

That is a record whose body does not match its CRC, whose parts do not add up or that names another place. It is replaced as
a whole: a sector that rots does not end with the body. Nothing tells of a wrong queue, time, host, flag or property alone: a
member that differs there may as well be the rotten one.

No read of the broker compares bodies with their CRC: a client that does gets nothing of a rotten one, and another server's
copy may be sound. Recovery and a replica that is filled compare, so this is for what has rotted since.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from roquette.base.clock import Clock
from roquette.base.executor import submit
from roquette.base.lifecycle import Health
from roquette.base.logs import RateLimited
from roquette.errors import ClientError, StoreError
from roquette.message.record_layout import BLANK_SIZE, HEAD_SIZE
from roquette.message.record_view import BLANK, SOUND, RecordView
from roquette.remoting.client import RemotingClient
from roquette.replication.record import GroupRecord
from roquette.replication.takeover import TakeOver
from roquette.store.format.layout import offset_name
from roquette.store.message_store import MessageStore
from roquette.wire.codes import RequestCode
from roquette.wire.header_codec import encode_ext
from roquette.wire.headers import ViewMessageRequestHeader

log = logging.getLogger("roquette.broker.replication")

PIECE: Final = 1 << 20  # bytes looked at in one go
FILES: Final = 3  # are named
PAUSE_S: Final = 2.0  # between two: some 40 GB a day, which no reader and no writer feels
UNKNOWN: Final = 0  # size of a record whose header has rotted


def look_through(data: bytes, start: int, end: int) -> tuple[int, list[tuple[int, int]]]:
    """Return where to go on behind a piece of the log, and place and size of each record in it that has rotted.

    Args:
        end: of the whole records there are, in this file: one that claims to reach beyond it has a rotten size.
    """
    view, at = RecordView(), 0
    found: list[tuple[int, int]] = []
    while len(data) - at >= BLANK_SIZE:
        fault = view.find_size(data, at, end - start - at)
        if fault == SOUND and at + view.size > len(data):
            break
        if fault == SOUND:
            fault = view.examine(data, at, start + at, False)
        if fault != SOUND:
            if fault != BLANK:
                found.append((start + at, UNKNOWN))
            return end, found
        if view.check_body() != SOUND:
            found.append((start + at, view.size))
        at += view.size
    return start + at, found


def belongs_there(store: MessageStore, place: int, size: int, other: bytes) -> bool:
    """Is what another member has at a place a sound record, whose place and size our own queue has, too?

    A queue that is gone says nothing: then its size is the one our header has, or the next record must begin behind it.
    """
    view = RecordView()
    if view.examine(other, 0, place, True) != SOUND or view.size != len(other):
        return False
    record = view.record()
    units = store.queue_units(record.topic, record.queue_id, record.queue_offset, 1)
    if units is not None or size != UNKNOWN:
        return units[0][:2] == (place, record.size) if units else size == record.size
    behind = store.read_raw(place + record.size, BLANK_SIZE)
    room = -(place + record.size) % store.config.segment_size or store.config.segment_size
    return len(behind) < BLANK_SIZE or view.find_size(behind, 0, room) in (SOUND, BLANK)


class Scrub:
    """One member's. `store`: the one that is open; None: none is."""

    def __init__(
        self,
        store: Callable[[], MessageStore | None],
        table: TakeOver,
        client: RemotingClient,
        clock: Clock,
    ) -> None:
        self._store = store
        self._table = table
        self._client = client
        self._noise = RateLimited(log, clock)
        self._place = 0
        self._piece = PIECE
        self._left: Counter[str] = Counter()  # not mended, by file: in the last round
        self._counted: Counter[str] = Counter()  # and in this one
        self._mended: Counter[str] = Counter()

    def health(self) -> dict[str, str]:
        """Rotten messages that nobody has the right body of, those that were mended, and the first files of them."""
        left = max(self._left, self._counted, key=Counter.total)
        return {
            "rottenMessages": str(left.total()),
            "mendedMessages": str(self._mended.total()),
            "rottenFiles": ", ".join(sorted(left or self._mended)[:FILES]),
        }

    async def run(self, health: Health) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(PAUSE_S)
            store = self._store()
            if store is not None:
                try:
                    await self._look(store)
                except (OSError, StoreError) as error:
                    self._noise.warning("unread", "the log cannot be looked through: %s", error)
                    self._place, self._piece = self._place + self._piece, PIECE
            health.worked()

    async def _look(self, store: MessageStore) -> None:
        place = max(self._place, store.min_physical_offset)
        segment = store.config.segment_size
        file_end = place - place % segment + segment
        known = max(place, min(file_end, store.wrote, store.confirmed))
        end = min(place + self._piece, known)
        plan = store.plan_raw(place, end - place)
        self._place, found = await submit(lambda: look_through(plan(), place, known))
        ended = known < min(file_end, place + self._piece)  # the log does, though it may be growing
        self._piece = PIECE if ended or self._place != place else 2 * self._piece
        for offset, size in found:
            if await self._mend(store, offset, size) and size == UNKNOWN:
                self._place, ended = offset, False  # what follows it can be read now
        if ended:
            self._place, self._left, self._counted = 0, self._counted, Counter()

    async def _mend(self, store: MessageStore, place: int, size: int) -> bool:
        """By what the others in step have there, if all that have it sound have the same. The log may have been closed, cut
        or deleted there while they were asked."""
        own = store.read_raw(place, size or HEAD_SIZE) if self._store() is store else b""
        name = offset_name(place - place % store.config.segment_size)
        path = os.path.join(store.layout.commit_log, name)
        ext = encode_ext(ViewMessageRequestHeader(offset=place))
        record = self._table.record or GroupRecord()
        found: dict[bytes, str] = {}
        for who in {*record.members} - {*record.doubtful, self._table.me}:
            address = record.address_of(who) or ""
            with suppress(ClientError):
                reply = await self._client.invoke(address, RequestCode.VIEW_MESSAGE_BY_ID, ext)
                found[reply.body] = address
        if self._store() is not store or store.read_raw(place, size or HEAD_SIZE) != own:
            return False
        right = [data for data in found if belongs_there(store, place, size, data)]
        if len(right) == 1:
            await submit(store.restore_record(place, right[0]))
            self._mended[path] += 1
            log.warning(
                "a rotten message was mended file=%s offset=%d from=%s",
                path,
                place,
                found[right[0]],
            )
            return True
        self._counted[path] += 1
        self._noise.line(
            logging.ERROR,
            "rotten",
            "a message has rotted, and no other member has it file=%s offset=%d",
            path,
            place,
        )
        return False
