"""Pulls that wait for messages. Pure: arrivals and time come in, due pulls go out. HOT.

Apache: PullRequestHoldService. There a thread looks at every held pull each 5 s; here a pull is held in the
turn in which it found nothing, so no arrival can be missed, and `behind` exists for one purpose: a reader whose
tags match nothing is sent on, so that its offset follows the queue.
"""

import heapq
from collections.abc import Callable

from mypy_extensions import i64

from roquette.remoting.request import RequestContext
from roquette.store.queue_read import Predicate


class HeldPull:
    """One waiting pull: what wakes it, and the request (`job`) to run again."""

    __slots__ = (
        "codes",
        "deadline_ms",
        "done",
        "job",
        "predicate",
        "queue_id",
        "queue_offset",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        codes: frozenset[int] | None,
        deadline_ms: int,
        predicate: Predicate | None = None,
    ) -> None:
        self.topic: str = topic
        self.queue_id: int = queue_id
        self.queue_offset: int = queue_offset
        self.codes: frozenset[int] | None = codes  # hashes of wanted tags, None: every message
        self.predicate: Predicate | None = predicate  # asked about a message's properties
        self.deadline_ms: int = deadline_ms
        self.job: RequestContext | None = None
        self.done: bool = False

    def drop(self) -> None:
        """Nobody wants its answer any more: it takes nothing with it, and leaves when it is due."""


class HoldTable:
    """Held pulls by topic and queue, at most `capacity`; a full table refuses and the caller answers at once.

    Args:
        properties_at: property bytes of a record by its physical offset and size, for pulls with a
            predicate; without it every message may be one they want.
    """

    __slots__ = (
        "_by_queue",
        "_capacity",
        "_count",
        "_deadlines",
        "_properties_at",
        "_sequence",
    )

    def __init__(
        self, capacity: int, properties_at: Callable[[int, int], bytes] | None = None
    ) -> None:
        self._properties_at: Callable[[int, int], bytes] | None = properties_at
        self._capacity: int = capacity
        self._count: int = 0
        self._by_queue: dict[tuple[str, int], list[HeldPull]] = {}
        self._deadlines: list[tuple[int, int, HeldPull]] = []
        self._sequence: int = 0

    def __len__(self) -> int:
        return self._count

    def hold(self, pull: HeldPull) -> bool:
        """Keep a pull until it is due; False when the table is full."""
        if self._count >= self._capacity:
            return False
        self._count += 1
        self._sequence += 1
        key = (pull.topic, pull.queue_id)
        held = self._by_queue.get(key)
        if held is None:
            self._by_queue[key] = [pull]
        else:
            held.append(pull)
        heapq.heappush(self._deadlines, (pull.deadline_ms, self._sequence, pull))
        if (
            len(self._deadlines) > 2 * self._count + 1_000
        ):  # woken pulls leave their deadline behind
            self._deadlines = [entry for entry in self._deadlines if not entry[2].done]
            heapq.heapify(self._deadlines)
        return True

    def on_arrival(
        self,
        topic: str,
        queue_id: int,
        queue_offset: i64,
        tags_code: i64,
        physical_offset: i64 = -1,
        size: i64 = 0,
    ) -> list[HeldPull]:
        """A message is in the queue: the pulls that want it. Where its record is, is for predicates."""
        key = (topic, queue_id)
        held = self._by_queue.get(key)
        if held is None:
            return []
        due: list[HeldPull] = []
        kept: list[HeldPull] = []
        properties: bytes | None = None
        for pull in held:
            wanted = pull.codes is None or int(tags_code) in pull.codes
            if pull.predicate is not None and self._properties_at is not None:
                if properties is None:  # read once, whoever asks
                    properties = self._properties_at(physical_offset, size)
                wanted = pull.predicate.matches(properties)
            if wanted and queue_offset >= pull.queue_offset:
                pull.done = True
                due.append(pull)
            else:
                kept.append(pull)
        self._keep(topic, queue_id, kept)
        self._count -= len(due)
        return due

    def expire(self, now_ms: int) -> list[HeldPull]:
        """The pulls whose time is over, oldest deadline first."""
        due: list[HeldPull] = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            pull = heapq.heappop(self._deadlines)[2]
            if not pull.done:
                pull.done = True
                due.append(pull)
        for pull in due:
            held = self._by_queue[pull.topic, pull.queue_id]
            self._keep(pull.topic, pull.queue_id, [other for other in held if other is not pull])
        self._count -= len(due)
        return due

    def take(self, topic: str, wanted: Callable[[HeldPull], bool]) -> list[HeldPull]:
        """The pulls of a topic that are wanted out, of all its queues: an operator changed what they wait for."""
        due: list[HeldPull] = []
        for key in [key for key in self._by_queue if key[0] == topic]:
            kept: list[HeldPull] = []
            for pull in self._by_queue[key]:
                if wanted(pull):
                    pull.done = True
                    due.append(pull)
                else:
                    kept.append(pull)
            self._keep(key[0], key[1], kept)
        self._count -= len(due)
        return due

    def behind(self, max_offset: Callable[[str, int], int]) -> list[HeldPull]:
        """The pulls whose queue has moved past them without a match (checkHoldRequest, each 5 s)."""
        due: list[HeldPull] = []
        for key in list(self._by_queue):
            newest = max_offset(key[0], key[1])
            kept: list[HeldPull] = []
            for pull in self._by_queue[key]:
                if newest > pull.queue_offset:
                    pull.done = True
                    due.append(pull)
                else:
                    kept.append(pull)
            self._keep(key[0], key[1], kept)
        self._count -= len(due)
        return due

    def drain(self) -> list[HeldPull]:
        """Every held pull: the broker stops."""
        due: list[HeldPull] = []
        for held in self._by_queue.values():
            for pull in held:
                pull.done = True
                due.append(pull)
        self._by_queue = {}
        self._deadlines = []
        self._count = 0
        return due

    def _keep(self, topic: str, queue_id: int, kept: list[HeldPull]) -> None:
        key = (topic, queue_id)
        if kept:
            self._by_queue[key] = kept
        else:
            del self._by_queue[key]
