"""Who a request is: whoever started the console, or a user of the cluster that has signed in. The cluster is the only judge."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from roquette.base.clock import Clock
from roquette.client.client import Client
from roquette.console.changes import Changes
from roquette.console.look import WatchedCluster
from roquette.errors import ConfigError
from roquette.wire.signature import Credentials

COOKIE: Final = "roquette-session"
IDLE_MS: Final = 30 * 60_000
LONGEST_MS: Final = 12 * 3_600_000
MOST: Final = 1_000
FAILURES: Final = 5
"""Of a name or an address in a minute; then it waits."""
MOST_FAILED: Final = 4_096

Connect = Callable[[str, Credentials | None], Client]
"""Make a client of a context, that is some user or whoever started the console."""
Prove = Callable[[Client], "asyncio.Future[bool]"]


class Person:
    """Somebody with clients of their own, one of each cluster they have looked at."""

    def __init__(self, name: str, credentials: Credentials | None, now_ms: int) -> None:
        self.name = name
        self.credentials = credentials
        self.begun_ms = now_ms
        self.seen_ms = now_ms
        self.clusters: dict[str, WatchedCluster] = {}

    async def close(self) -> None:
        """End the clients."""
        clusters, self.clusters = self.clusters, {}
        for cluster in clusters.values():
            await cluster.client.close()


class Failures:
    """How often a name or an address failed in the last minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, list[int]] = OrderedDict()

    def wait(self, *keys: str) -> bool:
        """Return True when one of them has to wait."""
        since = self._clock.steady_ms() - 60_000
        return any(
            sum(1 for at in self._seen.get(key, ()) if at > since) >= FAILURES for key in keys
        )

    def note(self, *keys: str) -> None:
        """One more of each."""
        for key in keys:
            self._seen[key] = [*self._seen.pop(key, [])[-FAILURES:], self._clock.steady_ms()]
            if len(self._seen) > MOST_FAILED:
                self._seen.popitem(last=False)

    def take_back(self, *keys: str) -> None:
        """The last one of each was none."""
        for key in keys:
            self._seen[key] = self._seen.get(key, [])[:-1]


class Signed(NamedTuple):
    """Whether somebody may: the session's key, or why not."""

    key: str
    why: str = ""


class People:
    """Sessions, and the clusters as each person sees them.

    Args:
        contexts: names of the clusters. connect: makes a client. starter: who asks, "": people sign in.
    """

    def __init__(
        self,
        contexts: list[str],
        connect: Connect,
        clock: Clock,
        changes: Mapping[str, Changes],
        starter: str,
    ) -> None:
        self.contexts = contexts
        self._connect = connect
        self._clock = clock
        self._changes = changes
        self._starter = Person(starter, None, clock.now_ms())
        self._sessions: OrderedDict[str, Person] = OrderedDict()
        self._failures = Failures(clock)
        self._opening: dict[tuple[int, str], asyncio.Lock] = {}

    def person_of(self, key: str) -> Person | None:
        """Who has this session's key; None: nobody, who signs in first."""
        if self._starter.name:
            return self._starter
        found, now = self._sessions.get(key), self._clock.now_ms()
        if found is None:
            return None
        if now - found.seen_ms > IDLE_MS or now - found.begun_ms > LONGEST_MS:
            return None
        found.seen_ms = now
        self._sessions.move_to_end(key)
        return found

    async def cluster(self, person: Person, context: str) -> WatchedCluster:
        """A cluster as somebody sees it, with a client that stays connected. Raises RoquetteError when it cannot start."""
        lock = self._opening.setdefault((id(person), context), asyncio.Lock())
        async with lock:
            if context not in person.clusters:
                client = self._connect(context, person.credentials)
                await client.start()
                changes = self._changes[context]
                person.clusters[context] = WatchedCluster(context, client, self._clock, changes)
        self._opening.pop((id(person), context), None)
        return person.clusters[context]

    async def enter(
        self, context: str, name: str, secret: str, address: str, prove: Callable[[Client], object]
    ) -> Signed:
        """Prove a name and a secret at a cluster, by one signed request; the key of a new session."""
        if self._failures.wait(name, address):
            return Signed("", "too many failures: wait a minute")
        try:
            credentials = Credentials(name, secret)
        except ConfigError as error:
            return Signed("", str(error))
        self._failures.note(name, address)  # now: guesses that are made side by side count, too
        client = self._connect(context, credentials)
        proven = True  # not when the cluster says nothing: that is nobody's guess
        try:
            await client.start()
            proven = bool(await prove(client))  # type: ignore[misc]
        finally:
            await client.close()
            if proven:
                self._failures.take_back(name, address)
        if not proven:
            return Signed("", "the name or the secret is wrong")
        key = secrets.token_urlsafe(32)
        self._sessions[key] = Person(name, credentials, self._clock.now_ms())
        while len(self._sessions) > MOST:
            _, oldest = self._sessions.popitem(last=False)
            await oldest.close()
        return Signed(key)

    async def leave(self, key: str) -> None:
        """End a session."""
        if person := self._sessions.pop(key, None):
            await person.close()

    async def sweep(self) -> None:
        """End sessions that are over, and take a point of the charts of clusters that are looked at."""
        now = self._clock.now_ms()
        for key, person in list(self._sessions.items()):
            if now - person.seen_ms > IDLE_MS or now - person.begun_ms > LONGEST_MS:
                await self.leave(key)
        for cluster in self._starter.clusters.values():
            await cluster.sample()

    async def close(self) -> None:
        """End all."""
        for person in (self._starter, *self._sessions.values()):
            await person.close()
        self._sessions.clear()
