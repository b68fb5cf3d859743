"""A master's tables for replicas of ours: a request waits here until something has changed (FOLLOW_TABLES).

`tables`: the answer names the versions of topics, groups, request modes, users and deleted topics; the replica then asks
for those that are new to it, by Apache's codes and `deleted`. `offsets`: the answer is what has changed of the consumer
offsets since the last one, as their journal has it, or the whole table. At once come `orders`, the orderly pops, and
`queues`: the next offsets of queues whose messages have all expired, which no log tells. The body of `offsets`, `deleted`
and `queues` is MessagePack, that of a whole table and of `orders` is the file's JSON.

An answer goes out 5 ms after the one before at the earliest, so that a commit costs a part of a request, not one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from roquette.access.processor import NONCE, seal
from roquette.base.executor import run_blocking
from roquette.base.javatypes import whole_number
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import Feature, Lane, encode_rows, paced
from roquette.broker.floor.tables.offset_journal import Change, merged
from roquette.errors import Refused
from roquette.remoting.promises import Promise
from roquette.remoting.request import Reply, RequestContext, Row, Task, row
from roquette.wire.bodies import ConsumerOrderInfoSerializeWrapper, DataVersion
from roquette.wire.codes import RequestCode, ResponseCode
from roquette.wire.header_codec import encode_ext
from roquette.wire.headers import FollowTablesRequestHeader, FollowTablesResponseHeader
from roquette.wire.json_body import encode_body

HOLD_S: Final = 5.0  # a request waits so long at most: then it is answered with what there is
LINGER_S: Final = 0.005
KEPT: Final = 10_000  # changes that a replica may be behind; further ones get the whole table,
KEPT_ROWS: Final = 100_000  # and offsets in them
MOST_WAITING: Final = 64
Orders = Callable[[], ConsumerOrderInfoSerializeWrapper]
_encode: Final = msgspec.msgpack.Encoder().encode


class OffsetFeed:
    """The newest changes of the consumer offsets, numbered. Pure."""

    def __init__(self) -> None:
        self._changes: deque[tuple[Change, int, int]] = (
            deque()
        )  # with its rows, and the log it needs
        self._rows = 0
        self.next = 0  # number of the next change

    def put(self, change: Change, log_end: int) -> None:
        """One more change, to be taken when a replica's log reaches up to `log_end`."""
        rows = len(change.dropped) + len(change.resets)
        rows += sum(map(len, change.offsets.values()))
        self._changes.append((change, rows, log_end))
        self._rows += rows
        self.next += 1
        while len(self._changes) > KEPT or self._rows > KEPT_ROWS:
            self._rows -= self._changes.popleft()[1]

    def since(self, number: int) -> Change | None:
        """Return what has changed from a number on, in one; None when that is not known any more."""
        count = self.next - number
        if not 0 < count <= len(self._changes):
            return None
        wanted = [self._changes[place] for place in range(-count, 0)]
        change = merged([entry[0] for entry in wanted])
        return replace(change, log_end=max(entry[2] for entry in wanted))


class TableFeed(Feature):
    """Serves what replicas follow."""

    def __init__(self, core: BrokerCore, orders: Orders) -> None:
        """`orders`: the orderly pops, as their file has them."""
        self._core = core
        self._topics, self._groups = core.tables.topics, core.tables.groups
        self._offsets = core.tables.offsets
        self._modes = core.tables.modes
        self._orders = orders
        self._users = core.access.users
        self._life = core.entropy.token(4)
        self._feed = OffsetFeed()
        self._deleted = core.saved.deleted
        self._told: tuple[DataVersion, DataVersion, int, int, int] | None = (
            None  # seen by who waits
        )
        self._waiting: dict[str, list[asyncio.Future[None]]] = {"tables": [], "offsets": []}
        self._sent_s = 0.0  # loop time of the last answer with offsets
        self._ended = False
        self._followers = core.saved.followers
        self._saved = core.saved

    def rows(self) -> list[Row]:
        """Return the rows of the requests it serves."""
        header = FollowTablesRequestHeader
        return [row(RequestCode.FOLLOW_TABLES, self.follow, header, Lane.ADMIN, Promise.NOTHING)]

    def follow(self, ctx: RequestContext, header: FollowTablesRequestHeader, body: bytes) -> Task:
        """FOLLOW_TABLES."""
        if header.what == "orders":
            return Task(self._orderly(), large=True)
        if header.what == "users":
            return Task(self._passwords(ctx, header.once), large=True)
        if header.what == "queues":
            return Task(self._emptied(header.since), large=True)
        if header.what == "deleted":
            return Task(self._marks(), large=True)
        if header.what not in self._waiting:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"what[{header.what}] is not followed")
        if len(self._waiting[header.what]) >= MOST_WAITING:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"{MOST_WAITING} replicas wait already")
        if header.what == "tables":
            return Task(self._follow_tables(header.since))
        number = self._number(header.since)
        waits = number == self._feed.next
        return Task(self._follow_offsets(number, waits=waits), large=not waits)

    def _passwords(self, ctx: RequestContext, once: str) -> Coroutine[Any, Any, Reply]:
        """Users with their passwords: for whom a super user has signed, even where nobody else is asked who they are.

        Sealed with that user's own secret: a request that was passed on by somebody tells him nothing.
        """
        signer = self._users.signer(ctx)
        if signer is None or not signer.is_super:
            words = "users are told to replicas whose innerClientAuthenticationCredentials are a super user's here"
            raise Refused(ResponseCode.NO_PERMISSION, words)
        if not once:
            words = (
                "users are told sealed: a replica of an older version gets them when it is upgraded"
            )
            raise Refused(ResponseCode.NO_PERMISSION, words)
        state, secret = self._users.state, signer.secret
        nonce = bytes.fromhex(self._core.entropy.secret(NONCE))

        async def encoded() -> Reply:
            body = await run_blocking(lambda: seal(secret, once, nonce, encode_body(state.kept())))
            return Reply(encode_ext(FollowTablesResponseHeader(since="", whole=True)), body)

        return encoded()

    @property
    def _lacks(self) -> str:
        return ",".join(self._saved.lacks)

    # Versions

    def _seen(self) -> tuple[DataVersion, DataVersion, int, int, int]:
        changes = self._deleted.changes, self._modes.changes, self._users.version
        return self._topics.data_version, self._groups.data_version, *changes

    def _versions(self) -> str:
        topics, groups, deleted, modes, users = self._seen()
        own = (
            f"deleted={self._life}.{deleted};modes={self._life}.{modes};users={self._life}.{users}"
        )
        return f"topics={_words(topics)};groups={_words(groups)};{own}"

    async def _follow_tables(self, since: str) -> Reply:
        if self._versions() == since and not self._ended:
            self._told = self._seen()
            await self._wait("tables")
        header = FollowTablesResponseHeader(since=self._versions(), lacks=self._lacks)
        return Reply(encode_ext(header))

    def turn_written(self, log_end: int) -> bool:
        """Answer those who wait for another version."""
        if self._told is not None and self._seen() != self._told:
            self._told = None
            self._wake("tables")
        return True

    # Offsets

    def _offsets_changed(self, change: Change, own_words: bool) -> None:
        log_end = change.log_end
        if not own_words:  # clients have seen what is confirmed, and nothing else
            log_end = min(log_end, self._core.store.confirmed)
        self._feed.put(change, log_end)
        if self._waiting["offsets"]:
            self._wake("offsets")

    def _number(self, since: str) -> int:
        life, _, text = since.partition(".")
        return whole_number(text, 2**63 - 1) if life == self._life else -1

    async def _follow_offsets(self, number: int, *, waits: bool) -> Reply:
        if self._offsets_changed not in self._followers:  # until a replica comes they cost nothing
            self._followers.append(self._offsets_changed)
        if waits and number == self._feed.next and not self._ended:
            await self._wait("offsets")
            loop = asyncio.get_running_loop()
            await asyncio.sleep(max(0.0, self._sent_s + LINGER_S - loop.time()))
            self._sent_s = loop.time()
        header = FollowTablesResponseHeader(since=f"{self._life}.{self._feed.next}")
        if number == self._feed.next:
            return Reply(encode_ext(header))
        change = self._feed.since(number)
        if change is not None:
            header.log_end = change.log_end
            return Reply(encode_ext(header), _encode(change))
        header.whole, header.log_end = True, self._core.store.max_physical_offset
        header.lacks = self._lacks
        table = self._offsets.to_wrapper()
        rows = sum(map(len, table.offset_table.values()))
        return Reply(encode_ext(header), await encode_rows(table, rows, java_keys=True))

    async def _orderly(self) -> Reply:
        header = FollowTablesResponseHeader(
            since="", whole=True, log_end=self._core.store.max_physical_offset
        )
        return Reply(encode_ext(header), await encode_rows(self._orders(), 0))

    async def _marks(self) -> Reply:
        body = _encode((self._core.store.min_physical_offset, self._deleted.marks))
        return Reply(encode_ext(FollowTablesResponseHeader(since="", whole=True)), body)

    async def _emptied(self, since: str) -> Reply:
        """Only retention empties queues."""
        store = self._core.store
        log_end = store.max_physical_offset  # a queue that is empty later was so then
        header = FollowTablesResponseHeader(
            since=f"{self._life}.{store.min_physical_offset}", log_end=log_end
        )
        if header.since == since:
            return Reply(encode_ext(header))
        found: dict[str, dict[int, int]] = {}
        async for topic in paced(store.topics(), 1):
            for queue_id in store.queues_of(topic):
                end = store.max_offset(topic, queue_id)
                if 0 < end == store.min_offset(topic, queue_id):
                    found.setdefault(topic, {})[queue_id] = end
        header.whole = True
        return Reply(encode_ext(header), await run_blocking(_encode, found))

    # Waiting

    async def _wait(self, what: str) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting[what].append(future)
        try:
            async with asyncio.timeout(HOLD_S):
                await future
        except TimeoutError:
            pass
        finally:
            if future in self._waiting[what]:
                self._waiting[what].remove(future)

    def _wake(self, what: str) -> None:
        waiting, self._waiting[what] = self._waiting[what], []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def drain(self) -> None:
        """Answer all that wait."""
        self._ended = True
        for what in self._waiting:
            self._wake(what)


def _words(version: DataVersion) -> str:
    return f"{version.state_version}.{version.timestamp}.{version.counter}"
