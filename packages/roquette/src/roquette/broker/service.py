"""The broker: a core and a list of features, how they start and stop, and the order in which a turn's effects leave."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import TypeVar, cast

from roquette.access.model import OPEN_TO_ALL
from roquette.base.clock import Clock
from roquette.base.config import to_properties
from roquette.base.entropy import Entropy
from roquette.base.executor import run_blocking
from roquette.base.files import Files
from roquette.base.lifecycle import Tasks
from roquette.base.metric_families import MetricTable
from roquette.broker.floor.clock import BrokerClock
from roquette.broker.floor.config import BrokerConfig, LiveConfig
from roquette.broker.floor.core import BrokerCore, build_core
from roquette.broker.floor.feature import Feature, Start, hooks
from roquette.broker.floor.outbound import advertised_host, free_port, store_host
from roquette.broker.floor.parts import Address, BrokerTables, Identity
from roquette.broker.listeners import Listeners
from roquette.broker.turn import Turn
from roquette.remoting.account import MemoryAccount
from roquette.remoting.door import PortProtocols
from roquette.remoting.request import Peer, RequestContext, Row
from roquette.remoting.settings import UNPROTECTED
from roquette.store.format.config import FlushDiskType, StoreConfig
from roquette.store.message_store import MessageStore

log = logging.getLogger("roquette.broker")

REQUEST_EXPIRY_BEAT_S = 5.0

F = TypeVar("F", bound=Feature)
Features = Callable[[BrokerCore], list[Feature]]


class Broker:
    """One broker in one event loop.

    Args:
        config: `broker_name` is set, and `broker_ip1` when the bind address is not a specific one.
        features: makes what the broker does; `apps/features.py` has the list.

    Attributes:
        identity: set before the start by a member of a group; None: what the settings say.
        handed: may be set before the start: the open store of a broker of another role.
        protection: may be set before the start: what its ports ask of callers, and how it calls others.
        access: may be set before the start: whether callers are asked who they are, and what they may do.
        more: may be set before the start: what its ports serve for another server of this process.
        held: may be set before the start: keeps the ports of the settings from others until they are opened.
        core, store: there once it has started. opened: what the start has found.
        failure: why it cannot go on; None while it can.
    """

    core: BrokerCore
    store: MessageStore
    opened: Start

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        features: Features,
        *,
        files: Files,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._files, self._clock, self._entropy = files, BrokerClock(clock), entropy
        self._make_features = features
        self.tasks = Tasks()
        self.live = LiveConfig(config, store_config, clock.now_ms())
        self.tables = BrokerTables(self.live, clock)
        self.identity: Identity | None = None
        self.handed: MessageStore | None = None
        self.protection = UNPROTECTED
        self.access = OPEN_TO_ALL
        self.more: list[Row] = []
        self.held = ExitStack()
        self.failure: str | None = None
        self._failed = asyncio.Event()
        self._waking = False

    @property
    def name(self) -> str:
        """The broker's name."""
        return self.live.current.broker_name

    @property
    def address(self) -> str:
        """The address for clients and name servers: host:port."""
        return str(self.core.address)

    def feature(self, kind: type[F]) -> F:
        """The feature of a kind; raises LookupError when the broker has none."""
        for one in self._features:
            if isinstance(one, kind):
                return one
        raise LookupError(f"the broker has no {kind.__name__}")

    # Start: ports are chosen, the store recovers, features load, and only then is anything accepted.

    async def start(self) -> None:
        """Recover, accept, register.

        Raises:
            StoreError, ConfigError, OSError: it cannot start; what was opened is closed again.
        """
        self.live.fixed = {**self.protection.shown, **to_properties(self.access)}
        # A start that fails is a kill: the next one finds what this one has found, and what clients have sent meanwhile.
        async with AsyncExitStack() as failed:
            failed.callback(self.held.close)
            address = await self._choose_address()
            self.store = self.handed or MessageStore(
                self.live.store, self._files, address.store_host
            )
            failed.callback(self.store.abandon)
            found = self.opened = await self._open_store()
            self._clock.watch(self.store)
            self._build(address)
            failed.push_async_callback(self.abandon)
            await self._begin(found, address)
            failed.pop_all()
        log.info(
            "broker started name=%s address=%s fast_port=%d",
            self.name,
            self.address,
            address.fast_port,
        )

    def _build(self, address: Address) -> None:
        self.core = build_core(
            self.live,
            self.tables,
            self.store,
            address,
            self,
            files=self._files,
            clock=self._clock,
            entropy=self._entropy,
            identity=self.identity,
            protection=self.protection,
            access=self.access,
        )
        self._features = self._make_features(self.core)
        rows = [*self.more, *(row for one in self._features for row in one.rows())]
        for admit in hooks(self._features, "admit"):
            rows = [cast(Row, admit(row)) for row in rows]
        self._turn = Turn(
            self.store,
            self._clock,
            self.core.stats,
            self.core.log_sync,
            self._drop_replies,
            hooks(self._features, "arrived"),
            hooks(self._features, "turn_written"),
            sync_flush=self.live.store.flush_disk_type is FlushDiskType.SYNC_FLUSH,
        )
        self._listeners = Listeners(rows, self.core, self._connection_lost, self._turn.end)
        self._listeners.speak(self._features)

    async def _begin(self, found: Start, address: Address) -> None:
        for feature in self._features:
            feature.load(found)
        for feature in self._features:
            await feature.prepare()
        if self.identity is not None:  # of a group: readers see what is confirmed, from now on
            self.store.set_confirmed(0)
        self.held.close()
        await self._listeners.open(address.port, address.fast_port)
        self.tasks.every("request-expiry", REQUEST_EXPIRY_BEAT_S, self._listeners.expire_requests)
        for feature in self._features:
            for beat in feature.beats():
                self.tasks.every(beat.name, beat.seconds, beat.step)
            await feature.start(self.tasks)

    async def _open_store(self) -> Start:
        now_ms, steady_ms = self._clock.now_ms(), self._clock.steady_ms()
        if self.handed is not None:
            return Start(now_ms, steady_ms, self.store.last_record_offset, False, False)
        whole = self.live.current.broker_role != "SLAVE"  # a replica gets what is damaged anew
        report = await run_blocking(partial(self.store.open, now_ms, fill_damage=whole))
        log.info("store open root=%s report=%s", self.store.layout.root, report)
        damaged = bool(report.damaged_bytes or report.replaced)
        return Start(now_ms, steady_ms, report.last_record_offset, report.abnormal, damaged)

    async def _choose_address(self) -> Address:
        config = self.live.current
        host = advertised_host(config)
        port = config.listen_port or await free_port(config.bind_address, self.held)
        carried = await store_host(host, port)
        return Address(host=host, port=port, fast_port=port - 2, store_host=carried)

    def peers(self) -> list[Peer]:
        """Return the peers that are connected."""
        return self._listeners.peers()

    def http2(self) -> PortProtocols | None:
        """Return what has HTTP/2 connections at another port of this process served; None: it is not spoken here."""
        return self._listeners.http2()

    # What features ask for: `floor.parts.Shell`.

    def end_turn(self) -> None:
        """Let out what was appended and changed: see `Turn.end`."""
        self._turn.end()

    def _drop_replies(self) -> None:
        self._listeners.drop_replies()

    def wake(self) -> None:
        """Run again what waits for messages that have become visible."""
        self._turn.wake()

    def wake_soon(self) -> None:
        """Run again what waits when this turn is over: what runs again may append."""
        if not self._waking:
            self._waking = True
            asyncio.get_running_loop().call_soon(self._wake_now)

    def _wake_now(self) -> None:
        self._waking = False
        self.wake()

    def rerun(self, job: RequestContext, may_hold: bool) -> None:
        """Run a request again, now; `may_hold`: it may go on waiting."""
        self._listeners.rerun(job, may_hold)

    def strangers(self) -> tuple[int, str]:
        """Return how many connections spoke none of the ports' protocols, and the last one's host:port."""
        return self._listeners.limits.strangers, self._listeners.limits.last_stranger

    def kept(self) -> MemoryAccount:
        """Return the account of what is kept for peers."""
        return self._listeners.limits.account

    def refusals(self) -> dict[str, int]:
        """Requests and connections refused since the start, by why."""
        core = self.core
        return {
            **core.access.audit.refusals,
            **self._listeners.refusals(),
            "names": core.live.bounds.refused(),
        }

    def lanes(self) -> list[tuple[str, int, int, int]]:
        """Name, size, capacity, age of the oldest request in ms: what the main port's lanes hold."""
        return self._listeners.lanes()

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: every feature forgets it."""
        for feature in self._features:
            feature.forget_topic(topic)

    def forget_group(self, group: str, clean_offset: bool) -> None:
        """A group was deleted, with its progress when `clean_offset`: every feature forgets it."""
        for feature in self._features:
            feature.forget_group(group, clean_offset)

    def runtime_info(self, now_ms: int) -> dict[str, str]:
        """The features' lines of GET_BROKER_RUNTIME_INFO, and their health."""
        table: dict[str, str] = {}
        for feature in self._features:
            table |= feature.runtime_info(now_ms) | feature.health()
        return table

    def unready(self) -> str:
        """The first reason of a feature; "": there is none."""
        return next((why for one in self._features if (why := one.unready())), "")

    def measures(self, now_ms: int) -> Iterator[MetricTable]:
        """The features' metrics."""
        for feature in self._features:
            yield from feature.measures(now_ms)

    def _connection_lost(self, peer: Peer) -> None:
        for feature in self._features:
            feature.connection_lost(peer)

    def fail(self, why: str) -> None:
        """The broker cannot go on: `wait_failed` returns."""
        if self.failure is None:
            log.error("broker cannot go on reason=%s", why)
            self.failure = why
            self._failed.set()

    async def wait_failed(self) -> str:
        """Wait until the broker cannot go on; returns the reason. The caller stops it then."""
        await self._failed.wait()
        return self.failure or ""

    # End.

    async def stop(self) -> None:
        """Leave the name servers, stop to accept, finish what is in hand, persist, close the store."""
        log_sync = self.core.log_sync
        for feature in self._features:
            await feature.leave()
        for feature in self._features:
            feature.drain()
        await asyncio.sleep(0)
        if self.failure is None:
            log_sync.request()
        await log_sync.finish()
        await asyncio.sleep(0)
        await self._end(self._close)
        log.info("broker stopped name=%s", self.name)

    async def hand_over(self) -> MessageStore:
        """Stop in order, for a broker of another role that goes on with the open store."""
        self.core.identity.stays = True
        for feature in self._features:
            feature.drain()
        await asyncio.sleep(0)
        await self._end(self._save)
        self.store.show_all()
        log.info("broker stopped, its store is handed over name=%s", self.name)
        return self.store

    def _save(self) -> None:
        for feature in self._features:
            feature.save_now()

    def fall_silent(self) -> None:
        """Cut all connections, with the answers that wait in them."""
        self._listeners.drop_replies()

    async def abandon(self) -> None:
        """End as if killed: nothing is answered or saved any more, and the next start recovers."""
        self.failure = self.failure or "abandoned"
        self.fall_silent()
        self.core.log_sync.abandon(self.failure)
        await self._end(self.store.abandon)
        log.info("broker abandoned name=%s", self.name)

    async def _end(self, close: Callable[[], None]) -> None:
        """All of it, whatever one of the steps raises; the last one here comes first."""
        async with AsyncExitStack() as steps:
            steps.push_async_callback(run_blocking, close)
            steps.push_async_callback(self.core.log_sync.finish)
            for feature in self._features:
                steps.push_async_callback(feature.stop)
            steps.push_async_callback(self.tasks.stop)
            steps.push_async_callback(self._listeners.close)

    def _close(self) -> None:
        if self.failure is None:
            self.store.flush_all()  # progress files speak of what is on the disk only
            self._save()
        self.store.close(self.core.clock.now_ms())
