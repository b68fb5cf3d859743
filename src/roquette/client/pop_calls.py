"""Popping: messages one at a time, each with a time in which it must be done."""

from roquette.client.arguments import as_subscriptions, check_count, check_group, start_point
from roquette.client.client_base import ClientBase
from roquette.client.consumer_options import StartFrom
from roquette.client.pop import Jobs
from roquette.client.pop_polls import PopOptions
from roquette.client.selection import Sql
from roquette.errors import ConfigError

MOST_A_POP = 32  # brokers give no more
LONGEST_S = 43_200.0  # brokers keep no check-point longer than their timer wheel


class PopCalls(ClientBase):
    """Consuming without owning queues: any number of processes share a group's messages, also of one queue."""

    def pop(
        self,
        topic: str,
        *,
        group: str,
        invisible: float = 60.0,
        batch: int = 16,
        tags: str = "*",
        filter: Sql | None = None,
        start_from: StartFrom = StartFrom.LAST,
        orderly: bool = False,
        renew: bool = False,
        max_reconsume_times: int = -1,
    ) -> Jobs:
        """Take messages one by one, each to be acknowledged within a time; else it comes again.

            async with mq.pop("orders", group="billing", invisible=60.0) as jobs:
                async for job in jobs:
                    await work(job.message)
                    await job.ack()

        It needs no membership of the group, and shares it with consumers of any language that pop.

        Args:
            invisible: how long, in seconds, nobody else gets a message that was handed to us; `job.extend` prolongs it.
            batch: the most messages one request takes from a broker, 1 to 32. They wait here with their time running:
                `batch` times what one message takes must be less than `invisible`.
            tags, filter: as in `subscribe`.
            start_from: where a group that has no offset yet begins: StartFrom.LAST or StartFrom.FIRST.
            orderly: each queue's messages in order; a queue gives nothing more until all that it gave are settled.
            renew: prolong, by `invisible`, each job that the application holds and has not settled.
            max_reconsume_times: after how many failures a message goes to `%DLQ%<group>` unseen; -1: 16.

        Raises:
            ConfigError: an option is wrong.
        """
        check_group(group)
        if not isinstance(topic, str):
            raise ConfigError(f"topic {topic!r:.80} is no str")
        wanted = as_subscriptions(topic, tags, filter)[topic]
        check_count("batch", batch)
        if batch > MOST_A_POP:
            raise ConfigError(f"batch={batch} is not 1 to {MOST_A_POP}")
        if not isinstance(invisible, int | float) or not 0.001 <= invisible <= LONGEST_S:
            raise ConfigError(f"invisible={invisible!r} is not 0.001 to {LONGEST_S:.0f} seconds")
        begin = start_point(start_from) if isinstance(start_from, str) else None
        if not isinstance(begin, StartFrom):
            raise ConfigError("start_from of pop is StartFrom.FIRST or StartFrom.LAST")
        check_count("max_reconsume_times", max_reconsume_times, least=-1)
        options = PopOptions(
            topic=self.session.namespace.wrap(topic),
            group=self.session.namespace.wrap(group),
            wanted=wanted,
            invisible_ms=int(invisible * 1000),
            batch=batch,
            from_first=begin is StartFrom.FIRST,
            orderly=orderly,
            renew=renew,
            most_tries=17 if max_reconsume_times < 0 else max_reconsume_times + 1,
        )
        self._first_closed = [part for part in self._first_closed if not _over(part)]
        polls = None
        for part in self._first_closed:
            if isinstance(part, Jobs) and part.closed and part.options.pool == options.pool:
                polls = part.polls
        jobs = Jobs(self.session, options, self._interceptors, polls)
        self._first_closed = [part for part in self._first_closed if not _over(part)]
        self._first_closed.append(jobs)
        return jobs


def _over(part: object) -> bool:
    """It is closed, and no answer can come any more that is its own."""
    return isinstance(part, Jobs) and part.closed and (part.polls.to is not part or not part.polls)
