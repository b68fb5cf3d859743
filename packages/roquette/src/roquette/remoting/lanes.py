"""Limits of each class of work that waits, of each peer's share, and the order of service. HOT."""

from typing import Final

from roquette.remoting.request import Peer, RequestContext

OF_TURN: Final = 64  # requests of one peer that are served in a turn in which others are, too
LITTLE: Final = 16  # requests that wait: who has no more gets in where others have had their share


class LaneLimits:
    """Bounds of one class of work: `capacity` requests wait at most, each `wait_ms` at most (0: no limit).

    Attributes:
        budget: what a turn serves. free: while so few wait nobody is asked for his share.
    """

    __slots__ = ("budget", "capacity", "free", "name", "wait_ms")

    def __init__(self, name: str, capacity: int, wait_ms: int = 0, budget: int = 512) -> None:
        self.name: str = name
        self.capacity: int = capacity
        self.wait_ms: int = wait_ms
        self.budget: int = budget
        self.free: int = min(budget, capacity)


class WaitingRequests:
    """Those of one class of work: who gets in, and in which order they are served."""

    __slots__ = ("jobs", "limits", "of_peer", "pushed")

    def __init__(self, limits: LaneLimits) -> None:
        self.jobs: list[RequestContext] = []
        self.limits: LaneLimits = limits
        self.pushed: bool = False  # a peer may have more here than its share of a turn
        self.of_peer: dict[int, int] | None = None  # counted when somebody wants to know

    def has_room(self, peer: Peer) -> bool:
        """Return True when a peer may have one more request here, where more wait already than a turn serves.

        Nobody takes what is everybody's: each has a share, and room is kept for who has little.
        """
        of_peer = self.of_peer
        if of_peer is None:
            of_peer = self.of_peer = {}
            for job in self.jobs:
                of_peer[job.peer.id] = of_peer.get(job.peer.id, 0) + 1
        size: int = len(self.jobs)
        capacity: int = self.limits.capacity
        own: int = of_peer.get(peer.id, 0)
        if own < min(LITTLE, capacity // 64):
            room = size < 2 * capacity
        else:
            room = size < capacity and own < capacity // (len(of_peer) + (not own))
        if room:
            of_peer[peer.id] = own + 1
        return room

    def take(self) -> list[RequestContext]:
        """Those to be served now: the first of each peer, the second of each, and so on, as many as a turn serves.

        Of one peer there are `OF_TURN` at most while others ask, too: what one brings at once delays nobody for long.
        """
        jobs: list[RequestContext] = self.jobs
        budget: int = self.limits.budget
        self.of_peer = None
        if len(jobs) <= budget and not self.pushed:
            self.jobs = []
            return jobs
        places: list[int] = []
        counted: dict[int, int] = {}
        for job in jobs:
            place = counted.get(job.peer.id, 0)
            counted[job.peer.id] = place + 1
            places.append(place)
        if len(counted) == 1:
            self.jobs = jobs[budget:]
            return jobs[:budget]
        last = min(sorted(places)[min(budget, len(places)) - 1], OF_TURN)
        left: int = 0  # of those at the last place
        if last < OF_TURN:
            left = budget - sum([place < last for place in places])
        now: list[RequestContext] = []
        later: list[RequestContext] = []
        for job, place in zip(jobs, places):
            if place < last:
                now.append(job)
            elif place == last and left > 0:
                left -= 1
                now.append(job)
            else:
                later.append(job)
        self.jobs = later
        self.pushed = bool(later)
        return now
