"""Count of requests that are at work in tasks at once, and with them of jobs that wait for the executor; turns of large answers."""

import asyncio
from collections import deque
from typing import Final

from roquette.remoting.request import TASKS, Peer

OF_PEER: Final = 256  # of one connection; its further requests wait, and it is not read
# In all: from here on each connection has one, from twice as many on all is refused.
RUNNING: Final = 10_000


class Running:
    """Counts the tasks of one server's requests.

    Attributes:
        count: how many there are. full: every further request is refused.
        of_peer, most: the bounds.
    """

    def __init__(self) -> None:
        self.count = 0
        self.of_peer = OF_PEER
        self.most = RUNNING
        self.full = False

    def begin(self, peer: Peer) -> None:
        """A request of a connection has started a task."""
        self.count += 1
        peer.running += 1
        self.full = self.count >= 2 * self.most
        if not peer.crowded and (peer.running >= self.of_peer or self.count >= self.most):
            peer.crowded = True
            peer.stop_reading(TASKS)

    def end(self, peer: Peer) -> bool:
        """The task has ended; True when the connection's parked requests may run."""
        self.count -= 1
        peer.running -= 1
        self.full = self.count >= 2 * self.most
        if not peer.crowded or (
            peer.running and (self.count >= self.most or 2 * peer.running > self.of_peer)
        ):
            return False
        peer.crowded = False
        peer.read_on(TASKS)
        return True


class LargeAnswers:
    """Turns of answers that may have megabytes, and more while they are made: one is made at a time.

    Each connection has one turn after the other's, however many it waits for.
    """

    def __init__(self) -> None:
        self._at_work = False
        # By connection; the next turn is the first connection's first.
        self._waiting: dict[int, deque[asyncio.Future[None]]] = {}

    async def enter(self, peer: Peer) -> None:
        """Wait for a turn; `leave` ends it."""
        if not self._at_work:
            self._at_work = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(peer.id, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had come
                self.leave()
            raise

    def leave(self) -> None:
        """The turn is over; the next one begins."""
        while self._waiting:
            number = next(iter(self._waiting))
            line = self._waiting.pop(number)
            turn = line.popleft()
            if line:
                self._waiting[number] = line  # behind the others
            if not turn.cancelled():
                turn.set_result(None)
                return
        self._at_work = False
