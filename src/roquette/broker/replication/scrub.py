"""A member looks through its log, slowly and for ever, for what has rotted in it, and gets it from another.

That is a body that does not match its CRC, and a record whose parts do not add up or that names another place. Nothing
tells of a wrong queue, time, host, flag or property: a member that differs there may as well be the rotten one.

No read of the broker compares bodies with their CRC: a client that does gets nothing of a rotten one, and another server's
copy may be sound. Recovery and a replica that is filled compare, so this is for what has rotted since.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable
from typing import Final

from roquette.base.clock import Clock
from roquette.base.executor import submit
from roquette.base.lifecycle import Health
from roquette.base.logs import RateLimited
from roquette.errors import ClientError, StoreError
from roquette.message.record_layout import BLANK_SIZE, PHYSICAL_AT, PLACE_END
from roquette.message.record_view import BLANK, SOUND, RecordView
from roquette.remoting.client import RemotingClient
from roquette.replication.takeover import TakeOver
from roquette.store.layout import offset_name
from roquette.store.message_store import MessageStore
from roquette.wire.codes import RequestCode
from roquette.wire.header_codec import encode_ext
from roquette.wire.headers import ViewMessageRequestHeader

log = logging.getLogger("roquette.broker.replication")

PIECE: Final = 1 << 20  # bytes looked at in one go
FILES: Final = 3  # are named
PAUSE_S: Final = 2.0  # between two: some 40 GB a day, which no reader and no writer feels
UNKNOWN: Final = 0  # size of a record whose header has rotted
_CRC_AT: Final = 8
_CRC_END: Final = 12


def look_through(data: bytes, start: int, end: int) -> tuple[int, list[tuple[int, int]]]:
    """Where to go on behind a piece of the log, and the place and size of each record in it that has rotted.

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


def is_twin(own: bytes, other: bytes, place: int) -> bool:
    """Is it the same record, but for the body and its CRC, which are right in the other one?"""
    view = RecordView()
    if len(own) != len(other) or view.examine(other, 0, place, True) != SOUND:
        return False
    rest = ((0, _CRC_AT), (_CRC_END, view.body_at), (view.body_at + view.body_size, len(own)))
    return all(own[a:b] == other[a:b] for a, b in rest)


def has_its_frame(own: bytes, other: bytes, place: int) -> bool:
    """Is the other one sound, and ours the same but for its size, magic number, place and the lengths of its parts?

    Those a sound record proves, and nothing else of the header: so what else differs may be wrong in either.
    """
    view = RecordView()
    sound = view.examine(other, 0, place, True) == SOUND and view.size == len(other) == len(own)
    if not sound or own == other:
        return False
    frame = (
        (0, _CRC_AT),
        (PHYSICAL_AT, PLACE_END),
        (view.body_at - 4, view.body_at),
        (view.body_at + view.body_size, view.topic_at),
        (view.properties_at - 2, view.properties_at),
    )
    mended = bytearray(own)
    for begin, end in frame:
        mended[begin:end] = other[begin:end]
    return bytes(mended) == other


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
        if self._place == place and end < place + self._piece:  # there is no more
            self._place, self._left, self._counted = 0, self._counted, Counter()
        self._piece = PIECE if self._place != place else 2 * self._piece
        for offset, size in found:
            if await self._mend(store, offset, size) and size == UNKNOWN:
                self._place = offset  # what follows it can be read now

    async def _mend(self, store: MessageStore, place: int, size: int) -> bool:
        """The log may have been closed, cut or deleted there while the others were asked."""
        own = store.read_raw(place, size) if self._store() is store else b""
        name = offset_name(place - place % store.config.segment_size)
        path = os.path.join(store.layout.commit_log, name)
        ext = encode_ext(ViewMessageRequestHeader(offset=place))
        record = self._table.record
        places = record.places if record else {}
        for address in (known.address for who, known in places.items() if who != self._table.me):
            try:
                reply = await self._client.invoke(address, RequestCode.VIEW_MESSAGE_BY_ID, ext)
            except ClientError:
                continue
            if self._store() is not store or store.read_raw(place, size) != own:
                return False
            if size == UNKNOWN:
                right = has_its_frame(store.read_raw(place, len(reply.body)), reply.body, place)
            else:
                right = is_twin(own, reply.body, place)
            if right:
                store.restore_record(place, reply.body)
                self._mended[path] += 1
                log.warning(
                    "a rotten message was mended file=%s offset=%d from=%s", path, place, address
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
