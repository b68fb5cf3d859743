"""Account of the bytes that a server keeps for its peers: of each, and in all. HOT.

Whatever outlives the turn that brought it draws from here: unfinished frames, answers that are not taken, requests that
wait, calls of gRPC that are open. Who keeps too much is not read until half of it is gone: the peer's own network tells it
to go slower, and nobody is refused.
"""

import sys
from typing import Any, Final

import msgspec

from roquette.remoting.outcomes import Later
from roquette.remoting.request import BYTES, Peer, RequestContext

WAITING: Final = 1_024  # bytes of a request that waits, beside what it says
LITTLE: Final = 65_536  # bytes: who keeps no more is read, whatever the others do
USUAL: Final = (
    4_096  # bytes of fields; of more than that perhaps most is nothing that a header knows
)
_NOTHING: Final = msgspec.Raw(b"{}")


class MemoryAccount:
    """Account of the bytes that one server keeps.

    Args:
        most: bytes in all. A peer may keep a quarter; where all together keep more than that, an equal share.

    Attributes:
        total: bytes kept now. holders: peers that keep more than a little.
    """

    __slots__ = ("holders", "most", "total")

    def __init__(self, most: int = 512 << 20) -> None:
        self.most: int = most
        self.total: int = 0
        self.holders: int = 0

    def share(self) -> int:
        """Bytes that one peer may keep now."""
        most: int = self.most // 4
        if self.total <= self.most:
            return most
        return max(LITTLE, min(most, self.most // max(1, self.holders)))

    def take(self, peer: Peer, size: int) -> None:
        """`size` bytes more are kept for a peer."""
        before: int = peer.kept
        peer.kept = before + size
        self.total += size
        if before <= LITTLE < before + size:
            self.holders += 1
        if before + size > LITTLE and before + size > self.share():
            peer.stop_reading(BYTES)

    def give(self, peer: Peer, size: int) -> None:
        """`size` bytes of those are gone."""
        before: int = peer.kept
        peer.kept = before - size
        self.total -= size
        if before - size <= LITTLE < before:
            self.holders -= 1
        if peer.unread & BYTES:
            self.look(peer)

    def look(self, peer: Peer) -> None:
        """Read a peer again that keeps half of its share, or little."""
        if peer.kept <= max(LITTLE, self.share() // 2):
            peer.read_on(BYTES)

    def keep(self, job: RequestContext) -> None:
        """A request waits with all that it says."""
        command = job.command
        self._count(job, 2 * len(command.ext) + len(command.body))

    def work(self, job: RequestContext) -> None:
        """A request is at work in a task, which may have all that it says."""
        self.keep(job)
        job.command.body = b""

    def hold(self, job: RequestContext) -> None:
        """A request waits, and of what it says only its header is needed."""
        if not job.said:
            size: int = len(job.command.ext)
            job.said = 2 * size if size <= USUAL else _size_of(job.header)
        self._drop(job, job.said)

    def promise(self, job: RequestContext, later: Later) -> None:
        """A request is done, its reply waits: of the request nothing is needed."""
        body = later.reply.body
        size: int = len(later.reply.ext)
        if isinstance(body, list):
            size += sum([len(part) for part in body])
        elif body is not None:
            size += len(body)
        later.size = len(job.command.body)
        job.header = None
        self._drop(job, size)

    def _drop(self, job: RequestContext, size: int) -> None:
        job.command.ext, job.command.body = _NOTHING, b""
        self._count(job, size)

    def _count(self, job: RequestContext, size: int) -> None:
        more: int = WAITING + size - job.kept
        job.kept += more
        self.take(job.peer, more)

    def release(self, job: RequestContext) -> None:
        """A request waits no more."""
        size: int = job.kept
        job.kept = 0
        self.give(job.peer, size)


def _size_of(header: Any) -> int:
    """Bytes of a header's fields."""
    if header is None:
        return 0
    return sum([sys.getsizeof(getattr(header, name)) for name in header.__struct_fields__])
