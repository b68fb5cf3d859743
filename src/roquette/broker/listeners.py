"""Where requests come in: two ports over the same processors, and what happens to all their connections."""

import asyncio
import logging
from collections.abc import Callable

from roquette.base.clock import Clock
from roquette.base.lifecycle import Tasks
from roquette.broker.config import BrokerConfig
from roquette.broker.processor_table import fast_table, lane_limits
from roquette.broker.records.log_sync import LogSync
from roquette.errors import ConfigError
from roquette.remoting.dispatcher import Dispatcher, Hooks, Peer, RequestContext, Row
from roquette.remoting.outcomes import Held, Later
from roquette.remoting.server import ConnectionBound, Server
from roquette.remoting.unfinished import PeerLimits

log = logging.getLogger("roquette.broker")


class Doors:
    """The main port and that of listenPort-2, each with a dispatcher of its own.

    Args:
        end_turn: runs after the requests of a turn and before anything is written.
        held: keeps a request that waits for messages.
        on_lost: a connection has ended.
    """

    def __init__(
        self,
        rows: list[Row],
        config: BrokerConfig,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        log_sync: LogSync,
        *,
        end_turn: Callable[[], None],
        held: Callable[[RequestContext, Held], None],
        on_lost: Callable[[Peer], None],
    ) -> None:
        self._config = config
        self._tasks = Tasks()

        def dispatcher(rows: list[Row]) -> Dispatcher:
            def later(job: RequestContext, outcome: Later) -> None:
                log_sync.park(made, job, outcome)

            limits = lane_limits(config)
            hooks = Hooks(end_turn, later, held)
            made = Dispatcher(rows, limits, clock, loop, self._tasks, hooks)
            return made

        self._main, self._fast = dispatcher(rows), dispatcher(fast_table(rows))
        idle_s = float(config.server_channel_max_idle_time_seconds)
        bound = ConnectionBound(config.max_connections)
        limits = PeerLimits(
            config.frame_timeout_seconds,
            idle_s,
            config.max_unfinished_frame_bytes,
            config.max_unsent_bytes,
        )
        self._servers = [
            Server(each, clock, on_lost=on_lost, idle_s=idle_s, bound=bound, limits=limits)
            for each in (self._main, self._fast)
        ]

    async def open(self, port: int, fast_port: int) -> None:
        """Accept connections. Raises ConfigError when the main port is taken; the other one is only missed."""
        bind = self._config.bind_address
        try:
            await self._servers[0].start(bind, port)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {bind}:{port}: {error.strerror or error}; "
                "set another listenPort, or 0 for a free one"
            ) from None
        if fast_port > 0:
            try:
                await self._servers[1].start(bind, fast_port)
            except OSError as error:
                log.warning("no second port %d (listenPort-2): %s", fast_port, error)

    def limit(self, config: BrokerConfig) -> None:
        """Take over how many requests may wait, and how long."""
        for each in (self._main, self._fast):
            each.limit(lane_limits(config))

    def rerun(self, job: RequestContext, may_hold: bool) -> None:
        """Run a request again that has waited."""
        self._main.rerun(job, may_hold=may_hold)

    def lanes(self) -> list[tuple[str, int, int, int]]:
        """What the main port's lanes hold (`Dispatcher.lane_sizes`)."""
        return self._main.lane_sizes()

    def drop_replies(self) -> None:
        """Replies of this turn promise what is not in the log: the connections go, and the replies with them."""
        for server in self._servers:
            for peer in list(server.peers.values()):
                peer.wire.data_to_send()
                peer.closed = True
                peer.transport.abort()

    def expire_requests(self) -> None:
        """The beat of requests that we sent to clients."""
        for server in self._servers:
            server.expire_requests()

    async def close(self) -> None:
        """Close ports and connections, end what is in hand for them."""
        for server in self._servers:
            await server.stop()
        await self._tasks.stop()
