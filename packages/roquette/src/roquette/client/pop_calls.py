"""Popping: messages one at a time, each with a time in which it must be done."""

from typing import TYPE_CHECKING, Final, Unpack

from roquette.client.arguments import (
    as_subscriptions,
    check_count,
    check_group,
    seconds_of,
    start_point,
)
from roquette.client.client_base import ClientBase
from roquette.client.consumer_options import PopOptions, StartFrom
from roquette.client.settings import options_of_call
from roquette.errors import ConfigError

if TYPE_CHECKING:
    from roquette.client.pop import PoppedMessages

MOST_A_POP: Final = 32  # brokers give no more
LONGEST_S: Final = 43_200.0  # brokers keep no check-point longer than their timer wheel


class PopCalls(ClientBase):
    """Consuming without owning queues: any number of processes share a group's messages, also of one queue."""

    def pop(self, topic: str, *, group: str, **options: Unpack[PopOptions]) -> "PoppedMessages":
        """Take messages one by one, each to be acknowledged within a time; else it comes again.

            async with mq.pop("orders", group="billing", invisible=60.0) as messages:
                async for message in messages:
                    await work(message)
                    await message.ack()

        It needs no membership of the group, and shares it with consumers of any language that pop.

        Args:
            options: see `PopOptions`.

        Raises:
            ConfigError: an option is wrong. ClientClosed: the client is not started, or closed.
        """
        from roquette.client.pop import PoppedMessages  # loaded by those who pop
        from roquette.client.pop_polls import PopPlan

        options = options_of_call("pop", options, PopOptions, self._environ)
        check_group(group)
        if not isinstance(topic, str):
            raise ConfigError(f"topic {topic!r:.80} is no str")
        wanted = as_subscriptions(topic, options)[topic]
        batch = options.get("batch", 16)
        check_count("batch", batch)
        if batch > MOST_A_POP:
            raise ConfigError(f"batch={batch} is not 1 to {MOST_A_POP}")
        invisible_s = seconds_of(options.get("invisible", 60.0), "invisible", 0.001, LONGEST_S)
        start_from = options.get("start_from", StartFrom.FIRST)
        begin = start_point(start_from) if isinstance(start_from, str) else None
        if not isinstance(begin, StartFrom):
            raise ConfigError("start_from of pop is StartFrom.FIRST or StartFrom.LAST")
        most = options.get("max_reconsume_times", -1)
        check_count("max_reconsume_times", most, least=-1)
        timeout = options.get("timeout")
        plan = PopPlan(
            topic=self.session.namespace.wrap(topic),
            group=self.session.namespace.wrap(group),
            wanted=wanted,
            invisible_ms=int(invisible_s * 1000),
            batch=batch,
            from_first=begin is StartFrom.FIRST,
            orderly=options.get("orderly", False),
            renew=options.get("renew", False),
            most_tries=17 if most < 0 else most + 1,
            timeout_s=None if timeout is None else seconds_of(timeout),
        )
        self._first_closed = [part for part in self._first_closed if not _is_drained(part)]
        polls = None
        for part in self._first_closed:
            if isinstance(part, PoppedMessages) and part.closed and part._plan.pool == plan.pool:
                polls = part._polls
        popped = PoppedMessages(self.session, plan, self._interceptors, polls)
        self._first_closed = [part for part in self._first_closed if not _is_drained(part)]
        self._first_closed.append(popped)
        return popped


def _is_drained(part: object) -> bool:
    """It is closed, and no answer can come any more that is its own."""
    from roquette.client.pop import PoppedMessages

    if not isinstance(part, PoppedMessages):
        return False
    return part.closed and (part._polls.to is not part or not part._polls)
