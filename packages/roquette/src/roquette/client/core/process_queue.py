"""Messages of one queue that a consumer holds and works on, and the offset that may be committed. Pure."""

import heapq
from collections import deque
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from roquette.base.files import Files
from roquette.client.core.route_cache import BROKERS, keep
from roquette.errors import RemoteProtocolError
from roquette.message.message import MessageQueue, ReceivedMessage
from roquette.wire.bodies import ConsumeStatus, LocalOffsets
from roquette.wire.json_body import decode_body, fastjson_pretty


class Prefetch:
    """Bytes of bodies that a client has pulled and not handled, over all its queues."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class Telling(NamedTuple):
    """What a pull that is not answered tells the broker: the offset to commit, and since when (ms, steady)."""

    offset: int
    since_ms: int


class ProcessQueue:
    """Bookkeeping of one assigned queue (Apache: ProcessQueue).

    The offset to commit is the smallest unfinished one, or the next to pull when all are finished.
    """

    __slots__ = (
        "_first",
        "_heap",
        "_prefetch",
        "_unfinished",
        "count",
        "dropped",
        "finished_to",
        "last_pull_ms",
        "locked",
        "next_offset",
        "queue",
        "size",
        "telling",
    )

    def __init__(
        self, queue: MessageQueue, next_offset: int, prefetch: Prefetch | None = None
    ) -> None:
        self.queue = queue
        self._first = next_offset
        self._prefetch = prefetch or Prefetch(0)
        self.next_offset = next_offset
        self.finished_to = -1  # the largest offset that is finished
        self.count = 0
        self.size = 0
        self.dropped = False
        self.locked = False
        self.last_pull_ms = 0
        self.telling: Telling | None = None
        self._unfinished: dict[int, int] = {}  # queue offset -> body size
        self._heap: list[int] = []

    def take(self, messages: Iterable[ReceivedMessage], next_offset: int) -> None:
        """Remember what was pulled; `next_offset` is where the next pull begins."""
        for message in messages:
            offset = message.queue_offset
            if offset not in self._unfinished:
                self._unfinished[offset] = len(message.body)
                heapq.heappush(self._heap, offset)
                self.count += 1
                self.size += len(message.body)
                if not self.dropped:
                    self._prefetch.used += len(message.body)
        self.next_offset = next_offset

    def finish(self, message: ReceivedMessage) -> None:
        """A message was consumed, or handed back to the broker."""
        size = self._unfinished.pop(message.queue_offset, None)
        if size is not None:
            self.count -= 1
            self.finished_to = max(self.finished_to, message.queue_offset)
            self.size -= size
            if not self.dropped:
                self._prefetch.used -= size

    def drop(self) -> None:
        """Given up: what is still in work counts for whoever has the queue next."""
        if not self.dropped:
            self.dropped = True
            self._prefetch.used -= self.size

    def must_wait(self) -> bool:
        """Return True when the client has pulled enough: a queue with nothing in work may pull all the same."""
        return self.size > 0 and self._prefetch.used > self._prefetch.limit

    def committable(self) -> int:
        """The offset from which a successor must continue."""
        while self._heap and self._heap[0] not in self._unfinished:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else self.next_offset

    def moved(self) -> bool:
        """Return True when there is more to commit than where we began."""
        return self.committable() != self._first

    def span(self) -> int:
        """Distance from the oldest unfinished offset to the newest pulled one."""
        return max(0, self.next_offset - self.committable())


# Offsets a consumer saves: in which order to a broker, and, broadcasting, in the file Apache's client would keep.


class LocalOffsetFile:
    """`<root>/<client id>/<group>/offsets.json` (LocalFileOffsetStore)."""

    def __init__(self, files: Files, root: str, client_id: str, group: str) -> None:
        self._files = files
        self._directory = f"{root}/{client_id}/{group}"
        self._path = f"{self._directory}/offsets.json"

    def load(self) -> dict[MessageQueue, int]:
        """Read the offsets that were saved; the backup when the file is torn; nothing when there is neither."""
        for path in (self._path, self._path + ".bak"):
            if self._files.exists(path):
                try:
                    return decode_body(LocalOffsets, self._files.read_bytes(path)).offset_table
                except RemoteProtocolError:
                    continue
        return {}

    def save(self, offsets: dict[MessageQueue, int]) -> None:
        """Replace the file, keeping the previous one as a backup."""
        self._files.make_dirs(self._directory)
        self._files.write_atomic(self._path, fastjson_pretty(LocalOffsets(offset_table=offsets)))


def two_waves(queues: Collection[MessageQueue]) -> tuple[list[MessageQueue], list[MessageQueue]]:
    """The order to commit in: one queue of each topic at each broker, and when those are stored the rest.

    Apache's broker makes a group's table of a topic with the first offset it gets, without a lock: of two
    first commits at the same time one is lost, though answered (ConsumerOffsetManager.commitOffset).
    """
    first = {(queue.broker_name, queue.topic): queue for queue in queues}
    alone = set(first.values())
    return list(first.values()), [queue for queue in queues if queue not in alone]


# Rates at which a consumer pulls and handles each topic, for operators. Pure.
# Apache: ConsumerStatsManager, StatsItem: a sample every ten seconds and one every ten minutes, seven of each.


SAMPLE_S: Final = 10.0
_KEPT: Final = 7  # a minute of samples; an hour of the rarer ones
_RARER: Final = 60  # every so many samples one is kept for an hour


class _Sample(NamedTuple):
    """Sums since the consumer began. Times are milliseconds."""

    at_ms: int
    pulls: int
    pull_ms: int
    pulled: int
    calls: int
    call_ms: int
    done: int
    failed: int


class _Topic:
    """The sums of one topic, and what they were."""

    def __init__(self) -> None:
        self.pulls = self.pull_ms = self.pulled = 0
        self.calls = self.call_ms = self.done = self.failed = 0
        self.minute: deque[_Sample] = deque(maxlen=_KEPT)
        self.hour: deque[_Sample] = deque(maxlen=_KEPT)

    def now(self, at_ms: int) -> _Sample:
        return _Sample(
            at_ms,
            self.pulls,
            self.pull_ms,
            self.pulled,
            self.calls,
            self.call_ms,
            self.done,
            self.failed,
        )


class ConsumeRates:
    """Counts per topic; `sample` is called every `SAMPLE_S`.

    Args:
        topics: those the consumer subscribes, that of its retries among them.
    """

    def __init__(self, topics: Iterable[str], now_ms: int) -> None:
        self._topics = {topic: _Topic() for topic in topics}
        self._samples = 0
        self.sample(now_ms)

    def pulled(self, topic: str, count: int, took_ms: int) -> None:
        """A pull brought `count` messages; `took_ms`: with the time the broker held it."""
        sums = self._topics[topic]
        sums.pulls += 1
        sums.pull_ms += took_ms
        sums.pulled += count

    def handled(self, topic: str, done: int, failed: int, took_ms: int) -> None:
        """A call of a handler ended: so many of its messages are done, and so many are not."""
        sums = self._topics[topic]
        sums.calls += 1
        sums.call_ms += took_ms
        sums.done += done
        sums.failed += failed

    def sample(self, now_ms: int) -> None:
        """Remember the sums of now; `now_ms` is of a clock that never goes back."""
        for sums in self._topics.values():
            sample = sums.now(now_ms)
            sums.minute.append(sample)
            if self._samples % _RARER == 0:
                sums.hour.append(sample)
        self._samples += 1

    def status(self, topic: str) -> ConsumeStatus:
        """Rates of the last minute, per second and in milliseconds a call; failures of the last hour, up to now.

        When nothing was handled within the minute, `consume_rt` is that of the hour, as Java's client tells it.
        """
        sums = self._topics[topic]
        first, last = sums.minute[0], sums.minute[-1]
        hour = sums.hour[0]
        seconds = (last.at_ms - first.at_ms) / 1_000
        consume_rt = _mean(last.call_ms - first.call_ms, last.calls - first.calls)
        return ConsumeStatus(
            pull_rt=_mean(last.pull_ms - first.pull_ms, last.pulls - first.pulls),
            pull_tps=_mean(last.pulled - first.pulled, seconds),
            consume_rt=consume_rt or _mean(sums.call_ms - hour.call_ms, sums.calls - hour.calls),
            consume_ok_tps=_mean(last.done - first.done, seconds),
            consume_failed_tps=_mean(last.failed - first.failed, seconds),
            consume_failed_msgs=sums.failed - hour.failed,
        )


def _mean(total: float, number: float) -> float:
    return total / number if number else 0.0


# Time that messages have waited at their brokers, whatever the clocks of this machine and of the brokers show. Pure.


WINDOW_MS: Final = 60_000


class Waits:
    """By broker name: what separates its clock from our steady one, as messages show that hardly waited.

    A message's time of storing is the broker's, the time of its arrival ours. Their difference is the message's wait
    and a constant that the two clocks make; the least difference of the last one or two minutes stands for the
    constant. So a wait is never over-estimated, but for as long when a broker's clock is set back; it is
    under-estimated while all messages are old, as at first when a queue has filled up.
    """

    def __init__(self) -> None:
        self._least: dict[str, tuple[int, int, int]] = {}

    def waited_ms(self, broker_name: str, stored_ms: int, steady_ms: int) -> int:
        """Return how long a message that comes now has waited, ms; 0 for the first one of a broker."""
        age = steady_ms - stored_ms
        began, least, before = self._least.get(broker_name, (steady_ms, age, age))
        if steady_ms - began >= WINDOW_MS:
            before = least if steady_ms - began < 2 * WINDOW_MS else age
            began, least = steady_ms, age
        least = min(least, age)
        keep(self._least, broker_name, (began, least, before), BROKERS)
        return age - min(least, before)
