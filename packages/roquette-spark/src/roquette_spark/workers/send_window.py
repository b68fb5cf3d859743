"""Work that a sender has in hand: chunks that wait, fly, or wait to be tried again. Pure.

A chunk is what one request carries. Chunks of one ordered queue fly one at a time and the next one leaves only
after the broker stored the one before: neither a broker that serves one connection with several threads
(Apache's sendMessageThreadPoolNums) nor a failure in the middle can change their order. Chunks that may go to
any queue fly side by side.

Brokers that are busy are answered with patience: the more often, the longer the pause, and fewer requests fly.
"""

import heapq
from collections import deque
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from roquette.message.message import MessageQueue
from roquette.wire.codes import ResponseCode

_FLOW_CONTROL_CODES: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL})
_FLOW_CONTROL_WORDS: Final = (
    "FLOW CONTROL",
    "FLOW_CONTROL",
    "SYSTEM BUSY",
    "SYSTEM_BUSY",
    "BROKER BUSY",
    "PCBUSY",
    "TOO_MANY_REQUESTS",
    "TOO MANY REQUESTS",
)
_CUT_INTERVAL_MS: Final = 50  # one burst of busy answers halves the window once
_GROWTH: Final = 0.25  # of the window, per request that was stored
_BUSY_PAUSE_MS: Final = 20
_BUSY_PAUSE_MAX_MS: Final = 2_000
_FAILURE_PAUSE_MS: Final = 50
_FAILURE_PAUSE_MAX_MS: Final = 5_000


def is_flow_control(code: int, remark: str | None) -> bool:
    """Return True if a refusal means "later": by its code, or by its text where an old broker says it under code 1.

    Texts: AbstractSendMessageProcessor, BrokerFastFailure, NettyRemotingAbstract.
    """
    if code in _FLOW_CONTROL_CODES:
        return True
    text = (remark or "").upper()
    return any(word in text for word in _FLOW_CONTROL_WORDS)


@dataclass(slots=True, eq=False)
class Chunk:
    """One request's messages.

    Attributes:
        queue: where it must go, in order with the other chunks of this queue; None: any queue of the topic.
        batch: whether `body` is a batch body; else it is one message's.
        properties: of the message, or what the broker adds to each message of a batch.
        first_row, rows: which messages of the caller's it carries.
        failures: attempts that the broker refused, other than by flow control.
        avoid: the broker that failed last.
        deadline_ms: when to give up; set by the first attempt.
    """

    topic: str
    queue: MessageQueue | None
    body: bytes
    properties: str
    _: KW_ONLY
    batch: bool
    first_row: int
    rows: int
    flag: int = 0
    sys_flag: int = 0
    attempts: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    avoid: str | None = field(default=None, init=False)
    deadline_ms: int = field(default=0, init=False)

    @property
    def size(self) -> int:
        """Bytes it holds in memory, roughly."""
        return len(self.body) + len(self.properties)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLimits:
    """Bounds of a window.

    Attributes:
        max_in_flight: requests without an answer, at most.
        max_chunks, max_bytes: held altogether; a chunk more is taken when one leaves.
        deadline_ms: from a chunk's first attempt until the sender gives up.
        retry_times: refused attempts that may be followed by another one; busy answers and lost connections
            do not count.
        rate: messages a second, every attempt counted; None is as fast as it goes.
    """

    max_in_flight: int = 32
    max_chunks: int = 128
    max_bytes: int = 64 << 20
    deadline_ms: int = 120_000
    retry_times: int = 16
    rate: int | None = None


class SendWindow:
    """Decides which chunk leaves when. All times are milliseconds of one clock, given by the caller."""

    def __init__(self, limits: WindowLimits) -> None:
        self._limits = limits
        self._ready: deque[Chunk] = deque()
        self._later: list[tuple[int, int, Chunk]] = []  # (due, turn, chunk)
        self._lanes: dict[
            MessageQueue, deque[Chunk]
        ] = {}  # its first chunk is ready, late or flies
        self._turn = 0
        self._held = 0
        self._held_bytes = 0
        self._allowed = float(limits.max_in_flight)
        self._last_cut_ms = -_CUT_INTERVAL_MS
        self._free_at_ms = 0.0  # by the rate
        self.in_flight = 0

    @property
    def idle(self) -> bool:
        return self._held == 0

    @property
    def full(self) -> bool:
        """True if the caller must wait before it offers more."""
        return self._held >= self._limits.max_chunks or self._held_bytes >= self._limits.max_bytes

    @property
    def allowed(self) -> int:
        """Requests that may fly at once now."""
        return max(1, int(self._allowed))

    def offer(self, chunk: Chunk) -> None:
        """Take a chunk; of one queue, in the order they must be stored."""
        self._held += 1
        self._held_bytes += chunk.size
        if chunk.queue is not None:
            lane = self._lanes.setdefault(chunk.queue, deque())
            lane.append(chunk)
            if len(lane) > 1:
                return
        self._ready.append(chunk)

    def take(self, now_ms: int) -> Chunk | None:
        """A chunk to send now; it flies until `stored` or `failed` is called with it."""
        while self._later and self._later[0][0] <= now_ms:
            self._ready.append(heapq.heappop(self._later)[2])
        if not self._ready or self.in_flight >= self.allowed or self._free_at_ms > now_ms:
            return None
        chunk = self._ready.popleft()
        chunk.attempts += 1
        if chunk.attempts == 1:
            chunk.deadline_ms = now_ms + self._limits.deadline_ms
        self.in_flight += 1
        if self._limits.rate is not None:
            self._free_at_ms = (
                max(self._free_at_ms, float(now_ms)) + chunk.rows * 1000 / self._limits.rate
            )
        return chunk

    def stored(self, chunk: Chunk) -> None:
        """The broker has it: the next of its queue may go."""
        self.in_flight -= 1
        self._held -= 1
        self._held_bytes -= chunk.size
        self._allowed = min(float(self._limits.max_in_flight), self._allowed + _GROWTH)
        if chunk.queue is not None:
            lane = self._lanes[chunk.queue]
            lane.popleft()
            if lane:
                self._ready.append(lane[0])
            else:
                del self._lanes[chunk.queue]

    def failed(
        self, chunk: Chunk, now_ms: int, *, busy: bool, refused: bool = False, jitter: float
    ) -> bool:
        """An attempt failed: False when it was the last one, else the chunk comes again after a pause.

        Args:
            busy: the broker asked for patience; as with lost connections, only the deadline ends that.
            refused: the broker answered with another error: `retry_times` ends that, too.
            jitter: 0..1, so that tasks do not come back together.
        """
        self.in_flight -= 1
        if busy:
            pause = min(_BUSY_PAUSE_MAX_MS, _BUSY_PAUSE_MS << min(chunk.attempts - 1, 10))
            if now_ms - self._last_cut_ms >= _CUT_INTERVAL_MS:
                self._last_cut_ms = now_ms
                self._allowed = max(1.0, self._allowed / 2)
        else:
            chunk.failures += refused
            if chunk.failures > self._limits.retry_times:
                return False
            pause = min(_FAILURE_PAUSE_MAX_MS, _FAILURE_PAUSE_MS << min(chunk.attempts - 1, 10))
        due = now_ms + int(pause * (0.5 + jitter / 2))
        if due >= chunk.deadline_ms:
            return False
        self._turn += 1
        heapq.heappush(self._later, (due, self._turn, chunk))
        return True

    def wake_ms(self, now_ms: int) -> int | None:
        """Return the time when `take` may have something without an answer coming first; None: only after an answer."""
        if self.in_flight >= self.allowed:
            return None
        due = now_ms if self._ready else self._later[0][0] if self._later else None
        if due is None:
            return None
        return max(due, int(self._free_at_ms + 0.999))
