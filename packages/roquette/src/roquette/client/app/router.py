"""Functions of an application, by the groups they are for; of several modules, by a router each."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, Unpack, cast

from roquette.client.app.values import CannotDecode, Decode, Parameters, Things
from roquette.client.arguments import Topics, check_group, check_words, member_options
from roquette.client.client import Client
from roquette.client.consumer_options import (
    ConsumerOptions,
    Selection,
    ServeOptions,
    body_of,
    check_function,
    for_loop,
    not_understood,
    to_json,
    verdict,
)
from roquette.client.push_consumer import PushConsumer
from roquette.errors import ConfigError
from roquette.message.message import Message, ReceivedMessage
from roquette.message.names import client_topic_error

# One function of an application: what it is called with, and what becomes of messages it cannot handle.


log = logging.getLogger("roquette.client")

Fate = Literal["dead-letter", "drop", "retry"]
FATES = ("dead-letter", "drop", "retry")
Errors = tuple[type[Exception], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """Policy for messages that are not handled, and for answers; `Router.consumer` explains each.

    Attributes:
        publish: the topic that answers are sent to; None: an answer is a verdict.
    """

    undecodable: Fate = "dead-letter"
    dead_letter_on: Errors = ()
    drop_on: Errors = ()
    publish: str | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        if self.undecodable not in FATES:
            raise ConfigError(f"undecodable={self.undecodable!r} is none of {', '.join(FATES)}")
        for kind in (*self.dead_letter_on, *self.drop_on):
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise ConfigError(f"{kind!r} is no class of exceptions")
        if self.publish is not None and (error := client_topic_error(self.publish)) is not None:
            raise ConfigError(f"publish: {error}")


class Function:
    """A function of the application, called with what its parameters ask for. `bind` begins a run.

    Args:
        what: what it is, in errors.
        many: it takes lists.
        most: calls at a time, of a plain one in threads.
    """

    def __init__(
        self,
        what: str,
        function: Callable[..., Any],
        decode: Decode | None = None,
        *,
        many: bool = False,
        most: int = 20,
    ) -> None:
        check_function(what, function)
        if decode is not None:
            check_function("decode", decode, waits=False)
        self._function = for_loop(function, most)
        waits = self._function is function
        self.parameters = Parameters(function, decode, many=many, waits=waits)
        self._kept: dict[str, object] = {}

    def bind(self, client: Client, things: Things) -> None:
        """Set what each call gets from now on. Raises ConfigError: the lifespan does not give something."""
        self._kept = self.parameters.things(things) | self.parameters.clients(client)

    async def call(self, message: object, value: object) -> object:
        """Its answer."""
        positional, named = self.parameters.words(self._kept, message, value)
        return await self._function(*positional, **named)

    async def answer_to(self, message: ReceivedMessage) -> Any:
        """Its answer to one message. Raises CannotDecode."""
        return await self.call(message, self.parameters.value(message.body))


class Endpoint:
    """A function that handles messages, or lists of them, of some topics."""

    def __init__(
        self,
        function: Function,
        topics: Mapping[str, Selection],
        policy: FailurePolicy,
        options: ConsumerOptions,
    ) -> None:
        self.function = function
        self.topics = topics
        self.options = options
        self._policy = policy
        self._client: Client | None = None

    def bind(self, client: Client, things: Things) -> None:
        """Begin a run. Raises ConfigError: the lifespan does not give something."""
        self._client = client
        self.function.bind(client, things)

    async def answer(self, message: ReceivedMessage) -> bytes | None:
        """Let the function answer a request; the reply's body. Raises CannotDecode, and what the function raises."""
        answer = await self.function.answer_to(message)
        return None if answer is None else self._body(answer)

    async def handle(self, message: ReceivedMessage) -> bool | None:
        """Let the function handle one message; its verdict."""
        try:
            value = self.function.parameters.value(message.body)
        except CannotDecode as error:
            self._settle([message], self._policy.undecodable, error)
            return False
        try:
            answer = await self.function.call(message, value)
            if self._policy.publish is None:
                return verdict(answer)
            await self._publish(self._policy.publish, answer)
        except self._policy.drop_on as error:
            self._settle([message], "drop", error)
        except self._policy.dead_letter_on as error:
            self._settle([message], "dead-letter", error)
        return None

    async def handle_many(self, messages: list[ReceivedMessage]) -> bool | None:
        """Let the function handle those whose bodies are values; its verdict, of each."""
        read: list[ReceivedMessage] = []
        values: list[Any] = []
        for message in messages:
            try:
                values.append(self.function.parameters.value(message.body))
                read.append(message)
            except CannotDecode as error:
                self._settle([message], self._policy.undecodable, error)
        if not read:
            return None
        try:
            answer = await self.function.call(read, values)
        except self._policy.drop_on as error:
            self._settle(read, "drop", error)
            return None
        except self._policy.dead_letter_on as error:
            self._settle(read, "dead-letter", error)
            return None
        if answer is not None and not isinstance(answer, int):
            raise not_understood(answer, "None, True, False nor how many are done")
        done = len(read) if answer is None or answer is True else max(0, answer)
        for message in read[done:]:
            if message.decision is None:
                message.retry()
        return None

    async def _publish(self, topic: str, answer: object) -> None:
        assert self._client is not None
        if isinstance(answer, bool):
            raise not_understood(answer, f"None nor a value to send to {topic}")
        if isinstance(answer, Message):
            await self._client.send(answer)
        elif answer is not None:
            await self._client.send(topic, self._body(answer))

    def _body(self, answer: object) -> bytes:
        """By the client's encoder, or as JSON."""
        assert self._client is not None
        return body_of(answer, self._client._encode or to_json)

    def _settle(self, messages: Sequence[ReceivedMessage], fate: Fate, error: Exception) -> None:
        """Say what becomes of messages of which nothing was said before."""
        for message in messages:
            if message.decision is not None:
                continue
            log.warning(
                "message not handled fate=%s topic=%s id=%s error=%r",
                *(fate, message.topic, message.message_id, error),
                exc_info=error,
            )
            if fate == "dead-letter":
                message.dead_letter()
            elif fate == "drop":
                message.ack()
            else:
                message.retry()


# Members of groups: several functions of one group are one member, whose messages go to them by topic and tag.


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
        options = self._endpoints[0].options.items()
        return cast(ConsumerOptions, {k: v for k, v in options if k not in ("tag", "filter")})

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


F = TypeVar("F", bound=Callable[..., Any])


class Router:
    """Functions of one module, for an `App` that includes them.

        router = roquette.Router(group="billing")

        @router.consumer("orders")
        async def bill(order: Order) -> None: ...

        app.include(router)

    Args:
        group: of the functions that name none.
    """

    def __init__(self, *, group: str | None = None) -> None:
        if group is not None:
            check_group(group)
        self.group = group
        self._members: dict[str, Member] = {}  # by group
        self._checks: dict[str, Function] = {}  # by topic

    def consumer(
        self,
        topic: Topics,
        *,
        group: str | None = None,
        batch: int | None = None,
        undecodable: Fate = "dead-letter",
        dead_letter_on: Errors = (),
        drop_on: Errors = (),
        decode: Decode | None = None,
        publish: str | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Callable[[F], F]:
        """Let the function handle the group's messages of a topic. A plain `def` runs in a thread.

        Its parameters are served by their types: `ReceivedMessage`, `Client` (in a plain `def` `roquette.sync.Client`),
        and one value of the body: bytes, str, or of JSON dict, list, dataclass, TypedDict, msgspec.Struct, pydantic's models,
        also as `Annotated`. Behind a `*` stands what the lifespan yields. It returns None or True when done; False, an
        exception or any other answer lets the message come again.

        Several functions may have one group, which then is one member: of other topics, or of other tags of a topic,
        with the same options.

        Args:
            group: None: the one of the application, or of the router.
            batch: as of `Client.subscribe`: the function gets lists, `orders: list[Order]`, and has its group for itself.
            undecodable: what becomes of a message whose body is no such value: "dead-letter" (to `%DLQ%<group>` at
                once), "drop", or "retry" like any failure.
            dead_letter_on, drop_on: exceptions of the handler that trying again does not cure. Broadcasting has no
                dead letters: such a message is logged and passed over.
            decode: makes the value of a body; any exception of it means that it is none.
            publish: send what the function returns to this topic, before its message is done: bytes, str, what becomes JSON,
                or a `Message` (to the topic that it names); None sends nothing. A send that fails lets the message come again.
            options: see `ConsumerOptions`.

        Raises:
            ConfigError: a word or a parameter is wrong, or does not go with other functions of the group.
        """
        name = self._group_of(group)
        chosen = member_options(name, topic, options, batch=batch or 0, call="consumer")
        if batch is not None and (batch < 1 or publish is not None):
            raise ConfigError(f"batch={batch} is no number of messages from 1 on, without publish=")
        policy = FailurePolicy(
            undecodable=undecodable,
            dead_letter_on=dead_letter_on,
            drop_on=drop_on,
            publish=publish,
        )

        def add(function: F) -> F:
            many, most = batch is not None, chosen.concurrency
            called = Function("handler", function, decode, many=many, most=most)
            endpoint = Endpoint(called, chosen.subscriptions, policy, options)
            self._add(Member(name, [endpoint], batch=batch))
            return function

        return add

    def serve(
        self,
        topic: Topics,
        *,
        group: str | None = None,
        decode: Decode | None = None,
        **options: Unpack[ServeOptions],
    ) -> Callable[[F], F]:
        """Let the function answer requests to a topic, as `Client.serve` does: what it returns is the reply.

        Its parameters are those of a `consumer`; it returns bytes, str, what becomes JSON, or None for no reply.

        Args:
            group: None: the one of the application, or of the router. The function has it for itself.
            decode: makes the value of a body.
            options: see `ServeOptions`.

        Raises:
            ConfigError: a word or a parameter is wrong, or the group has another function.
        """
        name = self._group_of(group)
        check_words("serve", options, ServeOptions)
        words = cast(ConsumerOptions, options)
        chosen = member_options(name, topic, words)

        def add(function: F) -> F:
            called = Function("server", function, decode, most=chosen.concurrency)
            endpoint = Endpoint(called, chosen.subscriptions, FailurePolicy(), words)
            self._add(Member(name, [endpoint], serves=True))
            return function

        return add

    def check(self, topic: str, *, decode: Decode | None = None) -> Callable[[F], F]:
        """Let the function say what became of transactions to a topic, as `Client.on_check`'s does: True, False or None.

        Its parameters are those of a `consumer`. The application needs a group of its own: `App(group=)`.

        Raises:
            ConfigError: a parameter is wrong, or there is a check of the topic.
        """

        def add(function: F) -> F:
            self._add_check(topic, Function("check", function, decode))
            return function

        return add

    def include(self, router: "Router") -> None:
        """Add the functions of a router. Raises ConfigError: they do not go with those that are here."""
        for member in router._members.values():
            self._add(member)
        for topic, function in router._checks.items():
            self._add_check(topic, function)

    def _group_of(self, group: str | None) -> str:
        if (name := group or self.group) is None:
            raise ConfigError(f"no group is said: group=, here or of the {type(self).__name__}")
        return name

    def _add(self, member: Member) -> None:
        before = self._members.get(member.group)
        self._members[member.group] = member if before is None else before.merged_with(member)

    def _add_check(self, topic: str, function: Function) -> None:
        if topic in self._checks:
            raise ConfigError(f"there is a check of {topic} already")
        self._checks[topic] = function
