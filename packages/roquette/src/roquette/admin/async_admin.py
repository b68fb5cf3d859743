"""Operations of operators, awaited by applications: those of this room, run by a client that they have."""

import asyncio
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from roquette.admin.catalogue import OWN, GroupRow, group_rows, groups, topics
from roquette.admin.groups import LagRow, delete_group, group_lag
from roquette.admin.members import MemberRow, members
from roquette.admin.seek import (
    QueuePlace,
    SeekRow,
    apply_seek,
    parse_place,
    plan_seek,
    require_done,
)
from roquette.admin.topics import (
    TopicDescription,
    create_topic,
    delete_topic,
    describe_topic,
    require_topic,
)
from roquette.client.arguments import since_1970_ms
from roquette.client.calls import Operation
from roquette.client.client import Client
from roquette.client.consumer_options import StartFrom
from roquette.errors import RouteNotFound

T = TypeVar("T")

_ROUTE_S: Final = 15.0  # brokers tell name servers of a new topic at once
_STEP_S: Final = 0.05
_ENDS: Final = {StartFrom.FIRST: "first", StartFrom.LAST: "last"}


class Admin:
    """Topics and groups of the cluster that a client is connected to. It opens nothing, and ends with the client.

        async with roquette.Client("127.0.0.1:9876") as mq:
            await roquette.Admin(mq).create_topic("orders", queues=4)

    Names are those of the client's namespace. Every call raises ClientError when a server does not answer or refuses.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        order: bool | None = None,
        cluster: str | None = None,
        broker: str | None = None,
        attributes: dict[str, str] | None = None,
    ) -> list[str]:
        """Create a topic, or change one, on every master (of a cluster), or on one; their names, when clients can use it.

        Args:
            queues: on each broker; 8 for a new one, None leaves what there is. order: keys stay with a broker that is down.
            attributes: such as {"message.type": "PRIORITY"}; "" takes one away.

        Raises:
            ConfigError: the name is not allowed, there is no such cluster or broker, or it has more queues (`topic resize`).
            ClientError: a broker did not do it, others may have. RouteNotFound: no name server heard of it in 15 s.
        """
        session = self._client.session
        name = session.namespace.wrap(topic)
        change = await session.run(
            create_topic(
                session.name_servers,
                name,
                queues=queues,
                order=order,
                cluster=cluster,
                broker=broker,
                attribute=attributes,
            )
        )
        change.require_all()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _ROUTE_S
        while not (await self._brokers_of(name)).issuperset(change.done):
            if loop.time() > end_s:
                raise RouteNotFound(topic, f"the name servers did not hear of topic {topic}")
            await asyncio.sleep(_STEP_S)
        return change.done

    async def _brokers_of(self, name: str) -> set[str]:
        try:
            return set((await self._client.session.route(name, fresh=True)).addresses)
        except RouteNotFound:
            return set()

    async def delete_topic(self, topic: str) -> list[str]:
        """Delete a topic with its messages and every group's place in it; the names of the brokers that had it.

        Raises:
            RouteNotFound: there is none. ClientError: a broker or a name server did not do it, others have.
        """
        session = self._client.session
        name = session.namespace.wrap(topic)
        change = await session.run(delete_topic(session.name_servers, name))
        change.require_all()
        return change.done

    async def list_topics(self, *, system: bool = False) -> list[str]:
        """The topics of the client's namespace, sorted; `system`: the system's own, retries and dead letters, too."""
        found = await self._run(topics())
        return self._own(found.page(kind=None if system else OWN)[0])

    async def describe_topic(self, topic: str) -> TopicDescription:
        """Brokers, queues and offsets of a topic; raises RouteNotFound."""
        found = await self._run(describe_topic(self._name(topic)))
        return self._shown(found)

    async def list_groups(self, *, system: bool = False) -> list[GroupRow]:
        """The groups of the client's namespace, by name, with their members and how far behind they are."""
        found = await self._run(groups())
        names, _ = found.page(kind=None if system else OWN)
        space = self._client.session.namespace
        own = [name for name in names if space.wrap(name) == name]
        return [self._shown(row) for row in await self._run(group_rows(own, found, most=None))]

    async def members(self, group: str) -> list[MemberRow]:
        """The members of a group that are online, with what each is doing; raises ConfigError when none is."""
        return await self._run(members(self._name(group)))

    async def lag(self, group: str, topic: str | None = None) -> list[LagRow]:
        """Per queue, how far behind a group is; a row with `error` stands for a broker that does not tell.

        Raises:
            ConfigError: no broker has offsets of the group.
        """
        wrapped = None if topic is None else self._name(topic)
        rows = await self._run(group_lag(self._name(group), topic=wrapped))
        return [self._shown(row) for row in rows]

    async def seek(
        self,
        group: str,
        topic: str,
        to: StartFrom | datetime | str,
        *,
        queue: int | None = None,
        dry_run: bool = False,
    ) -> list[SeekRow]:
        """Let a group go on elsewhere; per queue, where it was and where it goes on.

        Args:
            to: an end, a time (with a zone), or a word: `first`, `last`, `120`, `-10` before the end, `+100` after the
                start, `@-1h`.
            queue: only this number, on every broker.
            dry_run: change nothing.

        Raises:
            RouteNotFound: there is no such topic.
            ConfigError: no such queue, `to` is no place, or members are online at a broker that cannot move them there.
            ClientError: a broker does not answer, or did not move a queue.
        """
        name = self._name(topic)
        place = self._place(to)
        await self._run(require_topic(name))
        plan = await self._run(plan_seek(self._name(group), name, place, queue))
        rows = plan.rows if dry_run else await self._run(apply_seek(plan))
        require_done(rows)
        return [self._shown(row) for row in rows]

    async def delete_group(self, group: str, *, keep_offsets: bool = False) -> list[str]:
        """Delete a group, with its offsets, on every master; the names of those that had it.

        Raises:
            ConfigError: members are online, or there is no such group.
        """
        return await self._run(delete_group(self._name(group), keep_offsets=keep_offsets))

    async def _run(self, operation: Operation[T]) -> T:
        return await self._client.session.run(operation)

    def _place(self, to: StartFrom | datetime | str) -> QueuePlace:
        if isinstance(to, datetime):
            return QueuePlace("time", since_1970_ms("to", to))
        word = _ENDS[to] if isinstance(to, StartFrom) else to
        return parse_place(word, self._client.session.clock.now_ms())

    # names

    def _name(self, name: str) -> str:
        return self._client.session.namespace.wrap(name)

    def _own(self, names: list[str]) -> list[str]:
        space = self._client.session.namespace
        return [space.shown(name) for name in names if space.wrap(name) == name]

    def _shown(self, row: T) -> T:
        """With names as the application knows them."""
        space = self._client.session.namespace
        if not space:
            return row
        names = {
            field: space.shown(getattr(row, field))
            for field in ("topic", "group")
            if hasattr(row, field)
        }
        return msgspec.structs.replace(row, **names)  # type: ignore[type-var]
