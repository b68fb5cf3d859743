"""Offsets of a push consumer's group: kept by brokers, broadcasting in a local file, or by the application.

Apache: RemoteBrokerOffsetStore, LocalFileOffsetStore, RebalancePushImpl.computePullFromWhere.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from roquette.base.executor import run_blocking
from roquette.client import calls
from roquette.client.consumer_options import OffsetStore, StartFrom, outcome
from roquette.client.core.namespace import Namespace
from roquette.client.core.process_queue import LocalOffsetFile, ProcessQueue, two_waves
from roquette.client.session import Session
from roquette.errors import ClientError
from roquette.message.message import MessageQueue
from roquette.message.names import RETRY_PREFIX

log = logging.getLogger("roquette.client")

TOLD_MS: Final = 300  # a pull that is so old has told its offset, or been answered


class MemberOffsets:
    """Offsets of one member of a group.

    Args:
        start_from: where a group without an offset begins; a number is a time (ms).
        local: the file of a broadcasting consumer; None: brokers keep the offsets.
        own: the application's store, in the place of both.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        start_from: StartFrom | int,
        local: LocalOffsetFile | None,
        own: OffsetStore | None = None,
    ) -> None:
        self._session = session
        self._group = group
        self._start_from = start_from
        self._local = local if own is None else None
        self._own = None if own is None else _Own(own, session.namespace, group)
        self._saved: dict[MessageQueue, int] = {}
        self._begun: set[tuple[str, str]] = (
            set()
        )  # (broker, topic): the group's first offset is stored
        self._saving = asyncio.Lock()  # brokers may work on two commits of a queue in any order

    async def load(self) -> None:
        """Read the local file, if there is one."""
        if self._local is not None:
            self._saved = await run_blocking(self._local.load)

    async def begin_at(self, queue: MessageQueue) -> int:
        """The offset to begin with. Raises ClientError."""
        stored: int | None
        if self._own is not None:
            stored = await self._own.load(queue)
        elif self._local is not None:
            stored = self._saved.get(queue)
        else:
            zero_if_new = isinstance(self._start_from, StartFrom)
            call = calls.committed_offset(self._group, queue, zero_if_new=zero_if_new)
            stored = await self._session.api.call(self._session.master_of(queue), call)
        return await self._first(queue) if stored is None else stored

    async def _first(self, queue: MessageQueue) -> int:
        start = self._start_from
        retrying = queue.topic.startswith(RETRY_PREFIX)
        if start is StartFrom.FIRST or (start is StartFrom.LAST and retrying):
            return 0
        if isinstance(start, StartFrom) or retrying:
            call = calls.max_offset(queue)
        else:
            call = calls.offset_by_time(queue, start)
        return await self._session.api.call(self._session.master_of(queue), call)

    async def save_changed(self, states: Iterable[ProcessQueue]) -> bool:
        """Save the offsets that changed since the last time; False when a broker did not take one, which is logged."""
        return await self.save([s for s in states if self._saved.get(s.queue) != s.committable()])

    async def save(self, states: Iterable[ProcessQueue]) -> bool:
        """Save the offsets of queues; False when a broker did not take one, which is logged.

        Who gives up queues saves them even if they were saved before: of two first commits of a group,
        one of them on a pull, an Apache broker may have kept one (see `two_waves`).
        """
        async with self._saving:
            by_queue = {state.queue: state for state in states}
            if self._own is not None or self._local is not None:
                offsets = {queue: state.committable() for queue, state in by_queue.items()}
                if self._own is not None and not await self._own.save(offsets):
                    return False
                self._saved |= offsets
                if self._local is not None and offsets:
                    await run_blocking(self._local.save, dict(self._saved))
                return True
            first, rest = two_waves(by_queue)
            answers = await asyncio.gather(*[self._commit(by_queue[q]) for q in first])
            self._begun |= {(q.broker_name, q.topic) for q, took in zip(first, answers) if took}
            rest = [q for q in rest if (q.broker_name, q.topic) in self._begun]
            more = await asyncio.gather(*[self._commit(by_queue[q]) for q in rest])
            return all(answers) and all(more) and len(first) + len(rest) == len(by_queue)

    async def ahead(self, states: Iterable[ProcessQueue]) -> list[ProcessQueue]:
        """Of queues that others may work on already those whose saved offsets are not beyond ours."""
        if self._local is not None:
            return list(states)
        found = []
        for state in states:
            try:
                if self._own is not None:
                    saved = await self._own.load(state.queue)
                else:
                    address = self._session.master_of(state.queue)
                    call = calls.committed_offset(self._group, state.queue)
                    saved = await self._session.api.call(address, call)
            except ClientError:
                continue
            if saved is None or saved <= state.committable():
                found.append(state)
        return found

    async def _commit(self, state: ProcessQueue) -> bool:
        """The offset is read here: a pull may have told the broker of a later one since the save began."""
        if state.dropped:
            await self._told(state)
        session, queue, offset = self._session, state.queue, state.committable()
        try:
            call = calls.commit(self._group, queue, offset)
            await session.api.call(session.master_of(queue), call)
        except ClientError as error:
            session.noise.warning(
                f"commit-{queue.broker_name}", "commit failed queue=%s error=%s", queue, error
            )
            return False
        self._saved[queue] = offset
        return True

    async def _told(self, state: ProcessQueue) -> None:
        """Wait for a pull that tells of less: Apache's broker has threads for pulls and others for commits.

        It stores a pull's offset before it holds the pull, so one that is old tells nothing any more.
        """
        clock = self._session.clock
        while (pull := state.telling) is not None and pull.offset < state.committable():
            if clock.steady_ms() - pull.since_ms >= TOLD_MS:
                return
            await asyncio.sleep(0.01)


class _Own:
    """The application's store, asked in the application's names."""

    def __init__(self, store: OffsetStore, namespace: Namespace, group: str) -> None:
        self._store = store
        self._queue = namespace.shown_queue
        self._group = namespace.shown(group)

    async def load(self, queue: MessageQueue) -> int | None:
        """Load the offset the group goes on from. Raises ClientError: the store failed, or gave what is no offset."""
        try:
            stored = await outcome(self._store.load(self._group, self._queue(queue)))
        except Exception as error:
            raise ClientError(f"the offset store's load failed: {error!r}") from error
        if stored is None or (type(stored) is int and stored >= 0):
            return stored
        raise ClientError(f"the offset store's load gave {stored!r:.80}, which is no offset")

    async def save(self, offsets: Mapping[MessageQueue, int]) -> bool:
        """Keep offsets; False when the store failed."""
        if not offsets:
            return True
        try:
            shown = {self._queue(queue): offset for queue, offset in offsets.items()}
            await outcome(self._store.save(self._group, shown))
        except Exception as error:  # noqa: BLE001 - the application's
            log.warning("offset store failed group=%s error=%r", self._group, error)
            return False
        return True
