"""Entry of requests: two ports over the same processors, and what happens to all their connections."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from roquette.base.descriptors import words_of
from roquette.base.lifecycle import Tasks
from roquette.broker.floor.config import BrokerConfig
from roquette.broker.floor.core import BrokerCore
from roquette.broker.floor.feature import ABOUT, Feature, Lane
from roquette.errors import ConfigError
from roquette.remoting.account import PeerLimits
from roquette.remoting.dispatcher import Dispatcher, Hooks, LaneLimits
from roquette.remoting.door import PortProtocols
from roquette.remoting.request import Later, Peer, RequestContext, Row
from roquette.remoting.server import ConnectionBound, Server

log = logging.getLogger("roquette.broker")

NOT_ON_FAST_PORT = frozenset((Lane.PULL, Lane.LITE_PULL))


class Listeners:
    """The main port and that of listenPort-2, each with a dispatcher of its own.

    Args:
        lost: a connection has ended. end_turn: see `Hooks`.

    Attributes:
        limits: what peers may leave unfinished, at both ports; who spoke nothing we do is counted there.
    """

    def __init__(
        self,
        rows: list[Row],
        core: BrokerCore,
        lost: Callable[[Peer], None],
        end_turn: Callable[[], None],
    ) -> None:
        self._config = config = core.live.current
        self._tls = core.protection.tls
        self._tasks = Tasks()
        door, guarded = core.protection.door, core.protection.guard is not None
        self._protocols: PortProtocols | None = (
            None if door is None else door.protocols(ABOUT, guarded)
        )
        self._further = core.protection.ports
        loop = asyncio.get_running_loop()

        def dispatcher(rows: list[Row]) -> Dispatcher:
            def later(job: RequestContext, outcome: Later) -> None:
                core.log_sync.park(made, job, outcome)

            hooks = Hooks(end_turn, later, core.protection.guard)
            made = Dispatcher(rows, lane_limits(config), core.clock, loop, self._tasks, hooks)
            return made

        self._main, self._fast = (
            dispatcher(rows),
            dispatcher([row for row in rows if row.lane not in NOT_ON_FAST_PORT]),
        )
        idle_s = float(config.server_channel_max_idle_time_seconds)
        bound = ConnectionBound(config.max_connections)
        self.limits = limits = PeerLimits(
            config.frame_timeout_seconds,
            idle_s,
            config.max_unfinished_frame_bytes,
            config.max_unsent_bytes,
            config.max_kept_bytes,
        )
        self._servers = [
            Server(each, core.clock, on_lost=lost, idle_s=idle_s, bound=bound, limits=limits)
            for each in (self._main, self._fast)
        ]
        core.live.changed.append(lambda keys: self._limit(core.live.current))

    def speak(self, features: Iterable[Feature]) -> None:
        """Ask what else the ports speak, before they open."""
        for feature in features:
            found = feature.protocols(self._main)
            if found is not None:
                ours = self._protocols or found
                self._protocols = replace(ours, http2=found.http2 or ours.http2)
            pages = feature.pages()
            own = self._protocols
            if pages is not None and own is not None and own.pages is not None:
                self._protocols = replace(own, pages=own.pages.joined(pages))

    async def open(self, port: int, fast_port: int) -> None:
        """Accept connections. Raises ConfigError when the main port is taken; the other one is only missed."""
        bind, tls = self._config.bind_address, self._tls
        try:
            await self._servers[0].start(bind, port, tls, self._protocols)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {bind}:{port}: {words_of(error)}; "
                "set another listenPort, or 0 for a free one"
            ) from None
        if fast_port > 0:
            try:
                await self._servers[1].start(bind, fast_port, tls, self._protocols)
            except OSError as error:
                log.warning("no second port %d (listenPort-2): %s", fast_port, error)
        for further in sorted({*self._further} - {0, port, fast_port}):
            try:
                await self._servers[0].start(bind, further, tls, self._protocols)
            except OSError as error:
                words = "no further port %d (grpcServerPort, remotingListenPort): %s"
                log.warning(words, further, error)

    def refusals(self) -> dict[str, int]:
        """Return how much was refused since the start, by why."""
        main, fast = (server.refusals() for server in self._servers)
        return main | {why: main[why] + fast[why] for why in ("busy", "unsupported", "tls")}

    def peers(self) -> list[Peer]:
        """Return the peers that are connected, at both ports."""
        return [peer for server in self._servers for peer in server.peers.values()]

    def http2(self) -> PortProtocols | None:
        """Return what has HTTP/2 connections served that come in at another port of this process."""
        protocols, server = self._protocols, self._servers[0]
        if protocols is None or protocols.http2 is None:
            return None
        return replace(protocols, http2=lambda _, made, lost, pages: server.http2(pages))

    def _limit(self, config: BrokerConfig) -> None:
        """Take over how many requests may wait, and how long."""
        for each in (self._main, self._fast):
            each.limit(lane_limits(config))

    def rerun(self, job: RequestContext, may_hold: bool) -> None:
        """Run a request again that has waited."""
        self._main.rerun(job, may_hold=may_hold)

    def lanes(self) -> list[tuple[str, int, int, int]]:
        """Return what the main port's lanes hold (`Dispatcher.lane_sizes`)."""
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


def lane_limits(c: BrokerConfig) -> list[LaneLimits]:
    """Capacity and longest wait per lane, in the order of `Lane`; 0 where Apache cleans no queue."""
    rows = [
        ("send", c.send_thread_pool_queue_capacity, c.wait_time_mills_in_send_queue),
        ("pull", c.pull_thread_pool_queue_capacity, c.wait_time_mills_in_pull_queue),
        ("litePull", c.lite_pull_thread_pool_queue_capacity, c.wait_time_mills_in_lite_pull_queue),
        ("consumerManager", c.consumer_manager_thread_pool_queue_capacity, 0),
        ("heartbeat", c.heartbeat_thread_pool_queue_capacity, c.wait_time_mills_in_heartbeat_queue),
        ("clientManager", c.client_manager_thread_pool_queue_capacity, 0),
        ("query", c.query_thread_pool_queue_capacity, 0),
        (
            "adminBroker",
            c.admin_broker_thread_pool_queue_capacity,
            c.wait_time_mills_in_admin_broker_queue,
        ),
        ("ack", c.ack_thread_pool_queue_capacity, c.wait_time_mills_in_ack_queue),
        (
            "EndTransaction",
            c.end_transaction_pool_queue_capacity,
            c.wait_time_mills_in_transaction_queue,
        ),
        ("reply", c.reply_thread_pool_queue_capacity, 0),
        ("loadBalance", c.load_balance_thread_pool_queue_capacity, 0),
    ]
    fast = c.broker_fast_failure_enable
    return [LaneLimits(name, capacity, wait if fast else 0) for name, capacity, wait in rows]
