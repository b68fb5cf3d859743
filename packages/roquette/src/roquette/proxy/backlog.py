"""Memory of its server that a gRPC connection keeps, and whether its peer goes on taking its answers. HOT."""

from typing import Final

from roquette.remoting.dispatcher import Dispatcher
from roquette.remoting.request import ANSWERS, Peer
from roquette.remoting.unfinished import SLOWEST
from roquette.wire.http2 import Http2Limits

CALL: Final = 2_048  # bytes of an open call, or of one whose answer waits, beside its message
STALLED_S: Final = 60.0  # a peer may move less than `SLOWEST` bytes a second of its answers so long


class Backlog:
    """Of one connection.

    Attributes:
        stalled: the peer leaves too much unread, so that its further requests wait.
    """

    __slots__ = (
        "_answers", "_counted", "_dispatcher", "_limits", "_looked_s", "_moved", "_peer", "_said", "stalled",
    )  # fmt: skip

    def __init__(self, dispatcher: Dispatcher, peer: Peer, limits: Http2Limits) -> None:
        self._dispatcher: Dispatcher = dispatcher
        self._peer: Peer = peer
        self._limits: Http2Limits = limits
        self._counted: int = 0
        self._looked_s: float = 0.0
        self._moved: int = 0  # bytes of answers it had taken then
        self._said: int = 0  # bytes of answers' bodies so far
        self._answers: int = 0  # that may wait
        self.stalled: bool = False

    def add_answer(self, size: int) -> None:
        """An answer, or a part of one, is on its way."""
        self._said += size
        self._answers += 1

    def measure(self, calls: int, held: int, queued: int) -> bool:
        """Measure what is kept at the end of a turn; True when the peer leaves so much unread that it is cut.

        Args:
            calls: open ones; `held`: bytes of their messages. queued: bytes of answers that wait for its windows.
        """
        if not queued:
            self._answers = 0
        answers: int = min(self._answers, self._limits.streams)
        more: int = CALL * (calls + answers) + held + queued - self._counted
        if more:
            self._counted += more
            if more > 0:
                self._dispatcher.limits.account.take(self._peer, more)
            else:
                self._dispatcher.limits.account.give(self._peer, -more)
        limits = self._limits
        if self.stalled:
            if queued <= limits.queued // 2:
                self.stalled = False
                self.resume()
        elif queued > limits.queued:
            self.stalled = True
            self._looked_s = self._dispatcher.loop.time()
            self._moved = self._said - queued
            self._dispatcher.pause(self._peer)
        return queued > limits.queued_most

    def resume(self) -> None:
        """One of the two reasons is gone for which requests wait, `stalled` and a full transport: they go on if it was the only one."""
        if not (self.stalled or self._peer.unread & ANSWERS):
            self._dispatcher.resume(self._peer)

    def is_late(self, queued: int, now_s: float) -> bool:
        """Return True when a stalled peer has taken too little for too long, whatever else it sends, or keeps more than its share
        where all together keep too much."""
        if not self.stalled:
            return False
        account = self._dispatcher.limits.account
        if account.total > account.most and self._peer.kept > account.share():
            return True
        if now_s - self._looked_s < STALLED_S:
            return False
        moved: int = self._said - queued
        late = moved - self._moved < SLOWEST * (now_s - self._looked_s)
        self._looked_s = now_s
        self._moved = moved
        return late
