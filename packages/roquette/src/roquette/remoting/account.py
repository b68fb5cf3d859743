"""Account of the bytes that a server keeps for its peers: of each, and in all. HOT.

Whatever outlives the turn that brought it draws from here: unfinished frames, answers that are not taken, requests that
wait, calls of gRPC that are open. Who keeps too much is not read until half of it is gone: the peer's own network tells it
to go slower, and nobody is refused.
"""

import sys
from typing import Any, Final

from roquette.base.logs import RateLimited
from roquette.remoting.request import BYTES, Later, Peer, RequestContext, Unfinished

WAITING: Final = 1_024  # bytes of a request that waits, beside what it says
LITTLE: Final = 65_536  # bytes: who keeps no more is read, whatever the others do
USUAL: Final = (
    4_096  # bytes of fields; of more than that perhaps most is nothing that a header knows
)
_NOTHING: Final = b"{}"


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
        self._count(job, 2 * command.ext_size + len(command.body))

    def work(self, job: RequestContext) -> None:
        """A request is at work in a task, which may have all that it says."""
        self.keep(job)
        job.command.body = b""

    def hold(self, job: RequestContext) -> None:
        """A request waits, and of what it says only its header is needed."""
        if not job.header_bytes:
            size: int = job.command.ext_size
            job.header_bytes = 2 * size if size <= USUAL else _size_of(job.header)
        self._drop(job, job.header_bytes)

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
        job.command.fields = None
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


# Peers in the middle of something: what they hold of our memory, and whether they go on. HOT.
# Two of these tables belong to a server: frames that have not arrived whole, and answers that have not been taken. Both have the same two rules. A peer goes on as long as it moves `SLOWEST` bytes a second, looked at once in `timeout_s`; one that does not is cut (Apache's httpd: mod_reqtimeout's MinRate). And all peers together have `limit` bytes; beyond it, the one that began first is given up: a peer that is served well is soon done, so those that hoard go before those that work.


SLOWEST: Final = 1_024  # bytes a second
JOIN_BELOW: Final = 65_536  # bytes: smaller writes are joined, larger ones handed over in pieces


class UnfinishedTable:
    """Table of what all peers of one server have not finished, those that began first coming first.

    Args:
        timeout_s: how long a peer may move less than `SLOWEST` bytes a second.
        limit: bytes of all together, which count in `account`, too.
    """

    __slots__ = ("_account", "_entries", "limit", "timeout_s", "total")

    def __init__(self, timeout_s: float, limit: int, account: MemoryAccount) -> None:
        self._account: MemoryAccount = account
        self.timeout_s: float = timeout_s
        self.limit: int = limit
        self.total: int = 0
        self._entries: dict[Peer, Unfinished] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self, peer: Peer, now_s: float) -> Unfinished:
        """`peer` has something unfinished from now on, and nothing else."""
        self.end(peer)
        entry = Unfinished(peer, now_s)
        self._entries[peer] = entry
        return entry

    def resize(self, entry: Unfinished, size: int) -> bool:
        """Count another size; whether all together are too much now."""
        more: int = size - entry.size
        self.total += more
        entry.size = size
        if more > 0:
            self._account.take(entry.peer, more)
        elif more:
            self._account.give(entry.peer, -more)
        return self.total > self.limit

    def end(self, peer: Peer) -> None:
        """`peer` has finished, or is gone."""
        entry = self._entries.pop(peer, None)
        if entry is not None:
            self.resize(entry, 0)

    def goal(self) -> int:
        """Return the bytes that `total` is brought down to once it was too much."""
        return self.limit - self.limit // 8

    def entries(self) -> list[Unfinished]:
        """All, those that began first coming first."""
        return list(self._entries.values())

    def is_late(self, entry: Unfinished, now_s: float) -> bool:
        """Return True when a peer has moved too little for too long; begin the next look when one is over."""
        if now_s - entry.looked_s < self.timeout_s:
            return False
        late = entry.moved - entry.moved_then < SLOWEST * (now_s - entry.looked_s)
        entry.looked_s = now_s
        entry.moved_then = entry.moved
        return late


class PeerLimits:
    """The limits of one server's peers; its ports may share them.

    Args:
        frame_timeout_s, unsent_timeout_s: how long a frame's bytes may fail to arrive, and answers to leave.
        frame_bytes, unsent_bytes: what unfinished frames, and answers not yet taken, may hold.
        kept_bytes: what is kept in all, those included.

    Attributes:
        account: counts it.
        strangers: connections that spoke none of the protocols; `last_stranger`: host:port of the last of them.
    """

    __slots__ = ("account", "frames", "last_stranger", "strangers", "unsent")

    def __init__(
        self,
        frame_timeout_s: float = 30.0,
        unsent_timeout_s: float = 120.0,
        frame_bytes: int = 128 << 20,
        unsent_bytes: int = 256 << 20,
        kept_bytes: int = 512 << 20,
    ) -> None:
        self.account: MemoryAccount = MemoryAccount(kept_bytes)
        self.frames: UnfinishedTable = UnfinishedTable(frame_timeout_s, frame_bytes, self.account)
        self.unsent: UnfinishedTable = UnfinishedTable(unsent_timeout_s, unsent_bytes, self.account)
        self.strangers: int = 0
        self.last_stranger: str = ""

    def met_stranger(self, remote: str) -> None:
        """Count a connection that spoke none of the protocols."""
        self.strangers += 1
        self.last_stranger = remote


def note_unsent(table: UnfinishedTable, peer: Peer, waiting: int, size: int, now_s: float) -> bool:
    """`size` bytes were just written behind `waiting` ones; whether all peers' answers are too many now.

    What is less than `JOIN_BELOW` and finds nothing waiting is the kernel's, and is not counted.
    """
    entry = peer.behind
    if not waiting:
        if entry is not None:
            table.end(peer)
            peer.behind = entry = None
        if size < JOIN_BELOW:
            return False
    if entry is None:
        entry = peer.behind = table.begin(peer, now_s)
        entry.written = waiting
    entry.moved = entry.written - waiting
    entry.written += size
    return table.resize(entry, waiting + size)


def make_room(table: UnfinishedTable) -> list[Unfinished]:
    """Count what really waits; when that is too much, take out those that began first, and return them."""
    for entry in table.entries():
        waiting: int = entry.peer.transport.get_write_buffer_size()
        entry.moved = entry.written - waiting
        table.resize(entry, waiting)
    taken: list[Unfinished] = []
    if table.total > table.limit:
        for entry in table.entries():
            if table.total <= table.goal():
                break
            if entry.size:
                taken.append(entry)
                table.end(entry.peer)
    return taken


def cut(peer: Peer, why: str, noise: RateLimited) -> None:
    """End a connection at once, whatever waits for its peer."""
    noise.warning(why, "connection cut peer=%s why=%s", peer.remote, why)
    peer.closed = True
    peer.transport.abort()
