"""One function of an application: what it is called with, and what becomes of messages it cannot handle."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from roquette.client.app.values import CannotDecode, Decode, Parameters, Things
from roquette.client.client import Client
from roquette.client.consumer_options import (
    ConsumerOptions,
    Selection,
    body_of,
    check_function,
    for_loop,
    not_understood,
    to_json,
    verdict,
)
from roquette.errors import ConfigError
from roquette.message.message import Message, ReceivedMessage
from roquette.message.names import client_topic_error

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
            words = "message not handled fate=%s topic=%s id=%s error=%r"
            log.warning(words, fate, message.topic, message.message_id, error, exc_info=error)
            if fate == "dead-letter":
                message.dead_letter()
            elif fate == "drop":
                message.ack()
            else:
                message.retry()
