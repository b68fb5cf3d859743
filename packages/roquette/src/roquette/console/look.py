"""Who is asked and how often: one client of a cluster, and looks that all open pages share."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from roquette.admin.catalogue import OWN, kind_of
from roquette.admin.cluster import system_names
from roquette.admin.doctor.checks.diagnosis import diagnose
from roquette.admin.doctor.examination import examine, who_is_there
from roquette.admin.doctor.findings import Finding, Intent
from roquette.admin.facts import ClusterFacts
from roquette.admin.top import BrokerState, broker_rows
from roquette.base.clock import Clock
from roquette.client.calls import Operation
from roquette.client.client import Client
from roquette.console.changes import Changes

T = TypeVar("T")

MOST_LOOKS: Final = 512
PERIOD_S: Final = 2.0
SHARE: Final = 20
"""A look that took c seconds is fresh for at least SHARE * c: looking costs a twentieth at most."""
POINTS: Final = 300
WATCHED_MS: Final = 10 * 60_000
"""Rates are sampled for so long after somebody has looked."""
EXAMINE_S: Final = 30.0
EXAMINE_SHARE: Final = 200
"""The examination looks at all that there is, for as long as a page is open: where it is dear, it is made more rarely."""
RAREST_S: Final = 180.0
"""But after this time where SHARE allows it."""


class Look(NamedTuple, Generic[T]):
    """What was seen last. `at_ms`: when; `took_s`: for how long the cluster was asked."""

    value: T
    at_ms: int
    took_s: float
    fresh_until_s: float


class ClusterRate(NamedTuple):
    """Messages a second of the whole cluster at a moment."""

    at_ms: int
    sent: float
    read: float


class Behind(NamedTuple):
    """How far a group is behind in a topic: messages, and the ms for which the oldest waits; -1: not known."""

    group: str
    topic: str
    lag: int
    waits_ms: int


class Examination(NamedTuple):
    """What the doctor saw and found, and what pages say of it. `behind`: the most first. `topics`: users' own ones."""

    facts: ClusterFacts
    findings: list[Finding]
    behind: list[Behind]
    topics: int


def _own_topics(facts: ClusterFacts) -> int:
    names = {name for broker in facts.masters() for name in broker.topics}
    told = set().union(*(system_names(each.cluster) for each in facts.name_servers))
    return sum(1 for name in names if kind_of(name, told) == OWN)


def examined(facts: ClusterFacts) -> Examination:
    """What is found in these facts: once, since pages are made of it every two seconds."""
    waits = {key: ms for broker in facts.masters() for key, ms in broker.waits.items()}
    behind = [
        Behind(*pair, sum(at.lag for at in positions), waits.get(pair, -1))
        for pair, positions in facts.behind().items()
    ]
    behind.sort(key=lambda row: -row.lag)
    return Examination(facts, diagnose(facts, None, Intent()), behind, _own_topics(facts))


class SharedLooks:
    """Answers by key: whoever asks for a fresh one gets it; one asks when it is old, and all others wait for that."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.asked = 0
        self._kept: OrderedDict[object, Look[Any]] = OrderedDict()
        self._asking: dict[object, asyncio.Task[Look[Any]]] = {}

    async def get(
        self, key: object, ask: Callable[[], Awaitable[T]], period_s: float = PERIOD_S
    ) -> Look[T]:
        """The look of a key, at most `period_s` old, or older when it is dear. Raises what `ask` raises."""
        kept = self._kept.get(key)
        if kept is not None and self._now_s() < kept.fresh_until_s:
            self._kept.move_to_end(key)
            return kept
        return await asyncio.shield(self._begin(key, ask, period_s))

    def soon(
        self, key: object, ask: Callable[[], Awaitable[T]], period_s: float, share: int = SHARE
    ) -> Look[T] | None:
        """The last look, however old, without waiting; a new one is begun when it is old. None: there is none yet."""
        kept = self._kept.get(key)
        if kept is None or self._now_s() >= kept.fresh_until_s:
            self._begin(key, ask, period_s, share)
        return kept

    def forget(self) -> None:
        """Something was changed: the next look is a new one; who does not wait for it sees the last one meanwhile."""
        for key, look in self._kept.items():
            self._kept[key] = look._replace(fresh_until_s=0.0)

    def _begin(
        self, key: object, ask: Callable[[], Awaitable[T]], period_s: float, share: int = SHARE
    ) -> asyncio.Task[Look[T]]:
        task = self._asking.get(key)
        if task is None:
            task = asyncio.ensure_future(self._ask(key, ask, period_s, share))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._asking[key] = task
        return task

    async def _ask(
        self, key: object, ask: Callable[[], Awaitable[T]], period_s: float, share: int
    ) -> Look[T]:
        begun = self._now_s()
        try:
            self.asked += 1
            value = await ask()
            took = self._now_s() - begun
            fresh_until = self._now_s() + max(period_s, SHARE * took, min(RAREST_S, share * took))
            look = Look(value, self.clock.now_ms(), took, fresh_until)
            self._kept[key] = look
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_LOOKS:
                self._kept.popitem(last=False)
            return look
        finally:
            self._asking.pop(key, None)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


class WatchedCluster:
    """A cluster as one person sees it: its name in URLs, a client that stays connected, looks, and the rates seen while
    pages are open."""

    def __init__(self, name: str, client: Client, clock: Clock, changes: Changes) -> None:
        self.name = name
        self.client = client
        self.clock = clock
        self.changes = changes
        self.looks = SharedLooks(clock)
        self.rates: deque[ClusterRate] = deque(maxlen=POINTS)
        self.by_broker: dict[str, deque[float]] = {}
        self.masters: dict[str, deque[tuple[int, int, int]]] = {}
        self._looked_ms = 0

    @property
    def name_servers(self) -> list[str]:
        return list(self.client.session.name_servers)

    async def run(self, operation: Operation[T]) -> T:
        """What an operation finds or raises."""
        return await self.client.session.run(operation)

    async def look(
        self, key: object, operation: Callable[[], Operation[T]], period_s: float = PERIOD_S
    ) -> T:
        """An operation's value, shared."""
        return (await self.looks.get(key, lambda: self.run(operation()), period_s)).value

    def examined(self) -> Look[Examination] | None:
        """The doctor's last examination, at once; a new one is begun when it is old."""

        async def ask() -> Examination:
            return examined(await self.run(examine(self.name_servers, self.clock)))

        return self.looks.soon("examination", ask, EXAMINE_S, EXAMINE_SHARE)

    async def brokers(self) -> list[BrokerState]:
        """The brokers' state; each new look is a point of the charts."""
        self.watch()
        return await self._brokers()

    def watch(self) -> None:
        """Somebody looks at brokers: points and changes are noted for a while."""
        self._looked_ms = self.clock.now_ms()

    async def sample(self) -> None:
        """A point of the charts, while somebody has looked not long ago."""
        if self.clock.now_ms() - self._looked_ms < WATCHED_MS:
            await self._brokers()

    async def _brokers(self) -> list[BrokerState]:
        def operation() -> Operation[ClusterFacts]:
            return who_is_there(self.name_servers, self.clock)

        look = await self.looks.get("brokers", lambda: self.run(operation()))
        states = broker_rows(look.value)
        if not self.rates or self.rates[-1].at_ms != look.at_ms:
            masters = [s for s in states if s.answers and s.broker_id == 0]
            sent = sum(max(0.0, s.in_tps) for s in masters)
            read = sum(max(0.0, s.out_tps) for s in masters)
            self.rates.append(ClusterRate(look.at_ms, sent, read))
            for state in states:
                points = self.by_broker.setdefault(state.address, deque(maxlen=60))
                points.append(max(0.0, state.in_tps))
            self.changes.see(look.at_ms, look.value)
        return states
