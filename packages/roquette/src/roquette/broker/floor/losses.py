"""What retention takes that a group has not read: counted by group, and said in the log."""

import logging
from typing import Final

from roquette.broker.floor.stats import BrokerStats
from roquette.broker.floor.steps import paced
from roquette.broker.floor.tables.offsets import OffsetTable
from roquette.message.names import is_users_group
from roquette.store.message_store import MessageStore

log = logging.getLogger("roquette.broker")

_NAMED: Final = 20  # pairs of topic and group in the log, of one deletion


class Losses:
    """Compares where groups go on with where queues begin, after each deletion of files of the log."""

    def __init__(self, store: MessageStore, offsets: OffsetTable, stats: BrokerStats) -> None:
        self._store = store
        self._offsets = offsets
        self._stats = stats
        self._known: dict[tuple[str, int], int] = {}  # where queues began that a group was behind

    async def begin(self) -> None:
        """What is gone at the start of the broker was counted before, or never is."""
        await self._look()

    async def count(self) -> None:
        """Files were just taken out of the log: no offset has moved since."""
        lost = sorted((await self._look()).items(), key=lambda entry: -entry[1])
        for (topic, group), number in lost:
            self._stats.lost(topic, group, number)
        for (topic, group), number in lost[:_NAMED]:
            log.warning(
                "deleted before it was read topic=%s group=%s messages=%d", topic, group, number
            )
        if len(lost) > _NAMED:
            log.warning("deleted before it was read by %d more groups", len(lost) - _NAMED)

    async def _look(self) -> dict[tuple[str, str], int]:
        store, known, lost = self._store, self._known, dict[tuple[str, str], int]()
        self._known = {}
        picture = self._offsets.to_wrapper(with_resets=False).offset_table  # groups read on
        async for key, places in paced(picture.items()):
            topic, _, group = key.partition("@")
            for queue, place in places.items() if is_users_group(group) else ():
                if place >= store.max_offset(topic, queue):
                    continue
                first = store.min_offset(topic, queue)
                if place < first:
                    self._known[topic, queue] = first
                    number = first - max(place, known.get((topic, queue), 0))
                    if number > 0:
                        lost[topic, group] = lost.get((topic, group), 0) + number
        return lost
