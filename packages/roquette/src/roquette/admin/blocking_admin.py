"""`roquette.Admin` without `await`. Written by tools/make_sync.py: change admin/async_admin.py instead."""

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar

from roquette.admin import async_admin
from roquette.admin.catalogue import GroupRow
from roquette.admin.groups import LagRow
from roquette.admin.members import MemberRow
from roquette.admin.seek import SeekRow
from roquette.admin.topics import TopicDescription
from roquette.client.blocking_client import Client
from roquette.client.consumer_options import StartFrom

T = TypeVar("T")


class Admin:
    """`roquette.Admin` of a blocking client, without `await`."""

    def __init__(self, client: Client) -> None:
        self._owner = client

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._owner._call(work)

    @property
    def _twin(self) -> async_admin.Admin:
        return async_admin.Admin(self._owner._client)

    def create_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        order: bool | None = None,
        cluster: str | None = None,
        broker: str | None = None,
        attributes: dict[str, str] | None = None,
    ) -> list[str]:
        """Create a topic, or change one, on every master (of a cluster), or on one; their names, when clients can use it."""
        return self._call(
            lambda: self._twin.create_topic(
                topic,
                queues=queues,
                order=order,
                cluster=cluster,
                broker=broker,
                attributes=attributes,
            )
        )

    def delete_topic(self, topic: str) -> list[str]:
        """Delete a topic with its messages and every group's place in it; the names of the brokers that had it."""
        return self._call(lambda: self._twin.delete_topic(topic))

    def list_topics(self, *, system: bool = False) -> list[str]:
        """The topics of the client's namespace, sorted; `system`: the system's own, retries and dead letters, too."""
        return self._call(lambda: self._twin.list_topics(system=system))

    def describe_topic(self, topic: str) -> TopicDescription:
        """Brokers, queues and offsets of a topic; raises RouteNotFound."""
        return self._call(lambda: self._twin.describe_topic(topic))

    def list_groups(self, *, system: bool = False) -> list[GroupRow]:
        """The groups of the client's namespace, by name, with their members and how far behind they are."""
        return self._call(lambda: self._twin.list_groups(system=system))

    def members(self, group: str) -> list[MemberRow]:
        """The members of a group that are online, with what each is doing; raises ConfigError when none is."""
        return self._call(lambda: self._twin.members(group))

    def lag(self, group: str, topic: str | None = None) -> list[LagRow]:
        """Per queue, how far behind a group is; a row with `error` stands for a broker that does not tell."""
        return self._call(lambda: self._twin.lag(group, topic))

    def seek(
        self,
        group: str,
        topic: str,
        to: StartFrom | datetime | str,
        *,
        queue: int | None = None,
        dry_run: bool = False,
    ) -> list[SeekRow]:
        """Let a group go on elsewhere; per queue, where it was and where it goes on."""
        return self._call(lambda: self._twin.seek(group, topic, to, queue=queue, dry_run=dry_run))

    def delete_group(self, group: str, *, keep_offsets: bool = False) -> list[str]:
        """Delete a group, with its offsets, on every master; the names of those that had it."""
        return self._call(lambda: self._twin.delete_group(group, keep_offsets=keep_offsets))
