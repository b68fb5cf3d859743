"""One consumer of an application: its handler, and what becomes of messages it cannot handle."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from roquette.base.executor import run_blocking
from roquette.client.answers import check_function, verdict
from roquette.client.app.values import CannotDecode, Decode, Parameters
from roquette.client.arguments import Topics, member_options
from roquette.client.client import Client
from roquette.client.consumer_options import ConsumerOptions
from roquette.client.push_consumer import PushConsumer
from roquette.errors import ConfigError
from roquette.message.message import ReceivedMessage

log = logging.getLogger("roquette.client")

Fate = Literal["dead-letter", "drop", "retry"]
FATES = ("dead-letter", "drop", "retry")
Errors = tuple[type[Exception], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What becomes of a message that is not handled; `App.consumer` explains each.

    Attributes:
        decode: makes the value of a body; None: by the handler's annotation.
    """

    undecodable: Fate = "dead-letter"
    dead_letter_on: Errors = ()
    drop_on: Errors = ()
    decode: Decode | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        if self.undecodable not in FATES:
            raise ConfigError(f"undecodable={self.undecodable!r} is none of {', '.join(FATES)}")
        for kind in (*self.dead_letter_on, *self.drop_on):
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise ConfigError(f"{kind!r} is no class of exceptions")


class Endpoint:
    """A handler and how it is subscribed. `join` and `handle` are those of one run of the application."""

    def __init__(
        self,
        function: Callable[..., Any],
        topic: Topics,
        group: str,
        policy: Policy,
        options: ConsumerOptions,
    ) -> None:
        self.group = group
        check_function("handler", function)
        if policy.decode is not None:
            check_function("decode", policy.decode, waits=False)
        self.parameters = Parameters(function, policy.decode)
        self.waits = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - a callable object's own method
        )
        self._function = function
        self._topic = topic
        self._policy = policy
        self._options = options
        self._client: Client | None = None
        self._call = function

    @property
    def threads(self) -> int:
        """How many threads its handlers may take at the same time."""
        return 0 if self.waits else self._options.get("concurrency", 20)

    async def join(self, client: Client, things: Mapping[str, object]) -> PushConsumer:
        """Join the group. Raises ConfigError and what `Client.subscribe` raises."""
        if missing := self.parameters.missing(things):
            raise ConfigError(
                f"handler {self.parameters.name} asks for {', '.join(missing)}, which the lifespan does not give"
            )
        self._client = client
        self._call = partial(self._function, **self.parameters.named(things))
        chosen = member_options(self.group, self._topic, self._options, call="consumer")
        return await client._join(self._handle, chosen)

    async def _handle(self, message: ReceivedMessage) -> bool | None:
        assert self._client is not None
        policy = self._policy
        try:
            values = self.parameters.values(message, self._client)
        except CannotDecode as error:
            return self._fate(policy.undecodable, message, error)
        try:
            if self.waits:
                answer = self._call(*values)
            else:
                answer = await run_blocking(copy_context().run, partial(self._call, *values))
            answer = verdict(await answer if isinstance(answer, Awaitable) else answer)
        except policy.drop_on as error:
            return self._fate("drop", message, error)
        except policy.dead_letter_on as error:
            return self._fate("dead-letter", message, error)
        return answer

    def _fate(self, fate: Fate, message: ReceivedMessage, error: Exception) -> bool:
        """Whether the message is done with."""
        words = "message not handled fate=%s group=%s id=%s error=%r"
        log.warning(words, fate, self.group, message.message_id, error, exc_info=error)
        if fate == "dead-letter":
            message.dead_letter()
        return fate == "drop"
