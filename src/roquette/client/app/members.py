"""Members of groups: several functions of one group are one member, whose messages go to them by topic and tag."""

from typing import Protocol

from roquette.client.app.endpoint import Endpoint, Function
from roquette.client.app.values import Things, encoded
from roquette.client.arguments import Topics
from roquette.client.client import Client
from roquette.client.consumer_options import ConsumerOptions, ServeOptions
from roquette.client.push_consumer import PushConsumer
from roquette.client.selection import Selection, Sql
from roquette.errors import ConfigError
from roquette.message.message import ReceivedMessage


class Member(Protocol):
    """A member of a group.

    Attributes:
        threads: how many its functions may take at the same time.
    """

    group: str

    @property
    def threads(self) -> int: ...

    def with_(self, other: "Member") -> "Member":
        """Both as one. Raises ConfigError: they cannot be."""
        ...

    async def join(self, client: Client, things: Things) -> PushConsumer:
        """Join the group. Raises ConfigError and what `Client.subscribe` raises."""
        ...


class GroupMember:
    """Handlers of one group."""

    def __init__(self, group: str, endpoints: list[Endpoint], batch: int | None) -> None:
        self.group = group
        self._batch = batch
        self._endpoints = endpoints
        self._topics, self._by_tag = _shares(group, endpoints)

    @property
    def threads(self) -> int:
        """As many as messages are handled at the same time, if a function of them blocks."""
        blocks = any(not each.function.waits for each in self._endpoints)
        return self._options.get("concurrency", 20) if blocks else 0

    @property
    def _options(self) -> ConsumerOptions:
        return _without_selection(self._endpoints[0].options)

    def with_(self, other: Member) -> Member:
        """Both as one. Raises ConfigError."""
        if not isinstance(other, GroupMember) or self._batch or other._batch:
            raise ConfigError(
                f"group {self.group} has two functions: one that serves or takes batches has its group for itself"
            )
        if self._options != other._options:
            raise ConfigError(
                f"functions of group {self.group} are one member, with one set of options: "
                f"{self._options} and {other._options}"
            )
        return GroupMember(self.group, self._endpoints + other._endpoints, None)

    async def join(self, client: Client, things: Things) -> PushConsumer:
        """Join the group. Raises ConfigError and what `Client.subscribe` raises."""
        for each in self._endpoints:
            each.bind(client, things)
        if self._batch is not None:
            many = self._endpoints[0].handle_many
            consumer = client.subscribe(
                self._topics, many, group=self.group, batch=self._batch, **self._options
            )
        else:
            handle = self._endpoints[0].handle if len(self._endpoints) == 1 else self._handle
            consumer = client.subscribe(self._topics, handle, group=self.group, **self._options)
        return (await consumer)._joined()

    async def _handle(self, message: ReceivedMessage) -> bool | None:
        tags = self._by_tag[message.topic]
        return await (tags.get(None) or tags[message.tag]).handle(message)


class ServerMember:
    """A server of requests."""

    def __init__(
        self, group: str, function: Function, topic: Topics, options: ServeOptions
    ) -> None:
        self.group = group
        self._function = function
        self._topic = topic
        self._options = options

    @property
    def threads(self) -> int:
        """As many as requests are answered at the same time, if the function blocks."""
        return 0 if self._function.waits else self._options.get("concurrency", 20)

    def with_(self, other: Member) -> Member:
        """Raises ConfigError."""
        raise ConfigError(
            f"group {self.group} has two functions: one that serves has it for itself"
        )

    async def join(self, client: Client, things: Things) -> PushConsumer:
        """Join the group. Raises ConfigError and what `Client.serve` raises."""
        self._function.bind(client, things)
        consumer = client.serve(self._topic, self._answer, group=self.group, **self._options)
        return (await consumer)._joined()

    async def _answer(self, message: ReceivedMessage) -> bytes | None:
        answer = await self._function.of(message)
        return None if answer is None else encoded(answer)


def _without_selection(options: ConsumerOptions) -> ConsumerOptions:
    kept = ConsumerOptions(**options)
    kept.pop("tag", None)
    kept.pop("filter", None)
    return kept


def _shares(
    group: str, endpoints: list[Endpoint]
) -> tuple[dict[str, Selection], dict[str, dict[str | None, Endpoint]]]:
    """What the member asks for of each topic, and which function gets what: None is all of the topic.

    Raises:
        ConfigError: two functions would get the same messages.
    """
    topics: dict[str, Selection] = {}
    shares: dict[str, dict[str | None, Endpoint]] = {}
    for endpoint in endpoints:
        for topic, wanted in endpoint.topics.items():
            share = shares.setdefault(topic, {})
            whole = isinstance(wanted, Sql) or wanted.strip() in ("", "*")
            tags: list[str | None] = [None]
            if not whole:
                tags = [tag.strip() for tag in str(wanted).split("||")]
            if share and (None in share or None in tags or not share.keys().isdisjoint(tags)):
                raise ConfigError(
                    f"two functions of group {group} would get the same messages of {topic}: give each its own tags, or a group"
                )
            share.update(dict.fromkeys(tags, endpoint))
            topics[topic] = wanted if topic not in topics else f"{topics[topic]} || {wanted}"
    return topics, shares
