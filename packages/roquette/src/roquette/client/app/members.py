"""Members of groups: several functions of one group are one member, whose messages go to them by topic and tag."""

from typing import cast

from roquette.client.app.endpoint import Endpoint
from roquette.client.app.values import Things
from roquette.client.client import Client
from roquette.client.consumer_options import ConsumerOptions, ServeOptions
from roquette.client.push_consumer import PushConsumer
from roquette.client.selection import Selection
from roquette.errors import ConfigError
from roquette.message.message import ReceivedMessage


class Member:
    """A member of a group: handlers, or one of batches, or a server of requests. The others are alone.

    Raises:
        ConfigError: two functions would get the same messages.
    """

    def __init__(
        self,
        group: str,
        endpoints: list[Endpoint],
        *,
        batch: int | None = None,
        serves: bool = False,
    ) -> None:
        self.group = group
        self._endpoints = endpoints
        self._batch = batch
        self._serves = serves
        self._topics: dict[str, Selection] = {}
        self._by_tag: dict[str, dict[str | None, Endpoint]] = {}  # None: all of the topic
        for endpoint in endpoints:
            for topic, wanted in endpoint.topics.items():
                self._share(topic, wanted, endpoint)

    def _share(self, topic: str, wanted: Selection, endpoint: Endpoint) -> None:
        share = self._by_tag.setdefault(topic, {})
        tags: list[str | None] = [None]
        if isinstance(wanted, str) and wanted.strip() not in ("", "*"):
            tags = [tag.strip() for tag in wanted.split("||")]
        if share and (None in share or None in tags or not share.keys().isdisjoint(tags)):
            raise ConfigError(
                f"two functions of group {self.group} would get the same messages of {topic}: "
                "give each its own tags, or a group"
            )
        share.update(dict.fromkeys(tags, endpoint))
        before = self._topics.get(topic)
        self._topics[topic] = wanted if before is None else f"{before} || {wanted}"

    @property
    def _options(self) -> ConsumerOptions:
        """Without what a function wants of its topics."""
        said = self._endpoints[0].options.items()
        return cast(ConsumerOptions, {k: v for k, v in said if k not in ("tag", "filter")})

    def merged_with(self, other: "Member") -> "Member":
        """Both as one. Raises ConfigError: they cannot be."""
        if self._batch or other._batch or self._serves or other._serves:
            raise ConfigError(
                f"group {self.group} has two functions: one that serves or takes batches has its group for itself"
            )
        if self._options != other._options:
            raise ConfigError(
                f"functions of group {self.group} are one member, with one set of options: "
                f"{self._options} and {other._options}"
            )
        return Member(self.group, self._endpoints + other._endpoints)

    async def join(self, client: Client, things: Things) -> PushConsumer:
        """Join the group. Raises ConfigError and what `Client.subscribe` raises."""
        for each in self._endpoints:
            each.bind(client, things)
        first, options = self._endpoints[0], self._options
        if self._serves:
            serving = cast(ServeOptions, options)
            consumer = client.serve(self._topics, first.answer, group=self.group, **serving)
        elif self._batch is not None:
            many, batch = first.handle_many, self._batch
            consumer = client.subscribe(
                self._topics, many, group=self.group, batch=batch, **options
            )
        else:
            handle = first.handle if len(self._endpoints) == 1 else self._handle
            consumer = client.subscribe(self._topics, handle, group=self.group, **options)
        return (await consumer)._joined()

    async def _handle(self, message: ReceivedMessage) -> bool | None:
        tags = self._by_tag[message.topic]
        return await (tags.get(None) or tags[message.tag]).handle(message)
